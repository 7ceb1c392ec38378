"""The end of a server: orderly after a signal, immediate after a second one."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import NoReturn

DEADLINE_S = 10
"""Seconds for an orderly shutdown."""
LAST_RESORT_S = 5
"""Seconds after the deadline until the system ends a process that cannot end itself."""

THREADS_END_WITHIN_S = 1.0
"""Seconds to wait for the threads of a server whose sessions are closed."""
MOST_THREADS = 32
"""Maximum number of worker threads; most of them wait, for a disk or for the interpreter."""

logger = logging.getLogger(__name__)


def allow_threads() -> None:
    """Allow more threads than the system has processors, so that a long computation does not delay other sessions."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(MOST_THREADS, "tensight"))


async def end_threads() -> None:
    """End the threads of a server that has closed everything; end the process if one still computes."""
    ending = asyncio.ensure_future(asyncio.get_running_loop().shutdown_default_executor())
    await asyncio.wait({ending}, timeout=THREADS_END_WITHIN_S)
    if not ending.done():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


class Lifetime:
    """The lifetime of a server.

    Parameters
    ----------
    at_once : callable
        Called before the process ends without an orderly shutdown.

    Attributes
    ----------
    over : asyncio.Future
        Done when the server should end.
    """

    def __init__(self, at_once: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self.over: asyncio.Future[None] = self._loop.create_future()
        self._at_once = at_once
        self._signal = 0

    def obey_signals(self) -> None:
        """End at SIGTERM, SIGINT and SIGHUP, until the process is gone: it may hang after the server's shutdown."""
        # Not the event loop's handlers: they would wait for a loop that hangs.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            # Under nohup the server survives its terminal.
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._signal:
            self._end_at_once(number, "a second signal")
        self._signal = number
        # The system ends a process that does not handle this signal, even one that hangs outside Python.
        signal.alarm(DEADLINE_S + LAST_RESORT_S)
        self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        logger.info("the server ends", extra={"signal": signal.Signals(self._signal).name})
        self._loop.call_later(DEADLINE_S, self._give_up)
        self.over.set_result(None)

    def _give_up(self) -> None:
        self._end_at_once(self._signal, f"it did not end within {DEADLINE_S} s")

    def _end_at_once(self, number: int, why: str) -> NoReturn:
        # Not through the log, whose thread may hang.
        os.write(sys.stderr.fileno(), f"tensight: the server was ended at once: {why}\n".encode())
        self._at_once()
        os._exit(128 + number)
