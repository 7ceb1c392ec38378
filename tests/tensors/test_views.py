"""Slices, histograms, heat maps and differences: what a person looks at."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensight.errors import InputError
from tensight.tensors import difference, heat_map, histogram, parse_slice, statistics

from .reference import as_doubles
from .strategies import DTYPES, arrays

# slices ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shape", "index"),
    [
        ("[0, :, -1, 0:8]", (1, 2, 3, 9), (0, slice(None), -1, slice(0, 8))),
        ("0,:", (4, 4), (0, slice(None))),
        ("[ 1:3 ,::2 ]", (4, 4), (slice(1, 3), slice(None, None, 2))),
        ("[-4:4]", (4,), (slice(-4, 4),)),
        ("[::-1]", (4,), (slice(None, None, -1),)),
        ("[:]", (0,), (slice(None),)),
        ("[]", (), ()),
        ("", (), ()),
    ],
)
def test_a_slice_is_what_numpy_takes(text: str, shape: tuple[int, ...], index: tuple[object, ...]) -> None:
    assert parse_slice(text, shape) == index
    np.zeros(shape)[parse_slice(text, shape)]


@pytest.mark.parametrize(
    ("text", "shape", "message"),
    [
        ("[0, 3]", (2, 3), "index 3 is outside dimension 1: give -3 to 2"),
        ("[-3, 0]", (2, 3), "index -3 is outside dimension 0: give -2 to 1"),
        ("[0:9]", (4,), "9 in '0:9' is outside dimension 0: give -4 to 4"),
        ("[0]", (2, 3), "has 1 entries, the tensor has 2 dimensions"),
        ("[0, 0]", (), "has 2 entries, the tensor has 0 dimensions"),
        ("[x]", (3,), "'x' for dimension 0 is not an index"),
        ("[]", (3,), "give one entry for each"),
        ("[0,]", (3, 3), "'' for dimension 1 is not an index"),
        ("[1:2:3:4]", (3,), "give an index, start:end"),
        ("[::0]", (3,), "is 0; give another"),
        ("[0", (3,), "only one bracket"),
        ("[0]", (0,), "it has no elements"),
        ("[\u0663]", (9,), "is not an index"),
        ("[" + "9" * 5000 + "]", (9,), "is not an index"),
    ],
)
def test_a_wrong_slice_names_the_dimension_and_its_range(text: str, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(InputError) as error:
        parse_slice(text, shape)
    assert message in str(error.value)
    assert len(str(error.value)) < 300


@given(text=st.text(alphabet="[]0123456789-+:, x") | st.text(), shape=st.lists(st.integers(0, 9), max_size=3))
def test_any_text_is_a_valid_index_or_an_input_error(text: str, shape: list[int]) -> None:
    try:
        index = parse_slice(text, shape)
    except InputError:
        return
    np.zeros(shape)[index]


# histograms -----------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(array=arrays(), bins=st.integers(1, 50))
def test_every_finite_value_is_in_one_bin(array: np.ndarray, bins: int) -> None:
    found = histogram(array, bins)
    finite = [value for value in as_doubles(array) if math.isfinite(value)]
    assert found.counts.sum() == len(finite)
    assert found.edges.shape == (bins + 1,)
    assert (np.diff(found.edges) >= 0).all()
    if finite and min(finite) < max(finite):
        assert (found.edges[0], found.edges[-1]) == (min(finite), max(finite))


def test_bins_contain_their_lower_edge_and_the_last_one_its_upper() -> None:
    found = histogram(np.array([0, 1, 1, 2, 3, 4, np.nan, np.inf]), bins=4)
    assert found.counts.tolist() == [1, 2, 1, 2]
    assert found.edges.tolist() == [0, 1, 2, 3, 4]


def test_values_outside_given_edges_are_not_counted() -> None:
    assert histogram(np.arange(100), bins=2, low=10, high=20).counts.tolist() == [5, 6]


def test_a_constant_tensor_has_a_histogram() -> None:
    found = histogram(np.full(7, 1e9, np.float32), bins=3)
    assert found.counts.tolist() == [0, 7, 0]


@pytest.mark.parametrize(
    "arguments", [{"bins": 0}, {"bins": 10**9}, {"low": math.nan}, {"high": math.inf}, {"low": 2, "high": 1}]
)
def test_a_histogram_that_cannot_be_is_refused(arguments: dict[str, float]) -> None:
    with pytest.raises(InputError):
        histogram(np.arange(3), **arguments)


# heat maps ------------------------------------------------------------------------------------------------------------


def test_a_cell_shows_the_largest_magnitude_with_its_sign() -> None:
    array = np.zeros((100, 60), np.float16)
    array[3, 3], array[4, 4], array[99, 59] = 2, -5, 1
    picture = heat_map(array, 10, 6)
    assert picture.shape == (10, 6)
    assert (picture[0, 0], picture[-1, -1], np.count_nonzero(picture)) == (-5, 1, 2)


def test_a_single_nan_or_infinity_stays_visible_in_a_large_matrix() -> None:
    array = np.ones((1000, 1000), np.float32)
    array[500, 500], array[1, 1], array[999, 0] = np.nan, np.inf, -np.inf
    picture = heat_map(array, 20, 20)
    assert math.isnan(picture[10, 10])
    assert (picture[0, 0], picture[-1, 0]) == (math.inf, -math.inf)
    assert np.isfinite(picture).sum() == 397


def test_a_small_matrix_is_shown_as_it_is() -> None:
    array = np.arange(6).reshape(2, 3)
    assert heat_map(array, 100, 100).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert heat_map(np.zeros((0, 3)), 5, 5).shape == (0, 3)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_has_a_heat_map(dtype: np.dtype) -> None:
    array = np.array([[1, 0], [0, 1]]).astype(dtype)
    picture = heat_map(array.T, 2, 2)
    assert picture.dtype == np.float32
    assert picture.tolist() == [[1, 0], [0, 1]]


def test_large_finite_doubles_do_not_look_infinite() -> None:
    assert heat_map(np.array([[1e300, -1e300, np.inf]]), 1, 3).tolist() == [
        [float(np.finfo(np.float32).max), -float(np.finfo(np.float32).max), math.inf]
    ]


@pytest.mark.parametrize(("shape", "rows"), [((3,), 2), ((2, 2, 2), 2), ((3, 3), 0), ((3, 3), 10**6)])
def test_a_heat_map_that_cannot_be_is_refused(shape: tuple[int, ...], rows: int) -> None:
    with pytest.raises(InputError):
        heat_map(np.zeros(shape), rows, 2)


# differences ----------------------------------------------------------------------------------------------------------


def test_a_difference_is_current_minus_previous_with_statistics_of_all_three() -> None:
    current, previous = np.array([1, 5, 3], np.float32), np.array([1, 2, 5], np.float32)
    found = difference(current, previous)
    assert found.values.tolist() == [0, 3, -2]
    assert (found.current, found.previous) == (statistics(current), statistics(previous))
    assert (found.statistics.max, found.statistics.zero_count, found.statistics.mean) == (3, 1, pytest.approx(1 / 3))


def test_differences_within_the_tolerance_become_zero() -> None:
    found = difference(np.array([1.0, -4.0, 10.0, np.nan]), np.zeros(4), tolerance=0.4)
    assert found.boundary == 4.0
    np.testing.assert_array_equal(found.values, [0, 0, 10, np.nan])


def test_unsigned_and_small_types_do_not_wrap() -> None:
    assert difference(np.array([0], np.uint8), np.array([1], np.uint8)).values.tolist() == [-1]
    assert difference(np.array([False]), np.array([True])).values.tolist() == [-1]
    brain = ml_dtypes.bfloat16
    assert difference(np.array([1], brain), np.array([3], brain)).values.tolist() == [-2]


def test_infinities_of_the_same_sign_differ_by_nan() -> None:
    found = difference(np.array([np.inf, np.inf], np.float32), np.array([np.inf, 1], np.float32), tolerance=1)
    np.testing.assert_array_equal(found.values, [np.nan, np.inf])


def test_scalars_can_be_compared() -> None:
    assert difference(np.float32(3), np.float32(1), tolerance=1).values == 0


@pytest.mark.parametrize(
    ("current", "previous", "tolerance"),
    [
        (np.zeros(3), np.zeros(4), 0),
        (np.zeros(3), np.zeros(3, np.float32), 0),
        (np.zeros(3), np.zeros(3), 2),
        (np.zeros(3), np.zeros(3), math.nan),
        (np.array(["a"]), np.array(["a"]), 0),
    ],
)
def test_what_cannot_be_compared_is_refused(current: np.ndarray, previous: np.ndarray, tolerance: float) -> None:
    with pytest.raises(InputError):
        difference(current, previous, tolerance)
