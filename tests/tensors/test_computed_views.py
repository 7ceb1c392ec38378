"""Views: what is computed of a tensor for a person, from memory or from a map of a file."""

from __future__ import annotations

import math
import sys
import time
from typing import TYPE_CHECKING, Any, get_args

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensight.errors import InputError
from tensight.tensors import (
    View,
    ViewKind,
    compute_view,
    difference,
    heat_map,
    histogram,
    layout,
    parse_slice,
    slice_text,
    statistics,
)
from tensight.tensors.differences import DifferenceReader
from tensight.tensors.histograms import histogram_of_segments
from tensight.tensors.views import SEARCHES

from .reference import as_doubles
from .strategies import DTYPES, arrays

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut tensors so small that tests see many segments, blocks and chunks."""
    from tensight.tensors import blocks, heat_maps, histograms, statistics_row

    for module in (layout, statistics_row, heat_maps, blocks):
        monkeypatch.setattr(module, "SEGMENT_ELEMENTS", 2 * layout.BLOCK)
    monkeypatch.setattr(histograms, "CHUNK", 64)


# the part that is shown ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "limit", "part", "shown"),
    [
        ((), 10, "[]", ()),
        ((7,), 10, "[:]", (7,)),
        ((7,), 3, "[0:3]", (3,)),
        ((4, 5), 100, "[:, :]", (4, 5)),
        ((2, 3, 4, 5), 100, "[0, 0, :, :]", (4, 5)),
        ((1000, 1000), 100, "[0:10, 0:10]", (10, 10)),
        ((3, 1000), 100, "[:, 0:33]", (3, 33)),
        ((1000, 3), 100, "[0:33, :]", (33, 3)),
        ((1000, 1000), 1, "[0:1, 0:1]", (1, 1)),
        ((0, 3), 10, "[:, :]", (0, 3)),
        ((0, 2, 3), 10, "[:, :, :]", (0, 2, 3)),
    ],
)
def test_without_a_slice_values_are_a_window_into_the_last_two_dimensions(
    shape: tuple[int, ...], limit: int, part: str, shown: tuple[int, ...]
) -> None:
    array = np.arange(math.prod(shape)).reshape(shape)
    found = compute_view(View("values", limit=limit), "current", array)
    assert (found.slice, found.shape, found.dtype) == (part, shape, "int64")
    assert found.array is not None
    assert found.array.shape == shown
    np.testing.assert_array_equal(found.array, array[parse_slice(part, shape)])


def test_a_slice_chooses_the_part_and_reads_back_the_same() -> None:
    array = np.arange(24).reshape(2, 3, 4)
    found = compute_view(View("values", "[ -1, ::-1 , 1:-1]"), "current", array)
    assert found.slice == "[1, 2::-1, 1:3]"
    np.testing.assert_array_equal(found.array, array[-1, ::-1, 1:-1])


@given(data=st.data(), shape=st.lists(st.integers(0, 6), max_size=4))
def test_the_text_of_a_slice_means_the_same_elements(data: st.DataObject, shape: list[int]) -> None:
    def entry(length: int) -> st.SearchStrategy[int | slice]:
        bound = st.none() | st.integers(-length, length)
        ranges = st.builds(slice, bound, bound, st.none() | st.integers(-7, 7).filter(bool))
        return ranges | st.integers(-length, length - 1) if length else ranges

    index = tuple(data.draw(entry(length)) for length in shape)
    array = np.arange(math.prod(shape)).reshape(shape)
    text = slice_text(index, shape)
    np.testing.assert_array_equal(array[parse_slice(text, shape)], array[index])
    assert slice_text(parse_slice(text, shape), shape) == text


@settings(deadline=None)
@given(array=arrays())
def test_values_of_every_dtype_come_back_as_they_are_in_native_order(array: np.ndarray) -> None:
    found = compute_view(View("values", "[" + ",".join(":" * array.ndim) + "]"), "current", array).array
    assert found is not None
    assert found.dtype == array.dtype.newbyteorder("=")
    assert found.flags.c_contiguous
    assert not np.shares_memory(found, array)
    assert found.astype(array.dtype).tobytes() == array.tobytes()


def test_more_elements_than_the_limit_are_refused_before_anything_is_read() -> None:
    array = np.zeros((100, 100))
    for which in ("current", "difference"):
        with pytest.raises(InputError, match="10,000 elements, at most 50 are shown"):
            compute_view(View("values", "[:, :]", limit=50, tolerance=0.5), which, array, array)


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "secrets"},
        {"kind": "values", "slice": ":," * 4000},
        {"kind": "values", "tolerance": math.nan},
        {"kind": "values", "tolerance": 1.1},
        {"kind": "heat_map", "rows": 0},
        {"kind": "heat_map", "columns": 4097},
        {"kind": "histogram", "bins": 10_001},
        {"kind": "values", "limit": 2**24 + 1},
        {"kind": "values", "limit": -1},
    ],
)
def test_a_view_that_cannot_be_is_refused_before_a_tensor_is_fetched(fields: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        View(**fields)


def test_a_view_says_which_value_is_missing() -> None:
    array = np.zeros(3)
    with pytest.raises(InputError, match="previous value of the tensor is not known"):
        compute_view(View("values"), "previous", array)
    with pytest.raises(InputError, match="current value of the tensor is not known"):
        compute_view(View("values"), "difference", None, array)
    with pytest.raises(InputError, match="choose current, previous, difference"):
        compute_view(View("values"), "next", array)  # type: ignore[arg-type]
    assert compute_view(View("statistics"), "previous", None, array).statistics == statistics(array)


# pictures, distributions, statistics ---------------------------------------------------------------------------------


def test_a_heat_map_shows_one_row_for_a_vector_and_one_cell_for_a_scalar() -> None:
    vector = compute_view(View("heat_map", columns=2), "current", np.array([1, -3, 2, 0]))
    assert vector.array is not None
    assert vector.array.tolist() == [[-3, 2]]
    scalar = compute_view(View("heat_map"), "current", np.float32(5))
    assert scalar.array is not None
    assert scalar.array.tolist() == [[5]]
    empty = compute_view(View("heat_map"), "current", np.zeros((0, 2, 3)))
    assert empty.array is not None
    assert empty.array.size == 0


def test_a_heat_map_of_three_dimensions_is_refused() -> None:
    with pytest.raises(InputError, match="choose a slice with two ranges"):
        compute_view(View("heat_map", "[:, :, :]"), "current", np.zeros((2, 2, 2)))


def _reference_cells(matrix: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Each cell by its definition, one by one."""
    height, width = min(matrix.shape[0], rows), min(matrix.shape[1], columns)
    picture = np.zeros((height, width), np.float32)
    for row in range(height):
        for column in range(width):
            top, bottom = (matrix.shape[0] * place // height for place in (row, row + 1))
            left, right = (matrix.shape[1] * place // width for place in (column, column + 1))
            cell = matrix[top:bottom, left:right].reshape(-1)
            nan = cell[np.isnan(cell)]
            picture[row, column] = nan[0] if nan.size else max(cell.tolist(), key=lambda value: (abs(value), value))
    return picture


@pytest.mark.usefixtures("small_segments")
@pytest.mark.parametrize("shape", [(1, 9000), (9000, 1), (130, 70), (3, 5000), (5000, 3)])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (7, 5), (64, 64)])
def test_a_heat_map_that_is_read_in_blocks_loses_nothing(shape: tuple[int, int], rows: int, columns: int) -> None:
    matrix = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
    matrix[shape[0] // 2, shape[1] // 3] = np.nan
    matrix[-1, -1] = -np.inf
    np.testing.assert_array_equal(heat_map(matrix, rows, columns), _reference_cells(matrix, rows, columns))


@settings(deadline=None)
@given(
    values=st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=300),
    bins=st.integers(1, 60),
)
def test_a_histogram_counts_as_a_search_among_its_edges_does(values: list[float], bins: int) -> None:
    array = np.array(values)
    found = histogram(array, bins)
    finite = array[np.isfinite(array)]
    places = np.minimum(np.searchsorted(found.edges, finite, side="right") - 1, bins - 1)
    assert found.counts.tolist() == np.bincount(places, minlength=bins).tolist()


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("given", [{}, {"low": -sys.float_info.max}, {"high": sys.float_info.max}])
def test_edges_around_the_largest_double_are_finite(given: dict[str, float], sign: int) -> None:
    found = histogram(np.array([sign * sys.float_info.max] * 3), 4, **given)
    assert np.isfinite(found.edges).all()
    assert found.counts.sum() == 3


