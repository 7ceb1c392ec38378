"""What a condition compares with its threshold: one number per tensor, from columns of statistics.

A quantity is computed for many tensors at once. Where the columns determine it only within bounds (a value range that
was not counted, a comparison that stopped early), it is the pair of its smallest and largest possible value; the
tensor has to be read again only if a threshold lies between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensight.errors import InputError
from tensight.watchpoints.ranges import range_count_bounds, value_range

ColumnKey = str | tuple[str, float, float] | tuple[str, str]
Columns = Mapping[ColumnKey, NDArray[Any]]
"""One array per statistic, one element per tensor.

Keys are the field names of ``TensorStatistics`` and, where a check needs them, those of ``ChangeStatistics`` (computed
with the check's ``needs.atol``), ``has_previous``, ``changes_comparable`` (false if the previous value has another
number of elements; missing means all true), ``("in_range", start, end)`` and ``overflowed``.

Of some tensors only a few statistics may have been recorded: ``recorded`` is true for them, and ``("low", name)`` and
``("high", name)`` are the smallest and the largest value that each field (and ``non_finite_count``) can have there.
"""

DEFAULT_ATOL = 1e-8
DEFAULT_EPSILON = 1e-9

Arguments = Mapping[str, float | bool]
FloatColumn = NDArray[np.float64]
BoolColumn = NDArray[np.bool_]
Bounds = tuple[FloatColumn, FloatColumn]


class Source(Enum):
    """Where a quantity comes from, that is, what has to be read to know it."""

    STATISTICS = "statistics"
    RANGE = "range"
    CHANGE = "change"
    OVERFLOW = "overflow"


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number per tensor that a threshold is compared with.

    Attributes
    ----------
    name : str
        The name in the catalogue, for example ``abs_mean``.
    formula : str
        The mathematics, as the reference page prints it.
    words : str
        The quantity in a sentence: "the largest element".
    compute : callable
        ``compute(columns, arguments)`` returns a float64 array of shape (rows,), NaN where there is no value; or a
        pair of such arrays, the smallest and the largest value that the columns allow. It must be a module-level
        function, so that a check can travel to another process. NumPy warnings are silenced while it runs.
    columns : tuple of str
        The columns it cannot do without.
    source : Source
        What has to be read to know it.
    shown_by_original : bool
        False if the original hits on it without reporting an actual value or a parameter that hit.
    """

    name: str
    formula: str
    words: str
    compute: Callable[[Columns, Arguments], FloatColumn | Bounds]
    columns: tuple[str, ...]
    source: Source = Source.STATISTICS
    shown_by_original: bool = True


def column(columns: Columns, key: ColumnKey) -> NDArray[Any]:
    """Return one column, or say which one is missing.

    Raises
    ------
    InputError
        The column is absent, or is no one-dimensional array of numbers.
    """
    values = columns.get(key)
    if values is None:
        raise InputError(f"column {key!r} is needed to evaluate this condition; compute it first")
    if values.ndim != 1 or values.dtype.kind not in "biuf":
        raise InputError(f"column {key!r} must be one number per tensor; got {values.dtype} of shape {values.shape}")
    return values


def float_column(columns: Columns, key: ColumnKey) -> FloatColumn:
    """Return one column as float64."""
    return column(columns, key).astype(np.float64, copy=False)


def finite_counts(columns: Columns) -> FloatColumn:
    """Return the number of elements that are neither NaN nor infinite, shape (rows,)."""
    return float_column(columns, "count") - _non_finite_count(columns, {})


def _max(columns: Columns, _: Arguments) -> FloatColumn:
    return float_column(columns, "max")


def _min(columns: Columns, _: Arguments) -> FloatColumn:
    return float_column(columns, "min")


def _mean(columns: Columns, _: Arguments) -> FloatColumn:
    return float_column(columns, "mean")


def _abs_mean(columns: Columns, _: Arguments) -> FloatColumn:
    return float_column(columns, "abs_mean")


def _max_min(columns: Columns, _: Arguments) -> FloatColumn:
    return float_column(columns, "max") - float_column(columns, "min")


def _sd(columns: Columns, _: Arguments) -> FloatColumn:
    return float_column(columns, "std")


def _l2_norm(columns: Columns, _: Arguments) -> FloatColumn:
    return float_column(columns, "l2_norm")


def _nan_count(columns: Columns, _: Arguments) -> FloatColumn:
    return float_column(columns, "nan_count")


def _inf_count(columns: Columns, _: Arguments) -> FloatColumn:
    return float_column(columns, "neg_inf_count") + float_column(columns, "pos_inf_count")


def _non_finite_count(columns: Columns, arguments: Arguments) -> FloatColumn:
    return _nan_count(columns, arguments) + _inf_count(columns, arguments)


def _overflowed(columns: Columns, _: Arguments) -> FloatColumn:
    return float_column(columns, "overflowed")


def _percentage(part: FloatColumn, columns: Columns) -> FloatColumn:
    whole = finite_counts(columns)
    percentage: FloatColumn = np.where(whole > 0, 100.0 * part / whole, np.nan)
    return percentage


def _zero_percentage(columns: Columns, _: Arguments) -> FloatColumn:
    return _percentage(float_column(columns, "zero_count"), columns)


