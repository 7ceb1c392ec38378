"""The number of elements of a tensor in a value range, as far as its row of statistics determines it.

A row contains the smallest and the largest finite element and the numbers of negative, zero and positive elements.
These often determine the count in a range (all inside, none inside, a bound at zero), and always bound it; only the
remaining tensors must be read again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

_SMALLEST = 5e-324  # the positive float64 nearest to 0: nothing lies between the two


def value_range(arguments: Mapping[str, float | bool]) -> tuple[float, float]:
    """Return the range of a check, ``(start, end)``, both inclusive; a bound that is not given is infinite."""
    start = arguments.get("range_start_inclusive", -np.inf)
    end = arguments.get("range_end_inclusive", np.inf)
    return float(start), float(end)


def range_count_bounds(
    columns: Mapping[Any, NDArray[Any]], start: float, end: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Bound the number of elements x with start ≤ x ≤ end, for each tensor.

    Parameters
    ----------
    columns : Columns
        The counts, ``min`` and ``max`` of each tensor, shape (rows,). If ``("in_range", start, end)`` is among them,
        its non-negative entries are the result; negative or NaN entries mean "not counted".
    start, end : float
        The range, both ends inclusive; either may be infinite. NaN never lies in a range, +Inf only if ``end`` is +Inf,
        -Inf only if ``start`` is -Inf.

    Returns
    -------
    low, high : ndarray of float64, shape (rows,)
        Equal where the count is known.
    """
    low, high = _bounds_from_statistics(columns, start, end)
    counted = columns.get(("in_range", start, end))
    if counted is None:
        return low, high
    counted = counted.astype(np.float64)
    is_counted = counted >= 0
    return np.where(is_counted, counted, low), np.where(is_counted, counted, high)


def range_count_from_statistics(
    columns: Mapping[Any, NDArray[Any]], start: float, end: float
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Count the elements in a range where statistics determine the count, without reading tensors.

    Parameters
    ----------
    columns : Columns
        As for :func:`range_count_bounds`.
    start, end : float
        The range, both ends inclusive.

    Returns
    -------
    counts : ndarray of int64, shape (rows,)
        The count where it is known, -1 elsewhere.
    known : ndarray of bool, shape (rows,)
        False where the tensor must be read.
    """
    low, high = range_count_bounds(columns, start, end)
    is_exact = low == high
    return np.where(is_exact, low, -1).astype(np.int64), is_exact


def _bounds_from_statistics(
    columns: Mapping[Any, NDArray[Any]], start: float, end: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    names = ("negative_count", "zero_count", "positive_count", "neg_inf_count", "pos_inf_count", "min", "max")
    negative, zero, positive, neg_inf, pos_inf, smallest, largest = (
        columns[name].astype(np.float64, copy=False) for name in names
    )
    if not start <= end:
        nothing = np.zeros(len(zero))
        return nothing, nothing
    # Each class of elements has known limits: negative elements lie between min and zero (excluded), or between min and
    # max if all are negative; positive ones likewise. A class is inside, outside, or cut by the range.
    certain = zero * (start <= 0.0 <= end) + neg_inf * (start == -np.inf) + pos_inf * (end == np.inf)
    negatives_end = np.where(zero + positive > 0, -_SMALLEST, largest)
    positives_start = np.where(zero + negative > 0, _SMALLEST, smallest)
    low_negative, high_negative = _class_bounds(negative, smallest, negatives_end, start, end)
    low_positive, high_positive = _class_bounds(positive, positives_start, largest, start, end)
    return certain + low_negative + low_positive, certain + high_negative + high_positive


def _class_bounds(
    count: NDArray[np.float64], first: NDArray[np.float64], last: NDArray[np.float64], start: float, end: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Bound how many of ``count`` elements, all in [first, last], lie in [start, end]."""
    inside = (start <= first) & (last <= end)
    outside = (end < first) | (last < start) | (count == 0)
    low = np.where(inside & ~outside, count, 0.0)
    high = np.where(outside, 0.0, count)
    return low, high
