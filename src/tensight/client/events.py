"""The events of a session or of the server, as they happen."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from tensight.client.errors import ServerError
from tensight.sessions.records import Event

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensight.client.connection import Connection

POLL_S = 25.0
"""How long the server is asked to wait for an event."""


class Events:
    """Events after a number, the oldest first; none is left out while the server remembers it.

    Parameters
    ----------
    connection : Connection
        The way to the server.
    path : str
        Where the server gives them.
    after : int
        The number of the last event that is known; 0 for all that the server remembers.
    timeout_s : float, optional
        Iterating ends when nothing has happened for so long; by default only when the session is closed.
    ends : bool
        Whether a ``closed`` event is the last one.

    Attributes
    ----------
    last : int
        Number of the last event.
    missed : bool
        Whether events were dropped before the last one: read the session anew.

    Examples
    --------
    >>> _ = session.watch("tensor_overflow")
    >>> for event in session.events(timeout_s=0):
    ...     if event.kind == "watchpoints":
    ...         print("somebody changed a watchpoint")
    ...         break
    somebody changed a watchpoint
    """

    def __init__(
        self, connection: Connection, path: str, after: int = 0, timeout_s: float | None = None, *, ends: bool = True
    ) -> None:
        self._connection = connection
        self._path = path
        self._timeout_s = timeout_s
        self._ends = ends
        self._ready: deque[Event] = deque()
        self._requested = after
        self.last = after
        self.missed = False

    def next(self, timeout_s: float | None = None) -> Event | None:
        """Return the next event, or None if there is none for so long (by default, wait for ever).

        Parameters
        ----------
        timeout_s : float, optional
            Seconds to wait; by default for ever.

        Examples
        --------
        >>> events = session.events(after=session.summary.last_event)
        >>> events.next(timeout_s=0.1) is None
        True
        """
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._ready:
            left = POLL_S if end is None else min(POLL_S, max(end - time.monotonic(), 0.0))
            page = self._connection.get(dict[str, Any], self._path, after=self._requested, wait_s=left)
            self._read(page)
            if end is not None and not self._ready and time.monotonic() >= end:
                return None
        event = self._ready.popleft()
        self.last = event.number
        return event

    def skip(self) -> None:
        """Leave out what has happened so far.

        Examples
        --------
        >>> events = session.events()
        >>> events.skip()
        >>> _ = session.watch("tensor_overflow")
        >>> events.next(timeout_s=60).kind
        'watchpoints'
        """
        while self.next(0) is not None:
            pass

    def __iter__(self) -> Iterator[Event]:
        while (event := self.next(self._timeout_s)) is not None:
            yield event
            if self._ends and event.kind == "closed":
                return

    def _read(self, page: dict[str, Any]) -> None:
        try:
            self._requested, self.missed, events = int(page["last"]), bool(page.get("missed")), list(page["events"])
        except (KeyError, TypeError, ValueError) as error:
            raise ServerError(
                f"{self._path} of the server is no page of events: {error!r}", code="answer-unreadable"
            ) from error
        self._ready.extend(event for event in map(_known, events) if event is not None)


def _known(data: Any) -> Event | None:
    """Return an event; None for a kind that only a newer server has, and about which nothing can be done here."""
    try:
        return Event.model_validate(data)
    except ValidationError:
        return None
