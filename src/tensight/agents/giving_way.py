"""Threads of ours that give way to those of the training."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress


def give_way(by: int) -> None:
    """Have this thread, and no other, get less of a core that others want, too.

    Parameters
    ----------
    by : int
        1 to 19, as for ``nice``. One that is often asked for, and holds the interpreter lock now and then, must not be
        kept waiting for long: 5 is a third of what others get.
    """
    if sys.platform == "linux":
        # Elsewhere a thread cannot be told from its process.
        with suppress(OSError):
            thread = threading.get_native_id()
            os.setpriority(os.PRIO_PROCESS, thread, min(os.getpriority(os.PRIO_PROCESS, thread) + by, 19))
