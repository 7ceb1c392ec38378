"""Loss curves, and their selection among the scalars of a log."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tensight.curves.numbers import is_ambiguous
from tensight.errors import CurveError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from tensight.curves.numbers import Numbers

MOST_POINTS = 5_000_000
"""Maximum number of values in a file, over all series."""

MOST_SERIES = 10_000
"""Maximum number of scalar series in a file."""

_LARGEST_STEP = 2**62
_SMALLEST_POWER = 300
_NAMES_LISTED = 20
_RARE = 10
"""A series this many times shorter than another loss is not a curve: for example "best loss 0.5" at the end."""

_LOSS_WORDS = frozenset({"loss", "losses", "nll", "ce", "xent", "entropy", "bce", "logloss"})
TRAINING_WORDS = frozenset(
    {"train", "training", "lm", "total", "step", "batch", "mean", "avg", "average", "overall", "language"}
)
_OTHER_WORDS = frozenset(
    {
        "val",
        "valid",
        "validation",
        "eval",
        "evaluation",
        "test",
        "dev",
        "scale",
        "scaler",
        "ppl",
        "weight",
        "min",
        "max",
    }
)


class StepUnit(Enum):
    """The unit of a curve's steps."""

    STEP = "step"
    EPOCH = "epoch"
    ENTRY = "entry"
    """The log has no steps, so its entries were counted, from 1."""


@dataclass(frozen=True, eq=False)
class Curve:
    """A scalar of a training over its steps.

    Parameters
    ----------
    name : str
        As in the file, for example ``train/loss``.
    steps : ndarray of int64, shape (n,)
        Strictly ascending.
    values : ndarray of float64, shape (n,)
        May be NaN and infinite.
    source : str
        The file, as the user named it.
    rounding : ndarray of float64, shape (n,)
        Maximum difference between the printed and the computed number; 0 where the number was not rounded.
    unit : StepUnit
    notes : tuple of str
        Decisions made while reading, each in one sentence.
    others : tuple of str
        Further scalar series in the file.
    epochs : ndarray of float64, shape (n,), or None
        Epochs that had passed at each entry, with fractions; None if the file does not name them.
    companions : tuple of Curve
        The other losses in the file, such as that of an evaluation; empty if the user has chosen the series.
    holds_means : bool
        Whether the file is of a trainer that logs the mean since the entry before, as Hugging Face's does.
    """

    name: str
    steps: NDArray[np.int64]
    values: NDArray[np.float64]
    source: str
    rounding: NDArray[np.float64]
    unit: StepUnit = StepUnit.STEP
    notes: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    epochs: NDArray[np.float64] | None = None
    companions: tuple[Curve, ...] = ()
    holds_means: bool = False

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self.steps)


class Digits(NamedTuple):
    """The number of digits with which a number was printed.

    Attributes
    ----------
    decimals : int or None
        Digits after the decimal point; None if it was printed with an exponent.
    significant : int
        Digits from the first nonzero one.
    """

    decimals: int | None
    significant: int


class Point(NamedTuple):
    """A value of a series.

    Attributes
    ----------
    step : int or None
        None if the file has no step for it.
    value : float
    digits : Digits or None
        Its printed precision; None if it was not printed, or exactly.
    epoch : float or None
        Epochs that had passed, with a fraction in some logs; None if the file does not name it.
    entry : int
        Its place in the order of the file: the number of its record.
    """

    step: int | None
    value: float
    digits: Digits | None = None
    epoch: float | None = None
    entry: int = 0


