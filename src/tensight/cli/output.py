"""Output of commands: tables on a terminal, JSON or CSV for programs, progress on stderr."""

from __future__ import annotations

import csv
import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any

from tensight.cli.visible import visible
from tensight.ranks import ranges

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from tensight.analysis import Analysis, Coverage
    from tensight.errors import Problem
    from tensight.graph import SourceFrame
    from tensight.runs.run import Run
    from tensight.sessions.records import Frame

PROBLEMS_SHOWN = 8
REFRESH_S = 0.1
NEVER_FOLDED = ("slot", "tensor", "actual", "steps")
"""Columns of tables, besides those of numbers, that are not wrapped; names are wrapped instead."""
WIDTH_OFF_TERMINAL = 400


class Format(str, Enum):
    """Output formats of results."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def console(*, stderr: bool = False) -> Console:
    """Return a console for text output; without a terminal it is wide enough for every table."""
    from tensight.cli.literal_console import LiteralConsole

    stream = sys.stderr if stderr else sys.stdout
    return LiteralConsole(
        stderr=stderr,
        width=None if stream.isatty() else WIDTH_OFF_TERMINAL,
        highlight=False,
        emoji=False,
        soft_wrap=not stream.isatty(),
    )


def print_json(data: object) -> None:
    """Print data as one JSON document; NaN and infinite numbers become the strings "NaN", "Infinity", "-Infinity".

    Iterators are written as lists, an item at a time.
    """
    for text in json.JSONEncoder(indent=2, allow_nan=False, default=str).iterencode(_plain(data)):
        sys.stdout.write(text)
    sys.stdout.write("\n")


def print_csv(rows: Iterable[Mapping[str, object]], columns: Sequence[str]) -> None:
    """Print rows as CSV with a header."""
    writer = csv.DictWriter(sys.stdout, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {name: visible(value) if isinstance(value, str) else value for name, value in row.items()} for row in rows
    )


class _Stream(list[object]):
    """Items that are made while they are written, so that they are never all in memory.

    Parameters
    ----------
    items : iterator
    """

    def __init__(self, items: Iterator[object]) -> None:
        super().__init__()
        self._first = next(items, self)
        self._others = items

    def __bool__(self) -> bool:
        return self._first is not self

    def __iter__(self) -> Iterator[object]:
        if self:
            yield _plain(self._first)
            yield from map(_plain, self._others)


def _plain(data: object) -> object:
    if isinstance(data, float) and not math.isfinite(data):
        return "NaN" if math.isnan(data) else ("Infinity" if data > 0 else "-Infinity")
    if isinstance(data, Decimal):
        return int(data) if data == data.to_integral_value() else float(data)
    if isinstance(data, Mapping):
        return {str(key): _plain(value) for key, value in data.items()}
    if isinstance(data, (list, tuple, set, frozenset)):
        return [_plain(value) for value in data]
    if isinstance(data, Iterator):
        return _Stream(data)
    return data


def table(*columns: str, title: str | None = None, right: Sequence[str] = ()) -> Table:
    """Return an empty table in Tensight's style; columns named in `right` contain numbers."""
    from rich import box

    from tensight.cli.fitting_table import FittingTable

    result = FittingTable(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        number_like = column in right or column in NEVER_FOLDED
        result.add_column(column, justify="right" if column in right else "left", overflow="fold", no_wrap=number_like)
    return result


def number(value: float | int | None, digits: int = 5) -> str:
    """Return a number for a table, rounded; a dash for None and NaN."""
    if value is None or value != value:  # NaN: no finite element
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.{digits}g}"


def size(size_bytes: int) -> str:
    """Return a number of bytes in a readable unit."""
    amount, units = float(size_bytes), iter(("B", "KB", "MB", "GB", "TB"))
    unit = next(units)
    while amount >= 1000 and unit != "TB":
        amount, unit = amount / 1000, next(units)
    return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"


def count(amount: int, noun: str) -> str:
    """Return a number with its noun: "1 hit", "2 hits"."""
    return f"{amount:,} {noun}" + ("" if amount == 1 else "s")


def coverage_text(inspected: Coverage) -> str:
    """Return what was looked at: "364 tensors of 103 nodes, steps 1-4, rank 0"."""
    text = count(inspected.tensors, "tensor")
    if inspected.nodes:
        text += f" of {count(inspected.nodes, 'node')}"
    if inspected.without_node:
        amount = "" if inspected.without_node == inspected.tensors else f" ({inspected.without_node:,} of them"
        text += f"{amount} without a node" + (")" if amount else "")
    steps = [step for step in inspected.steps if step > 0]
    for noun, numbers in (("step", steps), ("rank", list(inspected.ranks))):
        text += f", {noun if len(numbers) == 1 else f'{noun}s'} {spans(numbers)}" if numbers else ""
    return text


