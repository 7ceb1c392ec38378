"""Reads the tensors that MindSpore dumped: small files into one buffer, large ones as memory maps.

A training step can take a millisecond and leave a hundred files, so every microsecond per file counts: a header is
parsed once, and recognised by its bytes afterwards.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from tensight.agents.core.finite import has_non_finite, has_non_finite_at
from tensight.agents.core.notices import log_once
from tensight.agents.mindspore.launches import unlink
from tensight.dumps.npy_files import parse_header, written_dtype
from tensight.tensors import SEGMENT_ELEMENTS
from tensight.tensors.elements import ELEMENT_NAMES
from tensight.tensors.narrow_types import BFLOAT16, dtype_name, to_bfloat16

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tensight.agents.core.columns import StatisticsColumns
    from tensight.agents.mindspore.launches import Files, Launch

_AT_ONCE_BYTES = 2**22
"""Larger files are read in parts, so that each part is in the processor's cache when it is scanned."""

_BUFFER_BYTES = SEGMENT_ELEMENTS * np.dtype(np.complex128).itemsize
"""Only the pages that are used take memory."""

_PREFIX_BYTES = 10
_HEADER_BYTES = 4096
_USUAL_HEADER_BYTES = 128
_MAGIC = b"\x93NUMPY\x01"
_MOST_LAYOUTS = 65_536
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC

_SINGLE = np.dtype(np.float32)
_DECLARED_BFLOAT16 = ".BFloat16.npy"


