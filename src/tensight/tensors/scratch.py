"""The memory that kernels work in, kept for each thread: most tensors are small, and making it would take longer."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np

from tensight.tensors.layout import BLOCK, CHANGES, COUNTS, MAXIMUM, MINIMUM, REALS

_FIRST_REALS = np.zeros(REALS)
_FIRST_REALS[[MINIMUM, MAXIMUM]] = math.inf, -math.inf


class Totals:
    """The totals of a scan (`layout`) and their addresses.

    Parameters
    ----------
    ranges : int
        Number of ranges that are counted.
    """

    __slots__ = ("counts", "counts_address", "reals", "reals_address")

    def __init__(self, ranges: int) -> None:
        self.reals = np.zeros(REALS)
        self.counts = np.zeros(COUNTS + ranges, np.int64)
        self.reals_address: int = self.reals.ctypes.data
        self.counts_address: int = self.counts.ctypes.data

    def clear(self) -> None:
        """Make these the totals of nothing."""
        self.reals[:] = _FIRST_REALS
        self.counts.fill(0)


class _Scratch(threading.local):
    """What each thread has for itself."""

    def __init__(self) -> None:
        self.values = np.empty(2 * BLOCK, np.float64)
        self.address: int = self.values.ctypes.data
        self.totals: dict[int, Totals] = {}
        self.changes = np.zeros(CHANGES)
        self.changes_address: int = self.changes.ctypes.data


_scratch = _Scratch()


def scratch_address() -> int:
    """Return the address of this thread's two blocks of values."""
    return _scratch.address


def scan_totals(ranges: int) -> Totals:
    """Return this thread's totals for a number of ranges, cleared; the thread's next scan uses them again."""
    totals = _scratch.totals.get(ranges)
    if totals is None:
        totals = _scratch.totals[ranges] = Totals(ranges)
    totals.clear()
    return totals


def change_totals() -> tuple[Any, int]:
    """Return this thread's totals of a comparison, float64 (CHANGES,), cleared, and their address."""
    scratch = _scratch
    scratch.changes.fill(0)
    return scratch.changes, scratch.changes_address
