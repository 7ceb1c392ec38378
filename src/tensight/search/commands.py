"""The command line of a trial."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from tensight.search.configuration import PLACEHOLDER

if TYPE_CHECKING:
    from collections.abc import Mapping


def command_words(command: str, values: Mapping[str, object]) -> list[str]:
    """Return the words of a command with the values of a trial.

    A word that needs a value which the trial does not have is left out. If the word consists of that value only, the
    option before it is left out, too.

    Parameters
    ----------
    command : str
        As a user types it, with placeholders.
    values : mapping of str to value
    """
    words: list[str] = []
    for word in shlex.split(command):
        filled = fill(word, values)
        if filled is not None:
            words.append(filled)
        elif PLACEHOLDER.fullmatch(word) and words and words[-1].startswith("-"):
            words.pop()
    return words


def fill(text: str, values: Mapping[str, object]) -> str | None:
    """Return a text with its placeholders replaced, ``{{name}}`` by ``{name}``; None if a value is missing."""
    if not names_in(text) <= set(values):
        return None
    return PLACEHOLDER.sub(lambda match: str(values[match["name"]]) if match["name"] else match[0][1:-1], text)


def names_in(text: str) -> set[str]:
    """Return the names of the placeholders in a text."""
    return {match["name"] for match in PLACEHOLDER.finditer(text) if match["name"]}
