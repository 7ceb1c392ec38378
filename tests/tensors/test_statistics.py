from __future__ import annotations

import ctypes
import math
import platform
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tensight.errors import InputError
from tensight.tensors import SEGMENT_ELEMENTS, TensorStatistics, merge, scan_segment, statistics
from tensight.tensors.statistics_row import segments_of

from . import reference
from .strategies import DTYPES, arrays, at_address

if TYPE_CHECKING:
    from collections.abc import Iterator

BOTH_WAYS = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
RNG = np.random.default_rng


def assert_same_row(found: TensorStatistics, expected: dict[str, Any]) -> None:
    row = found.as_row()
    del row["content_hash"]
    # a mean near zero is known to the precision of what was added up
    slack = {"mean": 1e-12 * expected["abs_mean"], "std": 1e-9 * expected["l2_norm"] / max(found.count, 1)}
    for name, value in expected.items():
        if isinstance(value, float):
            # the last bit decides which side of the largest double a rounded number falls on
            row[name] = min(row[name], sys.float_info.max) if value == sys.float_info.max else row[name]
            assert row[name] == pytest.approx(value, rel=1e-11, abs=slack.get(name, 0.0), nan_ok=True), name
        else:
            assert row[name] == value, name
    # the last bit of a magnitude is the mathematics library's
    rounding = 3e-16 if found.dtype.startswith("complex") else 0.0
    extremes = expected["min"], expected["max"]
    assert (found.min, found.max) == pytest.approx(extremes, rel=rounding, abs=0, nan_ok=True)


@contextmanager
def without_subnormal_numbers() -> Iterator[None]:
    """Have the processor take subnormal numbers for zero, as programs do that want to be fast."""
    libm = ctypes.CDLL("libm.so.6")
    before, changed = (ctypes.c_uint32 * 8)(), (ctypes.c_uint32 * 8)()
    libm.fegetenv(before)
    libm.fegetenv(changed)
    changed[7] |= 0x8040
    libm.fesetenv(changed)
    try:
        assert np.float32(1e-40) * np.ones(1, np.float32) == 0
        yield
    finally:
        libm.fesetenv(before)


@BOTH_WAYS
@given(array=arrays())
def test_every_dtype_shape_and_byte_order_gives_what_exact_arithmetic_gives(way: str, array: np.ndarray) -> None:
    assert_same_row(statistics(array), reference.statistics_row(array))


@pytest.mark.sampled(3)
@BOTH_WAYS
@given(data=st.data(), dtype=st.sampled_from(DTYPES), size=st.integers(900, 3000), address=st.integers(0, 64))
def test_special_values_anywhere_in_several_blocks_are_counted(
    way: str, data: st.DataObject, dtype: np.dtype[Any], size: int, address: int
) -> None:
    raw = RNG(data.draw(st.integers(0, 2**32))).bytes(size * dtype.itemsize)
    array = np.frombuffer(raw, dtype)
    if dtype.kind in "fV" and data.draw(st.booleans()):
        array = np.where(RNG(0).random(size) < 0.01, array.astype(dtype), np.ones(size, dtype)).astype(dtype)
    array = at_address(array, address)
    assert_same_row(statistics(array), reference.statistics_row(array))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [0, 1, 2, 3, 7, 8, 1023, 1024, 1025, 2**16 + 1])
def test_counts_add_up_for_every_size(way: str, dtype: np.dtype[Any], size: int) -> None:
    array = RNG(size).integers(0, 3, size).astype(dtype)
    found = statistics(array)
    assert found.count == size == found.zero_count + found.positive_count
    assert (found.zero_count, found.non_finite_count) == (np.count_nonzero(array == 0), 0)


def test_an_empty_tensor_has_no_numbers(way: str) -> None:
    found = statistics(np.zeros((3, 0), np.float32))
    assert (found.count, found.shape, found.size_bytes) == (0, (3, 0), 0)
    assert all(map(math.isnan, (found.min, found.max, found.mean, found.abs_mean, found.std, found.l2_norm)))


def test_a_scalar_has_statistics(way: str) -> None:
    found = statistics(np.asarray(np.float32(-2.5)))
    assert (found.shape, found.count, found.min, found.max, found.mean, found.std) == ((), 1, -2.5, -2.5, -2.5, 0.0)


def test_all_non_finite_tensors_keep_their_counts(way: str) -> None:
    found = statistics(np.array([np.nan, np.inf, -np.inf, -np.nan] * 1000, np.float16))
    assert (found.nan_count, found.pos_inf_count, found.neg_inf_count, found.finite_count) == (2000, 1000, 1000, 0)
    assert math.isnan(found.max)


