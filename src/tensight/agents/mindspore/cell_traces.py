"""What a sequence of calls amounts to: the operators of forward and backward."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensight.agents.eager.calls import UNPLACED
from tensight.agents.eager.traced_programs import Trace
from tensight.agents.program import TracedNode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tensight.agents.mindspore.cell_calls import Operation, Ran
    from tensight.agents.program import Source
    from tensight.graph import OutputSlot

_MOST_SOURCES = 64


def trace_of(calls: Iterable[tuple[Ran, Operation]]) -> Trace:
    """Return the trace of the calls of a step."""
    inputs: dict[str, TracedNode] = {}
    operators: list[TracedNode] = []
    waiting: list[tuple[Ran, Operation]] = []
    gradient_sources: dict[str, tuple[Source | None, ...]] = {}

    def go_backward() -> None:
        for ran, operation in reversed(waiting):
            node = _gradient(ran, operation)
            if node is not None:
                operators.append(node)
                for name in ran.parameters:
                    gradient_sources[name] = (*gradient_sources.get(name, ()), *node.inputs)[:_MOST_SOURCES]
        waiting.clear()

    for ran, operation in calls:
        for slot, _ in ran.read:
            name = slot.source[0]
            if "/" not in name:
                inputs[name] = TracedNode(name, "Parameter", "input", outputs=(slot.outline,))
        operators.append(_forward(ran, operation))
        waiting.append((ran, operation))
        if ran.begins_backward:
            go_backward()
    return Trace(tuple(inputs.values()), tuple(operators), gradient_sources)


def _forward(ran: Ran, operation: Operation) -> TracedNode:
    return TracedNode(
        operation.node.name,
        operation.node.type,
        "operator",
        ran.sources,
        tuple(slot.outline for slot in operation.outputs),
        ran.stack,
        {"compiled": True} if operation.is_compiled else {},
    )


def _gradient(ran: Ran, operation: Operation) -> TracedNode | None:
    """Return the node of the backward pass; None if no gradient came by."""
    sources = operation.gradient_sources()
    outputs: list[OutputSlot] = []
    for slot, index in ran.read:
        if slot.gradient_place != UNPLACED and slot.consumer == (operation, index):
            while len(outputs) < index:
                outputs.append(next((one.outline for one, at in ran.read if at == len(outputs)), slot.outline))
            outputs.append(slot.gradient_outline or slot.outline)
    if not sources and not outputs:
        return None
    inputs = (*sources, *ran.sources)[:_MOST_SOURCES]
    return TracedNode(operation.gradient_name, operation.gradient_type, "operator", inputs, tuple(outputs), ran.stack)
