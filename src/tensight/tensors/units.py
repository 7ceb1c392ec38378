"""Count the units of a tensor, channels or features, most of whose elements are in a range, or outside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

PICTURE_DIMENSIONS = 4
"""With at least this number of dimensions, the second one is that of the channels: (N, C, H, W)."""

_FIRST_ELEMENTS = 2**15
"""Number of elements to check first; units that are zero in all of them are usually dead."""


def unit_axis(dimensions: int) -> int:
    """Return the dimension of an activation's units: that of the channels, or the last one."""
    return 1 if dimensions >= PICTURE_DIMENSIONS else dimensions - 1


def unit_size(shape: tuple[int, ...]) -> int:
    """Return the number of elements in each unit of an array; 0 if it has no units."""
    if not shape or 0 in shape:
        return 0
    return int(np.prod(shape, dtype=np.int64)) // shape[unit_axis(len(shape))]


def unit_percentage(
    array: NDArray[Any], start: float, end: float, *, outside: bool = False, percentage: float = 100.0
) -> float:
    """Return the percentage of units most of whose elements are in a range; NaN if there are no units.

    Parameters
    ----------
    array : ndarray
        Array of any shape; see `unit_axis`.
    start, end : float
        The range, both ends inclusive.
    outside : bool
        Count elements outside the range instead; NaN is neither inside nor outside.
    percentage : float
        Minimum percentage of a unit's elements for the unit to count.
    """
    if array.ndim == 0 or array.size == 0:
        return float("nan")
    axis = unit_axis(array.ndim)
    # (samples, units, elements of a unit in a sample), without a copy.
    samples = array.reshape(-1, array.shape[axis], int(np.prod(array.shape[axis + 1 :], dtype=np.int64)))
    if not outside and start == end == 0 and percentage >= 100:
        units = _always_zero(samples)
    else:
        units = _counted(samples, start, end, outside=outside, percentage=percentage)
    return 100.0 * units / samples.shape[1]


def _always_zero(samples: NDArray[Any]) -> int:
    """Count the units that are always zero; the first few samples exclude most units."""
    units = np.arange(samples.shape[1])
    start, rows = 0, max(1, _FIRST_ELEMENTS // (samples.shape[1] * samples.shape[2]))
    while units.size and start < len(samples):
        some = samples[start : start + rows]
        some = some if units.size == samples.shape[1] else some[:, units]
        units = units[~(some != 0).any(axis=(0, 2))]
        start, rows = start + rows, 4 * rows
    return int(units.size)


def _counted(samples: NDArray[Any], start: float, end: float, *, outside: bool, percentage: float) -> int:
    size = len(samples) * samples.shape[2]
    if outside:
        counts = ((samples < start) | (samples > end)).sum(axis=(0, 2))
    else:
        counts = ((samples >= start) & (samples <= end)).sum(axis=(0, 2))
    return int(np.count_nonzero(100.0 * counts >= percentage * size))
