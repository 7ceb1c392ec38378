"""The elements of a tensor in any storage: read in C order, range by range, from any thread."""

from __future__ import annotations

import mmap
import threading
import zlib
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensight.dumps.storage import LocalFile, OpenFile

_LARGE_MAP_BYTES = 64 * 2**20
"""Mapped pages are released after every read of this size, so that memory does not grow with the file."""

_INFLATED_BYTES = 2**18


class Content(ABC):
    """The bytes of a tensor's elements in C order.

    Attributes
    ----------
    size_bytes : int
    is_sequential : bool
        Whether reading from the middle costs as much as reading from the start.
    """

    size_bytes: int
    is_sequential = False

    @abstractmethod
    def read_into(self, start: int, buffer: memoryview) -> None:
        """Fill a buffer with the bytes from `start` on.

        Raises
        ------
        CheckpointError
            The file ended before the buffer was full.
        """

    def stretches(self) -> list[tuple[int, int, str]]:
        """Return begin, end and file of each contiguous range of bytes; by default one range."""
        return [(0, self.size_bytes, "")]


@dataclass(frozen=True, slots=True)
class FileContent(Content):
    """Bytes stored unchanged in a file.

    Attributes
    ----------
    file : OpenFile
    offset : int
        Start of the bytes in the file.
    size_bytes : int
    """

    file: OpenFile
    offset: int
    size_bytes: int

    def read_into(self, start: int, buffer: memoryview) -> None:
        """See `Content.read_into`."""
        if self.file.read_into(self.offset + start, buffer) < len(buffer):
            raise CheckpointError(f"{self.file.path}: shrank while it was read; read it again when it is complete.")

    def stretches(self) -> list[tuple[int, int, str]]:
        """See `Content.stretches`."""
        return [(0, self.size_bytes, self.file.path)]


@dataclass(frozen=True, slots=True)
class JoinedContent(Content):
    """Consecutive pieces of bytes."""

    pieces: tuple[Content, ...]

    @property
    def size_bytes(self) -> int:  # type: ignore[override]
        """Size of all pieces."""
        return sum(piece.size_bytes for piece in self.pieces)

    def read_into(self, start: int, buffer: memoryview) -> None:
        """See `Content.read_into`."""
        done = 0
        for piece in self.pieces:
            if start < piece.size_bytes and done < len(buffer):
                count = min(piece.size_bytes - start, len(buffer) - done)
                piece.read_into(start, buffer[done : done + count])
                done += count
            start = max(0, start - piece.size_bytes)


@dataclass(frozen=True, slots=True)
class PartOfContent(Content):
    """A range of another content, such as some rows of a matrix."""

    whole: Content
    offset: int
    size_bytes: int

    def read_into(self, start: int, buffer: memoryview) -> None:
        """See `Content.read_into`."""
        self.whole.read_into(self.offset + start, buffer)


@dataclass(frozen=True, slots=True)
class MemoryContent(Content):
    """Bytes in memory, for small tensors only."""

    data: bytes

    @property
    def size_bytes(self) -> int:  # type: ignore[override]
        """Number of bytes."""
        return len(self.data)

    def read_into(self, start: int, buffer: memoryview) -> None:
        """See `Content.read_into`."""
        buffer[:] = self.data[start : start + len(buffer)]


