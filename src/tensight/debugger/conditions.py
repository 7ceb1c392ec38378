"""The conditions of the drop-in API: names, numbers, parameters and checks of arguments as in the original.

Their formulas are those of `tensight.watchpoints`; value ranges are not checked, because the original does not either.
"""

from __future__ import annotations

from abc import ABC
from typing import TYPE_CHECKING, ClassVar

from tensight.debugger import arguments
from tensight.debugger.exceptions import DebuggerParamValueError

if TYPE_CHECKING:
    from collections.abc import Mapping


class ConditionBase(ABC):  # noqa: B024 - as in the original: a base that can be instantiated, but only raises
    """Base of the conditions that a watchpoint checks; use a derived class."""

    @property
    def name(self) -> str:
        """The name of the condition, such as ``TensorTooLarge``."""
        raise NotImplementedError

    @property
    def condition_id(self) -> int:
        """The number of the condition in the original's protocol."""
        raise NotImplementedError

    @property
    def param_dict(self) -> dict[str, float]:
        """The parameters that are set, by name, in the declared order."""
        return {}

    def __str__(self) -> str:
        """Return the text of a dictionary of the parameters that are set."""
        return str(self.param_dict)


class _Condition(ConditionBase):
    """Base of all conditions: constants of the class, and the given values."""

    _name: ClassVar[str]
    _condition_id: ClassVar[int]
    _param_names: ClassVar[tuple[str, ...]] = ()

    def __init__(self, values: Mapping[str, float | None] | None = None) -> None:
        given = {name: arguments.number(name, value) for name, value in (values or {}).items() if value is not None}
        self._values = given

    @property
    def name(self) -> str:
        """The name of the condition, such as ``TensorTooLarge``."""
        return self._name

    @property
    def condition_id(self) -> int:
        """The number of the condition in the original's protocol."""
        return self._condition_id

    @property
    def param_dict(self) -> dict[str, float]:
        """The parameters that are set, by name, in the declared order."""
        return dict(self._values)

    @property
    def param_names(self) -> list[str]:
        """All parameters of the condition, in the declared order."""
        return list(self._param_names)


class TensorTooLargeCondition(_Condition):
    """Hits when any of the given quantities of a tensor is greater than its threshold.

    Parameters
    ----------
    abs_mean_gt : float, optional
        Threshold of the mean of absolute values.
    max_gt : float, optional
        Threshold of the maximum.
    min_gt : float, optional
        Threshold of the minimum.
    mean_gt : float, optional
        Threshold of the mean.

    Raises
    ------
    DebuggerParamValueError
        No threshold is given.
    DebuggerParamTypeError
        A threshold is not a number.
    """

    _name = "TensorTooLarge"
    _condition_id = 15
    _param_names = ("abs_mean_gt", "max_gt", "min_gt", "mean_gt")

    def __init__(
        self,
        abs_mean_gt: float | None = None,
        max_gt: float | None = None,
        min_gt: float | None = None,
        mean_gt: float | None = None,
    ) -> None:
        super().__init__({"abs_mean_gt": abs_mean_gt, "max_gt": max_gt, "min_gt": min_gt, "mean_gt": mean_gt})
        _require_any(self)


class TensorTooSmallCondition(_Condition):
    """Hits when any of the given quantities of a tensor is less than its threshold.

    Parameters
    ----------
    abs_mean_lt : float, optional
        Threshold of the mean of absolute values.
    max_lt : float, optional
        Threshold of the maximum.
    min_lt : float, optional
        Threshold of the minimum.
    mean_lt : float, optional
        Threshold of the mean.

    Raises
    ------
    DebuggerParamValueError
        No threshold is given.
    DebuggerParamTypeError
        A threshold is not a number.
    """

    _name = "TensorTooSmall"
    _condition_id = 16
    _param_names = ("abs_mean_lt", "max_lt", "min_lt", "mean_lt")

    def __init__(
        self,
        abs_mean_lt: float | None = None,
        max_lt: float | None = None,
        min_lt: float | None = None,
        mean_lt: float | None = None,
    ) -> None:
        super().__init__({"abs_mean_lt": abs_mean_lt, "max_lt": max_lt, "min_lt": min_lt, "mean_lt": mean_lt})
        _require_any(self)


