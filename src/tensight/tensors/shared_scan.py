"""The scan of one segment by several threads, and of elements that do not lie one after the other.

The threads are somebody else's: a framework has some that wait for work (`Team`). Results do not depend on how many
there are, nor on who did what.
"""

from __future__ import annotations

import ctypes
import threading
from typing import TYPE_CHECKING

import numpy as np

from tensight.tensors import layout
from tensight.tensors.layout import PART, SEGMENT_ELEMENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tensight.tensors.native import Kernels

    Team = Callable[[int, int], object]
    """Has all threads of a team call the function at an address, with a number, and returns when they have."""

_MOST_PARTS = SEGMENT_ELEMENTS // PART
_NO_AXES = [0] * 2 * layout.MOST_AXES


class _Memory(threading.local):
    """What a scan needs beside its task, kept for each thread that begins one. Only what is written to takes memory."""

    def __init__(self) -> None:
        self.scratch = np.empty(_MOST_PARTS * layout.SHARED_SCRATCH, np.uint8)
        self.rows = np.empty(_MOST_PARTS * layout.ROW_BYTES, np.uint8)
        self.task = bytearray(layout.SHARED_TASK.size)
        self._task = (ctypes.c_char * len(self.task)).from_buffer(self.task)
        self.task_address = ctypes.addressof(self._task)
        self.scratch_address: int = self.scratch.ctypes.data
        self.rows_address: int = self.rows.ctypes.data


_memory = _Memory()


def scan_shared(
    kernels: Kernels,
    team: Team | None,
    elements: tuple[int, int, int, int],
    row: tuple[int, int],
    axes: Sequence[tuple[int, int]] = (),
) -> None:
    """Scan a segment; the totals are those of the scan by one thread.

    Parameters
    ----------
    kernels : Kernels
    team : callable, optional
        Threads that help; None to scan alone.
    elements : (kind, address, number, block)
        Kind as `elements.ElementType.kind`; the block is the place in the tensor of the first one, `layout.NO_HASH` to
        leave out the hash.
    row : (address, address)
        Of the reals and the counts.
    axes : sequence of (length, stride), optional
        From the first axis to the last, strides in elements; at most `layout.MOST_AXES`. By default the elements lie
        one after the other.
    """
    memory = _memory
    flat = [number for axis in axes for number in axis] + _NO_AXES[2 * len(axes) :] if axes else _NO_AXES
    places = memory.scratch_address, memory.rows_address
    layout.SHARED_TASK.pack_into(memory.task, 0, *elements, 0, 0, *places, len(axes), *flat)
    if team is None:
        kernels.scan_shared(memory.task_address)
    else:
        team(kernels.SCAN_SHARED, memory.task_address)
    kernels.put_together(memory.task_address, *row)


def merged_axes(shape: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """Return length and stride of the axes of a tensor, with those put together that go on where another ends."""
    axes: list[tuple[int, int]] = []
    for length, stride in zip(shape, strides, strict=True):
        if length == 1:
            continue
        if axes and axes[-1][1] == length * stride:
            axes[-1] = axes[-1][0] * length, stride
        else:
            axes.append((length, stride))
    return axes
