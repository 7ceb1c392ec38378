"""The quantities that conditions compare with thresholds: one number per tensor, from columns of statistics.

A quantity is computed for many tensors at once. If the columns only bound it (a value range that was not counted, a
comparison that stopped early), it is the pair of its smallest and largest possible value; the tensor must be read
again only if a threshold lies between the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from tensight.tensors.schema import NON_FINITE
from tensight.watchpoints.columns import (
    Arguments,
    BoolColumn,
    Bounds,
    Columns,
    FloatColumn,
    column,
    finite_counts,
    float_column,
    non_finite_counts,
    unless_propagated,
)
from tensight.watchpoints.ranges import range_count_bounds, value_range
from tensight.watchpoints.references import EARLIER, LAST_LAYER, PREVIOUS, depth_ratio, norm_growth, norm_surge
from tensight.watchpoints.units import dead_unit_percentage, saturated_unit_percentage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DEFAULT_ATOL = 1e-8
DEFAULT_EPSILON = 1e-9


class Source(Enum):
    """The source of a quantity: what must be read to compute it."""

    STATISTICS = "statistics"
    RANGE = "range"
    CHANGE = "change"
    OVERFLOW = "overflow"
    UNITS = "units"
    REFERENCE = "reference"
    MASKS = "masks"
    ZERO_PROVENANCE = "zero_provenance"
    RANKS = "ranks"


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number per tensor, compared with a threshold.

    Attributes
    ----------
    name : str
        The name in the catalogue, for example ``abs_mean``.
    formula : str
        The formula, as printed on the reference page.
    words : str
        The quantity in words: "the largest element".
    compute : callable
        ``compute(columns, arguments)`` returns a float64 array of shape (rows,), NaN where there is no value; or a
        pair of such arrays, the smallest and the largest value that the columns allow. It must be a module-level
        function, so that a check can be pickled. NumPy warnings are silenced while it runs.
    columns : tuple of str
        The required columns.
    source : Source
        What must be read to compute it.
    shown_by_original : bool
        False if the original's hits on it have neither an actual value nor a parameter that hit.
    """

    name: str
    formula: str
    words: str
    compute: Callable[[Columns, Arguments], FloatColumn | Bounds]
    columns: tuple[str, ...]
    source: Source = Source.STATISTICS
    shown_by_original: bool = True

    def bounds(self, columns: Columns, arguments: Arguments) -> Bounds:
        """Return the smallest and the largest value that the columns allow: the same array twice if they determine it.

        Parameters
        ----------
        columns : Columns
            The rows, by statistic.
        arguments : Arguments
            Parameters of the check that the quantity depends on.
        """
        computed = self.compute(columns, arguments)
        return computed if isinstance(computed, tuple) else (computed, computed)


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


def _non_finite_count(columns: Columns, _: Arguments) -> FloatColumn:
    return non_finite_counts(columns)


def _unmasked_count(columns: Columns, _: Arguments) -> FloatColumn:
    counts = non_finite_counts(columns)
    if "masked" in columns:
        counts = counts - np.where(column(columns, "masked"), float_column(columns, "neg_inf_count"), 0.0)
    if "left_out" in columns:
        counts = np.where(column(columns, "left_out"), 0.0, counts)
    return counts


def _differs(columns: Columns, _: Arguments) -> FloatColumn:
    return float_column(columns, "differs")


def _overflowed(columns: Columns, _: Arguments) -> FloatColumn:
    return float_column(columns, "overflowed")


def _percentage(part: FloatColumn, columns: Columns) -> FloatColumn:
    whole = finite_counts(columns)
    percentage: FloatColumn = np.where(whole > 0, 100.0 * part / whole, np.nan)
    return percentage


def _zero_percentage(columns: Columns, _: Arguments) -> FloatColumn:
    return _percentage(float_column(columns, "zero_count"), columns)


def _unintended_zero_percentage(columns: Columns, arguments: Arguments) -> FloatColumn:
    return unless_propagated(columns, _zero_percentage(columns, arguments))


def _range_percentage(columns: Columns, arguments: Arguments) -> Bounds:
    start, end = value_range(arguments)
    if start == -np.inf and end == np.inf:
        # The original has no percentage for a range without bounds; checks by our rules always have both bounds.
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
    # Stopped early: the value so far is a lower bound. Nothing seen (NaN): anything is possible.
    low = np.where(unknown & np.isnan(required), 0.0, required)
    return low, np.where(unknown, np.inf, required)


