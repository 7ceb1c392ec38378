"""All sessions of a server: sessions of training processes, and of opened dumps."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from tensight.dumps import open_dump
from tensight.sessions.comparison import ChosenRun
from tensight.sessions.comparisons import Comparisons
from tensight.sessions.discovery import Discovery
from tensight.sessions.errors import LimitError, NotFoundError, StateError
from tensight.sessions.events import EventLog
from tensight.sessions.lease import Lease
from tensight.sessions.live.session import LiveSession
from tensight.sessions.offline.session import OfflineSession
from tensight.sessions.offline.value_memory import ValueMemory
from tensight.sessions.recorded_run import RecordedRun
from tensight.sessions.records import ComparedRun, DumpRecord, State

if TYPE_CHECKING:
    from pathlib import Path

    from tensight.dumps import Dump
    from tensight.sessions.discovery import FoundDump, FoundSearch
    from tensight.sessions.records import EventPage
    from tensight.sessions.session import Session
    from tensight.sessions.workspace import Workspace

_A_WHILE_S = 3600.0
_CHECK_EVERY_S = 5.0
_FRESH_FOR_EACH = 4
_log = logging.getLogger(__name__)


class SessionTable(Protocol):
    """The operations on the server's sessions that components which create sessions need."""

    def add(self, session: Session) -> None:
        """List a session; LimitError if there are too many."""

    def remove(self, session_id: str) -> None:
        """Remove a session that its owner has closed from the list."""

    def all(self) -> list[Session]:
        """Return the sessions, oldest first."""


