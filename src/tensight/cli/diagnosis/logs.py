"""The facts of a training of which only logs are left."""

from __future__ import annotations

import bisect
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tensight.cli.diagnosis.checkpoints import checkpoint_paths, read_checkpoints
from tensight.curves.curve import Series, StepUnit, choose_series, loss_words, rounding_of, steps_of
from tensight.curves.reading import read_scalars
from tensight.curves.roles import (
    Kind,
    Role,
    is_of_moving_targets,
    is_of_rivals,
    is_part_of_training,
    role_of,
    roles_of_data,
)
from tensight.diagnosis.catalogue import Diagnosis, Explained, diagnose
from tensight.diagnosis.facts import SCHEMA, Facts
from tensight.errors import CurveError, InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tensight.curves.curve import Point
    from tensight.diagnosis.findings import Finding
    from tensight.diagnosis.rule import Rule

MOST_ENTRIES = 10_000
"""Maximum number of entries of a loss; of longer logs, means of as many neighbours as needed are judged."""

FEWEST = 4
"""Minimum number of entries with which a log can be judged."""

_MOST_FILES, _DEEPEST = 5000, 4
_MOST_REASONS = 5
_SUM = "sum of losses"
_LARGEST_OTHER = 256 << 20
_HAS_LOSS = re.compile(rb"loss|nll|bce|mse|reward|ep_rew|\b(?:train|learn)\b.{1,40}\b(?:val|test)", re.IGNORECASE)
_HEAD = 1 << 18
_TRAINER_STATE = "trainer_state.json"
_ENDINGS = (".csv", ".tsv", ".jsonl", ".ndjson", ".log", ".out", ".err")
_PERHAPS = (".json", ".txt", "")
"""Names of logs, and of files that are searched for a loss before they are read."""

_COMPRESSED = (".gz", ".bz2", ".xz")
_NOT_SEARCHED = ("__pycache__", "node_modules", "site-packages", "venv", "wandb-resume")


class Values(NamedTuple):
    """A scalar over the entries of a log, in file order.

    Attributes
    ----------
    name : str
    role : Role
    steps : list of int
        Of the training.
    values : list of float
    rounding : list of float
        NaN where a value was not printed.
    entries : list of int
        See `Point.entry`.
    """

    name: str
    role: Role
    steps: list[int]
    values: list[float]
    rounding: list[float]
    entries: list[int]


@dataclass(frozen=True)
class Log:
    """A log, and what it says of a training.

    Attributes
    ----------
    files : tuple of Path
    facts : Facts
    unit : StepUnit
        What its steps are.
    entries : int
        Number of entries of its longest loss; 0 if it has none.
    lines : mapping of str to mapping of int to int
        Lines of the steps of its loss, by the name ``""``, and of each evaluation; empty if it has no lines.
    losses : mapping of str to list of (int, float)
        Steps and values of its losses, also those of evaluations.
    notes : tuple of str
        Decisions made while it was read.
    """

    files: tuple[Path, ...]
    facts: Facts
    unit: StepUnit
    entries: int
    lines: Mapping[str, Mapping[int, int]]
    losses: Mapping[str, list[tuple[int, float]]]
    notes: tuple[str, ...]

    def position(self, step: int, evaluation: str = "") -> str:
        """Return the file of a step, or of the evaluation in it, with its line if it has lines."""
        file = os.fspath(self.files[0])
        line = self.lines.get(evaluation, {}).get(step)
        return file if line is None else f"{file}:{line}"


def is_log(path: Path) -> bool:
    """Tell whether a file may be a log by its name, and is nothing that `python` or a shell would run."""
    return path.is_file() and (_is_events(path.name) or path.name == _TRAINER_STATE or _may_be_log(path, is_named=True))


def _is_events(name: str) -> bool:
    return "tfevents" in name or ".summary." in name


