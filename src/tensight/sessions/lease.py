"""How long the session of a script stays: while it is held, or while something is asked of it now and then."""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

GRACE_S = 10.0
"""After whoever held it has left: a connection may break and come again."""

IDLE_S = 600.0
"""After the last request, where nobody ever held it."""


class Lease:
    """Who needs a session that ends with those who need it.

    Only to be used from the event loop's thread.

    Attributes
    ----------
    ended : asyncio.Event
        Set when the session is closed: who holds it is sent away.
    """

    def __init__(self) -> None:
        self._holders = 0
        self._was_held = False
        self._used = time.monotonic()
        self.ended = asyncio.Event()

    @property
    def is_held(self) -> bool:
        """Whether somebody holds it now, or never has and may still come."""
        return self._holders > 0 or not self._was_held

    @property
    def left_s(self) -> float:
        """Seconds until nobody needs it any more, if nothing is asked of it before; infinite while it is held."""
        if self._holders:
            return math.inf
        return self._used + (GRACE_S if self._was_held else IDLE_S) - time.monotonic()

    def use(self) -> None:
        """Note that something is asked of the session."""
        self._used = time.monotonic()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold it as long as the context lasts."""
        self._holders += 1
        self._was_held = True
        try:
            yield
        finally:
            self._holders -= 1
            self.use()
