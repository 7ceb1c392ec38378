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


def matcher(selector: Selector, layers: Layers) -> Callable[[NodeFacts], bool]:
    """Return a predicate that decides whether a selector includes a node.

    Parameters
    ----------
    selector : Selector
        The selector.
    layers : Layers
        Layers of all graphs of the rank together; needed only if `needs_layers` is true.
    """
    named = _named_by_layers(selector.kind, layers)
    if named is not None:
        return lambda node: node.kind != "constant" and node.name in named
    functions = {activation_name(name) or name.lower() for name in selector.names}
    types = {name.lower() for name in selector.names}
    # As in RE2, which sessions use for name searches.
    pattern = text_pattern(selector.argument if selector.kind is SelectorKind.NAME else "", ascii_classes=True)

    def activation(node: NodeFacts) -> str:
        return "" if node.kind != "operator" or layers.is_backward(node.name) else activation_name(node.type)

    rules: dict[SelectorKind, Callable[[NodeFacts], bool]] = {
        SelectorKind.ALL: lambda _: True,
        SelectorKind.WEIGHTS: lambda node: node.kind == "weight",
        SelectorKind.TRAINABLE_WEIGHTS: lambda node: node.kind == "weight",
        SelectorKind.GRADIENTS: lambda node: node.kind == "operator" and layers.is_backward(node.name),
        SelectorKind.ACTIVATIONS: lambda node: activation(node) != "",
        SelectorKind.ACTIVATION: lambda node: activation(node) in functions,
        SelectorKind.HIDDEN_ACTIVATION: lambda node: node.name in layers.hidden and activation(node) in functions,
        SelectorKind.NAME: lambda node: pattern.search(node.name) is not None,
        SelectorKind.TYPE: lambda node: node.type.lower() in types,
    }
    rule = rules[selector.kind]
    return lambda node: node.kind != "constant" and rule(node)


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
