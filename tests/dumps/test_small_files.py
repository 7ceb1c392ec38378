"""Many small npy files in one call of the kernels: what is scanned has the totals of the reader of single files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensight import tensors
from tensight.dumps import open_tensor
from tensight.dumps.small_files import SMALL_BYTES, is_small_file, scan_small_files
from tensight.errors import TensorFileError
from tensight.tensors import SEGMENT_ELEMENTS, layout, native
from tensight.tensors.elements import ELEMENT_NAMES, dtype_named
from tests.dumps.dump_writer import npy_bytes
from tests.dumps.test_npy_files import npy
from tests.dumps.test_reading import tensor_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensight.dumps import TensorFile

ROOT = Path(__file__).parents[2]
RANGES = ((-1.0, 1.0), (0.0, np.inf))
SHAPES = [(), (0,), (1,), (3, 0, 2), (17,), (33, 4), (1, 2, 3, 4), (2, 1, 2, 1, 2, 1, 2, 1)]

Row = tuple[Any, ...]


@pytest.fixture(params=native.instruction_sets())
def instructions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Scan with each set of instructions of this processor."""
    monkeypatch.setenv("TENSIGHT_KERNELS", request.param)
    return str(request.param)


def alone(tensor: TensorFile) -> Row | None:
    """Return statistics and counts in ranges, as the reader of single files has them; None if it cannot read it."""
    try:
        with open_tensor(tensor) as opened:
            segments = enumerate(opened.segments(SEGMENT_ELEMENTS))
            parts = [tensors.scan_segment(segment, number, RANGES) for number, segment in segments]
            header = opened.header
    except TensorFileError:
        return None
    statistics, in_ranges = tensors.merge(parts, dtype=header.dtype, shape=header.shape)
    return bits_of([*statistics.as_row().values(), *(in_ranges or (0,) * len(RANGES))])


def together(files: Sequence[TensorFile]) -> list[Row | None]:
    """Return the same from one call; None for the files that are left."""
    assert all(map(is_small_file, files))
    scanned = scan_small_files(files, RANGES)
    rows: list[Row | None] = [None] * len(files)
    columns = [scanned.rows.columns()[name].tolist() for name in (*tensors.COUNTS, *tensors.MEASURES)]
    every = zip(
        *(scanned.indices.tolist(), scanned.rows.dtypes, scanned.shapes, scanned.rows.sizes.tolist(), *columns),
        *(scanned.rows.hashes.tolist(), scanned.in_ranges.tolist()),
        strict=True,
    )
    for index, *values, in_ranges in every:
        rows[index] = bits_of([*values, *in_ranges])
    return rows


def bits_of(values: list[Any]) -> Row:
    """Return numbers with all of their bits, so that NaN is equal to NaN and 0 is not -0."""
    return tuple(value.hex() if isinstance(value, float) else value for value in values)


def special(name: str, shape: tuple[int, ...], seed: int) -> Any:
    """Return elements of any bits: NaN, infinities, subnormals, the largest and the smallest numbers."""
    dtype = dtype_named(name)
    count = int(np.prod(shape))
    bits = np.random.default_rng(seed).bytes(count * dtype.itemsize)
    return np.frombuffer(bits, np.uint8).view(dtype).reshape(shape) if count else np.empty(shape, dtype)


def put(folder: Path, *contents: bytes, **changes: Any) -> list[TensorFile]:
    files = []
    for number, content in enumerate(contents):
        path = folder / f"{number}.npy"
        path.write_bytes(content)
        files.append(tensor_at(path, **changes))
    return files


