"""What all records have in common, and the words they share."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict


def _finite_or_none(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


Number = Annotated[float | None, BeforeValidator(_finite_or_none)]
"""A finite number, or None where there is none."""

Io = Literal["output", "input"]
Which = Literal["current", "previous", "difference"]


class Record(BaseModel):
    """Base of all records."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True, populate_by_name=True)
