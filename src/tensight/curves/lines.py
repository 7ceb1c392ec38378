"""Lines of a text file with any encoding and any line length."""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

LONGEST_LINE = 65_536
"""Characters of a line; the rest is skipped."""

_PIECE = 1 << 20
_ESCAPE = re.compile(r"\x1b\[[0-9;?]{0,32}[A-Za-z]")
_ENDS = re.compile(r"(\r\n|\n|\r)")


def encoding_of(head: bytes) -> str:
    """Return the encoding of a text by its first bytes: UTF-16 if it has a byte order mark, else UTF-8."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    return "utf-8-sig"


class Lines:
    """The lines of a file without line ends; a carriage return, as printed by progress bars, also ends a line.

    Lines have at most `LONGEST_LINE` characters, and no terminal colours. Undecodable bytes become U+FFFD.

    Parameters
    ----------
    file : binary file
        Seekable; it is read from its beginning.

    Attributes
    ----------
    number : int
        Number of the last line that was returned, from 1, as editors count: a carriage return begins no line.
    """

    def __init__(self, file: BinaryIO) -> None:
        self.number = 1
        file.seek(0)
        self._lines = self._read(file)

    def __iter__(self) -> Lines:
        return self

    def __next__(self) -> str:
        return next(self._lines)

    def _read(self, file: BinaryIO) -> Iterator[str]:
        encoding = encoding_of(file.read(4))
        file.seek(0)
        decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
        rest = ""
        while piece := file.read(_PIECE):
            *parts, rest = _ENDS.split(rest + decoder.decode(piece))
            for line, end in zip(parts[::2], parts[1::2], strict=True):
                yield _plain(line)
                self.number += end != "\r"
            # One character more than is kept, to detect a truncated line.
            rest = rest[: LONGEST_LINE + 1]
        rest += decoder.decode(b"", final=True)
        if rest:
            yield _plain(rest)


def _plain(line: str) -> str:
    return _ESCAPE.sub("", line[:LONGEST_LINE]) if "\x1b" in line else line[:LONGEST_LINE]
