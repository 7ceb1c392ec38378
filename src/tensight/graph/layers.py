"""Layers of a network: operators between weights, weight matrices, and their gradients.

A trained classifier saturates its last layer, and a loss becomes zero, so only the layers in between are informative.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from tensight.graph.bottlenecks import Bottlenecks
from tensight.graph.dataflow import VIRTUAL_TYPES
from tensight.graph.layer_node import OPTIMIZER_SCOPE, OUTSIDE, LayerNode
from tensight.graph.operator_facts import (
    MASK_CARRIERS,
    MASK_MAKERS,
    OVERWRITING,
    activation_name,
    is_named_backward,
    plain_type,
    takes_only_form,
)
from tensight.graph.optimizers import is_gradient_scope, is_optimizer, parameter_roles
from tensight.graph.zero_provenance import (
    ZeroProvenance,
    find_masks,
    find_zero_provenances,
    gradient_zero_provenances,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from tensight.graph.data_types import OutputSlot
    from tensight.graph.model import Graph
    from tensight.graph.node import Node

_EXPANSION_SCOPE = "Expand/"
_LONGEST_UPDATE = 64
"""Limit for the operators of an optimizer for one weight; it only matters if those of several are connected."""
_PARAMETER_STACK = 3
"""Number of dimensions of position embeddings, (1, length, width), which are often initialized to zero."""


@dataclass(frozen=True, slots=True)
class Layers:
    """The layers of a network: the roles of its nodes in them.

    Attributes
    ----------
    hidden : frozenset of str
        Operators of the forward pass whose results depend on weights and go into operators with further weights.
    matrices : frozenset of str
        Trained weights with two or more dimensions: those of dense layers, convolutions, embeddings. Includes frozen
        weights that an optimizer received, if they lie between trained ones.
    inner_matrices : frozenset of str
        Those of `matrices` whose layers are bottlenecks before later layers, so they should not be initialized to zero.
    matrix_gradients : mapping of str to str
        Weights of `matrices` by the name of the gradient that an optimizer reads.
    depths : mapping of str to int
        Position of each weight in the forward pass; the same for its gradient.
    may_mask : frozenset of str
        Nodes that may contain -Inf on purpose, as masks.
    zero_provenances : mapping of str to ZeroProvenance
        For each operator, and each gradient of a weight, the values that must be zero for its zeros to be propagated
        rather than originate in it.
    backward : frozenset of str
        Operators of the backward pass, regardless of their scope.
    trained, frozen : frozenset of str
        Weights of any shape.
    """

    hidden: frozenset[str] = frozenset()
    matrices: frozenset[str] = frozenset()
    inner_matrices: frozenset[str] = frozenset()
    matrix_gradients: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    depths: Mapping[str, int] = field(default_factory=lambda: _NOTHING)
    may_mask: frozenset[str] = frozenset()
    zero_provenances: Mapping[str, ZeroProvenance] = field(default_factory=lambda: _NOTHING)
    backward: frozenset[str] = frozenset()
    trained: frozenset[str] = frozenset()
    frozen: frozenset[str] = frozenset()

    def is_backward(self, name: str) -> bool:
        """Whether a node belongs to the backward pass, by its scope or, if that was lost, by its inputs."""
        return is_gradient_scope(name) or name in self.backward

    def __or__(self, other: Layers) -> Layers:
        """Merge the layers of two graphs of a network; where they differ, the second one counts."""
        return Layers(
            self.hidden | other.hidden,
            (self.matrices - other.frozen) | other.matrices,
            other.inner_matrices if other.hidden else self.inner_matrices | other.inner_matrices,
            {**self.matrix_gradients, **other.matrix_gradients},
            {**self.depths, **other.depths},
            self.may_mask | other.may_mask,
            {**self.zero_provenances, **other.zero_provenances},
            self.backward | other.backward,
            (self.trained - other.frozen) | other.trained,
            (self.frozen - other.trained) | other.frozen,
        )


_NOTHING: Mapping[str, Any] = MappingProxyType({})


def graph_layers(graph: Graph) -> Layers:
    """Return the layers of the network of a graph."""
    return graph.once(_graph_layers)


def _graph_layers(graph: Graph) -> Layers:
    return find_layers(nodes_of(graph))


def nodes_of(graph: Graph) -> Iterator[LayerNode]:
    """Yield the nodes of a graph as `LayerNode`."""
    roles = parameter_roles(graph)
    for node in graph.nodes:
        if node.type in VIRTUAL_TYPES:
            continue
        if node.is_operator:
            kind = "operator"
        elif node.is_constant:
            kind = "constant"
        elif node.name in roles.trainable:
            kind = "weight"
        else:
            kind = "frozen" if node.name in roles.frozen else "data"
        inputs, slots = _inputs_of(graph, node)
        shape = node.outputs[0].shape if node.outputs else None
        yield LayerNode(
            node.name, node.type, inputs, kind, shape, is_optimizer(node), slots, holds_integers(node.outputs)
        )


def _inputs_of(graph: Graph, node: Node) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the names of the nodes that the inputs of a node come from, and the output slot of each."""
    producers = [producer for producer in graph.flat_producers(node) if producer is not None]
    return (
        tuple("" if source.name == OUTSIDE else source.name for source, _ in producers),
        tuple(slot for _, slot in producers),
    )


