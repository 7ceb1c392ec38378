"""Verdicts over columns agree with verdicts over whole tensors, and say what they could not check."""

from __future__ import annotations

import math
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensight.errors import InputError
from tensight.tensors import statistics
from tensight.watchpoints import (
    CONDITIONS,
    Comparator,
    Condition,
    ConditionCheck,
    ErrorCode,
    Parameter,
    Quantity,
    Status,
    Target,
    evaluate,
    parse_check,
)
from tests.watchpoints.brute_force_rows import (
    as_doubles,
    columns_for,
    original_actual,
    original_verdict,
    statistics_row,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tests.watchpoints.brute_force_rows import Array

random = np.random.default_rng(20230401)

TENSORS: dict[str, tuple[Array, Array | None]] = {
    "normal float32": (random.normal(size=(3, 5)).astype(np.float32), random.normal(size=(3, 5)).astype(np.float32)),
    "float16": (random.normal(size=40).astype(np.float16), np.ones(40, np.float16)),
    "float64": (random.normal(size=(2, 2, 2)) * 1e100, random.normal(size=(2, 2, 2)) * 1e100),
    "scalar": (np.array(3.5), np.array(3.5)),
    "int8": (np.array([-128, 0, 127], np.int8), np.array([-128, 1, 127], np.int8)),
    "uint64": (np.array([0, 2**63], np.uint64), np.array([1, 2**63], np.uint64)),
    "bool": (np.array([True, False, True]), np.array([True, False, True])),
    "all zero": (np.zeros((4, 4)), np.zeros((4, 4))),
    "negative zero": (np.array([-0.0, 0.0]), np.array([0.0, -0.0])),
    "from zero": (np.full(4, 0.5), np.zeros(4)),
    "barely changed": (np.array([1.0, -2.0]) * (1 + 5e-6), np.array([1.0, -2.0])),
    "changed a little": (np.array([1.0, -2.0]) * (1 + 5e-5), np.array([1.0, -2.0])),
    "all negative": (np.array([-3.0, -2.5]), np.array([-3.0, -2.5])),
    "one NaN": (np.array([1.0, np.nan, 0.0]), np.ones(3)),
    "one Inf": (np.array([1.0, -np.inf]), np.ones(2)),
    "NaN and Inf": (np.array([np.inf, np.nan]), np.ones(2)),
    "previous NaN": (np.ones(3), np.array([1.0, np.nan, 1.0])),
    "previous Inf": (np.ones(3), np.array([1.0, 1.0, np.inf])),
    "previous larger": (np.ones(3), np.ones(4)),
    "no previous": (np.ones(3), None),
    "no previous, NaN": (np.array([np.nan, 1.0]), None),
    "empty": (np.zeros((0, 4), np.float32), None),
    "huge range": (np.array([-8e307, 8e307]), np.array([-8e307, 8e307])),
}
THRESHOLDS = (-1.0, 0.0, 1e-4, 0.5, 100.0)


def settings() -> list[ConditionCheck]:
    """Every threshold of every condition at several values, and all thresholds of a condition together."""
    checks = []
    for condition in (condition for condition in CONDITIONS.values() if not condition.is_own):
        if condition.wire_number == 2:
            continue
        if condition.flag is not None:
            checks.append(ConditionCheck(condition))
            continue
        for threshold in THRESHOLDS:
            together: dict[str, float | bool] = {}
            for parameter in condition.checks:
                if parameter.values.contains(threshold):
                    support = dict(zip(parameter.requires, (-1.0, 0.5), strict=False))
                    checks.append(ConditionCheck(condition, {parameter.name: threshold, **support}))
                    together |= {parameter.name: threshold, **support}
            if sum(parameter.name in together for parameter in condition.checks) > 1:
                checks.append(ConditionCheck(condition, together))
    return checks


def settings_of(condition_id: str) -> list[ConditionCheck]:
    return [check for check in settings() if check.condition.id == condition_id]


CHECKED = sorted({check.condition.id for check in settings()})


@pytest.mark.parametrize("condition_id", CHECKED)
def test_report_mode_decides_as_the_original_does(condition_id: str) -> None:
    for check in settings_of(condition_id):
        assert_decides_as_the_original(check)


def assert_decides_as_the_original(check: ConditionCheck) -> None:
    ranges = check.needs.ranges
    columns = columns_for([x for x, _ in TENSORS.values()], [p for _, p in TENSORS.values()], ranges=ranges)
    evaluation = evaluate(check, columns, non_finite="report")
    assert not evaluation.undecided.any()
    for row, (name, (x, p)) in enumerate(TENSORS.items()):
        hit, code, actual, hits = original_verdict(
            check.condition.wire_number or 0, check.condition.id, check.values, x, p
        )
        assert evaluation.hit[row] == hit, name
        assert evaluation.error_code[row] == code, name
        assert evaluation.reported[row] == (hit or code != 0), name
        assert {k: bool(v[row]) for k, v in evaluation.parameter_hit.items()} == hits, name
        assert {k: float(v[row]) for k, v in evaluation.actual.items()} == pytest.approx(actual, rel=1e-12), name


@pytest.mark.parametrize("condition_id", CHECKED)
def test_evaluate_mode_judges_the_finite_elements(condition_id: str) -> None:
    for check in settings_of(condition_id):
        if not check.needs.changes:  # the finite elements of two steps are a matter of the change statistics
            assert_judges_finite_elements(check)


def assert_judges_finite_elements(check: ConditionCheck) -> None:
    columns = columns_for([x for x, _ in TENSORS.values()], ranges=check.needs.ranges)
    evaluation = evaluate(check, columns)
    for row, (name, (tensor, _)) in enumerate(TENSORS.items()):
        x = as_doubles(tensor)
        code = int(np.isnan(x).any()) * ErrorCode.NAN | int(np.isinf(x).any()) * ErrorCode.INF
        assert evaluation.error_code[row] == code, name
        if check.condition.flag is not None:
            hit = original_verdict(check.condition.wire_number or 0, "", {}, tensor, None)[0]
            assert evaluation.hit[row] == hit, name
        elif (finite := x[np.isfinite(x)]).size:
            hit, _, actual, hits = original_verdict(
                check.condition.wire_number or 0, check.condition.id, check.values, finite, None
            )
            assert evaluation.hit[row] == hit, name
            assert {k: bool(v[row]) for k, v in evaluation.parameter_hit.items()} == hits, name
            assert {k: float(v[row]) for k, v in evaluation.actual.items()} == pytest.approx(actual, rel=1e-12), name
        else:
            assert not evaluation.hit[row], name
            assert all(np.isnan(v[row]) for v in evaluation.actual.values()), name
            assert evaluation.status[row] == (Status.NOT_FINITE if x.size else Status.EMPTY), name
        assert evaluation.reported[row] == evaluation.hit[row], name


elements = st.floats(width=32) | st.sampled_from([0.0, -0.0, 1.0, -1.0, math.nan, math.inf, -math.inf])


@given(st.lists(elements, max_size=8), st.sampled_from(settings()), st.sampled_from(["evaluate", "report"]))
def test_any_tensor_is_judged_as_by_brute_force(values: list[float], check: ConditionCheck, mode: Any) -> None:
    x = np.array(values, np.float64)
    finite = x[np.isfinite(x)]
    evaluation = evaluate(check, columns_for([x], [x]), non_finite=mode)
    if evaluation.undecided[0]:
        assert check.needs.ranges
        evaluation = evaluate(check, columns_for([x], [x], ranges=check.needs.ranges), non_finite=mode)
    assert not evaluation.undecided[0]
    judged = x if mode == "report" or check.condition.flag is not None else finite
    hit, code, *_ = original_verdict(check.condition.wire_number or 0, check.condition.id, check.values, judged, judged)
    if check.needs.changes and finite.size != x.size:
        hit = False
    assert (bool(evaluation.hit[0]), int(evaluation.error_code[0])) == (
        hit,
        code if mode == "report" else evaluation.error_code[0],
    )


def test_a_nan_does_not_hide_another_sickness() -> None:
    columns = columns_for([np.array([np.nan, 0.0, 0.0]), np.array([np.inf, 1e9])])
    zeros = evaluate(parse_check("TZ"), columns)
    assert zeros.hit.tolist() == [True, False]
    assert zeros.actual["zero_percentage_ge"].tolist() == [100.0, 0.0]
    large = evaluate(parse_check("TL(max_gt=1e6)"), columns)
    assert large.hit.tolist() == [False, True]
    assert large.error_code.tolist() == [ErrorCode.NAN, ErrorCode.INF]


@pytest.mark.parametrize("mode", ["evaluate", "report"])
def test_a_missing_previous_value_is_an_error_code_and_never_a_hit(mode: Any) -> None:
    columns = columns_for([np.ones(2)] * 2, [None, np.ones(2)])
    for text in ("WNC", "WCL(abs_mean_update_ratio_gt=0)", "WCS"):
        evaluation = evaluate(parse_check(text), columns, non_finite=mode)
        assert not evaluation.hit[0]
        assert evaluation.error_code.tolist() == [ErrorCode.NO_PREVIOUS, 0]
        assert evaluation.status.tolist() == [Status.NO_PREVIOUS, Status.EVALUATED]
        assert evaluation.not_checked.tolist() == [True, False]
        assert evaluation.reported[0] == (mode == "report")


@pytest.mark.parametrize("mode", ["evaluate", "report"])
def test_a_previous_value_of_another_size_is_no_hit_and_not_silent(mode: Any) -> None:
    evaluation = evaluate(parse_check("WNC"), columns_for([np.ones(2)], [np.ones(3)]), non_finite=mode)
    assert evaluation.status.tolist() == [Status.DIFFERENT_SIZE]
    assert not evaluation.reported[0]
    assert evaluation.not_checked[0]


@pytest.mark.parametrize("mode", ["evaluate", "report"])
def test_an_empty_tensor_is_skipped_by_every_condition(mode: Any) -> None:
    columns = columns_for([np.zeros(0)], overflowed=[True])
    for check in [*settings(), parse_check("OO")]:
        evaluation = evaluate(check, columns, non_finite=mode)
        assert not evaluation.reported[0]
        assert evaluation.error_code[0] == 0
        assert evaluation.status[0] == Status.EMPTY
        assert not evaluation.not_checked[0]


@pytest.mark.parametrize("mode", ["evaluate", "report"])
def test_operator_overflow_follows_the_device_whatever_the_values(mode: Any) -> None:
    columns = columns_for([np.ones(1), np.array([np.nan]), np.ones(1)], overflowed=[True, True, False])
    evaluation = evaluate(parse_check("OO"), columns, non_finite=mode)
    assert evaluation.hit.tolist() == [True, True, False]
    only = evaluate(parse_check("OO"), {"overflowed": np.array([True, False])}, non_finite=mode)
    assert only.hit.tolist() == [True, False]


def test_epsilon_counts_except_under_the_originals_rule() -> None:
    columns = columns_for([np.full(2, 2.0)], [np.full(2, 1.0)])
    check = parse_check("WCL(abs_mean_update_ratio_gt=0.5, epsilon=3)")
    ours, original = evaluate(check, columns), evaluate(check, columns, non_finite="report")
    assert ours.actual["abs_mean_update_ratio_gt"].tolist() == [0.25]
    assert not ours.hit[0]
    assert original.actual["abs_mean_update_ratio_gt"].tolist() == [1.0 / (1.0 + 1e-9)]
    assert original.hit[0]


def test_unchanged_reports_the_needed_tolerance_except_under_the_originals_rule() -> None:
    columns = columns_for([np.array([1.0 + 2**-20])], [np.array([1.0])])
    ours = evaluate(parse_check("WNC"), columns)
    assert ours.actual["rtol"][0] == pytest.approx(2**-20 - 1e-8)
    assert ours.parameter_hit["rtol"][0]
    original = evaluate(parse_check("WNC"), columns, non_finite="report")
    assert original.hit[0]
    assert (original.actual["rtol"][0], original.parameter_hit["rtol"][0]) == (0.0, False)


def changes(**columns: Any) -> dict[Any, NDArray[Any]]:
    row = statistics_row(np.ones(4)) | {"has_previous": True, "mean_abs_change": math.nan, "mean_abs_previous": 1.0}
    return {key: np.array([value]) for key, value in (row | columns).items()}


def test_a_scan_that_stopped_early_decides_only_what_it_proves() -> None:
    check = parse_check("WNC")
    beyond = evaluate(check, changes(required_rtol=1e-3, complete=False))
    assert (beyond.hit[0], beyond.undecided[0]) == (False, False)
    within = evaluate(check, changes(required_rtol=1e-6, complete=False))
    assert (within.hit[0], within.undecided[0]) == (False, True)
    nothing_seen = evaluate(check, changes(required_rtol=math.nan, complete=False))
    assert (nothing_seen.hit[0], nothing_seen.undecided[0]) == (False, True)
    finished = evaluate(check, changes(required_rtol=1e-6, complete=True))
    assert (finished.hit[0], finished.undecided[0]) == (True, False)
    ratio = evaluate(parse_check("WCL"), changes(required_rtol=1e-3, complete=False))
    assert (ratio.hit[0], ratio.undecided[0]) == (False, True)


def test_a_range_that_was_not_counted_is_decided_from_statistics_or_left_open() -> None:
    text = "range_start_inclusive=-1, range_end_inclusive=0"
    columns = columns_for([np.array([-5.0, -0.5, 3.0, 4.0]), np.array([1.0, 2.0]), np.array([-0.5, 0.0])])
    low = evaluate(parse_check(f"TR({text}, range_percentage_gt=50)"), columns)
    # Of four elements at most the two negative ones lie in the range: not more than 50 %, without reading the tensor.
    assert low.undecided.tolist() == [False, False, False]
    assert low.hit.tolist() == [False, False, True]
    open_ = evaluate(parse_check(f"TR({text}, range_percentage_gt=20)"), columns)
    assert open_.undecided.tolist() == [True, False, False]
    columns["in_range", -1.0, 0.0] = np.array([1, -1, -1])
    read = evaluate(parse_check(f"TR({text}, range_percentage_gt=20)"), columns)
    assert read.hit.tolist() == [True, False, True]
    assert read.actual["range_percentage_gt"].tolist() == [25.0, 0.0, 100.0]


def test_a_range_without_one_bound_counts_finite_elements_and_without_both_says_nothing() -> None:
    columns = columns_for([np.array([-1.0, 2.0, np.inf])])
    loose = {"range_percentage_gt": 40.0}
    half = ConditionCheck("TR", loose | {"range_start_inclusive": 0.0}, strict=False)
    assert evaluate(half, columns).actual["range_percentage_gt"].tolist() == [50.0]
    neither = ConditionCheck("TR", loose, strict=False)
    for mode in ("evaluate", "report"):
        evaluation = evaluate(neither, columns_for([np.ones(2)]), non_finite=mode)  # type: ignore[arg-type]
        assert (evaluation.hit[0], evaluation.undecided[0], evaluation.error_code[0]) == (False, False, 0)


def test_a_hit_by_one_threshold_asks_for_the_actual_value_of_the_others() -> None:
    check = parse_check(
        "TR(range_start_inclusive=-1, range_end_inclusive=0, range_percentage_gt=60, max_min_gt=1)",
    )
    evaluation = evaluate(check, columns_for([np.array([-5.0, -0.5, 3.0, 4.0])]))
    assert evaluation.hit.tolist() == [True]
    assert evaluation.undecided.tolist() == [True]


def test_a_difference_beyond_the_largest_double_counts_as_large() -> None:
    row = statistics_row(np.ones(1)) | {"min": -1.7e308, "max": 1.7e308}
    columns = {key: np.array([value]) for key, value in row.items()}
    assert evaluate(parse_check("TR(max_min_gt=1e308)"), columns).hit.tolist() == [True]


def test_a_missing_column_is_named() -> None:
    columns = columns_for([np.ones(2)])
    del columns["abs_mean"]
    with pytest.raises(InputError, match="abs_mean"):
        evaluate(parse_check("TL(abs_mean_gt=1)"), columns)
    with pytest.raises(InputError, match="has_previous"):
        evaluate(parse_check("WNC"), {k: v for k, v in columns.items() if k != "has_previous"})


def test_columns_of_different_length_or_kind_are_refused() -> None:
    columns = columns_for([np.ones(2)])
    with pytest.raises(InputError, match="length"):
        evaluate(parse_check("TL(max_gt=1)"), columns | {"max": np.ones(2)})
    with pytest.raises(InputError, match="one number per tensor"):
        evaluate(parse_check("TL(max_gt=1)"), columns | {"max": np.array(["a"])})
    with pytest.raises(InputError, match="non_finite"):
        evaluate(parse_check("TL(max_gt=1)"), columns, non_finite="ignore")  # type: ignore[arg-type]


def test_no_rows_give_no_verdicts() -> None:
    columns = {key: values[:0] for key, values in columns_for([np.ones(2)]).items()}
    for check in settings():
        assert evaluate(check, columns).hit.shape == (0,)


def test_a_check_travels_to_another_process() -> None:
    for check in settings():
        assert pickle.loads(pickle.dumps(check)) == check  # noqa: S301 - our own bytes


def test_rows_of_the_statistics_room_are_judged_alike() -> None:
    arrays = [x for x, _ in TENSORS.values()]
    rows = [statistics(x).as_row() for x in arrays]
    measured = {name: np.array([row[name] for row in rows]) for name in statistics_row(np.ones(1))}
    for check in settings():
        if not check.needs.changes:
            expected, found = evaluate(check, columns_for(arrays)), evaluate(check, measured)
            assert found.hit.tolist() == expected.hit.tolist(), check
            assert found.status.tolist() == expected.status.tolist(), check
            assert found.error_code.tolist() == expected.error_code.tolist(), check


def norm_per_element(columns: Any, _: Any) -> NDArray[np.float64]:
    quotient: NDArray[np.float64] = columns["l2_norm"] / columns["count"]
    return quotient


def test_a_users_own_quantity_is_evaluated_like_the_built_in_ones() -> None:
    quantity = Quantity("norm_per_element", "‖x‖ / n", "the norm per element", norm_per_element, ("l2_norm", "count"))
    own = Condition(
        "norm_too_large",
        "NTL",
        Target.GRADIENT,
        (Parameter("norm_gt", quantity=quantity, comparator=Comparator.GREATER),),
    )
    evaluation = evaluate(ConditionCheck(own, {"norm_gt": 2}), columns_for([np.array([3.0]), np.zeros(0)]))
    assert evaluation.hit.tolist() == [True, False]
    assert evaluation.actual["norm_gt"][0] == 3.0


def test_the_actual_value_matches_the_documented_formula_for_a_changed_weight() -> None:
    x, p = random.normal(size=100), random.normal(size=100)
    evaluation = evaluate(parse_check("WCS(abs_mean_update_ratio_lt=100)"), columns_for([x], [p]))
    expected = original_actual("abs_mean_update_ratio_lt", x, p, {})
    assert evaluation.actual["abs_mean_update_ratio_lt"][0] == pytest.approx(expected, rel=1e-12)
