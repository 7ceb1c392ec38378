"""Files that are written piece by piece as data arrives, and moved to their final path when complete.

All methods raise OSError if writing fails.
"""

from __future__ import annotations

import math
import mmap
import os
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.dumps.direct_writes import WORTH_IT_BYTES, DirectWrites
from tensight.graph import Graph, graph_proto_steps, parse_graph_proto
from tensight.tensors.narrow_types import NARROW_NAMES, dtype_name

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

_LENGTH_BYTES = 5
# A ModelProto: IR version 1, then the graph, whose length is filled in at the end. Five bytes are enough for 2 GiB, and
# protobuf accepts varints with more bytes than necessary.
_MODEL_HEAD = b"\x08\x01\x22"
_GRAPH_OFFSET = len(_MODEL_HEAD) + _LENGTH_BYTES


class PartFile:
    """A file that is written piece by piece, then moved to its final path.

    Parameters
    ----------
    path : Path
        Temporary path.
    expected_bytes : int
        Expected size; 0 if unknown.
    """

    def __init__(self, path: Path, expected_bytes: int = 0) -> None:
        self.path = path
        self.size_bytes = 0
        self._is_moved = False
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._direct = DirectWrites(self._file) if expected_bytes >= WORTH_IT_BYTES else None

    def write(self, pieces: Sequence[bytes | memoryview]) -> None:
        """Append pieces without concatenating them."""
        if self._direct is not None:
            self._direct.write(pieces)
            self.size_bytes += sum(map(len, pieces))
            return
        waiting = list(pieces)
        while waiting:
            written = os.writev(self._file, waiting[:512])
            self.size_bytes += written
            while waiting and written >= len(waiting[0]):
                written -= len(waiting.pop(0))
            if written:
                waiting[0] = memoryview(waiting[0])[written:]

    def overwrite(self, offset: int, data: bytes) -> None:
        """Overwrite bytes that were already written."""
        self._complete()
        os.pwrite(self._file, data, offset)

    def map(self) -> memoryview:
        """Return a read-only map of the written bytes."""
        self._complete()
        return memoryview(mmap.mmap(self._file, 0, access=mmap.ACCESS_READ))

    def move_to(self, path: Path) -> None:
        """Close the file and move it to its final path, replacing an existing file."""
        self._complete()
        self._close()
        os.replace(self.path, path)
        self._is_moved = True

    def stay(self) -> None:
        """Close the file and keep it at its path."""
        self._complete()
        self._close()
        self._is_moved = True

    def discard(self) -> None:
        """Delete the file, unless it was moved."""
        if self._direct is not None:
            self._direct.discard()
        self._close()
        if not self._is_moved:
            self.path.unlink(missing_ok=True)

    def _complete(self) -> None:
        if self._direct is not None:
            self._direct.end()

    def _close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class GraphFile:
    """A graph that is being received: the pieces of a serialized GraphProto."""

    def __init__(self, part: PartFile) -> None:
        self._part = part
        part.write([_MODEL_HEAD + bytes(_LENGTH_BYTES)])

    @property
    def size_bytes(self) -> int:
        """Number of bytes of the graph so far."""
        return self._part.size_bytes - _GRAPH_OFFSET

    def write(self, pieces: Sequence[bytes | memoryview]) -> None:
        """Append pieces."""
        self._part.write(pieces)

    def parse(self, where: str) -> Graph:
        """Return the graph, which must be complete.

        Raises
        ------
        GraphError
            It is damaged, or not a graph.
        """
        return parse_graph_proto(self._part.map()[_GRAPH_OFFSET:], where=where)

    def read(self, where: str, *, most_nodes: int, most_parts: int) -> Generator[None, None, Graph]:
        """Parse the graph in steps, if it is not too large; see `tensight.graph.graph_proto_steps`.

        Raises
        ------
        GraphError
            It is damaged, not a graph, or too large.
        """
        data = self._part.map()[_GRAPH_OFFSET:]
        return (yield from graph_proto_steps(data, where=where, most_nodes=most_nodes, most_parts=most_parts))

    def move_to(self, path: Path) -> None:
        """Complete the file and move it into a dump."""
        size = self.size_bytes
        groups = [size >> 7 * index & 0x7F for index in range(_LENGTH_BYTES)]
        self._part.overwrite(len(_MODEL_HEAD), bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]]))
        self._part.move_to(path)

    def discard(self) -> None:
        """Delete the file, unless it was moved."""
        self._part.discard()


class TensorWriter:
    """The npy file of a tensor that is being received.

    Attributes
    ----------
    dtype : numpy.dtype
    shape : tuple of int
    data_bytes : int
        Size of its elements.
    offset : int
        Offset of the elements in bytes.
    """

    def __init__(self, part: PartFile, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self._part = part
        self.dtype = dtype
        self.shape = shape
        self.data_bytes = math.prod(shape) * dtype.itemsize
        head = npy_head(dtype, shape)
        self.offset = len(head)
        part.write([head])

    @property
    def missing_bytes(self) -> int:
        """Number of bytes of elements that are still missing; negative if there were too many."""
        return self.data_bytes - (self._part.size_bytes - self.offset)

    def write(self, pieces: Sequence[bytes | memoryview]) -> None:
        """Append elements, in C order and little-endian."""
        self._part.write(pieces)

    def move_to(self, path: Path) -> None:
        """Move the file into the dump."""
        self._part.move_to(path)

    def discard(self) -> None:
        """Delete the file, unless it was moved."""
        self._part.discard()


def write_npy(path: Path, array: NDArray[Any]) -> None:
    """Write an array, little-endian and in C order, to a new file."""
    data = array.reshape(-1).view(np.uint8).data
    part = PartFile(path, array.nbytes)
    try:
        part.write([npy_head(array.dtype, array.shape), data])
        part.stay()
    except BaseException:
        part.discard()
        raise


@lru_cache(maxsize=4096)
def npy_head(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """Return the head of an npy file of version 1.0; its length is a multiple of 64."""
    # NumPy has no names for these types, so they are stored as bytes, and the file's name contains the type.
    descr = f"<V{dtype.itemsize}" if dtype_name(dtype) in NARROW_NAMES else dtype.newbyteorder("<").str
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    padding = -(10 + len(text) + 1) % 64
    body = (text + " " * padding + "\n").encode("latin-1")
    return b"\x93NUMPY\x01\x00" + len(body).to_bytes(2, "little") + body
