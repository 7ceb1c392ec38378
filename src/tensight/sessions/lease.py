"""The lifetime of a script's session: it stays open while a client holds it, or while requests arrive."""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

GRACE_S = 10.0
"""Seconds that a session stays after its last holder has left: a broken connection may be restored."""

IDLE_S = 600.0
"""Seconds that a session stays after the last request, if no client ever held it."""


class Lease:
    """The holders of a session that closes when its last client leaves.

    Not thread-safe: use it from the event loop's thread only.

    Attributes
    ----------
    ended : asyncio.Event
        Set when the session is closed; holders must then disconnect.
    """

    def __init__(self) -> None:
        self._holders = 0
        self._was_held = False
        self._used = time.monotonic()
        self.ended = asyncio.Event()

    @property
    def is_held(self) -> bool:
        """Whether a client holds the session, or none has held it yet."""
        return self._holders > 0 or not self._was_held

    @property
    def left_s(self) -> float:
        """Seconds until the lease expires if no request arrives; infinite while it is held."""
        if self._holders:
            return math.inf
        return self._used + (GRACE_S if self._was_held else IDLE_S) - time.monotonic()

    def use(self) -> None:
        """Note a request to the session."""
        self._used = time.monotonic()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lease within this context."""
        self._holders += 1
        self._was_held = True
        try:
            yield
        finally:
            self._holders -= 1
            self.use()
