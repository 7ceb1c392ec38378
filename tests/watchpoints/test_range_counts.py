"""Counts in a value range that come from statistics alone are right, and are claimed only where they are known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensight.watchpoints import range_count_bounds, range_count_from_statistics
from tests.watchpoints.brute_force_rows import columns_for, count_in_range

special = [0.0, -0.0, 5e-324, -5e-324, 1.0, -1.0, 2.5, -2.5, 1.7e308, -1.7e308, math.inf, -math.inf]
bounds = st.sampled_from(special) | st.floats(allow_nan=False)
elements = st.sampled_from([*special, math.nan]) | st.floats()


@given(st.lists(elements, max_size=6), bounds, bounds)
def test_bounds_hold_and_known_counts_are_exact(values: list[float], start: float, end: float) -> None:
    x = np.array(values, np.float64)
    with np.errstate(all="raise"):
        columns = columns_without_sums(x)
        low, high = range_count_bounds(columns, start, end)
        counts, known = range_count_from_statistics(columns, start, end)
    true = count_in_range(x, start, end)
    assert low[0] <= true <= high[0]
    assert counts[0] == (true if known[0] else -1)


def columns_without_sums(x: np.ndarray) -> dict[object, np.ndarray]:
    finite = x[np.isfinite(x)]
    row = {
        "neg_inf_count": np.sum(x == -np.inf),
        "pos_inf_count": np.sum(x == np.inf),
        "zero_count": np.sum(finite == 0),
        "negative_count": np.sum(finite < 0),
        "positive_count": np.sum(finite > 0),
        "min": finite.min() if finite.size else math.nan,
        "max": finite.max() if finite.size else math.nan,
    }
    return {key: np.array([value]) for key, value in row.items()}


@pytest.mark.parametrize(
    ("values", "start", "end", "count"),
    [
        ([1.0, 2.0, 3.0], 1.0, 3.0, 3),  # all inside, both ends inclusive
        ([1.0, 2.0, 3.0], 4.0, 9.0, 0),  # disjoint
        ([-3.0, -1.0, 0.0, 2.0], -3.0, 0.0, 3),  # the end is zero
        ([-3.0, -1.0, 0.0, 2.0], 0.0, 5.0, 2),  # the start is zero
        ([-3.0, 0.0, -0.0, 2.0], 0.0, 0.0, 2),  # zeros only
        ([0.0, 0.0, 7.0], -1.0, 0.0, 2),  # what a ReLU puts out
        ([math.inf, -math.inf, math.nan, 1.0], 0.0, math.inf, 2),
        ([math.inf, -math.inf, math.nan, 1.0], -math.inf, 0.0, 1),
        ([5.0, 5.0], 5.0, 5.0, 2),  # one value only
        ([math.nan, math.nan], -1.0, 1.0, 0),
        ([], -1.0, 1.0, 0),
        ([1.0], 3.0, 1.0, 0),  # an upside-down range holds nothing
    ],
)
def test_what_the_row_determines_needs_no_reading(values: list[float], start: float, end: float, count: int) -> None:
    counts, known = range_count_from_statistics(columns_for([np.array(values)]), start, end)
    assert (known[0], counts[0]) == (True, count)


def test_a_range_that_cuts_through_the_values_has_to_be_counted() -> None:
    counts, known = range_count_from_statistics(columns_for([np.array([1.0, 2.0, 3.0])]), 1.5, 2.5)
    assert (known[0], counts[0]) == (False, -1)


def test_a_count_that_was_made_is_used_and_a_negative_one_means_not_made() -> None:
    columns = columns_for([np.array([1.0, 2.0, 3.0])] * 2)
    columns["in_range", 1.5, 2.5] = np.array([1, -1])
    counts, known = range_count_from_statistics(columns, 1.5, 2.5)
    assert known.tolist() == [True, False]
    assert counts.tolist() == [1, -1]
