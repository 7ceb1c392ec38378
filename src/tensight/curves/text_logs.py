"""Losses in the output of trainings: the formats of common trainers, or a user's pattern.

Every repetition in the patterns is bounded, so the time for a line is bounded by its length.
"""

from __future__ import annotations

import math
import re
import warnings
from bisect import bisect_left
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from tensight.curves.curve import Point, Series, is_loss
from tensight.curves.numbers import NUMBER, NUMBER_ENDS, WHOLE_NUMBER, Numbers, begins_as_number, plain_number
from tensight.curves.roles import is_data, role_of
from tensight.curves.stages import Stages
from tensight.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tensight.curves.lines import Lines
    from tensight.curves.numbers import Decimal

LONGEST_PATTERN = 1000

_VALUE = re.compile(
    # One word before, for "lm loss", "train loss" and "valid_1's auc".
    r"(?<![\w./-])(?<!\w')(?:(?P<before>[A-Za-z_]{1,24}(?:\d{0,4}'s)?)[ ]{1,2})?"
    r"(?P<key>(?!is\b)[A-Za-z_][\w./@-]{0,79})"
    r"(?P<sign>[\"']?\s{0,8}(?:\bis\b\s{0,2}[:=]?|[:=])\s{0,8}[\"'\[]?|\s{0,32}\|\s{1,4}|\s{1,8})"
    r"(?:tensor\(|Tensor\([^)]{0,80}?value=\s{0,4})?"
    rf"(?P<value>{NUMBER}){NUMBER_ENDS}",
    re.IGNORECASE | re.ASCII,
)
_STEP = re.compile(
    # Neither "total_steps" nor "total steps"; "10 128" may be one number, or two.
    r"(?<![A-Za-z0-9_])(?<!total )(?<!max )(?<!num )(?<!warmup )(?<!per )"
    r"(?P<key>(?:(?:global|current|cur|train|training|trainer|optimi[sz]er|update)[ _/]{0,2}|_)?"
    r"(?:steps?|iterations?|iters?)"
    r"|(?:num[ _])?updates?|n_iter|it(?=\s{0,2}[:=\[])|batch)"
    r"[\"']?\s{0,4}[:=]?\s{0,4}[\"'\[(]?\s{0,12}"
    rf"(?P<step>{WHOLE_NUMBER})(?! \d{{3}}(?!\w|[.,:/%]\d))(?!\s{{0,2}}%)"
    rf"(?:\s{{0,4}}/\s{{0,12}}(?P<total>{WHOLE_NUMBER}))?",
    re.IGNORECASE | re.ASCII,
)
_STEP_FIRST = re.compile(r"\[(?P<step>\d{1,18})\]\t|(?P<number>\d{1,18}):\t")
"""As boosting of trees prints it."""

_HEADER = re.compile(r"\s{0,32}(?:epoch|step|iter)(?:\s{2}|\t)", re.IGNORECASE)
_COLUMN = re.compile(r"[A-Za-z_#][\w ./@()#-]{0,40}")
_FIRST_CELL = re.compile(r"(?P<count>\d{1,18})(?:/\d{1,18})?")
"""Tables that are printed between other lines, as of Ultralytics and fastai."""

_STEP_ALONE = re.compile(r"\[batch=(?P<step>\d{1,18})/\d{1,18}\]:\s{0,8}")
"""The heading of the lines of a step, as Composer prints it."""

_STEP_ORDER = ("global", "updates", "cur", "it", "step", "update", "batch")
_BAR = re.compile(
    rf"(?<![\d/.,'_])(?P<step>{WHOLE_NUMBER})\s{{0,4}}/\s{{0,12}}(?P<total>{WHOLE_NUMBER})"
    r"(?=\s{0,4}(?:[\[\](%━]|loss))",
    re.ASCII,
)
_EPOCH = re.compile(
    r"(?<![A-Za-z0-9_])epoch(?:\(\w{1,12}\))?[\"']?\s{0,4}[:=]?\s{0,4}[\"'\[]?\s{0,8}"
    r"(?P<epoch>\d{1,9}(?:[.,]\d{1,20})?)(?!\w|[.,]\d)(?:/\s{0,8}\d{1,9})?",
    re.IGNORECASE | re.ASCII,
)
_NOT_TRAINING = re.compile(
    r"(?:^|[\]|>:-])\W{0,8}(?:epoch\()?(?P<phase>test|val(?:id(?:ation)?)?|eval(?:uation)?)\b\)?(?: set)?"
    r"(?:\s{0,8}[:\[(|]|\s{1,8}-\s|(?<= set) (?:average |mean )?loss\b)",
    re.IGNORECASE | re.ASCII,
)
"""For example "Test: [10/50] Loss: 0.5": a line of an evaluation whose loss has the same name as the training's."""

