"""Events of a session or the server for subscribers: pushed over a WebSocket, or polled.

A subscriber has no queue. The stream remembers the number of the last event sent and reads on in the log, so a hundred
subscribers cost a hundred numbers, and each event is encoded as JSON once. A subscriber that accepts nothing for a
while is dropped and can reconnect: the log still has the missed events, or reports that it has not.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from starlette.requests import HTTPConnection, Request
from starlette.websockets import WebSocket, WebSocketDisconnect

from tensight.server.access import SUBPROTOCOL
from tensight.server.json_bodies import json_bytes
from tensight.sessions.errors import LimitError
from tensight.sessions.events import EventLog
from tensight.sessions.records import Event, EventPage

Result = TypeVar("Result")

logger = logging.getLogger(__name__)

SLOW_CODE = 1013
"""Close code for a dropped subscriber: try again later."""

LONGEST_WAIT_S = 30.0
"""Seconds of one poll; proxies abort longer requests."""

_TEXTS_KEPT = 64
"""Number of events of a log whose JSON is cached; subscribers are nearly always at the newest events."""

_PAGE = 100
_QUIET_S = 3600.0
_FAREWELL_S = 60.0
"""Seconds for a dropped subscriber to accept what was sent before, and the close code after it."""


class _Close(NamedTuple):
    code: int
    reason: str


class EventStreams:
    """The subscribers of all logs.

    Parameters
    ----------
    max_subscribers : int
        Maximum number of subscribers, by WebSocket or waiting poll.
    slow_after_s : float
        Seconds after which a subscriber that accepts nothing is dropped.

    Attributes
    ----------
    subscribers : int
        Current number of subscribers.
    dropped : int
        Number of subscribers dropped so far for being too slow.
    """

    def __init__(self, max_subscribers: int, slow_after_s: float) -> None:
        self._most = max_subscribers
        self._slow_after_s = slow_after_s
        self._texts: WeakKeyDictionary[EventLog, OrderedDict[int, str]] = WeakKeyDictionary()
        self._stopping: asyncio.Future[None] | None = None
        self._stopped = False
        self.subscribers = 0
        self.dropped = 0

    def stop(self) -> None:
        """Disconnect all subscribers and refuse new ones, at shutdown. Call it from the event loop's thread."""
        self._stopped = True
        if self._stopping is not None and not self._stopping.done():
            self._stopping.set_result(None)

    async def poll(self, request: Request, log: EventLog, after: int, wait_s: float, limit: int) -> EventPage:
        """Return the events after a number; if there are none yet, wait for one.

        Raises
        ------
        LimitError
            The maximum number of subscribers is reached.
        """
        page = log.after(after, limit)
        if page.events or wait_s == 0 or self._stopped:
            return page
        with self._subscription():
            return await self._unless_gone(log.wait_after(after, wait_s, limit), request) or log.after(after, limit)

    async def wait(self, request: Request, happened: asyncio.Event, wait_s: float) -> None:
        """Wait until the event is set, the client disconnects, or the time is over.

        Raises
        ------
        LimitError
            The maximum number of subscribers is reached.
        """
        with self._subscription():
            await self._unless_gone(_within(happened, wait_s), request)

    async def follow(self, websocket: WebSocket, log: EventLog, after: int, *, until_closed: bool) -> None:
        """Send the events after a number to a WebSocket, each as one JSON text, until it disconnects.

        Parameters
        ----------
        websocket : WebSocket
            Not accepted yet.
        log : EventLog
        after : int
            Number of the last event that the client has; 0 for none.
        until_closed : bool
            Whether to end after a ``closed`` event.

        Raises
        ------
        LimitError
            The maximum number of subscribers is reached.
        """
        with self._subscription():
            await websocket.accept(_subprotocol(websocket))
            close = await self._unless_gone(self._send_events(websocket, log, after, until_closed), websocket)
            if close is None and self._stopped:
                close = _Close(1001, "the server shuts down")
            if close is not None:
                await _close(websocket, close)

    @contextmanager
    def _subscription(self) -> Iterator[None]:
        """Count as a subscriber within the context. LimitError if the maximum is reached."""
        if self.subscribers >= self._most:
            raise LimitError(f"{self.subscribers} subscribers follow events already; ask again later")
        self.subscribers += 1
        try:
            yield
        finally:
            self.subscribers -= 1

    async def _unless_gone(self, doing: Coroutine[Any, Any, Result], connection: HTTPConnection) -> Result | None:
        """Return the result of `doing`, or None if the client disconnects, or the server stops, first."""
        work = asyncio.ensure_future(doing)
        gone = asyncio.ensure_future(_gone(connection))
        try:
            signals: list[asyncio.Future[Any]] = [work, gone, self._stop_signal()]
            await asyncio.wait(signals, return_when=asyncio.FIRST_COMPLETED)
            return work.result() if work.done() else None
        finally:
            work.cancel()
            gone.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)

    def _stop_signal(self) -> asyncio.Future[None]:
        if self._stopping is None:
            self._stopping = asyncio.get_running_loop().create_future()
            if self._stopped:
                self._stopping.set_result(None)
        return self._stopping

    async def _send_events(self, websocket: WebSocket, log: EventLog, after: int, until_closed: bool) -> _Close:
        while True:
            page = await log.wait_after(after, _QUIET_S, _PAGE)
            for event in page.events:
                try:
                    await asyncio.wait_for(websocket.send_text(self._text(log, event)), self._slow_after_s)
                except asyncio.TimeoutError:
                    self.dropped += 1
                    logger.info("subscriber dropped", extra={"peer": websocket.client, "after": after})
                    return _Close(SLOW_CODE, f"accepted no event for {self._slow_after_s:g} s; continue after {after}")
                after = event.number
                if until_closed and event.kind == "closed":
                    return _Close(1000, "the session was closed")
            await asyncio.sleep(0)  # catching up over many events must not block others

    def _text(self, log: EventLog, event: Event) -> str:
        """Return an event as JSON; subscribers request the same few events at nearly the same time."""
        texts = self._texts.setdefault(log, OrderedDict())
        text = texts.get(event.number)
        if text is None:
            text = texts[event.number] = json_bytes(event).decode()
            if len(texts) > _TEXTS_KEPT:
                texts.popitem(last=False)
        return text


async def _within(happened: asyncio.Event, wait_s: float) -> None:
    with suppress(asyncio.TimeoutError):
        await asyncio.wait_for(happened.wait(), wait_s)


async def _gone(connection: HTTPConnection) -> None:
    """Return when the client has disconnected; its messages until then are ignored."""
    assert isinstance(connection, Request | WebSocket)  # noqa: S101 - there is nothing else
    while (await connection.receive())["type"] not in ("http.disconnect", "websocket.disconnect"):
        pass


async def _close(websocket: WebSocket, close: _Close) -> None:
    # A client that has left, or never reads again, misses nothing.
    with suppress(asyncio.TimeoutError, WebSocketDisconnect, RuntimeError):
        await asyncio.wait_for(websocket.close(close.code, close.reason), _FAREWELL_S)


def _subprotocol(websocket: WebSocket) -> str | None:
    """Return the accepted subprotocol; browsers require one of those that they offered."""
    offered: list[str] = websocket.scope.get("subprotocols", [])
    return next((name for name in offered if not name.startswith(SUBPROTOCOL)), offered[0] if offered else None)
