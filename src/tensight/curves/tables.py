"""Scalars in tables: CSV, JSON lines and JSON, in the formats of trainers and dashboards."""

from __future__ import annotations

import csv
import json
import math
from typing import TYPE_CHECKING, Any, NamedTuple

from tensight.curves.curve import Point, Series, StepUnit, digits_of
from tensight.errors import CurveError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_STEP_NAMES = (
    "global_step",
    "trainer/global_step",
    "step",
    "_step",
    "steps",
    "iteration",
    "iter",
    "iterations",
    "batch",
)
_EPOCH_NAMES = ("epoch", "epochs")
_NO_SERIES = frozenset({"", "_runtime", "_timestamp", "wall time", "wall_time", "time", "timestamp", "rank"})
_DEEPEST = 4
_MOST_COLUMNS = 10_000
_LARGEST_STEP = 2**62


class PrintedFloat(float):
    """A number of a JSON document, with its original text."""

    text = ""


def _printed_float(text: str) -> PrintedFloat:
    value = PrintedFloat(text)
    value.text = text
    return value


def parse_json(text: str) -> Any:
    """Parse a JSON document; floating-point numbers keep their text.

    Raises
    ------
    ValueError
        The text is not JSON, or is nested too deeply.
    """
    try:
        return json.loads(text, parse_float=_printed_float, parse_int=_whole_number)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _whole_number(text: str) -> int | float:
    """Return a whole number, as a float if it has more digits than a step can have."""
    return int(text) if len(text) <= 19 else float(text)


class _Cell(NamedTuple):
    value: float
    point: Point


def _cell(content: object) -> _Cell | None:
    """Return the number in a cell; None if there is none."""
    if isinstance(content, bool) or content is None:
        return None
    if isinstance(content, PrintedFloat):
        return _Cell(float(content), Point(None, float(content), digits_of(content.text)))
    if isinstance(content, (int, float)):
        return _Cell(float(content), Point(None, float(content)))
    if isinstance(content, str):
        text = content.strip()
        try:
            value = float(text)
        except ValueError:
            return None
        return _Cell(value, Point(None, value, digits_of(text) if math.isfinite(value) else None))
    return None


def from_records(records: Iterable[Mapping[str, object]]) -> Series:
    """Return the series of rows, each with its scalars by name.

    Parameters
    ----------
    records : iterable of mapping
        One for each time something was logged; names without numbers are skipped.

    Raises
    ------
    CurveError
        There are too many values.
    """
    rows = [dict(_flat(record)) for record in records]
    step_name, unit = _step_name(rows)
    series = Series(unit=unit)
    for row in rows:
        step = _step(row.get(step_name)) if step_name is not None else None
        for name, content in row.items():
            if name == step_name or name.strip().lower() in (*_STEP_NAMES, *_EPOCH_NAMES, *_NO_SERIES):
                continue
            cell = _cell(content)
            if cell is not None:
                series.add(name, cell.point._replace(step=step))
    return series


def _flat(record: Mapping[str, object], prefix: str = "", depth: int = 0) -> Iterator[tuple[str, object]]:
    for key, content in record.items():
        name = f"{prefix}{key}"
        if isinstance(content, dict) and depth < _DEEPEST:
            yield from _flat(content, f"{name}/", depth + 1)
        else:
            yield name, content


def _step_name(rows: Sequence[Mapping[str, object]]) -> tuple[str | None, StepUnit]:
    """Return the column that counts steps, or else epochs; None if there is none."""
    seen = {name.strip().lower(): name for row in rows for name in row}
    for names, unit in ((_STEP_NAMES, StepUnit.STEP), (_EPOCH_NAMES, StepUnit.EPOCH)):
        for name in names:
            if name in seen and any(_step(row.get(seen[name])) is not None for row in rows):
                return seen[name], unit
    return None, StepUnit.STEP


def _step(content: object) -> int | None:
    """Return the whole number in a cell; None if there is none, such as for epoch 0.25."""
    cell = _cell(content)
    if cell is None or not math.isfinite(cell.value) or cell.value != int(cell.value):
        return None
    return int(cell.value) if abs(cell.value) <= _LARGEST_STEP else None