_RANK = re.compile(r"\W{0,2}(?:rank|default)[ _:=]?(?P<rank>\d{1,6})\b", re.IGNORECASE | re.ASCII)
_PASSES = 3
"""Minimum number of repetitions of a range of steps that count as epochs, if no line has the number of steps."""

_OF_MEANS = re.compile(r"^\s{0,8}\{'.{0,2000}'epoch'|num_updates")
"""Lines of Hugging Face's Trainer and of fairseq."""

_LOSS = re.compile(r"loss|nll|bce|entropy", re.IGNORECASE)
_ANY_ROLE = re.compile(
    r"loss|nll|bce|entropy|\blr|learning.rate|norm|grad|r2|acc|top|prec|f1|bleu|rouge|auc|ap\b|map|iou|dice|psnr|recall|match|rew|return"
    r"|score|ppl|perplexity|wer|cer|mae|mse|fid|err|cost|objective|skipped|\b(?:train|learn)\b",
    re.IGNORECASE,
)
_SCALE_LOWERED = re.compile(
    r"(?:overflow|skipping step).{0,200}?(?:reducing(?: loss scale)? to|setting loss scale to:)"
    r" (?P<scale>[\d.e+-]{1,20})",
    re.IGNORECASE,
)
"""As DeepSpeed, Apex and fairseq print it."""

_EPISODE = re.compile(r"\bepisodes?\b", re.IGNORECASE)
_OF = re.compile(r"\s{0,2}/\s{0,2}(?P<total>[1-9]\d{0,11})(?!\d)")
"""What follows the number of right answers."""

_OF_MEGATRON = re.compile(
    r"(?P<phase>validation|test) loss at .{0,80}?\| {0,4}(?P<name>[A-Za-z_ ]{0,40}loss) value: {0,4}"
    rf"(?P<value>{NUMBER}){NUMBER_ENDS}"
)
_EPOCH_ALONE = re.compile(
    r"\W{0,12}epoch\W{0,4}(?P<epoch>\d{1,9})(?:\s{0,4}(?:/|of)\s{0,4}\d{1,9})?\W{0,12}", re.IGNORECASE
)
"""The heading of the lines of an epoch."""

_NOT_BEFORE = frozenset({"the", "is", "and", "with", "a", "of", "for", "step", "epoch", "iter", "its", "info"})


class _Entry(NamedTuple):
    """A line with a loss.

    Attributes
    ----------
    epoch, step, total : str or None
        As in the line; `total` is the number of steps in the epoch.
    rank : int or None
    phase : str
        Phase that the line belongs to; empty for the training.
    values : dict of str to str
        Numbers as they are printed.
    is_mean : bool
        Whether the line is of a trainer that logs the mean since the line before.
    line : int
        Its number, from 1.
    """

    epoch: str | None
    step: str | None
    total: str | None
    rank: int | None
    phase: str
    values: dict[str, str]
    is_mean: bool
    line: int


class _Count(NamedTuple):
    """The place of an entry in the training.

    Attributes
    ----------
    epoch : int or None
        None if the line has none, or one with a fraction.
    step, total : int or None
    passed : float or None
        Epochs that have passed, with a fraction in some logs.
    """

    epoch: int | None
    step: int | None
    total: int | None
    passed: float | None


