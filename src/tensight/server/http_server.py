"""uvicorn within an event loop and a process that it does not own."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from tensight.server.connections import LONGEST_HEADERS, EventConnection, HttpConnection
from tensight.server.tls import Tls

FINISH_S = 3
"""Seconds for open requests, and calls of training processes, to finish."""
MOST_CONNECTIONS = 2000
LONGEST_FRAME = 64 * 1024
"""Subscribers to events have nothing to send."""


class HttpServer(uvicorn.Server):
    """Serves the HTTP API on a socket.

    Parameters
    ----------
    application : FastAPI
        Created by `create_http_app`.
    tls : Tls, optional

    Attributes
    ----------
    running : asyncio.Task
        Done when the server has ended.
    """

    running: asyncio.Task[None]

    def __init__(self, application: FastAPI, tls: Tls | None) -> None:
        config = uvicorn.Config(
            application,
            http=HttpConnection,
            ws=EventConnection,
            ws_max_size=LONGEST_FRAME,
            # An event would be compressed separately for each of its hundreds of subscribers.
            ws_per_message_deflate=False,
            lifespan="off",
            log_config=None,
            access_log=False,
            # The client address comes from the socket, not from a header.
            proxy_headers=False,
            server_header=False,
            # Ignore environment variables of other programs.
            workers=1,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_graceful_shutdown=FINISH_S,
            h11_max_incomplete_event_size=LONGEST_HEADERS,
            ssl_context_factory=None if tls is None else lambda _config, _default: tls.http,
        )
        super().__init__(config)
        self._application = application
        self._listening = asyncio.Event()

    async def start(self, on: socket.socket) -> None:
        """Start serving, and return when clients can connect."""
        self.running = asyncio.create_task(self.serve([on]))
        listening = asyncio.create_task(self._listening.wait())
        await asyncio.wait({listening, self.running}, return_when=asyncio.FIRST_COMPLETED)
        listening.cancel()

    def stop(self) -> None:
        """Accept no more connections, disconnect subscribers, and let requests finish; await `running` then."""
        self._application.state.context.streams.stop()
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening, and signal it."""
        await super().startup(sockets)
        self._listening.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the process."""
        yield
