"""The hits that the processes of a session report, of the current step and of earlier ones."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from tensight.sessions.hit_history import HitHistory
from tensight.sessions.live.recording import HITS, HitsEncoder, JsonStateFile
from tensight.sessions.live.running_session import RunningSession
from tensight.sessions.live.watching import session_hits
from tensight.sessions.records import OngoingHits
from tensight.sessions.stopping import StopDecisions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tensight.graph import Graph
    from tensight.sessions.errors import StorageError
    from tensight.sessions.events import EventLog
    from tensight.sessions.hit_list import HitList, SessionHit
    from tensight.sessions.live.process import TrainingProcess
    from tensight.sessions.live.recording import Recording
    from tensight.sessions.live.run_controller import RunController
    from tensight.sessions.live.shown_step import ShownStep
    from tensight.sessions.watchpoint_list import WatchpointList
    from tensight.sessions.workspace import Workspace
    from tensight.wire import ReceivedHit


class HitSession(RunningSession, Protocol):
    """The part of a session that `ReportedHits` needs; see `LiveSession`."""

    watchpoint_list: WatchpointList
    recording: Recording
    events: EventLog
    hit_list: HitList
    shown: ShownStep
    run_controller: RunController

    def graphs(self, rank: int) -> tuple[Graph, ...]:
        """Return the graphs of a rank."""


class ReportedHits:
    """The hits of a session.

    Parameters
    ----------
    session : HitSession
    workspace : Workspace
    failed : callable
        Called when they could not be written.

    Attributes
    ----------
    history : HitHistory
        The hits of all steps.
    ongoing : OngoingHits or None
        Hits that continue while the training runs.
    """

    def __init__(self, session: HitSession, workspace: Workspace, failed: Callable[[StorageError], None]) -> None:
        self._session = session
        self.history = HitHistory()
        self._decisions = StopDecisions(session.watchpoint_list, session.graphs)
        path = f"{session.recording.name}/{HITS}"
        self.ongoing: OngoingHits | None = None
        self._file = JsonStateFile(workspace, path, lambda: self.history.snapshot(), failed, HitsEncoder())

    async def take(self, process: TrainingProcess, received: Sequence[ReceivedHit]) -> None:
        """Note that a process has stopped, and add the hits that it reported before, which belong to this stop."""
        session, progress = self._session, process.progress
        if progress.global_step > session.shown.present_hits.step:
            session.shown.return_to_present()
            # The history may have hits of this step that were no reason to stop.
            session.hit_list.replace(progress.global_step, self.history.of(progress.global_step))
        if self.ongoing is not None and self.ongoing.step < progress.global_step - 1:
            self.ongoing = None
        if not received:
            if process.watches_without_deciding:
                await self._decide(process, ())
            return
        if self.ongoing is not None and self.ongoing.since == progress.global_step:
            # They were noted a moment ago, and belong to this stop.
            self.ongoing = None
        points, graphs = session.watchpoint_list.all(), process.graphs
        iteration, root_id = progress.iteration, progress.root_id
        hits = await asyncio.to_thread(session_hits, received, points, graphs, process.identity, iteration, root_id)
        present = session.shown.present_hits
        present.add(hits)
        await self._grouped(present)
        self._changed()
        if process.watches_without_deciding:
            await self._decide(process, hits)

    async def _decide(self, process: TrainingProcess, hits: Sequence[SessionHit]) -> None:
        """Stop all ranks at a new hit of a process that does not decide itself whether to stop."""
        run_controller = self._session.run_controller
        is_new = await asyncio.to_thread(self._decisions.stops, process.progress.global_step, hits, [process.rank])
        if is_new or (hits and run_controller.stops_for_every):
            run_controller.stop_at_hits()

    async def note(self, process: TrainingProcess, received: Sequence[ReceivedHit]) -> None:
        """Add hits at which a process did not stop, because they continue, or follow from, reported hits."""
        if not received:
            return
        points, graphs, identity = self._session.watchpoint_list.all(), process.graphs, process.identity

        def by_step() -> dict[int, list[SessionHit]]:
            by_iteration: dict[int, list[ReceivedHit]] = {}
            for hit in received:
                if hit.iteration is not None:
                    by_iteration.setdefault(hit.iteration, []).append(hit)
            return {
                iteration + 1 + process.progress.offset: session_hits(hits, points, graphs, identity, iteration)
                for iteration, hits in sorted(by_iteration.items())
            }

        steps = await asyncio.to_thread(by_step)
        present = self._session.shown.present_hits
        for step, hits in steps.items():
            if step == present.step:
                present.add(hits)
                await self._grouped(present)
                self._changed()
            else:
                self.history.add(step, hits)
            self._go_on(step, len({(hit.rank, hit.graph, hit.node, hit.io, hit.slot) for hit in hits if hit.hit.hit}))
        self._file.changed()
        if self._session.run_controller.stops_for_every:
            self._session.run_controller.stop_at_hits()
        self._session.announce()

    @staticmethod
    async def _grouped(hits: HitList) -> None:
        """Group hits in a thread: for many of them that takes too long for the event loop."""
        await asyncio.to_thread(lambda: hits.tensors)

    def _go_on(self, step: int, tensors: int) -> None:
        """Update `ongoing` with the number of tensors with hits in a step; hits in the previous step continue.

        Hits of the step of a stop belong to that stop, whatever they follow from: they were not reported before.
        """
        before, present = self.ongoing, self._session.shown.present_hits
        since = step
        if before is not None and before.step >= step - 1:
            since = before.since
        elif len(present) and present.step == step:
            return
        elif len(present) and present.step == step - 1:
            since = present.step
        self.ongoing = OngoingHits(step=step, since=since, tensors=tensors)

    def add(self, hits: Iterable[SessionHit]) -> None:
        """Add hits found by the server to those of the step at which the training is stopped."""
        self._session.shown.present_hits.add(hits)
        self._changed()

    def clear(self) -> None:
        """Remove the hits of the current step before they are computed again."""
        self._session.hit_list.replace(self._session.step, ())
        self._changed()

    def restore(self, history: HitHistory) -> None:
        """Continue with the recorded hits of the run."""
        self.history = history
        step = self._session.step
        self._session.hit_list.replace(step, history.of(step))

    async def written(self) -> None:
        """Wait until they are on disk."""
        await self._file.written()

    def _changed(self) -> None:
        present = self._session.shown.present_hits
        self.history.set(present.step, present.all())
        self._file.changed()
        self._session.events.append("hits", step=present.step, total=present.tensors)
