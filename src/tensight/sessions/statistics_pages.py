"""What may be asked of a table of statistics: the same of a dump and of a run that goes on."""

from __future__ import annotations

import re

from tensight.errors import InputError
from tensight.tensors import NUMBERS

TEXTS = ("node", "graph", "type", "io", "dtype")

DERIVED = ("non_finite_count", "zero_percent", "abs_max")
"""What is no column but follows from several."""

SORT_COLUMNS = ("position", "rank", "slot", *TEXTS, *NUMBERS, *DERIVED)
"""What a page of statistics can be sorted by."""


MOST_ORDERS = 4
"""Tables whose order is remembered, for whoever scrolls through them page by page."""


def require_page(sort: str, offset: int, limit: int) -> None:
    """Refuse what cannot be asked for.

    Raises
    ------
    InputError
        There is no such column, or `offset` or `limit` is negative.
    """
    if sort not in SORT_COLUMNS:
        raise InputError(f"the statistics cannot be sorted by {sort[:80]!r}; choose one of {', '.join(SORT_COLUMNS)}")
    if offset < 0 or limit < 0:
        raise InputError(f"offset {offset} and limit {limit} must not be negative")


_DIGITS = re.compile(r"[0-9]{1,18}")


def natural(text: str) -> str:
    """Return a text by which names sort with their numbers as numbers: 0, 1, 2, 10."""
    return _DIGITS.sub(lambda found: found[0].lstrip("0").rjust(18, "0"), text)
