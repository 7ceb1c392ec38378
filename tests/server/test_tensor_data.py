"""Tensors as bytes: every form of a slice says the same, and any part of a file is what the file has there."""

from __future__ import annotations

import io
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes
from numpy.typing import NDArray

from tensight.errors import InputError
from tensight.graph import TensorAddress
from tensight.server.tensor_data import MOST_JSON_ELEMENTS, TensorFile, file_name, part_response
from tensight.tensors.views import ViewResult

DTYPES = [np.dtype(name) for name in ("?", "i1", "u2", "<i4", ">i4", "u8", "f2", "<f4", ">f8", "c8", ">c16")] + [
    np.dtype(ml_dtypes.bfloat16),
    np.dtype(ml_dtypes.float8_e4m3fn),
    np.dtype(ml_dtypes.float8_e5m2),
    np.dtype(ml_dtypes.int4),
]


def example(dtype: np.dtype[Any], shape: tuple[int, ...] = (3, 4)) -> NDArray[Any]:
    return (np.arange(np.prod(shape, dtype=int)).reshape(shape) % 7).astype(dtype)


def response_of(array: NDArray[Any], form: Any) -> Any:
    return part_response(ViewResult(array, "[:, 0:4]", (9, *array.shape), array.dtype.name), form)


def file_bytes(array: NDArray[Any]) -> bytes:
    file = TensorFile(array, "tensor")
    return file.read(0, file.size_bytes)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_all_forms_of_a_slice_hold_the_same_values(dtype: np.dtype[Any]) -> None:
    array = example(dtype)
    as_numbers = array.astype(np.complex128)
    raw = response_of(array, "raw")
    assert raw.headers["X-Tensight-Dtype"] == dtype.name
    assert (raw.headers["X-Tensight-Shape"], raw.headers["X-Tensight-Tensor-Shape"]) == ("3,4", "9,3,4")
    assert raw.headers["X-Tensight-Slice"] == "[:, 0:4]"
    read = np.frombuffer(raw.body, dtype.newbyteorder("<")).reshape(3, 4)
    np.testing.assert_array_equal(read.astype(np.complex128), as_numbers)
    loaded = np.load(io.BytesIO(response_of(array, "npy").body))
    np.testing.assert_array_equal(loaded.astype(np.complex128), as_numbers)
    table = pa.ipc.open_stream(response_of(array, "arrow").body).read_all()
    assert table.schema.metadata == {b"shape": b"3,4", b"dtype": dtype.name.encode()}
    column = np.array(table["value"].to_pylist())
    listed = np.array(json.loads(response_of(array, "json").body))
    if dtype.kind == "c":
        column, listed = column @ [1, 1j], listed @ [1, 1j]
    np.testing.assert_array_equal(column.reshape(3, 4).astype(np.complex128), as_numbers)
    np.testing.assert_array_equal(listed.astype(np.complex128), as_numbers)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ml_dtypes.bfloat16, ml_dtypes.float8_e5m2], ids=str)
def test_json_has_words_for_what_is_no_number(dtype: Any) -> None:
    array = np.array([[np.nan, np.inf], [-np.inf, 0.5]]).astype(dtype)
    assert json.loads(response_of(array, "json").body) == [["NaN", "Infinity"], ["-Infinity", 0.5]]


def test_json_of_complex_numbers_is_pairs() -> None:
    array = np.array([1 + 2j, complex(np.nan, -np.inf)])
    assert json.loads(response_of(array, "json").body) == [[1.0, 2.0], ["NaN", "-Infinity"]]


def test_a_tensor_without_dimensions_is_one_number() -> None:
    assert json.loads(response_of(np.array(np.inf), "json").body) == "Infinity"
    assert response_of(np.array(1.5), "json").body == b"1.5"
    assert response_of(np.array(1.5), "raw").headers["X-Tensight-Shape"] == ""
    assert np.load(io.BytesIO(response_of(np.array(True), "npy").body)).shape == ()


def test_a_tensor_without_elements_is_empty() -> None:
    array = np.zeros((0, 3), np.float32)
    assert json.loads(response_of(array, "json").body) == []
    assert response_of(array, "raw").body == b""
    assert pa.ipc.open_stream(response_of(array, "arrow").body).read_all().num_rows == 0


