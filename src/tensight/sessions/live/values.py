"""Tensors that a process sends: written to files as they arrive, and memory-mapped when they are read.

Only a few pieces of a tensor are in memory, however large it is.
"""

from __future__ import annotations

import asyncio
import mmap
import os
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight import wire
from tensight.errors import TensightError
from tensight.sessions.errors import LimitError, StorageError, UnavailableError
from tensight.sessions.live.recording import storing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from numpy.typing import NDArray

    from tensight.dumps.growing_files import TensorWriter
    from tensight.dumps.recorder import RankRecorder
    from tensight.sessions.live.reported_tensors import TensorKey
    from tensight.wire import TensorPiece

MOST_UNWRITTEN_BYTES = 12 * 2**20
"""Maximum number of buffered bytes of a tensor while the disk is busy; then the process waits."""

MOST_DIMENSIONS = 32
"""Maximum number of dimensions of a kept tensor, which is the limit of NumPy 1."""

_WRITERS = 2


@dataclass(frozen=True, slots=True)
class KeptValue:
    """The value of a tensor in a file.

    Attributes
    ----------
    path : Path
    dtype : numpy.dtype
    shape : tuple of int
    offset : int
        Offset of the elements in the file, bytes.
    size_bytes : int
        Size of the file.
    """

    path: Path
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int
    size_bytes: int

    def open(self) -> NDArray[Any]:
        """Memory-map the value, read-only; it stays readable when the file is deleted.

        Raises
        ------
        UnavailableError
            The file no longer exists.
        """
        try:
            with self.path.open("rb") as file:
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            count = int(np.prod(self.shape, dtype=np.int64))
            # An array cannot begin where the file ends.
            values = np.frombuffer(data, self.dtype, count, self.offset) if count else np.empty(0, self.dtype)
        except (OSError, ValueError) as error:
            raise UnavailableError(f"{self.path}: the value was kept but cannot be read any more: {error}") from None
        values.flags.writeable = False
        return values.reshape(self.shape)


class KeptValues:
    """The values of a run on disk; the oldest are dropped when they exceed a number of bytes.

    Parameters
    ----------
    most_bytes : int
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._values: OrderedDict[tuple[TensorKey, int], KeptValue] = OrderedDict()
        self._bytes = 0

    def get(self, key: TensorKey, iteration: int) -> KeptValue | None:
        """Return the value of a tensor in an iteration; None if it is not kept."""
        return self._values.get((key, iteration))

    def add(self, key: TensorKey, iteration: int, value: KeptValue) -> list[Path]:
        """Add a value; return the files that must be deleted because of it."""
        dropped = self._drop(key, iteration)
        self._values[key, iteration] = value
        self._bytes += value.size_bytes
        return [*dropped, *self.make_room(0)]

    def make_room(self, size_bytes: int) -> list[Path]:
        """Drop the oldest values until `size_bytes` fit in; return their files, which must be deleted."""
        dropped: list[Path] = []
        while self._values and self._bytes + size_bytes > self.most_bytes:
            dropped += self._drop(*next(iter(self._values)))
        return dropped

    def iterations(self) -> set[int]:
        """Return the iterations with any value."""
        return {iteration for _, iteration in self._values}

    def _drop(self, key: TensorKey, iteration: int) -> list[Path]:
        value = self._values.pop((key, iteration), None)
        if value is None:
            return []
        self._bytes -= value.size_bytes
        return [value.path]


def delete(paths: Iterable[Path]) -> None:
    """Delete files of values; ignore files that do not exist or cannot be deleted."""
    for path in paths:
        # A leftover file only takes space; the next write reports a full disk.
        with suppress(OSError):
            path.unlink(missing_ok=True)


class ValueWriters:
    """The threads that write arriving values; two of them are as fast as a disk."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_WRITERS, thread_name_prefix="tensight-values")
        self._is_closed = False

    def run(self, work: Callable[[], None]) -> asyncio.Future[None]:
        """Run work in one of the threads; after `close`, in the default executor."""
        return asyncio.get_running_loop().run_in_executor(None if self._is_closed else self._pool, work)

    def close(self) -> None:
        """Let the threads end when they have completed their work."""
        self._is_closed = True
        self._pool.shutdown(wait=False)