def log_files(path: Path) -> list[list[Path]]:
    """Return the files that may be logs of trainings, each with those that belong to the same training.

    Parameters
    ----------
    path : Path
        A file, or a folder: of each state of a trainer the newest one is taken, and event files of a folder together.
    """
    if path.is_file():
        return [[path]]
    states: dict[Path, Path] = {}
    events: dict[Path, list[Path]] = {}
    others: list[Path] = []
    for file in _files_below(path):
        name = file.name.lower()
        if name == _TRAINER_STATE:
            run = file.parent.parent if file.parent.name.startswith("checkpoint-") else file.parent
            states[run] = max(states.get(run, file), file, key=_checkpoint_number)
        elif _is_events(name):
            # Writers of Keras and add_scalars make a folder each for the training and the evaluation.
            is_part = is_part_of_training(file.parent.name)
            events.setdefault(file.parent.parent if is_part and file.parent != path else file.parent, []).append(file)
        elif _may_be_log(file):
            others.append(file)
    return [*([file] for file in states.values()), *events.values(), *([file] for file in others)]


def _files_below(folder: Path) -> Iterator[Path]:
    def walk() -> Iterator[Path]:
        for parent, folders, files in os.walk(folder):
            depth = len(Path(parent).relative_to(folder).parts)
            folders[:] = [] if depth >= _DEEPEST else sorted(each for each in folders if each not in _NOT_SEARCHED)
            yield from (Path(parent, name) for name in sorted(files))

    return islice(walk(), _MOST_FILES)


def _checkpoint_number(state: Path) -> float:
    digits = state.parent.name.rpartition("-")[2]
    return float(digits) if digits.isdecimal() and state.parent.name.startswith("checkpoint-") else math.inf


def _may_be_log(file: Path, *, is_named: bool = False) -> bool:
    name = file.name.lower()
    for ending in _COMPRESSED:
        name = name.removesuffix(ending)
    ending = Path(name).suffix
    try:
        size = file.stat().st_size
    except OSError:
        return False
    if not 0 < size <= _LARGEST_OTHER:
        return False
    if ending in _ENDINGS:
        return True
    # Launchers number the logs of processes: workerlog.0.
    if (ending not in _PERHAPS and not ending[1:].isdigit()) or (is_named and not ending):
        return False
    try:
        with file.open("rb") as opened:
            return _HAS_LOSS.search(opened.read(_HEAD)) is not None
    except OSError:
        return False


def read_log(files: Sequence[Path]) -> Log:
    """Read a log.

    Parameters
    ----------
    files : sequence of Path
        One, or several event files.

    Raises
    ------
    CurveError
        It cannot be read, or has no scalars that are known.
    """
    series = read_scalars(files)
    roles = {name: role for name, points in series.points.items() if points and (role := role_of(name)) is not None}
    if not any(role.kind in (Kind.LOSS, Kind.ERROR) for role in roles.values()):
        roles |= roles_of_data(series.points)
    if not any(role.kind in (Kind.LOSS, Kind.SKILL, Kind.ERROR) for role in roles.values()):
        raise CurveError(f"{files[0]}: no loss and no measure in it", code="loss-not-found")
    return _Reader(series, roles, tuple(files)).log()


