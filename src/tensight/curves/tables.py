"""Scalars in tables: CSV, JSON lines and JSON, in the formats of trainers and dashboards."""

from __future__ import annotations

import csv
import json
import math
from typing import TYPE_CHECKING, Any

from tensight.curves.curve import Point, Series, digits_of, is_loss
from tensight.curves.numbers import Numbers, begins_as_number, plain_number
from tensight.curves.stages import Stages
from tensight.errors import CurveError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tensight.curves.lines import Lines
    from tensight.curves.numbers import Decimal

_STEP_NAMES = (
    "global_step",
    "trainer/global_step",
    "step",
    "_step",
    "steps",
    "iteration",
    "iter",
    "iterations",
    "current_steps",
    "current_step",
    "num_updates",
    "train/global_step",
    "train/step",
    "n_iter",
    "updates",
    "batch",
)
_EPOCH_NAMES = ("epoch", "epochs")
_NO_SERIES = frozenset({"", "_runtime", "_timestamp", "wall time", "wall_time", "time", "timestamp", "rank"})
_OF_MEANS = (frozenset({"current_steps"}), frozenset({"num_updates"}), frozenset({"learning_rate", "epoch"}))
"""Columns of trainers that log the mean since the entry before: LLaMA-Factory, fairseq, Hugging Face."""

_DEEPEST = 4
_FEWEST, _FEWEST_EMPTY = 5, 3
"""Minimum number of values of a loss, and of empty cells after them to the end, that are taken for NaN."""

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


def _point(content: object) -> Point | None:
    """Return the number in a cell that is not a text; None if there is none."""
    if isinstance(content, bool) or content is None:
        return None
    if isinstance(content, PrintedFloat):
        return Point(None, float(content), digits_of(content.text))
    if isinstance(content, int):
        return Point(None, float(content), digits_of(str(content)))
    return Point(None, content) if isinstance(content, float) else None


def from_records(
    records: Iterable[Mapping[str, object]], decimal: Decimal | None = None, lines: Sequence[int] = ()
) -> Series:
    """Return the series of rows, each with its scalars by name.

    Parameters
    ----------
    records : iterable of mapping
        One for each time something was logged; names without numbers are skipped.
    decimal : Decimal, optional
        The sign before the decimals of numbers in texts; by default it is inferred.
    lines : sequence of int
        The line of each record; empty if the file has no lines.

    Raises
    ------
    CurveError
        There are too many values.
    """
    rows = [dict(_flat(record)) for record in records]
    numbers = Numbers(decimal)
    seen = {name.strip().lower(): name for row in rows for name in row}
    for row in rows:
        for name, content in row.items():
            if isinstance(content, str):
                (numbers.see_step(content) if _is_step_name(name) else numbers.see(content, name))
    step_name = _column(rows, seen, _STEP_NAMES, numbers)
    epoch_name = next((seen[name] for name in _EPOCH_NAMES if name in seen), None)
    series = Series(holds_means=any(names <= seen.keys() for names in _OF_MEANS), lines=dict(enumerate(lines, 1)))
    ends = {name: _end(rows, name) for name in seen.values() if is_loss(name)}
    stages = Stages()
    for entry, row in enumerate(rows, 1):
        stages.see_row(row, entry)
        step = _step(row.get(step_name), numbers) if step_name is not None else None
        epoch = _number(row.get(epoch_name), numbers) if epoch_name is not None else None
        for name, content in row.items():
            if name == step_name or name.strip().lower() in (*_STEP_NAMES, *_EPOCH_NAMES, *_NO_SERIES):
                continue
            if content in (None, "") and entry > ends.get(name, len(rows)):
                series.add(name, Point(step, math.nan, epoch=epoch, entry=entry))
                continue
            _add(series, name, content, numbers, Point(step, math.nan, epoch=epoch, entry=entry))
    series.stages = stages.begins
    return series


def _end(rows: Sequence[Mapping[str, object]], name: str) -> int:
    """Return the entry after which a loss is empty in all rows: writers of tables and JSON leave out NaN.

    Rows without it are of something else if there are others before the end.
    """
    has_number = [row.get(name) not in (None, "") for row in rows if name in row]
    if len(has_number) < len(rows) or not any(has_number):
        return len(rows)
    end = len(rows) - has_number[::-1].index(True)
    is_left_out = all(has_number[:end]) and end >= _FEWEST and len(rows) - end >= _FEWEST_EMPTY
    return end if is_left_out else len(rows)


def _column(
    rows: Sequence[Mapping[str, object]], seen: Mapping[str, str], names: Sequence[str], numbers: Numbers
) -> str | None:
    """Return the column that counts steps; None if there is none."""
    for name in names:
        if name in seen and any(_step(row.get(seen[name]), numbers) is not None for row in rows):
            return seen[name]
    return None


def _add(series: Series, name: str, content: object, numbers: Numbers, at: Point) -> None:
    """Add the number in a cell, if there is one."""
    if isinstance(content, str):
        if begins_as_number(content) or plain_number(content) is not None:
            series.add_printed(name, content, numbers, at)
        return
    point = _point(content)
    if point is not None:
        series.add(name, at._replace(value=point.value, digits=point.digits))


def _flat(record: Mapping[str, object], prefix: str = "", depth: int = 0) -> Iterator[tuple[str, object]]:
    for key, content in record.items():
        name = f"{prefix}{key}"
        if isinstance(content, dict) and depth < _DEEPEST:
            yield from _flat(content, f"{name}/", depth + 1)
        else:
            yield name, content


def _number(content: object, numbers: Numbers) -> float | None:
    """Return the finite number in a cell; None if there is none."""
    if isinstance(content, str):
        plain = numbers.read(content)
        value = None if plain is None else float(plain)
    else:
        point = _point(content)
        value = None if point is None else point.value
    return value if value is not None and math.isfinite(value) else None


