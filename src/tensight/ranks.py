"""The ranks of a run: the files to which they append lines, and on which of them something is true, in words.

A run of a thousand ranks has a thousand files and a thousand equal statements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensight.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

FEW_RANKS = 8
"""Up to this number of ranks, processes take longer to start than they save."""

_MOST_PARTS = 8
"""Ranks and ranges of ranks up to which all are listed."""

_FEW_PARTS = 3
"""How many are listed of more."""

_MOST_DIGITS = 10


def ranks_text(ranks: Collection[int], of: Collection[int]) -> str:
    """Return which ranks something is true of, with the minority by number.

    Parameters
    ----------
    ranks : collection of int
        Those of which it is true; at least one.
    of : collection of int
        All of which it could be true. Ranks that are not among them count, too.

    Returns
    -------
    str
        Such as ``on all 1,024 ranks``, ``on 1,023 of 1,024 ranks; not on 17``, ``on 64 of 1,024 ranks (64-127)``,
        ``on 16 of 1,024 ranks (20, 84, 148 …)`` or ``on rank 3``.

    Raises
    ------
    ValueError
        There is no rank of which it is true.
    """
    true = set(ranks)
    if not true:
        raise ValueError("a statement about ranks needs at least one of them")
    if len(true) == 1:
        return f"on rank {min(true)}"
    every = true.union(of)
    others = every - true
    if not others:
        return f"on all {len(every):,} ranks"
    share = f"on {len(true):,} of {len(every):,} ranks"
    if len(others) < len(true):
        return f"{share}; not on {_listed(others)}"
    return f"{share} ({_listed(true)})"


def ranges(numbers: Iterable[int]) -> list[str]:
    """Return distinct numbers as text, in ascending order, consecutive ones as a range: ``["0-3", "7"]``.

    Parameters
    ----------
    numbers : iterable of int
        In any order.
    """
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return [str(first) if first == last else f"{first}-{last}" for first, last in runs]


def _listed(ranks: Iterable[int]) -> str:
    """Return ranks as text; of many only the first."""
    parts = ranges(ranks)
    if len(parts) > _MOST_PARTS:
        return f"{', '.join(parts[:_FEW_PARTS])} …"
    return ", ".join(parts)


class RankFile:
    """A file to which a process of a rank appends lines; it stops at a maximum size.

    A line is there as soon as `write` returns, whatever happens to the process afterwards.

    Parameters
    ----------
    folder : Path
    kind : str
        What the lines are: the beginning of the file's name.
    rank, number : int
        Of the process; the number tells processes of one rank apart.
    most_bytes : int
    """

    def __init__(self, folder: Path, kind: str, rank: int, number: int, most_bytes: int = 1 << 28) -> None:
        self._path = folder / f"{kind}-{rank}-{number}.jsonl"
        self._left = most_bytes

    def write(self, lines: Iterable[bytes]) -> None:
        """Append lines. OSError if that fails."""
        content = b"".join(lines)
        if content and len(content) <= self._left:
            self._left -= len(content)
            with self._path.open("ab", buffering=0) as file:
                file.write(content)


def rank_of_file(path: Path) -> int:
    """Return the rank whose process has written a file, by its name; 0 if that has none."""
    digits = path.name.split("-")[1] if "-" in path.name else ""
    return int(digits) if digits.isdecimal() and len(digits) < _MOST_DIGITS else 0


def complete_lines(path: Path, most_bytes: int) -> Iterator[bytes]:
    """Yield the lines of a file, as far as they are complete: a process that was killed leaves a part of the last one.

    Parameters
    ----------
    path : Path
    most_bytes : int
        Maximum length of a line.

    Raises
    ------
    InputError
        A line is longer.
    OSError
        The file cannot be read.
    """
    with path.open("rb") as file:
        while line := file.readline(most_bytes + 1):
            if line.endswith(b"\n"):
                yield line
            elif len(line) > most_bytes:
                raise InputError(f"a line is longer than {most_bytes:,} bytes")
