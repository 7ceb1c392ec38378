"""Matching of regular expressions from users, in linear time.

Python's engine can take exponential time for ``(a+)+$`` and holds the interpreter's lock meanwhile, which would block
all sessions of the server. Arrow uses RE2, which takes linear time, and releases the lock. RE2 has no look-around and
no back-references; patterns with these are refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.errors import InputError
from tensight.graph.search import LONGEST_SHOWN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

LONGEST_PATTERN = 1000
"""Characters of a regular expression, or of a text to find."""

_TEXTS_AT_ONCE = 20_000


def require_short(text: str, what: str) -> str:
    """Return a search text if it is short enough.

    Raises
    ------
    InputError
        The text is too long.
    """
    if len(text) > LONGEST_PATTERN:
        raise InputError(f"{what} has {len(text):,} characters; give at most {LONGEST_PATTERN:,}")
    return text


def require_pattern(pattern: str) -> str:
    """Return a regular expression if it can be used.

    Raises
    ------
    InputError
        It is invalid, too long, or not supported by RE2.
    """
    # Without any text, Arrow would not compile the pattern.
    matching([""], pattern)
    return pattern


def matching(texts: Sequence[str], pattern: str, *, case_sensitive: bool = True) -> NDArray[np.bool_]:
    """Return for each text whether a regular expression matches a part of it.

    Parameters
    ----------
    texts : sequence of str
        Any number; 100,000 take a few milliseconds.
    pattern : str
        RE2 syntax, which is Python's without look-around and back-references.
    case_sensitive : bool

    Returns
    -------
    ndarray of bool, shape (texts,)

    Raises
    ------
    InputError
        The pattern cannot be used.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    require_short(pattern, "the regular expression")
    encoded_pattern = pattern.encode("utf-8", "backslashreplace").decode()
    pieces: list[NDArray[np.bool_]] = []
    # Arrow holds the interpreter's lock while it converts a piece. An empty piece still validates the pattern.
    for begin in range(0, max(len(texts), 1), _TEXTS_AT_ONCE):
        # Names may contain lone surrogates, which are not valid text; they are escaped as \udcff, as in graphs.
        piece = [text.encode("utf-8", "backslashreplace") for text in texts[begin : begin + _TEXTS_AT_ONCE]]
        try:
            matches: Any = pc.match_substring_regex(
                pa.array(piece, pa.string()), encoded_pattern, ignore_case=not case_sensitive
            )
        except pa.ArrowInvalid as error:
            shown = pattern if len(pattern) <= LONGEST_SHOWN else f"{pattern[:LONGEST_SHOWN]}…"
            raise InputError(
                f"{shown!r} cannot be used as a regular expression: {error}. It may have no look-around (?=…) and no"
                " references \\1; leave them out"
            ) from None
        pieces.append(matches.to_numpy(zero_copy_only=False))
    return np.concatenate(pieces)
