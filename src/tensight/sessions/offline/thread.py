"""The thread in which an offline session reads its dump."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from tensight.sessions.errors import StateError

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

Result = TypeVar("Result")

PROGRESS_EVERY_S = 0.2
"""Seconds between two reports of progress; work that is done sooner reports nothing."""


class StoppedError(Exception):
    """Work was stopped half-way, because a person paused; never leaves a session."""


class AnalysisThread:
    """Does one piece of work on a session's dump after the other, each off the event loop.

    What the statistics table knows grows while tensors are read, so only one piece of work may use it at a time. While
    a step is being checked, other work waits for the end of that step.

    Parameters
    ----------
    report : callable
        Called in the event loop with what is being done, how much of it is done, and how much there is in all.
    """

    def __init__(self, report: Callable[[str, int, int], None]) -> None:
        self._report = report
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="tensight-offline")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._what = ""
        self._stop: threading.Event | None = None
        self._reported = 0.0
        self._closed = False

    async def run(self, what: str, work: Callable[[], Result], stop: threading.Event | None = None) -> Result:
        """Do a piece of work and return its result.

        Parameters
        ----------
        what : str
            For reports of progress.
        work : callable
            Runs in the thread.
        stop : threading.Event, optional
            Set it to have the work stop between two tensors.

        Raises
        ------
        StoppedError
            `stop` was set.
        StateError
            The session was closed.
        """
        self._refuse_if_closed()
        self._loop = asyncio.get_running_loop()

        def job() -> Result:
            self._refuse_if_closed()
            self._what, self._stop, self._reported = what, stop, time.monotonic()
            return work()

        return await self._loop.run_in_executor(self._pool, job)

    def progress(self, done: int, total: int) -> None:
        """Note how far the work is, and raise if it is to stop; called from any thread that does a part of it."""
        self._refuse_if_closed()
        if self._stop is not None and self._stop.is_set():
            raise StoppedError
        now = time.monotonic()
        if now - self._reported >= PROGRESS_EVERY_S:
            self._reported = now
            self.report(self._what, done, total)

    def report(self, what: str, done: int, total: int) -> None:
        """Say what is being done, and raise if it is to stop; called from the thread."""
        self._refuse_if_closed()
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._report, what, done, total)

    def close(self) -> None:
        """Stop the work at the next tensor, and refuse what waits."""
        self._closed = True
        self._pool.shutdown(wait=False)

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise StateError("the session was closed; open the dump again", code="session-closed")
