"""Escape characters that control a terminal."""

from __future__ import annotations

import unicodedata


def visible(text: str) -> str:
    """Return a text with control characters replaced by Python's escapes."""
    if text.isprintable():
        return text
    return "".join(ascii(char)[1:-1] if _is_command(char) else char for char in text)


def _is_command(char: str) -> bool:
    """Return whether a character controls the terminal (colours, direction of writing) or is unassigned."""
    return char not in "\n\t" and (unicodedata.category(char)[0] == "C" or char in "\u2028\u2029")