def backward_operators(graph: Graph) -> frozenset[str]:
    """Return the operators of the backward pass, regardless of their scope; faster than `graph_layers`.

    Parameters
    ----------
    graph : Graph
    """
    return graph.once(_backward_operators)


def _backward_operators(graph: Graph) -> frozenset[str]:
    nodes = (
        LayerNode(node.name, node.type, _inputs_of(graph, node)[0], "operator", optimizes=is_optimizer(node))
        for node in graph.operators
        if node.type not in VIRTUAL_TYPES
    )
    return frozenset(_passes(nodes)[0])


def holds_integers(outputs: Sequence[OutputSlot]) -> bool:
    """Whether the first output of a node contains integers or booleans."""
    return bool(outputs) and outputs[0].dtype.startswith(("int", "uint", "bool"))


def find_layers(nodes: Iterable[LayerNode]) -> Layers:
    """Return the layers of a network.

    Parameters
    ----------
    nodes : iterable of LayerNode
        All nodes, with operators in execution order.
    """
    every = tuple(nodes)
    by_name = {node.name: node for node in every}
    backward, optimizing = _passes(every)
    later = backward | optimizing
    forward = [node for node in every if node.kind == "operator" and node.name not in later]
    use = _use_of_weights(every, forward)
    trained = {node.name for node in every if node.kind == "weight"}
    matrices = {name for name in trained if _is_matrix(by_name[name].shape)}
    masks = find_masks(every)
    bottlenecks = Bottlenecks(every, forward, use.of_weights, use.fed, masks)
    left = _left_frozen(every, by_name, bottlenecks)
    gradients = _gradients(every, by_name, matrices)
    return Layers(
        frozenset((use.fed & _leads_on(forward, use.takes_weights)) - use.of_weights),
        frozenset(matrices | left),
        bottlenecks.weights() & matrices,
        gradients,
        _depths(every, use.depths, gradients),
        frozenset(_masks(every, later)),
        {
            **find_zero_provenances(by_name, use.of_weights, use.fed, masks),
            **gradient_zero_provenances(forward, bottlenecks.weights_in, gradients),
        },
        frozenset(backward),
        frozenset(trained),
        frozenset(node.name for node in every if node.kind == "frozen") - left,
    )


class _WeightUse(NamedTuple):
    """The use of weights in the forward pass.

    Attributes
    ----------
    of_weights : set of str
        The weights, and views and conversions of them.
    takes_weights : set of str
        Operators that read weights together with other inputs.
    fed : set of str
        These operators, and all that depend on them.
    depths : dict of str to int
        For each of `of_weights`, the position in execution order of the last operator that reads it.
    """

    of_weights: set[str]
    takes_weights: set[str]
    fed: set[str]
    depths: dict[str, int]


def _use_of_weights(every: Iterable[LayerNode], forward: list[LayerNode]) -> _WeightUse:
    constants = {node.name for node in every if node.kind == "constant"}
    use = _WeightUse({node.name for node in every if node.kind in ("weight", "frozen")}, set(), set(), {})
    for position, node in enumerate(forward):
        if takes_only_form(node.type):
            continue
        inputs = [name for name in node.inputs if name not in constants]
        taken = [name for name in inputs if name in use.of_weights]
        use.depths.update((name, position) for name in taken)
        if inputs and len(taken) == len(inputs):
            # A view or a conversion of weights is not a layer.
            use.of_weights.add(node.name)
        elif taken:
            use.takes_weights.add(node.name)
            use.fed.add(node.name)
        elif any(name in use.fed for name in inputs):
            use.fed.add(node.name)
    _pass_depths(forward, use.of_weights, use.depths)
    return use


def _leads_on(forward: Sequence[LayerNode], takes_weights: set[str]) -> set[str]:
    """Return the nodes that go into operators that take weights, directly or through others."""
    upstream: set[str] = set()
    for node in reversed(forward):
        if node.name in takes_weights or node.name in upstream:
            # An input that is only overwritten is not used, such as the part of a buffer that a sequence is copied to.
            upstream.update(node.inputs[1:] if plain_type(node.type) in OVERWRITING else node.inputs)
    return upstream


def _depths(every: Iterable[LayerNode], depths: Mapping[str, int], gradients: Mapping[str, str]) -> dict[str, int]:
    """Return the depths of weights and of their gradients."""
    weights = {node.name for node in every if node.kind in ("weight", "frozen")}
    return {
        **{name: depth for name, depth in depths.items() if name in weights},
        **{gradient: depths[weight] for gradient, weight in gradients.items() if weight in depths},
    }


