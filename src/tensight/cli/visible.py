"""Text that a terminal shows and does not obey."""

from __future__ import annotations

import unicodedata


def visible(text: str) -> str:
    """Return a text whose characters a terminal shows and does not obey: others appear as Python writes them."""
    if text.isprintable():
        return text
    return "".join(ascii(char)[1:-1] if _is_command(char) else char for char in text)


def _is_command(char: str) -> bool:
    """Tell whether a character stands for something to do (colours, direction of writing) or for nothing at all."""
    return char not in "\n\t" and (unicodedata.category(char)[0] == "C" or char in "\u2028\u2029")