def from_json(document: object) -> Series:
    """Return the series of a JSON document.

    Parameters
    ----------
    document : object
        A list of records, of numbers, or of ``[wall time, step, value]`` as exported by TensorBoard; a
        ``trainer_state.json`` (its ``log_history``); a mapping of names to lists of numbers; or a mapping that contains
        one of these.

    Raises
    ------
    CurveError
        There are too many values.
    """
    series = Series()
    if isinstance(document, dict):
        history = document.get("log_history")
        if isinstance(history, list):
            return from_records(record for record in history if isinstance(record, dict))
        columns = dict(_flat(document))
        tables = [content for content in columns.values() if _are_records(content)]
        if len(tables) == 1:
            return from_json(tables[0])
        if not any(isinstance(content, list) for content in columns.values()):
            return from_records([document])
        steps, series.unit = _column_of_steps(columns)
        for name, content in columns.items():
            if isinstance(content, list) and not _is_step_name(name):
                _add_list(series, name, content, steps)
    elif isinstance(document, list):
        if _are_records(document):
            return from_records(record for record in document if isinstance(record, dict))
        _add_list(series, "loss", document, None)
    return series


def _are_records(content: object) -> bool:
    return isinstance(content, list) and bool(content) and isinstance(content[0], dict)


def _is_step_name(name: str) -> bool:
    return name.lower() in (*_STEP_NAMES, *_EPOCH_NAMES)


def _column_of_steps(columns: Mapping[str, object]) -> tuple[list[object] | None, StepUnit]:
    for names, unit in ((_STEP_NAMES, StepUnit.STEP), (_EPOCH_NAMES, StepUnit.EPOCH)):
        for name, content in columns.items():
            if name.lower() in names and isinstance(content, list):
                return content, unit
    return None, StepUnit.STEP


def _add_list(series: Series, name: str, content: Sequence[object], steps: Sequence[object] | None) -> None:
    """Add a list of numbers, or of lists that end with a step and a number."""
    for index, entry in enumerate(content):
        step = _step(steps[index]) if steps is not None and len(steps) == len(content) else None
        if isinstance(entry, list) and len(entry) in (2, 3):
            step, entry = _step(entry[-2]), entry[-1]
        cell = _cell(entry)
        if cell is not None:
            series.add(name, cell.point._replace(step=step))


def from_json_lines(lines: Iterable[str]) -> Series:
    """Return the series of JSON lines; invalid lines are skipped, and counted.

    Raises
    ------
    CurveError
        There are too many values.
    """
    records: list[dict[str, object]] = []
    damaged = 0
    for line in lines:
        text = line.strip()
        if not text:
            continue
        try:
            record = parse_json(text)
        except ValueError:
            damaged += 1
            continue
        if isinstance(record, dict):
            records.append(record)
    series = from_records(records)
    if damaged:
        series.notes.append(f"{damaged:,} lines are not JSON and were skipped")
    return series


def from_delimited(lines: Iterable[str], delimiter: str) -> Series:
    """Return the series of a table with column names in its first row, or with one or two columns without names.

    Parameters
    ----------
    lines : iterable of str
    delimiter : str

    Raises
    ------
    CurveError
        The table has too many columns, or a field that is too long.
    """
    rows = csv.reader((line.replace("\0", "") for line in lines), delimiter=delimiter)
    try:
        header = next(rows, [])
        if len(header) > _MOST_COLUMNS:
            raise CurveError(f"more than {_MOST_COLUMNS:,} columns")
        if header and all(_cell(field) is not None for field in header):
            names = (
                ["loss"]
                if len(header) == 1
                else ["step", "loss", *(f"column {at}" for at in range(3, len(header) + 1))]
            )
            return from_records(dict(zip(names, row, strict=False)) for row in [header, *rows])
        # Dashboards add the range of each group of runs.
        kept = [name.strip() for name in header]
        records = (
            {
                name: field
                for name, field in zip(kept, row, strict=False)
                if field.strip() and not name.endswith(("__MIN", "__MAX"))
            }
            for row in rows
        )
        return from_records(records)
    except csv.Error as error:
        raise CurveError(f"the table cannot be read: {error}") from None
