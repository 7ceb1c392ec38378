"""Text, and numbers as text: fields are bytes, because names come from users and file systems."""

from __future__ import annotations

import re

from tensight.graph.values import decode_text
from tensight.wire.errors import WireError
from tensight.wire.protocol import MOST_NAME, MOST_SLOT, MOST_TEXT

_SLOT = re.compile(rb"[0-9]{1,10}")


def text(data: bytes, limit: int = MOST_TEXT) -> str:
    r"""Decode a text, cut to `limit` characters; bytes that are not UTF-8 stay visible as ``\xff``, as in a graph."""
    # a character has at most four bytes, and a byte becomes at most one character before the cut
    return decode_text(data[: 4 * limit])[:limit]


def name(data: bytes) -> str:
    """Decode the name of a node or graph, as in the graph.

    Raises
    ------
    WireError
        It is too long: a cut name would be a different name.
    """
    decoded = decode_text(data[: 4 * MOST_NAME + 4])
    if len(decoded) > MOST_NAME:
        raise WireError(f"a name has more than {MOST_NAME:,} characters: {decoded[:80]!r}…")
    return decoded


def encoded(text: str) -> bytes:
    """Encode a text; characters that UTF-8 cannot encode (lone surrogates) are escaped."""
    return text.encode("utf-8", "backslashreplace")


def slot_number(data: bytes) -> int:
    """Return the number of a slot; an empty text means the first.

    Raises
    ------
    WireError
        The text is not a slot number.
    """
    if not data:
        return 0
    number = int(data) if _SLOT.fullmatch(data) else -1
    if not 0 <= number <= MOST_SLOT:
        raise WireError(f"the slot {text(data, 80)!r} is not a number from 0 to {MOST_SLOT}")
    return number
