"""How logs are judged: losses of unknown functions, at some steps only, averaged, rounded, perhaps of a resumed training.

No function here knows what the loss is, so each asks for more than its counterpart that watches a training.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tensight.diagnosis.findings import Finding
from tensight.diagnosis.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from tensight.diagnosis.facts import Facts

    Values = NDArray[np.float64]

FEWEST = 5
"""Minimum number of entries that have a course."""

_LONG = 10
"""Minimum number of entries of a course that should have fallen."""

_DIGITS = 20
"""Minimum number of steps of its last printed digit that a value has if equal ones are more than rounded."""

_FLAT = 0.005
"""Share of a loss by which it has not fallen at all; its means must be known to that."""

_FALLS_AT_CHANCE = 0.01
"""The same, of a loss that is that of a guess among some classes."""

_CLASSES = (*range(2, 21), 50, 100, 200, 365, 1000, 10_000, 21_841)
_WORDS = (30_522, 32_000, 32_128, 50_257, 50_265, 50_304, 65_024, 100_277, 128_256, 151_936, 152_064, 250_002, 256_000)
"""Common numbers of classes and words."""

_OF_A_GUESS = 0.005
"""Relative difference of a loss from that of a guess."""

_GIVEN_BACK = 0.5
"""Share of what a loss had fallen that one which diverges has risen again."""

_HIGHER, _DOUBLED = 0.3, 1.0
"""By which share of its lowest level such a loss has risen, and one that has given back less than that."""

_NO_GRADIENT = 1e-8
"""Norm of the gradient of all weights below which nothing is learnt."""

_NO_RATE = 1e-9
"""Learning rate with which no weight of a usual size changes in float32, whatever the optimizer."""

_SPIKE = 10.0
"""How many times the usual norm of a gradient is exceptional."""

_GROWN = 100.0
"""How many times the usual norm in the first half a norm is that has grown by orders of magnitude."""

_LOWERED = 1024.0
"""By which factor a loss scale is lowered in no training that goes on."""

_OF_WORDS = 6.0
"""Loss above which an untrained model chooses among many words, as in pretraining."""

_SEARCHED = 2000
"""Maximum number of entries in which a repetition is looked for."""


class Course(NamedTuple):
    """The loss of a training, where it is finite.

    Attributes
    ----------
    name : str
    steps : ndarray of int64, shape (n,)
    values : ndarray of float64, shape (n,)
    rounding : float
        The largest difference between a printed and a computed value; 0 if they were not printed.
    """

    name: str
    steps: NDArray[np.int64]
    values: Values
    rounding: float


def course(facts: Facts) -> Course | None:
    """Return the loss that should fall; None if there is none, or if it is too short."""
    table = facts["losses"]
    if not len(table) or facts["logs"]["is_moving"].any():
        return None
    rows = (table["name"] == table.names[0]) & np.isfinite(table["value"])
    if int(rows.sum()) < FEWEST:
        return None
    rounding = table["rounding"][rows]
    coarsest = float(np.nanmax(rounding)) if np.isfinite(rounding).any() else 0.0
    return Course(table.names[0], table["step"][rows], table["value"][rows], coarsest)


def _levels(values: Values, parts: int = 5) -> tuple[Values, Values]:
    """Return the means of parts of a course, and how well each is known: its standard error."""
    pieces = np.array_split(values, parts)
    means = np.array([piece.mean() for piece in pieces])
    # Neighbours differ by noise alone, whatever the trend is.
    noise = float(np.median(np.abs(np.diff(values)))) * 1.4826 / math.sqrt(2)
    spreads = [max(noise, float(np.std(np.diff(piece)) / math.sqrt(2)) if len(piece) > 2 else 0.0) for piece in pieces]
    counts = np.array([len(piece) for piece in pieces])
    return means, np.array(spreads) / np.sqrt(counts)


def smoothed(values: Values) -> Values:
    """Return the running median of a course over a twentieth of it."""
    width = min(max(3, len(values) // 20) | 1, 201)
    padded = np.pad(values, width // 2, mode="edge")
    return np.median(np.lib.stride_tricks.sliding_window_view(padded, width), axis=1)


def not_finite(facts: Facts) -> Iterator[Finding]:
    """Find a loss that is not finite at the end of the log."""
    table = facts["losses"]
    for name in table.names:
        rows = table["name"] == name
        values, steps = table["value"][rows], table["step"][rows]
        is_finite = np.isfinite(values)
        # Steps that are not finite are skipped by many trainings, which then go on.
        if len(values) < 2 or is_finite[-1]:
            continue
        first = int(np.flatnonzero(is_finite)[-1]) + 1 if is_finite.any() else 0
        described = {
            "step": int(steps[first]),
            "value": float(values[-1]),
            "count": len(values) - first,
            "before": float(values[first - 1]) if first else math.nan,
        }
        message = "since" if first else "start"
        yield Finding("loss-not-finite", "certain", int(steps[first]), message, described)
        return


def zero(facts: Facts) -> Iterator[Finding]:
    """Find a loss that is 0 in the whole log, or from an entry on before which it was far from 0."""
    loss = course(facts)
    if loss is None or loss.values[-1] != 0:
        return
    is_zero = loss.values == 0
    first = 0 if is_zero.all() else len(is_zero) - int(np.argmin(is_zero[::-1]))
    count, step = len(is_zero) - first, int(loss.steps[first])
    if not first:
        values = {"value": 0.0, "steps": count}
        yield Finding("loss-zero", "certain", step, "zero", values)
        return
    before = float(np.median(loss.values[max(first - 5, 0) : first]))
    # A loss that has been learnt to the end comes to 0 by and by.
    if count >= 3 and before > 0.1 * float(np.median(loss.values[:FEWEST])) and before > 100 * loss.rounding:
        values = {"before": before, "step": step, "steps": count}
        yield Finding("loss-zero", "certain", step, "logged", values)


def constant(facts: Facts) -> Iterator[Finding]:
    """Find a loss that is the same in all entries, from an abrupt change on, or in each epoch again."""
    loss = course(facts)
    if loss is None or loss.values[-1] == 0:
        return
    values, last = loss.values, float(loss.values[-1])
    if abs(last) < _DIGITS * 2 * loss.rounding:
        return
    is_last = values == last
    since = 0 if is_last.all() else len(values) - int(np.argmin(is_last[::-1]))
    count = len(values) - since
    described = {"value": last, "steps": count, "step": int(loss.steps[since])}
    if not since:
        yield Finding("loss-constant", "certain", int(loss.steps[0]), "logged", described)
        return
    # A loss that has come to its minimum is printed with the same digits, too, but has come there by and by.
    step_there = abs(float(values[since - 1]) - last)
    is_abrupt = step_there > 0.01 * abs(last) and abs(last) >= 1000 * 2 * loss.rounding
    if count >= max(FEWEST, len(values) // 5) and is_abrupt:
        yield Finding("loss-constant", "likely", int(loss.steps[since]), "stuck", described)
        return
    period = _period(values, 2 * loss.rounding)
    if period:
        described = {"period": period, "steps": len(values), "step": int(loss.steps[period])}
        yield Finding("loss-constant", "certain", int(loss.steps[period]), "repeats", described)


def _period(values: Values, unit: float) -> int:
    """Return after how many entries a loss repeats itself exactly; 0 if it does not."""
    values = values[:_SEARCHED]
    if float(values.max() - values.min()) < 100 * max(unit, 1e-12):
        return 0
    for period in range(FEWEST, len(values) // 2 + 1):
        if values[period] == values[0] and (values[period:] == values[:-period]).all():
            return period
    return 0


def stays(facts: Facts) -> Iterator[Finding]:
    """Find a loss that is at the end what it was at the beginning, as far as that can be told."""
    loss = course(facts)
    if loss is None or len(loss.values) < _LONG or facts["logs"]["begins"][0] or facts["logs"]["is_late"][0]:
        return
    values, steps = loss.values, loss.steps
    means, errors = _levels(values)
    if means[-1] > 0.8 * means[0] > 0 and _explains_nothing(facts):
        described = {"first": float(means[0]), "last": float(means[-1])}
        yield Finding("loss-stays", "likely", int(steps[0]), "mean_logged", described)
        return
    level, error = abs(float(means[-1])), float(np.hypot(errors[0], errors[-1]))
    if level <= 0 or loss.rounding > 0.2 * _FLAT * level:
        return
    fall = float(means[0] - means.min())
    guess, classes = _guess(level, _WORDS if _is_of_words(facts, loss.name) else (*_CLASSES, *_WORDS))
    limit = _FALLS_AT_CHANCE if classes else _FLAT
    has_fallen_before = float(np.max(values[:3])) > level + max(3 * limit * level, 8 * error)
    if has_fallen_before or fall > max(limit * level, 2 * error) or means[-1] > means[0] + 0.1 * level:
        return
    if error > (0.5 * limit if classes else 0.4 * _FLAT) * level:
        return
    if _is_skilled(facts, classes):
        return
    described = {"first": float(means[0]), "last": float(means[-1]), "steps": int(steps[-1]), "guess": guess}
    described["classes"] = classes
    message = "guess" if classes else "logged"
    yield Finding("loss-stays", "likely", int(steps[0]), message, described)


def _explains_nothing(facts: Facts) -> bool:
    """Whether a share of explained variance is about 0 in all evaluations."""
    table = facts["evaluations"]
    rows = np.array(["r2" in _parts_of(name) for name in table["name"].tolist()], np.bool_)
    values = table["value"][rows]
    return len(values) >= 3 and bool((np.abs(values) < 0.1).all())


def _parts_of(name: str) -> list[str]:
    """Return the parts of a name, in lower case, with their digits."""
    return re.split(r"[^a-z0-9]+", name.lower())


def _is_skilled(facts: Facts, classes: int) -> bool:
    """Whether a measure of an evaluation is clearly better than a guess, or improves."""
    table = facts["evaluations"]
    for name in table.names:
        values = table["value"][(table["name"] == name) & table["is_skill"] & np.isfinite(table["value"])]
        if not len(values):
            continue
        whole = 1.0 if values.max() <= 1 else 100.0 if values.max() <= 100 else math.nan
        third = max(len(values) // 3, 1)
        improved = float(np.median(values[-third:])) > 1.1 * float(np.median(values[:third]))
        if improved or (classes and float(np.median(values)) > 3 / classes * whole):
            return True
    return False


def _is_of_words(facts: Facts, name: str) -> bool:
    """Whether a loss is that of a language model, by its name or by a perplexity beside it."""
    parts = {part for each in (name, *facts["evaluations"].names) for part in _parts_of(each)}
    return not parts.isdisjoint(("lm", "ppl", "perplexity"))


def _guess(level: float, numbers: Sequence[int]) -> tuple[float, int]:
    """Return the loss of a guess that a loss is, and among how many classes; NaN and 0 if it is none."""
    for classes in numbers:
        guess = math.log(classes)
        # Of more classes, losses of guesses are so close that each loss is one.
        near = _OF_A_GUESS if classes <= 10 else 0.4 * _OF_A_GUESS
        if abs(level - guess) < near * guess:
            return guess, classes
    return math.nan, 0


def rises(facts: Facts) -> Iterator[Finding]:
    """Find a loss that has left its minimum and does not come back."""
    loss = course(facts)
    if loss is None or len(loss.values) < _LONG - 2 or _is_range_test(facts):
        return
    values, steps = loss.values, loss.steps
    smooth = smoothed(values)
    at = int(smooth.argmin())
    lowest, first = float(smooth[at]), float(np.median(values[: max(len(values) // 20, 1)]))
    later = values[at + 1 :]
    if len(later) < max(3, len(values) // 20):
        return
    tail = later[-max(3, len(later) // 4, len(values) // 20) :]
    last = float(np.median(tail))
    gain, rise = max(first - lowest, 0.0), last - lowest
    noise = float(np.median(np.abs(np.diff(values)))) * 1.4826 / math.sqrt(2)
    jump = _jump(values, at, lowest, rise)
    is_stuck = bool(jump) and _is_stuck(values[jump:], first, lowest, last, len(values))
    gives_back = gain > 0.1 * abs(lowest) and rise > _GIVEN_BACK * gain and rise > _HIGHER * abs(lowest)
    doubles = rise > _DOUBLED * abs(lowest) and rise > 0.1 * gain
    # What grows without bound differs by more than itself.
    high = min(rise, 2 * max(gain, abs(lowest)))
    if not (gives_back or doubles or is_stuck) or rise < 6 * noise or float(tail.min()) < lowest + 0.3 * high:
        return
    if (not is_stuck and _falls_again(later, last, rise, noise)) or back_at_start(facts) is not None:
        return
    described = {
        "lowest": lowest,
        "step": int(steps[at]),
        "last": last,
        "first": first,
        "jump": int(steps[jump]) if jump else 0,
    }
    # Harder data, or stronger augmentation, take nothing from an evaluation.
    if jump and (_is_new_stage(facts, steps, jump) or _evaluation_goes_on(facts, float(steps[jump]), math.inf)):
        return
    message = "jumps" if jump else "diverges" if at > 0 else "from_start"
    begin = int(steps[jump or at])
    spike = _spike(facts, begin)
    if spike:
        message, described = f"{message}_norm", described | spike
    yield Finding("loss-rises", "likely", begin, message, described)


def _is_range_test(facts: Facts) -> bool:
    """Whether the learning rate grows by the same factor again and again, to find where the loss diverges."""
    for _, _, rates in _rates(facts):
        if len(rates) >= _LONG and (rates > 0).all() and rates[-1] > _GROWN * rates[0]:
            factors = np.diff(np.log(rates))
            # A printed rate is rounded.
            if (factors >= 0).all() and float(factors.std()) < 0.3 * float(factors.mean()):
                return True
    return False


def _falls_again(later: Values, last: float, rise: float, noise: float) -> bool:
    """Whether a loss that was higher for a while, as after a jump or with harder data, is on its way down again."""
    smooth = smoothed(later) if len(later) >= 5 else later
    highest = int(smooth.argmax())
    down = float(smooth[highest]) - last
    third = max(len(later) // 3, 2)
    still_falls = float(np.median(later[-third:][: third // 2 or 1])) - float(np.median(later[-(third // 2 or 1) :]))
    return highest < 0.7 * len(later) and down > 0.25 * (rise + down) and down > 4 * noise and still_falls > -noise


def _is_stuck(later: Values, first: float, lowest: float, last: float, count: int) -> bool:
    """Whether what follows a jump no longer falls, at a level that other data hardly have.

    Parameters
    ----------
    later : ndarray
        The loss from the jump on.
    first, lowest, last : float
        Its levels at first, before the jump, and at last.
    count : int
        Number of all entries.
    """
    if len(later) < max(4 * FEWEST, count // 5):
        return False
    third, fourth = np.array_split(later, 4)[2:]
    spread = float(np.median(np.abs(np.diff(later[len(later) // 2 :])))) * 1.4826 / math.sqrt(2)
    falls = float(np.median(third) - np.median(fourth)) > max(
        0.02 * (last - lowest), 4 * spread / math.sqrt(len(third))
    )
    gain, rise = first - lowest, last - lowest
    # A language model gives back a third of what it had learnt; that of a guess is the level of no other data.
    of_words = first > _OF_WORDS and rise > max(0.35 * gain, 0.4 * lowest) and last > 0.5 * first
    return not falls and (of_words or rise > 0.85 * gain > 0.3 * abs(lowest))


def _jump(values: Values, lowest_at: int, lowest: float, rise: float) -> int:
    """Return where a loss has made most of its rise at once; 0 if it has risen by and by."""
    differences = np.diff(values[lowest_at:])
    at = int(differences.argmax())
    after = values[lowest_at + at + 1 :]
    before = float(np.median(values[max(lowest_at + at - 4, 0) : lowest_at + at + 1]))
    is_jump = differences[at] > 0.6 * rise and before < lowest + 0.3 * rise
    is_jump &= float(np.median(after[:5])) > lowest + 0.6 * rise
    return lowest_at + at + 1 if is_jump else 0


def _spike(facts: Facts, step: int) -> dict[str, float]:
    """Return an exceptional norm of the gradient shortly before a step; empty if there is none."""
    steps, norms = _norms(facts)
    before = norms[steps <= step]
    if len(before) < _LONG:
        return {}
    usual, highest = float(np.median(before[np.isfinite(before)] if np.isfinite(before).any() else before)), before[-3:]
    ratio = float(np.nanmax(highest)) / usual if usual > 0 and np.isfinite(highest).any() else 0.0
    return {"norm_ratio": ratio} if ratio > _SPIKE else {}


def back_at_start(facts: Facts) -> int | None:
    """Return the index at which the loss is back at its first value, and falls again as at the start."""
    loss = course(facts)
    if loss is None or len(loss.values) < 3 * FEWEST:
        return None
    values = loss.values
    smooth = smoothed(values)
    first = float(values[0])
    noise = float(np.median(np.abs(np.diff(values)))) * 1.4826 / math.sqrt(2)
    restarts: list[int] = []
    for at in range(2 * FEWEST, len(values) - 2 * FEWEST):
        before = float(np.median(values[at - FEWEST : at]))
        fallen = first - before
        if first <= 0 or fallen < max(0.1 * first, 8 * noise):
            continue
        if not before + 0.7 * fallen < values[at] < first + 0.5 * fallen:
            continue
        if restarts and at - restarts[-1] < FEWEST:
            continue
        # A single batch is high, too, and what is thrown up by an update does not fall as at the start.
        is_level = float(np.median(values[at : at + 3])) > before + 0.4 * fallen
        falls_again = float(smooth[at + FEWEST :].min()) < first - 0.6 * fallen
        beginning, again = values[: len(values) - at], values[at:]
        alike = float(np.abs(again - beginning)[: max(FEWEST, len(values) // 10)].mean()) < 0.25 * fallen
        if is_level and falls_again and alike:
            restarts.append(at)
    # Several of them are folds or tasks.
    if len(restarts) != 1 or _is_new_stage(facts, loss.steps, restarts[0]):
        return None
    at = restarts[0]
    is_low = smooth[at:] < (float(np.median(values[at - FEWEST : at])) + first) / 2
    end = loss.steps[at + int(is_low.argmax())] if is_low.any() else math.inf
    return None if _evaluation_goes_on(facts, float(loss.steps[at]), float(end)) else at


def _is_new_stage(facts: Facts, steps: NDArray[np.int64], at: int) -> bool:
    """Whether a log names another stage of its data where, or just before, its loss is higher."""
    begin, end = steps[max(at - FEWEST, 0)], steps[min(at + 2, len(steps) - 1)]
    return any(begin < step <= end for step in map(int, facts["logs"]["stages"][0].split()))


def _evaluation_goes_on(facts: Facts, begin: float, end: float) -> bool:
    """Whether a measure of an evaluation keeps between two steps what it had gained before them."""
    table = facts["evaluations"]
    for name in table.names:
        rows = (table["name"] == name) & np.isfinite(table["value"])
        steps, values = table["step"][rows], table["value"][rows]
        # Progress bars first show the one from before again.
        before, after = values[steps < begin], values[(steps >= begin) & (steps < end)][1:]
        if not len(before) or not len(after):
            continue
        level = float(np.median(before[-3:]))
        gain = level - float(before[0])
        if abs(gain) > 0.2 * abs(level) and (level - float(np.median(after))) / gain < _GIVEN_BACK:
            return True
    return False


def restarts(facts: Facts) -> Iterator[Finding]:
    """Find a loss that is back at its first value in the midst of a log, and falls again as at the start."""
    loss, at = course(facts), back_at_start(facts)
    if loss is None or at is None:
        return
    values = {
        "step": int(loss.steps[at]),
        "value": float(loss.values[at]),
        "before": float(np.median(loss.values[at - FEWEST : at])),
        "first": float(loss.values[0]),
    }
    is_session = str(values["step"]) in facts["logs"]["begins"][0].split()
    message = "session" if is_session else "restarts"
    yield Finding("loss-restarts", "likely", int(loss.steps[at]), message, values)


def _norms(facts: Facts) -> tuple[NDArray[np.int64], Values]:
    """Return the steps and norms of the gradient of the first group that has any."""
    table = facts["groups"]
    if not len(table):
        return np.zeros(0, np.int64), np.zeros(0)
    rows = table["name"] == table.names[0]
    return table["step"][rows], table["norm_update"][rows]


def norm_zero(facts: Facts) -> Iterator[Finding]:
    """Find a gradient norm that is 0, or next to 0, to the end."""
    steps, norms = _norms(facts)
    if len(norms) < FEWEST or not norms[-1] <= _NO_GRADIENT:
        return
    is_none = norms <= _NO_GRADIENT
    first = 0 if is_none.all() else len(norms) - int(np.argmin(is_none[::-1]))
    loss = course(facts)
    # A model that fits its data has no gradient left.
    is_learnt = loss is not None and float(loss.values[-1]) < 0.1 * float(loss.values[0])
    if len(norms) - first < FEWEST or is_learnt:
        return
    values = {"step": int(steps[first]), "count": len(norms) - first, "highest": float(norms[first:].max())}
    message = "tiny" if values["highest"] > 0 else "since" if first else "always"
    yield Finding("gradient-norm-zero", "certain", int(steps[first]), message, values)


def norm_grows(facts: Facts) -> Iterator[Finding]:
    """Find a gradient norm that grows by orders of magnitude, or is not finite to the end."""
    steps, norms = _norms(facts)
    if len(norms) < FEWEST:
        return
    is_finite = np.isfinite(norms)
    if not is_finite[-3:].any():
        first = int(np.flatnonzero(is_finite)[-1]) + 1 if is_finite.any() else 0
        values = {"step": int(steps[first]), "value": float(norms[-1]), "count": len(norms) - first}
        yield Finding("gradient-norm-grows", "certain", int(steps[first]), "not_finite", values)
        return
    steps, norms = steps[is_finite], norms[is_finite]
    if len(norms) < 2 * _LONG or not (norms > 0).all():
        return
    usual, tail = float(np.median(norms[len(norms) // 10 : len(norms) // 2])), norms[-max(len(norms) // 10, 3) :]
    last = float(np.median(tail))
    if last < _GROWN * usual or float(tail.min()) < 0.3 * _GROWN * usual:
        return
    at = int(np.flatnonzero(smoothed(norms) < _SPIKE * usual)[-1])
    values = {"usual": usual, "last": last, "step": int(steps[at])}
    yield Finding("gradient-norm-grows", "likely", int(steps[at]), "grows", values)


def _rates(facts: Facts) -> Iterator[tuple[str, NDArray[np.int64], Values]]:
    """Yield each learning rate with its steps."""
    table = facts["rates"]
    for name in table.names:
        rows = (table["name"] == name) & np.isfinite(table["rate"])
        if rows.any():
            yield name, table["step"][rows], table["rate"][rows]


def rate_zero(facts: Facts) -> Iterator[Finding]:
    """Find learning rates that are 0 in the whole log, or long before its end."""
    if not all(rates[-1] < _NO_RATE for _, _, rates in _rates(facts)):
        # A part may be frozen on purpose.
        return
    for name, steps, rates in _rates(facts):
        highest = float(rates.max())
        if len(rates) >= FEWEST and 0 < highest < _NO_RATE:
            values = {"group": name, "highest": highest, "count": len(rates)}
            yield Finding("learning-rate-zero", "likely", int(steps[0]), "tiny", values)
            return
        if rates[-1] != 0:
            continue
        is_zero = rates == 0
        first = 0 if is_zero.all() else len(is_zero) - int(np.argmin(is_zero[::-1]))
        count = len(rates) - first
        # A schedule may come to 0 with the last updates.
        if count < 3 or (first and count < max(FEWEST, 0.05 * len(rates))):
            continue
        values = {"group": name, "step": int(steps[first]), "count": count}
        message = "ended_logged" if first else "never_logged"
        yield Finding("learning-rate-zero", "certain", int(steps[first]), message, values)
        return


def never_warm(facts: Facts) -> Iterator[Finding]:
    """Find warm-ups that are longer than the training: the learning rate rises to its end."""
    if not facts["logs"]["is_complete"].any():
        return
    for name, steps, rates in _rates(facts):
        rises = np.diff(rates)
        # A warm-up rises evenly.
        is_even = len(rises) >= _LONG and bool((rises > 0).all()) and float(rises.max()) < 1.5 * float(np.median(rises))
        if is_even and rates[0] < 0.2 * rates[-1]:
            values = {"group": name, "first": float(rates[0]), "rate": float(rates[-1]), "steps": int(steps[-1])}
            yield Finding("schedule-not-stepped", "likely", int(steps[0]), "logged", values)
            return


def rate_collapsed(facts: Facts) -> Iterator[Finding]:
    """Find learning rates that have come down by orders of magnitude before the half of the log."""
    for name, steps, rates in _rates(facts):
        highest = float(np.sort(rates)[-min(3, len(rates))])
        is_low = (rates > 0) & (rates < 1e-3 * highest)
        if len(rates) < 2 * _LONG or not is_low[-1]:
            continue
        first = 0 if is_low.all() else len(is_low) - int(np.argmin(is_low[::-1]))
        left = int(steps[-1] - steps[first])
        # A rate that was set, as for a second stage, has not come down.
        if left < 0.5 * (steps[-1] - steps[0]) or len(np.unique(rates)) <= 2:
            continue
        values = {
            "group": name,
            "step": int(steps[first]),
            "rate": float(rates[first]),
            "highest": highest,
            "left": left,
        }
        yield Finding("learning-rate-collapsed", "likely", int(steps[first]), "logged", values)
        return


def rate_rises_again(facts: Facts) -> Iterator[Finding]:
    """Find a learning rate that comes to about 0 as a schedule ends, and rises again without a restart."""
    for name, steps, rates in _rates(facts):
        if len(rates) < 2 * _LONG:
            continue
        highest_at = int(rates.argmax())
        lowest_at = highest_at + int(rates[highest_at:].argmin())
        highest, lowest, last = float(rates[highest_at]), float(rates[lowest_at]), float(rates[-1])
        after = rates[lowest_at:]
        # A schedule with restarts goes up at once; one that swings has done so before.
        rises_by_and_by = len(after) >= FEWEST and bool((np.diff(after) >= 0).all())
        falls_by_and_by = bool((np.diff(rates[highest_at : lowest_at + 1]) <= 0).all())
        is_smooth = float(np.diff(after).max(initial=0)) < 0.5 * highest
        if lowest > 0.01 * highest or last < 0.1 * highest or not (rises_by_and_by and falls_by_and_by and is_smooth):
            continue
        values = {
            "group": name,
            "step": int(steps[lowest_at]),
            "lowest": lowest,
            "highest": highest,
            "last": last,
        }
        yield Finding("schedule-over", "likely", int(steps[lowest_at]), "logged", values)
        return


def scale_collapsed(facts: Facts) -> Iterator[Finding]:
    """Find a loss scale that falls to 1 or below, or from a low one by as many orders, and stays there or falls on."""
    table = facts["steps"]
    measured = np.flatnonzero(np.isfinite(table["scale"]))
    scale, steps = table["scale"][measured], table["step"][measured]
    losses = facts["losses"]["step"]
    # Logs that tell of a scale where it is lowered alone say nothing of one with which the training goes on.
    if len(scale) < FEWEST or (len(losses) and losses[-1] - steps[-1] > 0.05 * (losses[-1] - losses[0])):
        return
    highest, last = float(scale.max()), float(scale[-1])
    limit = 1.0 if highest >= _LOWERED else highest / _LOWERED**1.5
    low = np.flatnonzero(scale <= limit)
    stays = len(low) >= 3 and bool((scale[-3:] <= limit).all())
    # DeepSpeed and fairseq end a training whose scale has come down without a step between.
    falls_at_once = last < scale[-2] / _LOWERED or (np.diff(scale) < 0).all()
    if last > limit or not (stays or falls_at_once):
        return
    values = {"highest": highest, "last": last, "step": int(steps[low[0]])}
    message = "ended" if last < scale[-2] else "logged"
    yield Finding("scale-collapsed", "certain", int(steps[low[0]]), message, values)


def skipped(facts: Facts) -> Iterator[Finding]:
    """Find updates that are skipped in most entries, and at the end."""
    is_skipped, steps = facts["steps"]["is_skipped"], facts["steps"]["step"]
    # In its first updates a scale finds its size.
    later = is_skipped[max(len(is_skipped) // 10, 3) :]
    if len(later) < _LONG or later.mean() < 0.5 or not later[-3:].all():
        return
    values = {"count": int(is_skipped.sum()), "of": len(is_skipped)}
    step = int(steps[np.flatnonzero(is_skipped)[0]])
    yield Finding("updates-skipped", "certain", step, "logged", values)


RULES = (
    Rule(
        "loss-restarts",
        "initialization",
        ("logs", "losses"),
        restarts,
        dict.fromkeys(
            ("session", "restarts"),
            (
                "The loss is back at its first value at step {step}, and falls again as at the start, as if the weights were"
                " lost, or not loaded",
                "损失在第 {step} 步回到最初的值，并像开始时一样重新下降，如同权重丢失或没有加载",
            ),
        ),
        {
            "restarts": (
                "{before:.4g} before, {value:.4g} there, {first:.4g} at the start of the log",
                "此前为 {before:.4g}，该处为 {value:.4g}，日志开头为 {first:.4g}",
            ),
            "session": (
                "{before:.4g} before, {value:.4g} there, {first:.4g} at the start of the log, which goes back to an earlier step"
                " there, as after a resume",
                "此前为 {before:.4g}，该处为 {value:.4g}，日志开头为 {first:.4g}；日志在该处回到更早的步数，如同恢复训练",
            ),
        },
        (
            "Check what the resumed training loads: the path, the keys (strict=True), and that it loads before it trains",
            "检查恢复训练时加载的内容：路径、键名 (strict=True)，以及是否在训练之前加载",
        ),
        (
            "Logs in which it does so several times, as of folds or tasks, and losses that jump and do not fall as at the start.",
            "多次如此的日志 (如交叉验证或多任务)，以及跳变后并不像开始时那样下降的损失。",
        ),
        frozenset(("loss-rises", "overfitting")),
        12,
        of_log=restarts,
    ),
    Rule(
        "gradient-norm-zero",
        "gradient-zero",
        ("logs", "groups"),
        norm_zero,
        {
            "always": ("The gradient norm is 0 in the whole log", "整个日志中梯度范数都是 0"),
            "since": ("The gradient norm is 0 from step {step} on", "梯度范数从第 {step} 步起为 0"),
            "tiny": (
                "The gradient norm is at most {highest:.2g} from step {step} on: nothing is learnt from it",
                "梯度范数从第 {step} 步起至多为 {highest:.2g}：学不到任何东西",
            ),
        },
        dict.fromkeys(("always", "since", "tiny"), ("in {count} entries", "共 {count} 条记录")),
        (
            "Run the script under `tensight diagnose`, which names the weights without a gradient and what cuts it off",
            "用 `tensight diagnose` 运行脚本，它会指出没有梯度的权重以及梯度在何处被切断",
        ),
        (
            "Trainings whose loss has fallen to a tenth: what is fitted has no gradient left.",
            "损失已降到十分之一的训练：已拟合的数据不再有梯度。",
        ),
        frozenset(("loss-stays", "loss-constant")),
        15,
        of_log=norm_zero,
    ),
    Rule(
        "gradient-norm-grows",
        "loss",
        ("logs", "groups"),
        norm_grows,
        {
            "grows": (
                "The gradient norm grows by orders of magnitude: {usual:.3g} at first, {last:.3g} at last",
                "梯度范数增大了几个数量级：起初 {usual:.3g}，最后 {last:.3g}",
            ),
            "not_finite": (
                "The gradient norm is {value} from step {step} on",
                "梯度范数从第 {step} 步起为 {value}",
            ),
        },
        {
            "grows": ("medians of the first half and of the last tenth", "前一半与最后十分之一的中位数"),
            "not_finite": ("in {count} entries", "共 {count} 条记录"),
        },
        (
            "Clip gradients, lower the learning rate, or lengthen its warm-up; `tensight run --recommended` names the operator that"
            " is not finite first",
            "裁剪梯度、降低学习率或延长预热；`tensight run --recommended` 会指出最先产生非有限值的算子",
        ),
        (
            "Norms that grow several times over while a model learns, and single ones that are not finite.",
            "学习过程中增大数倍的范数，以及个别非有限的范数。",
        ),
        frozenset(("loss-rises", "loss-zero", "loss-not-finite", "evaluation-not-finite")),
        34,
        fact="groups.norm_update",
        of_log=norm_grows,
    ),
)
