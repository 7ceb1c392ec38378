"""What graphs computed, taken from their dump: launches are collected until a step ends, and then observed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensight.agents.mindspore.dumped import DumpedTensor
from tensight.agents.mindspore.graph_programs import GraphPrograms
from tensight.agents.places import Need

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tensight.agents.agent import Agent
    from tensight.agents.mindspore.graph_programs import DumpedProgram
    from tensight.agents.mindspore.ring import DumpRing, Launch
    from tensight.agents.program import Program

_GRADIENTS = "Gradients/"
_VALUE = int(Need.VALUE)


class Phase:
    """What an executor compiled.

    Attributes
    ----------
    programs : dict of int to DumpedProgram
        By the number of the graph, in the order in which they were compiled.
    launched : bool
        Whether it ran before.
    """

    def __init__(self) -> None:
        self.programs: dict[int, DumpedProgram] = {}
        self.launched = False

    @property
    def updates(self) -> bool:
        """Whether it updates weights, if nothing keeps it from that."""
        return any(program.updates for program in self.programs.values())

    @property
    def trains(self) -> bool:
        """Whether it updates weights or computes gradients."""
        return self.updates or any(
            node.name.startswith(_GRADIENTS) for program in self.programs.values() for node in program.program.nodes
        )


class GraphCapture:
    """Observes what graphs compute.

    Parameters
    ----------
    agent : Agent
    ring : DumpRing
    wait : callable
        Returns when everything that was called has been dumped.

    Attributes
    ----------
    skipped_update : bool
        Whether a graph that updates weights did not do so in this step, because its scaled gradients had overflowed.
    """

    def __init__(self, agent: Agent, ring: DumpRing, wait: Callable[[], None]) -> None:
        self.skipped_update = False
        self._agent = agent
        self._ring = ring
        self._wait = wait
        self._programs = GraphPrograms(agent.places)
        self._files: set[int] = set()
        self._phases: dict[str, Phase] = {}
        self._ran: dict[int, DumpedProgram] = {}
        self._launches: dict[int, Launch] = {}
        self._before: list[Launch] = []
        self._places: dict[int, tuple[tuple[str, ...], list[int]]] = {}

    def phase(self, name: str) -> Phase:
        """Return what is known of something that was compiled; its graphs are those that are new."""
        known = self._phases.get(name)
        if known is None:
            known = self._phases[name] = Phase()
            self._learn(known)
        return known

    def observe_parameters(self, programs: Iterable[DumpedProgram], value_of: Callable[[str], Any]) -> None:
        """Observe parameters as they are now, which nothing has dumped.

        Parameters
        ----------
        programs : iterable of DumpedProgram
            That read or write them.
        value_of : callable (name) -> tensor or None
            Returns a copy of a parameter's value.
        """
        agent = self._agent
        for program in programs:
            for node in program.program.nodes:
                if node.role in ("operator", "input", "constant"):
                    continue
                place = agent.places.place(agent.places.node(node.name, node.type, node.role), 0)
                need = agent.places.needs[place]
                value = value_of(node.name) if need else None
                if value is not None:
                    agent.observe(place, value, need)

    def take(self, phase: Phase, *, counts: bool) -> None:
        """Take what a call has dumped.

        Parameters
        ----------
        phase : Phase
            What ran.
        counts : bool
            Whether it is part of the step that is under way.
        """
        if not self._agent.capturing and phase.launched:
            if counts:
                self._ran.update(phase.programs)
            self._ring.discard()
            return
        self._wait()
        launches = self._ring.launches()
        phase.launched = True
        for launch in launches:
            if launch.graph not in phase.programs:
                self._learn(phase)
                program = self._programs.program(launch.graph)
                if program is not None:
                    phase.programs[launch.graph] = program
        if not counts:
            for launch in launches:
                self._ring.release(launch)
            return
        self._ran.update(phase.programs)
        for launch in launches:
            older = self._launches.pop(launch.graph, None)
            if older is not None:
                self._ring.release(older)
            self._launches[launch.graph] = launch
        ran = [phase.programs[launch.graph] for launch in launches if launch.graph in phase.programs]
        self.skipped_update = phase.updates and not any(program.updates for program in ran)

    def end_step(self, value_of: Callable[[str], Any] | None = None) -> list[Program]:
        """Observe what was taken since the last step; return the programs of what ran.

        Parameters
        ----------
        value_of : callable, optional
            As for `observe_parameters`, where parameters are not dumped.
        """
        if self._agent.capturing:
            self._observe(list(self._launches.values()))
            if value_of is not None:
                self.observe_parameters(self._ran.values(), value_of)
        return [program.program for program in self._ran.values()]

    def begin_step(self) -> None:
        """Let go of the step before the one that has just ended: nobody asks for its values any more."""
        self.release(self._before)
        self._before = list(self._launches.values())
        self._launches.clear()
        self._ran.clear()
        self.skipped_update = False

    def release(self, launches: Iterable[Launch]) -> None:
        """Remove the files of launches."""
        for launch in launches:
            self._ring.release(launch)

    def forget_dumped(self) -> None:
        """Forget what is dumped already: it belongs to steps that nobody looked at."""
        self._wait()
        self._ring.discard()

    def stop(self) -> None:
        """Let go of everything."""
        self.release(self._before)
        self.release(self._launches.values())
        self._before.clear()
        self._launches.clear()

    def _observe(self, launches: list[Launch]) -> None:
        observe, needs = self._agent.observe, self._agent.places.needs
        placed = [self._places_of(launch) for launch in launches]
        # Weights are dumped by every graph that reads them: what they are in the end counts.
        last = {place: number for number, places in enumerate(placed) for place in places} if len(placed) > 1 else {}
        for number, (launch, places) in enumerate(zip(launches, placed, strict=True)):
            for file, place in enumerate(places):
                if place >= 0 and last.get(place, number) == number:
                    need = needs[place]
                    if need:
                        observe(place, DumpedTensor(launch, file), need)

    def _places_of(self, launch: Launch) -> list[int]:
        known = self._places.get(launch.graph)
        if known is None or known[0] != launch.keys:
            program = self._programs.program(launch.graph)
            places = [-1] * len(launch.keys) if program is None else program.places_of(launch.keys)
            known = self._places[launch.graph] = launch.keys, places
        return known[1]

    def _learn(self, phase: Phase) -> None:
        """Take the graphs that are new for those of a phase."""
        files = self._ring.graphs()
        new = sorted(files.keys() - self._files)
        if not new:
            return
        self._files.update(new)
        self._programs.learn(files, self._ring.order_of)
        # What is new may belong to a graph that was known.
        self._places.clear()
        for other in self._phases.values():
            for graph, before in other.programs.items():
                other.programs[graph] = self._programs.program(graph) or before
        for graph in new:
            program = self._programs.program(graph)
            if program is not None and program.order:
                phase.programs[graph] = program
