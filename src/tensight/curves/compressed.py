"""Compressed logs: gzip, bzip2 and xz, recognised by their first bytes."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from tensight.errors import CurveError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import BinaryIO

LARGEST = 8 << 30
"""Maximum number of bytes that a compressed log may unpack to."""

_FORMATS: tuple[tuple[bytes, Callable[[BinaryIO], object]], ...] = (
    (b"\x1f\x8b\x08", lambda file: gzip.GzipFile(fileobj=file)),
    (b"BZh", bz2.BZ2File),
    (b"\xfd7zXZ\x00", lzma.LZMAFile),
)
_OTHER = (
    (b"PK\x03\x04", "a zip archive"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd"),
    (b"7z\xbc\xaf", "a 7z archive"),
)
_ENDINGS = (".gz", ".bz2", ".xz")


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a log; if it is compressed, its content is read.

    Raises
    ------
    CurveError
        It is in an archive, is damaged, or unpacks to too much.
    """
    with path.open("rb") as file:
        head = file.read(8)
        file.seek(0)
        for magic, what in _OTHER:
            if head.startswith(magic):
                raise CurveError(f"the file is {what}; unpack it, and give what is inside")
        unpack = next((opener for magic, opener in _FORMATS if head.startswith(magic)), None)
        if unpack is None:
            yield file
            return
        try:
            yield cast("BinaryIO", _Bounded(cast("BinaryIO", unpack(file))))
        except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
            raise CurveError(f"the compressed file is damaged: {error}") from None


def name_inside(path: Path) -> str:
    """Return the name of a log without the ending of its compression."""
    return path.stem if path.suffix.lower() in _ENDINGS else path.name


class _Bounded:
    """A file that is unpacked while it is read, up to a size."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._left = LARGEST

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size if size >= 0 else self._left + 1)
        self._left -= len(data)
        if self._left < 0:
            raise CurveError(f"it unpacks to more than {LARGEST >> 30} GiB; give a part of the log")
        return data

    def seek(self, position: int) -> int:
        self._left = LARGEST
        return self._file.seek(position)
