"""What graphs computed, taken from their dump: launches are collected until a step ends, and then observed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tensight.agents.mindspore.dumped import DumpedTensor
from tensight.agents.mindspore.graph_programs import GraphPrograms
from tensight.agents.mindspore.scans_ahead import LARGE_BYTES, ScansAhead, are_worth_waking
from tensight.agents.slots import NO_SLOT
from tensight.graph.run_order import RunOrder
from tensight.tensors.cores import available_cores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tensight.agents.agent import Agent
    from tensight.agents.mindspore.graph_programs import DumpedProgram
    from tensight.agents.mindspore.ring import DumpRing, Launch
    from tensight.agents.program import Program

_GRADIENTS = "Gradients/"


class _LaunchSlots(NamedTuple):
    """Where the files of a graph's launches belong.

    Attributes
    ----------
    keys : tuple of str
        See `Launch.keys`.
    slot_ids : list of int
        Of each file, `NO_SLOT` if it belongs to none.
    large : frozenset of int
        Numbers of those files that are worth a second thread, as the first launch had them.
    updated : list of (int, int, int)
        Numbers of the files of parameters, their slots, and those of operators' outputs that have their values.
    undumped : list of (int, str)
        Slots that have the values of parameters of which there are no files, and the parameters' names.
    """

    keys: tuple[str, ...]
    slot_ids: list[int]
    large: frozenset[int]
    updated: list[tuple[int, int, int]]
    undumped: list[tuple[int, str]]


class Phase:
    """What an executor compiled.

    Attributes
    ----------
    programs : dict of int to DumpedProgram
        By the number of the graph, in the order in which they were compiled.
    launched : bool
        Whether it ran before.
    updates_unseen : bool
        Whether it may update weights without leaving a file.
    """

    def __init__(self) -> None:
        self.programs: dict[int, DumpedProgram] = {}
        self.launched = False
        self.updates_unseen = False

    @property
    def updates(self) -> bool:
        """Whether it updates weights, if nothing keeps it from that."""
        return any(program.updates for program in self.programs.values())

    @property
    def parameters(self) -> dict[str, int]:
        """Slot ids of the persistent parameters, by name."""
        return {name: slot_id for program in self.programs.values() for name, slot_id in program.parameters.items()}

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
    value_of : callable (name) -> tensor or None
        Returns a copy of the value that a parameter has now.
    requires_gradient : callable (name) -> bool
        Whether a parameter is to be trained, as far as its network says.

    Attributes
    ----------
    skipped_update : bool
        Whether a graph that updates weights did not do so in this step, because its scaled gradients had overflowed.
    """

    def __init__(
        self,
        agent: Agent,
        ring: DumpRing,
        wait: Callable[[], None],
        value_of: Callable[[str], Any],
        requires_gradient: Callable[[str], bool],
    ) -> None:
        self.skipped_update = False
        self._agent = agent
        self._ring = ring
        self._wait = wait
        self._value_of = value_of
        self._programs = GraphPrograms(agent.slot_table, requires_gradient)
        self._files: set[int] = set()
        self._phases: dict[str, Phase] = {}
        self._ran: dict[int, DumpedProgram] = {}
        self._order = RunOrder()
        self._launches: dict[int, Launch] = {}
        self._before: list[Launch] = []
        self._known: dict[int, _LaunchSlots] = {}
        self._ahead: ScansAhead | None = None

    def phase(self, name: str) -> Phase:
        """Return what is known of something that was compiled; its graphs are those that are new."""
        known = self._phases.get(name)
        if known is None:
            known = self._phases[name] = Phase()
            self._learn(known)
            for number, program in known.programs.items():
                nodes = program.program.nodes
                self._ring.expect(number, nodes)
                leaves_files = any(node.role == "operator" and self._ring.is_dumped(node) for node in nodes)
                known.updates_unseen |= program.updates and not leaves_files
            # What runs for the first time tells which files it leaves.
            self._ring.dump(wanted=True)
        return known

    def observe_parameters(self, programs: Iterable[DumpedProgram]) -> None:
        """Observe parameters as they are now, before anything was dumped of the programs that read or write them."""
        for program in programs:
            self._observe_now((slot_id, name) for name, slot_id in program.parameters.items())

    def observe_read(self, phase: Phase, name: str) -> None:
        """Observe a parameter as a phase will read it, unless something has read or written it in this step."""
        agent, slot_id = self._agent, phase.parameters[name]
        has_run = any(slot_id in program.parameters.values() for program in self._ran.values())
        value = None if has_run or not agent.capturing else self._value_of(name)
        if value is not None:
            agent.observe_once(agent.slot_table.slot_id(agent.slot_table[slot_id].node, 0, "input"), value)

    def take(self, phase: Phase, *, counts: bool) -> list[Launch]:
        """Take what a call has dumped, and return it; nothing if nobody looks.

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
            return []
        self._wait()
        launches = self._ring.launches()
        self._order.learn([launch.graph for launch in sorted(launches, key=lambda launch: launch.began)])
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
            return launches
        self._ran.update(phase.programs)
        for launch in launches:
            older = self._launches.pop(launch.graph, None)
            if older is not None:
                self._ring.release(older)
            self._launches[launch.graph] = launch
        ran = [phase.programs[launch.graph] for launch in launches if launch.graph in phase.programs]
        updated = phase.updates_unseen or any(program.updates for program in ran)
        self.skipped_update = phase.updates and not updated
        return launches

    def may_have_run(self, program: DumpedProgram) -> bool:
        """Whether a program may have run though it has left no file."""
        operators = (node for node in program.program.nodes if node.role == "operator")
        return not (self._ring.is_private and any(map(self._ring.is_dumped, operators)))

    def end_step(self) -> list[Program]:
        """Observe what was taken since the last step; return the programs of what ran, in the order of time."""
        if self._agent.capturing:
            self._observe(list(self._launches.values()))
        return [self._ran[graph].program for graph in self._order.sorted(self._ran)]

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
        launch_slots = [self._slots_of(launch) for launch in launches]
        self._observe_dumped(launches, launch_slots)
        for launch, known in zip(launches, launch_slots, strict=True):
            self._observe_updated(launch, known)
        undumped = [one for known in launch_slots for one in known.undumped]
        # Those that left no files may not have run, but have parameters.
        for graph in self._ran.keys() - self._launches.keys():
            undumped += [(slot_id, name) for name, slot_id in self._ran[graph].parameters.items()]
        if undumped:
            dumped = {slot_id for known in launch_slots for slot_id in known.slot_ids}
            self._observe_now(one for one in undumped if one[0] not in dumped)

    def _observe_dumped(self, launches: list[Launch], launch_slots: list[_LaunchSlots]) -> None:
        """Observe what has a file; large files are read ahead."""
        needs = self._agent.slot_table.needs
        # Weights are dumped by every graph that reads them: what they are in the end counts.
        last: dict[int, int] = {}
        if len(launch_slots) > 1:
            last = {slot_id: at for at, known in enumerate(launch_slots) for slot_id in known.slot_ids}
        wanted: list[tuple[int, DumpedTensor, int]] = []
        large: list[tuple[int, DumpedTensor]] = []
        for number, (launch, known) in enumerate(zip(launches, launch_slots, strict=True)):
            for file, slot_id in enumerate(known.slot_ids):
                need = needs[slot_id] if slot_id >= 0 and last.get(slot_id, number) == number else 0
                if need:
                    one = slot_id, DumpedTensor(launch, file), need
                    wanted.append(one)
                    if file in known.large:
                        large.append(one[:2])
        if self._ahead is not None and large:
            self._ahead.begin(large)
        for one in wanted:
            self._agent.observe(*one)

    def _observe_updated(self, launch: Launch, known: _LaunchSlots) -> None:
        """Observe parameters that a launch has left in the file of something else."""
        for file, source, slot_id in known.updated:
            need = self._agent.slot_table.needs[slot_id]
            if need:
                tensor = DumpedTensor(launch, file)
                if self._ahead is not None:
                    self._ahead.share(source, tensor)
                self._agent.observe(slot_id, tensor, need)

    def _observe_now(self, values: Iterable[tuple[int, str]]) -> None:
        """Observe the values that parameters have now, of some names, for some slots."""
        agent = self._agent
        for slot_id, name in values:
            need = agent.slot_table.needs[slot_id]
            value = self._value_of(name) if need else None
            if value is not None:
                agent.observe(slot_id, value, need)

    def _slots_of(self, launch: Launch) -> _LaunchSlots:
        known = self._known.get(launch.graph)
        if known is None or known.keys != launch.keys:
            program = self._programs.program(launch.graph)
            slot_ids = [NO_SLOT] * len(launch.keys) if program is None else program.slot_ids_of(launch.keys)
            sizes = [DumpedTensor(launch, file).size_on_disk() for file in range(len(launch.files))]
            large = frozenset(file for file, size in enumerate(sizes) if size >= LARGE_BYTES)
            updated, undumped = _without_files(program, slot_ids)
            known = _LaunchSlots(launch.keys, slot_ids, large, updated, undumped)
            self._known[launch.graph] = known
            if self._ahead is None and large and available_cores() > 1:
                self._ahead = ScansAhead(self._agent.slot_table.needs)
                self._ahead.start()
            if self._ahead is not None and are_worth_waking(sizes):
                self._ahead.expect(launch, {launch.keys[file]: slot_ids[file] for file in large if slot_ids[file] >= 0})
        return known

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


def _without_files(
    program: DumpedProgram | None, slot_ids: list[int]
) -> tuple[list[tuple[int, int, int]], list[tuple[int, str]]]:
    """Return where values of parameters are that have no files of their own: see `_LaunchSlots`."""
    if program is None:
        return [], []
    files = {slot_id: file for file, slot_id in enumerate(slot_ids)}
    sources = program.parameters
    outputs = {slot_id: name for slot_id, name in program.updated(slot_ids).items() if slot_id not in files}
    updated = [
        (files[sources[name]], sources[name], slot_id) for slot_id, name in outputs.items() if sources[name] in files
    ]
    undumped = [(slot_id, name) for slot_id, name in outputs.items() if sources[name] not in files]
    return updated, undumped + [(slot_id, name) for name, slot_id in sources.items() if slot_id not in files]
