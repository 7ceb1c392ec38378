"""Waiting for the end of processes that need not be children of the test."""

from __future__ import annotations

import os
import select


class ProcessEnd:
    """The end of a process, watched from here on: another process that gets its id later is not taken for it.

    Parameters
    ----------
    process : int
        Its id. A process that does not exist has ended.
    """

    def __init__(self, process: int) -> None:
        try:
            self._descriptor = os.pidfd_open(process)
        except ProcessLookupError:
            self._descriptor = -1

    def comes_within(self, seconds: float) -> bool:
        """Wait for it, and return whether it came. Once only."""
        if self._descriptor < 0:
            return True
        try:
            return bool(select.select([self._descriptor], [], [], seconds)[0])
        finally:
            os.close(self._descriptor)
