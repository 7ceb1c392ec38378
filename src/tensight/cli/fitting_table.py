"""A table that fits any terminal without cutting a number."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console, ConsoleOptions, RenderResult

NARROWEST = 16
"""Characters that a column of names keeps at least: wider than the numbers in such texts, which wrap at spaces."""
INDENT = 2
GAP = "   "
_ANY_WIDTH = 10**6


class FittingTable(Table):
    """A table that prints its rows as blocks of lines where its columns do not fit side by side.

    Rich narrows every column of a table that is too wide, also those that may not wrap, and cuts what they contain.
    """

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render the columns side by side or, on a narrow terminal, the rows as blocks of lines."""
        if self._least_width(console, options) <= options.max_width:
            yield from super().__rich_console__(console, options)
        else:
            yield from self._blocks(console, options)

    def _least_width(self, console: Console, options: ConsoleOptions) -> int:
        """Return the number of characters of a line in which no column that may not wrap is narrowed."""
        narrowed = copy.copy(self)
        narrowed.columns = [
            column if column.no_wrap else replace(column, max_width=NARROWEST) for column in self.columns
        ]
        return narrowed.__rich_measure__(console, options.update(width=_ANY_WIDTH)).maximum

    def _blocks(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield each row as its name on one line and its other values, with their columns' headers, below it."""
        if self.title:
            yield Text(str(self.title), "bold")
        name_column = next((column for column in self.columns if not column.no_wrap), None)
        for cells in zip(*(column.cells for column in self.columns), strict=True):
            values: list[Text] = []
            for column, cell in zip(self.columns, cells, strict=True):
                text = console.render_str(cell) if isinstance(cell, str) else Text(str(cell))
                if not text.plain:
                    continue
                if column is name_column:
                    yield text
                else:
                    values.append(Text.assemble((f"{column.header} ", "dim"), text))
            yield Padding(_lines(values, options.max_width - INDENT), (0, 0, 1, INDENT))


def _lines(values: Iterable[Text], width: int) -> Text:
    """Join values with as many on a line as fit; only one that is longer than a line is wrapped."""
    result = Text(overflow="fold")
    used = 0
    for value in values:
        needed = used + len(GAP) + value.cell_len
        if not used or needed > width:
            result.append("\n" if used else "")
            used = value.cell_len
        else:
            result.append(GAP)
            used = needed
        result.append_text(value)
    return result