class Layout(NamedTuple):
    """The contents of a file's header.

    Attributes
    ----------
    name : str
        NumPy's name of the elements' type; empty if it has no statistics.
    dtype : numpy.dtype
        Of the elements as they are stored.
    shape : tuple of int
    elements : int
        Their number.
    begin, end : int
        Their position in the file, bytes.
    fortran : bool
        Whether the first axis varies fastest.
    is_plain : bool
        Whether they can be scanned as they are stored.
    is_single : bool
        Whether they are stored as float32, as bfloat16 may be.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    elements: int
    begin: int
    end: int
    fortran: bool
    is_plain: bool
    is_single: bool


class Ahead(Protocol):
    """Another thread that scans tensors before they are observed."""

    def scanned(self, tensor: DumpedTensor, columns: StatisticsColumns, slot_id: int, *, hashed: bool) -> bool:
        """Write the statistics of a tensor to the row of a slot, if they are known; return whether they are."""

    def has_non_finite(self, tensor: DumpedTensor) -> bool | None:
        """Whether any value is NaN or Inf; None if that is unknown."""


class DumpedTensor:
    """A tensor in a file of a launch.

    Parameters
    ----------
    launch : Launch
    number : int
        Of its file in the launch.

    Attributes
    ----------
    name : str
        Of the file.
    key : str
        See `Launch.keys`.
    layout : Layout or None
        Once it was read; None before.
    files : Files
        Of the launch.
    ahead : Ahead or None
        Another thread that may have scanned it.
    """

    __slots__ = ("__weakref__", "_is_discarded", "ahead", "files", "key", "layout", "name")

    def __init__(self, launch: Launch, number: int) -> None:
        self.name = launch.files[number]
        self.key = launch.keys[number]
        self.layout: Layout | None = None
        self.files: Files = launch.held
        self.ahead: Ahead | None = None
        self._is_discarded = False

    @property
    def path(self) -> str:
        """Path of the file."""
        return f"{self.files.folder.path}/{self.name}"

    @property
    def nbytes(self) -> int:
        """Size of the elements; 0 if they can no longer be read."""
        try:
            layout = self.layout or _layout_of(self)
        except (OSError, ValueError):
            return 0
        return layout.end - layout.begin

    @property
    def is_gone(self) -> bool:
        """Whether the file was released or discarded."""
        return self._is_discarded or self.files.descriptor < 0

    def open(self) -> int:
        """Return a descriptor of the file.

        Raises
        ------
        OSError
            It is gone, or cannot be read.
        """
        return os.open(self.name, _READ, dir_fd=self.files.descriptor)

    def size_on_disk(self) -> int:
        """Return the size of the file; 0 if it is gone."""
        try:
            return os.stat(self.name, dir_fd=self.files.descriptor).st_size
        except OSError:
            return 0

    def discard(self) -> None:
        """Remove the file before its launch is released."""
        if not self.is_gone:
            self._is_discarded = True
            if self.files.folder.is_private:
                unlink([self.name], self.files.descriptor)


class DumpedReader:
    """`TensorReader` for dumped tensors, used by the training's thread, or by another one while that waits.

    If a tensor cannot be read (the disk was full when it was written), this is logged, and it has no statistics.
    """

    def __init__(self) -> None:
        self._buffer = mmap.mmap(-1, _BUFFER_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._memory = memoryview(self._buffer)
        self._into = [self._memory[:_AT_ONCE_BYTES]]
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._buffer))
        self._usual: dict[str, Layout] = {}
        self._unusual: set[str] = set()

    def describe(self, tensor: DumpedTensor) -> tuple[str, tuple[int, ...], int]:
        """Return NumPy's name of the dtype, the shape and the size in bytes; an empty name if it has no statistics."""
        try:
            layout = tensor.layout or _layout_of(tensor)
        except (OSError, ValueError) as error:
            _log_unreadable(tensor, error)
            return "", (), 0
        if _is_widened(tensor, layout):
            return "bfloat16", layout.shape, layout.elements * BFLOAT16.itemsize
        return layout.name, layout.shape, layout.end - layout.begin

    def hold(self, tensor: DumpedTensor) -> tuple[DumpedTensor, int, int]:
        """Return the tensor, its identity, and the bytes that it takes in the ring, 0 once it is gone."""
        layout = None if tensor.is_gone else tensor.layout
        return tensor, id(tensor), tensor.size_on_disk() if layout is None else layout.end

    def version(self, tensor: DumpedTensor) -> int:
        """Return 0 while the file exists, which is never overwritten; 1 afterwards."""
        return int(tensor.is_gone)

    def host(self, tensor: DumpedTensor) -> NDArray[Any] | None:
        """Return the values in C order, valid also after the file is gone; None if they cannot be read."""
        try:
            return _values(tensor, tensor.layout or _layout_of(tensor))
        except (OSError, ValueError) as error:
            _log_unreadable(tensor, error)
            return None

    def copy(self, tensor: DumpedTensor, into: DumpedTensor | None = None) -> DumpedTensor:  # noqa: ARG002
        """Return the tensor itself: its file is never overwritten."""
        return tensor

    def scan(self, tensor: DumpedTensor, columns: StatisticsColumns, slot_id: int, *, hashed: bool = True) -> bool:
        """Write the statistics of a tensor to the row of a slot; False if it has none or cannot be read."""
        ahead = tensor.ahead
        if ahead is not None and ahead.scanned(tensor, columns, slot_id, hashed=hashed):
            return True
        return self.scan_here(tensor, columns, slot_id, hashed=hashed)

    def scan_here(self, tensor: DumpedTensor, columns: StatisticsColumns, slot_id: int, *, hashed: bool) -> bool:
        """Do the same as `scan`, always in this thread."""
        try:
            layout = self._read(tensor)
            if layout is None:
                return self._scan_unusual(tensor, columns, slot_id, hashed)
        except (OSError, ValueError) as error:
            _log_unreadable(tensor, error)
            return False
        address = self._address + layout.begin
        return columns.scan_address(slot_id, address, layout.name, layout.shape, layout.elements, hashed=hashed)

    def has_non_finite(self, tensor: DumpedTensor) -> bool:
        """Whether any value is NaN or Inf, determined as fast as possible."""
        result = None if tensor.ahead is None else tensor.ahead.has_non_finite(tensor)
        if result is not None:
            return result
        try:
            layout = self._read(tensor)
            if layout is None:
                layout = tensor.layout or _layout_of(tensor)
                if _is_usual(tensor, layout):
                    return any(map(has_non_finite, self._segments(tensor, layout)))
                values = _values(tensor, layout)
                return values is not None and has_non_finite(values)
        except (OSError, ValueError) as error:
            _log_unreadable(tensor, error)
            return False
        return has_non_finite_at(self._address + layout.begin, layout.name, layout.elements)

    def settle(self, columns: StatisticsColumns) -> None:
        """Do nothing: there is no device to wait for."""

    def _read(self, tensor: DumpedTensor) -> Layout | None:
        """Read the elements into the buffer; None if they do not fit, or cannot be scanned as they are stored."""
        key = tensor.key
        usual = self._usual.get(key)
        if usual is None and key in self._unusual:
            return None
        file = os.open(tensor.name, _READ, dir_fd=tensor.files.descriptor)
        try:
            read_bytes = os.readv(file, self._into)
        finally:
            os.close(file)
        layout = _layouts.get(self._buffer[:_USUAL_HEADER_BYTES])
        if layout is None or layout is not usual or layout.end != read_bytes:
            layout = self._read_layout(tensor, read_bytes)
        else:
            tensor.layout = layout
        return layout

    def _scan_unusual(self, tensor: DumpedTensor, columns: StatisticsColumns, slot_id: int, hashed: bool) -> bool:
        layout = tensor.layout or _layout_of(tensor)
        if _is_usual(tensor, layout):
            parts = self._segments(tensor, layout)
            return columns.scan_segments(slot_id, layout.name, layout.shape, parts, hashed=hashed)
        values = _values(tensor, layout)
        return values is not None and columns.scan(slot_id, values, hashed=hashed)

    def _segments(self, tensor: DumpedTensor, layout: Layout) -> Iterator[NDArray[Any]]:
        """Yield the elements in parts; each overwrites the one before."""
        part_bytes = SEGMENT_ELEMENTS * layout.dtype.itemsize
        file = tensor.open()
        try:
            for begin in range(layout.begin, layout.end, part_bytes):
                size_bytes = min(part_bytes, layout.end - begin)
                read_bytes = os.preadv(file, [self._memory[:size_bytes]], begin)
                if read_bytes < size_bytes:
                    raise ValueError(f"{begin + read_bytes:,} of {layout.end:,} bytes are there")
                yield np.frombuffer(self._memory, layout.dtype, size_bytes // layout.dtype.itemsize)
        finally:
            os.close(file)

    def _read_layout(self, tensor: DumpedTensor, read_bytes: int) -> Layout | None:
        """Parse the header in the buffer, because it differs from the tensor's last one."""
        buffer = self._buffer
        header = buffer[: min(_PREFIX_BYTES + buffer[8] + 256 * buffer[9], read_bytes)]
        size_bytes = read_bytes if read_bytes < _AT_ONCE_BYTES else tensor.size_on_disk()
        layout = tensor.layout = _layout_from(header, size_bytes)
        if layout.end > read_bytes or not _is_usual(tensor, layout):
            self._unusual.add(tensor.key)
            self._usual.pop(tensor.key, None)
            return None
        self._usual[tensor.key] = layout
        return layout


_layouts: dict[bytes, Layout] = {}


def _layout_of(tensor: DumpedTensor) -> Layout:
    """Read the header of a tensor's file."""
    file = tensor.open()
    try:
        start, size_bytes = os.pread(file, _HEADER_BYTES, 0), os.fstat(file).st_size
    finally:
        os.close(file)
    layout = _layout_from(start[: _PREFIX_BYTES + int.from_bytes(start[8:10], "little")], size_bytes)
    tensor.layout = layout
    return layout


def _layout_from(header: bytes, size_bytes: int) -> Layout:
    """Return the layout of a file with this header and size."""
    layout = _layouts.get(header)
    if layout is None:
        if not header.startswith(_MAGIC) or len(header) < _PREFIX_BYTES + int.from_bytes(header[8:10], "little"):
            raise ValueError("it is not an npy file of version 1, or was cut off; is the disk full?")
        if len(_layouts) >= _MOST_LAYOUTS:
            _layouts.clear()
        layout = _layouts[header] = _laid_out(*parse_header(header[_PREFIX_BYTES:]), len(header))
    if size_bytes > layout.end:
        written = written_dtype(layout.dtype, layout.elements, size_bytes - layout.begin)
        if written is not layout.dtype:
            layout = _laid_out(written, layout.shape, layout.fortran, layout.begin)
    elif size_bytes < layout.end:
        raise ValueError(f"{size_bytes:,} of {layout.end:,} bytes were written; is the disk full?")
    return layout


@lru_cache(maxsize=_MOST_LAYOUTS)
def _laid_out(stored: np.dtype[Any], shape: tuple[int, ...], fortran: bool, begin: int) -> Layout:
    dtype = BFLOAT16 if stored.kind == "V" and stored.itemsize == BFLOAT16.itemsize else stored
    native = dtype.newbyteorder("=")
    name = dtype_name(native)
    name = name if name in ELEMENT_NAMES else ""
    elements = math.prod(shape)
    is_plain = bool(name) and dtype == native and not fortran
    end = begin + elements * dtype.itemsize
    return Layout(name, dtype, shape, elements, begin, end, fortran, is_plain, native == _SINGLE)


def _values(tensor: DumpedTensor, layout: Layout) -> NDArray[Any] | None:
    """Return the elements of a tensor with its dtype and shape; None if they have no statistics."""
    if not layout.name:
        return None
    file = tensor.open()
    try:
        if layout.end > _AT_ONCE_BYTES:
            stored = _mapped(file, layout)
        else:
            stored = np.frombuffer(os.pread(file, layout.end, 0), layout.dtype, layout.elements, layout.begin)
    finally:
        os.close(file)
    array = stored.reshape(layout.shape, order="F" if layout.fortran else "C")
    if _is_widened(tensor, layout):
        return to_bfloat16(array)
    return np.ascontiguousarray(array).reshape(layout.shape)


def _mapped(file: int, layout: Layout) -> NDArray[Any]:
    """Return the elements in a memory map, which lives as long as the array."""
    flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
    pages = mmap.mmap(file, layout.end, flags=flags, prot=mmap.PROT_READ)
    return np.frombuffer(pages, layout.dtype, layout.elements, layout.begin)


def _is_usual(tensor: DumpedTensor, layout: Layout) -> bool:
    """Whether elements can be scanned as they are stored."""
    return layout.is_plain and not _is_widened(tensor, layout)


def _is_widened(tensor: DumpedTensor, layout: Layout) -> bool:
    """Whether elements are bfloat16, but stored as float32."""
    return layout.is_single and tensor.key.endswith(_DECLARED_BFLOAT16)


def _log_unreadable(tensor: DumpedTensor, error: Exception) -> None:
    """Log that a tensor cannot be read, unless it was released."""
    if not tensor.is_gone:
        log_once(f"{tensor.key} was dumped, but cannot be read: {error}")
