"""``statistic.csv``: one line of statistics for each dumped tensor, written by Ascend and GPU devices.

MindSpore up to 2.2 always writes the same ten statistics; from 2.3 on the dump's configuration chooses the columns
(``statistic_category``). So columns are identified by the header line, and unknown columns are kept as text.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Literal

from tensight.errors import Problem, TensorFileError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAX_LINE_CHARACTERS = 65_536
"""Longer lines are refused; MindSpore's are much shorter."""

MAX_LISTED_PROBLEMS = 20
"""Maximum number of invalid lines of one file that are listed; the others are counted."""

_FIXED = (
    "Op Type", "Op Name", "Task ID", "Stream ID", "Timestamp", "IO", "Slot", "Data Size", "Data Type", "Shape",
)  # fmt: skip
_TEXT = frozenset({"md5", "sha1", "hash"})
_NUMERIC = frozenset({"max", "min", "avg", "l2norm", "abs mean", "std"})
_NOT_A_VALUE = frozenset({"", "null", "none", "n/a", "-"})
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_SHAPE = re.compile(r"[(\[]?((?:-?[0-9]{1,19}(?:\s*,\s*-?[0-9]{1,19})*)?)\s*,?\s*[)\]]?")


@dataclass(frozen=True, slots=True)
class StatisticRow:
    """The statistics of one tensor as the device computed them.

    Attributes
    ----------
    rank, graph_id, iteration : int
        Rank, graph and iteration of the file's folder; -1 if not given.
    op_type, op_name : str
        Type and name of the operator, as in the names of tensor files.
    task_id, stream_id, timestamp : int
        As in the names of tensor files; microseconds.
    io : {"input", "output"}
        Whether `slot` counts outputs or inputs of the operator.
    slot : int
        From 0.
    data_size : int
        Bytes.
    data_type : str
        As written, e.g. "float16".
    shape : tuple of int
        Length of each dimension.
    values : mapping of str to float, int or str
        Statistics by their names in `statistic_category`: "max", "min", "avg", "l2norm" (float), "count", "nan count",
        … (int), "md5", "sha1" and unknown ones (str). Statistics that the device left out are absent. A recording of
        Tensight also has "abs mean" and "std" (float).
    row : mapping of str to str
        The raw line: text by the column names in the header.
    """

    rank: int
    graph_id: int
    iteration: int
    op_type: str
    op_name: str
    task_id: int
    stream_id: int
    timestamp: int
    io: Literal["input", "output"]
    slot: int
    data_size: int
    data_type: str
    shape: tuple[int, ...]
    values: Mapping[str, float | int | str]
    row: Mapping[str, str]


def statistic_name(column: str) -> str:
    """Return the name in `statistic_category` of a column: "max" for "Max Value", "l2norm" for "L2Norm Value"."""
    name = " ".join(column.replace("_", " ").lower().split())
    return {"l2 norm": "l2norm"}.get(name.removesuffix(" value"), name.removesuffix(" value"))


def read_statistics(
    file: IO[str], *, where: str, problems: list[Problem], rank: int = -1, graph_id: int = -1, iteration: int = -1
) -> Iterator[StatisticRow]:
    """Read a ``statistic.csv`` line by line.

    Parameters
    ----------
    file : text file
        Opened as UTF-8 (with ``errors="replace"``); only one line is in memory at a time.
    where : str
        The file's path, for messages.
    problems : list of Problem
        Invalid lines are appended and left out.
    rank, graph_id, iteration : int
        Rank, graph and iteration of the file's folder, for the rows.

    Yields
    ------
    StatisticRow

    Raises
    ------
    TensorFileError
        If the first line is not the header of such a file, or the file cannot be read.
    """
    lines = _lines(file, where)
    header = _header(next(lines, (1, "")), where)
    refused = 0
    for number, line in lines:
        try:
            row = _row(line, header, (rank, graph_id, iteration)) if line is not None else _TOO_LONG
        except (csv.Error, ValueError) as error:
            row = str(error)
        if isinstance(row, StatisticRow):
            yield row
        elif row:
            refused += 1
            if refused <= MAX_LISTED_PROBLEMS:
                problems.append(Problem(f"{where}:{number}", row, "the line is left out"))
    if refused > MAX_LISTED_PROBLEMS:
        more = refused - MAX_LISTED_PROBLEMS
        problems.append(Problem(where, f"{more:,} more lines cannot be used", "they are left out"))


