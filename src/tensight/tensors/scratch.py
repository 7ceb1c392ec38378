"""The memory that kernels work in, kept for each thread: most tensors are small, and making it would take longer."""

from __future__ import annotations

import ctypes
import math
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.tensors.layout import BLOCK, CHANGES, COUNTS, MAXIMUM, MINIMUM, REALS, ROW_BYTES, SCAN_TASK

if TYPE_CHECKING:
    from struct import Struct

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


class Task:
    """The words of one task (`layout`) and their address.

    Parameters
    ----------
    layout : Struct
        How long it is.

    Attributes
    ----------
    words : bytearray
        To be filled with ``pack_into``.
    address : int
    """

    __slots__ = ("_memory", "address", "words")

    def __init__(self, layout: Struct) -> None:
        self.words = bytearray(layout.size)
        self._memory = (ctypes.c_char * len(self.words)).from_buffer(self.words)
        self.address = ctypes.addressof(self._memory)


class OwnMemory(threading.local):
    """What each thread has for itself.

    Attributes
    ----------
    values : ndarray of float64
        Two blocks of values, and the totals of a part.
    address : int
        Of them.
    totals : dict of int to Totals
        By the number of ranges.
    changes : ndarray of float64
        Totals of a comparison.
    changes_address : int
        Of them.
    task : Task
        The thread's next call of a kernel uses it again.
    """

    def __init__(self) -> None:
        self.values = np.empty(2 * BLOCK + ROW_BYTES // 8, np.float64)
        self.address: int = self.values.ctypes.data
        self.totals: dict[int, Totals] = {}
        self.changes = np.zeros(CHANGES)
        self.changes_address: int = self.changes.ctypes.data
        self.task = Task(SCAN_TASK)


own_memory = OwnMemory()


def scan_totals(ranges: int) -> Totals:
    """Return this thread's totals for a number of ranges, cleared; the thread's next scan uses them again."""
    totals = own_memory.totals.get(ranges)
    if totals is None:
        totals = own_memory.totals[ranges] = Totals(ranges)
    totals.clear()
    return totals


def change_totals() -> tuple[Any, int]:
    """Return this thread's totals of a comparison, float64 (CHANGES,), cleared, and their address."""
    own_memory.changes.fill(0)
    return own_memory.changes, own_memory.changes_address