def test_values_on_the_edges_of_bins_are_counted_in_the_bin_above() -> None:
    edges = histogram(np.array([0.1, 0.7]), 10_000).edges
    assert histogram(edges, 10_000).counts.tolist() == [1] * 9_999 + [2]


def test_histograms_and_statistics_are_of_the_whole_tensor_or_of_the_slice() -> None:
    array = np.random.default_rng(1).standard_normal((3, 40, 50))
    whole = compute_view(View("histogram", bins=7), "current", array)
    assert whole.slice == "[:, :, :]"
    assert whole.histogram is not None
    assert whole.histogram.counts.tolist() == histogram(array, 7).counts.tolist()
    part = compute_view(View("statistics", "[1, :, 3]"), "current", array)
    assert part.statistics == statistics(array[1, :, 3])
    assert (part.array, part.histogram, part.previous_statistics) == (None, None, None)


# differences ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tolerance", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_difference_is_the_same_whole_in_parts_and_in_segments(
    dtype: np.dtype, tolerance: float, small_segments: None
) -> None:
    generator = np.random.default_rng(3)
    current, previous = ((generator.standard_normal((50, 100)) * 4).astype(np.float32).astype(dtype) for _ in range(2))
    whole = difference(current, previous, tolerance)

    def view(kind: str, part: str = "") -> Any:
        wanted = View(kind, part, tolerance=tolerance, rows=9, columns=8, bins=11)  # type: ignore[arg-type]
        return compute_view(wanted, "difference", current, previous)

    np.testing.assert_array_equal(view("values", "[3, 10:20]").array, whole.values[3, 10:20])
    np.testing.assert_array_equal(view("heat_map").array, heat_map(whole.values, 9, 8))
    assert view("histogram").histogram.counts.tolist() == histogram(whole.values, 11).counts.tolist()
    found = view("statistics")
    assert found.statistics == whole.statistics
    assert found.previous_statistics == statistics(previous)
    assert (found.dtype, found.shape) == (dtype.name, (50, 100))


