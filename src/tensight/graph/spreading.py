"""Spreading of NaN and Inf: to other tensors, or no further if all operators that read them leave them out.

Missing data is filled by ``where(isnan(x), …)``, a best score starts at infinity, a logarithm is computed for all
elements and selected for some. Such a training is correct as long as the values remain left out; a gradient that is not
finite shows that they did not.
"""

from __future__ import annotations

from enum import IntFlag
from typing import TYPE_CHECKING

from tensight.graph.operator_facts import CONSTANT_MAKERS, ELEMENTWISE, SATURATING, SELECTING, VIEWS, plain_type
from tensight.graph.optimizers import is_after_forward

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from tensight.graph.layer_node import LayerNode


class NonFinite(IntFlag):
    """Kinds of non-finite elements of a tensor."""

    NOTHING = 0
    NAN = 1
    INF = 2
    MEANT = 4
    """The code contains the value, so it is intended."""


class Spreading:
    """Follows the non-finite values of a step's operators.

    Parameters
    ----------
    nodes : iterable of LayerNode
        All nodes, with operators in execution order.
    with_backward : bool
        Whether to follow values of the forward pass into the backward pass and the optimizer, too.
    """

    def __init__(self, nodes: Iterable[LayerNode], *, with_backward: bool = False) -> None:
        every = tuple(nodes)
        self._nodes = {node.name: node for node in every}
        self._positions = {node.name: position for position, node in enumerate(every)}
        self._consumers: dict[str, list[LayerNode]] = {}
        for node in every:
            if node.kind == "operator" and (with_backward or not runs_after_forward(node)):
                for name in dict.fromkeys(node.inputs):
                    self._consumers.setdefault(name, []).append(node)
        self._may_be_left_out: dict[str, bool] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._nodes

    def is_passing(self, name: str) -> bool:
        """Whether a node is an operator of the forward pass or an input from outside, and not a weight."""
        node = self._nodes.get(name)
        return node is not None and node.kind in ("operator", "data") and not runs_after_forward(node)

    def is_read(self, name: str) -> bool:
        """Whether a node is an operator, or is read by a followed operator."""
        node = self._nodes.get(name)
        return name in self._consumers or (node is not None and node.kind == "operator")

    def consumers(self, name: str) -> Iterable[LayerNode]:
        """Return the followed operators that read a node."""
        return self._consumers.get(name, ())

    def inputs(self, name: str) -> tuple[str, ...]:
        """Return the nodes that an operator reads."""
        node = self._nodes.get(name)
        return () if node is None else node.inputs

    def is_view(self, name: str) -> bool:
        """Whether an operator returns the elements of its input."""
        node = self._nodes.get(name)
        return node is not None and plain_type(node.type) in VIEWS

    def may_be_left_out(self, name: str) -> bool:
        """Whether one of the next operators after a node may leave out some of its elements."""
        waiting, seen = [name], {name}
        while waiting:
            at = waiting.pop()
            cached = self._may_be_left_out.get(at)
            if cached is not None:
                if cached:
                    self._may_be_left_out[name] = True
                    return True
                continue
            for consumer in self._consumers.get(at, ()):
                if runs_after_forward(consumer):
                    continue
                kind = plain_type(consumer.type)
                if consumer.is_integer or kind in SELECTING:
                    self._may_be_left_out[name] = True
                    return True
                if kind in ELEMENTWISE and consumer.name not in seen:
                    seen.add(consumer.name)
                    waiting.append(consumer.name)
        self._may_be_left_out.update(dict.fromkeys(seen, False))
        return False

    def spreading(
        self,
        names: Collection[str],
        kinds: Mapping[str, NonFinite],
        reached: Collection[str] | None = None,
        going_on: Collection[str] = (),
        unknown: Collection[str] = (),
    ) -> frozenset[str]:
        """Return the nodes of the forward pass whose NaN or Inf spreads, or is in the result of the step.

        Parameters
        ----------
        names : collection of str
            Nodes that are not finite.
        kinds : mapping of str to NonFinite
            The non-finite elements of each node of the step that has any.
        reached : collection of str, optional
            If the forward pass has not ended yet: return only the nodes whose values spread to these nodes.
        going_on : collection of str
            Nodes whose values certainly spread, regardless of the operators that read them.
        unknown : collection of str
            Operators without observed values: they show nothing themselves, but propagate what was observed later.
        """
        followed = {name: self._own(name, kinds.get(name, NonFinite.NOTHING)) for name in names}
        nan = {name for name, kind in kinds.items() if kind & NonFinite.NAN and name not in unknown}
        shown_by: dict[str, list[LayerNode]] = {}
        waiting = list(followed)
        while waiting:
            name = waiting.pop()
            shown_by[name] = self._shown_by(name, nan)
            for consumer in shown_by[name]:
                carried = _carried(followed[name], consumer, kinds.get(consumer.name, NonFinite.NOTHING))
                if carried and consumer.name not in followed:
                    followed[consumer.name] = self._own(consumer.name, carried)
                    waiting.append(consumer.name)
        spreads: dict[str, bool] = {}
        for name in sorted(followed, key=lambda node_name: self._positions.get(node_name, -1), reverse=True):
            if reached is None:
                spreads[name] = name in going_on or self._spreads(name, shown_by[name], followed, spreads, unknown)
            else:
                spreads[name] = name in reached or any(spreads.get(reader.name, False) for reader in shown_by[name])
        return frozenset(name for name in names if spreads[name])

    def _shown_by(self, name: str, nan: Collection[str]) -> list[LayerNode]:
        """Return the operators that show whether a node's values spread; `nan` are nodes that certainly contain NaN.

        Operators of the backward pass that receive a NaN gradient are excluded: their results are NaN in any case.
        """
        return [
            consumer
            for consumer in self._consumers.get(name, ())
            if not runs_after_forward(consumer)
            or not any(
                source != name and source in nan and self._is_after_forward(source) for source in consumer.inputs
            )
        ]

    def _is_after_forward(self, name: str) -> bool:
        node = self._nodes.get(name)
        return node is not None and runs_after_forward(node)

    def _spreads(
        self,
        name: str,
        consumers: Collection[LayerNode],
        followed: Mapping[str, NonFinite],
        spreads: Mapping[str, bool],
        unknown: Collection[str],
    ) -> bool:
        kind = followed[name]
        if all(map(runs_after_forward, consumers)) and not any(spreads.get(reader.name, False) for reader in consumers):
            node = self._nodes.get(name)
            is_end = node is not None and node.kind == "operator" and name not in unknown
            return is_end and not kind & NonFinite.MEANT
        for consumer in consumers:
            if spreads.get(consumer.name, False):
                return True
            hides = name not in unknown and consumer.name not in followed and plain_type(consumer.type) in SATURATING
            if hides and not runs_after_forward(consumer) and kind & NonFinite.INF and not kind & NonFinite.MEANT:
                return True
        return False

    def _own(self, name: str, kind: NonFinite) -> NonFinite:
        node = self._nodes.get(name)
        is_written = node is not None and node.kind == "operator" and plain_type(node.type) in CONSTANT_MAKERS
        return kind | NonFinite.MEANT if is_written else kind


def _carried(kind: NonFinite, consumer: LayerNode, consumer_kind: NonFinite) -> NonFinite:
    """Return which kinds of non-finite elements an operator has propagated from its input."""
    if consumer.is_integer:
        return NonFinite.NOTHING
    if not consumer_kind:
        return kind if plain_type(consumer.type) in VIEWS else consumer_kind
    # NaN remains NaN; Inf may become NaN.
    return consumer_kind if consumer_kind & NonFinite.NAN or kind & NonFinite.INF else NonFinite.NOTHING


def runs_after_forward(node: LayerNode) -> bool:
    """Whether a node belongs to the backward pass, or to an optimizer."""
    return node.optimizes or is_after_forward(node.name)
