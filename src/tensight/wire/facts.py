"""Facts of a training on the wire: lines of JSON, compressed."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from tensight.wire.errors import WireError
from tensight.wire.protocol import MAX_MESSAGE_BYTES
from tensight.wire.telemetry_pb2 import StatisticsRows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MOST_BYTES = 1 << 26
"""Maximum length of the lines of a message."""

_FAST = 1


def facts_messages(lines: Iterable[bytes]) -> Iterator[StatisticsRows]:
    """Yield lines as messages; a line that is too large for a message is left out.

    Parameters
    ----------
    lines : iterable of bytes
        Each with its end of line.
    """
    part: list[bytes] = []
    length = 0
    for line in lines:
        if length + len(line) > MAX_MESSAGE_BYTES and part:
            yield from _message(part)
            part, length = [], 0
        part.append(line)
        length += len(line)
    if part:
        yield from _message(part)


def _message(lines: Iterable[bytes]) -> Iterator[StatisticsRows]:
    content = zlib.compress(b"".join(lines), _FAST)
    if len(content) < MAX_MESSAGE_BYTES - 1024:
        yield StatisticsRows(facts=content)


def received_facts(content: bytes) -> list[bytes]:
    """Return the lines of a message.

    Raises
    ------
    WireError
        They are not compressed, or too long.
    """
    reader = zlib.decompressobj()
    try:
        lines = reader.decompress(content, MOST_BYTES)
    except zlib.error as error:
        raise WireError(f"facts are not compressed: {error}") from None
    if reader.unconsumed_tail or not reader.eof:
        raise WireError(f"facts of more than {MOST_BYTES:,} bytes in a message are not accepted")
    return lines.splitlines(keepends=True)
