"""The catalogue holds the original's conditions exactly, and users' own beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tensight.errors import InputError
from tensight.watchpoints import (
    CONDITIONS,
    QUANTITIES,
    Comparator,
    Condition,
    ConditionCheck,
    Parameter,
    ParameterKind,
    Platform,
    Target,
    ValueRange,
    advice,
    condition,
    conditions_by_wire_number,
    evaluate,
    parse_check,
    register,
    unregister,
)
from tensight.watchpoints.quantities import Source
from tensight.watchpoints.recorded import BOUNDS
from tests.watchpoints.brute_force_rows import columns_for

if TYPE_CHECKING:
    from collections.abc import Iterator

WEIGHT, GRADIENT, ACTIVATION, TENSOR = "weight", "gradient", "activation", "tensor"
LARGE = ["abs_mean_gt", "max_gt", "min_gt", "mean_gt"]
SMALL = ["abs_mean_lt", "max_lt", "min_lt", "mean_lt"]
RANGE = [
    "range_start_inclusive",
    "range_end_inclusive",
    "range_percentage_lt",
    "range_percentage_gt",
    "max_min_lt",
    "max_min_gt",
]
# The original's table: id, abbreviation, wire number, target, parameters in wire order.
ORIGINAL = [
    ("weight_initialization", "WI", 14, WEIGHT, ["zero_percentage_ge", "max_gt", "min_lt"]),
    ("weight_overflow", "WO", 13, WEIGHT, []),
    ("weight_too_large", "WL", 15, WEIGHT, LARGE),
    ("weight_too_small", "WS", 16, WEIGHT, SMALL),
    ("weight_not_changed", "WNC", 20, WEIGHT, ["rtol", "atol", "equal_nan"]),
    ("weight_change_too_large", "WCL", 18, WEIGHT, ["abs_mean_update_ratio_gt", "epsilon"]),
    ("weight_change_too_small", "WCS", 19, WEIGHT, ["abs_mean_update_ratio_lt", "epsilon"]),
    ("gradient_exploding", "GE", 13, GRADIENT, []),
    ("gradient_too_large", "GL", 15, GRADIENT, LARGE),
    ("gradient_vanishing", "GV", 16, GRADIENT, SMALL),
    ("activation_range", "AR", 21, ACTIVATION, RANGE),
    ("tensor_overflow", "TO", 13, TENSOR, []),
    ("operator_overflow", "OO", 2, TENSOR, []),
    ("tensor_too_large", "TL", 15, TENSOR, LARGE),
    ("tensor_too_small", "TS", 16, TENSOR, SMALL),
    ("tensor_all_zero", "TZ", 17, TENSOR, ["zero_percentage_ge"]),
    ("tensor_range", "TR", 21, TENSOR, RANGE),
    ("nan", "", 0, TENSOR, []),
    ("inf", "", 1, TENSOR, []),
    ("max_gt", "", 3, TENSOR, ["param"]),
    ("max_lt", "", 4, TENSOR, ["param"]),
    ("min_gt", "", 5, TENSOR, ["param"]),
    ("min_lt", "", 6, TENSOR, ["param"]),
    ("max_min_gt", "", 7, TENSOR, ["param"]),
    ("max_min_lt", "", 8, TENSOR, ["param"]),
    ("mean_gt", "", 9, TENSOR, ["param"]),
    ("mean_lt", "", 10, TENSOR, ["param"]),
    ("sd_gt", "", 11, TENSOR, ["param"]),
    ("sd_lt", "", 12, TENSOR, ["param"]),
]

OWN = [
    ("dead_units", "DU", 1000, ACTIVATION, ["dead_unit_percentage_gt", "zeros_of_unit", "unit_size"]),
    (
        *("saturated_units", "SU", 1001, ACTIVATION),
        [*RANGE[:2], "saturated_unit_percentage_gt", "outside_of_unit", "unit_size"],
    ),
    ("weights_differ", "WD", 1002, WEIGHT, []),
    ("unintended_overflow", "UO", 1003, TENSOR, []),
    ("weight_growth", "WG", 1004, WEIGHT, ["norm_growth_gt"]),
    ("gradient_growth", "GG", 1005, GRADIENT, ["norm_surge_gt"]),
    ("gradient_imbalance", "GI", 1006, GRADIENT, ["depth_ratio_gt", "depth_ratio_lt"]),
    ("unintended_zeros", "UZ", 1007, TENSOR, ["unintended_zero_percentage_ge"]),
]


def test_the_catalogue_is_the_originals_with_conditions_of_ours_beside_them() -> None:
    declared = [
        (c.id, c.abbreviation, c.wire_number, c.target.value, [p.name for p in c.parameters])
        for c in CONDITIONS.values()
    ]
    assert declared == ORIGINAL + OWN
    assert {c.id for c in CONDITIONS.values() if c.legacy} == {row[0] for row in ORIGINAL[17:]}
    assert {c.id for c in CONDITIONS.values() if c.is_own} == {row[0] for row in OWN}


def test_ranges_defaults_and_kinds_are_the_originals() -> None:
    check, support, hidden = ParameterKind.CHECK, ParameterKind.SUPPORT, ParameterKind.HIDDEN
    finite, not_negative = ValueRange.FINITE, ValueRange.NOT_NEGATIVE
    expected = {
        "zero_percentage_ge": (check, ValueRange.PERCENTAGE, 100.0),
        "unintended_zero_percentage_ge": (check, ValueRange.PERCENTAGE, 100.0),
        "abs_mean_gt": (check, not_negative, None),
        "abs_mean_lt": (check, not_negative, None),
        "rtol": (check, not_negative, 1e-5),
        "atol": (hidden, not_negative, 1e-8),
        "equal_nan": (hidden, ValueRange.FALSE, False),
        "abs_mean_update_ratio_gt": (check, not_negative, 0.1),
        "abs_mean_update_ratio_lt": (check, not_negative, 1e-4),
        "epsilon": (hidden, not_negative, 1e-9),
        "range_start_inclusive": (support, finite, None),
        "range_end_inclusive": (support, finite, None),
        "range_percentage_lt": (check, ValueRange.PERCENTAGE, None),
        "range_percentage_gt": (check, ValueRange.PERCENTAGE, None),
        "max_min_lt": (check, ValueRange.POSITIVE, None),
        "max_min_gt": (check, not_negative, None),
        "dead_unit_percentage_gt": (check, ValueRange.PERCENTAGE, 50.0),
        "zeros_of_unit": (hidden, ValueRange.PERCENTAGE, 100.0),
        "saturated_unit_percentage_gt": (check, ValueRange.PERCENTAGE, 50.0),
        "outside_of_unit": (hidden, ValueRange.PERCENTAGE, 90.0),
        "unit_size": (hidden, not_negative, 8.0),
        "norm_growth_gt": (check, ValueRange.POSITIVE, 10.0),
        "norm_surge_gt": (check, ValueRange.POSITIVE, 100.0),
        "depth_ratio_gt": (check, ValueRange.POSITIVE, 1000.0),
        "depth_ratio_lt": (check, not_negative, 1e-5),
    }
    for declared in CONDITIONS.values():
        for p in declared.parameters:
            assert (p.kind, p.values, p.default) == expected.get(p.name, (check, finite, None)), p.name


def test_comparators_follow_the_names() -> None:
    signs = {"gt": Comparator.GREATER, "lt": Comparator.LESS, "ge": Comparator.AT_LEAST}
    for declared in CONDITIONS.values():
        for p in declared.checks:
            suffix = (declared.id if p.name == "param" else p.name).rpartition("_")[2]
            assert p.comparator is signs.get(suffix, Comparator.AT_MOST)


def test_only_operator_overflow_is_bound_to_a_platform() -> None:
    bound = {c.id: c.platforms for c in CONDITIONS.values() if c.platforms != frozenset(Platform)}
    assert bound == {"operator_overflow": frozenset({Platform.ASCEND})}


def test_names_are_found_in_any_case_and_by_abbreviation() -> None:
    for name in ("TL", "tl", "tensor_too_large", "Tensor_Too_Large", " TL "):
        assert condition(name) is CONDITIONS["tensor_too_large"]
    with pytest.raises(InputError, match="no condition 'TQ'"):
        condition("TQ")


def test_a_wire_number_names_the_condition_for_any_tensor_first() -> None:
    assert [c.id for c in conditions_by_wire_number(13)] == ["tensor_overflow", "weight_overflow", "gradient_exploding"]
    assert [c.id for c in conditions_by_wire_number(3)] == ["max_gt"]
    assert conditions_by_wire_number(99) == ()


@pytest.fixture
def own() -> Iterator[Condition]:
    declared = register(
        Condition(
            "gradient_norm_too_large",
            "GNL",
            Target.GRADIENT,
            (
                Parameter(
                    "l2_norm_gt",
                    values=ValueRange.NOT_NEGATIVE,
                    default=1.0,
                    quantity=QUANTITIES["l2_norm"],
                    comparator=Comparator.GREATER,
                ),
            ),
            meaning="The norm of a gradient exceeds the limit.",
        )
    )
    yield declared
    unregister(declared.id)


def test_a_registered_condition_is_a_condition_like_the_others(own: Condition) -> None:
    assert list(CONDITIONS)[-1] == "gradient_norm_too_large"
    assert parse_check("gnl(l2_norm_gt=5)") == ConditionCheck(own, {"l2_norm_gt": 5})
    assert parse_check("GNL").text == "gradient_norm_too_large(l2_norm_gt=1)"
    assert advice("GNL").summary == own.meaning
    assert advice("GNL").steps
    columns = columns_for([np.array([3.0, 4.0]), np.array([0.5])])
    assert evaluate(parse_check("GNL"), columns).actual["l2_norm_gt"].tolist() == [5.0, 0.5]


def test_an_unregistered_condition_is_gone(own: Condition) -> None:
    unregister(own.id)
    with pytest.raises(InputError):
        condition("GNL")
    register(own)


@pytest.mark.parametrize(
    ("name", "abbreviation"), [("tensor_overflow", ""), ("mine", "TL"), ("mine", "nan"), ("tl", "")]
)
def test_a_name_that_is_taken_is_refused(name: str, abbreviation: str) -> None:
    with pytest.raises(InputError, match="already names"):
        register(Condition(name, abbreviation, Target.TENSOR, flag=QUANTITIES["nan_count"]))
    assert "mine" not in CONDITIONS


def test_built_in_and_unknown_conditions_cannot_be_unregistered() -> None:
    with pytest.raises(InputError, match="built in"):
        unregister("tensor_overflow")
    with pytest.raises(InputError, match="no condition"):
        unregister("mine")


def test_a_declaration_that_cannot_work_is_refused() -> None:
    threshold = Parameter("a_gt", quantity=QUANTITIES["max"], comparator=Comparator.GREATER)
    flag = QUANTITIES["nan_count"]
    with pytest.raises(InputError, match="id 'Bad Name'"):
        Condition("Bad Name", "", Target.TENSOR, flag=flag)
    with pytest.raises(InputError, match="abbreviation"):
        Condition("good", "no good", Target.TENSOR, flag=flag)
    with pytest.raises(InputError, match="twice"):
        Condition("good", "", Target.TENSOR, (threshold, threshold))
    with pytest.raises(InputError, match="not both"):
        Condition("good", "", Target.TENSOR, (threshold,), flag=flag)
    with pytest.raises(InputError, match="not both"):
        Condition("good", "", Target.TENSOR)
    lonely = Parameter("a_gt", quantity=flag, comparator=Comparator.GREATER, requires=("start",))
    with pytest.raises(InputError, match="requires undeclared start"):
        Condition("good", "", Target.TENSOR, (lonely,))
    with pytest.raises(InputError, match="quantity and a comparator"):
        Parameter("a_gt")
    with pytest.raises(InputError, match="quantity and a comparator"):
        Parameter("a_gt", ParameterKind.HIDDEN, quantity=flag, comparator=Comparator.GREATER)
    with pytest.raises(InputError, match="lower-case"):
        Parameter("A", ParameterKind.SUPPORT)
    with pytest.raises(InputError, match="default"):
        Parameter("a", ParameterKind.HIDDEN, ValueRange.POSITIVE, 0.0)


def test_each_quantity_of_statistics_has_bounds_for_those_that_are_incomplete() -> None:
    # Without them, a condition of recorded statistics silently remains undecided.
    of_statistics = {name for name, quantity in QUANTITIES.items() if quantity.source is Source.STATISTICS}
    assert of_statistics - BOUNDS.keys() == set()
