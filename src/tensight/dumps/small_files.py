"""Scan many small npy files in one call of the compiled kernels.

For a small tensor, the calls that open, read and scan its file cost more than the scan. The kernels do all of that for
files that need no decision. The others are left to `reading`, so that odd headers are read, and errors are named, in
one place.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tensight.dumps.names import NAMELESS
from tensight.dumps.storage import is_url
from tensight.tensors import layout
from tensight.tensors.elements import ELEMENT_NAMES
from tensight.tensors.native import kernels
from tensight.tensors.rows import ScannedRows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tensight.dumps.tensor_file import TensorFile

SMALL_BYTES = 2**20
"""Maximum size of a file that is scanned together with others."""

_KINDS_OF_NAMELESS = {name: ELEMENT_NAMES.index(kind) for name, kind in NAMELESS.items()}


class ScannedFiles(NamedTuple):
    """The result of `scan_small_files`, for the files that could be scanned.

    Attributes
    ----------
    indices : ndarray of int64, shape (n,)
        Positions of these files in the given sequence.
    rows : ScannedRows
        Their totals.
    shapes : list of tuple of int
    in_ranges : ndarray of int64, shape (n, number of ranges)
        Number of elements in each range.
    """

    indices: NDArray[np.int64]
    rows: ScannedRows
    shapes: list[tuple[int, ...]]
    in_ranges: NDArray[np.int64]


class _Buffer(threading.local):
    """Memory of each thread for a file."""

    def __init__(self) -> None:
        self.bytes = np.empty(SMALL_BYTES, np.uint8)


_buffer = _Buffer()


def is_small_file(tensor: TensorFile) -> bool:
    """Return whether a tensor has a small local npy file of its own, for which `scan_small_files` is worthwhile."""
    # Kernels that were built before they could scan files are still of use for the rest.
    return (
        tensor.size_bytes <= SMALL_BYTES
        and tensor.recorded is None
        and tensor.path.endswith(".npy")
        and not is_url(tensor.path)
        and hasattr(kernels(), "scan_files")
    )


def scan_small_files(tensors: Sequence[TensorFile], ranges: Sequence[tuple[float, float]] = ()) -> ScannedFiles:
    """Scan small files, without holding the GIL.

    Parameters
    ----------
    tensors : sequence of TensorFile
        All with `is_small_file`.
    ranges : sequence of (float, float)
        Count the values from start to end, both inclusive; see `tensors.scan_segment`.

    Returns
    -------
    ScannedFiles
        Files that are missing from it must be read by `reading.open_tensor`.
    """
    compiled = kernels()
    if compiled is None:
        raise RuntimeError("there are no compiled kernels")
    count = len(tensors)
    names = (tensor.declared_dtype.lower() for tensor in tensors)
    nameless = np.fromiter((_KINDS_OF_NAMELESS.get(name, -1) for name in names), np.int64, count)
    files = np.empty((count, 2 + layout.MOST_DIMENSIONS), np.int64)
    reals = np.empty((count, layout.REALS))
    counts = np.empty((count, layout.COUNTS + len(ranges)), np.int64)
    bounds = np.array(ranges, np.float64)
    paths = b"".join(os.fsencode(tensor.path) + b"\0" for tensor in tensors)
    buffer = _buffer.bytes
    compiled.scan_files(
        *(paths, count, nameless.ctypes.data, buffer.ctypes.data, buffer.size, files.ctypes.data),
        *(reals.ctypes.data, counts.ctypes.data, bounds.ctypes.data, len(ranges)),
    )
    indices = np.flatnonzero(files[:, 0] >= 0)
    files, reals, counts = files[indices], reals[indices], counts[indices]
    rows = ScannedRows(files[:, 0], reals, counts[:, : layout.COUNTS], np.zeros(len(indices), np.int64))
    shapes = [tuple(numbers[2 : 2 + numbers[1]]) for numbers in files.tolist()]
    return ScannedFiles(indices, rows, shapes, counts[:, layout.COUNTS :])