def compares_non_finite(columns: Columns) -> BoolColumn:
    """Return the rows known to compare NaN or infinite elements, of this or the previous step, shape (rows,)."""
    return _complete(columns) & _comparable(columns) & np.isnan(float_column(columns, "required_rtol"))


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
                ("count", *NON_FINITE, "zero_count"),
            ),
            Quantity(
                "range_percentage",
                "100 · count(start ≤ x ≤ end) / n",
                "the percentage of elements from {start} to {end}",
                _range_percentage,
                ("count", *NON_FINITE, "negative_count", "zero_count", "positive_count", "min", "max"),
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
                "the relative tolerance (with an absolute one of {atol}) within which every element"
                " equals its previous value",
                _required_rtol,
                ("has_previous", "required_rtol"),
                Source.CHANGE,
                shown_by_original=False,
            ),
            Quantity("nan_count", "count(NaN)", "the number of NaN elements", _nan_count, ("nan_count",)),
            Quantity("inf_count", "count(±Inf)", "the number of ±Inf elements", _inf_count, NON_FINITE[1:]),
            Quantity(
                "non_finite_count",
                "count(NaN) + count(±Inf)",
                "the number of NaN and ±Inf elements",
                _non_finite_count,
                NON_FINITE,
            ),
            Quantity(
                "overflowed",
                "the device reported an overflow of the operator",
                "the number of overflows that the device reported for the operator",
                _overflowed,
                ("overflowed",),
                Source.OVERFLOW,
            ),
            Quantity(
                "dead_unit_percentage",
                "100 · units(count(x = 0) ≥ zeros_of_unit %) / units",
                "the percentage of units that are zero",
                dead_unit_percentage,
                ("count", *NON_FINITE, "negative_count", "zero_count", "positive_count", "min", "max"),
                Source.UNITS,
            ),
            Quantity(
                "saturated_unit_percentage",
                "100 · units(count(x < start or x > end) ≥ outside_of_unit %) / units",
                "the percentage of units that lie outside of {start} to {end}",
                saturated_unit_percentage,
                ("count", *NON_FINITE, "negative_count", "zero_count", "positive_count", "min", "max", "mean", "std"),
                Source.UNITS,
            ),
            Quantity(
                "unmasked_non_finite_count",
                "count(NaN) + count(±Inf), without masks and ignored elements",
                "the number of NaN and ±Inf elements that were not written on purpose",
                _unmasked_count,
                NON_FINITE,
                Source.MASKS,
            ),
            Quantity(
                "unintended_zero_percentage",
                "100 · count(x = 0 and not propagated) / n",
                "the percentage of zeros that were not propagated",
                _unintended_zero_percentage,
                ("count", *NON_FINITE, "zero_count"),
                Source.ZERO_PROVENANCE,
            ),
            Quantity(
                "norm_growth",
                "‖x‖ / max(‖p‖, a tenth of the usual norm)",
                "the L2 norm, relative to that of the step before,",
                norm_growth,
                ("l2_norm",),
                Source.REFERENCE,
            ),
            Quantity(
                "norm_surge",
                "‖x‖ / largest norm of any x watched, 5 steps before or earlier",
                "the L2 norm, relative to the largest one of all tensors watched up to five steps before,",
                norm_surge,
                ("l2_norm",),
                Source.REFERENCE,
            ),
            Quantity(
                "depth_ratio",
                "‖x‖ / ‖x of the last layer‖",
                "the L2 norm, relative to that of the layer nearest to the loss,",
                depth_ratio,
                ("l2_norm",),
                Source.REFERENCE,
            ),
            Quantity(
                "differs",
                "the ranks hold different values",
                "the number of ranks whose values differ",
                _differs,
                ("differs",),
                Source.RANKS,
            ),
        )
    }
)
"""The quantities of the built-in conditions, by name; users' conditions may add further ones."""

OF_ZEROS = frozenset({"unintended_zero_percentage", "dead_unit_percentage", "depth_ratio"})
"""Quantities that ignore zeros which an operator only propagates."""

REFERENCES: Mapping[str, str] = MappingProxyType(
    {"norm_growth": PREVIOUS, "norm_surge": EARLIER, "depth_ratio": LAST_LAYER}
)
"""The references with which the norms of these quantities are compared."""
