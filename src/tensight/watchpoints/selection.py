"""Evaluation of selectors, shared by training processes, sessions and dumps.

A training process checks nodes as they appear, before it knows a graph; sessions and dumps have the graphs. All of
them apply the same rule to the same facts.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, NamedTuple

from tensight.graph import Layers, activation_name, text_pattern, trainable_weight_names
from tensight.graph.layers import graph_layers
from tensight.watchpoints.watchpoint import SelectorKind

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from tensight.graph import Graph, Node
    from tensight.watchpoints.watchpoint import Selector

_WITHOUT_LAYERS = {
    SelectorKind.ALL,
    SelectorKind.WEIGHTS,
    SelectorKind.TRAINABLE_WEIGHTS,
    SelectorKind.NAME,
    SelectorKind.TYPE,
}


class NodeFacts(NamedTuple):
    """The facts about a node that selectors use.

    Attributes
    ----------
    name : str
        Full name.
    type : str
        Type of the operator, or ``Parameter`` or ``Const``.
    kind : str
        As in `tensight.graph.LayerNode`: ``operator``, ``weight`` for a trained parameter, ``frozen``, ``data``,
        ``constant``.
    """

    name: str
    type: str
    kind: str


class NodeRule(NamedTuple):
    """A selector, divided into what follows from the type and kind of a node, and what follows from its name.

    Many nodes share a type and a kind, so that large graphs are decided by arrays.

    Attributes
    ----------
    includes : callable (type, kind, is_backward) -> bool
        Whether the selector includes such nodes, if their names are included, too.
    names : collection of str or None
        The only names that it includes; None if it includes any.
    pattern : callable (name) -> object, or None
        Returns something true for names that it includes; None if it includes any.
    """

    includes: Callable[[str, str, bool], bool]
    names: Collection[str] | None = None
    pattern: Callable[[str], object] | None = None

    @property
    def is_of_names(self) -> bool:
        """Whether the name of a node counts, too."""
        return self.names is not None or self.pattern is not None

    def includes_name(self, name: str) -> bool:
        """Whether the name of a node is included."""
        return (self.names is None or name in self.names) and (self.pattern is None or bool(self.pattern(name)))


def node_rule(selector: Selector, layers: Layers) -> NodeRule:
    """Return which nodes a selector includes.

    Parameters
    ----------
    selector : Selector
        The selector.
    layers : Layers
        Layers of all graphs of the rank together; needed only if `needs_layers` is true.
    """
    named = _named_by_layers(selector.kind, layers)
    if named is not None:
        return NodeRule(lambda _type, kind, _is_backward: kind != "constant", named)
    functions = {activation_name(name) or name.lower() for name in selector.names}
    types = {name.lower() for name in selector.names}

    def is_activation(type_: str, kind: str, is_backward: bool) -> bool:
        return kind == "operator" and not is_backward and activation_name(type_) in functions

    def is_any_activation(type_: str, kind: str, is_backward: bool) -> bool:
        return kind == "operator" and not is_backward and activation_name(type_) != ""

    def is_weight(_type: str, kind: str, _is_backward: bool) -> bool:
        return kind == "weight"

    rules: dict[SelectorKind, Callable[[str, str, bool], bool]] = {
        SelectorKind.WEIGHTS: is_weight,
        SelectorKind.TRAINABLE_WEIGHTS: is_weight,
        SelectorKind.GRADIENTS: lambda _, kind, is_backward: kind == "operator" and is_backward,
        SelectorKind.ACTIVATIONS: is_any_activation,
        SelectorKind.ACTIVATION: is_activation,
        SelectorKind.HIDDEN_ACTIVATION: is_activation,
        SelectorKind.TYPE: lambda type_, kind, _: kind != "constant" and type_.lower() in types,
    }
    includes = rules.get(selector.kind, lambda _type, kind, _is_backward: kind != "constant")
    if selector.kind is SelectorKind.HIDDEN_ACTIVATION:
        return NodeRule(includes, layers.hidden)
    if selector.kind is SelectorKind.NAME:
        # As in RE2, which sessions use for name searches.
        return NodeRule(includes, pattern=text_pattern(selector.argument, ascii_classes=True).search)
    return NodeRule(includes)


def matcher(selector: Selector, layers: Layers) -> Callable[[NodeFacts], bool]:
    """Return a predicate that decides whether a selector includes a node; see `node_rule`.

    Parameters
    ----------
    selector : Selector
        The selector.
    layers : Layers
        The layers of the network, for selectors that depend on them (`needs_layers`).
    """
    rule = node_rule(selector, layers)
    return lambda node: (
        rule.includes_name(node.name) and rule.includes(node.type, node.kind, layers.is_backward(node.name))
    )


def _named_by_layers(kind: SelectorKind, layers: Layers) -> Collection[str] | None:
    """Return the names of the selected nodes if the kind alone determines them; else None."""
    if kind is SelectorKind.HIDDEN:
        return layers.hidden
    if kind is SelectorKind.MATRICES:
        return layers.matrices
    if kind is SelectorKind.INNER_MATRICES:
        return layers.inner_matrices
    return layers.matrix_gradients if kind is SelectorKind.MATRIX_GRADIENTS else None


def needs_layers(selector: Selector) -> bool:
    """Whether a selector depends on the layers of the network.

    Parameters
    ----------
    selector : Selector
        The selector.
    """
    return selector.kind not in _WITHOUT_LAYERS


def layers_of_graphs(graphs: Sequence[Graph]) -> Layers:
    """Return the layers of the network that all graphs of a rank compute together.

    Parameters
    ----------
    graphs : sequence of Graph
        All graphs of the rank.
    """
    return reduce(or_, (graph_layers(graph) for graph in graphs)) if graphs else Layers()


def node_facts(node: Node, trained: Collection[str]) -> NodeFacts:
    """Return the facts of a node of a graph.

    Parameters
    ----------
    node : Node
    trained : collection of str
        Names of the weights that any graph of the rank trains.
    """
    if node.is_operator:
        return NodeFacts(node.name, node.type, "operator")
    if node.is_constant:
        return NodeFacts(node.name, node.type, "constant")
    return NodeFacts(node.name, node.type, "weight" if node.name in trained else "data")


def selected_nodes(graph: Graph, selector: Selector, graphs: Sequence[Graph] = ()) -> frozenset[str]:
    """Return the names of the nodes of a graph that a selector includes.

    Parameters
    ----------
    graph : Graph
        The graph.
    selector : Selector
        The rule.
    graphs : sequence of Graph
        All graphs of the rank: a weight that one of them trains is also a weight in the others. By default this graph.
    """
    every = graphs or (graph,)
    layers = layers_of_graphs(every) if needs_layers(selector) else Layers()
    trained = trainable_weight_names(every)
    named = _named_by_layers(selector.kind, layers)
    if selector.kind in (SelectorKind.WEIGHTS, SelectorKind.TRAINABLE_WEIGHTS):
        named = trained
    # In a large graph these are few.
    nodes = graph.nodes if named is None else [graph.node(name) for name in named if name in graph]
    matches = matcher(selector, layers)
    return frozenset(node.name for node in nodes if matches(node_facts(node, trained)))
