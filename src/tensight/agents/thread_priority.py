"""Lower priority of threads of ours: those of the training come first."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress


def lower_thread_priority(by: int) -> None:
    """Lower the priority of this thread, and of no other.

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
