"""Detection of killed processes on this machine, by asking the operating system.

A process that is killed between calls breaks no connection, and missing heartbeats reveal it only after a minute and a
half.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensight.sessions.live.identity import Identity

_CHECK_EVERY_S = 1.0
_HERE = ("ipv4:127.", "ipv6:[::1]", "unix:")
_ENDED = ("Z", "X")
"""States of an ended process (zombie, dead)."""


class Presence:
    """Checks every second whether a process still runs.

    Parameters
    ----------
    identity : Identity
        A process on another machine, or without a known process id, is never missed.
    missed : callable
        Called from the event loop every second while the process is missing.
    """

    def __init__(self, identity: Identity, missed: Callable[[], None]) -> None:
        self._missed = missed
        self._process_id = identity.process_id or 0
        is_here = identity.host.startswith(_HERE) and identity.machine == socket.gethostname()
        self._begun = beginning_of(self._process_id) if is_here else ""
        self._timer: asyncio.TimerHandle | None = None

    def watch(self) -> None:
        """Start watching."""
        if self._begun and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_CHECK_EVERY_S, self._check)

    def stop(self) -> None:
        """Stop watching."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        self._timer = None
        self.watch()
        if beginning_of(self._process_id) != self._begun:
            self._missed()


def beginning_of(process_id: int) -> str:
    """Return the start time of a process, which distinguishes reused ids; empty if it does not run."""
    try:
        with open(f"/proc/{process_id}/stat", encoding="ascii", errors="replace") as file:
            # The name of the program, in parentheses, may contain any character.
            fields = file.read().rpartition(")")[2].split()
        return "" if fields[0] in _ENDED else fields[19]
    except (OSError, IndexError):
        return ""
