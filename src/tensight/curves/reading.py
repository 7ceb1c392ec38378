"""Reads a loss curve from a path: detects the format, and selects the file in a folder."""

from __future__ import annotations

import os
import stat
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from tensight.curves.compressed import name_inside, opened
from tensight.curves.curve import Curve, Series, make_curve
from tensight.curves.event_files import is_event_file, read_event_file
from tensight.curves.lines import Lines, encoding_of
from tensight.curves.numbers import Decimal, plain_number
from tensight.curves.tables import from_delimited, from_json, from_json_lines, parse_json
from tensight.curves.text_logs import read_pattern, read_text_log
from tensight.errors import CurveError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import BinaryIO

LARGEST_JSON = 256 << 20
"""Maximum size of a JSON document in bytes; it is read as a whole."""

_HEAD = 4096
_LINES_EXAMINED = 50
_MOST_FILES = 1000
_TRAINER_STATE = "trainer_state.json"
_METRICS = "metrics.csv"


def read_curve(
    path: str | os.PathLike[str],
    *,
    column: str | None = None,
    pattern: str | None = None,
    decimal: Decimal | None = None,
) -> Curve:
    """Read the loss curve of a training from its logs.

    Parameters
    ----------
    path : path
        A text log, JSON lines, JSON, CSV, TSV, or an event file, also compressed (gzip, bzip2, xz); or a folder with
        event files, a ``trainer_state.json`` or a ``metrics.csv``, directly or in one of its subfolders.
    column : str, optional
        Name of the scalar series; by default the most likely loss of the training.
    pattern : str, optional
        A Python regular expression that matches the loss in each line, with the group ``loss``, and ``step`` if the log
        has steps.
    decimal : Decimal, optional
        The sign before the decimals of printed numbers; by default it is inferred from all numbers of the file.

    Raises
    ------
    CurveError
        The file cannot be read, or contains no such series.
    InputError
        The pattern is invalid.
    """
    source = os.fspath(path)
    files = _files(Path(source))
    series = Series()
    try:
        for file in files:
            series = _read(file, series, column, pattern, decimal, is_whole=False)
    except OSError as error:
        raise CurveError(f"{source} cannot be read: {error.strerror or error}") from None
    except CurveError as error:
        raise CurveError(f"{source}: {error}", code=error.code) from None
    return make_curve(series, source, column)


def read_scalars(files: Sequence[Path]) -> Series:
    """Return all scalars of a log that its names or lines tell to be of a training.

    Parameters
    ----------
    files : sequence of Path
        A log, or several event files of one training.

    Raises
    ------
    CurveError
        A file cannot be read, or has too many values.
    """
    series = Series()
    several = len({file.parent for file in files}) > 1
    try:
        for file in files:
            if not several:
                series = _read(file, series, None, None, None, is_whole=True)
                continue
            of_folder = _read(file, Series(), None, None, None, is_whole=True)
            for name, points in of_folder.points.items():
                for point in points:
                    series.add(f"{file.parent.name}/{name}", point)
    except OSError as error:
        raise CurveError(f"{files[0]} cannot be read: {error.strerror or error}") from None
    except CurveError as error:
        raise CurveError(f"{files[0]}: {error}", code=error.code) from None
    return series


def is_curve_folder(path: str | os.PathLike[str]) -> bool:
    """Whether a folder contains files with scalars, rather than a dump."""
    return bool(_files_of_folder(Path(path)))


