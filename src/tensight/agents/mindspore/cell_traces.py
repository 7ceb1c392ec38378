"""What a sequence of calls amounts to: the operators of forward and backward, and around them the parameters.

What runs the same operators, in the same order and linked in the same way, is one program. If parameters or states of
an optimizer are added to it later, it is still that one, with more nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tensight.agents.mindspore.cell_calls import UNPLACED
from tensight.agents.program import Program, TracedNode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tensight.agents.mindspore.cell_calls import Operation, Ran
    from tensight.agents.mindspore.cell_parameters import CellParameters
    from tensight.agents.program import Source, StackFrame
    from tensight.graph import OutputSlot

_MOST_SOURCES = 64


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """The operators that a step ran. Steps that ran the same share one trace: it is compared by identity.

    Attributes
    ----------
    inputs : tuple of TracedNode
        Tensors that the step got from outside, with the role ``input``.
    operators : tuple of TracedNode
        Forward and backward, in the order of execution.
    gradient_sources : mapping of str to tuple of Source
        For the name of a parameter what its gradient was computed from.
    """

    inputs: tuple[TracedNode, ...] = ()
    operators: tuple[TracedNode, ...] = ()
    gradient_sources: Mapping[str, tuple[Source | None, ...]] = field(default_factory=dict)


class CellPrograms:
    """The programs of a training.

    Parameters
    ----------
    parameters : CellParameters
    """

    def __init__(self, parameters: CellParameters) -> None:
        self._parameters = parameters
        self._numbers: dict[tuple[tuple[str, tuple[object, ...]], ...], int] = {}
        self._programs: dict[tuple[int, int], tuple[Trace, Program]] = {}

    def preview(self, trace: Trace) -> Program:
        """Return what is known before the first step; the first real program takes its place."""
        return Program("kernel_graph_0", 0, tuple(self._nodes(trace)))

    def program(self, trace: Trace) -> Program:
        """Return the program of a step."""
        key = id(trace), self._parameters.generation
        known = self._programs.get(key)
        if known is None:
            what = tuple((node.name, node.inputs) for node in trace.operators)
            number = self._numbers.setdefault(what, len(self._numbers))
            # The trace is kept, so that no other one gets its identity.
            known = trace, Program(f"kernel_graph_{number}", number + 1, tuple(self._nodes(trace)))
            self._programs[key] = known
        return known[1]

    def _nodes(self, trace: Trace) -> Iterator[TracedNode]:
        yield from self._parameters.nodes()
        yield from trace.inputs
        yield from trace.operators
        readers: dict[str, tuple[StackFrame, ...]] = {}
        for node in trace.operators:
            for source in node.inputs:
                if source is not None and node.stack:
                    readers.setdefault(source[0], node.stack)
        yield from self._parameters.gradient_nodes(trace.gradient_sources, readers)
        yield from self._parameters.update_nodes()


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
    sources: list[Source | None] = []
    for slot in operation.outputs:
        if slot.gradient_place != UNPLACED and slot.consumer is not None:
            consumer, index = slot.consumer
            sources.append((consumer.gradient_name, index))
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
