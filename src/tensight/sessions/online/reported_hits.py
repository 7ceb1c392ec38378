"""The hits that the processes of a session report: of the step at which they stand, and what was kept of others."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tensight.sessions.hit_history import HitHistory
from tensight.sessions.online.recording import HITS, HitsEncoder, LivingFile
from tensight.sessions.online.watching import session_hits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tensight.sessions.errors import StorageError
    from tensight.sessions.hit_list import SessionHit
    from tensight.sessions.online.process import TrainingProcess
    from tensight.sessions.online.session import OnlineSession
    from tensight.sessions.workspace import Workspace
    from tensight.wire import ReceivedHit


class ReportedHits:
    """The hits of one session.

    Parameters
    ----------
    session : OnlineSession
    workspace : Workspace
    failed : callable
        Told when they could not be written.

    Attributes
    ----------
    history : HitHistory
        Those of all steps, as far as there is room.
    """

    def __init__(self, session: OnlineSession, workspace: Workspace, failed: Callable[[StorageError], None]) -> None:
        self._session = session
        self.history = HitHistory()
        path = f"{session.recording.name}/{HITS}"
        self._file = LivingFile(workspace, path, lambda: self.history.snapshot(), failed, HitsEncoder())

    async def take(self, process: TrainingProcess, received: Sequence[ReceivedHit]) -> None:
        """Note where a process has arrived; hits that it reported on the way belong to that place."""
        session = self._session
        if process.place > session.shown.present_hits.step:
            session.shown.return_to_present()
            session.hit_list.replace(process.place, ())
        if not received:
            return
        points, graphs = session.watchpoint_list.all(), process.graphs
        iteration, root_id = process.iteration, process.root_id
        hits = await asyncio.to_thread(session_hits, received, points, graphs, process.identity, iteration, root_id)
        present = session.shown.present_hits
        present.add(hits)
        # Whoever asks next finds them grouped; for many hits that takes too long for the event loop.
        await asyncio.to_thread(lambda: present.tensors)
        self._changed()

    def add(self, hits: Iterable[SessionHit]) -> None:
        """Add hits that were found here to those of the step at which the training stands."""
        self._session.shown.present_hits.add(hits)
        self._changed()

    def clear(self) -> None:
        """Forget the hits of this step, which are computed again."""
        self._session.hit_list.replace(self._session.step, ())
        self._changed()

    def restore(self, history: HitHistory) -> None:
        """Go on with the hits that were kept of the run."""
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
        self._session.events.append("hits", step=present.step, total=len(present))