class _Reader:
    """Makes the scalars of a log the facts of a training.

    Parameters
    ----------
    series : Series
    roles : mapping of str to Role
        By the names of the scalars that are known.
    files : tuple of Path
    """

    def __init__(self, series: Series, roles: Mapping[str, Role], files: tuple[Path, ...]) -> None:
        self._series = series
        self._roles = roles
        self._files = files
        self._notes = list(series.notes)
        self._begins: list[int] = []
        self._is_late = False
        self._unit = StepUnit.ENTRY
        self._moving = series.has_episodes or any(
            is_of_moving_targets(name)
            for name in series.points
            if name not in roles or roles[name].kind is not Kind.RATE
        )

    def log(self) -> Log:
        """Return the log."""
        losses = self._training_losses()
        main, unit = self._main(losses)
        facts = Facts(keeps_all=True)
        facts.framework = ""
        self._add_losses(facts, main, losses)
        evaluations = self._evaluations(main)
        self._add_others(facts, main, evaluations)
        shown = {main.name: list(zip(main.steps, main.values, strict=True))} if main.role.kind is Kind.LOSS else {}
        shown |= {
            each.name: list(zip(each.steps, each.values, strict=True))
            for each in evaluations
            if each.role.kind is Kind.LOSS
        }
        lines: dict[str, dict[int, int]] = {}
        for each in (main, *evaluations) if self._series.lines else ():
            of_each = lines.setdefault("" if each is main else each.name, {})
            for step, entry in zip(each.steps, each.entries, strict=True):
                of_each.setdefault(step, self._series.lines[entry])
        return Log(self._files, facts, unit, len(main.steps), lines, shown, tuple(self._notes))

    def _training_losses(self) -> dict[str, list[Point]]:
        """Return the losses of the training, the one that should fall first."""
        points = {
            name: self._series.points[name]
            for name, role in self._roles.items()
            if role.kind is Kind.LOSS and not role.is_evaluation
        }
        if not points:
            # Some print the error alone that they minimise.
            errors = {
                name: self._series.points[name]
                for name, role in self._roles.items()
                if role.kind is Kind.ERROR and not role.is_evaluation
            }
            return dict(sorted(errors.items(), key=lambda item: -len(item[1]))[:1])
        self._moving |= len(points) > 1 and any(map(is_of_rivals, points))
        first = choose_series({name: len(of_name) for name, of_name in points.items()}, None, "")
        parts = [name for name in points if len(points[name]) == len(points[first])]
        if (
            len(parts) > 1
            and not self._moving
            and len(loss_words(first)) > 1
            and all(_is_part(name) for name in points)
        ):
            return {_SUM: _sum([points[name] for name in parts])} | points
        return {first: points[first]} | points

    def _main(self, losses: Mapping[str, list[Point]]) -> tuple[Values, StepUnit]:
        """Return the scalar whose steps are those of the training."""
        name = next(iter(losses), "") or max(self._roles, key=lambda each: len(self._series.points[each]))
        points = losses.get(name) or self._series.points[name]
        with_step = [point for point in points if point.step is not None]
        if with_step and len(points) - len(with_step) <= len(with_step):
            points = with_step
        steps, unit = steps_of(points)
        kept, numbers = self._in_order(steps.tolist(), [point.value for point in points])
        if numbers is None:
            unit, numbers = StepUnit.ENTRY, list(range(1, len(kept) + 1))
        points = [points[at] for at in kept]
        first_epoch = points[0].epoch if points else None
        begins_late = unit is not StepUnit.ENTRY and numbers[0] > 0.05 * numbers[-1] + 1
        self._unit = unit
        self._is_late = begins_late or (first_epoch is not None and first_epoch >= 2)
        role = Role(Kind.LOSS) if name in losses else self._roles[name]
        main = _values(name, role, points, numbers)
        return _thinned(main), unit

    def _in_order(self, steps: list[int], values: list[float]) -> tuple[list[int], list[int] | None]:
        """Return the indices of the entries that count, and their steps; None if entries are to be counted.

        A log that goes back to its first step is of another training, unless its loss goes on: then each epoch counts
        its own steps. One that goes back to another step is resumed there.
        """
        backs = [at for at in range(1, len(steps)) if steps[at] < steps[at - 1]]
        to_start = [at for at in backs if steps[at] <= min(steps) + 1 and len(steps) - at >= 1]
        if to_start and self._goes_on(values, to_start):
            return list(range(len(steps))), None
        begin = 0
        if to_start:
            begin = to_start[-1] if len(steps) - to_start[-1] >= FEWEST else (to_start[-2] if len(to_start) > 1 else 0)
        if begin:
            self._notes.append(
                f"{self._files[0]} has {len(to_start) + 1} trainings from the same step on; the last one was judged"
            )
        kept: list[int] = []
        for at in range(begin, len(steps)):
            if kept and steps[at] < steps[kept[-1]]:
                self._begins.append(steps[at])
            while kept and steps[kept[-1]] >= steps[at]:
                kept.pop()
            kept.append(at)
        return kept, [steps[at] for at in kept]

    @staticmethod
    def _goes_on(values: list[float], begins: Sequence[int]) -> bool:
        """Whether the loss after each beginning is closer to that before it than to that of the first beginning."""
        closer = []
        for at in begins:
            before, after = values[max(at - 3, 0) : at], values[at : at + 3]
            first = values[: max(min(3, at), 1)]
            if all(map(math.isfinite, (*before, *after, *first))):
                level = sum(after) / len(after)
                closer.append(abs(level - sum(before) / len(before)) <= abs(level - sum(first) / len(first)))
        return not closer or sum(closer) > len(closer) / 2

    def _aligned(self, main: Values, points: Sequence[Point]) -> list[int]:
        """Return the step of the training at each point: that of the last entry of the loss before it, or with it."""
        if len(self._files) > 1:
            return [point.step if point.step is not None else main.steps[-1] for point in points]
        at = [bisect.bisect_right(main.entries, point.entry) - 1 for point in points]
        aligned = [main.steps[max(each, 0)] for each in at]
        # What is logged when there is no loss any more, as of updates that are skipped, has steps of its own.
        is_later = [point.step is not None and point.entry > main.entries[-1] for point in points]
        return [
            max(point.step or 0, step) if later and self._unit is StepUnit.STEP else step
            for point, step, later in zip(points, aligned, is_later, strict=True)
        ]

    def _add_losses(self, facts: Facts, main: Values, losses: Mapping[str, list[Point]]) -> None:
        unit_steps = set(main.steps)
        last = len(main.steps) - 1
        stages = [main.steps[min(bisect.bisect_left(main.entries, entry), last)] for entry in self._series.stages]
        row = {
            "name": os.fspath(self._files[0]),
            "unit": "step",
            "is_moving": self._moving,
            "begins": " ".join(map(str, self._begins)),
            "stages": " ".join(map(str, dict.fromkeys(stages))),
            "is_late": self._is_late,
            "is_complete": 0 < self._series.last_step <= main.steps[-1] + 1,
        }
        facts.add("logs", main.steps[0] if main.steps else 0, [row])
        rows: dict[int, list[dict[str, object]]] = {}
        if main.role.kind is Kind.LOSS and not main.role.is_evaluation:
            for step, value, rounding in zip(main.steps, main.values, main.rounding, strict=True):
                rows.setdefault(step, []).append({"name": main.name, "value": value, "rounding": rounding})
        others = [(name, points) for name, points in losses.items() if name != main.name]
        for name, points in others:
            # Parts of a loss, or its mean over an epoch, are finite or not; whether they should fall is unknown.
            if not self._moving and all(math.isfinite(point.value) for point in points):
                continue
            for step, point in zip(self._aligned(main, points), points, strict=True):
                if step in unit_steps:
                    rows.setdefault(step, []).append({"name": name, "value": point.value})
        for step in sorted(rows):
            facts.add("losses", step, rows[step])

    def _evaluations(self, main: Values) -> list[Values]:
        """Return the losses and measures on data that are not trained on."""
        evaluated = {name for name, role in self._roles.items() if role.is_evaluation}
        result = []
        for name, role in self._roles.items():
            points = self._series.points[name]
            if role.kind not in (Kind.LOSS, Kind.SKILL, Kind.ERROR) or not points:
                continue
            if name == main.name and main.role.kind is Kind.LOSS:
                continue
            if not role.is_evaluation and not self._is_of_evaluation(name, role, evaluated):
                continue
            steps = self._aligned(main, points)
            by_step: dict[int, list[Point]] = {}
            for step, point in zip(steps, points, strict=True):
                by_step.setdefault(step, []).append(point)
            # Several in a step are those of the batches of an evaluation.
            merged = [
                (step, of_step[-1]._replace(value=sum(point.value for point in of_step) / len(of_step)))
                for step, of_step in sorted(by_step.items())
            ]
            merged = _without_repetitions(merged)
            result.append(_values(name, role, [point for _, point in merged], [step for step, _ in merged]))
        parts = [each for each in result if each.role.kind is Kind.LOSS]
        if main.name != _SUM or len(parts) < 2 or any(each.steps != parts[0].steps for each in parts):
            return result
        values = [sum(of_step) for of_step in zip(*(each.values for each in parts), strict=True)]
        exact = [math.nan] * len(values)
        total = parts[0]._replace(name="sum of evaluation losses", values=values, rounding=exact)
        return [total, *(each for each in result if each not in parts)]

    def _is_of_evaluation(self, name: str, role: Role, evaluated: set[str]) -> bool:
        """Whether a measure is of an evaluation although its name does not tell: no other one is, and a loss is."""
        if role.kind is Kind.LOSS:
            return False
        if self._moving and is_of_moving_targets(name):
            return True
        if any(self._roles[other].kind is Kind.SKILL for other in evaluated):
            return False
        words = set(loss_words(name))
        if words & {"train", "training", "batch", "step"}:
            return False
        counts = {len(self._series.points[other]) for other in evaluated}
        return len(self._series.points[name]) in counts or "metrics" in words

    def _add_others(self, facts: Facts, main: Values, evaluations: Sequence[Values]) -> None:
        rows: dict[str, dict[int, list[dict[str, object]]]] = {}

        def add(subject: str, step: int, row: dict[str, object]) -> None:
            rows.setdefault(subject, {}).setdefault(step, []).append(row)

        for each in evaluations:
            flags = {"is_loss": each.role.kind is not Kind.SKILL, "is_skill": each.role.kind is Kind.SKILL}
            for step, value, rounding in zip(each.steps, each.values, each.rounding, strict=True):
                add("evaluations", step, {"name": each.name, "value": value, "rounding": rounding, **flags})
        for kind, subject, column in (
            (Kind.RATE, "rates", "rate"),
            (Kind.GRADIENT_NORM, "groups", "norm_update"),
        ):
            for name in self._names(kind):
                points = self._series.points[name]
                values = _without_rounded_zeros(points) if kind is Kind.RATE else [point.value for point in points]
                for step, value in zip(self._aligned(main, points), values, strict=True):
                    add(subject, step, {"name": name, "optimizer": name, column: value})
        state: dict[int, dict[str, object]] = {step: {"name": "step"} for step in main.steps}
        lowered: list[tuple[int, dict[str, object]]] = []
        for kind in (Kind.SCALE, Kind.SKIPPED):
            for name in self._names(kind)[:1]:
                # fairseq prints the scale with the loss, and in a line of its own when it is lowered.
                alike = [other for other in self._names(kind) if loss_words(other) == loss_words(name)]
                points = sorted(
                    (point for other in alike for point in self._series.points[other]), key=attrgetter("entry")
                )
                # DeepSpeed counts them from the beginning on, Megatron-LM since the line before.
                is_total = all(after.value >= before.value for before, after in pairwise(points))
                before = 0.0
                for step, point in zip(self._aligned(main, points), points, strict=True):
                    row = state.setdefault(step, {"name": "step"})
                    if kind is Kind.SCALE:
                        # It may be lowered several times before the next entry.
                        if row.setdefault("scale", point.value) != point.value:
                            lowered.append((step, {"name": f"update {len(lowered) + 2}", "scale": point.value}))
                    else:
                        row["is_skipped"] = point.value > before
                        before = point.value if is_total else 0.0
        for step, row in (*state.items(), *lowered):
            add("steps", step, row)
        for subject, by_step in rows.items():
            for step in sorted(by_step):
                # Of several values in a step, the last one counts.
                last = {str(row["name"]): row for row in by_step[step]}
                facts.add(subject, step, list(last.values()))
        facts.absent = {subject: "as logs do not have them" for subject in SCHEMA if not len(facts[subject])} | {
            subject: why for subject, why in _ABSENT.items() if not len(facts[subject])
        }
        if not self._names(Kind.SCALE) and not self._names(Kind.SKIPPED):
            facts.absent["steps"] = "as the log has no loss scale"

    def _names(self, kind: Kind) -> list[str]:
        return [name for name, role in self._roles.items() if role.kind is kind and self._series.points[name]]


