"""Hits as an agent finds them, on their way to the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensight.wire.debugger_pb2 import TensorProto, WatchCondition, WatchpointHit
from tensight.wire.text import encoded

if TYPE_CHECKING:
    from tensight.agents.places import Place
    from tensight.watchpoints import ConditionCheck


@dataclass(frozen=True, slots=True)
class AgentHit:
    """A tensor on which a watchpoint hit.

    Attributes
    ----------
    place : Place
        Where the tensor was seen.
    watchpoint : int
        The number of the watchpoint.
    wire_number : int
        The condition's number in the protocol.
    check : ConditionCheck
        The condition with its thresholds.
    actual : mapping of str to float
        For each threshold in effect what the tensor has.
    parameters_hit : tuple of str
        The thresholds that hit.
    error_code : int
        ``ErrorCode`` bits: that the tensor has NaN or Inf besides.
    called : str
        What the server calls the node; empty if by its name here.
    is_new : bool
        Whether it is a reason to stop: it was not reported before, and does not follow from what was.
    """

    place: Place
    watchpoint: int
    wire_number: int
    check: ConditionCheck
    actual: tuple[tuple[str, float], ...] = ()
    parameters_hit: tuple[str, ...] = ()
    error_code: int = 0
    called: str = ""
    is_new: bool = True

    def message(self, graph: str = "", iteration: int | None = None) -> WatchpointHit:
        """Return the hit as the server is told of it, with every parameter of the condition in the declared order.

        Parameters
        ----------
        graph : str
            Name of the graph that has the node.
        iteration : int, optional
            Of its step, for a hit that is no reason to stop there.
        """
        node = self.place.node
        name, slot = encoded(self.called or node.name), str(self.place.slot).encode()
        tensor = TensorProto(node_name=name, slot=slot, finished=True)
        if graph:
            tensor.graph = encoded(graph)
        if iteration is not None:
            tensor.iter = str(iteration).encode()
        if self.place.io == "input":
            tensor.io = b"input"
        condition = WatchCondition(condition=self.wire_number)
        values, actual = self.check.values, dict(self.actual)
        for parameter in self.check.condition.parameters:
            value = values.get(parameter.name)
            condition.params.add(
                name=parameter.name.encode(),
                disabled=value is None,
                value=0.0 if value is None else float(value),
                hit=parameter.name in self.parameters_hit,
                actual_value=actual.get(parameter.name, 0.0),
            )
        return WatchpointHit(
            tensor=tensor,
            watch_condition=condition,
            id=self.watchpoint,
            error_code=self.error_code,
            graph=encoded(graph),
        )
