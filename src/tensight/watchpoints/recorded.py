"""Bounds of quantities for tensors with only some recorded statistics.

Such tensors cannot be read again. Their rows have a smallest and a largest possible value of each statistic, and a
condition whose threshold lies outside of the bounds can still be decided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from tensight.watchpoints.columns import Arguments, Bounds, Columns, FloatColumn, float_column, unless_propagated
from tensight.watchpoints.quantities import Quantity, Source
from tensight.watchpoints.ranges import value_range

if TYPE_CHECKING:
    from tensight.watchpoints.columns import BoolColumn

RECORDED = "recorded"
"""Column that marks rows with bounds; without it no row has bounds."""

EXACT = "exact"
"""Column that marks those of these rows that have all statistics, computed from values that were not kept."""

LOW, HIGH = "low", "high"
"""First parts of the keys of bound columns, as in ``("low", "max")``."""


def recorded_bounds(quantity: Quantity, columns: Columns, arguments: Arguments, computed: Bounds) -> Bounds:
    """Bound a quantity of recorded tensors.

    Parameters
    ----------
    quantity : Quantity
        The quantity to compare with a threshold.
    columns : Columns
        With `RECORDED` and the bounds.
    arguments : mapping
        The parameters of the check.
    computed : pair of float64 arrays, shape (rows,)
        The quantity by its own formula, used for rows that are not recorded.

    Returns
    -------
    low, high : float64 arrays, shape (rows,)
        Both NaN where there is no value.
    """
    rows = columns[RECORDED].astype(np.bool_)
    low, high = BOUNDS.get(quantity.name, _generic)(quantity, columns, arguments, computed)
    return np.where(rows, low, computed[0]), np.where(rows, high, computed[1])


def may_be_without_value(quantity: Quantity, columns: Columns) -> BoolColumn:
    """Return the tensors that may have no finite element, and so no value of the quantity, shape (rows,)."""
    if quantity.name in _COUNTS:
        return np.zeros(len(at_least(columns, "count")), np.bool_)
    fewest, most = _finite(columns)
    unsure: BoolColumn = (fewest <= 0) & (most > 0)
    return unsure


def at_least(columns: Columns, name: str) -> FloatColumn:
    """Return the smallest possible value of a statistic."""
    return float_column(columns, (LOW, name))


def at_most(columns: Columns, name: str) -> FloatColumn:
    """Return the largest possible value of a statistic."""
    return float_column(columns, (HIGH, name))


def _both(columns: Columns, name: str) -> Bounds:
    return at_least(columns, name), at_most(columns, name)


_Rule = Callable[[Quantity, Columns, Arguments, Bounds], Bounds]


def _statistic(name: str) -> _Rule:
    return lambda _quantity, columns, _arguments, _computed: _both(columns, name)


def _generic(quantity: Quantity, columns: Columns, _: Arguments, computed: Bounds) -> Bounds:
    """Return the formula's value where all its statistics are recorded; elsewhere it is unbounded."""
    is_recorded: BoolColumn = np.full(len(computed[0]), quantity.source is Source.STATISTICS)
    if quantity.source is Source.REFERENCE and EXACT in columns:
        is_recorded = is_recorded | columns[EXACT].astype(np.bool_)
    for name in quantity.columns:
        if (LOW, name) in columns:
            low, high = _both(columns, name)
            is_recorded = is_recorded & ((low == high) | (np.isnan(low) & np.isnan(high)))
    return np.where(is_recorded, computed[0], -np.inf), np.where(is_recorded, computed[1], np.inf)


def _as_computed(_quantity: Quantity, _columns: Columns, _arguments: Arguments, computed: Bounds) -> Bounds:
    return computed


def _change(_quantity: Quantity, columns: Columns, _arguments: Arguments, computed: Bounds) -> Bounds:
    """Return 0 to infinity, because statistics do not determine a change, unless the content is the same."""
    nothing = np.zeros(len(at_least(columns, "count")))
    if EXACT not in columns:
        return nothing, nothing + np.inf
    is_unchanged = columns[EXACT].astype(np.bool_) & columns["changes_comparable"].astype(np.bool_)
    return np.where(is_unchanged, computed[0], 0.0), np.where(is_unchanged, computed[1], np.inf)


def _inf_count(_quantity: Quantity, columns: Columns, _arguments: Arguments, _computed: Bounds) -> Bounds:
    names = ("neg_inf_count", "pos_inf_count")
    low = at_least(columns, names[0]) + at_least(columns, names[1])
    return low, np.minimum(at_most(columns, names[0]) + at_most(columns, names[1]), at_most(columns, "count"))


