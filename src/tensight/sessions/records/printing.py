"""How records are printed: one line for a record, a short table for several.

`SHOWN` lists the most important fields of each record. Fields that are empty, unknown or have their default value are
omitted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from html import escape
from typing import Any

MOST_LINES = 10
"""Lines of a printed table, including its head."""
MOST_ROWS_IN_NOTEBOOK = 25

_MOST_SHOWN = 3
"""Elements of a list that are printed."""
_LONGEST_SHOWN = 80
_LONGEST_ADDRESS = 200
_LONGEST_CELL = 60

_STATISTICS = ("dtype", "shape", "min", "max", "nan_count", "neg_inf_count", "pos_inf_count")
_OF_TENSOR = tuple(f"statistics.{name}" for name in _STATISTICS)

SHOWN: dict[str, tuple[str, ...]] = {
    "AddedError": ("path", "kind", "added", "divergent"),
    "ComparedOperator": ("name", "type", "step", "phase", "text", "added", "source"),
    "ComparedSlot": ("address", "name", "slot", "text"),
    "ComparisonRecord": ("id", "a.title", "b.title", "state", "verdict", "message"),
    "ConditionRecord": ("id", "abbreviation", "target", "unavailable_because"),
    "DumpRecord": ("name", "ranks", "framework", "session", "problem"),
    "ElementRecord": ("address", "index", "value"),
    "Event": ("number", "kind", "data"),
    "Execution": ("step", "graph", "graphs", "has_data"),
    "FoundNode": ("entry.path", "entry.type", "rank", "entry.roles", "entry.hits"),
    "Frame": ("file", "lines", "code"),
    "GraphLevel": ("scope", "graph", "rank", "entries", "edges"),
    "GraphRecord": ("name", "rank", "operators", "parameters", "problems"),
    "HitParameter": ("name", "preset", "actual"),
    "HitRecord": ("condition", "name", "parameters", "errors"),
    "NodeHits": ("node", "rank", "type", "step", "tensors", "line"),
    "NodeRecord": ("name", "rank", "type", "kind", "position"),
    "OriginRecord": ("address", "type", "step", "anomaly", "line"),
    "RankComparison": ("rank", "verdict", "sentence"),
    "RankComparisonDetail": ("rank", "verdict", "sentence"),
    "RankRecord": ("rank", "state", "step", "node", "message"),
    "RelatedNode": ("name", "type", "distance", "abbreviations"),
    "SessionRecord": ("id", "name", "state", "step", "hits", "message"),
    "Slot": ("slot", "io", "dtype", "shape", "peer"),
    "SourceFile": ("file", "lines"),
    "SourceLine": ("line", "code", "nodes"),
    "Statistics": _STATISTICS,
    "StatisticsRow": ("address", "type", *_OF_TENSOR),
    "TensorHits": ("address", "hits"),
    "TensorRecord": ("address", "type", "dtype", "shape", "status", "scalar", *_OF_TENSOR[2:], "abbreviations"),
    "TreeEntry": ("path", "kind", "type", "nodes", "hits"),
    "UnmatchedRow": ("name", "kind", "type", "phase"),
    "WatchpointRecord": ("id", "text", "name", "selection", "nodes", "enabled", "hits"),
}
"""The printed fields of each record, the first without its name; records that are not listed print all fields."""

ROWS: dict[str, str] = {
    "ComparedOperatorPage": "rows",
    "EventPage": "events",
    "ExecutionPage": "executions",
    "HitPage": "nodes",
    "SearchPage": "nodes",
    "SourcePage": "files",
    "StatisticsPage": "rows",
    "TreePage": "entries",
    "UnmatchedPage": "rows",
}
"""The field with the rows of each page."""


def _cut(text: str, most: int) -> str:
    """Shorten a long text in the middle, because the end of an address identifies the tensor."""
    if len(text) <= most:
        return text
    kept = most - 1
    return f"{text[: kept // 3]}…{text[len(text) - (kept - kept // 3) :]}"


def _cut_end(text: str, most: int) -> str:
    """Shorten a long text at its end."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _hit(hit: Any) -> str:
    measures = ", ".join(shown(parameter) for parameter in hit.parameters if parameter.hit)
    return f"{hit.condition}({measures or ', '.join(hit.errors)})"


def _threshold(parameter: Any) -> str:
    actual = "" if parameter.actual is None else f" (is {parameter.actual:.6g})"
    return f"{parameter.name}={shown(parameter.preset)}{actual}"


WITHIN: dict[str, tuple[Callable[[Any], str], Callable[[str, int], str]]] = {
    "Frame": (lambda frame: frame.file if frame.line is None else f"{frame.file}:{frame.lines}", _cut),
    "HitParameter": (_threshold, _cut_end),
    "HitRecord": (_hit, _cut_end),
    "TensorHits": (lambda tensor: "; ".join(map(_hit, tensor.hits)), _cut_end),
}
"""Formatting and shortening of records that are fields of other records."""


def line_of(record: Any) -> str:
    """Return a record as one line.

    Parameters
    ----------
    record : Record
        Any record.
    """
    kind = type(record).__name__
    head, *facts = _facts(record)
    named = [f"{name}={text}" for name, text in facts if text]
    unnamed = [_cut(head[1], _LONGEST_ADDRESS)] if kind in SHOWN else [f"{head[0]}={head[1]}"] if head[1] else []
    return f"<{' '.join([kind, *unnamed, *named])}>"


