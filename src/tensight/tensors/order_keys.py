"""Ranges of values as ranges of order keys (see `kernels`), so that a kernel compares integers only."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NOTHING = (2**31 - 1, -(2**31))
"""Keys of a range that contains nothing, at either width: no value has a key above that of the NaNs."""


class RangeKeys(NamedTuple):
    """For each range the keys of the smallest and largest value inside, shape (number of ranges, 2); their address."""

    keys: NDArray[np.int64]
    address: int


@lru_cache(maxsize=64)
def range_keys(ranges: tuple[tuple[float, float], ...], double: bool) -> RangeKeys:
    """Return the order keys of ranges; the result must stay alive while a kernel reads them.

    Parameters
    ----------
    ranges : tuple of (float, float)
        Start and end, both inside; either may be infinite. A NaN bound contains nothing.
    double : bool
        Whether values are float64, else float32: then each bound moves inwards to the next float32, which contains the
        same float32 values.
    """
    keys = np.zeros((len(ranges), 2), np.int64)
    for place, (low, high) in enumerate(ranges):
        keys[place] = _NOTHING if math.isnan(low) or math.isnan(high) or low > high else _keys(low, high, double)
    return RangeKeys(keys, keys.ctypes.data)


def _keys(low: float, high: float, double: bool) -> tuple[int, int]:
    if double:
        return (-1 if low == 0 else _key(np.float64(low))), (0 if high == 0 else _key(np.float64(high)))
    with np.errstate(over="ignore", under="ignore"):
        first, last = np.float32(low), np.float32(high)
        if float(first) < low:
            first = np.nextafter(first, np.float32(math.inf))
        if float(last) > high:
            last = np.nextafter(last, np.float32(-math.inf))
    return (-1 if first == 0 else _key(first)), (0 if last == 0 else _key(last))


def _key(value: np.floating) -> int:
    """Return the order key of a number."""
    width = 8 * value.dtype.itemsize
    bits = int(value.view(np.int64 if width == 64 else np.int32))
    return bits if bits >= 0 else bits ^ (2 ** (width - 1) - 1)
