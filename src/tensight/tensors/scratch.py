"""Reusable memory per thread for the results of kernels: for small tensors allocation would cost more than the scan."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np

from tensight.tensors.layout import CHANGES, COUNTS, MAXIMUM, MINIMUM, REALS

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
        """Reset to the totals of no elements."""
        self.reals[:] = _FIRST_REALS
        self.counts.fill(0)


class _OwnMemory(threading.local):
    """Memory of each thread: totals by the number of ranges, and those of a comparison with their address."""

    def __init__(self) -> None:
        self.totals: dict[int, Totals] = {}
        self.changes = np.zeros(CHANGES)
        self.changes_address: int = self.changes.ctypes.data


_own = _OwnMemory()


def scan_totals(ranges: int) -> Totals:
    """Return this thread's totals for a number of ranges, cleared; the thread's next scan reuses them."""
    totals = _own.totals.get(ranges)
    if totals is None:
        totals = _own.totals[ranges] = Totals(ranges)
    totals.clear()
    return totals


def change_totals() -> tuple[Any, int]:
    """Return this thread's totals of a comparison, float64 (CHANGES,), cleared, and their address."""
    _own.changes.fill(0)
    return _own.changes, _own.changes_address