def without_text(inspected: Coverage, undecided: str = "could be read, but nothing could be decided about them") -> str:
    """Return why nothing was looked at; `undecided` says so of tensors that can be read."""
    amounts = ((inspected.unreadable, "could not be read"), (inspected.undecided, undecided))
    reasons = [f"{count(amount, 'tensor')} {reason}" for amount, reason in amounts if amount]
    return ", ".join(reasons) or "there is no tensor to look at"


def unwritten_text(amount: int) -> str:
    """Return a remark about outputs that were dumped although no operator wrote them."""
    return (
        f"{count(amount, 'output')} left out that operators never write, such as Adam, which writes to parameters only"
    )


def frame_text(frame: SourceFrame | Frame) -> str:
    """Return a source frame in the form that editors link: file:line, or file:first-last."""
    if frame.file and frame.line is not None:
        return f"{frame.file}:{frame.lines}"
    from tensight.graph import SourceFrame

    # A line of a dump that could not be parsed is printed unchanged.
    return (frame.raw if isinstance(frame, SourceFrame) else frame.code).strip()


def frame_data(frame: SourceFrame) -> dict[str, object]:
    """Return a source frame as JSON data."""
    return {"file": frame.file, "line": frame.line, "end_line": frame.end_line, "code": frame.code}


def print_problems(problems: Sequence[Problem]) -> None:
    """Print problems on stderr."""
    if not problems:
        return
    out = console(stderr=True)
    out.print(f"[yellow]{count(len(problems), 'problem')} in this dump; the rest was analysed:[/]")
    from rich.markup import escape

    for problem in problems[:PROBLEMS_SHOWN]:
        out.print(f"  [yellow]•[/] {escape(str(problem))}")
    if len(problems) > PROBLEMS_SHOWN:
        out.print(f"  … and {len(problems) - PROBLEMS_SHOWN} more (--json lists all)")


@contextmanager
def progress(analysis: Analysis, *, quiet: bool) -> Iterator[None]:
    """Show a bar on stderr while an analysis reads tensors; see `reading_progress`."""
    with reading_progress(quiet=quiet) as show:
        analysis.progress = show
        try:
            yield
        finally:
            analysis.progress = None


@contextmanager
def run_progress(run: Run, *, quiet: bool) -> Iterator[None]:
    """Show a bar on stderr while the ranks of a run are read: bytes of a single one, ranks of several."""
    unit = "bytes" if len(run.ranks) == 1 else "ranks"
    bar = reading_progress if unit == "bytes" else ranks_progress
    with bar(quiet=quiet) as show:

        def progress(of: str, done: int, total: int) -> None:
            # If only one of several ranks has changed, its bytes are not shown as ranks.
            if show is not None and of == unit:
                show(done, total)

        run.progress = progress
        yield


@contextmanager
def ranks_progress(*, quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """Show a progress bar on stderr while ranks are read, if stderr is a terminal.

    Yields
    ------
    callable or None
        Called with the number of ranks that are done and the total; None without a bar.
    """
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("Reading ranks"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=console(stderr=True), transient=True)
    task = bar.add_task("", total=None)
    with bar:
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def reading_progress(*, quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """Show a progress bar on stderr while tensors are read, if stderr is a terminal.

    Yields
    ------
    callable or None
        Called with the number of bytes read and the total; None without a bar.
    """
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    bar = Progress(
        TextColumn("Reading tensors"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console(stderr=True),
        transient=True,
    )
    task = bar.add_task("", total=None)
    last = 0.0

    def show(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= REFRESH_S or done == total:
            last = now
            bar.update(task, completed=done, total=total)

    with bar:
        yield show


def problem_data(problems: Iterable[Problem]) -> list[dict[str, Any]]:
    """Return problems as JSON data."""
    return [{"where": problem.where, "what": problem.what, "advice": problem.advice} for problem in problems]


def spans(values: list[int]) -> str:
    """Return sorted numbers with ranges abbreviated: "0-3, 7"; long lists are cut."""
    texts = ranges(values)
    return ", ".join(texts[:8]) + (f", … ({len(values)})" if len(texts) > 8 else "") or "none"


_COUNTED = (("nan_count", "NaN"), ("pos_inf_count", "+Inf"), ("neg_inf_count", "-Inf"), ("zero_count", "zero"))


def values_text(values: Mapping[str, Any]) -> str:
    """Return statistics of a tensor in a few words.

    Parameters
    ----------
    values : mapping of str to number
        By their names, as `tensight.analysis.shown_values` returns them; what is missing is unknown.
    """
    from tensight.analysis.shown_values import SOME

    low, high = values.get("min", math.nan), values.get("max", math.nan)
    parts = [f"{number(low)} … {number(high)}"] if low <= high else []
    if not parts:
        parts = [f"{name} {number(end)}" for name, end in (("min", low), ("max", high)) if math.isfinite(end)]
    for name, words in _COUNTED:
        if values.get(name, 0) > 0:
            parts.append(f"{values[name]:,} of {values['count']:,} {words}")
        elif values.get(name) == SOME:
            parts.append(f"some of {values['count']:,} {words}")
    return ", ".join(parts)
