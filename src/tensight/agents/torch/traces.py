"""What a sequence of calls amounts to: the operators of forward and backward, in the order of execution."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensight.agents.eager.calls import UNPLACED
from tensight.agents.eager.traced_programs import Trace
from tensight.agents.program import TracedNode
from tensight.graph.layer_node import READS_UNSEEN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tensight.agents.program import Source
    from tensight.agents.torch.calls import Call, Operation
    from tensight.graph import OutputSlot

_MOST_SOURCES = 64


def trace_of(calls: Iterable[Call]) -> Trace:
    """Return the trace of the calls of a step."""
    inputs: dict[str, TracedNode] = {}
    operators: list[TracedNode] = []
    waiting: list[Operation] = []
    gradient_sources: dict[str, tuple[Source | None, ...]] = {}

    def go_backward() -> None:
        for operation in reversed(waiting):
            node = _gradient(operation)
            if node is not None:
                operators.append(node)
                for name in operation.parameters:
                    gradient_sources[name] = (*gradient_sources.get(name, ()), *node.inputs)[:_MOST_SOURCES]
        waiting.clear()

    for call in calls:
        for operation in (*call.before, *((call.operation,) if call.operation is not None else ())):
            for slot, _ in operation.read:
                name = slot.source[0]
                if "/" not in name:
                    inputs[name] = TracedNode(name, "Parameter", "input", outputs=(slot.outline,))
            operators.append(_forward(operation))
            waiting.append(operation)
        if call.is_backward:
            go_backward()
    go_backward()
    return Trace(tuple(inputs.values()), tuple(operators), gradient_sources)


def _forward(operation: Operation) -> TracedNode:
    return TracedNode(
        operation.node.name,
        operation.node.type,
        "operator",
        tuple(operation.sources),
        tuple(slot.outline for slot in operation.outputs),
        operation.stack,
        _attributes(operation),
    )


def _attributes(operation: Operation) -> dict[str, bool]:
    return {READS_UNSEEN: True} if operation.may_read_unseen else {}


def _gradient(operation: Operation) -> TracedNode | None:
    """Return the node of the backward pass; None if no gradient came by."""
    sources = operation.gradient_sources()
    outputs: list[OutputSlot] = []
    for slot, index in operation.read:
        if slot.gradient_place != UNPLACED:
            while len(outputs) < index:
                outputs.append(_nothing(operation, len(outputs)))
            outputs.append(slot.gradient_outline or slot.outline)
    if not sources and not outputs:
        return None
    return TracedNode(
        operation.gradient_name,
        operation.gradient_type,
        "operator",
        (*sources, *operation.sources)[:_MOST_SOURCES],
        tuple(outputs),
        operation.stack,
        _attributes(operation),
    )


def _nothing(operation: Operation, index: int) -> OutputSlot:
    """Return what stands for the gradient of an input that has none."""
    return next((slot.outline for slot, at in operation.read if at == index), operation.outputs[0].outline)
