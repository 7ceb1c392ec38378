"""Which entries of two logs belong together: by step, by epoch, or by an interval that their values show.

Logs are paired by what both count. Where they count nothing in common, entries may be paired in their order only if
nothing contradicts it; an interval is accepted if the values agree with it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tensight.curves import Curve, StepUnit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Indices = NDArray[np.intp]
    Values = NDArray[np.float64]

CLOSE = 1e-3
"""Relative difference up to which values support an interval: the tolerance of the accuracy guide."""

_MOST_INTERVALS = 1000
_FEWEST = 3
"""Entries that must agree before an interval is accepted."""

_SURE = 8
_ALMOST_ALL = 0.95
_ONE_APART = "one log seems to count steps from 0, and the other from 1"
_PRINTED_DECIMALS = 6
"""Epochs with more decimals were not rounded."""


@dataclass(frozen=True, eq=False)
class Axis:
    """The entries of A and of B that belong together.

    Attributes
    ----------
    in_a, in_b : ndarray of int, shape (n,)
        Indices of the paired entries, ascending.
    steps : ndarray of int64, shape (n,)
        What the pairs are called: steps of A, or entries of A.
    unit : StepUnit
    begins : bool
        Whether the first pair is the first step of both trainings, according to their logs.
    ambiguity : str
        Why a difference would say nothing, as the pairs may not be of the same; empty if they are.
    is_alike : bool
        Whether both log at the same interval.
    a, b : ndarray of float64, shape (n,), or None
        Values to compare instead of the entries': means over the interval of the other log.
    notes : tuple of str
    """

    in_a: Indices
    in_b: Indices
    steps: NDArray[np.int64]
    unit: StepUnit
    begins: bool = False
    ambiguity: str = ""
    is_alike: bool = True
    a: Values | None = None
    b: Values | None = None
    notes: tuple[str, ...] = ()


def common_axis(a: Curve, b: Curve) -> Axis:
    """Return the entries of two curves that belong together."""
    axis = _axis(a, b)
    if len(axis.steps) < 2:
        return axis
    between = [int(np.median(np.diff(indices))) for indices in (axis.in_a, axis.in_b)]
    axis = replace(axis, is_alike=between[0] == between[1])
    is_compared = axis.a is not None or axis.b is not None
    if is_compared or not (a.holds_means or b.holds_means) or _agreeing(a, b, axis.in_a, axis.in_b) >= _FEWEST:
        return axis
    every = max(interval_of(curve.steps) if curve.unit is StepUnit.STEP else 1 for curve in (a, b))
    is_single = every == 1 and axis.is_alike and StepUnit.STEP in (a.unit, b.unit)
    if is_single or (a.holds_means and b.holds_means and axis.is_alike):
        return axis
    ambiguity = (
        f"{'A' if a.holds_means else 'B'} is the log of a trainer that writes means over an interval, as that of "
        "Hugging Face does, and the other holds losses of single steps, or means over another interval"
    )
    return replace(axis, ambiguity=axis.ambiguity or ambiguity)


def _axis(a: Curve, b: Curve) -> Axis:
    if not len(a) or not len(b):
        nothing = np.empty(0, np.intp)
        return Axis(nothing, nothing, np.empty(0, np.int64), a.unit)
    if a.unit is b.unit and a.unit is not StepUnit.ENTRY:
        return _by_steps(a, b)
    if a.epochs is not None and b.epochs is not None:
        return _by_epochs(a, b, a.epochs, b.epochs)
    if StepUnit.ENTRY in (a.unit, b.unit):
        return _by_order(a, b)
    nothing = np.empty(0, np.intp)
    notes = (f"A counts {a.unit.value}s and B {b.unit.value}s",)
    return Axis(nothing, nothing, np.empty(0, np.int64), a.unit, notes=notes)


# --- by step ---


def _by_steps(a: Curve, b: Curve) -> Axis:
    notes: list[str] = []
    b_steps = b.steps
    if _counts_from_another(a, b):
        b_steps = b_steps - b_steps[0] + a.steps[0]
        notes.append(f"A counts from {a.steps[0]}, B from {b.steps[0]}; the first of both were paired")
    shared, in_a, in_b = np.intersect1d(a.steps, b_steps, assume_unique=True, return_indices=True)
    offset = 0 if len(shared) else _offset(a, b)
    ambiguity = ""
    if offset:
        shared, in_a, in_b = np.intersect1d(a.steps, b_steps + offset, assume_unique=True, return_indices=True)
        notes.append(
            f"A logs {_first_steps(a)}, B {_first_steps(b)}: one counts from 0, so step {a.steps[in_a[0]]:,} of A was "
            f"paired with step {b.steps[in_b[0]]:,} of B"
        )
        if _agreeing(a, b, in_a, in_b) < _enough(len(in_a)):
            ambiguity = _ONE_APART
    steps = np.asarray(shared, np.int64)
    is_first = bool(len(steps)) and a.steps[0] == b_steps[0] == steps[0] and _is_first_step(a) and _is_first_step(b)
    axis = Axis(
        in_a, in_b, steps, a.unit, begins=is_first and a.unit is StepUnit.STEP, ambiguity=ambiguity, notes=tuple(notes)
    )
    if a.unit is StepUnit.STEP and not axis.begins and not offset:
        axis = _counted_from_another(a, b, axis)
    return _with_means(a, b, axis) if a.unit is StepUnit.STEP else axis


def _is_first_step(curve: Curve) -> bool:
    """Whether a log begins with the first step; 1, 3, 5 may also be every other step of those from 0 on."""
    return bool(curve.steps[0] == 0 or (curve.steps[0] == 1 and interval_of(curve.steps) != 2))


def _counted_from_another(a: Curve, b: Curve, axis: Axis) -> Axis:
    """Pair each step with the one before or after it, if only then the values agree: one log counts from 0.

    Where both logs have the first step, it shows how they count.
    """
    # The mean of some steps is close to the loss of the middle one.
    is_of_means = (a.holds_means or b.holds_means) and interval_of(a.steps) != interval_of(b.steps)
    by_number = _leading(a.values[axis.in_a], b.values[axis.in_b], a.rounding[axis.in_a] + b.rounding[axis.in_b])
    if is_of_means or by_number >= _enough(len(axis.steps)):
        return axis
    for offset in (1, -1):
        shared, in_a, in_b = np.intersect1d(a.steps, b.steps + offset, assume_unique=True, return_indices=True)
        leading = _leading(a.values[in_a], b.values[in_b], a.rounding[in_a] + b.rounding[in_b])
        if leading <= max(by_number, 1):
            continue
        if leading < _enough(len(in_a)) or not _agreeing(a, b, in_a, in_b):
            return replace(axis, ambiguity=_ONE_APART)
        note = (
            f"the values agree if step {a.steps[in_a[0]]:,} of A is step {b.steps[in_b[0]]:,} of B: they were paired "
            "so, as one log seems to count from 0 and the other from 1"
        )
        return replace(axis, in_a=in_a, in_b=in_b, steps=np.asarray(shared, np.int64), notes=(*axis.notes, note))
    if {_counts_from(a), _counts_from(b)} == {0, 1} and not by_number:
        return replace(axis, ambiguity=_ONE_APART)
    return axis


def _counts_from(curve: Curve) -> int | None:
    """Return the number that a log seems to give the first step; None if it shows none."""
    first, every = int(curve.steps[0]), interval_of(curve.steps)
    if first == 0 or (first == every - 1 and every > 2):
        return 0
    return 1 if first == every else None


def _enough(amount: int) -> int:
    """Return how many of the first of so many pairs must agree to show that they belong together."""
    return min(max(_FEWEST, amount // 10), _SURE)


def _agreeing(a: Curve, b: Curve, in_a: Indices, in_b: Indices) -> int:
    """Return how many of the first pairs agree; 0 if their values hardly change, so that this says nothing."""
    tolerance = a.rounding[in_a] + b.rounding[in_b]
    if not len(in_a) or _is_flat(a.values[in_a], tolerance):
        return 0
    return _leading(a.values[in_a], b.values[in_b], tolerance)


def _first_steps(curve: Curve) -> str:
    return ", ".join(f"{step:,}" for step in curve.steps[:2]) + ", …"


def _counts_from_another(a: Curve, b: Curve) -> bool:
    """Whether one curve counts from 0 and the other from 1, both log each step, and the values agree with that."""
    if {int(a.steps[0]), int(b.steps[0])} != {0, 1} or interval_of(a.steps) != 1 or interval_of(b.steps) != 1:
        return False
    early, late = (a, b) if a.steps[0] == 0 else (b, a)
    if len(early) < 2:
        return False
    by_order, by_number = abs(early.values[0] - late.values[0]), abs(early.values[1] - late.values[0])
    return not by_number < by_order


def _offset(a: Curve, b: Curve) -> int:
    """Return 1 or -1 if B's steps are A's, counted from another number; 0 otherwise."""
    if interval_of(a.steps) != interval_of(b.steps) or {_counts_from(a), _counts_from(b)} != {0, 1}:
        return 0
    return next((offset for offset in (1, -1) if len(np.intersect1d(a.steps, b.steps + offset)) >= _FEWEST), 0)


def interval_of(steps: NDArray[np.int64]) -> int:
    """Return the median number of steps between two entries."""
    return int(np.median(np.diff(steps))) if len(steps) > 1 else 1


def _with_means(a: Curve, b: Curve, axis: Axis) -> Axis:
    """Compare with means over the longer interval, if one log holds such means."""
    if len(axis.steps) < _FEWEST:
        return axis
    between = [int(np.median(np.diff(indices))) for indices in (axis.in_a, axis.in_b)]
    if min(between) != 1 or max(between) == 1:
        return axis
    fine, in_fine, coarse, in_coarse = (a, axis.in_a, b, axis.in_b) if between[1] == 1 else (b, axis.in_b, a, axis.in_a)
    amount = max(between)
    # Intervals that the finer log does not have as a whole are left out.
    is_whole = np.diff(in_fine, prepend=in_fine[0] - amount) == amount
    is_whole[0] = in_fine[0] + 1 >= amount
    in_fine, in_coarse = in_fine[is_whole], in_coarse[is_whole]
    means = np.array([fine.values[at + 1 - amount : at + 1].mean() for at in in_fine.tolist()])
    values = coarse.values[in_coarse]
    tolerance = coarse.rounding[in_coarse] + fine.rounding[in_fine]
    by_mean, by_value = (_leading(values, other, tolerance) for other in (means, fine.values[in_fine]))
    if by_mean < 2 or by_mean <= by_value:
        return axis
    note = (
        f"{'B' if coarse is b else 'A'} holds the mean of {amount:,} entries of the other, as the log of Hugging "
        "Face's Trainer does; they were compared with such means"
    )
    return replace(
        axis,
        in_a=axis.in_a[is_whole],
        in_b=axis.in_b[is_whole],
        steps=axis.steps[is_whole],
        begins=False,
        a=means if fine is a else None,
        b=means if fine is b else None,
        notes=(*axis.notes, note),
    )


def _leading(values: Values, others: Values, tolerance: Values) -> int:
    """Return how many of the first values agree; entries without a value are skipped."""
    is_known = ~np.isnan(others) | np.isnan(values)
    agree = _agree(values[is_known], others[is_known], tolerance[is_known])
    return len(agree) if agree.all() else int(np.argmin(agree))


def _agree(values: Values, others: Values, tolerance: Values) -> NDArray[np.bool_]:
    with np.errstate(invalid="ignore", over="ignore"):
        close = np.abs(values - others) <= tolerance + CLOSE * np.maximum(np.abs(values), np.abs(others))
    result: NDArray[np.bool_] = close | (np.isnan(values) & np.isnan(others)) | (values == others)
    return result


# --- by epoch ---


def _by_epochs(a: Curve, b: Curve, epochs_a: Values, epochs_b: Values) -> Axis:
    """Pair entries whose epochs agree up to the printed digits."""
    unit, called = (StepUnit.STEP, a.steps) if a.unit is StepUnit.STEP else (StepUnit.ENTRY, np.arange(1, len(a) + 1))
    tolerance = _tolerance(epochs_a, epochs_b)
    shared = min(len(a), len(b))
    if np.all(np.abs(epochs_a[:shared] - epochs_b[:shared]) <= tolerance):
        rows = np.arange(shared)
        note = "entries were paired in their order, in which their epochs agree"
        is_first = bool(epochs_a[0] <= 1.5 * np.median(np.diff(epochs_a, prepend=0.0)))
        return Axis(rows, rows, np.asarray(called[:shared], np.int64), unit, begins=is_first, notes=(note,))
    if _repeats(epochs_a, tolerance) or _repeats(epochs_b, tolerance):
        shown = next(_shown_intervals(a, b), None)
        if shown is not None:
            return shown
        nothing = np.empty(0, np.intp)
        note = "the logs name epochs with too few digits to tell which entries are of the same step"
        return Axis(nothing, nothing, np.empty(0, np.int64), unit, notes=(note,))
    in_a, in_b = _near(epochs_a, epochs_b, tolerance)
    begins = bool(len(in_a)) and in_a[0] == in_b[0] == 0
    note = "entries were paired by their epochs"
    axis = Axis(in_a, in_b, np.asarray(called[in_a], np.int64), unit, begins=begins, notes=(note,))
    return _with_means(a, b, axis)


def _tolerance(epochs_a: Values, epochs_b: Values) -> float:
    """Return by how much the epochs of the same step may differ: half a unit of the last decimal of the coarser log."""
    decimals = [
        max((len(repr(epoch).partition(".")[2]) for epoch in epochs[:1000].tolist()), default=0)
        for epochs in (epochs_a, epochs_b)
    ]
    slack = 1e-9 * max(float(np.abs(epochs).max()) for epochs in (epochs_a, epochs_b))
    fine, coarse = sorted((epochs_a, epochs_b), key=len, reverse=True)
    covered = coarse[(coarse >= fine[0] - slack) & (coarse <= fine[-1] + slack)]
    # The same digits are the same number; 0.2 may also be 0.20.
    is_exact = decimals[0] == decimals[1] or len(_near(fine, covered, slack)[0]) >= _ALMOST_ALL * len(covered) > 0
    is_rounded = min(decimals) <= _PRINTED_DECIMALS and not is_exact
    return slack + (0.5 * 10.0 ** -min(decimals) if is_rounded else 0.0)


def _repeats(epochs: Values, tolerance: float) -> bool:
    return bool(np.any(np.diff(epochs) <= 2 * tolerance))


def _near(epochs_a: Values, epochs_b: Values, tolerance: float) -> tuple[Indices, Indices]:
    """Return the pairs of entries with the same epoch, ascending in both."""
    order = np.minimum(np.searchsorted(epochs_a, epochs_b - tolerance), len(epochs_a) - 1)
    is_near = np.abs(epochs_a[order] - epochs_b) <= tolerance
    in_a, first = np.unique(order[is_near], return_index=True)
    return in_a.astype(np.intp), np.flatnonzero(is_near)[first].astype(np.intp)


# --- by order ---


def _by_order(a: Curve, b: Curve) -> Axis:
    """Pair entries in their order, or as their values show."""
    shared = min(len(a), len(b))
    rows = np.arange(shared)
    which = "the logs name" if a.unit is b.unit else f"the log of {'A' if a.unit is StepUnit.ENTRY else 'B'} names"
    called = np.arange(1, shared + 1, dtype=np.int64)
    note = f"{which} no steps; entries were paired in their order"
    axis = Axis(rows, rows, called, StepUnit.ENTRY, begins=True, notes=(note,))
    if _agree(a.values[:shared], b.values[:shared], (a.rounding[:shared] + b.rounding[:shared])).all():
        return axis
    if _agreeing(a, b, rows, rows) >= _FEWEST:
        return axis
    shown = next(_shown_intervals(a, b), None)
    if shown is not None:
        return shown
    # The first entries differ, and so may be of other steps.
    is_sure = len(a) == len(b) and all(_begins_regularly(curve) for curve in (a, b))
    ambiguity = f"the logs name no step in common and have {len(a):,} and {len(b):,} entries"
    return axis if is_sure else replace(axis, begins=False, ambiguity=ambiguity)


def _begins_regularly(curve: Curve) -> bool:
    """Whether a log may begin with the first step or the end of the first interval, as far as it names steps."""
    return curve.unit is StepUnit.ENTRY or bool(curve.steps[0] <= max(interval_of(curve.steps), 1))


def _shown_intervals(a: Curve, b: Curve) -> Iterator[Axis]:
    """Yield the pairs of each interval, or later beginning, with which the values agree."""
    for fine, coarse, which in ((a, b, "B"), (b, a, "A")):
        for chosen, is_mean, words in _candidates(fine, coarse):
            values = fine.values[chosen]
            if is_mean:
                every = int(chosen[0]) + 1
                values = np.array([fine.values[at + 1 - every : at + 1].mean() for at in chosen.tolist()])
            others = coarse.values[: len(chosen)]
            tolerance = coarse.rounding[: len(chosen)] + fine.rounding[chosen]
            # If a fault begins later, the values before it show the interval.
            if _leading(others, values, tolerance) < _enough(len(chosen)) or _is_flat(others, tolerance):
                continue
            rows = np.arange(len(chosen), dtype=np.intp)
            note = f"the logs name no steps in common; {which} agrees with {words} of the other: they were paired so"
            in_a, in_b = (chosen, rows) if fine is a else (rows, chosen)
            means = values if is_mean else None
            yield Axis(
                in_a, in_b, np.asarray(in_a + 1, np.int64), StepUnit.ENTRY,
                a=means if fine is a else None, b=means if fine is b else None, notes=(note,),
            )  # fmt: skip


def _candidates(fine: Curve, coarse: Curve) -> Iterator[tuple[Indices, bool, str]]:
    """Yield entries of one log that may be those of another: indices, whether means over intervals, and words."""
    for every in range(2, min(_MOST_INTERVALS, len(fine) // _FEWEST) + 1):
        for first, is_mean in ((every - 1, False), (0, False), (every - 1, True)):
            chosen = np.arange(first, len(fine), every)[: len(coarse)]
            yield chosen, is_mean, f"the means of {every:,} entries" if is_mean else f"one of {every:,} entries"
    begins = np.arange(max(len(fine) - _FEWEST + 1, 0))
    for at in range(min(_FEWEST, len(coarse))):
        begins = begins[
            _agree(
                fine.values[begins + at],
                np.full(len(begins), coarse.values[at]),
                fine.rounding[begins + at] + coarse.rounding[at],
            )
        ]
    for begin in begins[begins > 0][:_MOST_INTERVALS].tolist():
        yield np.arange(begin, min(begin + len(coarse), len(fine))), False, f"the entries from {begin + 1:,} on"


def _is_flat(values: Values, tolerance: Values) -> bool:
    """Whether values hardly change, so that they agree with any interval."""
    finite = values[np.isfinite(values)][:_FEWEST]
    if len(finite) < _FEWEST:
        return True
    return float(np.ptp(finite)) <= 20 * (float(tolerance.max()) + CLOSE * float(np.abs(finite).max()) / 10)
