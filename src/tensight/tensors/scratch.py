"""The blocks of memory in which kernels widen and sort out elements."""

from __future__ import annotations

import threading

import numpy as np

from tensight.tensors.layout import BLOCK


class _Scratch(threading.local):
    """Two blocks of values for each thread."""

    def __init__(self) -> None:
        self.values = np.empty(2 * BLOCK, np.float64)
        self.address: int = self.values.ctypes.data


_scratch = _Scratch()


def scratch_address() -> int:
    """Return the address of this thread's two blocks."""
    return _scratch.address