def _range_percentage(columns: Columns, arguments: Arguments) -> Bounds:
    start, end = value_range(arguments)
    if start == -np.inf and end == np.inf:
        # The original has no percentage for a range without bounds; a check made by our own rules always has both.
        nothing = np.full(len(column(columns, "count")), np.nan)
        return nothing, nothing
    low, high = range_count_bounds(columns, start, end)
    infinite = (start == -np.inf) * float_column(columns, "neg_inf_count")
    infinite = infinite + (end == np.inf) * float_column(columns, "pos_inf_count")
    return _percentage(low - infinite, columns), _percentage(high - infinite, columns)


def _comparable(columns: Columns) -> BoolColumn:
    usable = column(columns, "has_previous").astype(np.bool_)
    if "changes_comparable" in columns:
        usable = usable & column(columns, "changes_comparable").astype(np.bool_)
    return usable


def _complete(columns: Columns) -> BoolColumn:
    if "complete" in columns:
        return column(columns, "complete").astype(np.bool_)
    return np.ones(len(column(columns, "has_previous")), dtype=np.bool_)


def _update_ratio(columns: Columns, arguments: Arguments) -> Bounds:
    change = float_column(columns, "mean_abs_change")
    previous = float_column(columns, "mean_abs_previous")
    ratio = np.where(_comparable(columns), change / (previous + arguments.get("epsilon", DEFAULT_EPSILON)), np.nan)
    unknown = _comparable(columns) & ~_complete(columns)
    return np.where(unknown, 0.0, ratio), np.where(unknown, np.inf, ratio)


def _required_rtol(columns: Columns, _: Arguments) -> Bounds:
    required = np.where(_comparable(columns), float_column(columns, "required_rtol"), np.nan)
    unknown = _comparable(columns) & ~_complete(columns)
    # Stopped early: what was seen so far is a lower bound. Nothing seen (NaN): anything is possible.
    low = np.where(unknown & np.isnan(required), 0.0, required)
    return low, np.where(unknown, np.inf, required)


def compares_non_finite(columns: Columns) -> BoolColumn:
    """Return the rows known to compare NaN or infinite elements, of this or the previous step, shape (rows,)."""
    return _complete(columns) & _comparable(columns) & np.isnan(float_column(columns, "required_rtol"))


_NON_FINITE = ("nan_count", "neg_inf_count", "pos_inf_count")

QUANTITIES: Mapping[str, Quantity] = MappingProxyType(
    {
        quantity.name: quantity
        for quantity in (
            Quantity("max", "max x", "the largest element", _max, ("max",)),
            Quantity("min", "min x", "the smallest element", _min, ("min",)),
            Quantity("mean", "mean x", "the mean", _mean, ("mean",)),
            Quantity("abs_mean", "mean abs(x)", "the mean of the absolute values", _abs_mean, ("abs_mean",)),
            Quantity(
                "max_min",
                "max x - min x",
                "the difference of the largest and the smallest element",
                _max_min,
                ("max", "min"),
            ),
            Quantity("sd", "sample standard deviation of x", "the standard deviation", _sd, ("std",)),
            Quantity("l2_norm", "sqrt(sum x²)", "the L2 norm", _l2_norm, ("l2_norm",)),
            Quantity(
                "zero_percentage",
                "100 · count(x = 0) / n",
                "the percentage of zeros",
                _zero_percentage,
                ("count", *_NON_FINITE, "zero_count"),
            ),
            Quantity(
                "range_percentage",
                "100 · count(start ≤ x ≤ end) / n",
                "the percentage of elements from {start} to {end}",
                _range_percentage,
                ("count", *_NON_FINITE, "negative_count", "zero_count", "positive_count", "min", "max"),
                Source.RANGE,
            ),
            Quantity(
                "abs_mean_update_ratio",
                "mean abs(x - p) / (mean abs(p) + epsilon)",
                "the mean absolute change since the previous step, relative to the mean absolute previous value,",
                _update_ratio,
                ("has_previous", "mean_abs_change", "mean_abs_previous", "required_rtol"),
                Source.CHANGE,
            ),
            Quantity(
                "required_rtol",
                "smallest r with abs(x - p) ≤ atol + r · abs(p) for every element",
                "the relative tolerance (beside an absolute one of {atol}) within which every element"
                " equals its previous value",
                _required_rtol,
                ("has_previous", "required_rtol"),
                Source.CHANGE,
                shown_by_original=False,
            ),
            Quantity("nan_count", "count(NaN)", "the number of NaN elements", _nan_count, ("nan_count",)),
            Quantity("inf_count", "count(±Inf)", "the number of ±Inf elements", _inf_count, _NON_FINITE[1:]),
            Quantity(
                "non_finite_count",
                "count(NaN) + count(±Inf)",
                "the number of NaN and ±Inf elements",
                _non_finite_count,
                _NON_FINITE,
            ),
            Quantity(
                "overflowed",
                "the device reported an overflow of the operator",
                "the number of overflows that the device reported for the operator",
                _overflowed,
                ("overflowed",),
                Source.OVERFLOW,
            ),
        )
    }
)
"""The quantities of the built-in conditions, by name; users' own conditions may bring further ones."""