@pytest.mark.sampled(3)
def test_every_float16_and_bfloat16_is_read_right(way: str) -> None:
    for dtype in (np.dtype(np.float16), reference.BFLOAT16):
        for piece in np.split(np.arange(2**16, dtype=np.uint16).view(dtype), 32):
            assert_same_row(statistics(piece), reference.statistics_row(piece))


@pytest.mark.sampled(8)
@pytest.mark.parametrize("dtype", reference.FLOAT8, ids=str)
@pytest.mark.parametrize("address", [0, 1, 7, 63])
def test_every_8_bit_float_is_read_right_wherever_it_lies(way: str, dtype: np.dtype[Any], address: int) -> None:
    every = np.arange(256, dtype=np.uint8).view(dtype)
    for place in range(0, 256, 5):
        piece = at_address(every[: place + 1], address)
        assert_same_row(statistics(piece), reference.statistics_row(piece))
        alone = at_address(np.full(70, every[place]), address)
        assert_same_row(statistics(alone), reference.statistics_row(alone))
    shuffled = at_address(np.tile(RNG(1).permutation(every.view(np.uint8)).view(dtype), 20), address)
    assert_same_row(statistics(shuffled), reference.statistics_row(shuffled))


@pytest.mark.parametrize("dtype", reference.FLOAT8, ids=str)
def test_counts_of_signs_do_not_overflow_in_a_large_tensor_of_8_bit_floats(way: str, dtype: np.dtype[Any]) -> None:
    array = np.concatenate([np.full(SEGMENT_ELEMENTS + 700, value, dtype) for value in (-0.5, 0.25, 0)])
    found = statistics(array)
    count = SEGMENT_ELEMENTS + 700
    assert (found.negative_count, found.positive_count, found.zero_count) == (count, count, count)
    assert (found.min, found.max, found.mean) == (-0.5, 0.25, pytest.approx(-0.25 / 3, rel=1e-15))


@pytest.mark.skipif(
    platform.machine() != "x86_64" or platform.libc_ver()[0] != "glibc", reason="its registers are saved otherwise"
)
def test_a_program_that_has_switched_subnormal_numbers_off_gets_those_of_few_bits(way: str) -> None:
    for dtype in [*reference.FLOAT8, np.dtype(np.float16)]:
        smallest = np.full(201, 1, f"u{dtype.itemsize}").view(dtype)
        with without_subnormal_numbers():
            found = statistics(smallest)
        assert found == statistics(smallest)
        assert (found.positive_count, found.min) == (201, float(smallest[0]))


def test_a_bool_byte_that_is_neither_0_nor_1_is_true(way: str) -> None:
    found = statistics(np.array([0, 1, 2, 255], np.uint8).view(np.bool_))
    assert (found.is_bool, found.zero_count, found.positive_count, found.max, found.mean) == (True, 1, 3, 1.0, 0.75)


def test_integers_beyond_2_to_the_63_do_not_turn_negative(way: str) -> None:
    found = statistics(np.array([2**64 - 1, 2**63, 1], np.uint64))
    assert (found.negative_count, found.max, found.min) == (0, float(2**64 - 1), 1.0)
    assert found.mean == pytest.approx((2**64 + 2**63) / 3)


def test_sums_of_integers_do_not_overflow(way: str) -> None:
    found = statistics(np.full(5000, -(2**63), np.int64))
    assert (found.mean, found.std, found.negative_count) == (-(2.0**63), 0.0, 5000)


@pytest.mark.parametrize("size", [1e300, 1.7e308, 1e-160, 1e-300, 5e-324])
def test_float64_squares_neither_overflow_nor_vanish(way: str, size: float) -> None:
    array = np.array([1.0, -1.0, 1.0, 0.5, 0.0, 1.0]) * size
    assert_same_row(statistics(array), reference.statistics_row(array))


def test_segments_of_very_different_size_merge(way: str) -> None:
    array = np.concatenate([np.full(SEGMENT_ELEMENTS, value) for value in (1e-200, 1e300, 2.0)])
    found = statistics(array)
    assert found.l2_norm == pytest.approx(1e300 * math.sqrt(SEGMENT_ELEMENTS))
    assert found.mean == pytest.approx(1e300 / 3)
    assert found.std == pytest.approx(1e300 * math.sqrt(2 / 9))


def test_complex_numbers_count_by_magnitude_and_non_finite_parts(way: str) -> None:
    array = np.array([3 + 4j, complex(np.nan, np.inf), complex(-np.inf, 1), 0], np.complex64)
    found = statistics(array)
    assert (found.nan_count, found.pos_inf_count, found.neg_inf_count) == (1, 1, 0)
    assert (found.zero_count, found.positive_count, found.min, found.max) == (1, 1, 0.0, 5.0)


