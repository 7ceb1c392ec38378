"""Adds weights, gradients and updates to what a step ran: the program, which becomes a graph.

Steps that run the same operators, in the same order and linked in the same way, have the same program. If weights or
optimizer states are added later, it is still the same program, with more nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tensight.agents.core.program import Program
from tensight.garbage_collection import without_garbage_collection

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tensight.agents.core.program import Source, StackFrame, TracedNode
    from tensight.agents.eager.persistent_tensors import PersistentTensors

_OPTIMIZER = "Optimizer/"


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """The operators that a step ran. Steps that ran the same share one trace, which is compared by identity.

    Weights, buffers, optimizer states, the gradients that optimizers read and the optimizers' updates are not included:
    they are the same for every kind of capture, and `Programs` adds them.

    Attributes
    ----------
    inputs : tuple of TracedNode
        Tensors from outside the step, with the role ``input``.
    operators : tuple of TracedNode
        Forward and backward, in the order of execution.
    gradient_sources : mapping of str to tuple of Source
        Sources of each weight's gradient, by the name of the weight.
    """

    inputs: tuple[TracedNode, ...] = ()
    operators: tuple[TracedNode, ...] = ()
    gradient_sources: Mapping[str, tuple[Source | None, ...]] = field(default_factory=dict)


class Programs:
    """The programs of a training.

    Parameters
    ----------
    parameters : PersistentTensors
    """

    def __init__(self, parameters: PersistentTensors) -> None:
        self._parameters = parameters
        self._numbers: dict[tuple[tuple[str, tuple[Source | None, ...]], ...], int] = {}
        self._programs: dict[int, tuple[Trace, int, Program]] = {}

    @without_garbage_collection()
    def preview(self, trace: Trace) -> Program:
        """Return the program that is known before the first step; the first real program replaces it."""
        return Program("kernel_graph_0", 0, tuple(self._nodes(trace)))

    def running(self, trace: Trace) -> Program:
        """Return the program of a step that has not ended: a known one, or the part of a new one that has run."""
        if id(trace) in self._programs:
            return self.program(trace)
        # A step that stops at many operators has as many traces: none of them is kept.
        number = self._numbers.get(self._key(trace), len(self._numbers))
        return Program(f"kernel_graph_{number}", number + 1, tuple(self._nodes(trace)))

    @without_garbage_collection()
    def program(self, trace: Trace) -> Program:
        """Return the program of a step."""
        generation = self._parameters.generation
        cached = self._programs.get(id(trace))
        if cached is not None and cached[1] == generation:
            return cached[2]
        number = self._number(trace)
        program = Program(f"kernel_graph_{number}", number + 1, tuple(self._nodes(trace)))
        if cached is not None and cached[2] == program:
            # A tensor was freed and replaced by one like it.
            program = cached[2]
        # A reference to the trace keeps its identity from being reused.
        self._programs[id(trace)] = trace, generation, program
        return program

    def _number(self, trace: Trace) -> int:
        return self._numbers.setdefault(self._key(trace), len(self._numbers))

    @staticmethod
    def _key(trace: Trace) -> tuple[tuple[str, tuple[Source | None, ...]], ...]:
        """Return a key that identifies a program: its operators, in their order, and their links."""
        return tuple((node.name, node.inputs) for node in trace.operators)

    def _nodes(self, trace: Trace) -> Iterator[TracedNode]:
        yield from self._parameters.nodes()
        yield from trace.inputs
        # Gradients are complete when the first optimizer begins.
        operators = trace.operators
        end = next((at for at, node in enumerate(operators) if node.name.startswith(_OPTIMIZER)), len(operators))
        yield from operators[:end]
        readers: dict[str, tuple[StackFrame, ...]] = {}
        for node in operators:
            for source in node.inputs:
                if source is not None and node.stack:
                    readers.setdefault(source[0], node.stack)
        yield from self._parameters.gradient_nodes(trace.gradient_sources, readers)
        yield from operators[end:]
        yield from self._parameters.update_nodes()
