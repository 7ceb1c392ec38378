"""Percentage of dead or saturated units of a tensor; a unit is a channel of an image, or a feature of other tensors.

Units are counted where the elements are available. Statistics of the whole tensor often suffice: a tensor with few
zeros cannot have many units that are zero everywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tensight.watchpoints.columns import UnitRule, finite_counts, float_column, unless_propagated
from tensight.watchpoints.ranges import range_count_bounds, value_range

if TYPE_CHECKING:
    from tensight.watchpoints.columns import Arguments, Bounds, Columns, FloatColumn

UNIT_SIZE = 8
"""Minimum number of elements of a unit: a batch of few samples says little about it."""

ALL_OF_UNIT = 100.0
MOST_OF_UNIT = 90.0


def dead_rule(arguments: Arguments) -> UnitRule:
    """Return the rule for dead units."""
    return UnitRule(0.0, 0.0, False, float(arguments.get("zeros_of_unit", ALL_OF_UNIT)))


def saturated_rule(arguments: Arguments) -> UnitRule:
    """Return the rule for saturated units."""
    return UnitRule(*value_range(arguments), True, float(arguments.get("outside_of_unit", MOST_OF_UNIT)))


def dead_unit_percentage(columns: Columns, arguments: Arguments) -> Bounds:
    """Bound the percentage of units that are zero."""
    low, high = _unit_percentage(columns, dead_rule(arguments), arguments)
    return unless_propagated(columns, low), unless_propagated(columns, high)


def saturated_unit_percentage(columns: Columns, arguments: Arguments) -> Bounds:
    """Bound the percentage of units that lie outside of a range."""
    return _unit_percentage(columns, saturated_rule(arguments), arguments)


def _unit_percentage(columns: Columns, rule: UnitRule, arguments: Arguments) -> Bounds:
    low, high = _from_statistics(columns, rule)
    counted = columns.get(rule)
    if counted is not None:
        is_counted = ~np.isnan(counted)
        low, high = np.where(is_counted, counted, low), np.where(is_counted, counted, high)
    if "unit_size" in columns:
        is_large_enough = float_column(columns, "unit_size") >= float(arguments.get("unit_size", UNIT_SIZE))
        low, high = np.where(is_large_enough, low, np.nan), np.where(is_large_enough, high, np.nan)
    return low, high


def _from_statistics(columns: Columns, rule: UnitRule) -> Bounds:
    elements = finite_counts(columns)
    fewest, most = range_count_bounds(columns, rule.start, rule.end)
    if rule.outside:
        fewest, most = elements - most, np.minimum(elements - fewest, _most_outside(columns, rule, elements))
    low = np.where(fewest >= elements, 100.0, 0.0)
    high = np.full(len(low), 100.0)
    if rule.percentage > 0:
        high = np.minimum(high, 1e4 / rule.percentage * most / elements)
    nothing = elements <= 0
    return np.where(nothing, np.nan, low), np.where(nothing, np.nan, np.maximum(low, high))


def _most_outside(columns: Columns, rule: UnitRule, elements: FloatColumn) -> FloatColumn:
    """Bound the number of elements outside of a range, by the total squared distance of all from its middle."""
    middle, reach = (rule.start + rule.end) / 2, (rule.end - rule.start) / 2
    if not (np.isfinite(middle) and reach > 0):
        return elements
    spread = float_column(columns, "std") ** 2 * np.maximum(elements - 1, 0)
    distance = spread + elements * (float_column(columns, "mean") - middle) ** 2
    bound: FloatColumn = distance / reach**2
    return bound
