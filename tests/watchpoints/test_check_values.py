"""Values of a check are validated with messages that name the parameter, what it accepts and what was given."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tensight.errors import InputError
from tensight.watchpoints import ConditionCheck, Needs, describe, parse_check

RANGE = {"range_start_inclusive": -1, "range_end_inclusive": 1}


@pytest.mark.parametrize(
    ("condition", "values", "words"),
    [
        ("TL", {"abs_mean_gt": -1}, ["tensor_too_large", "abs_mean_gt", "0 or greater", "-1"]),
        ("TL", {"max_gt": math.nan}, ["max_gt", "finite", "nan"]),
        ("TL", {"max_gt": math.inf}, ["max_gt", "finite", "inf"]),
        ("TL", {"max_gt": "3"}, ["max_gt", "finite number", "str"]),
        ("TL", {"max_gt": None}, ["max_gt", "NoneType"]),
        ("TL", {"max_gt": True}, ["max_gt", "finite number", "bool"]),
        ("TL", {"max_gt": np.True_}, ["max_gt", "bool"]),
        ("TL", {"max_gt": 10**400}, ["max_gt", "too large"]),
        ("TL", {"max_lt": 1}, ["tensor_too_large", "max_lt", "max_gt"]),
        ("TL", {}, ["at least one", "abs_mean_gt", "max_gt", "min_gt", "mean_gt"]),
        ("TO", {"max_gt": 1}, ["tensor_overflow", "no parameters"]),
        ("TZ", {"zero_percentage_ge": 100.5}, ["zero_percentage_ge", "0 to 100", "100.5"]),
        ("TZ", {"zero_percentage_ge": -0.5}, ["zero_percentage_ge", "0 to 100"]),
        ("TR", {"max_min_lt": 0}, ["max_min_lt", "greater than 0", "0"]),
        ("TR", {"range_percentage_gt": 5}, ["range_percentage_gt", "range_start_inclusive"]),
        ("TR", {"range_percentage_gt": 5, "range_start_inclusive": 0}, ["range_end_inclusive"]),
        ("TR", RANGE, ["at least one", "range_percentage_lt"]),
        ("TR", {"max_min_gt": 1, **RANGE}, ["range_start_inclusive", "range_percentage_lt or range_percentage_gt"]),
        (
            "TR",
            {"range_percentage_gt": 5, "range_start_inclusive": 2.5, "range_end_inclusive": 1},
            ["range_start_inclusive (2.5)", "range_end_inclusive (1)"],
        ),
        ("WNC", {"rtol": -1e-9}, ["rtol", "0 or greater"]),
        ("WNC", {"atol": -1}, ["atol"]),
        ("WNC", {"equal_nan": True}, ["equal_nan", "false"]),
        ("WNC", {"equal_nan": 0}, ["equal_nan", "int"]),
        ("WCL", {"epsilon": -1}, ["epsilon"]),
        ("max_gt", {}, ["at least one", "param"]),
    ],
)
def test_a_wrong_value_is_refused_by_name(condition: str, values: dict[str, float], words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        ConditionCheck(condition, values)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("condition", "values"),
    [
        ("TL", {"max_gt": -1e308, "min_gt": 5, "mean_gt": np.float32(0.5), "abs_mean_gt": 0}),
        ("TZ", {"zero_percentage_ge": 0}),
        ("TZ", {"zero_percentage_ge": 100}),
        ("TR", {"max_min_gt": 0, "max_min_lt": 5e-324}),
        ("TR", {"range_percentage_gt": 0, "range_percentage_lt": 100, **RANGE}),
        ("AR", {"range_percentage_gt": 50, "range_start_inclusive": 0, "range_end_inclusive": 0}),
        ("WNC", {"rtol": 0, "atol": 0, "equal_nan": False}),
        ("WCL", {"abs_mean_update_ratio_gt": np.int64(3), "epsilon": 0}),
        ("sd_lt", {"param": -3}),
    ],
)
def test_values_at_the_edge_of_their_range_are_accepted(condition: str, values: dict[str, float]) -> None:
    check = ConditionCheck(condition, values)
    assert {name: check.values[name] for name in values} == values


def test_defaults_fill_in_what_is_not_given() -> None:
    assert dict(ConditionCheck("WNC").values) == {"rtol": 1e-5, "atol": 1e-8, "equal_nan": False}
    assert dict(ConditionCheck("WCL").values) == {"abs_mean_update_ratio_gt": 0.1, "epsilon": 1e-9}
    assert dict(ConditionCheck("WCS").values) == {"abs_mean_update_ratio_lt": 1e-4, "epsilon": 1e-9}
    assert dict(ConditionCheck("TZ").values) == {"zero_percentage_ge": 100.0}
    assert dict(ConditionCheck("WI").values) == {"zero_percentage_ge": 100.0}


def test_a_given_threshold_switches_the_default_ones_off() -> None:
    assert dict(ConditionCheck("WI", {"max_gt": 3}).values) == {"max_gt": 3.0}


def test_the_order_of_values_is_the_declared_one_whatever_the_order_given() -> None:
    check = ConditionCheck("WNC", {"atol": 1, "rtol": 2})
    assert [name for name, _ in check.arguments] == ["rtol", "atol", "equal_nan"]
    assert check == ConditionCheck("weight_not_changed", {"rtol": 2, "atol": 1})
    assert hash(check) == hash(ConditionCheck("wnc", {"rtol": 2, "atol": 1}))


def test_the_drop_in_api_may_pass_values_outside_the_ranges_but_not_other_types_or_names() -> None:
    loose = ConditionCheck("TZ", {"zero_percentage_ge": -5}, strict=False)
    assert loose.values["zero_percentage_ge"] == -5.0
    assert math.isnan(ConditionCheck("TL", {"max_gt": math.nan}, strict=False).values["max_gt"])
    ConditionCheck("TR", {"range_percentage_gt": 1, "range_start_inclusive": 5, "range_end_inclusive": 1}, strict=False)
    for values in ({"nothing": 1}, {"max_gt": "1"}, {"max_gt": True}, {}):
        with pytest.raises(InputError):
            ConditionCheck("TL", values, strict=False)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "needs"),
    [
        ("TO", Needs(statistics=True)),
        ("TL(max_gt=1, mean_gt=2)", Needs(statistics=True)),
        ("TZ", Needs(statistics=True)),
        ("OO", Needs(overflow=True)),
        ("WNC", Needs(statistics=True, changes=True, atol=1e-8, rtol=1e-5)),
        ("WNC(rtol=0.5, atol=1)", Needs(statistics=True, changes=True, atol=1.0, rtol=0.5)),
        ("WCL", Needs(statistics=True, changes=True)),
        ("TR(max_min_gt=1)", Needs(statistics=True)),
        (
            "TR(range_percentage_gt=1, range_start_inclusive=-1, range_end_inclusive=0)",
            Needs(statistics=True, ranges=((-1.0, 0.0),)),
        ),
    ],
)
def test_a_check_knows_what_it_needs_to_read(text: str, needs: Needs) -> None:
    assert parse_check(text).needs == needs


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("TO", "hits when any element is NaN, +Inf or -Inf"),
        ("nan", "hits when any element is NaN"),
        ("inf", "hits when any element is +Inf or -Inf"),
        ("OO", "hits when the device reported an overflow of the operator"),
        ("TL(max_gt=1e3)", "hits when the largest element is greater than 1000"),
        (
            "TL(max_gt=1e3, mean_gt=0.5)",
            "hits when the largest element is greater than 1000, or the mean is greater than 0.5",
        ),
        ("TZ", "hits when the percentage of zeros is at least 100 %"),
        (
            "AR(range_start_inclusive=-1, range_end_inclusive=0, range_percentage_gt=99.9)",
            "hits when the percentage of elements from -1 to 0 is greater than 99.9 %",
        ),
        (
            "WNC(rtol=0.001)",
            "hits when no element differs from its previous value p by more than 1e-08 + 0.001 * abs(p)",
        ),
        ("sd_gt(param=2)", "hits when the standard deviation is greater than 2"),
    ],
)
def test_a_check_describes_itself_in_one_sentence(text: str, sentence: str) -> None:
    assert describe(parse_check(text)) == sentence