_ABSENT = {
    "checkpoints": "as there is no checkpoint",
    "saved": "as there is no checkpoint",
    "losses": "as the log has no loss of the training",
    "evaluations": "as the log has no evaluations",
    "rates": "as the log has no learning rate",
    "groups": "as the log has no gradient norm",
}


def _is_part(name: str) -> bool:
    """Whether a loss is one of several, by its name: box_loss, not train_loss."""
    from tensight.curves.curve import TRAINING_WORDS

    return bool(set(loss_words(name)) - TRAINING_WORDS - {"loss", "losses"})


def _sum(parts: Sequence[list[Point]]) -> list[Point]:
    return [
        of_entry[0]._replace(value=sum(point.value for point in of_entry), digits=None)
        for of_entry in zip(*parts, strict=True)
    ]


def _values(name: str, role: Role, points: Sequence[Point], steps: Sequence[int]) -> Values:
    rounding = rounding_of(points).tolist()
    printed = [each if point.digits is not None else math.nan for each, point in zip(rounding, points, strict=True)]
    return Values(
        name, role, list(steps), [point.value for point in points], printed, [point.entry for point in points]
    )


def _without_repetitions(points: list[tuple[int, Point]]) -> list[tuple[int, Point]]:
    """Return evaluations without those that a progress bar shows again in each step until the next one."""
    first = [at for at, (_, point) in enumerate(points) if not at or point.value != points[at - 1][1].value]
    return [points[at] for at in first] if 3 <= len(first) <= len(points) / 3 else points


