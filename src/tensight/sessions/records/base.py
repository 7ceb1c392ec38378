"""The base class of records, and types that they share."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict

from tensight.sessions.records.printing import html_of, page_of


def _finite_or_none(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


Number = Annotated[float | None, BeforeValidator(_finite_or_none)]
"""A finite number, or None."""

Io = Literal["output", "input"]
Which = Literal["current", "previous", "difference"]


class Record(BaseModel):
    """Base of all records."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True, populate_by_name=True)

    def __repr__(self) -> str:
        """Return a line with the most important fields, or a short table for a page."""
        return page_of(self)

    __str__ = __repr__

    def _repr_html_(self) -> str:
        """Return the non-empty fields, or the rows of a page, as a table for notebooks."""
        return html_of(self)


class StepSpan(Record):
    """Consecutive steps."""

    first: int
    last: int
