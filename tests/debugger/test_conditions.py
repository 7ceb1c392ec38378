"""Conditions: what they accept, what they refuse and in which words."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensight.debugger import (
    ConditionBase,
    DebuggerParamTypeError,
    DebuggerParamValueError,
    TensorAllZeroCondition,
    TensorChangeAboveThresholdCondition,
    TensorOverflowCondition,
    TensorRangeCondition,
    TensorTooLargeCondition,
    TensorUnchangedCondition,
)


def test_a_condition_tells_its_name_number_and_parameters() -> None:
    condition = TensorTooLargeCondition(max_gt=1, abs_mean_gt=True)
    assert (condition.name, condition.condition_id) == ("TensorTooLarge", 15)
    assert condition.param_dict == {"abs_mean_gt": 1.0, "max_gt": 1.0}
    assert condition.param_names == ["abs_mean_gt", "max_gt", "min_gt", "mean_gt"]
    assert str(condition) == "{'abs_mean_gt': 1.0, 'max_gt': 1.0}"


def test_defaults_are_those_of_the_original() -> None:
    assert TensorUnchangedCondition().param_dict == {"rtol": 1e-5, "atol": 1e-8}
    assert TensorChangeAboveThresholdCondition(0.5).param_dict == {"abs_mean_update_ratio_gt": 0.5, "epsilon": 1e-9}
    assert TensorOverflowCondition().param_dict == {}


def test_changing_the_returned_parameters_changes_nothing() -> None:
    condition = TensorAllZeroCondition(50)
    condition.param_dict["zero_percentage_ge"] = 0.0
    assert condition.param_dict == {"zero_percentage_ge": 50.0}


def test_a_missing_threshold_is_refused() -> None:
    with pytest.raises(DebuggerParamValueError) as error:
        TensorTooLargeCondition()
    message = "ValueError. Please specify at least one of the parameters for TensorTooLargeCondition."
    assert str(error.value) == f"[DebuggerParamValueError] code: 5054B081, msg: {message}"
    assert (error.value.message, error.value.error_code) == (message, "5054B081")


def test_a_threshold_that_is_no_number_is_refused() -> None:
    with pytest.raises(DebuggerParamTypeError) as error:
        TensorTooLargeCondition(max_gt="1")  # type: ignore[arg-type]
    assert str(error.value).endswith("The type of max_gt should be float, but got <class 'str'>.")
    assert isinstance(error.value, TypeError)


def test_a_percentage_needs_both_ends_of_its_range() -> None:
    with pytest.raises(DebuggerParamValueError, match="range_start_inclusive and range_end_inclusive"):
        TensorRangeCondition(range_start_inclusive=0, range_percentage_gt=1)
    with pytest.raises(DebuggerParamValueError, match="max_min_gt"):
        TensorRangeCondition(range_start_inclusive=0, range_end_inclusive=1)


def test_value_ranges_are_not_tested() -> None:
    assert TensorAllZeroCondition(-5).param_dict == {"zero_percentage_ge": -5.0}


def test_the_base_has_no_name_and_no_number() -> None:
    base = ConditionBase()
    assert str(base) == "{}"
    with pytest.raises(NotImplementedError):
        _ = base.name
    with pytest.raises(NotImplementedError):
        _ = base.condition_id


@given(st.one_of(st.floats(), st.integers(-(2**60), 2**60), st.booleans()))
def test_any_number_is_accepted_and_becomes_a_float(number: float) -> None:
    (value,) = TensorAllZeroCondition(number).param_dict.values()
    assert type(value) is float
    assert value == float(number) or math.isnan(value)


@given(st.one_of(st.none(), st.text(), st.lists(st.integers()), st.complex_numbers()))
def test_anything_else_is_refused(value: object) -> None:
    with pytest.raises(DebuggerParamTypeError):
        TensorAllZeroCondition(value)  # type: ignore[arg-type]
