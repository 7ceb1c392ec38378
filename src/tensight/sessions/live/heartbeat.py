"""Watchdog for processes that send heartbeats."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

SHORTEST_PERIOD_S, LONGEST_PERIOD_S = 5, 3600
"""Range of accepted heartbeat periods."""

_MOST_MISSED = 3
_GRACE_S = 0.5


class Watchdog:
    """Times out when three heartbeats in a row are missing. A process that never sent one is not watched.

    Parameters
    ----------
    on_timeout : callable
        Called once, from the event loop; the watchdog is then inactive until the next heartbeat.
    second_s : float
        Duration of a second of the period.
    """

    def __init__(self, on_timeout: Callable[[], None], second_s: float = 1.0) -> None:
        self._on_timeout = on_timeout
        self._second_s = second_s
        self._timer: asyncio.TimerHandle | None = None

    def heartbeat(self, period_s: int) -> None:
        """Restart the timer at a heartbeat; the next is due after a period."""
        self.stop()
        wait_s = _MOST_MISSED * (period_s + _GRACE_S) * self._second_s
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._on_timeout)

    def stop(self) -> None:
        """Stop watching until the next heartbeat."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