def _files(path: Path) -> list[Path]:
    """Return the files to read; several if a folder has several event files."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        raise CurveError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if stat.S_ISREG(mode):
        return [path]
    if not stat.S_ISDIR(mode):
        raise CurveError(f"{path} is neither a file nor a folder")
    files = _files_of_folder(path)
    if not files:
        raise CurveError(
            f"{path}: no event files, no {_TRAINER_STATE} and no {_METRICS} in this folder; name the log itself"
        )
    folders = sorted({str(file.parent) for file in files})
    if len(folders) > 1:
        raise CurveError(f"{path} contains the logs of several trainings; name one of them: {', '.join(folders[:20])}")
    return files


def _files_of_folder(folder: Path) -> list[Path]:
    """Return the files with scalars in a folder: the newest state of a trainer, else event files, else a table."""
    try:
        below = [folder, *sorted(entry for entry in islice(folder.iterdir(), _MOST_FILES) if entry.is_dir())]
    except OSError:
        return []
    states = [entry / _TRAINER_STATE for entry in below if (entry / _TRAINER_STATE).is_file()]
    if states:
        return [states[0] if states[0].parent == folder else max(states, key=_number_of_checkpoint)]
    events = [[file for file in _entries(entry) if _is_called_event_file(file)] for entry in below]
    tables = [[entry / _METRICS] for entry in below if (entry / _METRICS).is_file()]
    for kind in (events, tables):
        groups = [files for files in kind if files]
        if groups:
            return groups[0] if groups[0][0].parent == folder else [file for files in groups for file in files]
    return []


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(islice(folder.iterdir(), _MOST_FILES))
    except OSError:
        return []


def _number_of_checkpoint(state: Path) -> int:
    digits = state.parent.name.rpartition("-")[2]
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 18 else -1


def _is_called_event_file(path: Path) -> bool:
    return ("tfevents" in path.name or ".summary." in path.name) and path.is_file()


def _read(
    path: Path, series: Series, column: str | None, pattern: str | None, decimal: Decimal | None, *, is_whole: bool
) -> Series:
    with opened(path) as file:
        head = file.read(_HEAD)
        file.seek(0)
        if not head:
            raise CurveError("the file is empty")
        if pattern is not None:
            return read_pattern(Lines(file), pattern, decimal)
        if is_event_file(head):
            read_event_file(file, path.name, series)
            return series
        if _is_called_event_file(path):
            raise CurveError(f"{path.name} is not an event file: its first checksum is wrong")
        return _read_text(file, path, column, decimal, is_whole=is_whole)


def _read_text(file: BinaryIO, path: Path, column: str | None, decimal: Decimal | None, *, is_whole: bool) -> Series:
    """Read a text file by its content; its name distinguishes a table from a log."""
    first = list(islice(Lines(file), _LINES_EXAMINED))
    written = [line for line in first if line.strip()]
    if not written:
        raise CurveError("the file contains no text")
    ending = Path(name_inside(path)).suffix.lower()
    if written[0].lstrip()[:1] in ("{", "["):
        series = _read_json(file, written, ending, decimal)
        if series is not None and series.points:
            return series
        return read_text_log(Lines(file), column, decimal, is_whole=is_whole)
    delimiter = _delimiter(written, ending)
    if delimiter is not None:
        return from_delimited(Lines(file), delimiter, decimal)
    return read_text_log(Lines(file), column, decimal, is_whole=is_whole)


def _read_json(file: BinaryIO, first: Sequence[str], ending: str, decimal: Decimal | None) -> Series | None:
    """Read JSON lines or a JSON document; None if it is neither."""
    if _is_json(first[0]) and (len(first) > 1 or ending == ".jsonl"):
        return from_json_lines(Lines(file), decimal)
    file.seek(0)
    data = file.read(LARGEST_JSON + 1)
    if len(data) > LARGEST_JSON:
        if ending == ".json":
            raise CurveError(f"larger than {LARGEST_JSON >> 20} MiB for one JSON document; give JSON lines or CSV")
        return None
    try:
        return from_json(parse_json(data.decode(encoding_of(data[:4]), "replace")), decimal)
    except ValueError:
        return None


def _is_json(line: str) -> bool:
    try:
        parse_json(line)
    except ValueError:
        return False
    return True


def _delimiter(lines: list[str], ending: str) -> str | None:
    """Return the delimiter of a table's columns; None if the lines are not a table."""
    if ending in (".csv", ".tsv"):
        counts = {char: lines[0].count(char) for char in ",\t;"}
        return max(counts, key=lambda char: counts[char]) if any(counts.values()) else ","
    if all(line.lstrip().startswith("|") for line in lines) and not any(map(str.isdigit, lines[0])):
        return "|"
    if _is_aligned(lines):
        return " "
    for char in ",\t;":
        columns = {line.count(char) for line in lines[:_LINES_EXAMINED]}
        if len(columns) == 1 and min(columns) and _are_numbers(lines[1:], char):
            return char
    return None


def _is_aligned(lines: list[str]) -> bool:
    """Whether names, and below each a number, are aligned by spaces."""
    names, *rows = (line.split() for line in lines)
    are_names = len(names) > 1 and all(name[0].isalpha() or name[0] == "_" for name in names)
    return are_names and bool(rows) and all(len(row) == len(names) and _is_number(row[0]) for row in rows)


def _are_numbers(lines: list[str], delimiter: str) -> bool:
    """Whether the rows below a header begin or end with a number, unlike the lines of logs."""
    cells: Iterator[str] = (cell for line in lines for cell in (line.split(delimiter)[0], line.split(delimiter)[-1]))
    return bool(lines) and all(_is_number(cell) for cell in cells)


def _is_number(text: str) -> bool:
    return any(plain_number(text, decimal) is not None for decimal in Decimal)
