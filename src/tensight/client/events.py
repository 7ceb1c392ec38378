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
"""Seconds that the server waits for an event."""


class Events:
    """Events after a number, oldest first, without gaps as long as the server has them.

    Parameters
    ----------
    connection : Connection
        Connection to the server.
    path : str
        Path of the events on the server.
    after : int
        Number of the last known event; 0 for all that the server has.
    timeout_s : float, optional
        Stop iterating after this time without an event; by default only when the session is closed.
    ends : bool
        Whether a ``closed`` event is the last one.

    Attributes
    ----------
    last : int
        Number of the last event.
    missed : bool
        Whether earlier events were dropped: read the session again.

    Examples
    --------
    >>> _ = session.watch("tensor_overflow")
    >>> for event in session.events(timeout_s=0):
    ...     if event.kind == "watchpoints":
    ...         print("the watchpoints have changed")
    ...         break
    the watchpoints have changed
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
        """Return the next event, or None if there is none within a time.

        Parameters
        ----------
        timeout_s : float, optional
            Seconds to wait; by default no limit.

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
        """Skip the events so far.

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
                f"{self._path} of the server is not a page of events: {error!r}", code="answer-unreadable"
            ) from error
        self._ready.extend(event for event in map(_known, events) if event is not None)


def _known(data: Any) -> Event | None:
    """Return an event; None for a kind that only newer servers have."""
    try:
        return Event.model_validate(data)
    except ValidationError:
        return None
