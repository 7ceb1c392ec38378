"""Where NaN and Inf go: on to other tensors, or nowhere, because every operator that reads them leaves them out.

Data with gaps is filled by ``where(isnan(x), …)``, a best score begins at infinity and is compared, a logarithm is
taken of everything and chosen of a part. Nothing is wrong with such a training as long as what is left out stays out: a
gradient that is not finite shows that it did not.
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
    """What a tensor has besides numbers."""

    NOTHING = 0
    NAN = 1
    INF = 2
    MEANT = 4
    """Somebody has written it down."""


class Spreading:
    """Where the values of a step's operators go.

    Parameters
    ----------
    nodes : iterable of LayerNode
        Operators in the order of execution.
    with_backward : bool
        Follow values into the backward pass and the optimizer, too: what these read of the forward pass.
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
        """Whether a node is of the forward pass, or comes from outside, and is no weight."""
        node = self._nodes.get(name)
        return node is not None and node.kind in ("operator", "data") and not runs_after_forward(node)

    def is_read(self, name: str) -> bool:
        """Whether an operator that is followed reads a node, or is one itself."""
        node = self._nodes.get(name)
        return name in self._consumers or (node is not None and node.kind == "operator")

    def consumers(self, name: str) -> Iterable[LayerNode]:
        """Return the operators that read a node and are followed."""
        return self._consumers.get(name, ())

    def inputs(self, name: str) -> tuple[str, ...]:
        """Return the nodes that an operator reads."""
        node = self._nodes.get(name)
        return () if node is None else node.inputs

    def may_be_left_out(self, name: str) -> bool:
        """Whether an operator comes soon after a node that may leave out some of its elements."""
        waiting, seen = [name], {name}
        while waiting:
            at = waiting.pop()
            known = self._may_be_left_out.get(at)
            if known is not None:
                if known:
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
        """Return those of some nodes of the forward pass whose NaN or Inf goes on, or comes out in the end.

        Parameters
        ----------
        names : collection of str
            Nodes that are not finite.
        kinds : mapping of str to NonFinite
            What each node of the step has, as far as it is not finite.
        reached : collection of str, optional
            While the forward pass has not come to its end: only what has gone on to these nodes is returned.
        going_on : collection of str
            Nodes whose values go on, whatever is known of those that read them.
        unknown : collection of str
            Operators of which nobody saw a value: they show nothing by themselves, but hand on what was seen later.
        """
        found = {name: self._own(name, kinds.get(name, NonFinite.NOTHING)) for name in names}
        nan = {name for name, kind in kinds.items() if kind & NonFinite.NAN and name not in unknown}
        shown_by: dict[str, list[LayerNode]] = {}
        waiting = list(found)
        while waiting:
            name = waiting.pop()
            shown_by[name] = self._shown_by(name, nan)
            for consumer in shown_by[name]:
                carried = _carried(found[name], consumer, kinds.get(consumer.name, NonFinite.NOTHING))
                if carried and consumer.name not in found:
                    found[consumer.name] = self._own(consumer.name, carried)
                    waiting.append(consumer.name)
        spreads: dict[str, bool] = {}
        for name in sorted(found, key=lambda one: self._positions.get(one, -1), reverse=True):
            if reached is None:
                spreads[name] = name in going_on or self._spreads(name, shown_by[name], found, spreads, unknown)
            else:
                spreads[name] = name in reached or any(spreads.get(one.name, False) for one in shown_by[name])
        return frozenset(name for name in names if spreads[name])

    def _shown_by(self, name: str, nan: Collection[str]) -> list[LayerNode]:
        """Return the operators that show whether a node's values went on; some nodes are NaN for certain.

        Those of the backward pass do not whose gradient is NaN already when it reaches them: theirs will be NaN anyway.
        """
        return [
            consumer
            for consumer in self._consumers.get(name, ())
            if not runs_after_forward(consumer)
            or not any(one != name and one in nan and self._is_after_forward(one) for one in consumer.inputs)
        ]

    def _is_after_forward(self, name: str) -> bool:
        node = self._nodes.get(name)
        return node is not None and runs_after_forward(node)

    def _spreads(
        self,
        name: str,
        consumers: Collection[LayerNode],
        found: Mapping[str, NonFinite],
        spreads: Mapping[str, bool],
        unknown: Collection[str],
    ) -> bool:
        kind = found[name]
        if all(map(runs_after_forward, consumers)) and not any(spreads.get(one.name, False) for one in consumers):
            node = self._nodes.get(name)
            is_end = node is not None and node.kind == "operator" and name not in unknown
            return is_end and not kind & NonFinite.MEANT
        for consumer in consumers:
            if spreads.get(consumer.name, False):
                return True
            hides = name not in unknown and consumer.name not in found and plain_type(consumer.type) in SATURATING
            if hides and not runs_after_forward(consumer) and kind & NonFinite.INF and not kind & NonFinite.MEANT:
                return True
        return False

    def _own(self, name: str, kind: NonFinite) -> NonFinite:
        node = self._nodes.get(name)
        is_written = node is not None and node.kind == "operator" and plain_type(node.type) in CONSTANT_MAKERS
        return kind | NonFinite.MEANT if is_written else kind


def _carried(kind: NonFinite, consumer: LayerNode, own: NonFinite) -> NonFinite:
    """Return what an operator has taken over of what it has read."""
    if consumer.is_integer:
        return NonFinite.NOTHING
    if not own:
        return kind if plain_type(consumer.type) in VIEWS else own
    # Of NaN nothing comes but NaN; Inf may become NaN.
    return own if own & NonFinite.NAN or kind & NonFinite.INF else NonFinite.NOTHING


def runs_after_forward(node: LayerNode) -> bool:
    """Whether a node belongs to the backward pass, or to an optimizer."""
    return node.optimizes or is_after_forward(node.name)
