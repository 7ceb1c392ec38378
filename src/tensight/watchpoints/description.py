"""Checks in words: an English sentence for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensight.watchpoints.checks import ConditionCheck, Threshold, format_value

if TYPE_CHECKING:
    from collections.abc import Mapping

_FLAG_SENTENCES = {
    "nan_count": "hits when any element is NaN",
    "inf_count": "hits when any element is +Inf or -Inf",
    "non_finite_count": "hits when any element is NaN, +Inf or -Inf",
    "unmasked_non_finite_count": "hits when any element is NaN, +Inf, or a -Inf that was not written by a mask",
    "differs": "hits when the ranks have different values",
    "overflowed": "hits when the device reported an overflow of the operator",
}


def describe(check: ConditionCheck) -> str:
    """Describe in one sentence when a check hits.

    Parameters
    ----------
    check : ConditionCheck
        A condition with its thresholds.

    Examples
    --------
    >>> describe(ConditionCheck("TL", {"max_gt": 1000}))
    'hits when the largest element is greater than 1000'
    """
    flag = check.condition.flag
    if flag is not None:
        return _FLAG_SENTENCES.get(flag.name, f"hits when {flag.words} is greater than 0")
    values = check.values
    return "hits when " + ", or ".join(_clause(threshold, values) for threshold in check.thresholds)


def _clause(threshold: Threshold, values: Mapping[str, float | bool]) -> str:
    shown = format_value(threshold.value)
    if threshold.quantity.name == "required_rtol":
        atol = format_value(values["atol"])
        if threshold.value == 0:
            most = f" by more than {atol}" if values["atol"] else ""
            return f"no element differs from its previous value{most}"
        return f"no element differs from its previous value p by more than {atol} + {shown} * abs(p)"
    words = threshold.quantity.words
    if threshold.quantity.name in ("range_percentage", "saturated_unit_percentage"):
        start, end = (values.get(f"range_{bound}_inclusive") for bound in ("start", "end"))
        words = words.format(
            start="-Inf" if start is None else format_value(start), end="+Inf" if end is None else format_value(end)
        )
    unit = " %" if "percentage" in threshold.quantity.name else ""
    return f"{words} is {threshold.comparator.words} {shown}{unit}"
