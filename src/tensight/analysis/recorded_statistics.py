"""Bounds for the statistics of tensors, derived from what a device recorded in ``statistic.csv``.

A statistics file contains some numbers of each tensor but not its values; since MindSpore 2.3 the user chooses which.
They often suffice: a finite L2 norm excludes NaN, and the extremes bound the mean. So each statistic is a pair, the
smallest and the largest value that the record allows; they are equal if the statistic is known.

The relevant behaviour of MindSpore (measured, and read in its published sources):

- up to 2.1, extremes and mean are those of the finite elements; later, Inf is included and NaN makes all of them NaN;
- above 10,000 elements, a tensor is scanned in chunks. In some versions a NaN drops the maximum and minimum of its
  chunk, and above 20,000 elements the mean is that of the first chunk. The sum of squares is always right;
- newer versions include infinite elements in the positive and negative counts;
- numbers have six digits.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tensight.dumps import TracedRow
from tensight.dumps.trace_files import TRACE_ROW
from tensight.tensors import COUNTS, MEASURES
from tensight.tensors.schema import NON_FINITE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensight.dumps import StatisticRow

BOUNDED = (*COUNTS, "non_finite_count", *MEASURES)

BOUNDS = np.dtype([(name, np.float64) for name in BOUNDED])
"""A bound for each statistic; NaN for the measures of a tensor without finite elements."""

NOT_RECORDED = -1
"""Value of a count that is not known exactly."""

WHOLE_UP_TO = 10_000
"""Number of elements up to which the extremes always show NaN and Inf."""

MEAN_BELOW = 20_000
"""Number of elements below which the recorded mean is right in all versions."""

MAX_COUNT = 2**53
ROUNDING = 1e-5
"""Relative error of a number written with six digits, with a margin."""

NORM_SLACK = 0.01
"""Relative error assumed for a recorded norm in bounds derived from it, because devices may sum in float32."""

_LARGEST = 1.797e308
"""A maximum below its negative, or a minimum above it, is only the initial value of the search."""

_RECORDED_COUNTS = {
    "nan_count": "nan count",
    "neg_inf_count": "negative inf count",
    "pos_inf_count": "positive inf count",
    "zero_count": "zero count",
    # MindSpore's names; they count elements below and above zero.
    "negative_count": "negative zero count",
    "positive_count": "positive zero count",
}

_Floats = NDArray[np.float64]
_Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class RecordedStatistics:
    """Bounds for the statistics of some tensors, from their records.

    Attributes
    ----------
    low, high : structured arrays `BOUNDS`, shape (n,)
        The smallest and the largest value that each statistic can have.
    hashes : uint64 array, shape (n,)
        Hash of everything that was recorded; for exact records, the content hash.
    exact_records : bool array, shape (n,)
        Whether the record comes from a scan of the values, as rows of traces do, so that all statistics are known.
    dtypes : list of str
        NumPy dtype names, e.g. "float16".
    errors : list of str
        Why a record cannot be used; empty if it can.
    """

    low: NDArray[np.void]
    high: NDArray[np.void]
    hashes: NDArray[np.uint64]
    exact_records: NDArray[np.bool_]
    dtypes: list[str]
    errors: list[str]

    def __len__(self) -> int:
        return len(self.low)

    def exact(self, name: str) -> NDArray[Any]:
        """Return a statistic where it is known; elsewhere `NOT_RECORDED` for a count and NaN for a measure."""
        low, is_exact = self.low[name], self.low[name] == self.high[name]
        if name in MEASURES:
            return np.where(is_exact, low, np.nan)
        return np.where(is_exact, low, NOT_RECORDED).astype(np.int64)


def recorded_statistics(records: Sequence[StatisticRow | TracedRow]) -> RecordedStatistics:
    """Derive bounds for the statistics of tensors from their records.

    Parameters
    ----------
    records : sequence of StatisticRow or TracedRow
        A record for each tensor.
    """
    exact = np.fromiter((isinstance(record, TracedRow) for record in records), np.bool_, len(records))
    if not exact.any():
        return _bounded([record for record in records if not isinstance(record, TracedRow)])
    by_device = _bounded([record for record in records if not isinstance(record, TracedRow)])
    traced = [record for record in records if isinstance(record, TracedRow)]
    rows = np.array([record.row for record in traced], TRACE_ROW)
    n = len(records)
    low, high, hashes = np.zeros(n, BOUNDS), np.zeros(n, BOUNDS), np.zeros(n, np.uint64)
    low[~exact], high[~exact], hashes[~exact] = by_device.low, by_device.high, by_device.hashes
    traced_bounds = np.zeros(len(rows), BOUNDS)
    for name in (*COUNTS, *MEASURES):
        traced_bounds[name] = rows[name]
    traced_bounds["non_finite_count"] = rows["nan_count"] + rows["neg_inf_count"] + rows["pos_inf_count"]
    low[exact] = high[exact] = traced_bounds
    finite = traced_bounds["count"] > traced_bounds["non_finite_count"]
    for name in MEASURES:
        # A version that does not write this measure recorded the row.
        unknown = np.flatnonzero(exact)[finite & np.isnan(traced_bounds[name])]
        low[name][unknown], high[name][unknown] = -np.inf, np.inf
    hashes[exact] = rows["content_hash"]
    texts = iter(zip(by_device.dtypes, by_device.errors, strict=True))
    dtypes_errors = [(record.data_type, "") if isinstance(record, TracedRow) else next(texts) for record in records]
    dtypes, errors = [dtype for dtype, _ in dtypes_errors], [error for _, error in dtypes_errors]
    return RecordedStatistics(low, high, hashes, exact, dtypes, errors)


def _bounded(records: Sequence[StatisticRow]) -> RecordedStatistics:
    """Derive bounds for the statistics of tensors from what the device recorded."""
    dtypes = [record.data_type.lower().removeprefix("knumbertype") for record in records]
    with np.errstate(all="ignore"):
        bounding = _Bounding(records, dtypes)
        low, high = bounding.table()
    errors = bounding.errors
    for row in np.flatnonzero([bool(error) for error in errors]).tolist():
        low[row] = high[row] = np.zeros(1, BOUNDS)[0]
    hashes = np.fromiter(map(_hash, records), np.uint64, len(records))
    return RecordedStatistics(low, high, hashes, np.zeros(len(records), np.bool_), dtypes, errors)


def _hash(record: StatisticRow) -> int:
    text = repr((record.data_type, record.shape, sorted(record.values.items())))
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "little")


class _Bounding:
    """Derives the bounds of many tensors; all arrays have the shape (n,)."""

    def __init__(self, records: Sequence[StatisticRow], dtypes: Sequence[str]) -> None:
        self._records = records
        self.errors = [""] * len(records)
        # Measures that were not recorded are unbounded.
        self.low = {name: np.full(len(records), -np.inf) for name in MEASURES}
        self.high = {name: np.full(len(records), np.inf) for name in MEASURES}
        self._whole_numbers = _flags(dtype.startswith(("int", "uint", "bool")) for dtype in dtypes)
        # How devices treat complex numbers is unknown.
        self._real = _flags(not dtype.startswith("complex") for dtype in dtypes)
        self._max, self._min, self._avg, self._norm = (self._measure(name) for name in ("max", "min", "avg", "l2norm"))
        # Only Tensight records these.
        self._abs_mean, self._std = (self._measure(name) for name in ("abs mean", "std"))
        self._set("count", *(self._elements(),) * 2)
        self._n = self.low["count"]
        # No element entered the search for the extremes, so they have their initial values.
        largest, smallest = self._max.value, self._min.value
        untouched = (np.isfinite(largest) & (largest <= -_LARGEST)) | (np.isfinite(smallest) & (smallest >= _LARGEST))
        crossed = (largest < smallest) & (np.isneginf(largest) | np.isposinf(smallest))
        self._without_extremes: _Flags = untouched | crossed

    def table(self) -> tuple[NDArray[np.void], NDArray[np.void]]:
        self._bound_non_finite()
        self._bound_extremes()
        self._bound_signs()
        self._bound_extremes_by_signs()
        self._bound_measures()
        self._find_contradictions()
        low, high = np.zeros(len(self._records), BOUNDS), np.zeros(len(self._records), BOUNDS)
        for name in BOUNDED:
            low[name], high[name] = self.low[name], self.high[name]
        nothing = self._finite_high <= 0
        for name in MEASURES:
            low[name][nothing] = high[name][nothing] = np.nan
        return low, high

    def _set(self, name: str, low: _Floats, high: _Floats) -> None:
        self.low[name], self.high[name] = low, high

    def _measure(self, name: str) -> _Measure:
        values = [record.values.get(name) for record in self._records]
        numbers = (float(value) if isinstance(value, (int, float)) else math.nan for value in values)
        there = _flags(isinstance(value, (int, float)) for value in values) & self._real
        return _Measure(np.where(there, np.fromiter(numbers, np.float64, len(values)), np.nan), there)

    def _count(self, name: str) -> _Floats:
        """Return a count as recorded, NaN if it was not."""
        values = (record.values.get(name) for record in self._records)
        numbers = (float(value) if isinstance(value, int) else math.nan for value in values)
        return np.fromiter(numbers, np.float64, len(self._records))

    def _elements(self) -> _Floats:
        """Return the number of elements as recorded, otherwise from the shape."""
        counts = np.zeros(len(self._records))
        for row, record in enumerate(self._records):
            count = record.values.get("count")
            if not isinstance(count, int):
                count = math.prod(record.shape) if min(record.shape, default=0) >= 0 else -1
            if 0 <= count <= MAX_COUNT:
                counts[row] = count
            else:
                self.errors[row] = "neither the number of elements nor a complete shape is recorded"
        return counts

    def _bound_non_finite(self) -> None:
        n, zero = self._n, np.zeros(len(self._n))
        whole = n <= WHOLE_UP_TO
        largest, smallest = self._max, self._min
        # A finite sum excludes NaN and Inf; a sum that is not finite may also have overflowed.
        no_other = self._whole_numbers | self._norm.finite | self._avg.finite
        has_nan = (largest.nan | smallest.nan | self._norm.nan) & (n > 0)
        no_nan = no_other | (whole & ((largest.there & ~largest.nan) | (smallest.there & ~smallest.nan)))
        used = ~self._without_extremes
        has_positive = used & (np.isposinf(largest.value) | np.isposinf(smallest.value)) & (n > 0)
        has_negative = used & (np.isneginf(smallest.value) | np.isneginf(largest.value)) & (n > 0)
        no_positive = no_other | (largest.finite & used & (whole | no_nan))
        no_negative = no_other | (smallest.finite & used & (whole | no_nan))
        for name, some, none in (
            ("nan_count", has_nan, no_nan & ~has_nan),
            ("pos_inf_count", has_positive, no_positive & ~has_positive),
            ("neg_inf_count", has_negative, no_negative & ~has_negative),
        ):
            recorded = self._count(_RECORDED_COUNTS[name])
            is_recorded = ~np.isnan(recorded)
            low, high = np.where(some, 1.0, 0.0), np.where(none, 0.0, n)
            self._set(name, np.where(is_recorded, recorded, low), np.where(is_recorded, recorded, high))
        low = sum((self.low[name] for name in NON_FINITE), zero)
        high = np.minimum(sum((self.high[name] for name in NON_FINITE), zero), n)
        some_finite = (largest.finite | smallest.finite) & used
        some_finite |= self._count(_RECORDED_COUNTS["zero_count"]) > 0
        high = np.where(some_finite & (n > 0), np.minimum(high, n - 1), high)
        some = (self._avg.nan | self._without_extremes) & (n > 0) & ~self._whole_numbers & (high > 0)
        self._set("non_finite_count", np.maximum(low, some), high)
        self._finite_low, self._finite_high = n - high, n - self.low["non_finite_count"]

    def _bound_extremes(self) -> None:
        # In a chunked scan, a NaN hides the other elements of its chunk.
        exact = (self._n <= WHOLE_UP_TO) | (self.high["nan_count"] <= 0)
        for name, recorded, sign in (("max", self._max, 1.0), ("min", self._min, -1.0)):
            usable = recorded.finite & ~self._without_extremes
            inner = np.where(usable, recorded.value, -sign * np.inf)
            outer = np.where(usable & exact, recorded.value, sign * np.inf)
            self._set(name, *((inner, outer) if sign > 0 else (outer, inner)))
        self.low["max"] = np.maximum(self.low["max"], self.low["min"])
        self.high["min"] = np.minimum(self.high["min"], self.high["max"])

    def _bound_signs(self) -> None:
        """Bound the numbers of finite elements below, at and above zero."""
        low, high = self.low, self.high
        finite_low, finite_high = self._finite_low, self._finite_high
        some_negative, some_positive = high["min"] < 0, low["max"] > 0
        all_negative, all_positive = high["max"] < 0, low["min"] > 0
        only_zero = (low["min"] == 0) & (high["max"] == 0)
        at_zero = ((low["min"] == 0) & (high["min"] == 0)) | ((low["max"] == 0) & (high["max"] == 0))
        derived = {
            "negative_count": (
                np.where(all_negative, finite_low, some_negative),
                np.where(low["min"] >= 0, 0.0, finite_high - some_positive),
            ),
            "positive_count": (
                np.where(all_positive, finite_low, some_positive),
                np.where(high["max"] <= 0, 0.0, finite_high - some_negative),
            ),
            "zero_count": (
                np.where(only_zero, finite_low, at_zero & (finite_low > 0)),
                np.where(all_negative | all_positive, 0.0, finite_high - some_negative - some_positive),
            ),
        }
        recorded = self._recorded_signs()
        for name, (fewest, most) in derived.items():
            least, greatest = recorded[name]
            is_recorded = ~np.isnan(least)
            fewest, most = np.minimum(fewest, finite_high), np.maximum(most, 0.0)
            self._set(name, np.where(is_recorded, least, fewest), np.where(is_recorded, greatest, most))
        names = tuple(derived)
        for name in names:
            others = [other for other in names if other != name]
            self.low[name] = np.maximum(self.low[name], finite_low - sum(self.high[other] for other in others))
            self.high[name] = np.minimum(self.high[name], finite_high - sum(self.low[other] for other in others))

    def _recorded_signs(self) -> dict[str, tuple[_Floats, _Floats]]:
        """Return bounds for the numbers of finite elements by sign from the recorded counts; NaN if not recorded.

        Depending on the version, the counts above and below zero include infinite elements or not.
        """
        zero, negative, positive = (
            self._count(_RECORDED_COUNTS[name]) for name in ("zero_count", "negative_count", "positive_count")
        )
        low, high, n = self.low, self.high, self._n
        infinite = low["neg_inf_count"] + low["pos_inf_count"]
        all_known = (low["non_finite_count"] == high["non_finite_count"]) & ~np.isnan(zero + negative + positive)
        total = low["nan_count"] + zero + negative + positive
        without, within = all_known & (total + infinite == n), all_known & (total == n)
        signed = {"zero_count": (zero, zero)}
        for name, recorded, kind in (
            ("negative_count", negative, "neg_inf_count"),
            ("positive_count", positive, "pos_inf_count"),
        ):
            fewest = np.where(without, recorded, np.maximum(recorded - high[kind], 0.0))
            most = np.where(within, recorded - low[kind], recorded)
            signed[name] = fewest, most
        return signed

    def _bound_extremes_by_signs(self) -> None:
        """Tighten the bounds of extremes with the counts by sign."""
        low, high = self.low, self.high
        low["min"] = np.where(high["negative_count"] <= 0, np.maximum(low["min"], 0.0), low["min"])
        high["max"] = np.where(high["positive_count"] <= 0, np.minimum(high["max"], 0.0), high["max"])
        reaches_up = (low["zero_count"] > 0) | (low["positive_count"] > 0)
        reaches_down = (low["zero_count"] > 0) | (low["negative_count"] > 0)
        low["max"] = np.where(reaches_up, np.maximum(low["max"], 0.0), low["max"])
        high["min"] = np.where(reaches_down, np.minimum(high["min"], 0.0), high["min"])

    def _bound_measures(self) -> None:
        low, high, n = self.low, self.high, self._n
        smallest, largest = low["min"], high["max"]
        at_least = np.maximum(np.maximum(low["max"], -high["min"]), 0.0)
        at_most = np.maximum(np.maximum(-smallest, largest), 0.0)
        norm = np.where(self._norm.finite, np.abs(self._norm.value), np.nan)
        self._set(
            "l2_norm",
            np.where(np.isnan(norm), at_least, norm),
            np.where(np.isnan(norm), _product(at_most, np.sqrt(self._finite_high)), norm),
        )
        # The quadratic mean bounds the arithmetic mean. fmin, because a norm that is not recorded is NaN here. Tensight
        # records the norm of the finite elements; if a norm from MindSpore is finite, all elements are.
        norm_mean = norm * (1 + NORM_SLACK) / np.sqrt(self._finite_low)
        known_mean = self._avg.finite & (n < MEAN_BELOW)
        self._set(
            "mean",
            np.where(known_mean, self._avg.value, np.fmax(smallest, -norm_mean)),
            np.where(known_mean, self._avg.value, np.fmin(largest, norm_mean)),
        )
        by_norm = np.where(at_most > 0, (norm * (1 - NORM_SLACK)) ** 2 / (self._finite_high * at_most), 0.0)
        by_mean = np.maximum(np.maximum(low["mean"], -high["mean"]), 0.0)
        # For elements of one sign, the mean of the absolute values is the absolute value of the mean.
        by_sign = np.maximum(np.abs(low["mean"]), np.abs(high["mean"]))
        same_sign = (smallest >= 0) | (largest <= 0)
        is_exact = same_sign & known_mean
        upper = np.fmin(at_most, norm_mean)
        self._set(
            "abs_mean",
            np.where(is_exact, by_mean, np.fmax(by_mean, by_norm)),
            np.where(is_exact, by_sign, np.where(same_sign, np.fmin(upper, by_sign), upper)),
        )
        self._set("std", *self._deviation(norm, at_most))
        for name, recorded in (("abs_mean", self._abs_mean), ("std", self._std)):
            bounds = (np.where(recorded.finite, recorded.value, bound[name]) for bound in (low, high))
            self._set(name, *bounds)

    def _deviation(self, norm: _Floats, at_most: _Floats) -> tuple[_Floats, _Floats]:
        """Bound the sample standard deviation by the range of the values and by their norm."""
        most, others = self._finite_high, np.maximum(self._finite_low - 1, 1)
        width = self.high["max"] - self.low["min"]
        widest = width / 2 * np.sqrt(np.maximum(most, 2) / np.maximum(most - 1, 1)) + ROUNDING * at_most
        widest = np.fmin(widest, norm * (1 + NORM_SLACK) / np.sqrt(others))
        narrowest = np.maximum(self.low["max"] - self.high["min"] - ROUNDING * at_most, 0.0)
        narrowest = np.nan_to_num(narrowest, posinf=0.0) / np.sqrt(2 * np.maximum(most - 1, 1))
        single = (most <= 1) | (at_most == 0)
        return np.where(single, 0.0, narrowest), np.where(single, 0.0, np.where(np.isnan(widest), np.inf, widest))

    def _find_contradictions(self) -> None:
        """Mark contradictory records as errors, and swap bounds that crossed only because of rounding."""
        wrong = np.zeros(len(self._records), np.bool_)
        for name in _RECORDED_COUNTS.values():
            recorded = self._count(name)
            wrong |= (recorded < 0) | (recorded > self._n)
        wrong |= (self._max.value < self._min.value) & ~self._without_extremes
        for name in BOUNDED:
            low, high = self.low[name], self.high[name]
            crossed = (low > high) & (self._finite_high > 0)
            large = np.maximum(np.abs(low), np.abs(high))
            wrong |= crossed & ((name not in MEASURES) | ~(low - high <= NORM_SLACK * large))
            self.low[name], self.high[name] = np.where(crossed, high, low), np.where(crossed, low, high)
        for row in np.flatnonzero(wrong).tolist():
            self.errors[row] = self.errors[row] or "the recorded statistics contradict each other"


@dataclass(frozen=True, slots=True)
class _Measure:
    """A recorded measure of all tensors; `there` tells which tensors have it."""

    value: _Floats
    there: _Flags

    @property
    def nan(self) -> _Flags:
        """Whether NaN was recorded."""
        flags: _Flags = self.there & np.isnan(self.value)
        return flags

    @property
    def finite(self) -> _Flags:
        return np.isfinite(self.value)


def _flags(values: Any) -> _Flags:
    return np.array(list(values), np.bool_)


def _product(size: _Floats, factor: _Floats) -> _Floats:
    """Multiply, with 0 · inf = inf, because an infinite size is unknown."""
    product = size * factor
    return np.where(np.isnan(product), np.inf, product)