def _max_min(_quantity: Quantity, columns: Columns, _arguments: Arguments, _computed: Bounds) -> Bounds:
    narrow = at_least(columns, "max") - at_most(columns, "min")
    # inf - inf gives no bound. Without finite elements both are NaN and stay so.
    narrow = np.where(np.isnan(narrow) & ~np.isnan(at_least(columns, "max")), 0.0, np.maximum(narrow, 0.0))
    return narrow, at_most(columns, "max") - at_least(columns, "min")


def _finite(columns: Columns) -> Bounds:
    low, high = _both(columns, "non_finite_count")
    count = at_least(columns, "count")
    return count - high, count - low


def _percentage(part: Bounds, columns: Columns) -> Bounds:
    fewest, most = _finite(columns)
    low = np.where(most > 0, 100.0 * part[0] / most, np.nan)
    high = np.where(fewest > 0, np.minimum(100.0 * part[1] / fewest, 100.0), 100.0)
    return low, np.where(most > 0, high, np.nan)


def _zero_percentage(_quantity: Quantity, columns: Columns, _arguments: Arguments, _computed: Bounds) -> Bounds:
    return _percentage(_both(columns, "zero_count"), columns)


def _unintended_zeros(quantity: Quantity, columns: Columns, arguments: Arguments, computed: Bounds) -> Bounds:
    low, high = _zero_percentage(quantity, columns, arguments, computed)
    return unless_propagated(columns, low), unless_propagated(columns, high)


def _range_percentage(_quantity: Quantity, columns: Columns, arguments: Arguments, computed: Bounds) -> Bounds:
    start, end = value_range(arguments)
    if not start <= end or (start == -np.inf and end == np.inf):
        return computed
    smallest, largest = _both(columns, "min"), _both(columns, "max")
    classes = (
        ("negative_count", (smallest[0], np.minimum(largest[1], -0.0)), -1),
        ("zero_count", (np.zeros_like(smallest[0]), np.zeros_like(smallest[0])), 0),
        ("positive_count", (np.maximum(smallest[0], 0.0), largest[1]), 1),
    )
    low, high = np.zeros_like(smallest[0]), np.zeros_like(smallest[0])
    for name, (first, last), sign in classes:
        # Elements below zero do not reach zero, so a range that ends or begins at zero contains none of them.
        inside = (start <= first) & (last <= end)
        outside = (last < start) | (end < first)
        outside |= (end <= 0 if sign > 0 else start >= 0) if sign else False
        low += np.where(inside & ~outside, at_least(columns, name), 0.0)
        high += np.where(outside, 0.0, at_most(columns, name))
    _, most = _finite(columns)
    # The extremes are elements: each that certainly lies inside, or outside, counts as one.
    any_inside = _within(smallest, start, end) | _within(largest, start, end)
    out_above = (largest[0] > end) | (largest[1] < start)
    out_below = (smallest[1] < start) | (smallest[0] > end)
    distinct = smallest[1] < largest[0]
    outsiders = np.where(distinct, out_below.astype(np.float64) + out_above, np.maximum(out_below, out_above))
    low, high = np.maximum(low, any_inside), np.minimum(high, most - outsiders)
    return _percentage((np.minimum(low, most), np.maximum(high, low)), columns)


def _within(bounds: Bounds, start: float, end: float) -> BoolColumn:
    within: BoolColumn = (start <= bounds[0]) & (bounds[1] <= end)
    return within


_COUNTS = frozenset({"nan_count", "inf_count", "non_finite_count", "unmasked_non_finite_count", "overflowed"})
"""Quantities with a value for every tensor."""

BOUNDS: Mapping[str, _Rule] = {
    "max": _statistic("max"),
    "min": _statistic("min"),
    "mean": _statistic("mean"),
    "abs_mean": _statistic("abs_mean"),
    "sd": _statistic("std"),
    "l2_norm": _statistic("l2_norm"),
    "nan_count": _statistic("nan_count"),
    "non_finite_count": _statistic("non_finite_count"),
    "unmasked_non_finite_count": _statistic("non_finite_count"),
    "inf_count": _inf_count,
    "max_min": _max_min,
    "zero_percentage": _zero_percentage,
    "unintended_zero_percentage": _unintended_zeros,
    "range_percentage": _range_percentage,
    "abs_mean_update_ratio": _change,
    "required_rtol": _change,
    "overflowed": _as_computed,
}
"""The rule of each quantity; one without a rule is bounded only where all its statistics were recorded."""
