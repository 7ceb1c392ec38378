"""The watch over a process of this machine, of which the system itself knows whether it is still there.

A process that is killed while it trains says nothing, and no call of it breaks off: missing heartbeats would tell it
only after a minute and a half.
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
"""States of a process of which only its exit code is left."""


class Presence:
    """Asks the system every second for a process that it knew when the process came.

    Parameters
    ----------
    identity : Identity
        One of another machine, or of which nothing is known, is never missed.
    missed : callable
        Called from the event loop for as long as the process is not there.
    """

    def __init__(self, identity: Identity, missed: Callable[[], None]) -> None:
        self._missed = missed
        self._process_id = identity.process_id or 0
        is_here = identity.host.startswith(_HERE) and identity.machine == socket.gethostname()
        self._begun = beginning_of(self._process_id) if is_here else ""
        self._timer: asyncio.TimerHandle | None = None

    def watch(self) -> None:
        """Watch from now on."""
        if self._begun and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_CHECK_EVERY_S, self._check)

    def stop(self) -> None:
        """Watch no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        self._timer = None
        self.watch()
        if beginning_of(self._process_id) != self._begun:
            self._missed()


def beginning_of(process_id: int) -> str:
    """Return when a process began, which tells it from a later one of its number; empty if it does not run."""
    try:
        with open(f"/proc/{process_id}/stat", encoding="ascii", errors="replace") as file:
            # The name of the program, in brackets, may contain anything.
            fields = file.read().rpartition(")")[2].split()
        return "" if fields[0] in _ENDED else fields[19]
    except (OSError, IndexError):
        return ""
