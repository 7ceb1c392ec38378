"""Convert arguments of commands: paths to open dumps, and lists of numbers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from tensight.errors import InputError

if TYPE_CHECKING:
    from tensight.analysis import Analysis
    from tensight.runs.run import Run

MOST_NUMBERS = 1_000_000
_SPAN = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


def numbers(text: str | None, option: str) -> list[int] | None:
    """Return the numbers in a list such as "0,2-4"; None for None.

    Raises
    ------
    InputError
        If the text is not such a list; the message names `option`.
    """
    if text is None:
        return None
    values: set[int] = set()
    for part in text.split(","):
        match = _SPAN.fullmatch(part.strip())
        first = int(match[1]) if match else 0
        last = int(match[2]) if match and match[2] else first
        if match is None or last < first or last - first > MOST_NUMBERS:
            raise InputError(f'{option} {text!r}: {part!r} is not a number or a range; write for example "0,2-4"')
        values.update(range(first, last + 1))
    return sorted(values)


def iterations(text: str | None) -> list[int] | None:
    """Return the iterations for a list of steps such as "1,5-9"; None for None.

    Raises
    ------
    InputError
        If the text is not such a list.
    """
    from tensight.graph import iteration_of

    steps = numbers(text, "--steps")
    return None if steps is None else [iteration_of(step) for step in steps]


def open_run(path: str, cache_dir: Path | None = None, threads: int | None = None, engine: str | None = None) -> Run:
    """Open a run of any number of ranks."""
    from tensight.runs.run import Run

    return Run(path, cache_dir=cache_dir, threads=threads, engine=engine)


def open_analysis(dump_path: str, cache_dir: Path | None = None, threads: int | None = None) -> Analysis:
    """Open a dump and return its analysis."""
    from tensight.analysis import Analysis
    from tensight.dumps import open_dump

    return Analysis(open_dump(dump_path), cache_dir=cache_dir, threads=threads)