def test_the_boundary_of_a_part_is_that_of_the_whole_tensor() -> None:
    current = np.array([[1.0, 2.0], [100.0, 0.0]])
    found = compute_view(View("values", "[0, :]", tolerance=0.015), "difference", current, np.zeros((2, 2)))
    assert found.array is not None
    assert found.array.tolist() == [0.0, 2.0]


def test_differences_too_large_for_a_double_do_not_set_the_boundary() -> None:
    current, previous = np.array([1e308, 10.0, 1.0]), np.array([-1e308, 0.0, 0.0])
    assert DifferenceReader.of(current, previous, 0.5).values().tolist() == [math.inf, 10.0, 0.0]
    nothing_finite = np.array([np.nan, np.inf])
    assert DifferenceReader.of(nothing_finite, nothing_finite, 0.5).boundary == 0.0


def test_a_difference_without_finite_values_has_a_histogram() -> None:
    reader = DifferenceReader.of(np.array([np.inf]), np.array([0.0]))
    found = histogram_of_segments(reader.segments(), reader.statistics(), 2)
    assert (found.counts.tolist(), found.edges.tolist()) == ([0, 0], [0.0, 0.5, 1.0])
    same = DifferenceReader.of(np.ones(3), np.ones(3))
    assert histogram_of_segments(same.segments(), same.statistics(), 1).counts.tolist() == [3]


@pytest.mark.parametrize("kind", get_args(ViewKind))
def test_tensors_of_different_shapes_cannot_be_compared(kind: str) -> None:
    with pytest.raises(InputError, match="cannot compare"):
        compute_view(View(kind), "difference", np.zeros((2, 3)), np.zeros((3, 2)))  # type: ignore[arg-type]