@dataclass
class Series:
    """The scalars of a file, by name, in file order.

    Attributes
    ----------
    points : dict of str to list of Point
    notes : list of str
    unread : dict of str to list of str
        Texts in the place of a value that are not one number, such as ``10 047``, by series.
    holds_means : bool
        See `Curve`.
    entries : int
        Number of records so far.
    lines : dict of int to int
        The line of each record, from 1; empty if the file has no lines.
    last_step : int
        The last step of the whole training, if the file tells; else 0.
    has_episodes : bool
        Whether it has lines about episodes, as of reinforcement learning.
    stages : list of int
        Numbers of records at, or just before, which a stage of the training is named for the first time.
    """

    points: dict[str, list[Point]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    unread: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    holds_means: bool = False
    entries: int = 0
    lines: dict[int, int] = field(default_factory=dict)
    last_step: int = 0
    has_episodes: bool = False
    stages: list[int] = field(default_factory=list)
    _amount: int = 0

    def add(self, name: str, point: Point) -> None:
        """Add a value.

        Raises
        ------
        CurveError
            There are too many.
        """
        points = self._points(name)
        if self._amount > MOST_POINTS:
            raise CurveError(f"more than {MOST_POINTS:,} values; give a shorter part of the log")
        points.append(point)

    def add_printed(self, name: str, text: str, numbers: Numbers, point: Point) -> None:
        """Add a printed value to a point; if it is not one number, keep its text.

        Raises
        ------
        CurveError
            There are too many.
        """
        plain = numbers.read(text, name)
        if plain is None:
            self._points(name)
            self.unread[name].append(text)
            return
        value = float(plain)
        digits = digits_of(plain) if math.isfinite(value) else None
        self.add(name, point._replace(value=value, digits=digits))

    def _points(self, name: str) -> list[Point]:
        points = self.points.get(name)
        if points is None:
            if len(self.points) >= MOST_SERIES:
                raise CurveError(f"more than {MOST_SERIES:,} scalar series; give a file of the loss alone")
            points = self.points[name] = []
        return points


_PRINTED = re.compile(r"[-+]?(?P<whole>\d*)(?:\.(?P<decimals>\d*))?(?P<exponent>[eE][-+]?\d{1,4})?")


def digits_of(text: str) -> Digits | None:
    """Return the number of digits of a printed number; None if it is not a number, or not finite."""
    match = _PRINTED.fullmatch(text)
    if match is None or not any(char.isdigit() for char in text):
        return None
    decimals = match["decimals"] or ""
    significant = len((match["whole"] + decimals).lstrip("0"))
    return Digits(None if match["exponent"] else len(decimals), significant)


def make_curve(series: Series, source: str, column: str | None = None) -> Curve:
    """Return the loss among the series of a file, with the other losses beside it.

    Parameters
    ----------
    series : Series
    source : str
        The file, as the user named it.
    column : str, optional
        Name of the series; by default the most likely loss of the training.

    Raises
    ------
    CurveError
        There is no such series, several match the name, none looks like a loss, or its numbers can be read in two ways.
    """
    amounts = {name: len(points) + len(series.unread.get(name, ())) for name, points in series.points.items()}
    name = choose_series(amounts, column, source)
    others = tuple(other for other, points in series.points.items() if other != name and points)
    notes = list(series.notes)
    notes += _unread_notes(name, series, source)
    if others and column is None:
        notes.append(f"of {len(others) + 1:,} scalar series {name!r} was taken (--column chooses another)")
    beside = [other for other in others if column is None and is_loss(other) and not series.unread.get(other)]
    companions = tuple(_curve(other, series.points[other], source, [], (), ()) for other in beside)
    curve = _curve(name, series.points[name], source, notes, others, companions)
    return replace(curve, holds_means=series.holds_means)


def _unread_notes(name: str, series: Series, source: str) -> list[str]:
    """Return a note about values that are not one number.

    Raises
    ------
    CurveError
        None is, or a comma in them may be a decimal comma or a separator.
    """
    unread = series.unread.get(name)
    if not unread:
        return []
    example = next((text for text in unread if is_ambiguous(text)), unread[0])[:40]
    if is_ambiguous(example):
        raise CurveError(
            f"{source}: {name} is printed as {example}, and nothing else in the file tells whether its comma separates "
            "thousands or decimals; give --decimal-point or --decimal-comma",
            code="loss-not-found",
        )
    if not series.points[name]:
        raise CurveError(
            f"{source}: {name} is printed as {example!r}, which cannot be read as one number; --pattern finds the "
            "number in a line",
            code="loss-not-found",
        )
    return [f"{_count(len(unread), 'value')} of {name} left out: {example!r} cannot be read as one number"]


def _curve(
    name: str,
    points: Sequence[Point],
    source: str,
    notes: list[str],
    others: tuple[str, ...],
    companions: tuple[Curve, ...],
) -> Curve:
    points = _with_steps(points, notes)
    steps, unit = steps_of(points)
    rounding = rounding_of(points)
    values = np.array([point.value for point in points], np.float64)
    epochs = np.array([math.nan if point.epoch is None else point.epoch for point in points], np.float64)
    order, repeated = _last_of_each(steps)
    if repeated:
        kept = dict(zip(steps[order].tolist(), values[order].tolist(), strict=True))
        changed = {
            step
            for step, value in zip(steps.tolist(), values.tolist(), strict=True)
            if value != kept[step] and not (math.isnan(value) and math.isnan(kept[step]))
        }
        if changed:
            are = "is" if len(changed) == 1 else "are"
            notes.append(
                f"{_count(len(changed), unit.value)} of {source} {are} given more than once "
                f"with different values, as after a resume ({_first(changed, unit)}); the last value counts"
            )
    return Curve(
        name=name,
        steps=steps[order],
        values=values[order],
        source=source,
        rounding=rounding[order],
        unit=unit,
        notes=tuple(notes),
        others=others,
        epochs=epochs[order] if np.isfinite(epochs).all() else None,
        companions=companions,
    )


def _with_steps(points: Sequence[Point], notes: list[str]) -> Sequence[Point]:
    """Return the points without the few that have no step, such as the last line of a log; all if many have none."""
    with_step = [point for point in points if point.step is not None]
    left_out = len(points) - len(with_step)
    if not left_out or left_out > len(with_step):
        return points
    notes.append(f"{_count(left_out, 'value')} without a step left out")
    return with_step


def _count(amount: int, noun: str) -> str:
    return f"{amount:,} {noun}" + ("" if amount == 1 else "s")


def _first(steps: Iterable[int], unit: StepUnit) -> str:
    ordered = sorted(steps)
    if len(ordered) == 1:
        return f"{unit.value} {ordered[0]:,}"
    return f"{unit.value}s {ordered[0]:,} to {ordered[-1]:,}"


def steps_of(points: Sequence[Point]) -> tuple[NDArray[np.int64], StepUnit]:
    """Return the step of each point, or its epoch if each entry has a whole one of its own; else count the entries."""
    numbers = [point.step for point in points if point.step is not None and abs(point.step) <= _LARGEST_STEP]
    if len(numbers) == len(points):
        return np.array(numbers, np.int64), StepUnit.STEP
    epochs = [point.epoch for point in points if point.epoch is not None and point.epoch.is_integer()]
    is_one_each = len(epochs) == len(points) and all(before != after for before, after in pairwise(epochs))
    if is_one_each and all(abs(epoch) <= _LARGEST_STEP for epoch in epochs):
        return np.array([int(epoch) for epoch in epochs], np.int64), StepUnit.EPOCH
    return np.arange(1, len(points) + 1, dtype=np.int64), StepUnit.ENTRY


def rounding_of(points: Sequence[Point]) -> NDArray[np.float64]:
    """Return half a unit of the last digit of each value, for the precision of its series.

    Trailing zeros may be missing, so the precision of a series is the largest number of decimals, or of significant
    digits, among its values. Which of the two applies is unknown; the coarser one counts.
    """
    printed = [point.digits for point in points if point.digits is not None]
    decimals = max((digits.decimals for digits in printed if digits.decimals is not None), default=0)
    significant = max((digits.significant for digits in printed), default=0)
    result = np.zeros(len(points))
    for index, point in enumerate(points):
        value, digits = point.value, point.digits
        if digits is None:
            continue
        powers = [] if digits.decimals is None else [-decimals]
        if value and math.isfinite(value):
            powers.append(math.floor(math.log10(abs(value))) + 1 - significant)
        power = max(powers, default=-_SMALLEST_POWER)
        result[index] = 0.5 * 10.0**power if abs(power) < _SMALLEST_POWER else 0.0
    return result


def _last_of_each(steps: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """Return the index of the last entry of each step, in ascending order, and the number of other entries."""
    _, from_the_end = np.unique(steps[::-1], return_index=True)
    order = (len(steps) - 1 - from_the_end).astype(np.int64)
    return order, len(steps) - len(order)


def choose_series(amounts: Mapping[str, int], column: str | None, source: str) -> str:
    """Return the name of the requested series.

    Parameters
    ----------
    amounts : mapping of str to int
        Number of values of each series.
    column : str or None
        The requested name; None for the loss.
    source : str
        The file, for the error.

    Raises
    ------
    CurveError
        No series matches, or several do.
    """
    names = list(amounts)
    listed = ", ".join(names[:_NAMES_LISTED]) + (f", … ({len(names):,})" if len(names) > _NAMES_LISTED else "")
    if column is not None:
        return _named(names, column, source, listed)
    losses = [(rank, at, amounts[name]) for at, name in enumerate(names) if (rank := _likeliness(name)) is not None]
    if losses:
        most = max(amount for _, _, amount in losses)
        _, _, at = min((amount * _RARE < most, rank, at) for rank, at, amount in losses)
        return names[at]
    if len(names) == 1:
        return names[0]
    if not names:
        raise CurveError(
            f"{source}: no loss in it; lines such as 'step 10 loss=2.3' are recognised. For another form give "
            "--pattern, a regular expression with the groups (?P<step>…) and (?P<loss>…)",
            code="loss-not-found",
        )
    raise CurveError(
        f"{source}: none of its series is called loss; choose one with --column: {listed}", code="loss-not-found"
    )


def _named(names: Sequence[str], column: str, source: str, listed: str) -> str:
    lower = column.casefold()
    exact = [name for name in names if name == column]
    any_case = [name for name in names if name.casefold() == lower]
    ends = [name for name in names if name.casefold().endswith(f"/{lower}")]
    for fitting in (exact, any_case, ends):
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            raise CurveError(
                f"{source}: --column {column!r} may be {', '.join(fitting[:_NAMES_LISTED])}; give it in full"
            )
    raise CurveError(f"{source}: no series {column!r}; it has {listed or 'none'}", code="loss-not-found")


def is_loss(name: str) -> bool:
    """Whether a name denotes a loss, of the training or of an evaluation."""
    return _likeliness(name) is not None


def loss_words(name: str) -> list[str]:
    """Return the words of a series' name, in lower case."""
    return [word for word in re.split(r"[^a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()) if word]


@lru_cache(maxsize=4096)
def _likeliness(name: str) -> tuple[bool, int, int] | None:
    """Return the rank of a series as the training's loss, the most likely one smallest; None if it is not a loss."""
    words = loss_words(name)
    if not _LOSS_WORDS.intersection(words) or {"scale", "scaler"}.intersection(words):
        return None
    is_other = bool(_OTHER_WORDS.intersection(words))
    foreign = [word for word in words if word not in _LOSS_WORDS | TRAINING_WORDS]
    return is_other, len(foreign), len(words)
