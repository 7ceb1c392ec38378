"""A tensor as a picture: down-sampled so that nothing extreme gets lost."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.errors import InputError
from tensight.tensors.elements import Route, element_type

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_CELLS = 4096
"""Rows or columns that a heat map may have at most; screens have no more."""


def heat_map(array_2d: NDArray[Any], rows: int, columns: int) -> NDArray[np.float32]:
    """Down-sample a matrix: each cell shows, of the elements under it, the one of largest magnitude, with its sign.

    Not finite elements win over finite ones and NaN over infinities, so that a single one stays visible; of two equal
    magnitudes the positive one wins.

    Parameters
    ----------
    array_2d : ndarray (m, n)
        Any supported dtype; complex numbers show their magnitude.
    rows, columns : int
        Size of the picture, 1 to 4096; a smaller matrix is not enlarged.

    Returns
    -------
    float32 (min(m, rows), min(n, columns))
        Finite elements beyond the range of float32 show as its largest number, not as infinite.

    Raises
    ------
    InputError
        The array does not have two dimensions, the dtype has no statistics, or the size is out of range.
    """
    array = np.asarray(array_2d)
    if array.ndim != 2:
        raise InputError(f"a heat map shows 2 dimensions, the tensor has {array.ndim}; choose a slice with two ranges")
    if not (1 <= rows <= MOST_CELLS and 1 <= columns <= MOST_CELLS):
        raise InputError(f"a heat map of {rows} x {columns} cells; give 1 to {MOST_CELLS} each way")
    element_type(array.dtype)
    row_edges, column_edges = _edges(array.shape[0], rows), _edges(array.shape[1], columns)
    picture = np.zeros((len(row_edges) - 1, len(column_edges) - 1), np.float32)
    if array.size:
        for row, (top, bottom) in enumerate(pairwise(row_edges.tolist())):
            picture[row] = _strip(array[top:bottom], column_edges[:-1])
    return picture


def _edges(length: int, cells: int) -> NDArray[np.int64]:
    """Return where cells begin, and the end: as many cells as asked or as there are elements, evenly spread."""
    cells = min(length, cells)
    return np.arange(cells + 1, dtype=np.int64) * length // max(cells, 1)


def _strip(strip: NDArray[Any], starts: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return one row of cells from the matrix rows under it."""
    values = _displayed(strip)
    with np.errstate(invalid="ignore"):
        high = np.maximum.reduceat(values.max(axis=0), starts)  # NaN wins in both
        low = np.minimum.reduceat(values.min(axis=0), starts)
        return np.where(np.isnan(high) | (high >= -low), high, low)


def _displayed(strip: NDArray[Any]) -> NDArray[np.float32]:
    """Return elements as float32, finite ones kept finite."""
    if element_type(strip.dtype).route is Route.MAGNITUDE:
        from tensight.tensors.elements import magnitudes

        strip = magnitudes(strip)
    if strip.dtype == np.bool_:
        return strip.view(np.uint8).astype(np.bool_).astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        shown = strip.astype(np.float32)
    if strip.dtype.itemsize == 8:
        finite = np.isfinite(strip)
        np.clip(shown, -np.finfo(np.float32).max, np.finfo(np.float32).max, out=shown, where=finite)
    return shown
