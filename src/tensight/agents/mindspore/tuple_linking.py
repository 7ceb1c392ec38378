"""Links tuples of tensors that one graph returns and another takes, such as gradients for an optimizer.

MindSpore does not dump tuples that a graph takes. Python sees both calls: a tensor that one call returned and another
takes has the value, and the position in the program, of the operator that computed it. Other tensors, computed between
the calls, are read in place.
"""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mindspore import Tensor

from tensight.agents.mindspore.branch_inputs import branch_inputs
from tensight.agents.mindspore.written_graphs import link_tuples
from tensight.graph.declared import Given, GivenSource

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from tensight.agents.core.agent import Agent
    from tensight.agents.core.program import Program, Source
    from tensight.agents.mindspore.graph_programs import DumpedProgram
    from tensight.agents.mindspore.launches import Launch

_Links = dict[str, tuple["Source", ...]]


class TupleLinking:
    """Follows tensors through the calls of one step.

    Parameters
    ----------
    agent : Agent
    may_have_run : callable (program) -> bool
        Whether a program that left no file may have run.
    """

    def __init__(self, agent: Agent, may_have_run: Callable[[DumpedProgram], bool]) -> None:
        self._agent = agent
        self._may_have_run = may_have_run
        self._returned: dict[DumpedProgram, dict[int, tuple[weakref.ref[Any], Source]]] = {}
        self._branches: dict[tuple[object, ...], dict[str, Given]] = {}
        self._latest: dict[tuple[DumpedProgram, ...], dict[str, Given]] = {}
        self._links: _Links = {}
        self._given: dict[str, Given] = {}
        self._linked: dict[tuple[object, ...], tuple[Program, Program]] = {}

    def note(
        self,
        programs: Collection[DumpedProgram],
        launches: Sequence[Launch],
        arguments: tuple[Any, ...],
        result: Any,
    ) -> None:
        """Note a call that is part of a step.

        Parameters
        ----------
        programs : collection of DumpedProgram
            Those that it may have run.
        launches : sequence of Launch
            Those that it has run, as far as they were dumped.
        arguments, result : object
            Of the call.
        """
        tuples = [list(_flat(argument)) for argument in arguments if isinstance(argument, (tuple, list))]
        for program in programs:
            for name, length in program.tuples.items():
                given = [elements for elements in tuples if len(elements) == length]
                if len(given) == 1 and all(isinstance(element, Tensor) for element in given[0]):
                    self._take(name, given[0])
        if len(programs) == 1:
            (program,) = programs
            # If a graph runs twice in a step, the second run counts.
            self._returned[program] = _by_identity(program.results, list(_flat(result)))
        else:
            for name, value in self._given_to_branches(programs, launches).items():
                if value.is_complete and len(value.sources) == 1:
                    self._links[name] = ((value.sources[0].node, value.sources[0].slot),)
                else:
                    self._given[name] = value

    def linked(self, program: Program) -> Program:
        """Return the program of the step, in which linked tuples consist of the outputs that were passed on."""
        if not self._links and not self._given:
            return program
        key = id(program), frozenset(self._links.items()), frozenset(self._given.items())
        entry = self._linked.get(key)
        if entry is None:
            names = {node.name for node in program.nodes}
            links = {
                name: elements
                for name, elements in self._links.items()
                if name in names and all(source in names for source, _ in elements)
            }
            linked = _linked(program, links) if links else program
            # The program is kept alive, so that no other one can get its identity.
            entry = self._linked[key] = replace(linked, given=_given_in(linked, self._given, links)), program
        return entry[0]

    def begin_step(self) -> None:
        """Forget the step that has ended: tensors that are passed on later are not linked to the next one."""
        self._links.clear()
        self._given.clear()
        self._returned.clear()

    def _given_to_branches(self, programs: Collection[DumpedProgram], launches: Sequence[Launch]) -> dict[str, Given]:
        every = tuple(programs)
        if not launches:
            # What runs now is not captured.
            return self._latest.get(every, {})
        moments = sorted(moment for launch in launches for moment in (launch.began, launch.ended))
        order = tuple(
            (launch.graph, moments.index(launch.began), moments.index(launch.ended), launch.is_repeated)
            for launch in launches
        )
        key = every, frozenset(order)
        inputs = self._branches.get(key)
        if inputs is None:
            inputs = self._branches[key] = branch_inputs(every, launches, self._may_have_run)
        self._latest[every] = inputs
        return inputs

    def _take(self, name: str, tensors: list[Any]) -> None:
        elements: list[Source] = []
        for slot, tensor in enumerate(tensors):
            source = self._source_of(tensor)
            if source is None:
                self._observe(name, slot, tensor)
            elements.append(source or (name, slot))
        self._links[name] = tuple(elements)

    def _source_of(self, tensor: Any) -> Source | None:
        for returned in self._returned.values():
            entry = returned.get(id(tensor))
            if entry is not None and entry[0]() is tensor:
                return entry[1]
        return None

    def _observe(self, name: str, slot: int, tensor: Any) -> None:
        slot_table = self._agent.slot_table
        slot_id = slot_table.slot_id(slot_table.node(name, "Parameter", "input"), slot)
        need = slot_table.needs[slot_id]
        if need and self._agent.capturing:
            self._agent.observe(slot_id, tensor, need)


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, (tuple, list)):
        for element in value:
            yield from _flat(element)
    else:
        yield value


def _by_identity(sources: tuple[Source | None, ...], tensors: list[Any]) -> dict[int, tuple[weakref.ref[Any], Source]]:
    if len(sources) != len(tensors):
        return {}
    return {
        id(tensor): (weakref.ref(tensor), source)
        for tensor, source in zip(tensors, sources, strict=True)
        if source is not None and isinstance(tensor, Tensor)
    }


def _linked(program: Program, links: _Links) -> Program:
    def source_of(source: Source | None) -> Source | None:
        elements = None if source is None else links.get(source[0])
        if source is None or elements is None or source[1] >= len(elements):
            return source
        return elements[source[1]]

    gone = {name for name, elements in links.items() if all(source != name for source, _ in elements)}
    nodes = tuple(
        replace(node, inputs=tuple(map(source_of, node.inputs))) for node in program.nodes if node.name not in gone
    )
    written = link_tuples(program.written, links) if program.written else b""
    return replace(program, nodes=nodes, written=written)


def _given_in(program: Program, given: Mapping[str, Given], links: _Links) -> dict[str, Given]:
    """Return the possible sources of parameters that have several, as nodes of a program."""
    names = {node.name for node in program.nodes}
    result: dict[str, Given] = {}
    for name, value in given.items():
        if name in names:
            linked = (links.get(source.node, ((source.node, source.slot),)) for source in value.sources)
            sources = [GivenSource("", *elements[0]) for elements in linked]
            program_sources = tuple(source for source in sources if source.node in names)
            result[name] = Given(
                program_sources, is_complete=value.is_complete and len(program_sources) == len(sources)
            )
    return result
