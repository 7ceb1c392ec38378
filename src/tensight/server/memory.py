"""Memory settings of the server process, which receives large messages and creates many small records."""

from __future__ import annotations

import ctypes
import gc

KEPT_FREE_BYTES = 32 * 2**20
"""Freed memory that stays with the process; several messages of a tensor are in flight at once."""

_LARGEST_ON_HEAP_BYTES = 32 * 2**20
_GC_THRESHOLDS = (10_000, 20, 1_000)

# Parameters of glibc's mallopt(3).
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3


def prepare_memory() -> None:
    """Configure the process's allocators.

    Each piece of a tensor has 3 MiB. By default glibc returns such memory to the system when it is freed, and requests
    it again page by page for the next piece: a third of the time that a large tensor takes. Python would collect
    cyclic garbage after every 700 new objects, whereas a step may create ten thousand hits; and among all objects after
    some millions, which a large graph has: that stops every thread for more than a second.
    """
    gc.set_threshold(*_GC_THRESHOLDS)
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(_M_MMAP_THRESHOLD, _LARGEST_ON_HEAP_BYTES)
        set_option(_M_TRIM_THRESHOLD, KEPT_FREE_BYTES)