class ArrivingTensor:
    """A tensor while its pieces arrive.

    Pieces that cannot be written are still received and discarded: a full disk here must not disturb the process.

    Parameters
    ----------
    first : TensorPiece
    recorder : RankRecorder
    writers : ValueWriters
    values : KeptValues
    """

    def __init__(self, first: TensorPiece, recorder: RankRecorder, writers: ValueWriters, values: KeptValues) -> None:
        self.request = first.request
        self._dims = first.dims
        self._data_type = first.data_type
        self._recorder = recorder
        self._writers = writers
        self._values = values
        self._writer: TensorWriter | None = None
        self._missing_bytes = 0
        self._unwritten: list[memoryview] = []
        self._unwritten_bytes = 0
        self._writing: asyncio.Future[None] | None = None
        self.error: TensightError | None = None
        try:
            self._dtype = self._checked_dtype()
            self._begin()
        except TensightError as error:
            self.error = error

    async def take(self, piece: TensorPiece) -> None:
        """Receive a piece; return when there is room for the next one.

        Raises
        ------
        WireError
            The piece does not match the pieces before it.
        """
        if (piece.dims, piece.data_type) != (self._dims, self._data_type):
            raise wire.WireError(f"the pieces of {self._name} have different types or shapes")
        if self.error is not None:
            return
        self._missing_bytes -= len(piece.content)
        if self._missing_bytes < 0:
            raise wire.WireError(f"{self._name} arrives with more bytes than its shape {list(self._dims)} has")
        self._unwritten.append(piece.content)
        self._unwritten_bytes += len(piece.content)
        if self._writing is not None and self._unwritten_bytes >= MOST_UNWRITTEN_BYTES:
            await self._written()
        if self._writing is None or self._writing.done():
            await self._written()
            self._write()

    async def complete(self) -> TensorWriter:
        """Write the rest, and return the temporary file, which the caller moves to its place.

        Raises
        ------
        TensightError
            The tensor could not be written, or is incomplete.
        """
        await self._written()
        self._write()
        await self._written()
        if self.error is None and self._missing_bytes:
            self.error = wire.WireError(f"{self._name} ends {self._missing_bytes:,} bytes before its end")
        if self.error is not None or self._writer is None:
            raise self.error or UnavailableError(f"{self._name} was not written")
        writer, self._writer = self._writer, None
        return writer

    async def why_incomplete(self) -> TensightError:
        """Return why the tensor is incomplete, after its last piece."""
        await self._written()
        missing = f"{self._missing_bytes:,} bytes" if self._missing_bytes else "the end marker"
        return self.error or wire.WireError(f"{self._name} ends before its end; {missing} did not come")

    def discard(self) -> None:
        """Delete the temporary file, after a running write."""
        if self._writing is None:
            self._discard_now()
        else:
            self._writing.add_done_callback(self._discard_after)

    def _discard_after(self, writing: asyncio.Future[None]) -> None:
        # Retrieve the exception, so that asyncio does not log it.
        _ = writing.cancelled() or writing.exception()
        self._discard_now()

    def _discard_now(self) -> None:
        writer = self._writer
        if writer is not None:
            self._writers.run(writer.discard)

    @property
    def _name(self) -> str:
        return f"{self.request.node}:{self.request.slot}"

    def _checked_dtype(self) -> np.dtype[Any]:
        dtype = wire.numpy_dtype(self._data_type)
        if dtype is None:
            raise UnavailableError(f"{self._name} has elements of the DataType {self._data_type}, which is not shown")
        if len(self._dims) > MOST_DIMENSIONS:
            raise UnavailableError(f"{self._name} has {len(self._dims)} dimensions; at most {MOST_DIMENSIONS} are kept")
        size = dtype.itemsize * int(np.prod(self._dims, dtype=object)) if self._dims else dtype.itemsize
        if size > self._values.most_bytes:
            raise LimitError(f"{self._name} has {size:,} bytes; a run may keep {self._values.most_bytes:,}")
        self._missing_bytes = size
        return dtype

    def _begin(self) -> None:
        paths = self._values.make_room(self._missing_bytes)

        def begin() -> None:
            delete(paths)
            folder = self._recorder.folder
            with storing(folder):
                free = os.statvfs(folder)
                if free.f_bavail * free.f_frsize < self._missing_bytes_at_first:
                    raise StorageError(
                        f"{folder}: {self._name} needs {self._missing_bytes_at_first:,} bytes, but there is not enough"
                        " space left; delete old runs, or choose another --workspace"
                    )
                self._writer = self._recorder.new_tensor(self._dtype, self._dims)

        self._missing_bytes_at_first = self._missing_bytes
        self._writing = self._writers.run(begin)

    def _write(self) -> None:
        pieces, self._unwritten, self._unwritten_bytes = self._unwritten, [], 0
        writer = self._writer
        if self.error is not None or writer is None or not pieces:
            return

        def write() -> None:
            with storing(self._recorder.folder):
                writer.write(pieces)

        self._writing = self._writers.run(write)

    async def _written(self) -> None:
        """Wait for the running write, and note if it failed."""
        if self._writing is None:
            return
        # Not awaited directly: cancelling the waiter must not cancel the write, whose file is still open.
        await asyncio.wait({self._writing})
        writing, self._writing = self._writing, None
        error = writing.exception()
        if isinstance(error, StorageError):
            self.error = error
            self._unwritten, self._unwritten_bytes = [], 0
        elif error is not None:
            raise error
