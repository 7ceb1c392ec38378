"""The event log of a session: numbered events for clients, so that a client can catch up after a disconnection."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from tensight.sessions.records import Event, EventPage

if TYPE_CHECKING:
    from tensight.sessions.records import SessionRecord

MOST_KEPT = 2_000
"""Events that a log keeps, of some kilobytes each; a client that missed more must read the session again."""


class EventLog:
    """Numbered events, kept up to a bound; clients wait for the next event without queues of their own.

    A slow client costs nothing: no events are stored for it, and if it misses events the page says so.

    Parameters
    ----------
    keep : int
        Maximum number of events to keep.
    """

    def __init__(self, keep: int = MOST_KEPT) -> None:
        self._events: deque[Event] = deque(maxlen=keep)
        self._waiting: set[asyncio.Future[None]] = set()
        self.last = 0

    def append(self, kind: str, **data: Any) -> Event:
        """Append an event and wake waiting clients. Call it from the event loop's thread only."""
        self.last += 1
        event = Event.model_construct(number=self.last, time=time.time(), kind=kind, data=data)
        self._events.append(event)
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)
        self._waiting.clear()
        return event

    def append_state(self, session: SessionRecord) -> Event:
        """Append a ``state`` event with the summary of the session, in which this event is the last."""
        return self.append("state", **session.model_copy(update={"last_event": self.last + 1}).model_dump(mode="json"))

    def after(self, number: int, limit: int = 1000) -> EventPage:
        """Return the events after a number, the oldest first.

        Parameters
        ----------
        number : int
            The last event that the client has; 0 for none. A number that this log never issued counts as 0.
        limit : int
            Maximum number of events.
        """
        if not 0 <= number <= self.last:
            number = 0
        first = self.last - len(self._events) + 1
        missed = number + 1 < first
        start = max(number + 1 - first, 0)
        chosen = tuple(self._events[index] for index in range(start, min(start + limit, len(self._events))))
        return EventPage(events=chosen, last=chosen[-1].number if chosen else self.last, missed=missed)

    async def wait_after(self, number: int, timeout_s: float, limit: int = 1000) -> EventPage:
        """Return the events after a number as soon as there are any, or an empty page after the timeout."""
        page = self.after(number, limit)
        if page.events:
            return page
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.add(waiter)
        try:
            await asyncio.wait_for(waiter, timeout_s)
        except asyncio.TimeoutError:
            pass
        finally:
            self._waiting.discard(waiter)
        return self.after(number, limit)
