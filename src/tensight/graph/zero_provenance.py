"""Zero provenance: the inputs of an operator that must be zero for its zeros to be propagated, not created by it.

A product is zero if a factor is, a sum if all terms are. So zeros of states and weights that are initialized to zero,
and of dead layers, propagate to everything computed from them, and do not originate there. A mask does not count as
such a source: if multiplication with a mask removes a layer, the zeros originate in that product, unless a following
sum adds another branch, as with gates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tensight.graph.operator_facts import GATES, PREDICATES, SUMS, plain_type, takes_only_form

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from tensight.graph.layer_node import LayerNode


class ZeroProvenance(NamedTuple):
    """The condition under which an operator only propagates zeros.

    Attributes
    ----------
    sources : tuple of (str, int)
        Outputs of nodes; a view of a weight counts as the weight. Empty if zeros are intended, or if it is unknown.
    all_of_them : bool
        Whether all sources must be zero; otherwise one suffices.
    """

    sources: tuple[tuple[str, int], ...] = ()
    all_of_them: bool = True

    def propagates(self, zero: Iterable[bool | None]) -> bool | None:
        """Return whether zeros are propagated, given whether each source is all zero (None if unknown)."""
        states = set(zero)
        decisive = not self.all_of_them
        if decisive in states:
            return decisive
        return None if None in states else not decisive


_INTENDED = ZeroProvenance()


def find_zero_provenances(
    by_name: Mapping[str, LayerNode], of_weights: Collection[str], fed: Collection[str], masks: Collection[str]
) -> dict[str, ZeroProvenance]:
    """Return the zero provenance of each operator.

    Parameters
    ----------
    by_name : mapping of str to LayerNode
        All nodes, with operators in execution order.
    of_weights : collection of str
        Weights, and views of them.
    fed : collection of str
        Operators whose results depend on weights.
    masks : collection of str
        From `find_masks`.
    """
    nodes = by_name.values()
    absorbed = _absorbed(nodes, fed)
    return {
        node.name: _zero_provenance(node, by_name, of_weights, fed, masks, node.name in absorbed)
        for node in nodes
        if node.kind == "operator" and not node.optimizes
    }


def gradient_zero_provenances(
    forward: Sequence[LayerNode], weights_in: Mapping[str, Collection[str]], gradients: Mapping[str, str]
) -> dict[str, ZeroProvenance]:
    """Return the zero provenance of the gradients of weights, which are zero if the inputs of their layers are.

    Parameters
    ----------
    forward : sequence of LayerNode
        The operators of the forward pass.
    weights_in : mapping of str to collection of str
        The weights of which a weight, or a view of weights, consists.
    gradients : mapping of str to str
        Weights by the name of their gradient.
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
    kind = plain_type(node.type)
    if "" in node.inputs or kind in PREDICATES:
        return _INTENDED
    inputs: list[tuple[str, int]] = []
    has_signal = has_mask = False
    for source in zip(node.inputs, node.slots or (0,) * len(node.inputs), strict=True):
        name = source[0]
        if name in by_name and by_name[name].kind != "constant":
            inputs.append(source)
            has_signal = has_signal or name in fed
            has_mask = has_mask or name in masks
    if is_absorbed and kind in GATES and (len(inputs) == 1 or has_mask):
        return _INTENDED
    sources = dict.fromkeys(
        _weight_of(by_name, of_weights, source) if source[0] in of_weights else source
        for source in inputs
        if not by_name[source[0]].is_integer and not (has_signal and source[0] in masks)
    )
    return ZeroProvenance(tuple(sources), kind in SUMS)


def _weight_of(
    by_name: Mapping[str, LayerNode], of_weights: Collection[str], source: tuple[str, int]
) -> tuple[str, int]:
    """Return the weight of which a source is a view, otherwise the source itself."""
    while source[0] in of_weights:
        node = by_name[source[0]]
        if node.kind != "operator" or len(node.inputs) != 1 or node.inputs[0] not in by_name:
            break
        source = node.inputs[0], (node.slots or (0,))[0]
    return source


def find_masks(nodes: Sequence[LayerNode]) -> set[str]:
    """Return the nodes that contain integers or booleans, or were computed only from such nodes."""
    masks: set[str] = set()
    for node in nodes:
        from_masks = node.kind == "operator" and bool(node.inputs) and masks.issuperset(node.inputs)
        if node.is_integer or (from_masks and not takes_only_form(node.type)):
            masks.add(node.name)
    return masks


def _absorbed(nodes: Iterable[LayerNode], fed: Collection[str]) -> set[str]:
    """Return the nodes that are added to, or joined with, another signal of the network."""
    absorbed: set[str] = set()
    for node in nodes:
        if node.kind == "operator" and plain_type(node.type) in SUMS:
            signals = {name for name in node.inputs if name in fed}
            absorbed.update(name for name in node.inputs if not signals <= {name})
    return absorbed
