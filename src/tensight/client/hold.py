"""Holds the session of a script: the server closes it when the script has ended, however it ends."""

from __future__ import annotations

import atexit
import os
import threading
from contextlib import suppress
from functools import cache
from queue import SimpleQueue
from typing import TYPE_CHECKING

from tensight.client.connection import part
from tensight.errors import TensightError
from tensight.sessions.errors import NotFoundError, StateError

if TYPE_CHECKING:
    from tensight.client.connection import Connection

_WAIT_S = 30.0
"""Seconds of one request."""

_AGAIN_AFTER_S = 1.0
_JOIN_S = 5.0


_LET_GO: SimpleQueue[Hold] = SimpleQueue()


class Hold:
    """Keeps a request open as long as the script runs, and closes the session at its end.

    Parameters
    ----------
    connection : Connection
    session_id : str
    """

    def __init__(self, connection: Connection, session_id: str) -> None:
        self._connection = connection
        self._path = f"/sessions/{part(session_id)}"
        self._process = os.getpid()
        self._over = threading.Event()
        self._closing = threading.Lock()
        self._thread = threading.Thread(target=self._hold, name="tensight-session", daemon=True)
        self._thread.start()
        _close_what_is_let_go(self._process)
        atexit.register(self.close)

    def let_go(self) -> None:
        """Let another thread close the session; takes no lock, so the garbage collector may call it."""
        _LET_GO.put(self)

    def close(self) -> None:
        """Close the session; idempotent, and does nothing in a forked process."""
        if os.getpid() != self._process:
            return
        self._over.set()
        atexit.unregister(self.close)
        if self._closing.acquire(blocking=False):
            with suppress(TensightError, RuntimeError):
                self._connection.tell("DELETE", self._path)
        self._thread.join(_JOIN_S)

    def _hold(self) -> None:
        while not self._over.is_set():
            try:
                self._connection.answer(f"{self._path}/hold", wait_s=_WAIT_S)
            except (NotFoundError, StateError):  # noqa: PERF203 - it was closed
                return
            except (TensightError, RuntimeError):
                self._over.wait(_AGAIN_AFTER_S)


@cache
def _close_what_is_let_go(_process: int) -> None:
    """Start the thread that closes sessions without references, one per process."""

    def work() -> None:
        while True:
            _LET_GO.get().close()

    threading.Thread(target=work, name="tensight-sessions", daemon=True).start()
