"""The search for NaN and infinite elements finds them wherever they are, and nothing else."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tensight.agents.core.finite import FiniteSearch
from tensight.tensors import native
from tests.agents.own_team import OwnTeam

EXTENSIONS = [np.dtype(getattr(ml_dtypes, name)) for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")]
DTYPES = [*map(np.dtype, ("f2", "f4", "f8", "c8", "c16", ">f4")), *EXTENSIONS]


@pytest.fixture(params=[*native.instruction_sets(), "numpy"])
def search(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> FiniteSearch:
    monkeypatch.setenv("TENSIGHT_KERNELS", request.param)
    return FiniteSearch()


def is_non_finite(array: np.ndarray[Any, Any]) -> bool:
    return not bool(np.isfinite(array.astype(np.complex128)).all())


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=2 * settings().max_examples
)
@given(dtype=st.sampled_from(DTYPES), raw=st.binary(max_size=300), address=st.integers(0, 15))
def test_any_bits_are_judged_as_numpy_judges_them(
    search: FiniteSearch, dtype: np.dtype[Any], raw: bytes, address: int
) -> None:
    array = np.frombuffer(raw[address:][: max(len(raw) - address, 0) // dtype.itemsize * dtype.itemsize], dtype)
    with np.errstate(invalid="ignore"):
        assert search.of(array) == is_non_finite(array)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_one_bad_element_is_found_at_any_place(search: FiniteSearch, dtype: np.dtype[Any], value: float) -> None:
    largest = ml_dtypes.finfo(dtype).max if dtype in EXTENSIONS else np.finfo(dtype).max
    for size in (1, 4095, 4096, 4097, 70_001):
        array = np.full(size, largest, dtype)
        assert not search.of(array)
        for place in {0, size // 2, size - 1}:
            array[place] = value
            assert search.of(array)
            array[place] = -1


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("dtype", ["f2", "f4", "c16"])
def test_several_threads_find_one_bad_element_at_any_place(
    dtype: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSIGHT_KERNELS", "compiled")
    search, own = FiniteSearch(), OwnTeam(threads)
    search.team = own.team
    for size in (2**16 + 1, 3 * 2**15 + 5, 2**21 + 3):
        array = np.ones(size, dtype)
        assert not search.of(array)
        for place in (0, 2**15, size // 2, size - 1):
            array[place] = np.nan
            assert search.of(array)
            array[place] = 1


@pytest.mark.parametrize("dtype", EXTENSIONS, ids=str)
def test_every_number_of_few_bits_is_judged_as_it_is(search: FiniteSearch, dtype: np.dtype[Any]) -> None:
    every = np.arange(256 ** min(dtype.itemsize, 2), dtype=f"u{dtype.itemsize}").view(dtype)
    expected = np.isfinite(every.astype(np.float32))
    for number, is_finite in zip(every[::17].reshape(-1, 1), expected[::17], strict=True):
        assert search.of(number) == search.of(np.repeat(number, 70)) == (not is_finite)
    assert not search.of(every[expected])
    assert search.of(every)


def test_what_has_no_such_elements_has_none(search: FiniteSearch) -> None:
    for dtype in ("i4", "u8", "?"):
        assert not search.of(np.ones(3, dtype))
    assert not search.of(np.empty((0, 3), np.float32))
    assert not search.at(0, "float8", 10)


def test_arrays_with_gaps_are_judged_by_their_elements(search: FiniteSearch) -> None:
    array = np.ones((6, 8), np.float32)
    array[::2] = np.nan
    assert not search.of(array[1::2])
    assert search.of(array.T[:, 1:])
