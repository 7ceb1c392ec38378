"""All sessions of a server: those of training processes, and the dumps that people have opened."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from tensight.sessions.errors import LimitError, NotFoundError
from tensight.sessions.events import EventLog

if TYPE_CHECKING:
    from pathlib import Path

    from tensight.sessions.records import DumpRecord
    from tensight.sessions.session import Session
    from tensight.sessions.workspace import Workspace


class SessionTable(Protocol):
    """What bringers of sessions need to know about the server's sessions."""

    def add(self, session: Session) -> None:
        """List a session; LimitError if there are too many."""

    def remove(self, session_id: str) -> None:
        """No longer list a session, which its owner has closed."""

    def all(self) -> list[Session]:
        """Return the sessions, oldest first."""


class Sessions:
    """All sessions of a server.

    Only to be used from the event loop's thread.

    Parameters
    ----------
    workspace : Workspace
        Where runs and watchpoints are kept.
    base_dir : Path, optional
        Dumps are looked for below this folder; None if only recorded runs can be opened.
    mem_limit_mb : int
        Megabytes for the values that offline sessions hold in memory, all together; each gets an equal share.
    max_offline : int
        How many dumps may be open at once.
    max_sessions : int
        How many sessions there may be in all.
    most_drawn_nodes : int
        Graphs with more nodes are not drawn.
    reload_interval_s : float
        The list of dumps is at most so old.

    Attributes
    ----------
    events : EventLog
        For the whole server: a ``state`` event whenever a session appears or changes, ``closed`` (with the session's
        id under ``session``) when it is gone.
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
        self._sessions: dict[str, Session] = {}

    def all(self) -> list[Session]:
        """Return the sessions, oldest first."""
        return list(self._sessions.values())

    def get(self, session_id: str) -> Session:
        """Return a session. NotFoundError if there is none with this id."""
        session = self._sessions.get(session_id)
        if session is None:
            raise NotFoundError(f"there is no session {session_id[:80]!r}; list the sessions to see which there are")
        return session

    def add(self, session: Session) -> None:
        """List a session; LimitError if there are too many."""
        if len(self._sessions) >= self._max_sessions:
            raise LimitError(f"there are {len(self._sessions)} sessions already; close one first")
        self._sessions[session.id] = session

    def remove(self, session_id: str) -> None:
        """No longer list a session, which its owner has closed; unknown ids are ignored."""
        self._sessions.pop(session_id, None)

    async def dumps(self, refresh: bool = False) -> list[DumpRecord]:
        """Return the dumps that can be opened, by name; `refresh` looks at the disk even if that was done just now."""
        raise NotImplementedError

    async def open_dump(self, name: str) -> Session:
        """Open a dump, or return the session that has it open.

        Raises
        ------
        NotFoundError
            `dumps` lists no such name.
        LimitError
            As many dumps as allowed are open already; the message names them.
        DumpError
            It cannot be read.
        """
        raise NotImplementedError

    async def close(self, session_id: str, reason: str = "closed by a person") -> None:
        """Close a session and forget it. NotFoundError if there is none with this id."""
        session = self.get(session_id)
        await session.close(reason)
        self.remove(session_id)

    async def close_all(self, reason: str) -> None:
        """Close every session: the server shuts down."""
        await asyncio.gather(*(self.close(session.id, reason) for session in self.all()))