class StridedContent(Content):
    """Elements that are not in C order, such as those of a transposed matrix.

    Parameters
    ----------
    file : LocalFile
        Mapped at the first read.
    offset : int
        Start of the first element in the file, bytes.
    shape : tuple of int
    strides : tuple of int
        Elements, not bytes; not negative.
    item_bytes : int
        Size of an element.
    """

    def __init__(
        self, file: LocalFile, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], item_bytes: int
    ) -> None:
        self.file, self.offset, self.shape, self.strides, self.item_bytes = file, offset, shape, strides, item_bytes
        self.size_bytes = prod(shape) * item_bytes
        self._lock = threading.Lock()
        self._map: mmap.mmap | None = None

    @property
    def _end(self) -> int:
        """End of the last element in the file, bytes."""
        last = sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))
        return self.offset + (last + 1) * self.item_bytes

    def read_into(self, start: int, buffer: memoryview) -> None:
        """See `Content.read_into`."""
        data = self._mapped()
        item = np.dtype(f"V{self.item_bytes}")
        strides = tuple(stride * self.item_bytes for stride in self.strides)
        elements: np.ndarray[Any, Any] = np.ndarray(self.shape, item, data, self.offset, strides)
        first = start // self.item_bytes
        np.frombuffer(buffer, item)[:] = elements.flat[first : first + len(buffer) // self.item_bytes]
        if len(data) >= _LARGE_MAP_BYTES:
            data.madvise(mmap.MADV_DONTNEED)

    def _mapped(self) -> mmap.mmap:
        import os

        # Accessing a mapped page beyond the end of the file would kill the process.
        if os.fstat(self.file.fileno()).st_size < self._end:
            raise CheckpointError(f"{self.file.path}: shrank while it was read; read it again when it is complete.")
        with self._lock:
            if self._map is None:
                try:
                    self._map = self.file.map()
                except (OSError, ValueError) as error:
                    raise CheckpointError(f"{self.file.path}: cannot be mapped: {error}.") from None
            return self._map

    def stretches(self) -> list[tuple[int, int, str]]:
        """See `Content.stretches`."""
        return [(0, self.size_bytes, self.file.path)]


@dataclass(frozen=True, slots=True)
class Box:
    """A part of a tensor that was saved separately: elements ``offsets`` to ``offsets + sizes``.

    Attributes
    ----------
    offsets, sizes : tuple of int
        In the tensor, one number for each dimension.
    content : Content
    """

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    content: Content

    def overlaps(self, other: Box) -> bool:
        """Return whether two boxes have an element in common."""
        return all(
            first < second + length and second < first + size
            for first, size, second, length in zip(self.offsets, self.sizes, other.offsets, other.sizes, strict=True)
        )


@dataclass(frozen=True, slots=True)
class BoxesContent(Content):
    """The elements of a tensor that was saved in boxes, with each element in exactly one box."""

    shape: tuple[int, ...]
    item_bytes: int
    boxes: tuple[Box, ...]

    @property
    def size_bytes(self) -> int:  # type: ignore[override]
        """Size of all elements."""
        return prod(self.shape) * self.item_bytes

    def read_into(self, start: int, buffer: memoryview) -> None:
        """See `Content.read_into`."""
        values = np.frombuffer(buffer, np.dtype(f"V{self.item_bytes}"))
        _fill(values, start // self.item_bytes, self.shape, self.boxes, self.item_bytes)

    def stretches(self) -> list[tuple[int, int, str]]:
        """Return one range for each box if the tensor was cut along its first dimension, else one range in all."""
        if not self.shape or any(box.sizes[1:] != self.shape[1:] for box in self.boxes):
            return [(0, self.size_bytes, "")]
        row = prod(self.shape[1:]) * self.item_bytes
        return [
            (box.offsets[0] * row, (box.offsets[0] + box.sizes[0]) * row, box.content.stretches()[0][2])
            for box in sorted(self.boxes, key=lambda box: box.offsets)
        ]


def _fill(values: Any, start: int, shape: tuple[int, ...], boxes: Sequence[Box], item_bytes: int) -> None:
    """Write the elements from `start` on of a tensor in boxes: part of a row, whole rows, part of a row."""
    if not values.size:
        return
    if not shape:
        boxes[0].content.read_into(0, memoryview(values).cast("B"))
        return
    row = prod(shape[1:])
    first, within = divmod(start, row)
    if within or values.size < row:
        count = min(row - within, values.size)
        _fill(values[:count], within, shape[1:], _boxes_of_row(boxes, first, item_bytes), item_bytes)
        _fill(values[count:], start + count, shape, boxes, item_bytes)
        return
    rows = values.size // row
    _fill_rows(values[: rows * row].reshape(rows, *shape[1:]), first, boxes, item_bytes)
    _fill(values[rows * row :], start + rows * row, shape, boxes, item_bytes)


def _boxes_of_row(boxes: Sequence[Box], row: int, item_bytes: int) -> list[Box]:
    """Return the intersections of boxes with a row of the first dimension, as boxes of a tensor without it."""
    parts = []
    for box in boxes:
        if box.offsets[0] <= row < box.offsets[0] + box.sizes[0]:
            size = prod(box.sizes[1:]) * item_bytes
            content = PartOfContent(box.content, (row - box.offsets[0]) * size, size)
            parts.append(Box(box.offsets[1:], box.sizes[1:], content))
    return parts


def _fill_rows(rows: Any, first: int, boxes: Sequence[Box], item_bytes: int) -> None:
    for box in boxes:
        begin, end = max(first, box.offsets[0]), min(first + len(rows), box.offsets[0] + box.sizes[0])
        if begin >= end:
            continue
        row_bytes = prod(box.sizes[1:]) * item_bytes
        part = np.empty((end - begin, *box.sizes[1:]), rows.dtype)
        box.content.read_into((begin - box.offsets[0]) * row_bytes, part.reshape(-1).view(np.uint8).data)
        inner = tuple(slice(o, o + s) for o, s in zip(box.offsets[1:], box.sizes[1:], strict=True))
        rows[(slice(begin - first, end - first), *inner)] = part


class DeflatedContent(Content):
    """Bytes compressed with deflate, decompressed piece by piece and never as a whole.

    Parameters
    ----------
    file : OpenFile
    offset, packed_bytes : int
        Range of the compressed bytes.
    skipped : int
        Number of decompressed bytes before the first element.
    size_bytes : int
        Size of the elements.
    """

    is_sequential = True

    def __init__(self, file: OpenFile, offset: int, packed_bytes: int, skipped: int, size_bytes: int) -> None:
        self._file, self._offset, self._packed, self._skipped = file, offset, packed_bytes, skipped
        self.size_bytes = size_bytes
        self._lock = threading.Lock()
        self._restart()

    def _restart(self) -> None:
        self._inflate = zlib.decompressobj(-15)
        self._taken = 0
        self._position = 0
        self._ready = b""

    def read_into(self, start: int, buffer: memoryview) -> None:
        """See `Content.read_into`."""
        with self._lock:
            target = self._skipped + start
            if target < self._position:
                self._restart()
            self._pass_over(target - self._position)
            done = 0
            while done < len(buffer):
                data = self._next(len(buffer) - done)
                buffer[done : done + len(data)] = data
                done += len(data)

    def _pass_over(self, count: int) -> None:
        while count:
            count -= len(self._next(count))

    def _next(self, most: int) -> bytes:
        """Return some of the next bytes: at least one, and at most `most`."""
        while not self._ready:
            packed = self._inflate.unconsumed_tail
            if not packed:
                packed = self._file.read(self._offset + self._taken, min(_INFLATED_BYTES, self._packed - self._taken))
                self._taken += len(packed)
            try:
                self._ready = self._inflate.decompress(packed, _INFLATED_BYTES)
            except zlib.error as error:
                raise CheckpointError(f"{self._file.path}: compressed data is damaged: {error}.") from None
            if not self._ready and (not packed or self._inflate.eof):
                raise CheckpointError(f"{self._file.path}: compressed data ends too early; the file is damaged.")
        data, self._ready = self._ready[:most], self._ready[most:]
        self._position += len(data)
        return data


def transposed(content: Content, shape: tuple[int, ...], item_bytes: int) -> Content | None:
    """Return a matrix's content in the order of its transpose; None if it cannot be read in parts."""
    if len(shape) != 2:
        return None
    if isinstance(content, FileContent) and hasattr(content.file, "map"):
        return StridedContent(content.file, content.offset, shape[::-1], (1, shape[1]), item_bytes)  # type: ignore[arg-type]
    if isinstance(content, StridedContent):
        return StridedContent(content.file, content.offset, shape[::-1], content.strides[::-1], item_bytes)
    if isinstance(content, MemoryContent):
        item = np.dtype(f"V{item_bytes}")
        return replace(content, data=np.frombuffer(content.data, item).reshape(shape).T.tobytes())
    return None
