from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tensight.errors import InputError
from tensight.tensors import SEGMENT_ELEMENTS, changes, merge_changes, scan_change_segment, scan_changes

from . import reference
from .strategies import REAL_DTYPES, arrays

if TYPE_CHECKING:
    from collections.abc import Iterator

BOTH_WAYS = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@BOTH_WAYS
@given(data=st.data(), size=st.integers(0, 40), atol=st.sampled_from([0.0, 1e-8, 0.5]))
def test_changes_of_any_two_dtypes_are_those_of_exact_arithmetic(
    way: str, data: st.DataObject, size: int, atol: float
) -> None:
    current, previous = data.draw(arrays(REAL_DTYPES, (size,))), data.draw(arrays(REAL_DTYPES, (size,)))
    if data.draw(st.booleans()):
        previous = np.where(np.arange(size) % 3 > 0, current, np.ones(size, current.dtype)).astype(current.dtype)
    found, expected = changes(current, previous, atol=atol), reference.change_row(current, previous, atol)
    for name, value in expected.items():
        assert getattr(found, name) == pytest.approx(value, rel=1e-12, abs=0, nan_ok=True), name


@pytest.mark.parametrize("dtype", [np.dtype(np.float16), reference.BFLOAT16, *reference.FLOAT8], ids=str)
@pytest.mark.parametrize("size", [63, 64, 65, 1000, 2100])
def test_changes_of_narrow_floats_are_those_of_exact_arithmetic(way: str, dtype: np.dtype[Any], size: int) -> None:
    values = [(np.random.default_rng(seed).standard_normal(size) * 3).astype(dtype) for seed in (0, 1)]
    values[1][::7] = values[0][::7]
    found, expected = changes(*values, atol=0.5), reference.change_row(*values, 0.5)
    for name, value in expected.items():
        assert getattr(found, name) == pytest.approx(value, rel=1e-12, abs=0), name


@BOTH_WAYS
@given(data=st.data(), rtol=st.sampled_from([0.0, 1e-5, 0.01, 1.0]))
def test_required_rtol_gives_the_verdict_of_comparing_every_element(way: str, data: st.DataObject, rtol: float) -> None:
    previous = data.draw(arrays([np.dtype(np.float32)], (20,)))
    factor = data.draw(st.sampled_from([np.float32(1), np.float32(1.0001), np.float32(2)]))
    with np.errstate(over="ignore"):
        current = previous * factor
    found = changes(current, previous)
    if math.isnan(found.required_rtol):
        assert not np.isfinite([current, previous]).all()
        return
    x, p = current.astype(np.float64), previous.astype(np.float64)
    margin = np.abs(x - p) - (1e-8 + rtol * np.abs(p))
    if np.abs(margin).min() > 1e-15 * np.abs(p).max():  # at the boundary itself rounding decides
        assert (found.required_rtol <= rtol) == bool((margin <= 0).all())


def test_an_unchanged_tensor_requires_no_tolerance(way: str) -> None:
    array = np.linspace(-1, 1, 3000, dtype=np.float32)
    found = changes(array, array)
    assert (found.mean_abs_change, found.max_abs_change, found.l2_change, found.required_rtol) == (0, 0, 0, 0)
    assert found.update_ratio == 0


def test_a_zero_that_changed_needs_an_infinite_tolerance(way: str) -> None:
    assert changes(np.array([1.0]), np.array([0.0])).required_rtol == math.inf


def test_the_update_ratio_divides_by_the_mean_size_before(way: str) -> None:
    found = changes(np.array([1.0, -3.0], np.float32), np.array([0.0, -1.0], np.float32))
    assert found.update_ratio == pytest.approx(1.5 / (0.5 + 1e-9))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_non_finite_element_on_either_side_makes_the_tolerance_nan(way: str, bad: float) -> None:
    sick, healthy = np.ones(2000, np.float16), np.full(2000, 2, np.float16)
    sick[1500] = bad
    for found in (changes(sick, healthy), changes(healthy, sick)):
        assert math.isnan(found.required_rtol)
        assert found.mean_abs_change == pytest.approx(1.0)
        assert found.complete


@pytest.mark.parametrize("size", [1e300, 1e-200])
def test_extreme_float64_changes_keep_their_norm(way: str, size: float) -> None:
    found = changes(np.array([3.0, 0.0]) * size, np.array([0.0, 4.0]) * size, atol=0)
    assert found.l2_change == pytest.approx(5 * size)
    assert found.mean_abs_change == pytest.approx(3.5 * size)


def test_complex_changes_are_magnitudes_of_differences(way: str) -> None:
    found = changes(np.array([3 + 4j, 1], np.complex64), np.array([0, 1], np.complex64))
    assert (found.mean_abs_change, found.max_abs_change, found.mean_abs_previous) == (2.5, 5.0, 0.5)


def test_large_tensors_are_compared_segment_by_segment(way: str) -> None:
    previous = np.random.default_rng(0).standard_normal(2 * SEGMENT_ELEMENTS + 5).astype(np.float32)
    current = previous * np.float32(1.01)
    found = changes(current, previous)
    x, p = current.astype(np.float64), previous.astype(np.float64)
    assert found.count == previous.size
    assert found.mean_abs_change == pytest.approx(np.abs(x - p).mean(), rel=1e-12)
    assert found.l2_change == pytest.approx(np.linalg.norm(x - p), rel=1e-12)
    assert found.max_abs_change == np.abs(x - p).max()


def test_reading_stops_once_the_tolerance_is_exceeded(way: str) -> None:
    read = []

    def pairs() -> Iterator[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
        for number in range(5):
            read.append(number)
            yield np.full(10, 1.0 + (number == 1)), np.ones(10)

    found = scan_changes(pairs(), atol=1e-8, stop_above=1e-5)
    assert read == [0, 1]
    assert (found.complete, found.count) == (False, 20)
    assert found.required_rtol == pytest.approx(1.0)
    assert math.isnan(found.mean_abs_change)


def test_the_order_of_segments_does_not_matter(way: str) -> None:
    random = np.random.default_rng(1)
    parts = [scan_change_segment(random.random(100), random.random(100), atol=0.0) for _ in range(5)]
    assert merge_changes(parts, atol=0.0) == merge_changes(reversed(parts), atol=0.0)


def test_different_element_counts_are_refused() -> None:
    with pytest.raises(InputError, match="cannot compare 3 elements with 4"):
        changes(np.zeros(3), np.zeros(4))


@pytest.mark.parametrize("atol", [-1.0, math.nan])
def test_a_tolerance_that_is_none_is_refused(atol: float) -> None:
    with pytest.raises(InputError, match="atol"):
        changes(np.zeros(3), np.zeros(3), atol=atol)
