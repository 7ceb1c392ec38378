"""Rows of statistics that are written in place are those of `tensors.statistics`."""

from __future__ import annotations

import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tensight.agents.core.columns import MOST_ROWS, NEVER, StatisticsColumns
from tensight.errors import InputError
from tensight.tensors import SEGMENT_ELEMENTS, TensorStatistics, native, statistics
from tests.agents.own_team import OwnTeam

if TYPE_CHECKING:
    from collections.abc import Sequence


BOTH_WAYS = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
DTYPES = [np.dtype(code) for code in ("?", "i1", "u2", "i4", "i8", "u8", "f2", "f4", "f8", "c8", "c16", ">f4", ">i2")]
EXTENSIONS = [np.dtype(getattr(ml_dtypes, name)) for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")]
ALL_DTYPES = [*DTYPES, *EXTENSIONS]


def at_address(array: np.ndarray[Any, Any], address: int) -> np.ndarray[Any, Any]:
    """Return a copy whose elements begin so many bytes behind a cache line."""
    memory = np.empty(array.nbytes + 128, np.uint8)
    begin = -memory.ctypes.data % 64 + address
    copy = memory[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


@pytest.fixture(params=[*native.instruction_sets(), "numpy"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("TENSIGHT_KERNELS", request.param)
    return str(request.param)


@st.composite
def tensors(draw: st.DrawFn) -> np.ndarray[Any, Any]:
    dtype = draw(st.sampled_from(ALL_DTYPES))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=6))
    array = draw(hnp.arrays(np.dtype(f"u{dtype.itemsize}") if dtype in EXTENSIONS else dtype, shape))
    array = at_address(array.view(dtype), draw(st.integers(0, 64)))
    if array.ndim > 1 and draw(st.booleans()):
        array = array.T[::2]
    return array


def assert_same(found: TensorStatistics | None, expected: TensorStatistics) -> None:
    assert found is not None
    for field in fields(TensorStatistics):
        mine, theirs = getattr(found, field.name), getattr(expected, field.name)
        both_nan = isinstance(mine, float) and math.isnan(mine) and math.isnan(theirs)
        assert both_nan or (mine == theirs and type(mine) is type(theirs)), (field.name, mine, theirs)


@BOTH_WAYS
@given(array=tensors())
def test_without_a_hash_everything_else_is_the_same(way: str, array: np.ndarray[Any, Any]) -> None:
    columns = StatisticsColumns()
    assert columns.scan(0, array, hashed=False)
    found, expected = columns.statistics(0), statistics(array)
    assert found is not None
    # A hash that was not asked for is the right one or none.
    assert found.content_hash in (0, expected.content_hash)
    assert_same(replace(found, content_hash=expected.content_hash), expected)


def test_a_hash_that_nobody_asked_for_is_not_taken_and_can_be_had_later() -> None:
    array = np.arange(SEGMENT_ELEMENTS + 5, dtype=np.float32)
    columns = StatisticsColumns()
    for slot_id, part in enumerate((array[:100], array)):
        columns.scan(slot_id, part, hashed=False)
        assert not columns.has_hash(slot_id)
        assert columns.take([slot_id]).hashes.tolist() == [0]
        columns.scan(slot_id, part)
        assert columns.has_hash(slot_id)
        assert columns.take([slot_id]).hashes.tolist() == [statistics(part).content_hash]


@BOTH_WAYS
@given(arrays=st.lists(tensors(), min_size=1, max_size=4))
def test_rows_are_those_of_the_statistics_of_each_array(way: str, arrays: Sequence[np.ndarray[Any, Any]]) -> None:
    columns = StatisticsColumns()
    for slot_id, array in enumerate(arrays):
        assert columns.scan(7 * slot_id, array)
    for slot_id, array in enumerate(arrays):
        assert_same(columns.statistics(7 * slot_id), statistics(array))


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=str)
@pytest.mark.parametrize("size", [0, 1, 1023, 1025, 2**16 + 1])
def test_rows_of_any_size_are_those_of_the_statistics(way: str, dtype: np.dtype[Any], size: int) -> None:
    raw = np.random.default_rng(size).bytes(size * dtype.itemsize)
    array = np.frombuffer(raw, np.uint8).view(dtype) if dtype.kind != "b" else np.frombuffer(raw, np.uint8) > 99
    columns = StatisticsColumns()
    assert columns.scan(0, array)
    assert_same(columns.statistics(0), statistics(array))


@pytest.mark.parametrize("dtype", ["f4", "f8", "i8", "?"])
def test_tensors_of_several_segments_are_put_together(dtype: str) -> None:
    array = (np.random.default_rng(1).standard_normal(2 * SEGMENT_ELEMENTS + 76) * 1e3).astype(dtype)
    columns = StatisticsColumns()
    assert columns.scan(0, array)
    assert columns.scan(1, array.reshape(-1, 3)[:, ::-1])
    assert columns.scan_address(2, array.ctypes.data, array.dtype.name, array.shape, array.size)
    expected = statistics(array)
    assert_same(columns.statistics(0), expected)
    assert_same(columns.statistics(1), statistics(array.reshape(-1, 3)[:, ::-1]))
    assert_same(columns.statistics(2), expected)


@pytest.mark.parametrize("size", [5, SEGMENT_ELEMENTS + 5])
@pytest.mark.parametrize("scale", [1e300, 1e-300, 5e-324])
def test_numbers_whose_squares_leave_the_range_of_doubles_have_statistics(way: str, scale: float, size: int) -> None:
    array = np.arange(-2, size - 2) % 7 * scale
    columns = StatisticsColumns()
    columns.scan(0, array)
    columns.scan(1, np.ones(3))
    assert_same(columns.statistics(0), statistics(array))
    assert_same(columns.statistics(1), statistics(np.ones(3)))
    columns.scan(0, np.ones(4))
    assert_same(columns.statistics(0), statistics(np.ones(4)))


@BOTH_WAYS
@given(array=tensors())
def test_elements_are_read_where_they_lie(way: str, array: np.ndarray[Any, Any]) -> None:
    plain = np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(array.shape)
    columns = StatisticsColumns()
    assert columns.scan_address(3, plain.ctypes.data, plain.dtype.name, plain.shape, plain.size)
    assert_same(columns.statistics(3), statistics(plain))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("dtype", [np.dtype("f4"), np.dtype("f2"), *EXTENSIONS, np.dtype("f8")], ids=str)
@pytest.mark.parametrize("size", [2**16 + 1, 10 * 2**15, SEGMENT_ELEMENTS, 2 * SEGMENT_ELEMENTS + 2**16 + 77])
@pytest.mark.parametrize("instructions", native.instruction_sets())
def test_rows_do_not_depend_on_how_many_threads_scan(
    dtype: np.dtype[Any], size: int, threads: int, instructions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSIGHT_KERNELS", instructions)
    values = np.random.default_rng(size).standard_normal(size).astype(dtype)
    values[[5, size // 2, -1]] = math.nan, -math.inf, math.inf
    columns, own = StatisticsColumns(), OwnTeam(threads)
    columns.team = own.team
    for slot_id, hashed in enumerate((True, False)):
        assert columns.scan(slot_id, values, hashed=hashed)
        assert columns.has_hash(slot_id) == hashed or dtype == np.float64
    expected = statistics(values)
    assert_same(columns.statistics(0), expected)
    found = columns.statistics(1)
    assert found is not None
    assert_same(replace(found, content_hash=expected.content_hash), expected)


@st.composite
def strided(draw: st.DrawFn) -> np.ndarray[Any, Any]:
    dtype = draw(st.sampled_from([np.dtype("f4"), np.dtype("f2"), *EXTENSIONS]))
    shape = draw(
        st.sampled_from([(3, 5), (64, 40), (1000, 17), (9, 4, 1, 130), (2, 3, 70, 64), (300, 256), (2, 2**17)])
    )
    values = np.random.default_rng(draw(st.integers(0, 9))).standard_normal(shape).astype(dtype)
    values = at_address(values, draw(st.integers(0, 64)))
    if draw(st.booleans()):
        values.flat[values.size // 3] = math.nan
    start = draw(st.integers(0, 2))
    values = values[start :: draw(st.integers(1, 2))].transpose(draw(st.permutations(range(len(shape)))))
    return np.broadcast_to(values, (2, *values.shape)) if draw(st.booleans()) else values


@BOTH_WAYS
@given(array=strided(), threads=st.sampled_from([0, 3]))
def test_elements_that_lie_apart_are_read_where_they_lie(way: str, array: np.ndarray[Any, Any], threads: int) -> None:
    assume(array.size <= SEGMENT_ELEMENTS)
    columns, own = StatisticsColumns(), OwnTeam(threads or 1)
    columns.team = own.team if threads else None
    strides = tuple(step // array.itemsize for step in array.strides)
    is_read = columns.scan_strided(0, array.ctypes.data, array.dtype.name, array.shape, strides, hashed=True)
    assert is_read == (way != "numpy" and array.size > 0)
    if is_read:
        assert_same(columns.statistics(0), statistics(np.ascontiguousarray(array)))
    else:
        assert columns.statistics(0) is None


def test_what_has_to_be_put_in_order_first_is_left_to_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSIGHT_KERNELS", "compiled")
    columns, array = StatisticsColumns(), np.ones(2 * SEGMENT_ELEMENTS)
    many = (2,) * 8, tuple(3**axis for axis in range(8))
    for name, shape, strides in (
        ("float64", (3, 5), (1, 3)),
        ("int32", (3, 5), (1, 3)),
        ("float8_e4m3fnuz", (3, 5), (1, 3)),
        ("float32", (0, 5), (1, 3)),
        ("float32", (2, SEGMENT_ELEMENTS), (1, 2)),
        ("float32", *many),
    ):
        assert not columns.scan_strided(0, array.ctypes.data, name, shape, strides, hashed=True)
    assert columns.statistics(0) is None


def test_what_has_no_statistics_leaves_the_row_as_it_is() -> None:
    columns = StatisticsColumns()
    columns.scan(0, np.ones(3))
    for array in (np.array(["a"]), np.array([None]), np.zeros(2, "M8[s]"), np.zeros(2, "f4,i4")):
        assert not columns.scan(0, array)
        assert not columns.scan(1, array)
    assert not columns.scan_address(0, 0, "float8_e4m3fnuz", (2,), 2)
    assert_same(columns.statistics(0), statistics(np.ones(3)))
    assert columns.statistics(1) is None


def test_rows_say_in_which_iteration_they_were_written() -> None:
    columns = StatisticsColumns()
    columns.scan(1, np.ones(2))
    columns.current_iteration = 5
    columns.scan(2, np.ones(2))
    columns.copy_row(1, 3)
    columns.reserve(5)
    assert columns.iteration[:5].tolist() == [NEVER, -1, 5, 5, NEVER]
    assert columns.take([2, 4]).iterations.tolist() == [5, NEVER]


def test_a_row_that_is_copied_is_the_same_and_stays_so() -> None:
    columns = StatisticsColumns()
    array = np.array([1.5, np.nan, -2e300])
    columns.scan(0, array)
    columns.copy_row(0, 700)
    columns.scan(0, np.ones(3, np.int8))
    assert_same(columns.statistics(700), statistics(array))
    assert columns.non_finite(700)
    assert not columns.non_finite(0)
    assert not columns.non_finite(100_000)


def test_there_is_room_for_any_number_of_slots() -> None:
    columns = StatisticsColumns()
    arrays = {slot_id: np.full(3, slot_id, np.float32) for slot_id in (0, 255, 256, 5000, 70_000)}
    for slot_id, array in arrays.items():
        columns.scan(slot_id, array)
    for slot_id, array in arrays.items():
        assert_same(columns.statistics(slot_id), statistics(array))
    assert columns.statistics(999_999) is None


def test_columns_hold_what_watchpoints_are_evaluated_on() -> None:
    columns = StatisticsColumns()
    arrays = [np.array([[1.0, -2.0], [0.0, np.inf]], np.float32), np.array([], np.int32), np.array([-0.0])]
    for slot_id, array in enumerate(arrays):
        columns.scan(slot_id, array)
    found = columns.columns([2, 0, 1, 9])
    rows = [statistics(arrays[slot_id]) for slot_id in (2, 0, 1)]
    for name, values in found.items():
        assert values.shape == (4,)
        np.testing.assert_array_equal(values[:3], [getattr(row, name) for row in rows], err_msg=name)
    assert found["count"][3] == 0
    assert np.isnan(found["mean"][3])
    taken = columns.take(range(3))
    assert taken.dtypes == ["float32", "int32", "float64"]
    assert taken.hashes.tolist() == [statistics(array).content_hash for array in arrays]
    assert taken.sizes.tolist() == [array.nbytes for array in arrays]
    assert len(taken) == 3
    assert columns.columns([])["max"].shape == (0,)


@BOTH_WAYS
@given(array=tensors())
def test_rows_that_were_computed_elsewhere_are_taken_over(way: str, array: np.ndarray[Any, Any]) -> None:
    # squares of the largest and smallest doubles leave the range of doubles
    assume(array.dtype.itemsize < 8 or array.dtype.kind not in "fc")
    expected = statistics(array)
    columns = StatisticsColumns()
    columns.put(4, expected)
    found = columns.statistics(4)
    assert found is not None
    for name, value in expected.as_row().items():
        if isinstance(value, float):
            # what was rounded is added up again
            slack = 1e-7 * expected.abs_mean if expected.finite_count else 0
            assert getattr(found, name) == pytest.approx(value, rel=1e-9, abs=slack, nan_ok=True), name
        else:
            assert getattr(found, name) == value, name


def test_threads_write_their_rows_side_by_side(way: str) -> None:
    columns = StatisticsColumns()
    columns.reserve(400)
    arrays = [
        np.random.default_rng(slot_id).standard_normal(slot_id * 900).astype(np.float16) for slot_id in range(200)
    ]

    def write(first: int) -> None:
        for slot_id in range(first, 200, 4):
            columns.scan(slot_id, arrays[slot_id])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    for slot_id, array in enumerate(arrays):
        assert_same(columns.statistics(slot_id), statistics(array))


def test_a_process_that_scans_imports_nothing_heavy() -> None:
    program = (
        "import sys, numpy as np\n"
        "from tensight.agents.core.columns import StatisticsColumns\n"
        "from tensight.agents.core.finite import has_non_finite\n"
        "from tensight.agents.core.retention import Retention\n"
        "from tensight.agents.core.recording.recording import Recorder\n"
        "columns = StatisticsColumns()\n"
        "columns.scan(0, np.ones(9, np.float32)); has_non_finite(np.ones(9))\n"
        "columns.columns([0])\n"
        "heavy = {'torch', 'pyarrow', 'pydantic', 'duckdb', 'rich', 'typer', 'fastapi', 'httpx'}\n"
        "print(sorted(heavy & set(sys.modules)), columns.statistics(0).mean)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[] 1.0\n", "")


def test_rows_never_move_while_threads_write_to_them() -> None:
    columns = StatisticsColumns()
    large = np.ones(SEGMENT_ELEMENTS, np.float32)

    def write(thread: int) -> None:
        for number in range(60):
            columns.scan(thread, large)
            columns.scan((number + 1) * 300 + thread, large[:10])
            row = columns.statistics(thread)
            assert row is not None
            assert row.positive_count == SEGMENT_ELEMENTS

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert all(columns.statistics(number * 300 + thread) for number in range(1, 61) for thread in range(4))


def test_there_is_an_end_to_slots() -> None:
    columns = StatisticsColumns()
    columns.scan(MOST_ROWS - 1, np.ones(2))
    assert columns.statistics(MOST_ROWS - 1) is not None
    with pytest.raises(InputError, match="more than 1,048,576 slots"):
        columns.scan(MOST_ROWS, np.ones(2))