def _passes(nodes: Iterable[LayerNode]) -> tuple[set[str], set[str]]:
    """Return the operators of the backward pass, and those of optimizers.

    Operators that MindSpore expands lose the scope of their pass, so their inputs decide. The type is not sufficient: a
    module of the forward pass may be called ClipGrad.
    """
    backward: set[str] = set()
    optimizing: set[str] = set()
    for node in nodes:
        name = node.name
        if node.kind != "operator":
            continue
        if is_gradient_scope(name):
            backward.add(name)
        elif _optimizes(node):
            optimizing.add(name)
        elif (expanded := name.startswith(_EXPANSION_SCOPE)) or is_named_backward(node.type):
            reads_gradient = not backward.isdisjoint(node.inputs)
            named_backward = is_named_backward(node.type) and (reads_gradient or not node.inputs)
            if named_backward or (expanded and reads_gradient):
                backward.add(name)
            elif expanded and not optimizing.isdisjoint(node.inputs):
                optimizing.add(name)
    return backward, optimizing


def _optimizes(node: LayerNode) -> bool:
    return node.optimizes or node.name.startswith(OPTIMIZER_SCOPE)


def _is_matrix(shape: Collection[int] | None) -> bool:
    if shape is None or len(shape) < 2:
        return False
    return not (len(shape) == _PARAMETER_STACK and next(iter(shape)) == 1)


def _left_frozen(
    nodes: Collection[LayerNode], by_name: Mapping[str, LayerNode], bottlenecks: Bottlenecks
) -> frozenset[str]:
    """Return weights that were probably left frozen by mistake.

    Optimizers often receive all weights of a network, and some are frozen for a reason: the trunk below the trained
    layers, the layers beside adapters, positions. A frozen weight is suspicious if an optimizer has it, if its layer is
    a bottleneck between trained weights, and if at most half of all matrices are frozen.
    """
    given = {name for node in nodes if _optimizes(node) for name in node.inputs}
    given = {name for name in given if name in by_name and by_name[name].kind == "frozen"}
    if not given:
        return frozenset()
    matrices = [node for node in nodes if node.kind in ("weight", "frozen") and _is_matrix(node.shape)]
    frozen = sum(node.kind == "frozen" for node in matrices)
    return bottlenecks.between_trained() & given if 2 * frozen <= len(matrices) else frozenset()


def _pass_depths(forward: list[LayerNode], of_weights: set[str], depths: dict[str, int]) -> None:
    """Give weights the depth of the layers that take views of them."""
    for node in reversed(forward):
        if node.name in of_weights and node.name in depths:
            for name in node.inputs:
                if name in of_weights:
                    depths[name] = max(depths.get(name, 0), depths[node.name])


def _gradients(
    nodes: tuple[LayerNode, ...],
    by_name: Mapping[str, LayerNode],
    matrices: Collection[str],
) -> dict[str, str]:
    """Return matrices by the name of their gradient: what the optimizer reads with a matrix, or is named after it."""
    gradients: dict[str, str] = {}
    for node in nodes:
        if node.kind != "operator" or not _optimizes(node):
            continue
        updated = [name for name in node.inputs if name in matrices]
        if len(updated) != 1:
            continue
        read = [name for name in node.inputs if name in by_name and is_gradient_scope(name)]
        if len(read) != 1:
            read = _read_by_optimizer(node, by_name, by_name[updated[0]].shape)
        if len(read) == 1:
            gradients[read[0]] = updated[0]
    for node in nodes:
        if node.type == "AccumulateGrad" and node.name not in gradients:
            path = node.name.split("/")[2:-1]
            named = next((name for name in (".".join(path), ".".join(path[1:])) if name in matrices), None)
            if named is not None:
                gradients[node.name] = named
    return gradients


def _read_by_optimizer(node: LayerNode, by_name: Mapping[str, LayerNode], shape: tuple[int, ...] | None) -> list[str]:
    """Return the inputs of an optimizer with the shape of a weight, traced back through its own operators.

    A gradient may have been unscaled, clipped or averaged since the backward pass; the value that is read counts.
    """
    waiting, seen, candidates = [node], {node.name}, []
    while waiting and len(seen) <= _LONGEST_UPDATE:
        for name in waiting.pop().inputs:
            source = by_name.get(name)
            if source is None or name in seen or source.kind != "operator":
                continue
            seen.add(name)
            if _optimizes(source):
                waiting.append(source)
            elif source.shape == shape:
                candidates.append(name)
    return candidates


def _masks(nodes: Iterable[LayerNode], backward: Collection[str]) -> Iterator[str]:
    masks: set[str] = set()
    for node in nodes:
        if node.kind == "data":
            masks.add(node.name)
        elif node.kind == "operator" and node.name not in backward:
            name = activation_name(node.type) or plain_type(node.type)
            if name in MASK_MAKERS or (name in MASK_CARRIERS and not masks.isdisjoint(node.inputs)):
                masks.add(node.name)
    yield from masks
