"""Reasons why a check could not be made on a tensor: the bits of an error code, and their texts."""

from __future__ import annotations

from enum import IntFlag


class ErrorCode(IntFlag):
    """The bits of an error code, as the original numbers them."""

    NAN = 1
    INF = 2
    NO_PREVIOUS = 4
    OUT_OF_MEMORY = 8
    NO_HISTORY = 16
    NO_VALUE = 32


# The texts are part of the original's Python API; scripts compare with them.
_WORDS = {
    ErrorCode.NAN: "Tensor contains NaN.",
    ErrorCode.INF: "A tensor contains +/-INF.",
    ErrorCode.NO_PREVIOUS: "The previous step value cannot be found.",
    ErrorCode.OUT_OF_MEMORY: "The tensor size exceeds the memory limit.",
    ErrorCode.NO_HISTORY: "Graph history file is not available.",
    ErrorCode.NO_VALUE: "Tensor has no value.",
}


def error_words(code: int) -> tuple[str, ...]:
    """Return the text of every bit that is set in an error code, lowest bit first; unknown bits are skipped.

    Parameters
    ----------
    code : int
        Bits of `ErrorCode`.
    """
    return tuple(text for bit, text in _WORDS.items() if code & bit) if code else ()