_TOO_LONG = f"the line is longer than {MAX_LINE_CHARACTERS:,} characters"


def _lines(file: IO[str], where: str) -> Iterator[tuple[int, str | None]]:
    """Yield line numbers and lines; None in place of a line that is too long, whose rest is skipped."""
    number = 0
    try:
        while line := file.readline(MAX_LINE_CHARACTERS):
            number += 1
            if len(line) < MAX_LINE_CHARACTERS or line.endswith("\n"):
                yield number, line
                continue
            while (rest := file.readline(MAX_LINE_CHARACTERS)) and not rest.endswith("\n"):
                pass
            yield number, None
    except (OSError, ValueError) as error:
        raise TensorFileError(f"{where}: cannot be read: {error}.") from None


def _header(first: tuple[int, str | None], where: str) -> dict[str, str]:
    """Return the columns in order, each with the name of its statistic; empty for columns that every file has."""
    try:
        columns = _fields((first[1] or "").removeprefix("\ufeff"))
    except csv.Error:
        columns = []
    missing = [column for column in _FIXED if column not in columns]
    if missing:
        raise TensorFileError(f"{where}: not a statistics file: its first line has no column {missing[0]!r}.")
    if len(set(columns)) != len(columns):
        raise TensorFileError(f"{where}: not a statistics file: its first line has a column twice.")
    return {column: "" if column in _FIXED else statistic_name(column) for column in columns}


def _fields(line: str) -> list[str]:
    return [field.strip() for field in next(csv.reader([line], strict=True, skipinitialspace=True), [])]


def _row(line: str, header: Mapping[str, str], rank_graph_iteration: tuple[int, int, int]) -> StatisticRow | str:
    """Return the row of a line, or why it is invalid (empty for an empty line)."""
    fields = _fields(line)
    if not any(fields):
        return ""
    if len(fields) != len(header):
        return f"the line has {len(fields)} fields, the header {len(header)}"
    row = dict(zip(header, fields, strict=True))
    io = row["IO"].lower()
    if io not in ("input", "output"):
        return f"IO is {row['IO'][:40]!r}, neither input nor output"
    values = {name: _value(name, column, row[column]) for column, name in header.items() if name}
    return StatisticRow(
        *rank_graph_iteration,
        op_type=row["Op Type"],
        op_name=row["Op Name"],
        task_id=_integer("Task ID", row),
        stream_id=_integer("Stream ID", row),
        timestamp=_integer("Timestamp", row),
        io="input" if io == "input" else "output",
        slot=_integer("Slot", row),
        data_size=_integer("Data Size", row),
        data_type=row["Data Type"],
        shape=_shape(row["Shape"]),
        values=MappingProxyType({name: value for name, value in values.items() if value is not None}),
        row=MappingProxyType(row),
    )


def _integer(column: str, row: Mapping[str, str]) -> int:
    text = row[column]
    if not _INTEGER.fullmatch(text):
        raise ValueError(f"{column} is {text[:40]!r}, not a number")
    return int(text)


def _shape(text: str) -> tuple[int, ...]:
    match = _SHAPE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"Shape is {text[:40]!r}, not like (2,3,)")
    return tuple(int(dim) for dim in match[1].replace(",", " ").split())


def _value(name: str, column: str, text: str) -> float | int | str | None:
    if text.lower() in _NOT_A_VALUE:
        return None
    if name in _TEXT:
        return text
    if name == "count" or name.endswith(" count"):
        # Some versions write counts like 12.0.
        whole = text.removesuffix(".0")
        if not _INTEGER.fullmatch(whole):
            raise ValueError(f"{column} is {text[:40]!r}, not a number")
        return int(whole)
    if name not in _NUMERIC:
        return text
    lowered = text.lower()
    if lowered in ("true", "false"):
        # The extremes of a bool tensor.
        return float(lowered == "true")
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{column} is {text[:40]!r}, not a number") from None
