"""NumPy arrays: ``.npz`` and ``.npy``, never with pickled objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensight.checkpoints.checkpoint import Checkpoint, Entry
from tensight.checkpoints.content import Content, DeflatedContent, FileContent, StridedContent
from tensight.checkpoints.zip_files import DEFLATED, ZipMember, read_directory
from tensight.dumps.npy_files import TensorHeader, read_header
from tensight.dumps.storage import OpenFile
from tensight.errors import CheckpointError, Problem, TensorFileError

if TYPE_CHECKING:
    from collections.abc import Callable

_BOMB_BYTES, _BOMB_RATIO = 2**30, 100
"""A compressed array that expands beyond both is refused; weights shrink by a tenth."""

_FIRST_BYTES = 2**14
"""Upper bound of the header size of an npy file."""


class _Window(OpenFile):
    """A range of a file as a separate file."""

    def __init__(self, file: OpenFile, name: str, size_bytes: int, content: Content) -> None:
        self.path = f"{file.path}: {name}"
        self.size_bytes = size_bytes
        self._content = content

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill a buffer from an offset; return the number of bytes read."""
        count = max(0, min(len(buffer), self._content.size_bytes - offset))
        self._content.read_into(offset, buffer[:count])
        return count

    def close(self) -> None:
        """Leave the file open: its owner closes it."""


def read_npy(checkpoint: Checkpoint, file: OpenFile, name: str) -> None:
    """Add the array of an ``.npy`` file to a checkpoint; raises `CheckpointError` if it contains no numbers."""
    header = _header(file)
    key = name.removesuffix(".npy")
    content = _content(file, header, 0, lambda skipped, size: FileContent(file, skipped, size))
    checkpoint.entries[key] = Entry(key, header.dtype, header.shape, content, name)


def read_npz(checkpoint: Checkpoint, file: OpenFile, name: str) -> None:
    """Add the arrays of an ``.npz`` file to a checkpoint.

    Parameters
    ----------
    checkpoint : Checkpoint
    file : OpenFile
    name : str
        Name of the file within the checkpoint.

    Raises
    ------
    CheckpointError
        The file is damaged, or an array expands far beyond the ratio of weights (a zip bomb).
    """
    for member in read_directory(file).values():
        key = member.name.removesuffix(".npy")
        if member.method == DEFLATED and member.size_bytes > max(_BOMB_BYTES, _BOMB_RATIO * member.packed_bytes):
            raise CheckpointError(
                f"{file.path}: {member.name[:80]!r} would unpack to {member.size_bytes:,} bytes "
                f"from {member.packed_bytes:,}; it is refused."
            )
        try:
            checkpoint.entries[key] = _entry(file, member, key, name)
        except TensorFileError as error:
            checkpoint.problems.append(Problem(f"{name}: {key}", str(error).rpartition(": ")[2]))


def _entry(file: OpenFile, member: ZipMember, key: str, name: str) -> Entry:
    def content(skipped: int, size: int) -> Content:
        if member.method == DEFLATED:
            return DeflatedContent(file, member.offset, member.packed_bytes, skipped, size)
        return FileContent(file, member.offset + skipped, size)

    begin = content(0, member.size_bytes if member.method != DEFLATED else min(member.size_bytes, _FIRST_BYTES))
    header = read_header(_Window(file, key, member.size_bytes, begin))
    lies = _content(file, header, member.offset, content, is_packed=member.method == DEFLATED)
    return Entry(key, header.dtype, header.shape, lies, name)


def _header(file: OpenFile) -> TensorHeader:
    try:
        return read_header(file)
    except TensorFileError as error:
        raise CheckpointError(str(error)) from None


def _content(
    file: OpenFile, header: TensorHeader, base: int, at: Callable[[int, int], Content], *, is_packed: bool = False
) -> Content:
    if not header.fortran or len(header.shape) < 2:
        return at(header.offset, header.data_bytes)
    if is_packed or not hasattr(file, "map"):
        raise TensorFileError(f"{file.path}: an array in Fortran order, compressed or not local, is not read.")
    strides, step = [], 1
    for size in header.shape:
        strides.append(step)
        step *= size
    item = header.dtype.itemsize
    return StridedContent(file, base + header.offset, header.shape, tuple(strides), item)  # type: ignore[arg-type]
