"""A map of many slices of a tensor that shows in which slices elements are not finite or large."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tensight.tensors.blocks import blocks_of, comparable
from tensight.tensors.heat_maps import edges

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tensight.tensors.blocks import Reader

MOST_CELLS = 1024
"""Maximum number of rows or columns of a map of slices."""

EXTREME, NON_FINITE, NUMBER = range(3)
"""The planes of a map: the most extreme element, the number of non-finite ones, the first slice with that element."""


def slice_map(
    read: Reader, leading: Sequence[int], part: Sequence[int], rows: int, columns: int
) -> NDArray[np.float64]:
    """Return the most extreme element and the number of non-finite ones for each slice of the leading dimensions.

    The last leading dimension is horizontal, those before it are vertical. A cell can cover several slices.

    Parameters
    ----------
    read : callable
        Returns the block of an index into the dimensions of `leading`, then `part`.
    leading, part : sequence of int
        Lengths of the dimensions that select a slice, and of those of a slice.
    rows, columns : int
        Maximum number of cells, 1 to 1024.

    Returns
    -------
    float64 (3, at most `rows`, at most `columns`)
        For each cell, the most extreme element (NaN before infinities before the largest magnitude, with its sign; for
        a complex number the magnitude; 0 without elements); the number of NaN and infinities; and the number, in C
        order, of the first slice that contains the element.
    """
    across = leading[-1] if leading else 1
    down = math.prod(leading[:-1])
    row_edges, column_edges = edges(down, rows), edges(across, columns)
    height, width = len(row_edges) - 1, len(column_edges) - 1
    cells = _Cells(height * width)
    size = math.prod(part)
    if size:
        for block in blocks_of((*leading, *part)):
            first, end = block.start // size, -(-block.end // size)
            values = comparable(read(block.index)).reshape(end - first, -1)
            numbers = np.arange(first, end)
            row = np.searchsorted(row_edges, numbers // across, side="right") - 1
            column = np.searchsorted(column_edges, numbers % across, side="right") - 1
            cells.add(row * width + column, numbers, *_most_extreme(values))
    else:
        cells.number_from(row_edges[:-1, None] * across + column_edges[:-1])
    return np.stack((cells.extreme, cells.non_finite, cells.number)).reshape(3, height, width)


class _Cells:
    """The values of all cells so far."""

    def __init__(self, count: int) -> None:
        self.extreme = np.zeros(count)
        self.non_finite = np.zeros(count)
        self.number = np.zeros(count)
        self._rank = np.full(count, -1.0)

    def add(
        self,
        cell: NDArray[np.intp],
        number: NDArray[np.intp],
        extreme: NDArray[np.float64],
        non_finite: NDArray[np.intp],
    ) -> None:
        """Add slices, in order of their numbers: the cell, most extreme element and non-finite count of each."""
        np.add.at(self.non_finite, cell, non_finite)
        rank = _rank(extreme)
        order = np.lexsort((number, -rank, cell))
        best = order[np.r_[True, np.diff(cell[order]) > 0]]  # of each cell
        better = best[rank[best] > self._rank[cell[best]]]
        self.extreme[cell[better]] = extreme[better]
        self.number[cell[better]] = number[better]
        self._rank[cell[better]] = rank[better]

    def number_from(self, numbers: NDArray[np.int64]) -> None:
        """Set the first slice of each cell."""
        self.number[:] = numbers.ravel()


def _rank(extreme: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ranks that are larger for more extreme elements: NaN before infinities before magnitudes."""
    size = np.abs(extreme)
    largest = np.finfo(np.float64).max
    # Infinities need a rank above all magnitudes, so magnitudes are halved.
    return np.where(np.isnan(size), np.inf, np.where(np.isinf(size), largest, np.minimum(size, largest) / 2))


def _most_extreme(slices: NDArray[np.generic]) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Return the most extreme element of each row, and the number of elements that are not finite."""
    non_finite = np.zeros(len(slices), np.intp)
    with np.errstate(invalid="ignore"):  # NaN wins in both
        high = slices.max(axis=1).astype(np.float64)
        low = slices.min(axis=1).astype(np.float64)
        if slices.dtype.kind == "f":
            odd = np.flatnonzero(~(np.isfinite(high) & np.isfinite(low)))
            non_finite[odd] = (~np.isfinite(slices[odd])).sum(axis=1)
        return np.where(np.isnan(high) | (high >= -low), high, low), non_finite
