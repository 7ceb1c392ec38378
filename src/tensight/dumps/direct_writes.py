"""Write large files with direct I/O, bypassing the page cache, where that is faster."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

WORTH_IT_BYTES = 32 * 2**20
"""Smaller files are better kept in the page cache, because they are often read soon."""

BLOCK_BYTES = 4 * 2**20
"""Size of a write; a multiple of the alignment of any disk."""

TRIED_BYTES = 16 * BLOCK_BYTES
SLOWEST_BYTES_PER_S = 600e6
"""If a disk is slower than this after `TRIED_BYTES`, the rest is written through the page cache, which buffers it."""

_DIRECT = getattr(os, "O_DIRECT", 0)


class DirectWrites:
    """Append to a file with direct I/O; not thread-safe.

    Filling the page cache costs more processor time than writing to a fast disk, and evicts other data. On a file
    system without direct I/O, and on a slow disk, the rest of the file is written normally.

    Parameters
    ----------
    file : int
        Descriptor of an empty file; the caller closes it, after `end`.
    """

    def __init__(self, file: int) -> None:
        self._file = file
        # Direct writes need page-aligned memory.
        self._block: mmap.mmap | None = mmap.mmap(-1, BLOCK_BYTES)
        self._filled = 0
        self._written = 0
        self._seconds = 0.0
        if not self._set_direct(True):
            self.end()

    def write(self, pieces: Iterable[bytes | memoryview]) -> None:
        """Append pieces."""
        for piece in pieces:
            rest = memoryview(piece)
            while len(rest):
                rest = self._take(rest) if self._block is not None else _write_all(self._file, rest)

    def end(self) -> None:
        """Write the buffered rest; later writes go through the page cache."""
        block, self._block = self._block, None
        if block is None:
            return
        self._set_direct(False)
        with memoryview(block) as whole, whole[: self._filled] as rest:
            _write_all(self._file, rest)
        block.close()

    def discard(self) -> None:
        """Drop the buffered rest."""
        self._filled = 0
        self.end()

    def _take(self, piece: memoryview) -> memoryview:
        """Copy as much as fits into the block; return the rest."""
        assert self._block is not None  # noqa: S101 - checked by the caller
        room = BLOCK_BYTES - self._filled
        part = piece[:room]
        self._block[self._filled : self._filled + len(part)] = part
        self._filled += len(part)
        if self._filled == BLOCK_BYTES:
            self._write_block(self._block)
        return piece[room:]

    def _write_block(self, block: mmap.mmap) -> None:
        begin = time.perf_counter()
        try:
            written = os.write(self._file, block)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            written = 0
        self._seconds += time.perf_counter() - begin
        self._written += written
        if written < BLOCK_BYTES:
            block[: BLOCK_BYTES - written] = block[written:]
        self._filled = BLOCK_BYTES - written
        is_slow = self._written >= TRIED_BYTES and self._written < SLOWEST_BYTES_PER_S * self._seconds
        if self._filled or is_slow:
            self.end()

    def _set_direct(self, is_direct: bool) -> bool:
        """Switch direct I/O on or off; return whether the file system supports it."""
        if not _DIRECT:
            return False
        flags = fcntl.fcntl(self._file, fcntl.F_GETFL)
        try:
            fcntl.fcntl(self._file, fcntl.F_SETFL, flags | _DIRECT if is_direct else flags & ~_DIRECT)
        except OSError:
            return False
        return True


def _write_all(file: int, data: memoryview) -> memoryview:
    """Append all data; return the rest, which is empty."""
    while len(data):
        data = data[os.write(file, data) :]
    return data
