"""What a search watches for beside the recommended watchpoints."""

from __future__ import annotations

import pytest

from tensight.search.lost_trials import (
    GETS_NOWHERE,
    LEAST_MOVED,
    beginning_of,
    gets_on,
    gradients_zero,
    weights_still,
)
from tensight.watchpoints.checks import ConditionCheck
from tensight.watchpoints.watchpoint import Selector


@pytest.mark.parametrize(("steps", "beginning"), [(1, 10), (100, 10), (101, 11), (2000, 200)])
def test_the_beginning_is_a_tenth_and_no_less_than_ten_steps(steps: int, beginning: int) -> None:
    assert beginning_of(steps) == beginning


def test_a_pace_that_reaches_the_least_way_in_all_steps_is_enough() -> None:
    (threshold,) = weights_still(500).parameters.values()

    assert threshold * 500 == pytest.approx(LEAST_MOVED)
    assert weights_still(500).persistence == 50


def test_the_catalogue_knows_what_is_watched_for() -> None:
    recoveries = [gets_on(condition, 100) for condition in GETS_NOWHERE]
    for wanted in (gradients_zero(), weights_still(100), *recoveries):
        assert ConditionCheck(wanted.condition, wanted.parameters).condition.id == wanted.condition
        Selector.parse(wanted.on)
