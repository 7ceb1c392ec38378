"""Sources of the values of a target, read while a trial runs and when it has ended."""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

from tensight.curves import read_curve
from tensight.curves.lineage import ENDING, read_lineage
from tensight.errors import CurveError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tensight.search.configuration import Target

_PIECE = 1 << 20
_LONGEST_LINE = 1 << 16
"""Bytes; longer lines are skipped."""

_STEP_KEYS = ("step", "global_step", "iteration", "epoch")


class Reading(NamedTuple):
    """A value of a target at a step."""

    step: int
    value: float


class TargetReader(ABC):
    """The values of one target in one trial.

    Attributes
    ----------
    is_quick : bool
        Whether reading new values is cheap enough to do it all the time.
    """

    is_quick = False

    def __init__(self) -> None:
        self.readings: list[Reading] = []

    def new(self, *, ended: bool = False) -> list[Reading]:
        """Return the values that have arrived since the last call.

        Parameters
        ----------
        ended : bool
            The trial has ended: no more values will arrive.
        """
        before = len(self.readings)
        self._read(ended=ended)
        return self.readings[before:]

    @abstractmethod
    def _read(self, *, ended: bool) -> None:
        """Add new values to the readings."""

    @property
    @abstractmethod
    def where(self) -> str:
        """Where the values were expected, for a user who has none."""

    def _add(self, step: int | None, value: float) -> None:
        self.readings.append(Reading(len(self.readings) + 1 if step is None else step, value))

    def result(self, target: Target) -> float | None:
        """Return the value that counts; None if there is none."""
        if not self.readings:
            return None
        if target.take == "last":
            return self.readings[-1].value
        values = [reading.value for reading in self.readings if math.isfinite(reading.value)]
        if not values:
            return self.readings[-1].value
        return max(values) if target.direction == "maximize" else min(values)


class _Tail:
    """The lines of a growing file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0
        self._rest = b""

    def lines(self, *, ended: bool) -> list[str]:
        """Return the new complete lines; at the end of the trial also an incomplete last line."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._position)
                pieces = list(iter(lambda: file.read(_PIECE), b""))
                self._position = file.tell()
        except OSError:
            pieces = []
        *lines, self._rest = re.split(rb"\r\n|\n|\r", self._rest + b"".join(pieces))
        if ended or len(self._rest) > _LONGEST_LINE:
            lines.append(self._rest)
            self._rest = b""
        return [line.decode("utf-8", "replace") for line in lines if 0 < len(line) <= _LONGEST_LINE]


class PatternReader(TargetReader):
    """Matches of a regular expression in the output of a trial."""

    is_quick = True

    def __init__(self, output: Path, pattern: str) -> None:
        super().__init__()
        self._tail = _Tail(output)
        self._pattern = re.compile(pattern)
        self._group: str | int = "value" if "value" in self._pattern.groupindex else _only_group(self._pattern)

    def _read(self, *, ended: bool) -> None:
        for line in self._tail.lines(ended=ended):
            for match in self._pattern.finditer(line):
                value = _number(match[self._group])
                if value is not None:
                    self._add(self._step(match), value)

    def _step(self, match: re.Match[str]) -> int | None:
        text = match["step"] if "step" in self._pattern.groupindex else None
        return int(text) if text is not None and re.fullmatch(r"\d{1,15}", text, re.ASCII) else None

    @property
    def where(self) -> str:
        """Where the values were expected."""
        return f"the pattern {self._pattern.pattern!r} found nothing in what it printed"


class JsonLinesReader(TargetReader):
    """A key of the objects in a file of JSON lines."""

    is_quick = True

    def __init__(self, path: Path, key: str) -> None:
        super().__init__()
        self._path, self._key = path, key
        self._tail = _Tail(path)

    def _read(self, *, ended: bool) -> None:
        for line in self._tail.lines(ended=ended):
            try:
                record = json.loads(line)
            except ValueError:
                continue
            value = _number(record.get(self._key)) if isinstance(record, dict) else None
            if value is not None:
                steps = (record.get(name) for name in _STEP_KEYS)
                self._add(next((step for step in steps if type(step) is int and step >= 0), None), value)

    @property
    def where(self) -> str:
        """Where the values were expected."""
        return f"no line of {self._path} has a number called {self._key!r}"


class EventsReader(TargetReader):
    """A scalar in event files of TensorBoard or MindSpore, or in MindSpore's lineage of the training."""

    def __init__(self, folder: Path, key: str, *, is_loss: bool) -> None:
        super().__init__()
        self._folder, self._key, self._is_loss = folder, key, is_loss
        self._size = -1
        self._wrong = ""

    def _read(self, *, ended: bool) -> None:
        size = _size_of(self._folder)
        if size == self._size and not ended:
            return
        self._size = size
        last = self.readings[-1].step if self.readings else -1
        try:
            curve = read_curve(self._folder, column=None if self._is_loss else self._key)
        except (CurveError, InputError) as error:
            self._wrong = str(error)
        else:
            points = zip(curve.steps.tolist(), curve.values.tolist(), strict=True)
            self.readings += [Reading(step, value) for step, value in points if step > last]
        if ended and not self.readings:
            self._read_lineage()

    def _read_lineage(self) -> None:
        for path in sorted(self._folder.rglob(f"*{ENDING}")):
            value = read_lineage(path).get(self._key)
            if value is not None:
                self._add(None, value)

    @property
    def where(self) -> str:
        """Where the values were expected."""
        return self._wrong or f"nothing in {self._folder} is called {self._key!r}"


class AgentReader(TargetReader):
    """The loss that the debugger sees."""

    def __init__(self, losses: Callable[[], Sequence[tuple[int, float]]]) -> None:
        super().__init__()
        self._losses = losses

    def _read(self, *, ended: bool) -> None:  # noqa: ARG002 - the debugger knows
        last = self.readings[-1].step if self.readings else -1
        self.readings += [Reading(step, value) for step, value in self._losses() if step > last]

    @property
    def where(self) -> str:
        """Where the values were expected."""
        return "the debugger saw no loss"


def make_reader(
    target: Target,
    summary_dir: Path,
    output: Path,
    fill: Callable[[str], str],
    losses: Callable[[], Sequence[tuple[int, float]]],
) -> TargetReader:
    """Return the reader for the values of a target in a trial.

    Parameters
    ----------
    target : Target
    summary_dir : Path
        Folder of the trial.
    output : Path
        The file with the output of the trial.
    fill : callable
        Replaces placeholders in a text with the values of the trial.
    losses : callable
        Returns steps and losses that the debugger has seen.
    """
    source = target.source
    is_loss = target.name == "loss" and (source is None or source.key is None)
    if source is None:
        return EventsReader(summary_dir, target.name, is_loss=is_loss)
    key = source.key or target.name
    if source.pattern is not None:
        return PatternReader(output, source.pattern)
    if source.json_lines is not None:
        return JsonLinesReader(summary_dir / fill(source.json_lines), key)
    if source.events is not None:
        return EventsReader(summary_dir / fill(source.events), key, is_loss=is_loss)
    return AgentReader(losses)


def _only_group(pattern: re.Pattern[str]) -> int:
    return next(number for number in range(1, pattern.groups + 1) if number not in pattern.groupindex.values())


def _number(given: object) -> float | None:
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        return None
    try:
        return float(given)
    except (ValueError, OverflowError):
        return None


def _size_of(folder: Path) -> int:
    try:
        return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    except OSError:
        return -1