def _step(content: object, numbers: Numbers) -> int | None:
    """Return the whole number in a cell; None if there is none, such as for epoch 0.25."""
    if isinstance(content, str):
        return numbers.read_step(content)
    value = _number(content, numbers)
    return int(value) if value is not None and value == int(value) and abs(value) <= _LARGEST_STEP else None


def from_json(document: object, decimal: Decimal | None = None) -> Series:
    """Return the series of a JSON document.

    Parameters
    ----------
    document : object
        A list of records, of numbers, or of ``[wall time, step, value]`` as exported by TensorBoard; a
        ``trainer_state.json`` (its ``log_history``); a mapping of names to lists of numbers; or a mapping that contains
        one of these.
    decimal : Decimal, optional
        The sign before the decimals of numbers in texts; by default it is inferred.

    Raises
    ------
    CurveError
        There are too many values.
    """
    series = Series()
    if isinstance(document, dict):
        history = document.get("log_history")
        if isinstance(history, list):
            series = from_records((record for record in history if isinstance(record, dict)), decimal)
            series.holds_means = True
            last_step = document.get("max_steps")
            series.last_step = last_step if isinstance(last_step, int) else 0
            return series
        columns = dict(_flat(document))
        tables = [content for content in columns.values() if _are_records(content)]
        if len(tables) == 1:
            return from_json(tables[0], decimal)
        if not any(isinstance(content, list) for content in columns.values()):
            return from_records([document], decimal)
        steps, epochs = _list_called(columns, _STEP_NAMES), _list_called(columns, _EPOCH_NAMES)
        for name, content in columns.items():
            if isinstance(content, list) and not _is_step_name(name):
                _add_list(series, name, content, steps, epochs)
    elif isinstance(document, list):
        if _are_records(document):
            return from_records((record for record in document if isinstance(record, dict)), decimal)
        _add_list(series, "loss", document)
    return series


def _are_records(content: object) -> bool:
    return isinstance(content, list) and bool(content) and isinstance(content[0], dict)


def _is_step_name(name: str) -> bool:
    return name.strip().lower() in (*_STEP_NAMES, *_EPOCH_NAMES)


def _list_called(columns: Mapping[str, object], names: Sequence[str]) -> list[object] | None:
    for name, content in columns.items():
        if name.lower() in names and isinstance(content, list):
            return content
    return None


def _add_list(
    series: Series,
    name: str,
    content: Sequence[object],
    steps: Sequence[object] | None = None,
    epochs: Sequence[object] | None = None,
) -> None:
    """Add a list of numbers, or of lists that end with a step and a number."""
    numbers = Numbers()
    for text in content:
        if isinstance(text, str):
            numbers.see(text, name)
    for index, entry in enumerate(content):
        step = _step(steps[index], numbers) if steps is not None and len(steps) == len(content) else None
        epoch = _number(epochs[index], numbers) if epochs is not None and len(epochs) == len(content) else None
        if isinstance(entry, list) and len(entry) in (2, 3):
            step, entry = _step(entry[-2], numbers), entry[-1]
        _add(series, name, entry, numbers, Point(step, math.nan, epoch=epoch, entry=index + 1))


def from_json_lines(lines: Lines, decimal: Decimal | None = None) -> Series:
    """Return the series of JSON lines; invalid lines are skipped, and counted.

    Parameters
    ----------
    lines : Lines
    decimal : Decimal, optional
        The sign before the decimals of numbers in texts; by default it is inferred.

    Raises
    ------
    CurveError
        There are too many values.
    """
    records: list[dict[str, object]] = []
    numbers: list[int] = []
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
            numbers.append(lines.number)
    series = from_records(records, decimal, numbers)
    if damaged:
        series.notes.append(f"{damaged:,} lines are not JSON and were skipped")
    return series


def from_delimited(lines: Lines, delimiter: str, decimal: Decimal | None = None) -> Series:
    """Return the series of a table with column names in its first row, or with one or two columns without names.

    Parameters
    ----------
    lines : Lines
    delimiter : str
    decimal : Decimal, optional
        The sign before decimals; by default it is inferred.

    Raises
    ------
    CurveError
        The table has too many columns, or a field that is too long.
    """
    numbers: list[int] = []
    try:
        rows = _rows(lines, delimiter, numbers)
        header = next(rows, [])
        if len(header) > _MOST_COLUMNS:
            raise CurveError(f"more than {_MOST_COLUMNS:,} columns")
        if header and all(plain_number(field) is not None or begins_as_number(field) for field in header):
            names = (
                ["loss"]
                if len(header) == 1
                else ["step", "loss", *(f"column {at}" for at in range(3, len(header) + 1))]
            )
            records = [dict(zip(names, row, strict=False)) for row in [header, *rows]]
            return from_records(records, decimal, numbers)
        # Dashboards add the range of each group of runs.
        kept = [name.strip() for name in header]
        records = [
            {name: field for name, field in zip(kept, row, strict=False) if not name.endswith(("__MIN", "__MAX"))}
            for row in rows
        ]
        return from_records(records, decimal, numbers[1:])
    except csv.Error as error:
        raise CurveError(f"the table cannot be read: {error}") from None


def _rows(lines: Lines, delimiter: str, numbers: list[int]) -> Iterator[list[str]]:
    """Yield the rows of a table that are not empty, and append the line of each."""
    plain = (line.replace("\0", "") for line in lines)
    for row in map(str.split, plain) if delimiter == " " else csv.reader(plain, delimiter=delimiter):
        if any(field.strip() for field in row):
            numbers.append(lines.number)
            yield row
