"""How the server's process uses memory: it takes in large messages and makes many small records."""

from __future__ import annotations

import ctypes
import gc

KEPT_FREE_BYTES = 32 * 2**20
"""Freed memory that stays with the process; several messages of a tensor are under way at once."""

_LARGEST_ON_HEAP_BYTES = 32 * 2**20
_GC_THRESHOLDS = (10_000, 20, 1_000)

# Numbers of glibc's mallopt(3).
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3


def prepare_memory() -> None:
    """Set up the process's allocators.

    Each piece of a tensor has 3 MiB. By itself glibc gives such memory back to the system when it is free, to ask for
    it again with the next piece, page by page: a third of the time that a large tensor takes. And Python would look
    for cyclic garbage after every 700 new objects, where a step may bring ten thousand hits; and among all objects
    after some millions, which a large graph has: that stops every thread for more than a second.
    """
    gc.set_threshold(*_GC_THRESHOLDS)
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(_M_MMAP_THRESHOLD, _LARGEST_ON_HEAP_BYTES)
        set_option(_M_TRIM_THRESHOLD, KEPT_FREE_BYTES)
