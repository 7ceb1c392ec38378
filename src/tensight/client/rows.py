"""Long lists of the server, fetched page by page as they are read, and shown as tables in a notebook."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Generic, TypeVar, overload

from tensight.sessions.records.printing import MOST_ROWS_IN_NOTEBOOK, html_row, table_lines

PAGE = 500
"""Rows per page."""

R = TypeVar("R")
Cells = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class RowFormat(Generic[R]):
    """The table format of rows.

    Attributes
    ----------
    noun : str
        Plural noun for the rows.
    titles : tuple of str
        Titles of the columns.
    cells : callable
        Returns the table lines of a row.
    """

    noun: str
    titles: tuple[str, ...]
    cells: Callable[[R], Iterable[Cells]] = field(repr=False)


class Rows(Sequence[R]):
    """A list on the server: `len` returns its length, and iterating fetches missing rows.

    Parameters
    ----------
    fetch : callable
        Takes offset and limit, and returns the total number of rows and the rows from the offset on.
    row_format : RowFormat
        Format in notebooks.

    Examples
    --------
    >>> found = session.nodes(kind="operator")
    >>> len(found)
    118
    >>> [node.entry.type for node in found[:2]]
    ['Load', 'Conv2D']
    """

    def __init__(self, fetch: Callable[[int, int], tuple[int, Sequence[R]]], row_format: RowFormat[R]) -> None:
        self._fetch = fetch
        self._format = row_format
        self._total, first = fetch(0, PAGE)
        self._pages: dict[int, Sequence[R]] = {0: first}

    @classmethod
    def of(cls, rows: Sequence[R], row_format: RowFormat[R]) -> Rows[R]:
        """Return a list whose rows have all been fetched.

        Parameters
        ----------
        rows : sequence
            All rows of the list.
        row_format : RowFormat
            Their table format.
        """
        return cls(lambda offset, limit: (len(rows), rows[offset : offset + limit]), row_format)

    def __len__(self) -> int:
        return self._total

    @overload
    def __getitem__(self, index: int) -> R: ...
    @overload
    def __getitem__(self, index: slice) -> list[R]: ...
    def __getitem__(self, index: int | slice) -> R | list[R]:
        """Return a row, or a list of rows."""
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(self._total))]
        number = index + self._total if index < 0 else index
        page, row = divmod(number, PAGE)
        rows = self._page(page) if 0 <= number < self._total else ()
        if row >= len(rows):
            raise IndexError(f"there are {self._total} {self._format.noun}; {index} is out of range")
        return rows[row]

    def __iter__(self) -> Iterator[R]:
        for page in range(-(-self._total // PAGE)):
            yield from self._page(page)

    def __repr__(self) -> str:
        """Return the number of rows, and the first of them as a table."""
        return "\n".join([f"<{self._total} {self._format.noun}>", *table_lines(self, self._total)])

    def _repr_html_(self) -> str:
        lines = [cells for row in self[:MOST_ROWS_IN_NOTEBOOK] for cells in self._format.cells(row)]
        rest = f"{self._total} {self._format.noun}"
        if self._total > MOST_ROWS_IN_NOTEBOOK:
            rest += f", the first {MOST_ROWS_IN_NOTEBOOK} shown"
        return f"{table(self._format.titles, lines)}<p>{escape(rest)}</p>"

    def _page(self, page: int) -> Sequence[R]:
        if page not in self._pages:
            _, self._pages[page] = self._fetch(page * PAGE, PAGE)
        return self._pages[page]


def table(titles: Sequence[str], lines: Iterable[Cells]) -> str:
    """Return an HTML table; cells are text, never markup."""
    body = "".join(html_row("td", map(_text, line)) for line in lines)
    return f"<table><thead>{html_row('th', titles)}</thead><tbody>{body}</tbody></table>"


def _text(cell: object) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:.6g}"
    return str(cell)
