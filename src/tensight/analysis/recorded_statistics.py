"""What a device recorded in ``statistic.csv``, turned into bounds for the statistics of the values.

A statistics file holds some numbers of each tensor and not its values; since MindSpore 2.3 the person who dumps chooses
which. Often they still decide a question: a finite L2 norm means that there is no NaN, the extremes bound the mean. So
each statistic is a pair, the smallest and the largest value that the record allows; where it is known they are equal.

How MindSpore computes the numbers, as far as it matters here (measured, and read in its published sources):

- up to 2.1 extremes and mean are those of the finite elements, later Inf takes part and NaN makes all of them NaN;
- above 10,000 elements a tensor is scanned in pieces, and before the pieces' maxima and minima were put together
  correctly, a NaN made those of its piece disappear; above 20,000 elements the mean was that of the first piece. The
  sum of squares was always right;
- newer versions count infinite elements among the positive and negative ones as well;
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
"""A bound for each statistic; NaN for the measures of a tensor that has no finite element."""

NOT_RECORDED = -1
"""A count that is not known exactly."""

WHOLE_UP_TO = 10_000
"""Elements up to which NaN and Inf always show in the extremes."""

MEAN_BELOW = 20_000
"""Elements below which the recorded mean is right in every version."""

MAX_COUNT = 2**53
ROUNDING = 1e-5
"""Relative error of a number written with six digits, with a margin."""

NORM_SLACK = 0.01
"""Relative error allowed in a recorded norm when other statistics are bounded by it: devices may add up in float32."""

_LARGEST = 1.797e308
"""A maximum below its negative, or a minimum above it, is what the search for them began with."""

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
    """What is known of some tensors from their statistics files.

    Attributes
    ----------
    low, high : structured arrays `BOUNDS`, shape (n,)
        The smallest and the largest value that each statistic can have.
    hashes : uint64 array, shape (n,)
        Equal where everything that was recorded is equal; of exact records the hash of the content.
    exact_records : bool array, shape (n,)
        Which were written by a scan of the values, as rows of traces are: all their statistics are known.
    dtypes : list of str
        Names as NumPy's, e.g. "float16".
    errors : list of str
        Why a record cannot be used; empty where it can.
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
        low, known = self.low[name], self.low[name] == self.high[name]
        if name in MEASURES:
            return np.where(known, low, np.nan)
        return np.where(known, low, NOT_RECORDED).astype(np.int64)