@settings(deadline=None)
@given(
    array=arrays(),
    kind=st.sampled_from(get_args(ViewKind)),
    part=st.text("[]0123:,-") | st.just(""),
    which=st.sampled_from(["current", "previous", "difference"]),
    tolerance=st.sampled_from([0.0, 0.5]),
)
def test_any_view_of_any_array_is_a_result_or_an_input_error(
    array: np.ndarray, kind: Any, part: str, which: Any, tolerance: float
) -> None:
    try:
        found = compute_view(View(kind, part, tolerance), which, array, array)
    except InputError:
        return
    assert found.shape == array.shape
    if found.array is not None or kind not in SEARCHES:
        assert array[parse_slice(found.slice, found.shape)].size <= array.size


# elements that are searched for, and maps of slices -------------------------------------------------------------------


def find(kind: Any, array: np.ndarray, part: str = "") -> tuple[int, ...] | None:
    """Return the index of the element that a search finds; it must be the one that the view shows."""
    found = compute_view(View(kind, part), "current", array)
    if found.array is None:
        assert found.slice == ""
        return None
    index = parse_slice(found.slice, array.shape)
    assert found.array.tobytes() == np.asarray(array[index]).astype(array.dtype.newbyteorder("=")).tobytes()
    return tuple(int(entry) for entry in index if isinstance(entry, int))


def _plain(array: np.ndarray) -> np.ndarray:
    """Return the numbers that stand for elements, in C order."""
    if array.dtype.kind == "b":
        return np.ascontiguousarray(array).view(np.uint8).reshape(-1) != 0
    return np.array(as_doubles(array)) if array.dtype.kind == "c" else array.reshape(-1)


@settings(deadline=None)
@given(array=arrays(), start=st.integers(0, 10**6))
def test_searches_find_what_looking_at_each_element_finds(array: np.ndarray, start: int) -> None:
    numbers = [value if value == value else math.nan for value in _plain(array).tolist()]
    odd = [place for place, value in enumerate(numbers) if not math.isfinite(value)]
    finite = [(abs(value), -place) for place, value in enumerate(numbers) if math.isfinite(value)]
    at = [tuple(map(int, index)) for index in np.ndindex(array.shape)]
    if array.dtype.kind != "c":  # of which magnitudes are rounded
        largest = at[-max(finite)[1]] if finite else None
        assert find("largest", array) == largest
        assert find("first", array) == (at[odd[0]] if odd else largest)
    if not at:
        assert find("next", array) is None
        return
    here = start % len(at)
    text = str(list(at[here]))
    behind = [place for place in odd if place > here] + [place for place in odd if place <= here]
    before = [place for place in odd if place < here][::-1] + [place for place in odd if place >= here][::-1]
    assert find("next", array, text) == (at[behind[0]] if odd else None)
    assert find("previous", array, text) == (at[before[0]] if odd else None)
    assert find("previous", array) == (at[odd[-1]] if odd else None)


