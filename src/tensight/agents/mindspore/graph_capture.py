"""What graphs computed, taken from their dump: launches are collected until a step ends, and then observed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tensight.agents.mindspore.dumped import DumpedTensor
from tensight.agents.mindspore.graph_programs import GraphPrograms
from tensight.agents.mindspore.scans_ahead import LARGE_BYTES, ScansAhead
from tensight.agents.places import Need
from tensight.tensors.cores import available_cores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tensight.agents.agent import Agent
    from tensight.agents.mindspore.graph_programs import DumpedProgram
    from tensight.agents.mindspore.ring import DumpRing, Launch
    from tensight.agents.program import Program

_GRADIENTS = "Gradients/"
_VALUE = int(Need.VALUE)


class _Places(NamedTuple):
    """Where the files of a graph's launches belong.

    Attributes
    ----------
    keys : tuple of str
        See `Launch.keys`.
    places : list of int
        Of each file, -1 if it belongs to none.
    large : frozenset of int
        Numbers of those files that are worth a second thread, as the first launch had them.
    """

    keys: tuple[str, ...]
    places: list[int]
    large: frozenset[int]


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
        self._known: dict[int, _Places] = {}
        self._ahead: ScansAhead | None = None

    def phase(self, name: str) -> Phase:
        """Return what is known of something that was compiled; its graphs are those that are new."""
        known = self._phases.get(name)
        if known is None:
            known = self._phases[name] = Phase()
            self._learn(known)
            for number, program in known.programs.items():
                self._ring.expect(number, program.program.nodes)
            # What runs for the first time tells which files it leaves.
            self._ring.dump(wanted=True)
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
        if self._ahead is not None:
            self._ahead.forget()
        self.skipped_update = False
        self._ring.dump(wanted=self._agent.capturing)

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
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None
        self.release(self._before)
        self.release(self._launches.values())
        self._before.clear()
        self._launches.clear()

    def _observe(self, launches: list[Launch]) -> None:
        observe, needs = self._agent.observe, self._agent.places.needs
        placed = [self._places_of(launch) for launch in launches]
        # Weights are dumped by every graph that reads them: what they are in the end counts.
        last = {place: at for at, known in enumerate(placed) for place in known.places} if len(placed) > 1 else {}
        wanted: list[tuple[int, DumpedTensor, int]] = []
        large: list[tuple[int, DumpedTensor]] = []
        for number, (launch, known) in enumerate(zip(launches, placed, strict=True)):
            for file, place in enumerate(known.places):
                if place >= 0 and last.get(place, number) == number:
                    need = needs[place]
                    if need:
                        one = place, DumpedTensor(launch, file), need
                        wanted.append(one)
                        if file in known.large:
                            large.append(one[:2])
        if self._ahead is not None and large:
            self._ahead.begin(large)
        for one in wanted:
            observe(*one)

    def _places_of(self, launch: Launch) -> _Places:
        known = self._known.get(launch.graph)
        if known is None or known.keys != launch.keys:
            program = self._programs.program(launch.graph)
            places = [-1] * len(launch.keys) if program is None else program.places_of(launch.keys)
            sizes = (DumpedTensor(launch, file).size_on_disk() for file in range(len(launch.files)))
            large = frozenset(file for file, size in enumerate(sizes) if size >= LARGE_BYTES)
            known = self._known[launch.graph] = _Places(launch.keys, places, large)
            self._expect(launch, {launch.keys[file]: places[file] for file in large if places[file] >= 0})
        return known

    def _expect(self, launch: Launch, places: dict[str, int]) -> None:
        """Have the large tensors of a graph scanned while it runs, if there are any, and another core for it."""
        if self._ahead is None and places and available_cores() > 1:
            self._ahead = ScansAhead(self._agent.places.needs)
            self._ahead.start()
        if self._ahead is not None:
            self._ahead.expect(launch, places)

    def _learn(self, phase: Phase) -> None:
        """Take the graphs that are new for those of a phase."""
        files = self._ring.graphs()
        new = sorted(files.keys() - self._files)
        if not new:
            return
        self._files.update(new)
        self._programs.learn(files, self._ring.order_of)
        # What is new may belong to a graph that was known.
        self._known.clear()
        for other in self._phases.values():
            for graph, before in other.programs.items():
                other.programs[graph] = self._programs.program(graph) or before
        for graph in new:
            program = self._programs.program(graph)
            if program is not None and program.order:
                phase.programs[graph] = program