@pytest.mark.parametrize("name", ELEMENT_NAMES)
def test_every_type_and_shape_has_the_totals_of_the_other_reader(tmp_path: Path, name: str, instructions: str) -> None:
    dtype = dtype_named(name)
    with np.errstate(over="ignore", invalid="ignore"):
        ordinary = [np.asarray(np.random.default_rng(5).normal(size=shape) * 3).astype(dtype) for shape in SHAPES]
    with_any_bits = [special(name, shape, seed) for shape in SHAPES for seed in (1, 2)]
    contents = [npy_bytes(array) for array in (*ordinary, *with_any_bits)]
    files = put(tmp_path, *contents, declared_dtype=name)
    scanned, read = together(files), [alone(file) for file in files]
    assert None not in scanned[: len(ordinary)]
    assert None not in read
    assert scanned == [row and expected for row, expected in zip(scanned, read, strict=True)]


def test_numbers_whose_squares_leave_the_range_are_left(tmp_path: Path, instructions: str) -> None:
    arrays = [np.array([1.0, 1e200]), np.array([1e-200]), np.array([1e200 + 0j]), np.array([0.0]), np.array([np.inf])]
    files = put(tmp_path, *map(npy_bytes, arrays))
    assert together(files) == [None, None, None, alone(files[3]), alone(files[4])]


HEADERS = {
    "as MindSpore writes it": ("{'descr': '<f4', 'fortran_order': False, 'shape': (2,2,), }", True),
    "without a comma at the end": ("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2)}", True),
    "zeros before a number": ("{'descr': '<f4', 'fortran_order': False, 'shape': (02, 2)}", True),
    "a number in place of a tuple": ("{'descr': '<f4', 'fortran_order': False, 'shape': (4), }", True),
    "bfloat16 of MindSpore": ("{'descr': '<E2', 'fortran_order': False, 'shape': (8,), }", True),
    "a type of eight bits": ("{'descr': '<f1', 'fortran_order': False, 'shape': (16,), }", True),
    "more data than elements": ("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", True),
    "nothing": ("{'descr': '<f4', 'fortran_order': False, 'shape': (0,), }", True),
    "nine dimensions": ("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 1, 1, 1, 1, 1, 1, 4), }", False),
    "nine dimensions that overflow": (f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({'9, ' * 9}), }}", False),
    "Fortran's order": ("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }", False),
    "the other byte order": ("{'descr': '>f4', 'fortran_order': False, 'shape': (4,), }", False),
    "twice the bytes of float16": ("{'descr': '<f2', 'fortran_order': False, 'shape': (4,), }", False),
    "nameless bytes": ("{'descr': '<V2', 'fortran_order': False, 'shape': (8,), }", False),
    "keys in another order": ("{'shape': (4,), 'descr': '<f4', 'fortran_order': False, }", False),
    "other quotes": ('{"descr": "<f4", "fortran_order": False, "shape": (4,), }', False),
    "a length of Python 2": ("{'descr': '<f4', 'fortran_order': False, 'shape': (4L,), }", False),
    "too little data": ("{'descr': '<f4', 'fortran_order': False, 'shape': (5,), }", False),
    "too many elements": ("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999,), }", False),
    "a product beyond 64 bits": (
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999, 999999999999), }", False
    ),
    "a number of 19 digits": ("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 1000000000000000000), }", False),
    "a negative number": ("{'descr': '<f4', 'fortran_order': False, 'shape': (-4,), }", False),
    "no number": ("{'descr': '<f4', 'fortran_order': False, 'shape': (,), }", False),
    "no end": ("{'descr': '<f4', 'fortran_order': False, 'shape': (4", False),
    "only a beginning": ("{'descr': '<f4", False),
    "more after the end": ("{'descr': '<f4', 'fortran_order': False, 'shape': (4,), } x", False),
    "pickled objects": ("{'descr': '|O', 'fortran_order': False, 'shape': (4,), }", False),
    "records": ("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (4,), }", False),
    "an empty text": ("", False),
}  # fmt: skip


@pytest.mark.parametrize("case", HEADERS)
@pytest.mark.parametrize("version", [b"\x01\x00", b"\x02\x00", b"\x03\x00"])
def test_headers_that_need_a_decision_are_left(tmp_path: Path, case: str, version: bytes) -> None:
    text, is_scanned = HEADERS[case]
    data = np.arange(1, 5, dtype=np.float32).tobytes()
    (file,) = put(tmp_path, npy(text.ljust(70) + "\n", data, version))
    expected = alone(file)
    assert together([file]) == [expected if is_scanned else None]
    assert not is_scanned or expected is not None


