"""Puts the graphs of compiled functions (`jit`) where eager code calls them, and their backward graphs likewise.

A call is a node among those of cells: what it was given and what it returned is seen there. What happened within is in
the dump, as graphs of their own whose parameters say nothing of where they come from. MindSpore has such a graph
return, behind what the function returns, what the backward graph will need; the backward graph is given the gradients
of the former, then the latter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tensight.agents.eager.calls import Slot
    from tensight.agents.eager.step_builder import Position, RepeatedOperation
    from tensight.agents.mindspore.graph_programs import DumpedProgram
    from tensight.agents.program import Program, Source, TracedNode

_Sources = tuple["Source | None", ...]


@dataclass(frozen=True, slots=True)
class CompiledCall:
    """A call of a compiled function in eager code, the last one in a step.

    Attributes
    ----------
    node, gradient : str
        What the call, and its backward pass, are among the nodes of cells.
    given : tuple of Source or None
        Where the tensors come from that it was given.
    arriving : tuple of Source or None
        For each tensor that it returned where the gradient of it comes from.
    graphs : tuple of DumpedProgram
        What may have run: there is one graph for calls with gradient, and one for those without.
    """

    node: str
    gradient: str
    given: _Sources
    arriving: _Sources
    graphs: tuple[DumpedProgram, ...]

    @property
    def graph(self) -> DumpedProgram | None:
        """What ran: where gradients are wanted that returns more."""
        fitting = [one for one in self.graphs if len(_results(one)) >= len(self.arriving)]
        return max(fitting, key=lambda one: len(_results(one)), default=None)


class CallsOfStep:
    """The calls of compiled functions in a step that is under way.

    Attributes
    ----------
    graphs : mapping of int to DumpedProgram
        By which the function ran that returned last, by their numbers; nothing if it was not dumped.
    """

    def __init__(self) -> None:
        self.graphs: Mapping[int, DumpedProgram] = {}
        self._ran: dict[int, tuple[RepeatedOperation, _Sources, Mapping[int, DumpedProgram]]] = {}

    def begin(self) -> None:
        """Begin a step."""
        self._ran.clear()

    def note(self, at: Position, given: int) -> None:
        """Note that what ran last was the call of a compiled function, and how many tensors that was given."""
        graphs, self.graphs = self.graphs, {}
        if graphs and at.operation is not None:
            self._ran[id(graphs)] = at.operation, tuple(at.reading.sources[:given]), graphs

    def calls(self) -> tuple[CompiledCall, ...]:
        """Return the calls of this step, now that its gradients have come."""
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
        What cells, gradients and optimizers were seen to do.
    graphs : sequence of Program
        That ran beside them.
    calls : sequence of CompiledCall
    backward : sequence of DumpedProgram
        Those of the graphs, and others, that belong to backward passes of the calls.
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
            own = [one for one in behind.values() if _belongs(one, graph)]
            if len(own) == 1 and sum(_belongs(own[0], other) for _, other in forward) == 1:
                saved = _results(graph)[len(call.arriving) :]
                self._insert(own[0], call.gradient, (*call.arriving, *saved), len(_results(own[0])))
                del behind[id(own[0])]
        for one in behind.values():
            # Of whose backward pass it is a part cannot be told, nor where its parameters come from.
            self._unknown.update(node.name for node in _parameters(one))

    def nodes(self) -> Iterator[TracedNode]:
        """Yield the nodes, what is no operator first."""
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
        """Have the operators of a graph stand before the node that is its call."""
        parameters = _parameters(graph)
        if len(parameters) == len(given):
            pairs = zip(parameters, given, strict=True)
            self._links.update({one.name: source for one, source in pairs if source is not None})
        self._returned[node] = tuple(source for source in _results(graph)[:returned] if source is not None)
        self._within[node] = [one for one in graph.program.nodes if one.role == "operator"]
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
    # One that returns a single tensor: nothing reads that.
    read = {source[0] for node in graph.program.nodes for source in node.inputs if source is not None}
    last = [node.name for node in graph.program.nodes if node.role == "operator" and node.name not in read]
    return ((last[0], 0),) if len(last) == 1 else ()


def _belongs(backward: DumpedProgram, forward: DumpedProgram) -> bool:
    """Whether a graph is given what another returns, and is made from the same code."""
    same_amount = len(_parameters(backward)) == len(_results(forward))
    return same_amount and bool(_lines(backward.program.nodes) & _lines(forward.program.nodes))


def _lines(nodes: Iterable[TracedNode]) -> set[tuple[str, int]]:
    return {(node.stack[0].file, node.stack[0].line) for node in nodes if node.stack}
