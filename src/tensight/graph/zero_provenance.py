"""Zero provenance: which inputs of an operator must be zero for its own zeros to be propagated, not made by it.

A product is zero where a factor is, a sum where all terms are. So a state that begins at zero, a weight that does, and
everything that is computed from a dead layer propagate their zeros; none of these originate where they show. A mask is
no such reason: what multiplies a layer away with one has done it there, unless the sum that follows lets another branch
pass through, as gates do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tensight.graph.operator_facts import GATES, PREDICATES, SUMS, plain_type, takes_only_form

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from tensight.graph.layer_node import LayerNode


class ZeroProvenance(NamedTuple):
    """What decides whether an operator that puts out zeros only propagates them.

    Attributes
    ----------
    sources : tuple of (str, int)
        Outputs of nodes; a view of a weight counts as the weight.
    all_of_them : bool
        Whether all of them must be zero; else one is enough. Without sources the zeros are meant, or nobody can tell.
    """

    sources: tuple[tuple[str, int], ...] = ()
    all_of_them: bool = True

    def propagates(self, zero: Iterable[bool | None]) -> bool | None:
        """Tell whether zeros are propagated, by which of the sources are all zero; None where that is not known."""
        known = set(zero)
        decisive = not self.all_of_them
        if decisive in known:
            return decisive
        return None if None in known else not decisive


def find_zero_provenances(
    nodes: Sequence[LayerNode], of_weights: Collection[str], fed: Collection[str]
) -> dict[str, ZeroProvenance]:
    """Return the zero provenance of each operator.

    Parameters
    ----------
    nodes : sequence of LayerNode
        Operators in the order of execution.
    of_weights : collection of str
        Weights, and views of them.
    fed : collection of str
        Operators whose results come from weights.
    """
    by_name = {node.name: node for node in nodes}
    masks = find_masks(nodes)
    absorbed = _absorbed(nodes, fed)
    return {
        node.name: _zero_provenance(node, by_name, of_weights, fed, masks, node.name in absorbed)
        for node in nodes
        if node.kind == "operator" and not node.optimizes
    }


def gradient_zero_provenances(
    forward: Sequence[LayerNode], weights_in: Mapping[str, Collection[str]], gradients: Mapping[str, str]
) -> dict[str, ZeroProvenance]:
    """Return the zero provenance of gradients of weights: a weight has none where zeros go into its layer.

    Parameters
    ----------
    forward : sequence of LayerNode
        The operators of the forward pass.
    weights_in : mapping of str to collection of str
        Which weights a weight, or a view of weights, is made of.
    gradients : mapping of str to str
        Gradients, and their weights.
    """
    read: dict[str, dict[tuple[str, int], bool]] = {}
    unknown: set[str] = set()
    for node in forward:
        if node.name in weights_in:
            continue
        weights = {weight for name in node.inputs for weight in weights_in.get(name, ())}
        if not weights:
            continue
        slots = node.slots or (0,) * len(node.inputs)
        inputs = [pair for pair in zip(node.inputs, slots, strict=True) if pair[0] not in weights_in]
        if not inputs or any(not name for name, _ in inputs):
            unknown |= weights
        for weight in weights:
            read.setdefault(weight, {}).update(dict.fromkeys(inputs, True))
    return {
        gradient: ZeroProvenance(tuple(read[weight]))
        for gradient, weight in gradients.items()
        if weight in read and weight not in unknown
    }


def _zero_provenance(
    node: LayerNode,
    by_name: Mapping[str, LayerNode],
    of_weights: Collection[str],
    fed: Collection[str],
    masks: Collection[str],
    is_absorbed: bool,
) -> ZeroProvenance:
    slots = node.slots or (0,) * len(node.inputs)
    if "" in node.inputs or plain_type(node.type) in PREDICATES:
        return ZeroProvenance()
    inputs = [
        (name, slot)
        for name, slot in zip(node.inputs, slots, strict=True)
        if name in by_name and by_name[name].kind != "constant"
    ]
    is_gate = plain_type(node.type) in GATES and (len(inputs) == 1 or any(name in masks for name, _ in inputs))
    if is_gate and is_absorbed:
        return ZeroProvenance()
    has_signal = any(name in fed for name, _ in inputs)
    sources = dict.fromkeys(
        _weight_of(by_name, of_weights, source)
        for source in inputs
        if not by_name[source[0]].is_integer and not (has_signal and source[0] in masks)
    )
    return ZeroProvenance(tuple(sources), plain_type(node.type) in SUMS)


def _weight_of(
    by_name: Mapping[str, LayerNode], of_weights: Collection[str], source: tuple[str, int]
) -> tuple[str, int]:
    """Return the weight that a source is a view of, else the source."""
    while source[0] in of_weights:
        node = by_name[source[0]]
        if node.kind != "operator" or len(node.inputs) != 1 or node.inputs[0] not in by_name:
            break
        source = node.inputs[0], (node.slots or (0,))[0]
    return source


def find_masks(nodes: Sequence[LayerNode]) -> set[str]:
    """Return the nodes that hold integers or truth values, or what was computed from nothing else."""
    masks: set[str] = set()
    for node in nodes:
        from_masks = node.kind == "operator" and bool(node.inputs) and masks.issuperset(node.inputs)
        if node.is_integer or (from_masks and not takes_only_form(node.type)):
            masks.add(node.name)
    return masks


def _absorbed(nodes: Sequence[LayerNode], fed: Collection[str]) -> set[str]:
    """Return what is added to, or joined with, something else that comes from the network."""
    found: set[str] = set()
    for node in nodes:
        if node.kind == "operator" and plain_type(node.type) in SUMS:
            signals = {name for name in node.inputs if name in fed}
            found.update(name for name in node.inputs if not signals <= {name})
    return found
