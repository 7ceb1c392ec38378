"""Observes what graphs computed, from their dump: launches are collected until a step ends, and then observed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tensight.agents.core.slots import NO_SLOT
from tensight.agents.mindspore.dumped import DumpedTensor
from tensight.agents.mindspore.graph_programs import GraphPrograms
from tensight.agents.mindspore.scans_ahead import LARGE_BYTES, ScansAhead, are_worth_waking
from tensight.graph.run_order import RunOrder
from tensight.tensors.cores import available_cores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tensight.agents.core.agent import Agent
    from tensight.agents.core.program import Program, Source
    from tensight.agents.mindspore.graph_programs import DumpedProgram
    from tensight.agents.mindspore.ring import DumpRing, Launch

_GRADIENTS = "Gradients/"


class _LaunchSlots(NamedTuple):
    """The slots of the files of a graph's launches.

    Attributes
    ----------
    keys : tuple of str
        See `Launch.keys`.
    slot_ids : list of int
        Of each file, `NO_SLOT` if it belongs to none.
    large : frozenset of int
        Numbers of the files that are worth a second thread, according to the first launch.
    updated : list of (int, int, int)
        File numbers of parameters, their slot ids, and the slot ids of operators' outputs with the same values.
    undumped : list of (int, str)
        Slot ids with the values of parameters that have no files, and the names of these parameters.
    """

    keys: tuple[str, ...]
    slot_ids: list[int]
    large: frozenset[int]
    updated: list[tuple[int, int, int]]
    undumped: list[tuple[int, str]]


class Phase:
    """The graphs of a cell or function that an executor compiled.

    Attributes
    ----------
    programs : dict of int to DumpedProgram
        By the number of the graph, in the order of compilation.
    launched : bool
        Whether it has run before.
    updates_unseen : bool
        Whether it may update weights without leaving a file.
    """

    def __init__(self) -> None:
        self.programs: dict[int, DumpedProgram] = {}
        self.launched = False
        self.updates_unseen = False

    @property
    def updates(self) -> bool:
        """Whether it contains an update of weights, which it may skip."""
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
        Returns a copy of the current value of a parameter.
    requires_gradient : callable (name) -> bool
        Whether a parameter is trainable, according to its network.

    Attributes
    ----------
    skipped_update : bool
        Whether a graph skipped its update of weights in this step, because its scaled gradients had overflowed.
    also_reads : bool
        Whether what is dumped is read although nothing is captured, because the training is diagnosed.
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
        self.also_reads = False
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
        self._launch_slots: dict[int, _LaunchSlots] = {}
        self._ahead: ScansAhead | None = None

    def phase(self, name: str) -> Phase:
        """Return the phase with a name; if it is new, its graphs are those that are new."""
        phase = self._phases.get(name)
        if phase is None:
            phase = self._phases[name] = Phase()
            self._learn(phase)
            for number, program in phase.programs.items():
                nodes = program.program.nodes
                self._ring.expect(number, nodes)
                leaves_files = any(node.role == "operator" and self._ring.is_dumped(node) for node in nodes)
                phase.updates_unseen |= program.updates and not leaves_files
            # The first run shows which files it leaves.
            self._ring.dump(is_needed=True)
        return phase

    def observe_parameters(self, programs: Iterable[DumpedProgram]) -> None:
        """Observe the current values of parameters, before programs that read or write them dump anything."""
        for program in programs:
            self._observe_now((slot_id, name) for name, slot_id in program.parameters.items())

    def observe_read(self, phase: Phase, name: str) -> None:
        """Observe a parameter that a phase will read, unless something has read or written it in this step."""
        agent, slot_id = self._agent, phase.parameters[name]
        has_run = any(slot_id in program.parameters.values() for program in self._ran.values())
        value = None if has_run or not agent.capturing else self._value_of(name)
        if value is not None:
            agent.observed.observe_once(agent.slot_table.slot_id(agent.slot_table[slot_id].node, 0, "input"), value)

    def take(self, phase: Phase, *, counts: bool) -> list[Launch]:
        """Take what a call has dumped, and return it; empty while nothing is captured.

        Parameters
        ----------
        phase : Phase
            What ran.
        counts : bool
            Whether it is part of the current step.
        """
        if not (self._agent.capturing or self.also_reads) and phase.launched:
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
        """Whether a program may have run although it left no file."""
        operators = (node for node in program.program.nodes if node.role == "operator")
        return not (self._ring.is_private and any(map(self._ring.is_dumped, operators)))

    def end_step(self) -> list[Program]:
        """Observe what was taken since the last step; return the programs that ran, in the order of time."""
        if self._agent.capturing:
            self._observe(list(self._launches.values()))
        return [self._ran[graph].program for graph in self._order.sorted(self._ran)]

    def begin_step(self) -> None:
        """Release the step before the one that has just ended: its values are no longer requested."""
        self.release(self._before)
        self._before = list(self._launches.values())
        self._launches.clear()
        self._ran.clear()
        if self._ahead is not None:
            self._ahead.forget()
        self.skipped_update = False
        self._ring.dump(is_needed=self._agent.capturing or self.also_reads)

    def tensors(self, launches: Iterable[Launch]) -> dict[Source, DumpedTensor]:
        """Return the tensors that launches have dumped, by the nodes that computed them."""
        result: dict[Source, DumpedTensor] = {}
        table = self._agent.slot_table
        for launch in launches:
            for file, slot_id in enumerate(self._slots_of(launch).slot_ids):
                if slot_id >= 0 and table[slot_id].io == "output":
                    slot = table[slot_id]
                    result[slot.node.name, slot.slot] = DumpedTensor(launch, file)
        return result

    def release(self, launches: Iterable[Launch]) -> None:
        """Remove the files of launches."""
        for launch in launches:
            self._ring.release(launch)

    def forget_dumped(self) -> None:
        """Discard what is dumped already: it belongs to steps that were not captured."""
        self._wait()
        self._ring.discard()

    def stop(self) -> None:
        """Release everything."""
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
        for launch, slots in zip(launches, launch_slots, strict=True):
            self._observe_updated(launch, slots)
        undumped = [pair for slots in launch_slots for pair in slots.undumped]
        # Graphs that left no files may not have run, but have parameters.
        for graph in self._ran.keys() - self._launches.keys():
            undumped += [(slot_id, name) for name, slot_id in self._ran[graph].parameters.items()]
        if undumped:
            dumped = {slot_id for slots in launch_slots for slot_id in slots.slot_ids}
            self._observe_now(pair for pair in undumped if pair[0] not in dumped)

    def _observe_dumped(self, launches: list[Launch], launch_slots: list[_LaunchSlots]) -> None:
        """Observe the tensors that have files; large files are read ahead."""
        needs = self._agent.slot_table.needs
        # Weights are dumped by every graph that reads them: the last value counts.
        last: dict[int, int] = {}
        if len(launch_slots) > 1:
            last = {slot_id: at for at, slots in enumerate(launch_slots) for slot_id in slots.slot_ids}
        observations: list[tuple[int, DumpedTensor, int]] = []
        large: list[tuple[int, DumpedTensor]] = []
        for number, (launch, slots) in enumerate(zip(launches, launch_slots, strict=True)):
            for file, slot_id in enumerate(slots.slot_ids):
                need = needs[slot_id] if slot_id >= 0 and last.get(slot_id, number) == number else 0
                if need:
                    observation = slot_id, DumpedTensor(launch, file), need
                    observations.append(observation)
                    if file in slots.large:
                        large.append(observation[:2])
        if self._ahead is not None and large:
            self._ahead.begin(large)
        for observation in observations:
            self._agent.observe(*observation)

    def _observe_updated(self, launch: Launch, slots: _LaunchSlots) -> None:
        """Observe the outputs of operators whose values are in the files of parameters."""
        for file, source, slot_id in slots.updated:
            need = self._agent.slot_table.needs[slot_id]
            if need:
                tensor = DumpedTensor(launch, file)
                if self._ahead is not None:
                    self._ahead.share(source, tensor)
                self._agent.observe(slot_id, tensor, need)

    def _observe_now(self, values: Iterable[tuple[int, str]]) -> None:
        """Observe the current values of parameters, given as slot ids and names."""
        agent = self._agent
        for slot_id, name in values:
            need = agent.slot_table.needs[slot_id]
            value = self._value_of(name) if need else None
            if value is not None:
                agent.observe(slot_id, value, need)

    def _slots_of(self, launch: Launch) -> _LaunchSlots:
        slots = self._launch_slots.get(launch.graph)
        if slots is None or slots.keys != launch.keys:
            program = self._programs.program(launch.graph)
            slot_ids = [NO_SLOT] * len(launch.keys) if program is None else program.slot_ids_of(launch.keys)
            sizes = [DumpedTensor(launch, file).size_on_disk() for file in range(len(launch.files))]
            large = frozenset(file for file, size in enumerate(sizes) if size >= LARGE_BYTES)
            updated, undumped = _without_files(program, slot_ids)
            slots = _LaunchSlots(launch.keys, slot_ids, large, updated, undumped)
            self._launch_slots[launch.graph] = slots
            if self._ahead is None and large and available_cores() > 1:
                self._ahead = ScansAhead(self._agent.slot_table.needs)
                self._ahead.start()
            if self._ahead is not None and are_worth_waking(sizes):
                self._ahead.expect(launch, {launch.keys[file]: slot_ids[file] for file in large if slot_ids[file] >= 0})
        return slots

    def _learn(self, phase: Phase) -> None:
        """Assign the graphs that are new to a phase."""
        files = self._ring.graphs()
        new = sorted(files.keys() - self._files)
        if not new:
            return
        self._files.update(new)
        self._programs.learn(files, self._ring.order_of)
        # A new file may belong to a known graph.
        self._launch_slots.clear()
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
    """Return where the values of parameters without files of their own are: see `_LaunchSlots`."""
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