def test_json_has_fewer_elements_than_bytes_may_have() -> None:
    array = np.zeros(MOST_JSON_ELEMENTS + 1, np.float32)
    with pytest.raises(InputError, match="100,001 elements"):
        response_of(array, "json")
    assert len(response_of(array, "raw").body) == 4 * array.size


def test_json_of_integers_is_exact() -> None:
    array = np.array([2**63 - 1, -(2**63)])
    assert json.loads(response_of(array, "json").body) == [2**63 - 1, -(2**63)]


# --- files ---


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("order", ["C", "F", "strided"])
def test_a_file_holds_the_tensor(dtype: np.dtype[Any], order: str) -> None:
    array = example(dtype, (4, 3, 2))
    array = array[::2, ::-1] if order == "strided" else array.copy(order="F" if order == "F" else "C")
    loaded = np.load(io.BytesIO(file_bytes(array)), allow_pickle=False)
    assert loaded.shape == array.shape
    assert loaded.dtype.byteorder in "<=|"
    np.testing.assert_array_equal(loaded.astype(np.complex128), array.astype(np.complex128))


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1,), (1, 1, 1)])
def test_a_file_of_little_is_a_file(shape: tuple[int, ...]) -> None:
    assert np.load(io.BytesIO(file_bytes(np.ones(shape, np.float16)))).shape == shape


@given(
    dtype=st.sampled_from(DTYPES),
    shape=array_shapes(max_dims=3, max_side=6),
    cuts=st.lists(st.integers(0, 400), max_size=4),
    transposed=st.booleans(),
)
def test_any_parts_of_a_file_make_up_the_file(
    dtype: np.dtype[Any], shape: tuple[int, ...], cuts: list[int], transposed: bool
) -> None:
    array = example(dtype, shape)
    file = TensorFile(array.T if transposed else array, "tensor")
    whole = file.read(0, file.size_bytes)
    assert len(whole) == file.size_bytes
    places = sorted({0, file.size_bytes, *(cut for cut in cuts if cut < file.size_bytes)})
    assert b"".join(file.read(start, end) for start, end in pairwise(places)) == whole


def test_a_map_of_a_file_is_read_piece_by_piece(tmp_path: Path) -> None:
    path = tmp_path / "large.npy"
    array = np.lib.format.open_memmap(path, "w+", np.float32, (1024, 1024))
    array[:] = np.arange(1024)
    array.flush()
    mapped = np.load(path, mmap_mode="r")
    file = TensorFile(mapped, "tensor")
    assert file.read(0, file.size_bytes) == path.read_bytes()
    assert file.read(2_000_001, 2_000_011) == path.read_bytes()[2_000_001:2_000_011]


def test_the_tag_changes_with_content_name_and_form() -> None:
    array = np.zeros((300, 1000), np.float32)
    tag = TensorFile(array, "a").tag
    assert TensorFile(array.copy(), "a").tag == tag
    assert TensorFile(array, "b").tag != tag
    assert TensorFile(array.reshape(1000, 300), "a").tag != tag
    assert TensorFile(array + np.float32(1), "a").tag != tag


def test_the_tag_of_a_map_changes_when_its_file_does(tmp_path: Path) -> None:
    path = tmp_path / "one.npy"
    np.save(path, np.zeros(10))
    first = TensorFile(np.load(path, mmap_mode="r"), "a").tag
    np.save(path, np.ones(10))
    assert TensorFile(np.load(path, mmap_mode="r"), "a").tag != first


@pytest.mark.parametrize(
    ("node", "name"),
    [
        ("Default/conv1/Conv2D-op1", "Conv2D-op1.output.0.rank-3.step-3.npy"),
        ("conv1.weight", "conv1.weight.output.0.rank-3.step-3.npy"),
        ("a/..", "tensor.output.0.rank-3.step-3.npy"),
        ('x"; filename="evil\r\nSet-Cookie: a', "x_filename_evil_Set-Cookie_a.output.0.rank-3.step-3.npy"),
        ("模型/权重", "_.output.0.rank-3.step-3.npy"),
        ("x" * 500, "x" * 100 + ".output.0.rank-3.step-3.npy"),
    ],
)
def test_only_harmless_characters_of_a_nodes_name_name_the_file(node: str, name: str) -> None:
    assert file_name(TensorAddress(3, "graph", node, 0, 2)) == name