def page_of(record: Any) -> str:
    """Return a page as a table, or another record as one line.

    Parameters
    ----------
    record : Record
        Any record.
    """
    kind = type(record).__name__
    if kind not in ROWS:
        return line_of(record)
    rows = getattr(record, ROWS[kind])
    total = getattr(record, "total", len(rows))
    return "\n".join([f"<{kind} of {total}>", *table_lines(rows, total)])


def table_lines(rows: Sequence[Any], total: int) -> list[str]:
    """Return the indented lines of a table of records, up to `MOST_LINES` with a heading above.

    Parameters
    ----------
    rows : sequence of Record
        Records of the same class; only as many are read as are printed.
    total : int
        Number of all records.
    """
    most = MOST_LINES - 2
    titles, cells = _table(rows[: most if total <= most else most - 1])
    more = ["  …"] if total > len(cells) else []
    if not cells:
        return more
    widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    lines = ("  ".join(map(str.ljust, line, widths)) for line in (titles, *cells))
    return [*(f"  {line}".rstrip() for line in lines), *more]


def html_of(record: Any) -> str:
    """Return a record as HTML: the rows of a page, or all non-empty fields. All text is escaped.

    Parameters
    ----------
    record : Record
        Any record.
    """
    if (name := ROWS.get(type(record).__name__)) is not None:
        titles, cells = _table(getattr(record, name)[:MOST_ROWS_IN_NOTEBOOK])
        lines = [html_row("th", titles), *(html_row("td", line) for line in cells)]
    else:
        lines = [
            f"<tr><th>{escape(field)}</th><td>{escape(shown(value))}</td></tr>"
            for field, value in record
            if not _is_empty(value)
        ]
    return f"<table>{''.join(lines)}</table>"


def shown(value: Any, most: int = _LONGEST_SHOWN) -> str:
    """Return a value of a record as short text: strings unquoted, lists in brackets, long values shortened.

    A long list is replaced by its length, so that the start of one element is never joined to the end of another.

    Parameters
    ----------
    value : object
        Value of a field.
    most : int
        Maximum number of characters.
    """
    if isinstance(value, Enum):
        return shown(value.value, most)
    if within := WITHIN.get(type(value).__name__):
        text_of, shorten = within
        return shorten(_printable(text_of(value)), most)
    if isinstance(value, (tuple, list)):
        return _shown_list(value, most)
    if isinstance(value, float):
        return f"{value:.6g}"
    return _cut(_printable(value), most) if isinstance(value, str) else _cut_end(_printable(repr(value)), most)


def _shown_list(values: Sequence[Any], most: int) -> str:
    if len(values) > _MOST_SHOWN and not _is_numbers(values):
        return f"[{len(values)} items]"
    text = f"[{', '.join(map(shown, values))}]"
    if len(text) <= most:
        return text
    if _is_numbers(values):
        return f"[{', '.join(map(shown, values[:_MOST_SHOWN]))}, … {len(values)} numbers]"
    return f"[{len(values)} items]" if len(values) > 1 else _cut_end(text, most)


def _is_empty(value: Any) -> bool:
    """Return whether a value is omitted in printed records because it is None or empty."""
    return value is None or (isinstance(value, (str, tuple, list, dict)) and not value)


def _table(rows: Sequence[Any]) -> tuple[list[str], list[list[str]]]:
    """Return titles and cells of a table of records, without columns that are empty in all rows."""
    facts = [dict(_facts(row, _LONGEST_CELL)) for row in rows]
    titles = [title for title in (facts[0] if facts else ()) if any(each[title] for each in facts)]
    head = titles[:1]
    return titles, [
        [_cut(each[title], _LONGEST_CELL) if title in head else each[title] for title in titles] for each in facts
    ]


def html_row(tag: str, cells: Iterable[str]) -> str:
    """Return a row of a table as HTML, with the text of the cells escaped.

    Parameters
    ----------
    tag : {"th", "td"}
        Tag of the cells.
    cells : iterable of str
    """
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"


def _facts(record: Any, most: int = _LONGEST_SHOWN) -> list[tuple[str, str]]:
    """Return names and texts of the printed fields of a record; the text of an omitted field is empty.

    The text of the first field is whole if it is a string; the others have up to `most` characters.
    """
    kind = type(record)
    head, *paths = SHOWN.get(kind.__name__, tuple(kind.model_fields))
    value = _at(record, head)[0]
    text = _printable(value) if isinstance(value, str) else shown(value, most)
    facts = [(_title(head), text)]
    for path in paths:
        value, default = _at(record, path)
        is_left_out = _is_empty(value) or value == default
        facts.append((_title(path), "" if is_left_out else shown(value, most)))
    return facts


def _title(path: str) -> str:
    """Return the title of a field: its name, or ``a`` and ``b`` for the runs of a comparison."""
    return path.removesuffix(".title").rpartition(".")[2]


def _at(record: Any, path: str) -> tuple[Any, Any]:
    """Return the value at a path, and its default; None for both if a record on the path is None."""
    value, default = record, None
    for name in path.split("."):
        if value is None:
            return None, None
        field = type(value).model_fields.get(name)
        default = None if field is None or field.is_required() else field.default
        value = getattr(value, name)
    return value, default


def _is_numbers(values: Iterable[Any]) -> bool:
    return all(isinstance(value, int) for value in values)


def _printable(text: str) -> str:
    """Return a text with control characters escaped, because names come from untrusted files."""
    return text if text.isprintable() else "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
