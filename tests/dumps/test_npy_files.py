"""Headers of npy files."""

from __future__ import annotations

import io
import struct
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tensight.dumps.npy_files import TensorHeader, parse_header, read_header
from tensight.dumps.storage import LocalFile
from tensight.errors import TensorFileError

if TYPE_CHECKING:
    from pathlib import Path


def header_of(path: Path, data: bytes, declared: str = "") -> TensorHeader:
    path.write_bytes(data)
    with LocalFile(str(path)) as file:
        return read_header(file, declared)


def npy(header: str, data: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    length = struct.pack("<H" if version[0] == 1 else "<I", len(header))
    return b"\x93NUMPY" + version + length + header.encode("latin-1") + data


def saved(array: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((), np.float32),
        np.zeros((0, 3), np.int8),
        np.ones((2, 3, 4), ">f8"),
        np.ones((2, 3), np.bool_),
        np.asfortranarray(np.ones((2, 3), np.complex64)),
        np.ones(5, np.uint64),
        np.ones(5, np.float16),
    ],
    ids=lambda array: f"{array.dtype}-{array.shape}",
)
def test_reads_what_numpy_writes(tmp_path: Path, array: Any) -> None:
    data = saved(array)
    expected = TensorHeader(array.dtype, array.shape, len(data) - array.nbytes, not array.flags.c_contiguous)
    assert header_of(tmp_path / "a.npy", data) == expected


def test_reads_what_mindspore_writes(tmp_path: Path) -> None:
    text = "{'descr': '<f4', 'fortran_order': False, 'shape': (4,8,), }".ljust(117) + "\n"
    assert header_of(tmp_path / "a.npy", npy(text, bytes(128))) == TensorHeader(np.dtype("<f4"), (4, 8), 128)


@pytest.mark.parametrize("version", [b"\x02\x00", b"\x03\x00"])
def test_reads_the_newer_versions_of_the_format(tmp_path: Path, version: bytes) -> None:
    text = "{'shape': (2L, 3L), 'descr': \"|i1\", 'fortran_order': True}\n"
    assert header_of(tmp_path / "a.npy", npy(text, bytes(6), version)) == TensorHeader(
        np.dtype("i1"), (2, 3), 12 + len(text), True
    )


def test_reads_a_header_longer_than_the_first_read(tmp_path: Path) -> None:
    text = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }" + " " * 5000 + "\n"
    assert header_of(tmp_path / "a.npy", npy(text, bytes(8))).offset == 10 + len(text)


def test_bfloat16_as_mindspore_on_cpu_names_it_is_read(tmp_path: Path) -> None:
    text = "{'descr': '<E2', 'fortran_order': False, 'shape': (4,), }".ljust(117) + "\n"
    assert header_of(tmp_path / "a.npy", npy(text, bytes(8))).dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize(("shape", "data_bytes", "dtype"), [("(4,)", 16, "f4"), ("(4,)", 12, "f2"), ("(0,)", 0, "f2")])
def test_twice_the_bytes_of_float16_are_the_float32_that_an_operator_computed(
    tmp_path: Path, shape: str, data_bytes: int, dtype: str
) -> None:
    text = f"{{'descr': '<f2', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    assert header_of(tmp_path / "a.npy", npy(text, bytes(data_bytes))).dtype == np.dtype(dtype)


def test_two_nameless_bytes_are_bfloat16_only_if_the_file_name_says_so(tmp_path: Path) -> None:
    data = saved(np.ones(3, ml_dtypes.bfloat16))
    assert header_of(tmp_path / "a.npy", data, "BFloat16").dtype == ml_dtypes.bfloat16
    with pytest.raises(TensorFileError, match="not numbers"):
        header_of(tmp_path / "a.npy", data)


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
def test_single_nameless_bytes_are_8_bit_floats_only_if_the_file_name_says_so(tmp_path: Path, dtype: type) -> None:
    array = np.arange(3, dtype=np.uint8).view(dtype)
    data = saved(array.view("V1"))
    for name in (array.dtype.name, array.dtype.name.replace("_", "").upper()):
        assert header_of(tmp_path / "a.npy", data, name).dtype == dtype
    for other in ("", "BFloat16", "float8_e4m3fnuz"):
        with pytest.raises(TensorFileError, match="not numbers"):
            header_of(tmp_path / "a.npy", data, other)


def test_an_e5m2_as_numpy_writes_it_is_read(tmp_path: Path) -> None:
    data = saved(np.ones(3, ml_dtypes.float8_e5m2))
    assert b"'<f1'" in data
    assert header_of(tmp_path / "a.npy", data).dtype == ml_dtypes.float8_e5m2


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", r"is empty \(0 bytes\)"),
        (b"\x93NUM", "is not an npy file"),
        (b"garbage that is long enough", "is not an npy file"),
        (npy("x", version=b"\x09\x00"), "format 9.0 is not known"),
        (b"\x93NUMPY\x01\x00\xff\x00{'descr'", r"ends inside its header: 265 bytes expected, 18 found"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + bytes(20), r"header of 4,294,967,295 bytes"),
        (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", bytes(7)), r"73 bytes expected, 72 found"),
        (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 1000000)}"), "bytes expected"),
        (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)*40}"), "damaged"),
        (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}"), "damaged"),
        (npy("{'descr': '<f4', 'fortran_order': False, 'shape': 3}"), "damaged"),
        (npy("{'descr': '<f4', 'fortran_order': False, 'shape': '3'}"), "shape is not a tuple"),
        (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (" + "1," * 33 + ")}"), "33 dimensions"),
        (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (" + "9" * 40 + ",)}"), "shape is not a tuple"),
        (npy("{'descr': '<f4', 'fortran_order': False}"), "damaged"),
        (npy("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}"), "damaged"),
        (npy("[]"), "damaged"),
        (npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", bytes(8)), "'|O' are not numbers"),
        (npy("{'descr': '<U4', 'fortran_order': False, 'shape': (1,)}", bytes(16)), "'<U4' are not numbers"),
        (npy("{'descr': '<f16', 'fortran_order': False, 'shape': (1,)}", bytes(16)), "'<f16' are not numbers"),
        (npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", bytes(8)), "holds records"),
        (npy("{'descr': '<V2', 'fortran_order': False, 'shape': (1,)}", bytes(2)), "not numbers"),
    ],
)
def test_damaged_and_foreign_files_are_refused_with_the_reason(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(TensorFileError, match=message) as error:
        header_of(tmp_path / "a.npy", data)
    assert str(tmp_path / "a.npy") in str(error.value)


def test_an_absurd_shape_without_elements_is_harmless(tmp_path: Path) -> None:
    text = "{'descr': '<f4', 'fortran_order': False, 'shape': (999999999999999999, 0)}"
    assert header_of(tmp_path / "a.npy", npy(text)).count == 0


@given(
    hnp.arrays(
        hnp.boolean_dtypes() | hnp.floating_dtypes(sizes=(16, 32, 64)) | hnp.integer_dtypes(),
        hnp.array_shapes(min_dims=0),
    )
)
def test_agrees_with_numpy(array: Any) -> None:
    data = saved(array)
    length = struct.unpack("<H", data[8:10])[0]
    assert parse_header(data[10 : 10 + length]) == (array.dtype, array.shape, False)


@given(st.binary(max_size=200) | st.text("{}'descr:<f4,()10 fortan_oeTulshpL\"", max_size=120).map(str.encode))
def test_any_header_is_read_or_refused(text: bytes) -> None:
    try:
        dtype, shape, _ = parse_header(text)
    except ValueError:
        return
    assert dtype.itemsize <= 16
    assert all(dim >= 0 for dim in shape)
