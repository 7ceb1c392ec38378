from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tensight.tensors import SEGMENT_ELEMENTS, merge, scan_segment
from tensight.tensors.statistics_row import segments_of

from . import reference
from .strategies import arrays

BOUNDS = st.floats() | st.sampled_from([0.0, -0.0, 1.0, -1.0, 65504.0, 3.4028235e38, 1e300, -1e300, 0.1, 1e-46, -1e-46])


def counts_in(array: np.ndarray, *ranges: tuple[float, float]) -> tuple[int, ...]:
    parts = [scan_segment(segment, index, ranges) for index, segment in enumerate(segments_of(array))]
    return merge(parts, dtype=array.dtype, shape=array.shape)[1]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(array=arrays(), first=st.tuples(BOUNDS, BOUNDS), second=st.tuples(BOUNDS, BOUNDS))
def test_ranges_include_both_ends_compared_as_doubles(
    way: str, array: np.ndarray, first: tuple[float, float], second: tuple[float, float]
) -> None:
    if array.size:
        expected = tuple(reference.in_range(array, *bounds) for bounds in (first, second))
        assert counts_in(array, first, second) == expected


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_infinite_bounds_include_infinities_and_never_nan(way: str, dtype: type) -> None:
    array = np.array([np.nan, -np.nan, -np.inf, -1, -0.0, 0.0, 1, np.inf], dtype)
    everything = (-math.inf, math.inf)
    assert counts_in(array, everything, (0.0, math.inf), (-math.inf, -0.0), (math.nan, 1), (2, 1)) == (6, 4, 4, 0, 0)


@pytest.mark.parametrize("dtype", reference.FLOAT8, ids=str)
def test_every_8_bit_float_is_in_the_ranges_that_it_is_in(way: str, dtype: np.dtype[Any]) -> None:
    array = np.arange(256, dtype=np.uint8).view(dtype)
    for bounds in ((0.0, 2**-9), (-1.75, 448.0), (-math.inf, -(2**-16)), (57344.0, math.inf)):
        assert counts_in(array, bounds) == (reference.in_range(array, *bounds),)


def test_a_bound_between_two_float32_is_not_rounded_to_one_of_them(way: str) -> None:
    array = np.array([0.1], np.float32)  # a little above the double 0.1
    assert counts_in(array, (0.0, 0.1), (0.1, 1.0)) == (0, 1)


def test_ranges_add_up_over_segments(way: str) -> None:
    array = np.arange(SEGMENT_ELEMENTS + 100, dtype=np.int64)
    assert counts_in(array, (SEGMENT_ELEMENTS - 10, SEGMENT_ELEMENTS + 9)) == (20,)