def read_text_log(
    lines: Lines, column: str | None = None, decimal: Decimal | None = None, *, is_whole: bool = False
) -> Series:
    """Return the losses in a log's lines, in the known formats.

    Parameters
    ----------
    lines : Lines
    column : str, optional
        Another name to read in addition to the losses.
    decimal : Decimal, optional
        The sign before decimals; by default it is inferred.
    is_whole : bool
        Whether to read all scalars whose names tell what they are, and not the losses alone.

    Returns
    -------
    Series
        Empty if there are none.

    Raises
    ------
    CurveError
        There are too many.
    """
    series = Series()
    numbers = Numbers(decimal)
    reader = _LineReader(column.casefold() if column is not None else None, numbers, is_whole)
    entries = [entry for line in lines if (entry := reader.entry(line, lines.number)) is not None]
    series.has_episodes = reader.has_episodes
    entries = _of_one_rank(entries, series)
    numbers_of = {id(entry): number for number, entry in enumerate(entries, 1)}
    series.lines = {number: entry.line for number, entry in enumerate(entries, 1)}
    lines_of = list(series.lines.values())
    series.stages = [min(bisect_left(lines_of, line) + 1, len(entries)) for line in reader.stages.begins]
    series.holds_means = any(entry.is_mean for entry in entries)
    totals = {entry.total for entry in entries if entry.total is not None and not entry.phase}
    if len(totals) == 1 and all(entry.epoch is None for entry in entries):
        series.last_step = numbers.read_step(totals.pop()) or 0
    for phase in dict.fromkeys(entry.phase for entry in entries):
        of_phase = [entry for entry in entries if entry.phase == phase]
        counts = [_count(entry, numbers) for entry in of_phase]
        for entry, count, step in zip(of_phase, counts, _numbered_on(counts, series.notes), strict=True):
            for name, text in entry.values.items():
                point = Point(step, math.nan, epoch=count.passed, entry=numbers_of[id(entry)])
                role = role_of(name) if is_whole else None
                is_named = role is not None and role.is_evaluation
                series.add_printed(name if is_named or not phase else f"{phase} {name}", text, numbers, point)
    return series


def _count(entry: _Entry, numbers: Numbers) -> _Count:
    epoch = None if entry.epoch is None else numbers.read(entry.epoch)
    step = None if entry.step is None else numbers.read_step(entry.step)
    total = None if entry.total is None else numbers.read_step(entry.total)
    return _Count(
        epoch=int(epoch) if epoch is not None and epoch.isdigit() else None,
        step=step,
        total=total,
        passed=None if epoch is None else float(epoch),
    )


