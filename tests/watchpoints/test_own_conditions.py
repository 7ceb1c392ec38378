"""The conditions that the original does not have: what they compute, and what statistics alone decide."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tensight.tensors import unit_percentage, unit_size
from tensight.watchpoints import (
    ConditionCheck,
    Status,
    UnitRule,
    advice,
    condition,
    describe,
    evaluate,
    parse_check,
    recommended_watchpoints,
)
from tensight.watchpoints.references import EARLIER, FEWEST_EARLIER, LAST_LAYER, PREVIOUS, SURGE_STEPS, References
from tests.watchpoints.brute_force_rows import columns_for

DEAD = UnitRule(0.0, 0.0, False, 100.0)
SATURATED = UnitRule(-0.9, 0.9, True, 90.0)
SATURATED_TEXT = "saturated_units(range_start_inclusive=-0.9, range_end_inclusive=0.9, saturated_unit_percentage_gt={})"


def percentage_of(array: NDArray[Any], rule: UnitRule) -> float:
    return unit_percentage(array, rule.start, rule.end, outside=rule.outside, percentage=rule.percentage)


def with_units(arrays: list[NDArray[Any]], rule: UnitRule) -> dict[Any, NDArray[Any]]:
    columns = columns_for(arrays)
    columns[rule] = np.array([percentage_of(array, rule) for array in arrays])
    columns["unit_size"] = np.array([unit_size(array.shape) for array in arrays])
    return columns


def test_units_are_channels_of_pictures_and_features_of_everything_else() -> None:
    pictures = np.ones((3, 4, 5, 6))
    pictures[:, 1] = 0
    assert percentage_of(pictures, DEAD) == 25.0
    assert unit_size(pictures.shape) == 3 * 5 * 6
    rows = np.ones((7, 3, 10))
    rows[..., :5] = 0
    assert percentage_of(rows, DEAD) == 50.0
    assert unit_size(rows.shape) == 21
    assert np.isnan(percentage_of(np.float32(0)[...], DEAD))
    assert unit_size(()) == unit_size((0, 3)) == 0


def test_a_unit_that_lives_for_one_sample_of_many_is_not_dead() -> None:
    rows = np.zeros((100_000, 8), np.float32)
    rows[-1, 3] = 1
    rows[50_000, 4] = np.nan
    assert percentage_of(rows, DEAD) == 75.0


def test_a_unit_is_saturated_if_most_of_its_elements_are() -> None:
    rows = np.zeros((10, 4))
    rows[:9, 0] = 0.95
    rows[:8, 1] = 0.95
    rows[:, 2] = [1, -1] * 5
    assert percentage_of(rows, SATURATED) == 50.0


@given(
    st.integers(1, 6).flatmap(
        lambda units: st.lists(
            st.lists(st.sampled_from([0.0, 0.0, 0.5, -1.0, 1.0]), min_size=units, max_size=units),
            min_size=8,
            max_size=12,
        )
    ),
    st.sampled_from([0.0, 10.0, 40.0, 60.0, 99.0]),
)
def test_statistics_alone_never_decide_otherwise_than_the_elements(rows: list[list[float]], threshold: float) -> None:
    array = np.array(rows)
    for text, rule in (
        (f"dead_units(dead_unit_percentage_gt={threshold})", DEAD),
        (SATURATED_TEXT.format(threshold), SATURATED),
    ):
        check = parse_check(text)
        assert check.needs.units == (rule,)
        counted = evaluate(check, with_units([array], rule))
        columns = columns_for([array])
        guessed = evaluate(check, columns)
        assert guessed.undecided[0] or guessed.hit[0] == counted.hit[0]
        assert counted.hit[0] == (percentage_of(array, rule) > threshold)


def test_few_zeros_decide_that_few_units_are_dead() -> None:
    check = parse_check("dead_units(dead_unit_percentage_gt=50)")
    mostly_alive, all_dead = np.ones((10, 10)), np.zeros((10, 10))
    mostly_alive[:4] = 0
    verdict = evaluate(check, columns_for([mostly_alive, all_dead]))
    assert verdict.hit.tolist() == [False, True]
    assert not verdict.undecided.any()


def test_units_of_few_elements_are_not_judged() -> None:
    small = np.zeros((4, 10))
    assert not evaluate(parse_check("DU"), with_units([small], DEAD)).hit[0]
    assert evaluate(ConditionCheck("DU", {"unit_size": 2}), with_units([small], DEAD)).hit[0]


def test_an_overflow_is_unintended_unless_a_mask_put_it_there() -> None:
    arrays = [np.array([-np.inf, 1]), np.array([-np.inf, 1]), np.array([-np.inf, np.nan]), np.array([np.inf, 1])]
    columns = columns_for(arrays)
    columns["masked"] = np.array([True, False, True, True])
    assert evaluate(parse_check("UO"), columns).hit.tolist() == [False, True, True, True]
    del columns["masked"]
    assert evaluate(parse_check("UO"), columns).hit.all()


def test_zeros_are_unintended_unless_they_were_handed_on() -> None:
    columns = columns_for([np.zeros(16), np.zeros(16), np.ones(16), np.array([])])
    columns["propagated"] = np.array([False, True, True, True])
    assert evaluate(parse_check("UZ"), columns).hit.tolist() == [True, False, False, False]
    assert evaluate(parse_check("TZ"), columns).hit.tolist() == [True, True, False, False]
    assert evaluate(parse_check("DU(dead_unit_percentage_gt=50)"), columns).hit.tolist() == [True, False, False, False]
    del columns["propagated"]
    assert evaluate(parse_check("UZ"), columns).hit.tolist() == [True, True, False, False]


def test_ranks_that_differ_hit() -> None:
    columns = {"differs": np.array([0, 1])}
    assert evaluate(parse_check("WD"), columns).hit.tolist() == [False, True]


def step(references: References, norms: list[float], depths: list[float] | None = None) -> list[float]:
    values = np.array(norms)
    places = np.arange(len(norms))
    found = references.step(
        places,
        values,
        np.full(len(norms), 4),
        np.isfinite(values),
        np.array(depths if depths is not None else [np.nan] * len(norms)),
    )
    return [float(value) for value in found]


def test_a_norm_grows_from_the_one_before_but_not_from_nothing() -> None:
    references = References(PREVIOUS)
    assert np.isnan(step(references, [2.0, 0.0, 3.0])).all()
    found = step(references, [2.5, 0.01, 3.0])
    assert found[0] == 2.0
    assert found[2] == 3.0
    # A weight that begins at zero is compared with a tenth of what is usual.
    assert found[1] == pytest.approx(0.3)


def test_a_norm_surges_above_the_largest_of_all_some_steps_before() -> None:
    references = References(EARLIER)
    # The first steps say little: clipping may have left nothing of these gradients beside that of a vector.
    assert np.isnan(step(references, [1e-4, 1e-6])).all()
    for number in range(SURGE_STEPS + FEWEST_EARLIER - 2):
        assert np.isnan(step(references, [10.0 - number, 1.0])).all()
    assert step(references, [1e6, 1.0]) == [10.0, 10.0]
    assert step(references, [1e6, 1.0]) == [10.0, 10.0]


def test_a_norm_of_a_layer_is_compared_with_that_of_the_last_one() -> None:
    references = References(LAST_LAYER)
    assert step(references, [1.0, 2.0, 4.0], [0, 5, 9]) == [4.0, 4.0, 4.0]
    assert step(references, [1.0, 2.0, 4.0], [0, 9, 5]) == [2.0, 2.0, 2.0]
    assert np.isnan(step(references, [1.0, 2.0], [0, np.nan])).all()
    assert np.isnan(step(references, [1.0, np.nan], [0, 1])).all()


def test_a_tiny_norm_is_not_judged_where_layers_further_from_the_loss_have_larger_ones() -> None:
    references = References(LAST_LAYER)
    alone = step(references, [0.5, 1e-12, 1.0], [0, 5, 9])
    assert alone[0] == alone[2] == 1.0
    assert np.isnan(alone[1])
    assert step(references, [1e-13, 1e-12, 1.0], [0, 5, 9]) == [1.0, 1.0, 1.0]
    # No gradient at all is another thing.
    assert step(references, [0.5, 0.0, 1.0], [0, 5, 9]) == [1.0, 1.0, 1.0]


def test_ratios_hit_on_both_sides_and_not_without_a_reference() -> None:
    arrays = [np.array([1e5]), np.array([1e-9]), np.array([1.0]), np.array([1e5])]
    columns = columns_for(arrays)
    columns["reference", LAST_LAYER] = np.array([1.0, 1.0, 1.0, np.nan])
    verdict = evaluate(parse_check("gradient_imbalance"), columns)
    assert verdict.hit.tolist() == [True, True, False, False]
    assert verdict.parameter_hit["depth_ratio_gt"].tolist() == [True, False, False, False]
    assert not evaluate(parse_check("WG"), columns).hit.any()
    assert evaluate(parse_check("WG"), columns).status.tolist() == [Status.EVALUATED] * 4


def test_checks_of_ours_are_said_in_words_with_advice() -> None:
    assert "50 %" in describe(parse_check("DU"))
    assert "-0.9 to 0.9" in describe(parse_check(SATURATED_TEXT.format(50)))
    for name in ("DU", "SU", "WD", "UO", "WG", "GG", "GI", "UZ"):
        assert len(advice(name).steps) >= 2
        assert advice(condition(name)) == advice(name)
    assert advice(parse_check("DU")) == advice("DU")


def test_the_set_for_running_trainings_judges_hidden_layers_and_asks_for_persistence() -> None:
    points = recommended_watchpoints(live=True, initial=True, first_id=5)
    assert [point.id for point in points] == list(range(5, 5 + len(points)))
    named = {point.check.condition.id: point for point in points}
    assert str(named["unintended_zeros"].selection) == "hidden"
    assert str(named["weight_initialization"].selection) == "inner_matrices"
    assert str(named["dead_units"].selection).startswith("hidden_activation:")
    assert named["unintended_overflow"].persistence == 1
    assert all(named[name].persistence > 1 for name in ("dead_units", "saturated_units", "gradient_imbalance"))
    assert "weight_initialization" not in {p.check.condition.id for p in recommended_watchpoints(live=True)}
