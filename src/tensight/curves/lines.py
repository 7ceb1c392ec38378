"""Lines of a text file, whatever its encoding and however long they are."""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

LONGEST_LINE = 65_536
"""Characters of a line; what follows is passed over."""

_PIECE = 1 << 20
_ESCAPE = re.compile(r"\x1b\[[0-9;?]{0,32}[A-Za-z]")
_ENDS = re.compile(r"\r\n|\n|\r")


def encoding_of(head: bytes) -> str:
    """Return the encoding of a text by its first bytes: UTF-8 unless they say that it is UTF-16."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    return "utf-8-sig"


def read_lines(file: BinaryIO) -> Iterator[str]:
    """Yield the lines of a file without their ends; a carriage return, as progress bars print, ends one, too.

    Parameters
    ----------
    file : binary file
        At its beginning, and able to seek.

    Yields
    ------
    str
        At most `LONGEST_LINE` characters, without the colours of terminals. Bytes that are no text become U+FFFD.
    """
    encoding = encoding_of(file.read(4))
    file.seek(0)
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    rest = ""
    while piece := file.read(_PIECE):
        *lines, rest = _ENDS.split(rest + decoder.decode(piece))
        for line in lines:
            yield _plain(line)
        # One character more than is kept, so that the line is known to be cut.
        rest = rest[: LONGEST_LINE + 1]
    rest += decoder.decode(b"", final=True)
    if rest:
        yield _plain(rest)


def _plain(line: str) -> str:
    return _ESCAPE.sub("", line[:LONGEST_LINE]) if "\x1b" in line else line[:LONGEST_LINE]