def recorded_statistics(records: Sequence[StatisticRow | TracedRow]) -> RecordedStatistics:
    """Bound the statistics of tensors by what was recorded of them.

    Parameters
    ----------
    records : sequence of StatisticRow or TracedRow
        One for each tensor.
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
    known = np.zeros(len(rows), BOUNDS)
    for name in (*COUNTS, *MEASURES):
        known[name] = rows[name]
    known["non_finite_count"] = rows["nan_count"] + rows["neg_inf_count"] + rows["pos_inf_count"]
    low[exact] = high[exact] = known
    finite = known["count"] > known["non_finite_count"]
    for name in MEASURES:
        # Another version did not write it.
        unknown = np.flatnonzero(exact)[finite & np.isnan(known[name])]
        low[name][unknown], high[name][unknown] = -np.inf, np.inf
    hashes[exact] = rows["content_hash"]
    texts = iter(zip(by_device.dtypes, by_device.errors, strict=True))
    dtypes_errors = [(record.data_type, "") if isinstance(record, TracedRow) else next(texts) for record in records]
    dtypes, errors = [dtype for dtype, _ in dtypes_errors], [error for _, error in dtypes_errors]
    return RecordedStatistics(low, high, hashes, exact, dtypes, errors)


def _bounded(records: Sequence[StatisticRow]) -> RecordedStatistics:
    """Bound the statistics of tensors by what the device recorded of them."""
    dtypes = [record.data_type.lower().removeprefix("knumbertype") for record in records]
    with np.errstate(all="ignore"):
        found = _Bounding(records, dtypes)
        low, high = found.table()
    errors = found.errors
    for row in np.flatnonzero([bool(error) for error in errors]).tolist():
        low[row] = high[row] = np.zeros(1, BOUNDS)[0]
    hashes = np.fromiter(map(_hash, records), np.uint64, len(records))
    return RecordedStatistics(low, high, hashes, np.zeros(len(records), np.bool_), dtypes, errors)


def _hash(record: StatisticRow) -> int:
    text = repr((record.data_type, record.shape, sorted(record.values.items())))
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "little")


class _Bounding:
    """The bounds of many tensors while they are found; every array has shape (n,)."""

    def __init__(self, records: Sequence[StatisticRow], dtypes: Sequence[str]) -> None:
        self._records = records
        self.errors = [""] * len(records)
        # Of a measure that is not recorded nothing is known.
        self.low = {name: np.full(len(records), -np.inf) for name in MEASURES}
        self.high = {name: np.full(len(records), np.inf) for name in MEASURES}
        self._whole_numbers = _flags(dtype.startswith(("int", "uint", "bool")) for dtype in dtypes)
        # What a device makes of complex numbers is not known.
        self._real = _flags(not dtype.startswith("complex") for dtype in dtypes)
        self._max, self._min, self._avg, self._norm = (self._measure(name) for name in ("max", "min", "avg", "l2norm"))
        # Tensight records these, no device does.
        self._abs_mean, self._std = (self._measure(name) for name in ("abs mean", "std"))
        self._set("count", *(self._elements(),) * 2)
        self._n = self.low["count"]
        # Nothing took part in the search for the extremes, so that they are what it began with.
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
        found = [record.values.get(name) for record in self._records]
        numbers = (float(value) if isinstance(value, (int, float)) else math.nan for value in found)
        there = _flags(isinstance(value, (int, float)) for value in found) & self._real
        return _Measure(np.where(there, np.fromiter(numbers, np.float64, len(found)), np.nan), there)

    def _count(self, name: str) -> _Floats:
        """Return a count as it is recorded, NaN where it is not."""
        found = (record.values.get(name) for record in self._records)
        numbers = (float(value) if isinstance(value, int) else math.nan for value in found)
        return np.fromiter(numbers, np.float64, len(self._records))

    def _elements(self) -> _Floats:
        """Return the number of elements, as it is recorded or else from the shape."""
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
        # A sum shows every NaN and Inf. Where it is not finite, it may only have grown too large.
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
            known = ~np.isnan(recorded)
            low, high = np.where(some, 1.0, 0.0), np.where(none, 0.0, n)
            self._set(name, np.where(known, recorded, low), np.where(known, recorded, high))
        low = sum((self.low[name] for name in NON_FINITE), zero)
        high = np.minimum(sum((self.high[name] for name in NON_FINITE), zero), n)
        some_finite = (largest.finite | smallest.finite) & used
        some_finite |= self._count(_RECORDED_COUNTS["zero_count"]) > 0
        high = np.where(some_finite & (n > 0), np.minimum(high, n - 1), high)
        some = (self._avg.nan | self._without_extremes) & (n > 0) & ~self._whole_numbers & (high > 0)
        self._set("non_finite_count", np.maximum(low, some), high)
        self._finite_low, self._finite_high = n - high, n - self.low["non_finite_count"]

    def _bound_extremes(self) -> None:
        # In pieces, a NaN hides the other elements of its piece.
        exact = (self._n <= WHOLE_UP_TO) | (self.high["nan_count"] <= 0)
        for name, recorded, sign in (("max", self._max, 1.0), ("min", self._min, -1.0)):
            usable = recorded.finite & ~self._without_extremes
            inner = np.where(usable, recorded.value, -sign * np.inf)
            outer = np.where(usable & exact, recorded.value, sign * np.inf)
            self._set(name, *((inner, outer) if sign > 0 else (outer, inner)))
        self.low["max"] = np.maximum(self.low["max"], self.low["min"])
        self.high["min"] = np.minimum(self.high["min"], self.high["max"])

    def _bound_signs(self) -> None:
        """Bound how many finite elements are below, at and above zero."""
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
            known = ~np.isnan(least)
            fewest, most = np.minimum(fewest, finite_high), np.maximum(most, 0.0)
            self._set(name, np.where(known, least, fewest), np.where(known, greatest, most))
        names = tuple(derived)
        for name in names:
            others = [other for other in names if other != name]
            self.low[name] = np.maximum(self.low[name], finite_low - sum(self.high[other] for other in others))
            self.high[name] = np.minimum(self.high[name], finite_high - sum(self.low[other] for other in others))

    def _recorded_signs(self) -> dict[str, tuple[_Floats, _Floats]]:
        """Return bounds of the finite elements by sign from the recorded counts, NaN where there are none.

        The counts above and below zero have the infinite elements in them, or not, depending on the version.
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
        """Let the counts say what they can about extremes that were not recorded."""
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
        # By the inequality of the means; fmin, because a norm that is not recorded is NaN here. Tensight records the
        # norm of the finite elements; a finite one of MindSpore means that all are.
        norm_mean = norm * (1 + NORM_SLACK) / np.sqrt(self._finite_low)
        known_mean = self._avg.finite & (n < MEAN_BELOW)
        self._set(
            "mean",
            np.where(known_mean, self._avg.value, np.fmax(smallest, -norm_mean)),
            np.where(known_mean, self._avg.value, np.fmin(largest, norm_mean)),
        )
        by_norm = np.where(at_most > 0, (norm * (1 - NORM_SLACK)) ** 2 / (self._finite_high * at_most), 0.0)
        by_mean = np.maximum(np.maximum(low["mean"], -high["mean"]), 0.0)
        # Elements of one sign have the mean, up to its sign, as the mean of their absolute values.
        by_sign = np.maximum(np.abs(low["mean"]), np.abs(high["mean"]))
        same_sign = (smallest >= 0) | (largest <= 0)
        known = same_sign & known_mean
        upper = np.fmin(at_most, norm_mean)
        self._set(
            "abs_mean",
            np.where(known, by_mean, np.fmax(by_mean, by_norm)),
            np.where(known, by_sign, np.where(same_sign, np.fmin(upper, by_sign), upper)),
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
        """Note records that no values can have; put bounds that only rounding has crossed in order."""
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
    """A recorded number of each tensor."""

    value: _Floats
    there: _Flags

    @property
    def nan(self) -> _Flags:
        """Whether NaN is what was recorded."""
        flags: _Flags = self.there & np.isnan(self.value)
        return flags

    @property
    def finite(self) -> _Flags:
        return np.isfinite(self.value)


def _flags(values: Any) -> _Flags:
    return np.array(list(values), np.bool_)


def _product(size: _Floats, factor: _Floats) -> _Floats:
    """Multiply, with 0 · inf = inf: nothing is known about the size."""
    product = size * factor
    return np.where(np.isnan(product), np.inf, product)
