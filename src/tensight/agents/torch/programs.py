"""Puts weights, gradients and updates around what a step ran: the program, which becomes a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensight.agents.program import Program

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensight.agents.program import TracedNode
    from tensight.agents.torch.capture import Trace
    from tensight.agents.torch.parameters import Parameters

_OPTIMIZER = "Optimizer/"


class Programs:
    """The programs of a training: what runs the same nodes, in the same order and linked in the same way, is one.

    Parameters
    ----------
    parameters : Parameters
    """

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._known: dict[tuple[tuple[str, tuple[object, ...]], ...], Program] = {}
        self._latest: tuple[Trace, int, Program] | None = None
        self._by_trace: dict[tuple[int, int], tuple[Trace, Program]] = {}

    def preview(self, trace: Trace) -> Program:
        """Return what is known before the first step; the first real program takes its place."""
        return Program("kernel_graph_0", 0, tuple(self._nodes(trace)))

    def running(self, trace: Trace) -> Program:
        """Return what has run so far in a step that is not over."""
        return Program(f"kernel_graph_{len(self._known)}", len(self._known) + 1, tuple(self._nodes(trace)))

    def program(self, trace: Trace) -> Program:
        """Return the program of a step."""
        latest = self._latest
        generation = self._parameters.generation
        if latest is not None and latest[0] is trace and latest[1] == generation:
            return latest[2]
        known = self._by_trace.get((id(trace), generation))
        program = self._program(trace) if known is None else known[1]
        self._by_trace[id(trace), generation] = trace, program
        self._latest = trace, generation, program
        return program

    def _program(self, trace: Trace) -> Program:
        nodes = tuple(self._nodes(trace))
        key = tuple((node.name, node.inputs) for node in nodes)
        known = self._known.get(key)
        if known is None:
            number = len(self._known)
            known = self._known[key] = Program(f"kernel_graph_{number}", number + 1, nodes)
        return known

    def _nodes(self, trace: Trace) -> Iterator[TracedNode]:
        yield from self._parameters.nodes()
        yield from trace.inputs
        # Gradients are complete when the first optimizer begins.
        operators = trace.operators
        end = next((at for at, node in enumerate(operators) if node.name.startswith(_OPTIMIZER)), len(operators))
        yield from operators[:end]
        yield from self._parameters.gradient_nodes(trace.gradient_sources)
        yield from operators[end:]
        yield from self._parameters.update_nodes()
