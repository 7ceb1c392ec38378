"""What all records have in common, and the words they share."""

from __future__ import annotations

import math
from collections.abc import Iterator
from enum import Enum
from html import escape
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict


def _finite_or_none(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


Number = Annotated[float | None, BeforeValidator(_finite_or_none)]
"""A finite number, or None where there is none."""

_MOST_SHOWN = 3
"""Elements of a list that are printed."""
_LONGEST_SHOWN = 80

Io = Literal["output", "input"]
Which = Literal["current", "previous", "difference"]


class Record(BaseModel):
    """Base of all records."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True, populate_by_name=True)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Yield the fields that say something, in short, so that a record takes a line."""
        for name, value in super().__repr_args__():
            if not _is_empty(value):
                yield name, _Short(value)

    def _repr_html_(self) -> str:
        """Return the fields that say something as a table, for notebooks."""
        lines = (
            f"<tr><th>{escape(name or '')}</th><td>{escape(str(value))}</td></tr>"
            for name, value in self.__repr_args__()
        )
        return f"<table>{''.join(lines)}</table>"


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, (str, tuple, list, dict)) and not value)


class _Short:
    """A value of a record as it is printed: long texts and lists are cut."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __repr__(self) -> str:
        value = self._value
        if isinstance(value, Enum):
            return repr(value.value)
        if isinstance(value, (tuple, list)) and len(value) > _MOST_SHOWN:
            return f"[{len(value)} items]"
        if isinstance(value, (tuple, list)):
            return f"[{', '.join(repr(_Short(one)) for one in value)}]"
        text = f"{value:.6g}" if isinstance(value, float) else repr(value)
        return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 1]}…"

    def __str__(self) -> str:
        value = self._value
        return value if isinstance(value, str) and not isinstance(value, Enum) else repr(self)


class StepSpan(Record):
    """Steps that follow each other."""

    first: int
    last: int
