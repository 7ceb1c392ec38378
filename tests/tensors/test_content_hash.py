from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensight.tensors import SEGMENT_ELEMENTS, native, statistics

from .strategies import DTYPES


def hash_of(array: np.ndarray) -> int:
    return statistics(array).content_hash


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [0, 1, 5, 1024, 70_001])
def test_compiled_and_numpy_hashes_are_equal(dtype: np.dtype[Any], size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.frombuffer(np.random.default_rng(size).bytes(size * dtype.itemsize), dtype)
    monkeypatch.setenv("TENSIGHT_KERNELS", "numpy")
    expected = hash_of(array)
    for name in native.instruction_sets():
        monkeypatch.setenv("TENSIGHT_KERNELS", name)
        assert hash_of(array) == expected, name


def test_the_hash_depends_on_neither_shape_byte_order_strides_nor_threads(way: str) -> None:
    array = np.random.default_rng(0).standard_normal((3, SEGMENT_ELEMENTS // 2 + 3)).astype(np.float32)
    expected = hash_of(array)
    assert hash_of(array.reshape(-1)) == expected
    assert hash_of(array.astype(">f4")) == expected
    assert hash_of(np.asfortranarray(array)) == expected
    assert statistics(array, threads=2).content_hash == expected


def test_the_hash_is_the_same_in_every_release_of_this_layout() -> None:
    array = np.arange(3000, dtype=np.float32)
    assert hash_of(array) == 7564778452506302627


def test_equal_bytes_of_another_dtype_or_length_hash_differently(way: str) -> None:
    zeros = [np.zeros(size, dtype) for size in (0, 1, 2, 1024, 1025) for dtype in ("f4", "i4", "u4", "f8", "i1")]
    assert len({hash_of(array) for array in zeros}) == len(zeros)


@settings(deadline=None)
@given(size=st.integers(1, 3000), data=st.data())
def test_any_changed_bit_changes_the_hash(size: int, data: st.DataObject) -> None:
    array = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    expected = hash_of(array)
    array[data.draw(st.integers(0, size - 1))] ^= 1 << data.draw(st.integers(0, 7))
    assert hash_of(array) != expected


def test_moved_elements_change_the_hash() -> None:
    array = np.zeros(3 * SEGMENT_ELEMENTS // 2, np.float32)
    places = [0, 1, 2, 3, 1023, 1024, 2048, SEGMENT_ELEMENTS - 1, SEGMENT_ELEMENTS, SEGMENT_ELEMENTS + 1024]
    hashes = set()
    for place in places:
        array[place] = 1
        hashes.add(hash_of(array))
        array[place] = 0
    assert len(hashes) == len(places)


def test_a_changed_bit_changes_half_of_the_hash_bits() -> None:
    random = np.random.default_rng(1)
    flips = []
    for _ in range(300):
        array = random.standard_normal(1500).astype(np.float32)
        before = hash_of(array)
        array.view(np.uint32)[random.integers(1500)] ^= np.uint32(1 << random.integers(32))
        flips.append((before ^ hash_of(array)).bit_count())
    assert 30 < np.mean(flips) < 34
    assert min(flips) > 10


def test_small_structured_tensors_do_not_collide() -> None:
    random = np.random.default_rng(2)
    seen = set()
    for _ in range(20_000):
        seen.add(random.integers(0, 2, 64, np.int8).tobytes())
    assert len({hash_of(np.frombuffer(raw, np.int8)) for raw in seen}) == len(seen)
