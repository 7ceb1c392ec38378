"""Turns a sequence of calls into a trace: the operators of forward and backward, in the order of execution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tensight.agents.core.notices import log_once
from tensight.agents.core.program import StackFrame, TracedNode
from tensight.agents.core.slots import NO_SLOT
from tensight.agents.eager.step_tensors import MOST_SOURCES
from tensight.agents.eager.traced_programs import Trace
from tensight.garbage_collection import without_garbage_collection

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tensight.agents.core.program import Source
    from tensight.agents.eager.calls import Operation, Reading, Slot
    from tensight.agents.eager.names import Names
    from tensight.graph import OutputSlot

MOST_TRACES = 32
"""Limit of the different traces. A step that would need another one has the trace of the last step."""


class Execution(NamedTuple):
    """An operation as it ran in a step.

    Attributes
    ----------
    operation : Operation
    reading : Reading
    stack : tuple of StackFrame
    attributes : mapping of str to bool
    gradients : sequence of (Slot, int)
        The inputs whose gradients are outputs of its own gradient, each with its index.
    begins_backward : bool
        Whether a backward pass came next, through all operations since the previous one.
    """

    operation: Operation[Any]
    reading: Reading[Any]
    stack: tuple[StackFrame, ...]
    attributes: Mapping[str, bool]
    gradients: Sequence[tuple[Slot, int]]
    begins_backward: bool


class TraceCount:
    """Counts the different traces of the steps of a training.

    Parameters
    ----------
    modules : str
        The framework's word for modules.
    """

    def __init__(self, modules: str) -> None:
        self._modules = modules
        self._traces = 0

    def may_add(self) -> bool:
        """Whether another trace may be made; log once when the limit is reached."""
        if self._traces >= MOST_TRACES:
            log_once(
                f"the steps of this training run their {self._modules} in more than {MOST_TRACES} different ways; no"
                " more graphs are drawn, but nodes that are in one of them are still watched"
            )
            return False
        self._traces += 1
        return True


@without_garbage_collection()
def trace_of(executions: Iterable[Execution]) -> Trace:
    """Return the trace of a step."""
    inputs: dict[str, TracedNode] = {}
    operators: list[TracedNode] = []
    waiting: list[Execution] = []
    gradient_sources: dict[str, tuple[Source | None, ...]] = {}

    def go_backward() -> None:
        for execution in reversed(waiting):
            node = _gradient(execution)
            if node is not None:
                operators.append(node)
                for name in execution.reading.parameters:
                    gradient_sources[name] = (*gradient_sources.get(name, ()), *node.inputs)[:MOST_SOURCES]
        waiting.clear()

    for execution in executions:
        for slot, _ in execution.reading.read:
            name = slot.source[0]
            if "/" not in name:
                inputs[name] = TracedNode(name, "Parameter", "input", outputs=(slot.outline,))
        operators.append(_forward(execution))
        waiting.append(execution)
        if execution.begins_backward:
            go_backward()
    return Trace(tuple(inputs.values()), tuple(operators), gradient_sources)


@without_garbage_collection()
def preview_of(names: Names) -> Trace:
    """Return the leaves of the models with their weights, as far as they are known before the first step."""
    operators: dict[str, TracedNode] = {}
    weights = names.tensor_names()
    for module, name in names.leaves():
        weight_names = (weights.get(id(tensor)) for tensor in names.framework.read_by(module))
        sources: tuple[Source, ...] = tuple((weight, 0) for weight in weight_names if weight is not None)
        node = TracedNode(f"{name.scope}/{name.type}-op0", name.type, "operator", sources)
        operators.setdefault(node.name, node)
    return Trace((), tuple(operators.values()))


def _forward(execution: Execution) -> TracedNode:
    operation = execution.operation
    return TracedNode(
        operation.node.name,
        operation.node.type,
        "operator",
        tuple(execution.reading.sources),
        tuple(slot.outline for slot in operation.outputs),
        execution.stack,
        execution.attributes,
    )


def _gradient(execution: Execution) -> TracedNode | None:
    """Return the node of the backward pass; None if no gradient has arrived."""
    operation, reading = execution.operation, execution.reading
    sources = operation.gradient_sources()
    outputs: list[OutputSlot] = []
    for slot, index in execution.gradients:
        if slot.gradient_slot_id != NO_SLOT:
            while len(outputs) < index:
                outputs.append(_nothing(execution, len(outputs), slot))
            outputs.append(slot.gradient_outline or slot.outline)
    if not sources and not outputs:
        return None
    return TracedNode(
        operation.gradient_name,
        operation.gradient_type,
        "operator",
        (*sources, *reading.sources)[:MOST_SOURCES],
        tuple(outputs),
        execution.stack,
        execution.attributes,
    )


def _nothing(execution: Execution, index: int, slot: Slot) -> OutputSlot:
    """Return an output slot for an input without gradient that precedes one with a gradient."""
    outputs = execution.operation.outputs
    other = outputs[0].outline if outputs else slot.outline
    return next((read_slot.outline for read_slot, at in execution.reading.read if at == index), other)
