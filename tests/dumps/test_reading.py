"""Values of dumped tensors: as one array, and in segments."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

from tensight.dumps import TensorFile, read_segments, read_tensor, tensor_header
from tensight.errors import TensorFileError
from tests.dumps.dump_writer import npy_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

#: More than is read at once instead of mapped.
MANY = 100_001


def tensor_at(path: Path | str, **changes: Any) -> TensorFile:
    tensor = TensorFile(0, 0, 0, None, "", "Add", "Add-op0", "output", 0, 0, 0, 1, "DefaultFormat", "", str(path), 0, 0)
    return tensor._replace(**changes)


@pytest.fixture(params=["local", "memory"])
def put(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[bytes], TensorFile]:
    """Returns a function that puts the bytes of an npy file somewhere."""

    def write(data: bytes, **changes: Any) -> TensorFile:
        if request.param == "local":
            (tmp_path / "a.npy").write_bytes(data)
            return tensor_at(tmp_path / "a.npy", **changes)
        import fsspec

        fsspec.filesystem("memory").pipe("/tensight-reading/a.npy", data)
        return tensor_at("memory://tensight-reading/a.npy", **changes)

    return write


def joined_segments(tensor: TensorFile, elements: int) -> Any:
    segments = list(read_segments(tensor, elements))
    assert all(len(segment) == elements for segment in segments[:-1])
    for segment in segments:
        assert segment.ndim == 1
        assert segment.flags.c_contiguous
        assert segment.flags.aligned
        assert not segment.flags.writeable
    return np.concatenate(segments) if segments else np.empty(0)


@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0, 2), (7, 5, 3), (MANY,), (3, MANY)])
@pytest.mark.parametrize("dtype", ["?", "<f4", ">f8", "<c16", "i1", "<f2"])
def test_reads_arrays_whole_and_in_segments(put: Callable[..., TensorFile], shape: tuple[int, ...], dtype: str) -> None:
    array = (np.arange(np.prod(shape, dtype=int)) % 120).reshape(shape).astype(dtype)
    tensor = put(npy_bytes(array))
    header = tensor_header(tensor)
    assert (header.dtype, header.shape) == (array.dtype, shape)
    read = read_tensor(tensor)
    assert (read.dtype, read.shape, read.flags.writeable) == (array.dtype, shape, False)
    np.testing.assert_array_equal(read, array)
    np.testing.assert_array_equal(joined_segments(tensor, 50_000), array.ravel())


@pytest.mark.parametrize("rows", [3, MANY])
def test_fortran_order_is_kept_in_arrays_and_file_order_in_segments(put: Callable[..., TensorFile], rows: int) -> None:
    array = np.asfortranarray(np.arange(rows * 4, dtype=np.float32).reshape(rows, 4))
    tensor = put(npy_bytes(array))
    assert tensor_header(tensor).fortran
    np.testing.assert_array_equal(read_tensor(tensor), array)
    np.testing.assert_array_equal(joined_segments(tensor, 1000), array.T.ravel())


@pytest.mark.parametrize("count", [10, MANY])
def test_a_header_of_an_odd_length_gives_aligned_values(put: Callable[..., TensorFile], count: int) -> None:
    array = np.arange(count, dtype=np.float64)
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({count},)}}".encode()
    text += b" " * ((len(text) + 1) % 2 + 64)
    assert (10 + len(text)) % 8
    tensor = put(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + array.tobytes())
    assert read_tensor(tensor).flags.aligned
    np.testing.assert_array_equal(read_tensor(tensor), array)
    np.testing.assert_array_equal(joined_segments(tensor, 777), array)


def test_bfloat16_is_read_where_the_name_declares_it(put: Callable[..., TensorFile]) -> None:
    array = np.arange(12).astype(ml_dtypes.bfloat16)
    tensor = put(npy_bytes(array), declared_dtype="BFloat16")
    assert read_tensor(tensor).dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(joined_segments(tensor, 5), array)


def test_segments_stay_valid_after_the_next_is_asked_for(tmp_path: Path) -> None:
    array = np.arange(MANY, dtype=np.float32)
    (tmp_path / "a.npy").write_bytes(npy_bytes(array))
    segments = list(read_segments(tensor_at(tmp_path / "a.npy"), 1000))
    (tmp_path / "a.npy").unlink()
    np.testing.assert_array_equal(np.concatenate(segments), array)


def test_a_segment_has_at_least_one_element(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        next(read_segments(tensor_at(tmp_path / "a.npy"), 0))


def test_a_file_cut_off_says_how_much_is_missing(put: Callable[..., TensorFile]) -> None:
    tensor = put(npy_bytes(np.zeros(100, np.float32))[:-1])
    for read in (tensor_header, read_tensor, lambda tensor: list(read_segments(tensor, 10))):
        with pytest.raises(TensorFileError, match="528 bytes expected, 527 found"):
            read(tensor)


def test_a_file_that_shrinks_while_it_is_read_is_an_error_and_no_crash(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(npy_bytes(np.zeros(MANY, np.float64)))
    segments = read_segments(tensor_at(path), 1000)
    next(segments)
    os.truncate(path, 9000)
    with pytest.raises(TensorFileError, match="became shorter"):
        next(segments)


def test_pickled_objects_are_never_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([{"code": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(TensorFileError, match="not numbers"):
        read_tensor(tensor_at(tmp_path / "a.npy"))


def test_missing_files_and_folders_in_their_place_are_clear_errors(tmp_path: Path) -> None:
    with pytest.raises(TensorFileError, match="no such file"):
        read_tensor(tensor_at(tmp_path / "nothing.npy"))
    (tmp_path / "folder.npy").mkdir()
    with pytest.raises(TensorFileError, match=r"folder\.npy"):
        read_tensor(tensor_at(tmp_path / "folder.npy"))
    with pytest.raises(TensorFileError, match="no such file"):
        read_tensor(tensor_at("memory://nowhere/nothing.npy"))


def test_an_absurd_shape_reserves_no_memory(put: Callable[..., TensorFile]) -> None:
    text = b"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999, 99999999999)}"
    tensor = put(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text)
    with pytest.raises(TensorFileError, match="bytes expected"):
        read_tensor(tensor)
    text = b"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999, 0, 99999999)}"
    tensor = put(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text)
    with pytest.raises(TensorFileError, match="cannot be loaded"):
        read_tensor(tensor)
    assert list(read_segments(tensor, 10)) == []


def test_raw_files_of_the_first_versions_are_read_by_their_name(tmp_path: Path) -> None:
    array = np.arange(6, dtype=np.float16).reshape(2, 3)
    path = tmp_path / "Default--Add-op1_output_0_shape_2_3_Float16_DefaultFormat.bin"
    path.write_bytes(array.tobytes())
    np.testing.assert_array_equal(read_tensor(tensor_at(path)), array)
    np.testing.assert_array_equal(joined_segments(tensor_at(path), 4), array.ravel())
    path.write_bytes(array.tobytes()[:-1])
    with pytest.raises(TensorFileError, match="12 bytes expected by its name, 11 found"):
        read_tensor(tensor_at(path))
    odd = tmp_path / "Default--Add-op1_output_0_shape_2_3_Strange_DefaultFormat.bin"
    odd.write_bytes(b"123456")
    with pytest.raises(TensorFileError, match="does not give"):
        tensor_header(tensor_at(odd))


def test_memory_stays_bounded_whatever_the_size_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    with path.open("wb") as file:
        text = b"{'descr': '<f4', 'fortran_order': False, 'shape': (134217728,)}".ljust(118)
        file.write(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text)
        # A hole costs no disk; its pages still count once they are touched.
        file.truncate(128 + 4 * 134217728)
    script = (
        "import resource, sys\n"
        "from tests.dumps.test_reading import tensor_at\n"
        "from tensight.dumps import read_segments\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "total = sum(float(segment.sum()) for segment in read_segments(tensor_at(sys.argv[1]), 2**20))\n"
        "print(total, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", script, str(path)], env=environment, capture_output=True, text=True, check=True
    )
    total, kilobytes = run.stdout.split()
    assert float(total) == 0
    assert int(kilobytes) < 64 * 1024