class Sessions:
    """All sessions of a server.

    Not thread-safe: use it from the event loop's thread only.

    Parameters
    ----------
    workspace : Workspace
        Contains runs and watchpoints.
    base_dir : Path, optional
        Folder below which dumps can be opened; None if only recorded runs can be opened.
    mem_limit_mb : int
        Memory for all open dumps together, in units of 2**20 bytes; see `ValueMemory` for what it counts.
    max_offline : int
        Maximum number of dumps opened by users; four times as many sessions of scripts may be open.
    max_sessions : int
        Maximum number of all sessions.
    most_drawn_nodes : int
        Graphs with more nodes are not drawn.
    reload_interval_s : float
        Maximum age of the list of dumps.

    Attributes
    ----------
    events : EventLog
        Events of the whole server: ``state`` when a session is added or changes, ``closed`` (with the session's id
        under ``session``) when it is removed, ``comparison`` when a comparison changes.
    comparisons : Comparisons
        The comparisons of runs.
    """

    def __init__(
        self,
        workspace: Workspace,
        base_dir: Path | None,
        *,
        mem_limit_mb: int = 16_384,
        max_offline: int = 2,
        max_sessions: int = 1000,
        most_drawn_nodes: int = 100_000,
        reload_interval_s: float = 3.0,
    ) -> None:
        self.events = EventLog()
        self._workspace = workspace
        self._max_offline = max_offline
        self._max_sessions = max_sessions
        self._most_drawn_nodes = most_drawn_nodes
        self._discovery = Discovery(
            base_dir,
            workspace.runs,
            title_of=lambda number: RecordedRun(workspace, number).name,
            reload_interval_s=reload_interval_s,
        )
        self._memory = ValueMemory(mem_limit_mb * 2**20)
        self.comparisons = Comparisons(self.chosen_run, self._memory, self.events)
        self._opening = asyncio.Lock()
        self._sessions: dict[str, Session] = {}
        self._followers: dict[str, asyncio.Task[None]] = {}
        self._leases: dict[str, asyncio.Task[None]] = {}

    # --- the sessions ---

    def all(self) -> list[Session]:
        """Return the sessions, oldest first."""
        return list(self._sessions.values())

    def get(self, session_id: str) -> Session:
        """Return a session. NotFoundError if the id is unknown."""
        session = self._sessions.get(session_id)
        if session is None:
            raise NotFoundError(
                f"there is no session {session_id[:80]!r}; list the sessions to see which there are",
                code="session-unknown",
            )
        if session.lease is not None:
            session.lease.use()
        return session

    def add(self, session: Session) -> None:
        """List a session; LimitError if there are too many."""
        if len(self._sessions) >= self._max_sessions:
            raise LimitError(f"there are {len(self._sessions)} sessions already; close one first")
        self._sessions[session.id] = session
        self._announce(session)
        self._followers[session.id] = asyncio.get_running_loop().create_task(self._follow(session))

    def remove(self, session_id: str, reason: str = "closed") -> None:
        """Remove a session that its owner has closed from the list; unknown ids are ignored."""
        if self._sessions.pop(session_id, None) is not None:
            self._followers.pop(session_id).cancel()
            if session_id in self._leases:
                self._leases.pop(session_id).cancel()
            self.events.append("closed", session=session_id, reason=reason)

    async def close(self, session_id: str, reason: str = "closed by a person") -> None:
        """Close a session and remove it. NotFoundError if the id is unknown."""
        session = self.get(session_id)
        await session.close(reason)
        self.remove(session_id, reason)

    async def close_all(self, reason: str) -> None:
        """Close every session, at shutdown of the server. A session that fails to close does not keep others open."""
        await self.comparisons.close_all()
        sessions, followers = self.all(), list(self._followers.values())
        results = await asyncio.gather(*(session.close(reason) for session in sessions), return_exceptions=True)
        for session, result in zip(sessions, results, strict=True):
            if isinstance(result, BaseException):
                _log.error("session %s could not be closed", session.id, exc_info=result)
            self.remove(session.id, reason)
        await asyncio.gather(*followers, return_exceptions=True)

    def _announce(self, session: Session) -> None:
        self.events.append("state", **session.record().model_dump(mode="json"))

    async def _follow(self, session: Session) -> None:
        """Repeat state changes of a session in the server's log; remove the session of a dump that a command closed."""
        page = session.events.after(session.events.last)
        while True:
            page = await session.events.wait_after(page.last, _A_WHILE_S)
            if session.id not in self._sessions:
                return  # removed while this waited: no event may follow its `closed`
            if any(event.kind == "state" for event in page.events):
                self._announce(session)
            reason = _reason_of_end(page)
            if reason is not None and isinstance(session, OfflineSession):
                self.remove(session.id, reason)

    # --- dumps ---

    async def dumps(self, refresh: bool = False) -> list[DumpRecord]:
        """Return the dumps that can be opened, by name; `refresh` reads the disk even if the list is recent."""
        return [self._dump_record(dump) for dump in await self._discovery.dumps(refresh)]

    async def searches(self, refresh: bool = False) -> list[FoundSearch]:
        """Return the folders of hyper-parameter searches; `refresh` as in `dumps`."""
        return await self._discovery.searches(refresh)

    async def recordings_below(self, folder: Path) -> dict[Path, str]:
        """Return the names of the readable dumps below a folder, by their folders."""
        dumps = await self._discovery.dumps()
        return {dump.path: dump.name for dump in dumps if not dump.problem and dump.path.is_relative_to(folder)}

    async def open_dump(self, name: str, *, fresh: bool = False) -> Session:
        """Open a dump, or return the session that has it open.

        A run that is still being recorded is open in the session of its training.

        Parameters
        ----------
        name : str
        fresh : bool
            Open a separate session for a script, even if the dump is open: at step 0, without watchpoints of earlier
            sessions, and without changing them. It is closed when its lease expires; see `Lease`.

        Raises
        ------
        NotFoundError
            `dumps` lists no such name.
        LimitError
            The maximum number of dumps is open; the message lists their sessions.
        DumpError
            The dump cannot be read.
        """
        async with self._opening:
            dump = await self._discovery.find(name)
            existing = self._session_of(dump)
            if existing is not None and not (fresh and isinstance(existing, OfflineSession)):
                if existing.state is not State.FAILED:
                    return existing
                await self.close(existing.id, "opened again")
            if fresh:
                await self._close_what_is_left()
            self._require_room(fresh=fresh)
            lease = Lease() if fresh else None
            session = await asyncio.to_thread(self._offline_session, dump, lease)
            self.add(session)
            if lease is not None:
                watching = self._close_when_left(session, lease)
                self._leases[session.id] = asyncio.get_running_loop().create_task(watching)
            session.begin()
            return session

    async def _close_when_left(self, session: OfflineSession, lease: Lease) -> None:
        """Close the session of a script when its lease expires."""
        while lease.left_s > 0:
            await asyncio.sleep(min(lease.left_s, _CHECK_EVERY_S))
        if session.id in self._sessions:
            await self.close(session.id, "its script has ended")

    async def _close_what_is_left(self) -> None:
        """Close the sessions of scripts that have disconnected, without waiting for their leases to expire."""
        for session in self._offline():
            if session.lease is not None and not session.lease.is_held:
                await self.close(session.id, "its script has ended")

    def _offline_session(self, dump: FoundDump, lease: Lease | None) -> OfflineSession:
        return OfflineSession(
            self._workspace.next_session_id(),
            dump.name,
            open_dump(dump.path),
            workspace=self._workspace,
            memory=self._memory,
            most_drawn_nodes=self._most_drawn_nodes,
            lease=lease,
            run=self._recorded_run(dump),
        )

    async def chosen_run(self, name: str) -> ChosenRun:
        """Return a run to compare.

        Parameters
        ----------
        name : str
            Id of a session, or a name in the list of dumps; prefix ``./`` to a dump name that equals a session id.

        Raises
        ------
        NotFoundError
            There is no such session or dump.
        StateError
            The training is running.
        """
        session = self._sessions.get(name)
        listed = name if session is None else session.record().dump
        plain = listed.removeprefix("./")
        try:
            dump = await self._discovery.find(listed)
        except NotFoundError:
            if plain == listed:
                raise
            dump = await self._discovery.find(plain)
        training = self._sessions.get(dump.run)
        is_live = isinstance(training, LiveSession) and not training.state.has_ended
        if isinstance(training, LiveSession):
            _require_stopped(training)
        step = training.present_step if is_live and isinstance(training, LiveSession) else None
        return ChosenRun(
            record=ComparedRun(
                dump=dump.name,
                title=dump.title or dump.name,
                framework=dump.framework,
                live=is_live,
                step=step,
                note=_note_of(dump.title, step) if step is not None else "",
            ),
            identity=(dump.name, dump.modified if step is None else None, step),
            folder=dump.path.parent if dump.run else dump.path,
            open=lambda: self._open_to_compare(dump),
            session_of=lambda: _id_of(self._session_of(dump)),
        )

    async def _open_to_compare(self, listed_dump: FoundDump) -> Dump:
        """Open a dump; for a stopped training, with everything reported so far."""
        training = self._sessions.get(listed_dump.run)
        if isinstance(training, LiveSession):
            _require_stopped(training)
            await training.write_statistics()
        run = self._recorded_run(listed_dump)
        dump = await asyncio.to_thread(open_dump, listed_dump.path)
        if run is None:
            return dump
        return await asyncio.to_thread(run.complete, dump, lambda _what, _done, _total: None)

    def _recorded_run(self, dump: FoundDump) -> RecordedRun | None:
        if not dump.run:
            return None
        return RecordedRun(self._workspace, dump.run, is_left=dump.run not in self._sessions)

    def _dump_record(self, dump: FoundDump) -> DumpRecord:
        session = self._session_of(dump)
        return DumpRecord(
            name=dump.name,
            title=dump.title,
            ranks=dump.ranks,
            framework=dump.framework,
            framework_version=dump.framework_version,
            modified=dump.modified,
            session=None if session is None else session.id,
            problem=dump.problem,
        )

    def _session_of(self, dump: FoundDump) -> Session | None:
        """Return the session that has a dump open: an offline session, or the session of the recorded training."""
        recording = self._sessions.get(dump.run)
        if recording is not None and not recording.state.has_ended:
            return recording
        return next(
            (session for session in self._offline() if session.dump_name == dump.name and session.lease is None), None
        )

    def _offline(self) -> list[OfflineSession]:
        return [session for session in self._sessions.values() if isinstance(session, OfflineSession)]

    def _require_room(self, *, fresh: bool) -> None:
        if len(self._sessions) >= self._max_sessions:
            raise LimitError(f"there are {len(self._sessions)} sessions already; close one first")
        open_sessions = [session for session in self._offline() if (session.lease is not None) == fresh]
        if len(open_sessions) >= self._max_offline * (_FRESH_FOR_EACH if fresh else 1):
            listed = ", ".join(f"{session.id} ({session.name})" for session in open_sessions[:20])
            what = "sessions of scripts" if fresh else "dumps"
            raise LimitError(
                f"{len(open_sessions)} {what} are open, the maximum that --max-offline-debugger-session-num "
                f"{self._max_offline} allows; close one of these sessions first: {listed}"
            )


def _require_stopped(training: LiveSession) -> None:
    """Raise StateError if a training is running."""
    if training.state is not State.PAUSED and not training.state.has_ended:
        raise StateError(
            f"session {training.id} ({training.name}) is {training.state.value}; pause it, then compare it",
            code="not-paused",
        )


def _note_of(title: str, step: int) -> str:
    return (
        f"{title} is a training at step {step}: what it has reported so far is compared, values only of"
        " tensors that were recorded."
    )


def _id_of(session: Session | None) -> str | None:
    return None if session is None else session.id


def _reason_of_end(page: EventPage) -> str | None:
    return next((str(event.data.get("reason", "")) for event in page.events if event.kind == "closed"), None)