def test_nameless_bytes_are_of_the_type_in_the_name_of_the_file(tmp_path: Path) -> None:
    text = "{'descr': '|V2', 'fortran_order': False, 'shape': (8,), }\n"
    (file,) = put(tmp_path, npy(text, np.arange(8, dtype=np.uint16).tobytes()), declared_dtype="BFloat16")
    assert together([file]) == [alone(file)] != [None]
    wrong = tensor_at(file.path, declared_dtype="float8_e5m2")
    assert together([wrong]) == [alone(wrong)] == [None]


def test_files_that_cannot_be_read_are_left(tmp_path: Path) -> None:
    content = npy_bytes(np.ones(4, np.float32))
    long_header = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }".ljust(10_001), bytes(16))
    other_version = content.replace(b"NUMPY\x01", b"NUMPY\x04")
    files = put(tmp_path, content, b"", content[:7], content[:-1], content[:80], long_header, other_version)
    (tmp_path / "folder.npy").mkdir()
    os.mkfifo(tmp_path / "pipe.npy")
    (tmp_path / "circle.npy").symlink_to("circle.npy")
    large = tmp_path / "large.npy"
    large.write_bytes(npy_bytes(np.ones(2, np.float32)).ljust(SMALL_BYTES + 1))
    files += [tensor_at(tmp_path / f"{name}.npy") for name in ("folder", "pipe", "circle", "missing", "large")]
    assert together(files) == [alone(files[0])] + [None] * 11


def test_a_link_is_followed_and_a_folder_may_have_any_name(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"\xff")
    folder.mkdir()
    (file,) = put(folder, npy_bytes(np.arange(7)))
    (tmp_path / "link.npy").symlink_to(file.path)
    files = [tensor_at(tmp_path / "link.npy"), file]
    assert together(files) == [alone(file)] * 2


def test_a_file_is_small_and_local_and_contains_one_tensor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.npy"
    assert is_small_file(tensor_at(path))
    assert not is_small_file(tensor_at(path, size_bytes=SMALL_BYTES + 1))
    assert not is_small_file(tensor_at("memory://a.npy"))
    assert not is_small_file(tensor_at(tmp_path / "a.bin"))
    assert not is_small_file(tensor_at(tmp_path / "Add.Add-op0.1.2.3"))
    monkeypatch.setenv("TENSIGHT_KERNELS", "numpy")
    assert not is_small_file(tensor_at(path))


def test_a_wrong_number_of_paths_is_refused() -> None:
    compiled = native.kernels()
    assert compiled is not None
    for paths in (b"a.npy\0", b"a.npy\0b.npy", b"a.npy\0b.npy\0c.npy\0"):
        with pytest.raises(ValueError, match="2 are needed"):
            compiled.scan_files(paths, 2, 0, 0, 0, 0, 0, 0, 0, 0)


CONTENT = npy_bytes(np.arange(1, 13, dtype=np.float32).reshape(3, 4))


@given(changes=st.lists(st.tuples(st.integers(0, 100), st.integers(0, 255)), min_size=1, max_size=4))
def test_whatever_is_in_a_file_it_is_left_or_read_as_the_other_reader_does(
    changes: list[tuple[int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    content = bytearray(CONTENT)
    for position, byte in changes:
        content[position] = byte
    (file,) = put(tmp_path_factory.getbasetemp(), bytes(content))
    (row,) = together([file])
    assert row is None or row == alone(file)


def test_both_languages_mean_the_same_number_of_dimensions() -> None:
    header = (ROOT / "kernels" / "npy_files.h").read_text()
    assert f"MOST_DIMENSIONS = {layout.MOST_DIMENSIONS};" in header
