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
    """Work was interrupted because the session was paused; never leaves a session."""


class AnalysisThread:
    """Runs work on a session's dump in a single thread, one job at a time.

    The statistics table grows while tensors are read, so only a single job may use it at a time. While a step is being
    checked, other jobs wait until it is done.

    Parameters
    ----------
    report : callable
        Called in the event loop with a description of the work, the amount done, and the total.
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
        """Run work in the thread and return its result.

        Parameters
        ----------
        what : str
            Description, for progress reports.
        work : callable
            The work.
        stop : threading.Event, optional
            Setting it stops the work between two tensors.

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
        """Note the progress of the work, and raise if it must stop; called from any thread that does a part of it."""
        self._refuse_if_closed()
        if self._stop is not None and self._stop.is_set():
            raise StoppedError
        now = time.monotonic()
        if now - self._reported >= PROGRESS_EVERY_S:
            self._reported = now
            self.report(self._what, done, total)

    def report(self, what: str, done: int, total: int) -> None:
        """Report progress, and raise if the session was closed; called from the thread."""
        self._refuse_if_closed()
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._report, what, done, total)

    def close(self) -> None:
        """Stop the work at the next tensor, and refuse waiting jobs."""
        self._closed = True
        self._pool.shutdown(wait=False)

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise StateError("the session was closed; open the dump again", code="session-closed")
