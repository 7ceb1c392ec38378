"""The statistics of one step, as watchpoints look at them: every quantity computed once, for all places together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.watchpoints import Source

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tensight.agents.rows import Rows
    from tensight.watchpoints import ConditionCheck, Quantity, Threshold
    from tensight.watchpoints.columns import Bounds

Table = dict[Any, "NDArray[Any]"]


class Judged:
    """A check with what it consists of, worked out once."""

    def __init__(self, check: ConditionCheck) -> None:
        self.check = check
        self.flag = check.condition.flag
        self.thresholds = check.thresholds
        self.needs = check.needs
        self.values = check.values


class StepTable:
    """Columns of all places that watchpoints look at, in one step.

    Parameters
    ----------
    rows : Rows
        Statistics of each place.
    present : ndarray of bool
        Which places were seen in this step.
    """

    def __init__(self, rows: Rows, present: NDArray[np.bool_]) -> None:
        self.columns: Table = rows.columns()
        self.rows = rows
        self.present = present
        self._bounds: dict[object, Bounds] = {}

    def may_hit(self, judged: Judged, chosen: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Tell on which of some places a check may hit, as far as their statistics say.

        Changes, ranges and units that nobody has counted yet leave it open, and the answer is then yes.
        """
        if judged.flag is not None:
            return self.bounds(judged.flag, judged)[1][chosen] > 0
        possible = np.zeros(len(chosen), np.bool_)
        for threshold in judged.thresholds:
            if threshold.quantity.source is Source.UNITS:
                possible |= self._units_may_hit(judged, threshold, chosen)
                continue
            low, high = self.bounds(threshold.quantity, judged)
            nearest = high if threshold.comparator.grows else low
            possible |= threshold.comparator.compare(nearest[chosen], threshold.value)
        return possible

    def _units_may_hit(self, judged: Judged, threshold: Threshold, chosen: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Tell the same of a percentage of units; mostly the extremes of a tensor, or its zeros, exclude it."""
        (rule,) = judged.needs.units
        columns = self.columns
        if rule.outside:
            possible = (columns["max"][chosen] > rule.end) | (columns["min"][chosen] < rule.start)
        else:
            # So many elements at least must be zero if so many units are.
            least = threshold.value * rule.percentage / 1e4
            return columns["zero_count"][chosen] >= least * columns["count"][chosen]
        some = np.flatnonzero(possible)
        if some.size:
            rows = chosen[some]
            few: Table = {name: columns[name][rows] for name in threshold.quantity.columns}
            low, high = threshold.quantity.bounds(few, judged.values)
            possible[some] = threshold.comparator.compare(high if threshold.comparator.grows else low, threshold.value)
        return possible

    def bounds(self, quantity: Quantity, judged: Judged) -> Bounds:
        """Return the smallest and the largest value that a quantity can have, of every place."""
        # What norms are compared with is another for every watchpoint.
        if quantity.source is Source.REFERENCE:
            return quantity.bounds(self.columns, judged.values)
        key = quantity.name if quantity.source is Source.STATISTICS else (quantity.name, judged.check.arguments)
        found = self._bounds.get(key)
        if found is None:
            found = self._bounds[key] = quantity.bounds(self.columns, judged.values)
        return found
