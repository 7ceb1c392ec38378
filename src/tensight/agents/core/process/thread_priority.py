"""Lowers the priority of our threads, so that the training's threads come first."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress


def lower_thread_priority(by: int) -> None:
    """Lower the priority of this thread only.

    Parameters
    ----------
    by : int
        1 to 19, as for ``nice``. A thread with frequent tasks that sometimes holds the interpreter lock must not be
        kept waiting for long: with 5 it gets a third of what others get.
    """
    if sys.platform == "linux":
        # Other systems do not distinguish a thread from its process.
        with suppress(OSError):
            thread = threading.get_native_id()
            os.setpriority(os.PRIO_PROCESS, thread, min(os.getpriority(os.PRIO_PROCESS, thread) + by, 19))
