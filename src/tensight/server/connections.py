"""Connections of clients: uvicorn's, with bounds for those that send nothing, too much, or no HTTP."""

from __future__ import annotations

import asyncio
import weakref
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

LONGEST_HEADERS = 64 * 1024
"""Bytes of the request line and the headers of a request together."""

REQUEST_WITHIN_S = 20
"""Seconds for a request to arrive completely, from the connection or its first byte on."""

MOST_IDLE = 1000
"""Connections without a complete request, of all clients together; far fewer than are served."""

MOST_IDLE_OF_A_HOST = 500


class IdleConnections:
    """The connections without a complete request, the oldest first.

    If there are too many, the oldest is closed, so that new connections are answered whatever the silent ones do.
    """

    def __init__(self) -> None:
        self._by_host: dict[str, dict[HttpConnection, None]] = {}

    def add(self, connection: HttpConnection) -> None:
        """Note that a connection has no request; close the oldest of its host, or of the busiest, if there are many."""
        connections = self._by_host.setdefault(connection.host, {})
        connections[connection] = None
        if len(connections) > MOST_IDLE_OF_A_HOST:
            next(iter(connections)).drop()
        elif sum(map(len, self._by_host.values())) > MOST_IDLE:
            busiest = max(self._by_host, key=lambda host: len(self._by_host[host]))
            next(iter(self._by_host[busiest])).drop()

    def remove(self, connection: HttpConnection) -> None:
        """Note that a connection has a request, or is gone."""
        connections = self._by_host.get(connection.host, {})
        connections.pop(connection, None)
        if not connections:
            self._by_host.pop(connection.host, None)


_idle: weakref.WeakKeyDictionary[Any, IdleConnections] = weakref.WeakKeyDictionary()
"""The idle connections of each server, by the state that its connections share."""


class HttpConnection(H11Protocol):
    """A connection for HTTP.

    It is closed when its request does not arrive in time. Malformed requests, and those with too long headers, are
    answered with status 400.
    """

    def __init__(self, config: Any, server_state: Any, app_state: dict[str, Any], _loop: Any = None) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.conn = _Parser(h11.SERVER, LONGEST_HEADERS)
        self._idle = _idle.setdefault(server_state, IdleConnections())
        self._deadline: asyncio.TimerHandle | None = None
        self._has_begun = False

    @property
    def host(self) -> str:
        """Address of the client, without its port."""
        return self.client[0] if self.client else ""

    def drop(self) -> None:
        """Close the connection, which has no complete request."""
        self._leave()
        self.transport.close()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self._deadline = self.loop.call_later(REQUEST_WITHIN_S, self.drop)
        self._idle.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._leave()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take a part of a request."""
        if not self._has_begun:
            self._has_begun = True
            self._end_deadline()
            self._deadline = self.loop.call_later(REQUEST_WITHIN_S, self.drop)
        super().data_received(data)
        if self.cycle is not None and not self.cycle.more_body:
            self._leave()

    def on_response_complete(self) -> None:
        """Wait for the next request, for which uvicorn has a timeout until it begins."""
        self._has_begun = False
        self._idle.add(self)
        super().on_response_complete()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Hand the connection over."""
        self._leave()
        super().handle_websocket_upgrade(event)

    def send_400_response(self, msg: str) -> None:
        """Answer a malformed request, unless its answer has begun."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()
        if self.cycle is not None:
            # The application may be about to answer the valid beginning of the request.
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def _leave(self) -> None:
        self._idle.remove(self)
        self._end_deadline()

    def _end_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class _Parser(h11.Connection):
    """Limits headers however they arrive; h11 does so only for those that arrive in parts."""

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            size_bytes = len(event.target) + sum(len(name) + len(value) + 4 for name, value in event.headers)
            if size_bytes > LONGEST_HEADERS:
                raise h11.RemoteProtocolError(f"the headers have {size_bytes:,} bytes", error_status_hint=431)
        return event


class EventConnection(WebSocketsSansIOProtocol):
    """A WebSocket, whose client only listens.

    A handshake that the library cannot read would leave the connection open without an answer.
    """

    def data_received(self, data: bytes) -> None:
        """Take the handshake, which is complete, and later control frames."""
        super().data_received(data)
        if not self.handshake_initiated:
            self.handshake_complete = self.close_sent = True
            self.transport.write(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
            self.transport.close()

    def handle_parser_exception(self) -> None:
        """Close after invalid frames; an event that is about to be sent finds the client gone."""
        super().handle_parser_exception()
        self.disconnected = True

    def send_receive_event_to_app(self) -> None:
        """Ignore a message: the client has nothing to say, not even invalid text, which would be logged."""
        self.frames = []
