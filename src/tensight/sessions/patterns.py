"""Regular expressions that a person types, matched in linear time.

Python's own engine can take ages over ``(a+)+$`` and holds the interpreter's lock meanwhile, which would stop every
session of the server. Arrow matches with RE2, which cannot, and lets the others work. RE2 knows no look-around and no
references to groups; a pattern with one is refused.
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
    """Return a text to find if it is short enough.

    Raises
    ------
    InputError
        If it is not.
    """
    if len(text) > LONGEST_PATTERN:
        raise InputError(f"{what} has {len(text):,} characters; give at most {LONGEST_PATTERN:,}")
    return text


def require_pattern(pattern: str) -> str:
    """Return a regular expression if it can be used.

    Raises
    ------
    InputError
        If it is none, is too long, or needs more than linear time.
    """
    # With no text at all Arrow would not look at the pattern.
    matching([""], pattern)
    return pattern


def matching(texts: Sequence[str], pattern: str, *, case_sensitive: bool = True) -> NDArray[np.bool_]:
    """Return for each text whether a regular expression matches a part of it.

    Parameters
    ----------
    texts : sequence of str
        Any number; 100,000 take some milliseconds.
    pattern : str
        In the syntax of RE2, which is Python's without look-around and references.
    case_sensitive : bool

    Returns
    -------
    ndarray of bool, shape (texts,)

    Raises
    ------
    InputError
        If the pattern cannot be used.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    require_short(pattern, "the regular expression")
    wanted = pattern.encode("utf-8", "backslashreplace").decode()
    pieces: list[NDArray[np.bool_]] = []
    # Arrow holds the interpreter while it converts a piece. An empty one shows whether the pattern can be used.
    for begin in range(0, max(len(texts), 1), _TEXTS_AT_ONCE):
        # A name may hold halves of characters that are no text; they become visible as \udcff, as in graphs.
        piece = [text.encode("utf-8", "backslashreplace") for text in texts[begin : begin + _TEXTS_AT_ONCE]]
        try:
            found: Any = pc.match_substring_regex(pa.array(piece, pa.string()), wanted, ignore_case=not case_sensitive)
        except pa.ArrowInvalid as error:
            shown = pattern if len(pattern) <= LONGEST_SHOWN else f"{pattern[:LONGEST_SHOWN]}…"
            raise InputError(
                f"{shown!r} cannot be used as a regular expression: {error}. It may have no look-around (?=…) and no"
                " references \\1; leave them out"
            ) from None
        pieces.append(found.to_numpy(zero_copy_only=False))
    return np.concatenate(pieces)