class TensorRangeCondition(_Condition):
    """Hits when too few or too many elements lie in a range, or when maximum minus minimum is too small or too large.

    Parameters
    ----------
    range_start_inclusive, range_end_inclusive : float, optional
        The range, including both ends. Required by the percentages.
    range_percentage_lt, range_percentage_gt : float, optional
        Thresholds of the percentage of elements in the range, from 0 to 100.
    max_min_lt, max_min_gt : float, optional
        Thresholds of the maximum minus the minimum.

    Raises
    ------
    DebuggerParamValueError
        None of the last four is given, or a percentage without the range.
    DebuggerParamTypeError
        A parameter is not a number.
    """

    _name = "TensorRange"
    _condition_id = 21
    _param_names = (
        "range_start_inclusive",
        "range_end_inclusive",
        "range_percentage_lt",
        "range_percentage_gt",
        "max_min_lt",
        "max_min_gt",
    )

    def __init__(
        self,
        range_start_inclusive: float | None = None,
        range_end_inclusive: float | None = None,
        range_percentage_lt: float | None = None,
        range_percentage_gt: float | None = None,
        max_min_lt: float | None = None,
        max_min_gt: float | None = None,
    ) -> None:
        super().__init__(
            {
                "range_start_inclusive": range_start_inclusive,
                "range_end_inclusive": range_end_inclusive,
                "range_percentage_lt": range_percentage_lt,
                "range_percentage_gt": range_percentage_gt,
                "max_min_lt": max_min_lt,
                "max_min_gt": max_min_gt,
            }
        )
        if not any(name in self._values for name in self._param_names[2:]):
            names = ", ".join(self._param_names[2:])
            raise DebuggerParamValueError(
                f"Please specify at least one of the parameters [{names}] for {type(self).__name__}."
            )
        percentage = "range_percentage_lt" in self._values or "range_percentage_gt" in self._values
        if percentage and not all(name in self._values for name in self._param_names[:2]):
            raise DebuggerParamValueError(
                "Please specify both range_start_inclusive and range_end_inclusive parameters"
                f" for {type(self).__name__}."
            )


class TensorOverflowCondition(_Condition):
    """Hits when a tensor has NaN or infinite elements."""

    _name = "TensorOverflow"
    _condition_id = 13

    def __init__(self) -> None:
        super().__init__()


class OperatorOverflowCondition(_Condition):
    """Hits when the device reported that the operator overflowed (asynchronous dumps of Ascend only)."""

    _name = "OperatorOverflow"
    _condition_id = 2

    def __init__(self) -> None:
        super().__init__()


class TensorAllZeroCondition(_Condition):
    """Hits when at least a percentage of a tensor's elements is zero.

    Parameters
    ----------
    zero_percentage_ge : float
        The percentage, from 0 to 100.

    Raises
    ------
    DebuggerParamTypeError
        It is not a number.
    """

    _name = "TensorAllZero"
    _condition_id = 17
    _param_names = ("zero_percentage_ge",)

    def __init__(self, zero_percentage_ge: float) -> None:
        super().__init__()
        self._values = {"zero_percentage_ge": arguments.number("zero_percentage_ge", zero_percentage_ge)}


class TensorUnchangedCondition(_Condition):
    """Hits when every element equals that of the previous iteration, within tolerances.

    An element counts as unchanged when ``abs(x - previous) <= atol + rtol * abs(previous)``.

    Parameters
    ----------
    rtol : float
        Tolerance relative to the previous value.
    atol : float
        Absolute tolerance.

    Raises
    ------
    DebuggerParamTypeError
        A tolerance is not a number.
    """

    _name = "TensorUnchanged"
    _condition_id = 20
    _param_names = ("rtol", "atol", "equal_nan")

    def __init__(self, rtol: float = 1e-5, atol: float = 1e-8) -> None:
        super().__init__()
        self._values = {
            "rtol": arguments.number("rtol", rtol, "float or int"),
            "atol": arguments.number("atol", atol, "float or int"),
        }


class TensorChangeBelowThresholdCondition(_Condition):
    """Hits when a tensor changed less than a threshold since the previous iteration.

    The change is ``mean(abs(x - previous)) / (mean(abs(previous)) + 1e-9)``.

    Parameters
    ----------
    abs_mean_update_ratio_lt : float
        The threshold.
    epsilon : float
        Accepted but ignored, as in the original, which always adds 1e-9.

    Raises
    ------
    DebuggerParamTypeError
        A parameter is not a number.
    """

    _name = "TensorChangeBelowThreshold"
    _condition_id = 19
    _param_names = ("abs_mean_update_ratio_lt", "epsilon")

    def __init__(self, abs_mean_update_ratio_lt: float, epsilon: float = 1e-9) -> None:
        super().__init__()
        self._values = {
            "abs_mean_update_ratio_lt": arguments.number("abs_mean_update_ratio_lt", abs_mean_update_ratio_lt),
            "epsilon": arguments.number("epsilon", epsilon),
        }


class TensorChangeAboveThresholdCondition(_Condition):
    """Hits when a tensor changed more than a threshold since the previous iteration.

    The change is ``mean(abs(x - previous)) / (mean(abs(previous)) + 1e-9)``.

    Parameters
    ----------
    abs_mean_update_ratio_gt : float
        The threshold.
    epsilon : float
        Accepted but ignored, as in the original, which always adds 1e-9.

    Raises
    ------
    DebuggerParamTypeError
        A parameter is not a number.
    """

    _name = "TensorChangeAboveThreshold"
    _condition_id = 18
    _param_names = ("abs_mean_update_ratio_gt", "epsilon")

    def __init__(self, abs_mean_update_ratio_gt: float, epsilon: float = 1e-9) -> None:
        super().__init__()
        self._values = {
            "abs_mean_update_ratio_gt": arguments.number("abs_mean_update_ratio_gt", abs_mean_update_ratio_gt),
            "epsilon": arguments.number("epsilon", epsilon),
        }


def _require_any(condition: _Condition) -> None:
    if not condition.param_dict:
        raise DebuggerParamValueError(f"Please specify at least one of the parameters for {type(condition).__name__}.")
