"""Debugging a dump, or the recording of an ended training.

All steps exist from the beginning, so "running" means checking: the command to continue checks the watchpoints step by
step and stops at the first step with new hits. A session begins at step 0, before the first update, as the training
did, so that the first step is checked like every other, and watchpoints for initial weights are checked at step 0.
Steps without dumped tensors are skipped and not counted.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from tensight.errors import InputError, TensightError
from tensight.graph.steps import iteration_of
from tensight.sessions.errors import StateError
from tensight.sessions.offline.check import StepCheck, check_step, is_checked_at
from tensight.sessions.offline.dump_session import DumpSession
from tensight.sessions.offline.thread import StoppedError
from tensight.sessions.records import RankRecord, SessionRecord, State

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tensight.sessions.offline.replay import ReplayPosition
    from tensight.sessions.records import Capabilities, Command

STATE_EVERY_S = 0.25
"""Seconds between two announcements of the step while many steps are checked quickly."""

_SHOWN_REMARKS = 5
_log = logging.getLogger(__name__)


class OfflineSession(DumpSession):
    """A session that checks a dump; see `DumpSession` for the parameters."""

    # Position of the replay within the shown step; None if the step is shown as a whole.
    _position: ReplayPosition | None = None
    _announced = 0.0

    # --- state ---

    @property
    def total_steps(self) -> int:
        """The last dumped step; 0 if there is none."""
        return self._opened.steps[-1] if self._opened is not None and self._opened.steps else 0

    def capabilities(self) -> Capabilities:
        """Return the current capabilities."""
        paused = self._state is State.PAUSED
        opened = self._opened is not None and not self._state.has_ended
        position = self._position
        can_walk = paused and self._has_data
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
                    "can_next_node": can_walk and not (position is not None and position.is_last),
                    "can_previous_node": can_walk and not (position is not None and position.index == 0),
                    "can_run_to_node": can_walk,
                    "can_recheck": paused and bool(self.watchpoint_list.enabled()),
                    "has_previous_values": opened,
                    "has_execution_history": self._opened is not None and self._opened.has_history,
                    "has_origin": opened,
                    "has_statistics_table": opened,
                }
            )
        )

    @property
    def _has_data(self) -> bool:
        """Whether the shown step was dumped."""
        return self._opened is not None and any(self._step in steps for steps in self._opened.steps_of.values())

    def record(self) -> SessionRecord:
        """Return the summary of the session."""
        position = self._position
        return SessionRecord(
            id=self.id,
            name=self.name,
            state=self._state,
            message=self._message or self._hints(),
            step=self._step,
            total_steps=None if self._opened is None else self.total_steps,
            node="" if position is None else position.node,
            graph="" if position is None else position.graph,
            framework=self.framework,
            framework_version=self.metadata.framework_version,
            backend=self.metadata.device_target,
            created=self.created,
            ranks=tuple(map(self._rank_record, self.ranks)),
            capabilities=self.capabilities(),
            watchpoints=len(self.watchpoint_list),
            hits=self.hit_list.tensors,
            findings=len(self._diagnosis.findings),
            outdated=self.hit_list.outdated,
            recommended_offered=self.watchpoint_list.recommended_offered,
            last_event=self.events.last,
            dump=self.dump_name,
            fresh=self.lease is not None,
        )

    def _hints(self) -> str:
        if self._opened is None:
            return "the dump is being opened"
        return "; ".join(self._opened.hints(self._step, self.most_drawn_nodes))

    def _rank_record(self, rank: int) -> RankRecord:
        opened, position = self._opened, self._position
        graphs = self.graphs(rank)
        device = None if opened is None else opened.devices.get(rank)
        is_here = position is not None and position.rank == rank
        return RankRecord(
            rank=rank,
            state=self._state,
            step=self._step,
            node=position.node if position is not None and is_here else "",
            graph=position.graph if position is not None and is_here else graphs[0].name if len(graphs) == 1 else "",
            graphs=tuple(graph.name for graph in graphs),
            address="" if device is None else device.server,
            device="" if device is None else str(device.device_id),
            message="" if opened is None or self._step in {0, *opened.steps_of[rank]} else "no data of this step",
        )

    # --- commands ---

    async def command(self, command: Command) -> SessionRecord:
        """Continue, pause, go to a step or an operator, check again, or close; see `Session.command`.

        Checking continues after this returns; progress is reported by events.
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
                raise StateError(
                    f"{command.action} is possible while the session is paused; it is {self._state.value}",
                    code="not-paused",
                )
            action = actions.get(command.action)
            if action is None:
                raise StateError(
                    f"a dump cannot do {command.action!r}; that is for a training that runs", code="unsupported"
                )
            await action(command)
        return self.record()

    async def _continue(self, command: Command) -> None:
        if command.steps == 0:
            raise InputError("cannot continue by 0 steps; give a number of steps, or -1 for all")
        steps = list(self._upcoming())
        if not steps:
            raise StateError(
                f"step {self._step} is the last one of the dump; go back to check again", code="end-reached"
            )
        steps = steps if command.steps < 0 else steps[: command.steps]
        points = self.watchpoint_list.enabled()
        if not points:
            # Nothing can stop it on the way.
            self._move_to(steps[-1])
            return
        if self._step == 0 and self.hit_list.outdated and any(is_checked_at(watchpoint, 0) for watchpoint in points):
            steps.insert(0, 0)
        self._start_checking(steps, stops_for_every=command.stop_on == "every")

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
            raise StateError("step 0 is the first; there is nothing before it", code="end-reached")
        self._move_to(steps[max(before - max(command.steps, 1), 0)])

    async def _next_node(self, command: Command) -> None:
        await self._walk(command, self._required().replay.following)

    async def _previous_node(self, command: Command) -> None:
        if command.node:
            await self._run_to_node(command)
            return
        await self._walk(command, self._required().replay.preceding)

    async def _walk(self, command: Command, move: Callable[[ReplayPosition | None, int, int], ReplayPosition]) -> None:
        position = self._position
        rank = self._ranks_to_walk(command)[0] if position is None or command.rank is not None else position.rank
        here = position if position is not None and position.rank == rank else None
        self._set_position(await asyncio.to_thread(move, here, rank, iteration_of(self._step)))

    async def _run_to_node(self, command: Command) -> None:
        if not command.node:
            await self._next_node(command)
            return
        ranks = self._ranks_to_walk(command)
        self._set_position(
            await asyncio.to_thread(
                self._required().replay.at, ranks, iteration_of(self._step), command.graph, command.node
            )
        )

    def _ranks_to_walk(self, command: Command) -> tuple[int, ...]:
        """Return the rank of a command, or the ranks with data of the step; at least one."""
        if command.rank is not None:
            self.graphs(command.rank)
            return (command.rank,)
        steps_of = self._required().steps_of
        return tuple(rank for rank in self.ranks if self._step in steps_of[rank]) or self.ranks[:1]

    async def watchpoints_changed(self) -> None:
        """Remove the hits of steps that were checked with other watchpoints; those of the shown step are outdated."""
        self._forget_checks()
        await super().watchpoints_changed()

    # --- execution of commands ---

    def _is_opened(self) -> None:
        self._move_to(0)

    def _move_to(self, step: int) -> None:
        """Show a step, with the hits that its check found or that, in a recorded run, its training reported."""
        self._step, self._position = step, None
        self._decisions.forget()
        results = self._results_of(step)
        self.hit_list.replace(step, results or ())
        self.hit_list.dropped = max(self._checked.get(step, 0) - len(self.hit_list), 0)
        self.hit_list.outdated = results is None and any(
            is_checked_at(watchpoint, step) for watchpoint in self.watchpoint_list.enabled()
        )
        self._announce_hits()
        self.events.append_state(self.record())

    def _set_position(self, position: ReplayPosition) -> None:
        self._position = position
        self.events.append_state(self.record())

    def _start_checking(self, steps: list[int], *, stops_for_every: bool = False) -> None:
        self._state = State.RUNNING
        self._stop = threading.Event()
        self.events.append_state(self.record())
        self._task = asyncio.get_running_loop().create_task(self._check(steps, stops_for_every=stops_for_every))

    async def _check(self, steps: list[int], *, stops_for_every: bool) -> None:
        """Check steps until a step has a new hit, or the session is paused."""
        remarks: tuple[str, ...] = ()
        try:
            for step in steps:
                step_check = await self._check_one(step)
                remarks = step_check.remarks
                hits = [hit for hit in step_check.hits if hit.hit.hit]
                is_new = await asyncio.to_thread(self._decisions.stops, step, hits, self.ranks)
                stops = bool(hits) if stops_for_every else is_new
                if stops or self._stop.is_set():
                    break
        except StoppedError:
            # The interrupted step is not shown; statistics that were read for it are kept.
            remarks = ()
        except TensightError as error:
            self.warn(f"checking stopped after step {self._step}: {error}")
        except Exception as error:
            _log.exception("checking %s stopped", self.name)
            self.warn(f"checking stopped after step {self._step}: {error!r}; see the server's log")
        if not self._state.has_ended:
            self._state = State.PAUSED
            for remark in remarks[:_SHOWN_REMARKS]:
                self.events.append("message", level="info", text=remark)
            self._announce_hits()
            self.events.append_state(self.record())

    async def _check_one(self, step: int) -> StepCheck:
        opened, points = self._required(), self.watchpoint_list.enabled()
        step_check = await self._thread.run(
            f"checking step {step}",
            lambda: check_step(opened.analysis, opened.index, self.watchpoint_list, points, step),
            self._stop,
        )
        self._step, self._position = step, None
        self.hit_list.replace(step, step_check.hits)
        self._found_hits.set(step, self.hit_list.all())
        self._checked[step] = len(step_check.hits)
        # Counting thousands of hits takes a moment.
        await asyncio.to_thread(lambda: self.hit_list.tensors)
        now = time.monotonic()
        if now - self._announced > STATE_EVERY_S:
            self._announced = now
            self.events.append_state(self.record())
        return step_check

    def _announce_hits(self) -> None:
        self.events.append("hits", step=self._step, total=self.hit_list.tensors)
