"""Debugging a run at rest: a dump, or what a session recorded of a training that has ended.

Everything is there from the beginning, so "running" means checking: continuing checks the watchpoints on one step after
the other and stops at the first that hits. A session begins at step 0, before the first update, as the training did:
then the first step is checked like every other, and watchpoints for initial weights have their turn. Steps of which
nothing was dumped are passed over, and do not count.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from tensight.dumps.execution import UNMATCHED
from tensight.errors import InputError, TensightError
from tensight.graph import TensorAddress
from tensight.sessions.errors import NotFoundError, StateError
from tensight.sessions.offline_check import StepCheck, check_step, is_checked_at
from tensight.sessions.offline_thread import AnalysisThread, StoppedError
from tensight.sessions.opened_dump import OpenedDump
from tensight.sessions.records import Capabilities, RankRecord, SessionRecord, State
from tensight.sessions.replay import Place, Replay
from tensight.sessions.session import Session
from tensight.sessions.value_memory import TENSOR_BYTES
from tensight.watchpoints import Platform

if TYPE_CHECKING:
    import os
    from collections.abc import Awaitable, Callable

    import numpy as np
    from numpy.typing import NDArray

    from tensight.dumps import Dump
    from tensight.graph import Graph
    from tensight.sessions.records import (
        Command,
        ExecutionPage,
        OriginRecord,
        StatisticsPage,
        StatisticsRow,
        TensorRecord,
    )
    from tensight.sessions.value_memory import ValueMemory
    from tensight.sessions.workspace import Workspace

STATE_EVERY_S = 0.25
"""Seconds between two announcements of the step while many steps are checked quickly."""

_SHOWN_REMARKS = 5
_log = logging.getLogger(__name__)


class OfflineSession(Session):
    """A person debugging a dump.

    Opening returns at once; the graphs are parsed and the tensors listed while clients see the state ``connecting``.

    Parameters
    ----------
    session_id, name : str
    dump : Dump
        Just opened.
    workspace : Workspace or None
    memory : ValueMemory
        Shared by all offline sessions.
    most_drawn_nodes : int
        Graphs with more nodes are not drawn.
    cache_dir : path, optional
        Where statistics are kept; by default as for the command line.
    """

    def __init__(
        self,
        session_id: str,
        name: str,
        dump: Dump,
        *,
        workspace: Workspace | None,
        memory: ValueMemory,
        most_drawn_nodes: int = 100_000,
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        self._dump = dump
        self._memory = memory
        self._cache_dir = cache_dir
        self._opened: OpenedDump | None = None
        self._state = State.CONNECTING
        self._message = ""
        self._step = 0
        self._place: Place | None = None
        self._listed_bytes = 0
        self._announced = 0.0
        self._stop = threading.Event()
        self._task: asyncio.Task[None] | None = None
        platform = next((one for one in Platform if one.value == dump.metadata.device_target), None)
        super().__init__(session_id, name, workspace=workspace, platform=platform, most_drawn_nodes=most_drawn_nodes)
        self._thread = AnalysisThread(self._report)
        self._replay = Replay(dump)

    # --- what it is ---

    @property
    def state(self) -> State:
        """What the session is doing; ``running`` while steps are checked."""
        return self._state

    @property
    def step(self) -> int:
        """The step that is shown; 0 is the state before the first update."""
        return self._step

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks of the dump, in order."""
        return self._dump.ranks

    @property
    def total_steps(self) -> int:
        """The last step of which something was dumped; 0 if there is none."""
        return self._opened.steps[-1] if self._opened is not None and self._opened.steps else 0

    def graphs(self, rank: int) -> tuple[Graph, ...]:
        """Return the graphs of a rank; none while the dump is being opened. NotFoundError for an unknown rank."""
        if rank not in self.ranks:
            raise NotFoundError(f"the dump has no rank {rank}; it has {', '.join(map(str, self.ranks[:20]))}")
        return () if self._opened is None else self._opened.graphs[rank]

    def capabilities(self) -> Capabilities:
        """Return what can be done now."""
        paused = self._state is State.PAUSED
        opened = self._opened is not None and not self._state.has_ended
        return (
            super()
            .capabilities()
            .model_copy(
                update={
                    "can_pause": self._state is State.RUNNING,
                    "can_terminate": not self._state.has_ended,
                    "can_step": paused and self._step < self.total_steps,
                    "can_step_back": paused and self._step > 0,
                    "can_go_to_step": paused,
                    "can_next_node": paused and self._step > 0,
                    "can_previous_node": paused and self._step > 0,
                    "can_run_to_node": paused and self._step > 0,
                    "can_recheck": paused and bool(self.watchpoint_list.enabled()),
                    "has_previous_values": opened,
                    "has_execution_history": opened and any(self._dump.history(rank) for rank in self.ranks),
                    "has_origin": opened,
                    "has_statistics_table": opened,
                }
            )
        )

    def record(self) -> SessionRecord:
        """Return the session at a glance."""
        place = self._place
        return SessionRecord(
            id=self.id,
            name=self.name,
            state=self._state,
            message=self._message or self._hints(),
            step=self._step,
            total_steps=None if self._opened is None else self.total_steps,
            node="" if place is None else place.node,
            graph="" if place is None else place.graph,
            framework="mindspore",
            framework_version=self._dump.metadata.framework_version,
            backend=self._dump.metadata.device_target,
            created=self.created,
            ranks=tuple(map(self._rank_record, self.ranks)),
            capabilities=self.capabilities(),
            watchpoints=len(self.watchpoint_list),
            hits=self.hit_list.tensors,
            outdated=self.hit_list.outdated,
            recommended_offered=self.watchpoint_list.recommended_offered,
            last_event=self.events.last,
            dump=self.name,
        )

    def _hints(self) -> str:
        if self._opened is None:
            return "the dump is being opened"
        return "; ".join(self._opened.hints(self._step, self.most_drawn_nodes))

    def _rank_record(self, rank: int) -> RankRecord:
        opened, place = self._opened, self._place
        graphs = self.graphs(rank)
        device = None if opened is None else opened.devices.get(rank)
        stands_here = place is not None and place.rank == rank
        return RankRecord(
            rank=rank,
            state=self._state,
            step=self._step,
            node=place.node if place is not None and stands_here else "",
            graph=place.graph if place is not None and stands_here else graphs[0].name if len(graphs) == 1 else "",
            graphs=tuple(graph.name for graph in graphs),
            address="" if device is None else device.server,
            device="" if device is None else str(device.device_id),
            message="" if opened is None or self._step in {0, *opened.steps_of[rank]} else "no data of this step",
        )

    # --- opening and closing ---

    def begin(self) -> None:
        """Start to open the dump; returns at once, events tell how far it is."""
        self._task = asyncio.get_running_loop().create_task(self._open())

    async def _open(self) -> None:
        try:
            opened = await self._thread.run("opening the dump", self._load)
            self._opened = opened
            await self.graphs_changed()
        except Exception as error:
            self._fail(error)
            return
        for rank in self.ranks:
            self.events.append("graph", rank=rank, graphs=[graph.name for graph in opened.graphs[rank]])
        self._state = State.PAUSED
        self._move_to(0)

    def _load(self) -> OpenedDump:
        opened = OpenedDump(
            self._dump, report=self._thread.report, progress=self._thread.progress, cache_dir=self._cache_dir
        )
        size_bytes = len(opened.table.files) * TENSOR_BYTES
        self._memory.hold(size_bytes, f"the list of the {len(opened.table.files):,} tensors of {self.name}")
        self._listed_bytes = size_bytes
        return opened

    def _fail(self, error: Exception) -> None:
        if not isinstance(error, TensightError):
            _log.exception("the dump %s could not be opened", self.name)
        if not self._state.has_ended:
            self._state = State.FAILED
            self._message = f"the dump cannot be opened: {str(error) or type(error).__name__}"
            self.events.append_state(self.record())

    async def close(self, reason: str) -> None:
        """Stop what runs and let go of the dump. A closed session only knows its log."""
        if self._state is State.TERMINATED:
            return
        self._state, self._message = State.TERMINATED, reason
        self._stop.set()
        self._thread.close()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._memory.forget(self.id)
        self._memory.release(self._listed_bytes)
        self._opened = None
        self.hit_list.clear()
        self.events.append_state(self.record())
        self.events.append("closed", reason=reason)

    def _required(self) -> OpenedDump:
        """Return the opened dump.

        Raises
        ------
        StateError
            It is not opened yet, cannot be, or is closed.
        """
        if self._state.has_ended:
            raise StateError(self._message or "the session was closed; open the dump again")
        if self._opened is None:
            raise StateError("the dump is still being opened; its progress is among the events")
        return self._opened

    def _report(self, what: str, done: int, total: int) -> None:
        self.events.append("progress", what=what, done=done, total=total)

    # --- commands ---

    async def command(self, command: Command) -> SessionRecord:
        """Continue, pause, go to a step or an operator, check again, or close; see `Session.command`.

        Checking goes on after this returns; events tell how far it is.
        """
        actions: dict[str, Callable[[Command], Awaitable[None]]] = {
            "continue": self._continue,
            "pause": self._pause,
            "terminate": self._terminate,
            "recheck": self._recheck,
            "next_node": self._next_node,
            "previous_node": self._previous_node,
            "run_to_node": self._run_to_node,
            "go_to_step": self._go_to_step,
            "step_back": self._step_back,
        }
        async with self.lock:
            if command.action != "terminate":
                self._required()
            if command.action not in ("pause", "terminate") and self._state is not State.PAUSED:
                raise StateError(f"{command.action} is possible while the session is paused; it is {self._state.value}")
            await actions[command.action](command)
        return self.record()

    async def _continue(self, command: Command) -> None:
        if command.steps == 0:
            raise InputError("continue by 0 steps goes nowhere; give a number of steps, or -1 for all")
        steps = list(self._upcoming())
        if not steps:
            raise StateError(f"step {self._step} is the last one of the dump; go back to check again")
        steps = steps if command.steps < 0 else steps[: command.steps]
        points = self.watchpoint_list.enabled()
        if not points:
            # Nothing can stop it on the way.
            self._move_to(steps[-1])
            return
        if self._step == 0 and self.hit_list.outdated and any(is_checked_at(one, 0) for one in points):
            steps.insert(0, 0)
        self._start_checking(steps)

    def _upcoming(self) -> tuple[int, ...]:
        steps = self._required().steps
        return steps[bisect_right(steps, self._step) :]

    async def _pause(self, command: Command) -> None:
        if self._state is not State.RUNNING:
            raise StateError(f"{command.action} is possible while steps are checked; it is {self._state.value}")
        self._stop.set()

    async def _terminate(self, command: Command) -> None:
        await self.close(f"closed by the command {command.action}")

    async def _recheck(self, command: Command) -> None:
        if not self.watchpoint_list.enabled():
            raise StateError(f"there is nothing to {command.action}: no watchpoint is enabled")
        self._start_checking([self._step])

    async def _go_to_step(self, command: Command) -> None:
        if not 0 <= command.steps <= self.total_steps:
            raise InputError(f"there is no step {command.steps}; the dump goes from step 0 to {self.total_steps}")
        self._move_to(command.steps)

    async def _step_back(self, command: Command) -> None:
        steps = (0, *self._required().steps)
        before = bisect_left(steps, self._step)
        if not before:
            raise StateError("step 0 is the first; there is nothing before it")
        self._move_to(steps[max(before - max(command.steps, 1), 0)])

    async def _next_node(self, command: Command) -> None:
        await self._walk(command, self._replay.following)

    async def _previous_node(self, command: Command) -> None:
        await self._walk(command, self._replay.preceding)

    async def _walk(self, command: Command, move: Callable[[Place | None, int, int], Place]) -> None:
        place = self._place
        rank = self._ranks_to_walk(command)[0] if place is None or command.rank is not None else place.rank
        here = place if place is not None and place.rank == rank else None
        self._stand_at(await asyncio.to_thread(move, here, rank, self._step - 1))

    async def _run_to_node(self, command: Command) -> None:
        if not command.node:
            await self._next_node(command)
            return
        ranks = self._ranks_to_walk(command)
        self._stand_at(await asyncio.to_thread(self._replay.at, ranks, self._step - 1, command.graph, command.node))

    def _ranks_to_walk(self, command: Command) -> tuple[int, ...]:
        """Return the rank that a command names, or those that have data of the step; at least one."""
        if command.rank is not None:
            self.graphs(command.rank)
            return (command.rank,)
        steps_of = self._required().steps_of
        return tuple(rank for rank in self.ranks if self._step in steps_of[rank]) or self.ranks[:1]

    # --- what commands do ---

    def _move_to(self, step: int) -> None:
        """Show a step that has not been checked now."""
        self._step, self._place = step, None
        self.hit_list.replace(step, ())
        self.hit_list.outdated = any(is_checked_at(one, step) for one in self.watchpoint_list.all())
        self._announce_hits()
        self.events.append_state(self.record())

    def _stand_at(self, place: Place) -> None:
        self._place = place
        self.events.append_state(self.record())

    def _start_checking(self, steps: list[int]) -> None:
        self._state = State.RUNNING
        self._stop = threading.Event()
        self.events.append_state(self.record())
        self._task = asyncio.get_running_loop().create_task(self._check(steps))

    async def _check(self, steps: list[int]) -> None:
        """Check steps until one has a hit, or a person pauses; then stand still."""
        remarks: tuple[str, ...] = ()
        try:
            for step in steps:
                found = await self._check_one(step)
                remarks = found.remarks
                if any(hit.hit.hit for hit in found.hits) or self._stop.is_set():
                    break
        except StoppedError:
            # The step that was being checked is not shown; what was read of it is remembered.
            remarks = ()
        except TensightError as error:
            self.warn(f"checking stopped after step {self._step}: {error}")
        except Exception as error:
            _log.exception("checking %s stopped", self.name)
            self.warn(f"checking stopped after step {self._step}: {error!r}; the server's log says more")
        if not self._state.has_ended:
            self._state = State.PAUSED
            for remark in remarks[:_SHOWN_REMARKS]:
                self.events.append("message", level="info", text=remark)
            self._announce_hits()
            self.events.append_state(self.record())

    async def _check_one(self, step: int) -> StepCheck:
        opened, points = self._required(), self.watchpoint_list.enabled()
        found = await self._thread.run(
            f"checking step {step}",
            lambda: check_step(opened.analysis, opened.index, self.watchpoint_list, points, step),
            self._stop,
        )
        self._step, self._place = step, None
        self.hit_list.replace(step, found.hits)
        now = time.monotonic()
        if now - self._announced > STATE_EVERY_S:
            self._announced = now
            self.events.append_state(self.record())
        return found

    def _announce_hits(self) -> None:
        self.events.append("hits", step=self._step, total=self.hit_list.tensors)

    # --- tensors ---

    def position(self, rank: int, graph: str, node: str) -> int | None:
        """Return where a node stands in the order of execution; None for constants, and for unknown ones."""
        found = None if self._opened is None else self._opened.index.node(rank, graph, node)
        position = -1 if found is None else self._dump.node_position(rank, found)
        return position if 0 <= position < UNMATCHED else None

    async def tensors_of(
        self, rank: int, graph: str, node: str, iteration: int | None = None
    ) -> tuple[TensorRecord, ...]:
        """Return the inputs and outputs of a node at an iteration, with statistics; only these are read."""
        opened = self._required()
        self.graphs(rank)
        at = TensorAddress(rank, graph, node, 0, self._step - 1 if iteration is None else iteration)
        return await self._thread.run(f"reading {node}", lambda: opened.tensors(at, self.hit_list.abbreviations))

    async def value(self, address: TensorAddress) -> NDArray[np.generic]:
        """Return a tensor; an npy file is mapped, what has to be held in memory counts against the server's limit."""
        return await asyncio.to_thread(self._required().value, address, self._memory, self.id)

    def previous(self, address: TensorAddress) -> TensorAddress | None:
        """Return the same tensor when its graph ran last before, by the history; initial weights count."""
        return self._required().index.previous(address)

    async def statistics_over_steps(self, address: TensorAddress) -> tuple[StatisticsRow, ...]:
        """Return the statistics of a tensor in all steps of the dump, also those after the one shown."""
        opened = self._required()
        return await self._thread.run(f"reading {address.node} in all steps", lambda: opened.over_steps(address))

    async def statistics_table(
        self,
        *,
        rank: int | None = None,
        iteration: int | None = None,
        query: str = "",
        sort: str = "position",
        descending: bool = False,
        offset: int = 0,
        limit: int = 100,
    ) -> StatisticsPage:
        """Return the statistics of all tensors of an iteration; what is not known yet is read, which may take long."""
        opened = self._required()
        ranks = self.ranks if rank is None else (rank,)
        self.graphs(ranks[0])
        wanted = self._step - 1 if iteration is None else iteration
        return await self._thread.run(
            f"reading the statistics of step {wanted + 1}",
            lambda: opened.statistics(
                ranks, wanted, query=query, sort=sort, descending=descending, offset=offset, limit=limit
            ),
        )

    async def executions(self, rank: int, offset: int = 0, limit: int = 100) -> ExecutionPage:
        """Return which graphs ran in which step, by the dump's history and by what was dumped."""
        opened = self._required()
        self.graphs(rank)
        return await asyncio.to_thread(opened.executions, rank, offset, limit)

    async def origins(self) -> tuple[OriginRecord, ...]:
        """Return where anomalies began, in the whole dump whatever step is shown; reads what is not known yet."""
        opened = self._required()
        return await self._thread.run("looking for origins", opened.origins)
