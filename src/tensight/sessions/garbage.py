"""Garbage collection in a server: sessions hold graphs and lists of millions of objects that live long."""

from __future__ import annotations

import asyncio
import gc
from contextlib import suppress

DELAY_S = 5.0
"""From the first call of `CycleCollector.collect_soon` to the collection."""


class CycleCollector:
    """Frees the reference cycles of closed sessions, and keeps the collector away from what open ones hold."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._due_s = 0.0

    def exempt(self) -> None:
        """Exclude all objects that exist now from later collections, which would block the server."""
        gc.freeze()

    def collect_soon(self) -> None:
        """Free objects in reference cycles after `DELAY_S`. Must be called in an event loop.

        A collection passes over all objects of the process, so one serves all sessions that are closed in that time.
        """
        loop = asyncio.get_running_loop()
        if self._loop is not loop or self._due_s < loop.time():
            self._loop, self._due_s = loop, loop.time() + DELAY_S
            loop.call_at(self._due_s, self._start, loop)

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        with suppress(RuntimeError):  # the server ends: its executor accepts nothing more
            loop.run_in_executor(None, self._collect)

    def _collect(self) -> None:
        gc.unfreeze()
        gc.collect()
        gc.freeze()


cycle_collector = CycleCollector()
"""The one of the process."""
