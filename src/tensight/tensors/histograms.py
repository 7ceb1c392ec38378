"""Histograms of the values of tensors."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.errors import InputError
from tensight.tensors.elements import as_native, doubles_of, element_type
from tensight.tensors.layout import CHUNK
from tensight.tensors.statistics_row import segments_of, statistics

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from tensight.tensors.schema import TensorStatistics

MOST_BINS = 10_000

# The width of bins, and its share of the largest edge, above which a division is accurate.
_SMALLEST_WIDTH, _SMALLEST_SHARE = 1e-290, 2.0**-30
_LARGEST = sys.float_info.max


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of values in bins of equal width.

    Attributes
    ----------
    counts : int64 (bins,)
    edges : float64 (bins + 1,)
        Increasing; a bin contains its lower edge, and the last one also its upper edge.
    """

    counts: NDArray[np.int64]
    edges: NDArray[np.float64]


def histogram(array: NDArray[Any], bins: int = 40, low: float | None = None, high: float | None = None) -> Histogram:
    """Return the histogram of the finite values of a tensor, reading it segment by segment.

    Parameters
    ----------
    array : ndarray
        Array of any shape and supported dtype; magnitudes are used for complex numbers.
    bins : int
        1 to 10,000.
    low, high : float, optional
        The outer edges; values outside are not counted. By default the smallest and largest finite value; if they are
        equal, half a unit below and above; 0 and 1 if no value is finite.

    Raises
    ------
    InputError
        `bins` is out of range, an edge is not finite, `low` is not below `high`, or the dtype has no statistics.
    """
    _require_bins(bins)
    array = np.asarray(array)
    first, last = _outer_edges(array, low, high)
    return _count(segments_of(array), _edges(first, last, bins))


def histogram_of_segments(segments: Iterable[NDArray[Any]], whole: TensorStatistics, bins: int = 40) -> Histogram:
    """Return the histogram of a tensor given as 1-D segments, with its statistics `whole`; see `histogram`."""
    _require_bins(bins)
    first, last = (whole.min, whole.max) if whole.finite_count else (0.0, 1.0)
    if not first < last:
        first, last = _around(first, last, None, None)
    return _count(segments, _edges(first, last, bins))


def _require_bins(bins: int) -> None:
    if not 1 <= bins <= MOST_BINS:
        raise InputError(f"bins is {bins}; give 1 to {MOST_BINS:,}")


def _count(segments: Iterable[NDArray[Any]], edges: NDArray[np.float64]) -> Histogram:
    bins = len(edges) - 1
    counts = np.zeros(bins, np.int64)
    bin_numbers_of = _bin_numbers_by_width if _are_wide(edges) else _bin_numbers_by_search
    for segment in segments:
        element = element_type(segment.dtype)
        for start in range(0, segment.size, CHUNK):
            values = doubles_of(as_native(segment[start : start + CHUNK], element), element)
            inside = (values >= edges[0]) & (values <= edges[-1])
            bin_numbers = bin_numbers_of(values if inside.all() else values[inside], edges)
            counts += np.bincount(bin_numbers, minlength=bins)
    return Histogram(counts, edges)


def _are_wide(edges: NDArray[np.float64]) -> bool:
    """Return whether bins are so much wider than rounding errors that a division yields the bin or a neighbour."""
    first, last = float(edges[0]), float(edges[-1])
    width = (last - first) / (len(edges) - 1)
    return _SMALLEST_WIDTH < width < math.inf and width > _SMALLEST_SHARE * max(abs(first), abs(last))


def _bin_numbers_by_search(values: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.asarray(np.minimum(np.searchsorted(edges, values, side="right") - 1, len(edges) - 2))


def _bin_numbers_by_width(values: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the same as `_bin_numbers_by_search`, five times as fast."""
    bins = len(edges) - 1
    bin_numbers = ((values - edges[0]) * (bins / (edges[-1] - edges[0]))).astype(np.int64)
    np.minimum(bin_numbers, bins - 1, out=bin_numbers)
    bin_numbers -= values < edges[bin_numbers]
    bin_numbers += values >= np.append(edges[1:-1], np.inf)[bin_numbers]
    return np.asarray(bin_numbers)


def _outer_edges(array: NDArray[Any], low: float | None, high: float | None) -> tuple[float, float]:
    for name, edge in (("low", low), ("high", high)):
        if edge is not None and not math.isfinite(edge):
            raise InputError(f"{name} is {edge}; give a finite number, or leave it out")
    given = low is not None and high is not None
    whole = None if given else statistics(array)
    smallest, largest = (0.0, 1.0) if whole is None or not whole.finite_count else (whole.min, whole.max)
    first = smallest if low is None else float(low)
    last = largest if high is None else float(high)
    if given or first < last:
        if not first < last:
            raise InputError(f"low {first:g} is not below high {last:g}")
        return first, last
    return _around(first, last, low, high)


def _around(first: float, last: float, low: float | None, high: float | None) -> tuple[float, float]:
    """Return edges around the data if the range of the data, or between the data and a given edge, is empty."""
    room = max(0.5, abs(first) * 1e-6, abs(last) * 1e-6)
    middle = last if low is None else first
    return max(middle - room, -_LARGEST) if low is None else low, min(middle + room, _LARGEST) if high is None else high


def _edges(first: float, last: float, bins: int) -> NDArray[np.float64]:
    """Return equally spaced edges, without overflow if the range is wider than the largest double."""
    share = np.arange(bins + 1) / bins
    edges = np.asarray(first * (1 - share) + last * share)
    edges[0], edges[-1] = first, last
    return edges
