"""Texts of a training, which may be anything, as one line of bounded length."""

from __future__ import annotations

from tensight.cli.visible import visible

MOST_TEXT = 2_000
"""Maximum length of a sentence."""


def one_line(text: str, most: int = MOST_TEXT) -> str:
    """Return a text as one line without control characters; a longer one is cut."""
    line = " ".join(visible(text[: 4 * most]).split())
    return line if len(line) <= most else line[: most - 1] + "…"


def lines(text: str, most: int = MOST_TEXT) -> str:
    """Return the end of a text without control characters other than line breaks."""
    clean = visible(text[-4 * most :].replace("\t", "    "))
    return clean if len(clean) <= most else "…" + clean[1 - most :]