def read_pattern(lines: Iterable[str], pattern: str, decimal: Decimal | None = None) -> Series:
    """Return the losses that a user's pattern matches.

    Parameters
    ----------
    lines : iterable of str
    pattern : str
        A Python regular expression with the group ``loss``, and ``step`` if the log has steps.
    decimal : Decimal, optional
        The sign before decimals; by default it is inferred.

    Raises
    ------
    InputError
        The pattern is invalid, or has no group ``loss``.
    CurveError
        There are too many values.
    """
    if len(pattern) > LONGEST_PATTERN:
        raise InputError(f"--pattern has {len(pattern):,} characters; give at most {LONGEST_PATTERN:,}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise InputError(f"--pattern {pattern!r} is not a regular expression: {error}") from None
    if "loss" not in compiled.groupindex:
        raise InputError(
            f"--pattern {pattern!r} has no group for the loss; write (?P<loss>…), and (?P<step>…) for steps"
        )
    series, numbers = Series(), Numbers(decimal)
    has_steps = "step" in compiled.groupindex
    matches: list[tuple[str, str]] = []
    for line in lines:
        for match in compiled.finditer(line):
            text, step = match["loss"] or "", (match["step"] or "") if has_steps else ""
            if begins_as_number(text) or plain_number(text) is not None:
                numbers.see(text, "loss")
                numbers.see_step(step)
                matches.append((text, step))
    for text, step in matches:
        series.add_printed("loss", text, numbers, Point(numbers.read_step(step), math.nan))
    return series


class _LineReader:
    """Reads the lines of a log one by one.

    Parameters
    ----------
    other : str or None
        Another name to read in addition to the losses, in lower case.
    numbers : Numbers
        All numbers of the file.
    is_whole : bool
        Whether to read all scalars whose names tell what they are.
    """

    def __init__(self, other: str | None, numbers: Numbers, is_whole: bool) -> None:
        self._other = other
        self._numbers = numbers
        self._is_whole = is_whole
        self._epoch: str | None = None
        self._step: str | None = None
        self._columns: list[str] = []
        self.has_episodes = False
        self.stages = Stages()

    def entry(self, line: str, number: int) -> _Entry | None:
        """Return the values in a line; None if it has none that is to be read."""
        if self._is_whole:
            self.stages.see(line, number)
        heading = _EPOCH_ALONE.fullmatch(line)
        if heading is not None:
            self._epoch = heading["epoch"]
            return None
        step_heading = _STEP_ALONE.fullmatch(line)
        if step_heading is not None:
            self._step = step_heading["step"]
            return None
        if self._is_whole and _HEADER.match(line):
            names = re.split(r"\s{2,32}|\t", line.strip())
            if any(map(is_loss, names)) and all(map(_COLUMN.fullmatch, names)):
                self._columns = names
                return None
        row = self._row(line, number)
        if row is not None:
            return row
        is_candidate = _LOSS.search(line) or (self._other is not None and self._other in line.casefold())
        if not is_candidate and not (self._is_whole and _ANY_ROLE.search(line)):
            return None
        values = self._values(line)
        if not values:
            return None
        self.has_episodes |= self._is_whole and _EPISODE.search(line) is not None
        rank, epoch, phase = _RANK.match(line), _EPOCH.search(line), _NOT_TRAINING.search(line)
        if any(map(is_data, values)):
            phase = None
        step, total = _step(line)
        step = step or self._step
        if step is not None:
            self._numbers.see_step(step)
        if epoch:
            self._numbers.see(epoch["epoch"])
            self._epoch = None
        return _Entry(
            epoch=epoch["epoch"] if epoch else self._epoch,
            step=step,
            total=total,
            rank=int(rank["rank"]) if rank else None,
            phase=phase["phase"].lower() if phase else "",
            values=values,
            is_mean=_OF_MEANS.search(line) is not None,
            line=number,
        )

    def _row(self, line: str, number: int) -> _Entry | None:
        """Return the values in a row below a header; None if it is none."""
        cells = line.split(None, len(self._columns))
        match = _FIRST_CELL.fullmatch(cells[0]) if self._columns and len(cells) >= len(self._columns) else None
        if match is None:
            return None
        texts = zip(self._columns[1:], cells[1:], strict=False)
        values = {name: text for name, text in texts if role_of(name) is not None and plain_number(text) is not None}
        if not any(map(is_loss, values)):
            return None
        for name, text in values.items():
            self._numbers.see(text, name)
        is_epoch = self._columns[0].lower() == "epoch"
        self._numbers.see_step(match["count"])
        epoch, step = (match["count"], None) if is_epoch else (None, match["count"])
        return _Entry(epoch, step, None, None, "", values, is_mean=False, line=number)

    def _values(self, line: str) -> dict[str, str]:
        """Return the printed values by name."""
        values: dict[str, str] = {}
        alone: dict[str, str] = {}
        for match in _VALUE.finditer(line):
            text = match["value"] + (match["unit"] or "")
            name = self._name(match)
            share = _OF.match(line, match.end("value")) if name is not None and self._is_whole else None
            if share is not None and text.isdecimal() and int(text) <= int(share["total"]):
                text = f"{int(text) / int(share['total']):.6f}"
            self._numbers.see(text, name or "")
            if name is not None:
                values.setdefault(name, text)
            elif self._is_whole and is_data(match["key"]) and "." in text and line[match.end() :][:1] != "%":
                alone.setdefault(match["key"], text)
        evaluated = _OF_MEGATRON.search(line)
        if evaluated is not None:
            self._numbers.see(evaluated["value"])
            return {f"{evaluated['phase']} {evaluated['name']}": evaluated["value"]}
        if len(alone) > 1:
            values |= alone
        lowered = _SCALE_LOWERED.search(line) if self._is_whole else None
        if lowered is not None:
            values["loss scale"] = lowered["scale"].rstrip(".")
        return values

    def _name(self, match: re.Match[str]) -> str | None:
        """Return the name of a matched value; None if it is not to be read."""
        key, before = match["key"], match["before"]
        named = f"{before} {key}" if before and before.lower() not in _NOT_BEFORE else key
        if self._other is not None:
            for name in (named, key):
                if name.casefold() == self._other:
                    return name
        has_sign = bool(match["sign"].strip())
        if is_loss(key) and (has_sign or key.lower().endswith("loss")):
            return named
        is_given = has_sign or not match["value"].isdigit()
        return named if self._is_whole and is_given and role_of(named) is not None else None


def _step(line: str) -> tuple[str | None, str | None]:
    """Return the step in a line, and the total number of steps, as printed."""
    best: tuple[int, str, str | None] | None = None
    for match in _STEP.finditer(line):
        key = match["key"].lower()
        rank = next(at for at, word in enumerate(_STEP_ORDER) if word in key)
        if best is None or rank < best[0]:
            best = rank, match["step"], match["total"]
    if best is not None:
        return best[1], best[2]
    first = _STEP_FIRST.match(line)
    if first is not None:
        return first["step"] or first["number"], None
    without_epoch = _EPOCH.sub(" ", line)
    bar = _BAR.search(without_epoch)
    return (bar["step"], bar["total"]) if bar else (None, None)


def _of_one_rank(entries: list[_Entry], series: Series) -> list[_Entry]:
    """Return the entries of the lowest rank, and those without a rank, if several ranks wrote into one log."""
    ranks = sorted({entry.rank for entry in entries if entry.rank is not None})
    if len(ranks) < 2:
        return entries
    series.notes.append(f"{len(ranks):,} ranks wrote into this log; the lines of rank {ranks[0]} were taken")
    return [entry for entry in entries if entry.rank in (ranks[0], None)]


def _numbered_on(entries: list[_Count], notes: list[str]) -> list[int | None]:
    """Return the step of each entry; if steps restart in every epoch, they are numbered consecutively."""
    steps = [entry.step for entry in entries]
    epochs = _epochs(entries)
    pairs = [(epoch, step) for epoch, step in zip(epochs, steps, strict=True) if epoch is not None and step is not None]
    begins_again = any(after[0] > before[0] and after[1] <= before[1] for before, after in pairwise(pairs))
    if not begins_again:
        return steps
    length = _steps_of_an_epoch(pairs, {entry.total for entry in entries if entry.total is not None})
    first = min(epoch for epoch, _ in pairs)
    notes.append(f"steps begin again in every epoch; they were numbered on, with {length:,} steps in an epoch")
    return [
        None if epoch is None or step is None else (epoch - first) * length + step
        for epoch, step in zip(epochs, steps, strict=True)
    ]


def _epochs(entries: list[_Count]) -> list[int | None]:
    """Return the epoch of each entry: as in its line, or counted by repetitions of the same range of steps.

    Steps of a resumed training also go back, but not to the first, or not after the same last step each time.
    """
    named = [entry.epoch for entry in entries]
    if any(epoch is not None for epoch in named):
        return named
    steps = [entry.step for entry in entries if entry.step is not None]
    begins = [0, *(at for at, (before, after) in enumerate(pairwise(steps), 1) if after < before), len(steps)]
    passes = [steps[begin:end] for begin, end in pairwise(begins) if end > begin]
    totals = {entry.total for entry in entries}
    is_counted = len(totals) == 1 and None not in totals
    if len(passes) < (2 if is_counted else _PASSES) or len({epoch_steps[0] for epoch_steps in passes}) > 1:
        return named
    if len({epoch_steps[-1] for epoch_steps in passes[:-1]}) > 1 or passes[-1][-1] > passes[0][-1]:
        return named
    numbers = iter([epoch for epoch, epoch_steps in enumerate(passes) for _ in epoch_steps])
    return [None if entry.step is None else next(numbers) for entry in entries]


def _steps_of_an_epoch(pairs: list[tuple[int, int]], totals: set[int]) -> int:
    """Return the number of steps of an epoch: as given in its lines, or from the first and last steps."""
    steps = [step for _, step in pairs]
    if len(set(steps)) == 1 < steps[0]:
        # MindSpore prints the last one of each epoch.
        return steps[0]
    if len(totals) == 1:
        return max(*totals, max(steps) + (min(steps) == 0))
    gaps = [after[1] - before[1] for before, after in pairwise(pairs) if after[0] == before[0] and after[1] > before[1]]
    return max(steps) - min(steps) + min(gaps, default=1)