def _thinned(values: Values) -> Values:
    """Return a scalar with at most `MOST_ENTRIES` entries: means of neighbours."""
    length = math.ceil(len(values.steps) / MOST_ENTRIES)
    if length <= 1:
        return values
    begins = range(0, len(values.steps), length)
    last = [min(begin + length, len(values.steps)) - 1 for begin in begins]
    return values._replace(
        steps=[values.steps[at] for at in last],
        values=[float(np.mean(values.values[begin : begin + length])) for begin in begins],
        rounding=[values.rounding[at] for at in last],
        entries=[values.entries[at] for at in last],
    )


def _without_rounded_zeros(points: Sequence[Point]) -> list[float]:
    """Return learning rates, of which zeros that may be a small rate printed with few decimals are NaN."""
    highest = max((point.value for point in points if math.isfinite(point.value)), default=0.0)
    rounding = rounding_of(points).tolist()
    # 0 and 0.0 are as Python prints them, 0.0000 has been rounded.
    printed = [point.digits for point in points if point.digits is not None]
    decimals = [digits.decimals for digits in printed]
    # So is a 0 among numbers that are printed with an exponent, or with other numbers of decimals.
    is_exact = None in decimals or (bool(printed) and len(set(decimals)) > 1)
    is_exact |= highest == 0 and all(each == 0 or each > 0.01 for each in rounding)
    is_coarse = [each > 1e-3 * highest and not is_exact for each in rounding]
    return [
        math.nan if point.value == 0 and coarse else point.value
        for point, coarse in zip(points, is_coarse, strict=True)
    ]