@pytest.mark.usefixtures("small_segments")
@pytest.mark.parametrize("shape", [(9000,), (3, 5000), (5000, 3), (7, 3, 40, 50), (40, 50, 3, 3)])
def test_searches_go_from_block_to_block(shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(7).standard_normal(shape).astype(np.float32)
    size = array.size
    assert find("first", array) == np.unravel_index(np.abs(array).argmax(), shape)
    places = [size // 5, size // 5 + 1, size // 2, size - 1]
    array.reshape(-1)[places] = [np.nan, -np.inf, np.inf, np.nan]
    walked, text = [], ""
    for _ in range(5):
        found = find("next", array, text)
        assert found is not None
        walked.append(int(np.ravel_multi_index(found, shape)))
        text = str([int(entry) for entry in found])
    assert walked == [*places, places[0]]
    assert find("largest", array) == np.unravel_index(np.abs(np.where(np.isfinite(array), array, 0)).argmax(), shape)


def test_a_search_within_a_part_tells_where_it_is_in_the_whole() -> None:
    array = np.arange(120.0).reshape(4, 5, 6)
    array[3, 4, 5] = np.nan
    assert find("first", array, "[1, 4:1:-1, ::2]") == (1, 4, 4)
    assert find("first", array, "[-1, :, -1]") == (3, 4, 5)
    assert find("largest", array, "[:, :, 3:]") == (3, 4, 4)
    with pytest.raises(InputError, match="does not select one element"):
        compute_view(View("next", "[0, 0, :]"), "current", array)
    difference = compute_view(View("first"), "difference", array, np.zeros_like(array))
    assert (difference.slice, difference.array is not None and difference.array.dtype) == ("[3, 4, 5]", np.float64)


@pytest.mark.usefixtures("small_segments")
@pytest.mark.parametrize("which", ["current", "difference"])
@pytest.mark.parametrize(
    ("shape", "part", "rows", "columns"),
    [
        ((4, 3, 60, 50), "", 128, 128),
        ((4, 3, 60, 50), "[0, :, 0, 10:40:3]", 7, 11),
        ((30, 40, 3, 3), "", 9, 7),
        ((90, 20, 30), "[0, :, :]", 128, 16),
        ((5, 2, 7, 4, 4), "", 4, 3),
        ((6, 8), "[3, 2]", 4, 3),
    ],
)
def test_a_map_of_slices_tells_what_stands_out_in_each(
    shape: tuple[int, ...], part: str, rows: int, columns: int, which: Any
) -> None:
    array = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    array.reshape(-1)[[11, array.size // 2, array.size - 5]] = [np.nan, -np.inf, np.nan]
    view = View("slices", part, rows=rows, columns=columns)
    found = compute_view(view, which, array, np.zeros_like(array))
    index = parse_slice(found.slice, shape)
    chosen = [place for place, entry in enumerate(index) if isinstance(entry, int)]
    moved = np.moveaxis(array, chosen, range(len(chosen)))
    moved = moved[(*(slice(None),) * len(chosen), *(entry for entry in index if isinstance(entry, slice)))]
    across, down = shape[chosen[-1]], math.prod(shape[place] for place in chosen[:-1])
    slices = moved.reshape(down, across, -1).astype(float)
    height, width = min(down, rows), min(across, columns)
    assert found.array is not None
    assert found.array.shape == (3, height, width)
    extreme, non_finite, number = found.array
    for row, column in np.ndindex(height, width):
        down_range = range(down * row // height, down * (row + 1) // height)
        across_range = range(across * column // width, across * (column + 1) // width)
        cell = slices[down_range.start : down_range.stop, across_range.start : across_range.stop]
        assert non_finite[row, column] == (~np.isfinite(cell)).sum()
        expected = _reference_cells(cell.reshape(1, -1).astype(np.float32), 1, 1)[0, 0]
        np.testing.assert_array_equal(np.float32(extreme[row, column]), expected)
        at = divmod(int(number[row, column]), across)
        assert at[0] in down_range
        assert at[1] in across_range
        assert (slices[at] == extreme[row, column]).any() or np.isnan(slices[at]).any()


def test_a_map_of_slices_needs_slices() -> None:
    for array, part in ((np.zeros((3, 4)), ""), (np.zeros((2, 3, 4)), "[:, :, :]"), (np.zeros(()), "")):
        with pytest.raises(InputError, match="needs dimensions that choose one"):
            compute_view(View("slices", part), "current", array)
    with pytest.raises(InputError, match="rows is 1025; give 1 to 1,024"):
        View("slices", rows=1025)
    empty = compute_view(View("slices", "[0, :]"), "current", np.zeros((2, 0))).array
    assert empty is not None
    assert empty.tolist() == [[[0.0, 0.0]], [[0.0, 0.0]], [[0.0, 1.0]]]


# large tensors --------------------------------------------------------------------------------------------------------


def test_a_window_into_a_file_of_a_gibibyte_opens_at_once(tmp_path: Path) -> None:
    file = tmp_path / "large.npy"
    np.lib.format.open_memmap(file, mode="w+", dtype=np.float32, shape=(4, 8192, 8192))  # a hole: it takes no space
    array = np.load(file, mmap_mode="r")
    views = (View("values"), View("values", "[2, 100:400, 5:305]"), View("heat_map", "[1, 0:256, 0:256]"))
    for view in views:
        for which in ("current", "difference"):
            took = []
            for _ in range(5):
                start = time.perf_counter()
                compute_view(view, which, array, array)
                took.append(time.perf_counter() - start)
            assert min(took) < 0.5, (view, which)


def test_views_of_bfloat16_keep_their_dtype() -> None:
    array = np.arange(4).astype(ml_dtypes.bfloat16)
    found = compute_view(View("values"), "current", array)
    assert found.array is not None
    assert (found.array.dtype, found.dtype) == (np.dtype(ml_dtypes.bfloat16), "bfloat16")
