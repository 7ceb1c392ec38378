"""Render a tensor as a picture, down-sampled without losing extreme values."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.errors import InputError
from tensight.tensors.elements import Route, element_type
from tensight.tensors.layout import SEGMENT_ELEMENTS
from tensight.tensors.narrow_types import widened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

MOST_CELLS = 4096
"""Maximum number of rows or columns of a heat map; screens have no more."""


def heat_map(array_2d: NDArray[Any], rows: int, columns: int) -> NDArray[np.float32]:
    """Down-sample a matrix: each cell shows the element of largest magnitude in it, with its sign.

    Non-finite elements take precedence over finite ones and NaN over infinities, so that a single one stays visible; of
    two equal magnitudes the positive one is shown.

    Parameters
    ----------
    array_2d : ndarray (m, n)
        Any supported dtype; complex numbers show their magnitude.
    rows, columns : int
        Size of the picture, 1 to 4096; a smaller matrix is not enlarged.

    Returns
    -------
    float32 (min(m, rows), min(n, columns))
        Finite elements beyond the range of float32 become its largest number, not infinite.

    Raises
    ------
    InputError
        The array does not have two dimensions, the dtype has no statistics, or the size is out of range.
    """
    array = np.asarray(array_2d)
    if array.ndim != 2:
        raise InputError(f"a heat map shows 2 dimensions, the tensor has {array.ndim}; choose a slice with two ranges")
    element_type(array.dtype)
    return heat_map_of_blocks(lambda rows, columns: array[rows, columns], array.shape, rows, columns)


def heat_map_of_blocks(
    read: Callable[[slice, slice], NDArray[Any]], shape: tuple[int, ...], rows: int, columns: int
) -> NDArray[np.float32]:
    """Down-sample a matrix that is read block by block; see `heat_map`.

    Parameters
    ----------
    read : callable
        Returns the block of some rows and columns, of any supported dtype; blocks have at most 2**20 elements.
    shape : (m, n)
        Shape of the matrix.
    rows, columns : int
        Size of the picture.
    """
    if not (1 <= rows <= MOST_CELLS and 1 <= columns <= MOST_CELLS):
        raise InputError(f"a heat map of {rows} x {columns} cells; give 1 to {MOST_CELLS} each way")
    height, width = shape
    row_edges, starts = edges(height, rows), edges(width, columns)[:-1]
    high = np.full((len(row_edges) - 1, len(starts)), -np.inf, np.float32)
    low = -high
    for row, top, end, left, right in _blocks(row_edges, width):
        values = _displayed(read(slice(top, end), slice(left, right)))
        first = int(np.searchsorted(starts, left, side="right")) - 1  # the cell that the block begins in
        cells = slice(first, int(np.searchsorted(starts, right)))
        offsets = np.maximum(starts[cells] - left, 0)
        with np.errstate(invalid="ignore"):  # NaN wins in both
            high[row, cells] = np.maximum(high[row, cells], np.maximum.reduceat(values.max(axis=0), offsets))
            low[row, cells] = np.minimum(low[row, cells], np.minimum.reduceat(values.min(axis=0), offsets))
    with np.errstate(invalid="ignore"):
        return np.where(np.isnan(high) | (high >= -low), high, low)


def _blocks(row_edges: NDArray[np.int64], width: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Cut the rows of cells into blocks; yield row of cells, top, end, left, right."""
    if not width:
        return
    most_columns = min(width, SEGMENT_ELEMENTS)
    most_rows = SEGMENT_ELEMENTS // most_columns
    for row, (top, bottom) in enumerate(pairwise(row_edges.tolist())):
        for first in range(top, bottom, most_rows):
            for left in range(0, width, most_columns):
                yield row, first, min(first + most_rows, bottom), left, min(left + most_columns, width)


def edges(length: int, cells: int) -> NDArray[np.int64]:
    """Return the starts of cells and the end: at most `cells`, and not more than elements, evenly spread."""
    cells = min(length, cells)
    return np.arange(cells + 1, dtype=np.int64) * length // max(cells, 1)


def _displayed(strip: NDArray[Any]) -> NDArray[np.float32]:
    """Return elements as float32; finite ones stay finite."""
    if element_type(strip.dtype).route is Route.MAGNITUDE:
        from tensight.tensors.elements import magnitudes

        strip = magnitudes(strip)
    if strip.dtype == np.bool_:
        return strip.view(np.uint8).astype(np.bool_).astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        shown = widened(strip).astype(np.float32, copy=False)
    if strip.dtype.itemsize == 8:
        finite = np.isfinite(strip)
        np.clip(shown, -np.finfo(np.float32).max, np.finfo(np.float32).max, out=shown, where=finite)
    return shown