class LogDiagnosis(NamedTuple):
    """What logs say, and what a report shows beside it.

    Attributes
    ----------
    diagnosis : Diagnosis
        Of all logs and checkpoints together; its steps are entries of logs, or tensors if there are only checkpoints.
    runs : list of Facts
    losses : dict of str to list of (int, float)
        Of the first log.
    logs : list of str
        The logs in words.
    written_s : float
        When the last of them was written, in seconds since the epoch.
    """

    diagnosis: Diagnosis
    runs: list[Facts]
    losses: Mapping[str, list[tuple[int, float]]]
    logs: list[str]
    written_s: float


def diagnose_logs(path: Path, user_rules: Sequence[Rule] = ()) -> LogDiagnosis:
    """Judge the logs and checkpoints in a folder, or one of them.

    Parameters
    ----------
    path : Path
    user_rules : sequence of Rule

    Raises
    ------
    InputError
        There are none, or too few entries; the message says of each file why.
    """
    logs: list[tuple[Log, Diagnosis]] = []
    reasons: list[str] = []
    for files in log_files(path) if path.is_dir() or is_log(path) else ():
        try:
            log = read_log(files)
        except CurveError as error:
            reasons.append(str(error))
            continue
        if path.is_dir() and not log.losses and not len(log.facts["evaluations"]):
            continue
        diagnosis = diagnose([log.facts], user_rules)
        if log.entries < FEWEST and not diagnosis.findings:
            reasons.append(
                f"{files[0]}: {log.entries} entr{'y' if log.entries == 1 else 'ies'} of a loss; a course is judged from"
                f" {FEWEST} on"
            )
            continue
        logs.append((log, diagnosis))
    saved = read_checkpoints(checkpoint_paths(_files_below(path)) if path.is_dir() else [path])
    of_checkpoints: Diagnosis | None = None
    tensors = len(saved.facts["saved"])
    if tensors:
        of_checkpoints = diagnose([saved.facts], user_rules)
    else:
        reasons += saved.reasons
    if not logs and of_checkpoints is None:
        raise InputError("; ".join(reasons[:_MOST_REASONS]) or f"{path}: no facts and no log of a training in it")
    return LogDiagnosis(
        _together(logs, of_checkpoints, tensors),
        [log.facts for log, _ in logs] or [saved.facts],
        logs[0][0].losses if logs else {},
        [*(_described(log) for log, _ in logs), *saved.described],
        max([file.stat().st_mtime for log, _ in logs for file in log.files], default=math.inf),
    )


