"""Where a training comes to other data: a stage of a curriculum, a task, a longer sequence, by what its log names."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_VALUES = 12
"""Maximum number of values of what names a stage; lengths of single batches have more."""

_KEY = (
    r"(?:curriculum[ _]?)?(?:stage|phase|curriculum|task|fold|lesson|difficulty|data[ _]?set|corpus|domain|resolution"
    r"|(?:img|image)[ _]?size|(?:max[ _]?)?(?:seq(?:uence)?|context|block|max)[ _]?(?:len(?:gth)?|size))"
    r"(?:[ _](?:id|idx|name))?"
)
_COLUMN = re.compile(rf"(?:[\w.-]{{1,40}}/)?{_KEY}", re.IGNORECASE)
_MESSAGES = frozenset({"event", "message", "msg", "info", "note"})
_NAMED = re.compile(
    rf"(?<![A-Za-z])(?P<key>{_KEY})[\"']?(?:\s{{0,2}}[:=]\s{{0,2}}|\s{{1,2}}(?=\d))[\"']?(?P<value>[\w./-]{{1,60}})",
    re.IGNORECASE,
)
_CHANGED = re.compile(
    rf"\b(?:switch|chang|advanc|enter|next|new)\w{{0,6}}\b.{{0,30}}?\b{_KEY}(?![A-Za-z]).{{0,60}}", re.IGNORECASE
)


class Stages:
    """The places in a log at which a stage is named for the first time."""

    def __init__(self) -> None:
        self._first: dict[str, dict[str, int]] = {}

    def see(self, text: str, at: int) -> None:
        """Look for the names of stages in a text at a place."""
        for match in _NAMED.finditer(text):
            self._note(match["key"].lower(), match["value"], at)
        changed = _CHANGED.search(text)
        if changed is not None:
            self._note("", changed[0], at)

    def see_row(self, row: Mapping[str, object], at: int) -> None:
        """Look for stages in the row of a table at a place: in its columns, and in messages."""
        for name, content in row.items():
            if content in (None, ""):
                continue
            if _is_stage(name):
                self._note(name, str(content), at)
            elif isinstance(content, str) and name.lower() in _MESSAGES:
                self.see(content, at)

    def _note(self, key: str, value: str, at: int) -> None:
        values = self._first.setdefault(key, {})
        if len(values) <= MOST_VALUES:
            values.setdefault(value, at)

    @property
    def begins(self) -> list[int]:
        """The places, in ascending order."""
        named = [values for values in self._first.values() if len(values) <= MOST_VALUES]
        return sorted({at for values in named for at in values.values()})


@lru_cache(maxsize=4096)
def _is_stage(name: str) -> bool:
    return _COLUMN.fullmatch(name) is not None