def test_a_finite_complex_number_beyond_float64_stays_finite(way: str) -> None:
    found = statistics(np.array([1.7e308 + 1.7e308j]))
    assert (found.finite_count, found.max) == (1, np.finfo(np.float64).max)


@pytest.mark.parametrize("dtype", ["S4", "U2", "O", "M8[s]", "V2", "V1", "i4,f4", "g", "G"])
def test_what_is_no_number_is_refused_with_its_dtype(dtype: str) -> None:
    with pytest.raises(InputError, match="has no statistics"):
        statistics(np.zeros(3, np.dtype(dtype)))


@pytest.mark.parametrize("name", ["float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "int4"])
def test_other_extensions_are_refused_with_their_name(name: str) -> None:
    with pytest.raises(InputError, match=f"dtype {name} has no statistics; .* float8_e4m3fn or float8_e5m2"):
        statistics(np.ones(3, getattr(ml_dtypes, name)))


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("centre", "scale"), [(0.0, 1.0), (1e4, 1.0)])
def test_mean_and_deviation_of_ten_million_float32_are_accurate_to_1e_6(way: str, centre: float, scale: float) -> None:
    array = (RNG(1).standard_normal(10**7, dtype=np.float32) * np.float32(scale)) + np.float32(centre)
    found = statistics(array, threads=2)
    wide = array.astype(np.longdouble)
    mean = wide.mean()
    std = np.sqrt(np.square(wide - mean).sum() / (array.size - 1))
    assert found.mean == pytest.approx(float(mean), rel=1e-9, abs=1e-12)
    assert found.std == pytest.approx(float(std), rel=1e-9)
    assert found.abs_mean == pytest.approx(float(np.abs(wide).mean()), rel=1e-9)


def test_one_outlier_among_a_million_does_not_spoil_the_deviation(way: str) -> None:
    array = np.full(10**6, 1e4, np.float32)
    array[0] = 3e38
    array[1::2] += 1
    wide = array.astype(np.longdouble)
    std = np.sqrt(np.square(wide - wide.mean()).sum() / (array.size - 1))
    assert statistics(array).std == pytest.approx(float(std), rel=1e-9)


def test_the_result_does_not_depend_on_threads_or_order(way: str) -> None:
    array = RNG(2).standard_normal(3 * SEGMENT_ELEMENTS + 77).astype(np.float32)
    array[[5, SEGMENT_ELEMENTS + 1]] = np.nan
    parts = [scan_segment(segment, index, [(0, 1)]) for index, segment in enumerate(segments_of(array))]
    shuffled = [parts[place] for place in (2, 0, 3, 1)]
    whole = merge(parts, dtype=array.dtype, shape=array.shape)
    assert merge(shuffled, dtype=array.dtype, shape=array.shape) == whole
    assert statistics(array, threads=3) == whole[0]


def test_many_threads_scanning_at_once_do_not_disturb_each_other(way: str) -> None:
    tensors = [RNG(seed).standard_normal(50_000).astype(np.float16) for seed in range(40)]
    for tensor in tensors[::3]:
        tensor[::97] = np.nan  # these use the scratch blocks most
    alone = [statistics(tensor) for tensor in tensors]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(statistics, tensors * 3))
    assert together == alone * 3


def test_read_only_mapped_and_unaligned_memory_is_scanned_in_place(way: str, tmp_path: Any) -> None:
    values = RNG(3).standard_normal(5000).astype(np.float32)
    np.save(tmp_path / "a.npy", values)
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    unaligned = np.frombuffer(b"x" + values.tobytes(), np.uint8)[1:].view(np.float32)
    assert statistics(mapped) == statistics(unaligned) == statistics(values)


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_merging_segments_that_are_not_the_whole_tensor_is_refused(missing: int) -> None:
    array = np.zeros(2 * SEGMENT_ELEMENTS + 5, np.int8)
    parts = [scan_segment(segment, index) for index, segment in enumerate(segments_of(array)) if index != missing]
    with pytest.raises(InputError, match="do not make up"):
        merge(parts, dtype=array.dtype, shape=array.shape)


def test_a_segment_that_is_too_long_is_refused() -> None:
    with pytest.raises(InputError, match="at most 1,048,576"):
        scan_segment(np.zeros(SEGMENT_ELEMENTS + 1, np.int8), 0)


def test_threads_below_one_are_refused() -> None:
    with pytest.raises(InputError, match="threads is 0"):
        statistics(np.zeros(3), threads=0)
