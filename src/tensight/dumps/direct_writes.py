"""Large files that arrive faster than the page cache takes them: written past it, where that is faster."""

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
"""Smaller files are better kept in the page cache, where whoever looks at them finds them."""

BLOCK_BYTES = 4 * 2**20
"""Written at once; a multiple of what any disk demands."""

TRIED_BYTES = 16 * BLOCK_BYTES
SLOWEST_BYTES_PER_S = 600e6
"""A disk that is slower after `TRIED_BYTES` gets the rest through the page cache, which takes it in the meantime."""

_DIRECT = getattr(os, "O_DIRECT", 0)


class DirectWrites:
    """Appends to a file past the page cache; to be used by one thread at a time.

    Filling the cache costs more processor time than writing to a fast disk, and drives out what others keep in it. A
    file system that cannot do without the cache, and a slow disk, get the rest of the file in the usual way.

    Parameters
    ----------
    file : int
        Descriptor of an empty file; whoever opened it closes it, after `end`.
    """

    def __init__(self, file: int) -> None:
        self._file = file
        # Such writes must come from whole pages of memory.
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
        """Write what is left; whatever comes now goes through the page cache."""
        block, self._block = self._block, None
        if block is None:
            return
        self._set_direct(False)
        with memoryview(block) as whole, whole[: self._filled] as rest:
            _write_all(self._file, rest)
        block.close()

    def discard(self) -> None:
        """Forget what is left."""
        self._filled = 0
        self.end()

    def _take(self, piece: memoryview) -> memoryview:
        """Put into the block what fits in; return the rest."""
        assert self._block is not None  # noqa: S101 - whoever calls has looked
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

    def _set_direct(self, wanted: bool) -> bool:
        """Return whether the file system agrees."""
        if not _DIRECT:
            return False
        flags = fcntl.fcntl(self._file, fcntl.F_GETFL)
        try:
            fcntl.fcntl(self._file, fcntl.F_SETFL, flags | _DIRECT if wanted else flags & ~_DIRECT)
        except OSError:
            return False
        return True


def _write_all(file: int, data: memoryview) -> memoryview:
    """Append all of the data; return what is left, which is nothing."""
    while len(data):
        data = data[os.write(file, data) :]
    return data
