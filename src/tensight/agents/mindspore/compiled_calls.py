"""Inserts the graphs of compiled functions (`jit`) where eager code calls them, and their backward graphs likewise.

A call is a node among those of cells, where its inputs and outputs are observed. Its operators are in the dump, as
separate graphs whose parameters do not name their sources. Such a graph returns the function's outputs, followed by the
values that the backward graph needs; the backward graph takes the gradients of the outputs, followed by these values.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tensight.agents.core.program import Program, Source, TracedNode
    from tensight.agents.eager.calls import Slot
    from tensight.agents.eager.step_builder import Position, RepeatedOperation
    from tensight.agents.mindspore.graph_programs import DumpedProgram

_Sources = tuple["Source | None", ...]


@dataclass(frozen=True, slots=True)
class CompiledCall:
    """The last call of a compiled function in a step, made by eager code.

    Attributes
    ----------
    node, gradient : str
        Names of the call and of its backward pass among the nodes of cells.
    given : tuple of Source or None
        Sources of the tensors that it was given.
    arriving : tuple of Source or None
        For each tensor that it returned, the source of its gradient.
    graphs : tuple of DumpedProgram
        Graphs that may have run: one for calls with gradients, and one for calls without.
    """

    node: str
    gradient: str
    given: _Sources
    arriving: _Sources
    graphs: tuple[DumpedProgram, ...]

    @property
    def graph(self) -> DumpedProgram | None:
        """The graph that ran: with gradients, the one that returns more."""
        fitting = [graph for graph in self.graphs if len(_results(graph)) >= len(self.arriving)]
        return max(fitting, key=lambda graph: len(_results(graph)), default=None)


class CallsOfStep:
    """The calls of compiled functions in the current step.

    Attributes
    ----------
    graphs : mapping of int to DumpedProgram
        Graphs of the function that returned last, by number; empty if it was not dumped.
    """

    def __init__(self) -> None:
        self.graphs: Mapping[int, DumpedProgram] = {}
        self._ran: dict[int, tuple[RepeatedOperation, _Sources, Mapping[int, DumpedProgram]]] = {}

    def begin(self) -> None:
        """Begin a step."""
        self._ran.clear()

    def note(self, at: Position, given: int) -> None:
        """Note that the last operation was a call of a compiled function, and how many tensors it was given."""
        graphs, self.graphs = self.graphs, {}
        if graphs and at.operation is not None:
            self._ran[id(graphs)] = at.operation, tuple(at.reading.sources[:given]), graphs

    def calls(self) -> tuple[CompiledCall, ...]:
        """Return the calls of this step, after its gradients have arrived."""
        return tuple(
            CompiledCall(
                operation.node.name,
                operation.gradient_name,
                given,
                tuple(map(_gradient_source, operation.outputs)),
                tuple(graphs.values()),
            )
            for operation, given, graphs in self._ran.values()
        )


class GraphsInCalls:
    """Arranges the nodes of one step.

    Parameters
    ----------
    cells : Program
        What cells, gradients and optimizers were observed to do.
    graphs : sequence of Program
        Graphs that ran beside them.
    calls : sequence of CompiledCall
    backward : sequence of DumpedProgram
        Graphs of backward passes of the calls, among `graphs` or not.
    """

    def __init__(
        self,
        cells: Program,
        graphs: Sequence[Program],
        calls: Sequence[CompiledCall],
        backward: Sequence[DumpedProgram],
    ) -> None:
        self._cells = cells
        self._graphs = graphs
        self._links: dict[str, Source] = {}
        self._unknown: set[str] = set()
        self._within: dict[str, list[TracedNode]] = {}
        self._returned: dict[str, _Sources] = {}
        self._inserted: set[int] = set()
        ran = {id(graph) for graph in graphs}
        forward = [(call, graph) for call in calls if (graph := call.graph) is not None and id(graph.program) in ran]
        behind = {id(graph): graph for graph in backward if id(graph.program) in ran}
        for call, graph in forward:
            self._insert(graph, call.node, call.given, len(call.arriving))
        for call, graph in forward:
            candidates = [candidate for candidate in behind.values() if _belongs(candidate, graph)]
            if len(candidates) == 1 and sum(_belongs(candidates[0], other) for _, other in forward) == 1:
                saved = _results(graph)[len(call.arriving) :]
                self._insert(candidates[0], call.gradient, (*call.arriving, *saved), len(_results(candidates[0])))
                del behind[id(candidates[0])]
        for graph in behind.values():
            # It is unknown to which call's backward pass it belongs, and where its parameters come from.
            self._unknown.update(node.name for node in _parameters(graph))

    def nodes(self) -> Iterator[TracedNode]:
        """Yield the nodes; those that are not operators come first."""
        every = [self._cells, *self._graphs]
        for program in every:
            for node in program.nodes:
                if node.role != "operator" and node.name not in self._links and node.name not in self._unknown:
                    yield node
        for node in self._cells.nodes:
            if node.role == "operator":
                yield from map(self._linked, self._within.get(node.name, ()))
                yield self._linked(replace(node, inputs=(*node.inputs, *self._returned.get(node.name, ()))))
        for program in self._graphs:
            if id(program) not in self._inserted:
                yield from (self._linked(node) for node in program.nodes if node.role == "operator")

    def _insert(self, graph: DumpedProgram, node: str, given: _Sources, returned: int) -> None:
        """Insert the operators of a graph before the node of its call."""
        parameters = _parameters(graph)
        if len(parameters) == len(given):
            pairs = zip(parameters, given, strict=True)
            self._links.update({parameter.name: source for parameter, source in pairs if source is not None})
        self._returned[node] = tuple(source for source in _results(graph)[:returned] if source is not None)
        self._within[node] = [operator for operator in graph.program.nodes if operator.role == "operator"]
        self._inserted.add(id(graph.program))

    def _linked(self, node: TracedNode) -> TracedNode:
        return replace(node, inputs=tuple(map(self._source, node.inputs)))

    def _source(self, source: Source | None) -> Source | None:
        for _ in self._links:
            if source is None or source[0] not in self._links:
                break
            source = self._links[source[0]]
        return None if source is None or source[0] in self._unknown else source


def _gradient_source(slot: Slot) -> Source | None:
    if slot.consumer is None or slot.gradient_slot_id < 0:
        return None
    operation, index = slot.consumer
    return operation.gradient_name, index


def _parameters(graph: DumpedProgram) -> list[TracedNode]:
    return [node for node in graph.program.nodes if node.role == "input"]


def _results(graph: DumpedProgram) -> _Sources:
    if graph.results:
        return graph.results
    # The graph returns a single tensor, which no operator reads.
    read = {source[0] for node in graph.program.nodes for source in node.inputs if source is not None}
    last = [node.name for node in graph.program.nodes if node.role == "operator" and node.name not in read]
    return ((last[0], 0),) if len(last) == 1 else ()


def _belongs(backward: DumpedProgram, forward: DumpedProgram) -> bool:
    """Whether a graph takes what another returns, and both are made from the same code."""
    same_amount = len(_parameters(backward)) == len(_results(forward))
    return same_amount and bool(_lines(backward.program.nodes) & _lines(forward.program.nodes))


def _lines(nodes: Iterable[TracedNode]) -> set[tuple[str, int]]:
    return {(node.stack[0].file, node.stack[0].line) for node in nodes if node.stack}
