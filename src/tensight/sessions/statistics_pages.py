"""Filtering and sorting of a table of statistics, for dumps and for running trainings."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tensight.errors import InputError
from tensight.tensors import NUMBERS
from tensight.tensors.schema import DERIVED, derived

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

TEXTS = ("node", "graph", "type", "io", "dtype")

POSITION_COLUMNS = ("position", "rank", "slot")
"""Columns with the position of a tensor."""

SORT_COLUMNS = (*POSITION_COLUMNS, *TEXTS, *NUMBERS, "non_finite_count", "zero_percent", "abs_max")
"""Columns that a page of statistics can be sorted by."""

MOST_ORDERS = 4
"""Tables whose order is cached, for clients that scroll through their pages."""

MOST_WORDS = 20
"""Words of a query that are matched; further words are ignored."""


class StepRows(Protocol):
    """Tensors of a step with statistics, as columns, in execution order: rank by rank, inputs before outputs."""

    def texts(self, name: str) -> Sequence[str]:
        """Return a column of `TEXTS`."""

    def numbers(self, name: str) -> NDArray[np.float64]:
        """Return a column of `POSITION_COLUMNS` or of the numbers of statistics; NaN where unknown."""


def require_page(sort: str, offset: int, limit: int) -> None:
    """Validate the parameters of a page.

    Raises
    ------
    InputError
        There is no such column, or `offset` or `limit` is negative.
    """
    if sort not in SORT_COLUMNS:
        raise InputError(f"the statistics cannot be sorted by {sort[:80]!r}; choose one of {', '.join(SORT_COLUMNS)}")
    if offset < 0 or limit < 0:
        raise InputError(f"offset {offset} and limit {limit} must not be negative")


def ordered(rows: StepRows, query: str = "", sort: str = "position", *, descending: bool = False) -> NDArray[np.int64]:
    """Return the rows that match a query, in the requested order.

    Parameters
    ----------
    rows : StepRows
    query : str
        Words, each part of the node's name or the operator's type, case-insensitive; all must match.
    sort : str
        One of `SORT_COLUMNS`. Tensors without a value come last either way; equal ones stay in execution order.
    descending : bool
        With "position": reverse execution order.

    Returns
    -------
    int64 array
        Indices of the rows.
    """
    keys = _texts(rows, sort) if sort in TEXTS else _numbers(rows, sort)
    chosen = np.ones(len(keys), np.bool_)
    words = query.lower().split()[:MOST_WORDS]
    if words:
        texts = [f"{node} {kind}".lower() for node, kind in zip(rows.texts("node"), rows.texts("type"), strict=True)]
        chosen = np.array([all(word in text for word in words) for text in texts], np.bool_)
    has_none = np.zeros(len(keys), np.bool_) if sort in TEXTS else np.isnan(keys)
    with_value, without_value = np.flatnonzero(chosen & ~has_none), np.flatnonzero(chosen & has_none)
    order = np.argsort(keys[with_value], kind="stable")
    if descending and sort == "position":
        order = order[::-1]
    elif descending:
        # Reversed twice, so that equal rows stay in execution order.
        order = len(with_value) - 1 - np.argsort(keys[with_value][::-1], kind="stable")[::-1]
    return np.concatenate([with_value[order], without_value])


def needed(sort: str) -> tuple[str, ...]:
    """Return the columns that sorting and a query need."""
    return tuple(dict.fromkeys((*(DERIVED[sort].of if sort in DERIVED else (sort,)), "node", "type")))


def _texts(rows: StepRows, name: str) -> NDArray[np.str_]:
    return np.array([natural(text) for text in rows.texts(name)] if name == "node" else rows.texts(name), np.str_)


def _numbers(rows: StepRows, name: str) -> NDArray[np.float64]:
    if name in DERIVED:
        return derived(name, {each: rows.numbers(each) for each in DERIVED[name].of})
    return rows.numbers(name)


_DIGITS = re.compile(r"[0-9]{1,18}")


def natural(text: str) -> str:
    """Return a sort key that orders numbers in names by value: 0, 1, 2, 10."""
    return _DIGITS.sub(lambda match: match[0].lstrip("0").rjust(18, "0"), text)
