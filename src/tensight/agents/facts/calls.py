"""Facts of calls of models, from the ranges of what they are given."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_INPUTS = 64
"""Number of calls of a step whose inputs are read."""


def note_ranges(row: dict[str, Any], ranges: Iterable[tuple[float, float]]) -> None:
    """Note a call in the row of its model: the range of the first input, and whether all inputs are constant.

    Parameters
    ----------
    row : dict
        Of ``calls``, with the number of calls ``with_gradients`` including this one.
    ranges : iterable of (float, float)
        The smallest and the greatest value of each input.
    """
    if row["with_gradients"] > MOST_INPUTS:
        # What is not read may be anything.
        row |= {"input_min": math.nan, "input_max": math.nan, "is_constant": False}
        return
    for number, (lowest, highest) in enumerate(ranges):
        row["holds_nan"] = row.get("holds_nan", False) or math.isnan(lowest)
        row["is_constant"] = row.get("is_constant", True) and lowest == highest
        if number == 0:
            row["is_constant"] &= row.get("input_min", lowest) == lowest
            row["input_min"] = min(row.get("input_min", lowest), lowest)
            row["input_max"] = max(row.get("input_max", highest), highest)