def _together(logs: Sequence[tuple[Log, Diagnosis]], of_checkpoints: Diagnosis | None, tensors: int) -> Diagnosis:
    """Return the diagnoses of logs as one; what logs of one folder say alike, is said once."""
    findings: list[Explained] = []
    seen: list[tuple[Finding, Path]] = []
    for log, diagnosis in logs:
        for explained in diagnosis.findings:
            finding, folder = explained.finding, log.files[0].parent
            if not any(_is_same(finding, folder, *other) for other in seen):
                findings.append(Explained(_located(finding, log), explained.explains))
            seen.append((finding, folder))
    several = [diagnosis for _, diagnosis in logs]
    if of_checkpoints is not None:
        several.append(of_checkpoints)
        findings += of_checkpoints.findings
    hit = {explained.finding.rule for explained in findings}
    passed = [rule for rule in dict.fromkeys(rule for each in several for rule in each.passed) if rule not in hit]
    decided = hit.union(passed)
    undecided = {rule: why for each in several for rule, why in each.undecided.items() if rule not in decided}
    entries = sum(log.entries for log, _ in logs) or tensors
    return Diagnosis(findings, undecided, entries, passed, several[0].rules)


def _is_same(finding: Finding, folder: Path, other: Finding, folder_of_other: Path) -> bool:
    """Whether two findings are those of one training, in two logs of a folder, or in one below the other."""
    if finding.rule != other.rule:
        return False
    is_below = folder.is_relative_to(folder_of_other) or folder_of_other.is_relative_to(folder)
    return folder == folder_of_other or (
        (finding.step, finding.message) == (other.step, other.message) and (is_below or finding.values == other.values)
    )


_UNITS = {
    StepUnit.STEP: "",
    StepUnit.EPOCH: "; its steps are epochs",
    StepUnit.ENTRY: "; it has no steps, its entries are counted",
}


def _located(finding: Finding, log: Log) -> Finding:
    return replace(
        finding, where={**finding.where, "line": log.position(finding.step, finding.where.get("evaluation", ""))}
    )


def _described(log: Log) -> str:
    names = ", ".join(log.losses)
    file = os.fspath(log.files[0])
    more = f" and {len(log.files) - 1} more" if len(log.files) > 1 else ""
    notes = "".join(f"; {note}" for note in log.notes)
    unit = _UNITS[log.unit]
    return f"{file}{more}: {log.entries:,} entries{names and f' of {names}'}{unit}{notes}"
