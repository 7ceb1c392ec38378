"""The command line of a trial."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from tensight.search.configuration import PLACEHOLDER
from tensight.search.hyper_config import VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tensight.search.configuration import Configuration

_LARGEST_SCRIPT = 1 << 20


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


def unused_parameters(configuration: Configuration) -> list[str]:
    """Return the parameters that a command does not contain, unless its script reads them by `HyperConfig`.

    A parameter that decides whether a trial has another one has an effect without that.
    """
    decisive = {other for parameter in configuration.parameters.values() for other in parameter.when}
    used = names_in(configuration.command) | decisive
    unused = [name for name in configuration.parameters if name not in used]
    scripts = [_script(word) for word in _words(configuration.command)]
    contents = [content for content in scripts if content is not None]
    if any("HyperConfig" in content or VARIABLE in content for content in contents):
        return []
    # Without any parameter in its command, a training that cannot be read here is one of the original's.
    is_original = not names_in(configuration.command).intersection(configuration.parameters) and not contents
    return [] if is_original else unused


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return []


def _script(word: str) -> str | None:
    """Return the text of the file that a word of a command names; None if there is none."""
    try:
        path = Path(word)
        if not path.suffix or not path.is_file() or path.stat().st_size > _LARGEST_SCRIPT:
            return None
        return path.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        return None
