"""Counts which units of a tensor are dead or saturated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.watchpoints.units import unit_axis

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tensight.watchpoints import UnitRule

_FIRST_ELEMENTS = 2**15
"""So many elements are looked at first; hardly a unit is zero in all of them and yet not dead."""


def unit_percentage(array: NDArray[Any], rule: UnitRule) -> float:
    """Return the percentage of units of an array for which a rule holds; NaN if it has no units.

    Parameters
    ----------
    array : ndarray
        Its units are the channels of a picture (N, C, H, W), or lie along the last dimension.
    rule : UnitRule
    """
    if array.ndim == 0 or array.size == 0:
        return float("nan")
    axis = unit_axis(array.ndim)
    # (samples, units, elements of a unit in a sample), without a copy.
    shape = (-1, array.shape[axis], int(np.prod(array.shape[axis + 1 :], dtype=np.int64)))
    samples = array.reshape(shape)
    if not rule.outside and rule.start == rule.end == 0 and rule.percentage >= 100:
        return 100.0 * _always_zero(samples) / samples.shape[1]
    return 100.0 * _counted(samples, rule) / samples.shape[1]


def _always_zero(samples: NDArray[Any]) -> int:
    """Count the units that are zero throughout: most are seen not to be in the first few samples."""
    units = np.arange(samples.shape[1])
    start, rows = 0, max(1, _FIRST_ELEMENTS // (samples.shape[1] * samples.shape[2]))
    while units.size and start < len(samples):
        some = samples[start : start + rows]
        some = some if units.size == samples.shape[1] else some[:, units]
        units = units[~(some != 0).any(axis=(0, 2))]
        start, rows = start + rows, 4 * rows
    return int(units.size)


def _counted(samples: NDArray[Any], rule: UnitRule) -> int:
    size = len(samples) * samples.shape[2]
    if rule.outside:
        # What is no number lies neither inside nor outside.
        found = ((samples < rule.start) | (samples > rule.end)).sum(axis=(0, 2))
    else:
        found = ((samples >= rule.start) & (samples <= rule.end)).sum(axis=(0, 2))
    return int(np.count_nonzero(100.0 * found >= rule.percentage * size))
