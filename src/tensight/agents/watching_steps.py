"""The statistics of one step, as watchpoints look at them: every quantity computed once, for all places together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.watchpoints import Source

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tensight.agents.rows import Rows
    from tensight.watchpoints import ConditionCheck, Quantity
    from tensight.watchpoints.columns import Bounds, FloatColumn

Table = dict[Any, "NDArray[Any]"]


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

    def may_hit(self, check: ConditionCheck, chosen: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Tell on which of some places a check may hit, as far as their statistics say.

        Changes, ranges and units that nobody has counted yet leave it open, and the answer is then yes.
        """
        flag = check.condition.flag
        if flag is not None:
            return self.bounds(flag, check)[1][chosen] > 0
        possible = np.zeros(len(chosen), np.bool_)
        for threshold in check.thresholds:
            low, high = self.bounds(threshold.quantity, check)
            nearest = high if threshold.comparator.grows else low
            possible |= threshold.comparator.compare(nearest[chosen], threshold.value)
        return possible

    def bounds(self, quantity: Quantity, check: ConditionCheck) -> Bounds:
        """Return the smallest and the largest value that a quantity can have, of every place."""
        # What norms are compared with is another for every watchpoint.
        if quantity.source is Source.REFERENCE:
            return _both(quantity.compute(self.columns, check.values))
        key = quantity.name if quantity.source is Source.STATISTICS else (quantity.name, check.arguments)
        found = self._bounds.get(key)
        if found is None:
            found = self._bounds[key] = _both(quantity.compute(self.columns, check.values))
        return found


def _both(computed: FloatColumn | Bounds) -> Bounds:
    return computed if isinstance(computed, tuple) else (computed, computed)
