"""Comparison of two loss curves: whether they differ, from which step on, and in which way.

The interpretation follows the accuracy guide for users of MindInsight: if the loss differs in the first step, it was
computed differently (forward pass, data, initial weights); if it agrees in the first step and differs in the second,
the weights were updated differently (backward pass, optimizer).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from tensight.compare.loss_axes import common_axis
from tensight.compare.loss_pairs import PairedLosses, noise_floor, pair_losses
from tensight.compare.verdict import Verdict
from tensight.curves import Curve, StepUnit
from tensight.curves.curve import TRAINING_WORDS, loss_words
from tensight.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tensight.compare.loss_axes import Axis

RTOL = 1e-3
"""The tolerance of the guide, 1 per mille."""

JUMP = 30.0
"""A difference that grows by this factor from one entry to the next is a jump, not accumulated rounding."""

_SUDDEN = 5.0
"""A difference that grows by this factor at once, not before and not after, is a jump, or a decision that tips."""

_FEW_UNITS = 8 * float(np.finfo(np.float32).eps)
"""Relative difference of the first loss that the order of summation in float32 can explain."""

_STAYS = 5
"""Number of entries, from a jump on, that must also show it."""

_COARSE = 1e-5
"""If logged losses are rounded by more than this (relative), the effect of a single update may be invisible."""

_FEWEST_FOR_PATTERN = 8
_FEWEST_FOR_FACTOR = 3
_OF_ONE_RATIO = 0.01
"""Relative deviation of ratios that count as one factor."""

_SMALLEST_FACTOR = 0.01
_SMALLEST_REDUCTION = 1.5
_MOST_SHIFTED = 2
_MOST_NAMES = 5


class Divergence(Enum):
    """The way in which two loss curves differ."""

    NONE = "same"
    FIRST_STEP = "differs from the first step"
    FIRST_LOGGED = "differs from the first step that both logged"
    SECOND_STEP = "agrees in the first step and differs from the second on"
    THIRD_STEP = "agrees in the first two steps and differs from the third on"
    FACTOR = "a constant factor apart from the first step"
    JUMP = "agrees, then jumps apart"
    DRIFT = "drifts apart, or leaves the tolerance by little"
    PASSING = "differs for some steps and agrees again"
    NON_FINITE = "NaN or infinite in one only"
    NOT_COMPARABLE = "not comparable"


@dataclass(frozen=True, eq=False)
class LossComparison:
    """The result of comparing two loss curves.

    Attributes
    ----------
    verdict : Verdict
    divergence : Divergence
    sentence : str
        The verdict in words.
    meaning : str
        The likely cause; empty if nothing is indicated.
    name : str
        The compared series, as A calls it.
    pairs : PairedLosses
        The compared entries.
    relative : ndarray of float64, shape (n,)
        Smallest possible relative difference at each step; infinite where one is NaN or infinite and the other is not.
    allowed : ndarray of float64, shape (n,)
        Tolerance at each step, as an absolute difference.
    departs_at : int or None
        Step from which on the difference exceeds the rounding before it.
    leaves_at : int or None
        First step outside the tolerance.
    outside : int
        Number of steps outside the tolerance.
    tolerance : str
        The tolerance in words.
    notes : tuple of str
        Limits of the verdict, and further observations.
    """

    verdict: Verdict
    divergence: Divergence
    sentence: str
    meaning: str
    name: str
    pairs: PairedLosses
    relative: NDArray[np.float64]
    allowed: NDArray[np.float64]
    departs_at: int | None
    leaves_at: int | None
    outside: int
    tolerance: str
    notes: tuple[str, ...]

    def as_data(self, most_points: int = 10_000) -> dict[str, object]:
        """Return the comparison as JSON data, with at most `most_points` evenly spaced steps."""
        chosen = range(0, len(self.pairs), max(1, math.ceil(len(self.pairs) / most_points)))
        pairs, outside = self.pairs, self.pairs.differences > self.allowed
        points = [
            {
                "step": int(pairs.steps[at]),
                "a": float(pairs.a[at]),
                "b": float(pairs.b[at]),
                "relative_difference": float(self.relative[at]),
                "allowed_difference": float(self.allowed[at]),
                "is_outside": bool(outside[at]),
            }
            for at in chosen
        ]
        return {
            "verdict": self.verdict.value,
            "divergence": self.divergence.name.lower(),
            "sentence": self.sentence,
            "meaning": self.meaning,
            "series": self.name,
            "departs_at": self.departs_at,
            "leaves_at": self.leaves_at,
            "unit": pairs.unit.value,
            "compared": len(pairs),
            "only_a": pairs.only_a,
            "only_b": pairs.only_b,
            "equal": int(pairs.equal.sum()),
            "both_nan": int(pairs.both_nan.sum()),
            "outside": self.outside,
            "largest_relative_difference": float(self.relative.max()) if len(pairs) else None,
            "tolerance": self.tolerance,
            "notes": list(self.notes),
            "points": points,
        }


def compare_losses(
    a: Curve, b: Curve, *, noise: Sequence[Curve] = (), rtol: float | None = None, atol: float | None = None
) -> LossComparison:
    """Compare two loss curves.

    Parameters
    ----------
    a : Curve
        The reference.
    b : Curve
    noise : sequence of Curve
        Repeated runs of A, whose differences determine how much B may differ.
    rtol, atol : float, optional
        Tolerances: differences up to ``atol + rtol * max(|a|, |b|)`` are ignored. By default 1e-3 and 0; with
        `noise` 0 and 0, and they are added to the noise.

    Returns
    -------
    LossComparison

    Raises
    ------
    InputError
        A tolerance is negative or not finite.
    """
    for name, value in (("rtol", rtol), ("atol", atol)):
        if value is not None and not (math.isfinite(value) and value >= 0):
            raise InputError(f"{name} is {value}; it must be a number from 0 on")
    main = _of_one_name(a, b), _of_one_name(b, a)
    comparison = _compare(main[0], main[1], [_like(curve, main[0]) or curve for curve in noise], rtol, atol)
    if series_key(main[0].name) != series_key(main[1].name):
        note = f"{main[0].name!r} of A was compared with {main[1].name!r} of B; --column chooses others"
        comparison = replace(comparison, notes=(*comparison.notes, note))
    if comparison.verdict is not Verdict.SAME:
        return comparison
    return _with_companions(comparison, main[0], main[1], noise, rtol, atol)


def _compare(
    a: Curve,
    b: Curve,
    noise: Sequence[Curve],
    rtol: float | None = None,
    atol: float | None = None,
    axis: Axis | None = None,
) -> LossComparison:
    """Compare two series, paired as given."""
    # Losses may be close to the largest float64.
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        pairs = pair_losses(a, b, axis)
        rtol = rtol if rtol is not None else 0.0 if noise else RTOL
        atol = atol or 0.0
        notes = [*pairs.notes]
        if len(pairs) == 1 and max(len(a), len(b)) == 1:
            notes.append(
                "each log has one loss only; if it has more, choose the series or its form (--column, --pattern)"
            )
        floor = np.zeros(len(pairs))
        if noise and len(pairs):
            pairs, floor, noise_notes = noise_floor(pairs, a, noise)
            notes += noise_notes
        if not len(pairs):
            return _nothing_in_common(a, b, pairs, notes)
        scale = np.nan_to_num(pairs.scale, nan=0.0, posinf=0.0)
        # A training that is not deterministic may differ by a few units in the last place of float32 in any step.
        least = _FEW_UNITS * scale if floor.any() else 0.0
        allowed = np.maximum(floor, least) + atol + rtol * scale
        tolerance = _tolerance_words(rtol, atol, len(noise))
        return _Judgement(a.name, pairs, allowed, tolerance, notes, has_noise=bool(noise)).comparison()


def series_key(name: str) -> frozenset[str]:
    """Return what identifies a series in logs of different trainers: ``val_loss`` and ``eval/loss`` are the same."""
    words = {_SAME_WORDS.get(word, word) for word in loss_words(name)}
    return frozenset(words - TRAINING_WORDS) or frozenset(words)


_SAME_WORDS = {"val": "eval", "valid": "eval", "validation": "eval", "evaluation": "eval", "dev": "eval"} | {
    "losses": "loss"
}


def _like(curve: Curve, other: Curve) -> Curve | None:
    """Return the series of a curve's file with the name of another curve; None if there is none, or several."""
    alike = [each for each in (curve, *curve.companions) if series_key(each.name) == series_key(other.name)]
    return alike[0] if len(alike) == 1 or (alike and alike[0] is curve) else None


def _of_one_name(curve: Curve, other: Curve) -> Curve:
    """Return the series of a curve's file to compare with another curve: its own, unless only another has its name."""
    like = _like(curve, other)
    return like if like is not None and _like(other, curve) is None else curve


def _with_companions(
    comparison: LossComparison,
    a: Curve,
    b: Curve,
    noise: Sequence[Curve],
    rtol: float | None,
    atol: float | None,
) -> LossComparison:
    """Return the comparison of the other losses of the logs if one of them differs."""
    notes = []
    keys = [{series_key(each.name) for each in curve.companions} for curve in (a, b)]
    for curve, other_keys, side in ((a, keys[1], "A"), (b, keys[0], "B")):
        alone = [each.name for each in curve.companions if series_key(each.name) not in other_keys]
        if alone:
            notes.append(f"only {side} has {', '.join(alone[:_MOST_NAMES])}; not compared")
    same, axis = [], common_axis(a, b)
    for companion in a.companions:
        other = next((each for each in b.companions if series_key(each.name) == series_key(companion.name)), None)
        if other is None:
            continue
        repeats = [like for curve in noise if (like := _like(curve, companion)) is not None]
        # Where both were logged together, they belong together as the losses do.
        is_together = np.array_equal(companion.steps, a.steps) and np.array_equal(other.steps, b.steps)
        like_main = replace(axis, a=None, b=None, ambiguity="") if is_together else None
        result = _compare(companion, other, repeats, rtol, atol, like_main) if len(repeats) == len(noise) else None
        if result is not None and result.verdict is Verdict.DIFFERENT:
            return replace(
                result,
                sentence=f"{companion.name} differs, though {comparison.name} is the same: {result.sentence}",
                notes=(f"{comparison.name}: {comparison.sentence}", *result.notes, *notes),
            )
        if result is not None and result.verdict is Verdict.SAME:
            same.append(companion.name)
        else:
            notes.append(f"{companion.name} was not compared")
    if same:
        notes.insert(0, f"the same holds for {', '.join(same[:_MOST_NAMES])}")
    return replace(comparison, notes=(*comparison.notes, *notes))


def _tolerance_words(rtol: float, atol: float, repeats: int) -> str:
    parts = []
    if repeats:
        parts.append(f"the noise of {repeats} repeated run{'' if repeats == 1 else 's'} of A")
    if rtol or not (repeats or atol):
        parts.append(f"{relative_text(rtol)} of the loss")
    if atol:
        parts.append(f"{atol:g}")
    return " + ".join(parts)


def relative_text(value: float) -> str:
    """Format a relative difference in a readable unit: ``0.42 ‰``, ``37 %``, ``1.2e-07``."""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞"
    if value == 0:
        return "0"
    if value < 1e-5:
        return f"{value:.1e}"
    if value < 0.1:
        return f"{value * 1000:.2g} ‰"
    return f"{value * 100:.3g} %"


def _nothing_in_common(a: Curve, b: Curve, pairs: PairedLosses, notes: Sequence[str]) -> LossComparison:
    def span(curve: Curve) -> str:
        return f"{len(curve):,} from {curve.steps[0]:,} to {curve.steps[-1]:,}" if len(curve) else "none"

    unit = _plural(a.unit) if a.unit is b.unit else "entries"
    return LossComparison(
        verdict=Verdict.NOT_COMPARABLE,
        divergence=Divergence.NOT_COMPARABLE,
        sentence=(
            f"Not comparable: there is no step of which both are known to have a loss (A has {unit} {span(a)}, "
            f"B {span(b)})."
        ),
        meaning="Log both at the same steps.",
        name=a.name,
        pairs=pairs,
        relative=np.empty(0),
        allowed=np.empty(0),
        departs_at=None,
        leaves_at=None,
        outside=0,
        tolerance="",
        notes=tuple(notes),
    )


@dataclass(frozen=True, slots=True)
class _Factor:
    """A constant factor between two curves.

    Attributes
    ----------
    times : float
        B divided by A.
    whole : int or None
        The whole number that it or its reciprocal is, as far as the digits show.
    is_sure : bool
        Whether its three digits are.
    """

    times: float
    whole: int | None
    is_sure: bool

    def __str__(self) -> str:
        """Return the factor of the larger curve: ``8.00``, ``about 1.9``."""
        times = max(self.times, 1 / self.times)
        if self.whole is not None:
            return f"{self.whole:#.3g}".rstrip(".") if self.whole < 1000 else f"{self.whole:,}"
        return _number_text(times) if self.is_sure else f"about {times:.2g}"


class _Judgement:
    """Determines the verdict on two paired curves, given the allowed differences."""

    def __init__(
        self,
        name: str,
        pairs: PairedLosses,
        allowed: NDArray[np.float64],
        tolerance: str,
        notes: list[str],
        *,
        has_noise: bool,
    ) -> None:
        self.name = name
        self.pairs = pairs
        self.allowed = allowed
        self.tolerance = tolerance
        self.notes = notes
        self.relative = pairs.relative
        self.outside = pairs.differences > allowed
        self.has_noise = has_noise
        floor = pairs.first_visible
        if has_noise:
            with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
                floor = np.maximum(floor, np.nan_to_num(np.where(pairs.scale > 0, allowed / pairs.scale, 0.0)))
        self.visible = floor

    def comparison(self) -> LossComparison:
        """Return the verdict."""
        pairs = self.pairs
        if pairs.both_nan.any():
            amount = int(pairs.both_nan.sum())
            self.notes.append(f"both are NaN at {_steps_text(amount, pairs.unit)}, which counts as equal")
        if not self.outside.any():
            self._note_within()
            return self._result(Divergence.NONE, None, None, self._same_sentence(), "")
        if pairs.ambiguity:
            return self._undecided()
        leaves = int(np.argmax(self.outside))
        divergence, departs = self._divergence(leaves)
        self._note_visibility(divergence, leaves)
        self._note_ratio(divergence, departs)
        self._note_shift()
        self._note_non_finite(leaves)
        sentence, meaning = self._words(divergence, departs, leaves)
        return self._result(divergence, departs, leaves, sentence, meaning)

    def _undecided(self) -> LossComparison:
        result = self._result(
            Divergence.NOT_COMPARABLE,
            None,
            None,
            f"Not comparable: {self.pairs.ambiguity}, so that the values below may not be of the same.",
            "Log both in one way, with the step of each loss.",
        )
        return replace(result, verdict=Verdict.NOT_COMPARABLE, outside=0)

    def _result(
        self, divergence: Divergence, departs: int | None, leaves: int | None, sentence: str, meaning: str
    ) -> LossComparison:
        steps = self.pairs.steps
        return LossComparison(
            verdict=Verdict.SAME if divergence is Divergence.NONE else Verdict.DIFFERENT,
            divergence=divergence,
            sentence=sentence,
            meaning=meaning,
            name=self.name,
            pairs=self.pairs,
            relative=self.relative,
            allowed=self.allowed,
            departs_at=None if departs is None else int(steps[departs]),
            leaves_at=None if leaves is None else int(steps[leaves]),
            outside=int(self.outside.sum()),
            tolerance=self.tolerance,
            notes=tuple(self.notes),
        )

    def _divergence(self, leaves: int) -> tuple[Divergence, int]:
        """Return the way in which the curves differ, and the index of the entry at which that begins."""
        pairs = self.pairs
        jump = self._first_jump(leaves)
        departs = leaves if jump is None else jump
        if pairs.non_finite_in_one[leaves] and departs == leaves and leaves > 0:
            return Divergence.NON_FINITE, leaves
        if self._is_passing(leaves):
            return Divergence.PASSING, leaves
        if leaves == 0 and self._factor(0) is not None:
            return Divergence.FACTOR, 0
        if leaves == 0:
            return (Divergence.FIRST_STEP if pairs.begins else Divergence.FIRST_LOGGED), 0
        if departs == 1 and pairs.begins:
            return Divergence.SECOND_STEP, 1
        if jump == 2 and pairs.begins and self._is_next(2):
            return Divergence.THIRD_STEP, 2
        is_small = self.allowed.any() and self.has_noise and float(self.relative[leaves]) < RTOL
        if (jump == leaves and not is_small) or (jump is None and self._is_sudden(leaves)):
            return Divergence.JUMP, leaves
        # Rounding that flips a decision (ReLU, maximum, routing) also causes a small jump.
        return Divergence.DRIFT, departs

    def _first_jump(self, leaves: int) -> int | None:
        """Return the first entry up to `leaves` whose difference is far above all earlier ones and persists."""
        level = np.maximum(self.relative, self.visible)
        before = np.maximum.accumulate(level)
        for at in range(1, leaves + 1):
            if level[at] >= JUMP * max(before[at - 1], self.visible[at]):
                after = level[at : at + _STAYS]
                if np.median(after) >= min(level[at], 1.0) / 10:
                    return at
        return None

    def _is_sudden(self, leaves: int) -> bool:
        """Whether the difference arises at one entry, well outside the tolerance, and neither grew before nor grows on.

        A drift that comes out of the rounding of the log begins close to what is visible, and goes on.
        """
        level = np.maximum(self.relative, self.visible)
        before = float(level[:leaves].max())
        after = level[leaves : leaves + _STAYS]
        had_grown = before > 2 * float(level[: max(leaves - 3, 1)].max())
        return bool(
            level[leaves] >= _SUDDEN * max(before, float(self.visible[leaves]))
            and not had_grown
            and np.median(after) >= level[leaves] / 3
            and after.max() <= 3 * level[leaves]
        )

    def _is_gradual(self, leaves: int) -> bool:
        """Whether the difference was seen to grow over several entries until it leaves the tolerance."""
        before = self.relative[:leaves]
        last = before[-_STAYS:]
        if int((before > 0).sum()) < _STAYS:
            return False
        is_grown = float(np.median(last)) >= 3 * float(np.median(before[: max(leaves // 2, 1)]))
        return is_grown and bool(self.relative[leaves] <= 3 * last.max())

    def _factor(self, begin: int) -> _Factor | None:
        """Return by what B is A multiplied from an entry on; None if that is no constant."""
        pairs = self.pairs
        a, b = pairs.a[begin:], pairs.b[begin:]
        usable = np.isfinite(a) & np.isfinite(b) & (a != 0) & (b != 0)
        if int(usable.sum()) < _FEWEST_FOR_FACTOR or not usable[0]:
            return None
        # Afterwards a training with another loss may go another way.
        head = np.flatnonzero(usable)[: max(_FEWEST_FOR_PATTERN, len(a) // 10)]
        a, b, rounding = a[head], b[head], pairs.rounding[begin:][head]
        times = float(b.sum() / a.sum())
        if not (math.isfinite(times) and times > 0) or abs(times - 1) <= _SMALLEST_FACTOR:
            return None
        unknown = float(rounding.sum() / min(abs(a.sum()), abs(b.sum())))
        nearest = round(max(times, 1 / times))
        is_whole = nearest >= 2 and abs(max(times, 1 / times) / nearest - 1) <= _OF_ONE_RATIO / 2 + unknown
        # A factor of no obvious origin needs more than three entries, and digits that show it.
        if not is_whole and (len(head) < min(len(pairs), _FEWEST_FOR_PATTERN) or abs(times - 1) <= 5 * unknown):
            return None
        factor = _Factor(times, nearest if is_whole else None, is_sure=pairs.begins and unknown < _OF_ONE_RATIO)
        shown = rounding / np.minimum(np.abs(a), np.abs(b))
        apart = np.maximum(np.abs(b / a / times - 1) - shown, 0.0)
        if apart.max() > min(_OF_ONE_RATIO, abs(times - 1) / 10):
            return None
        # The mean of a falling curve is a constant factor above its value, too.
        if not pairs.is_alike and not is_whole:
            return None
        # Where the loss hardly changes, adding a number looks like multiplying by one.
        remainder = np.maximum(np.abs(b - times * a) - rounding * (1 + times), 0).max()
        added = b - a
        is_added = remainder > 0.2 * np.abs(added - np.median(added)).max()
        if is_added and (not is_whole or np.ptp(a) > _OF_ONE_RATIO * np.abs(a).max()):
            return None
        return factor

    def _is_passing(self, leaves: int) -> bool:
        """Whether the curves, after a difference far larger than at other steps, agree again until their end."""
        after = self.outside[leaves:]
        last = leaves + int(np.flatnonzero(after)[-1])
        agreeing = len(self.outside) - 1 - last
        if agreeing < _FEWEST_FOR_PATTERN or agreeing < 4 * int(after.sum()):
            return False
        level = np.maximum(self.relative, self.pairs.first_visible)
        beside = max(float(level[:leaves].max(initial=0.0)), float(level[last + 1 :].max()))
        return float(level[leaves : last + 1].max()) >= JUMP * beside

    def _is_next(self, at: int) -> bool:
        """Whether the steps of the entries up to this one have no gap."""
        steps = self.pairs.steps
        return bool(steps[at] - steps[0] == at)

    def _same_sentence(self) -> str:
        pairs = self.pairs
        amount = _steps_text(len(pairs), pairs.unit)
        if pairs.both_nan.all():
            return f"Same: both are NaN at all {amount} compared."
        if pairs.equal.all():
            where = f"at all {amount}" if len(pairs) > 1 else f"at the only {pairs.unit.value}"
            return f"Same: the losses are equal {where} compared."
        largest = int(np.argmax(self.relative))
        if self.relative[largest] == 0:
            return f"Same: at all {amount} compared the losses differ by no more than the digits that were left out."
        return (
            f"Same within {self.tolerance} at all {amount} compared; the largest difference is "
            f"{relative_text(float(self.relative[largest]))}, at {self._at(largest)}."
        )

    def _at(self, index: int) -> str:
        unit = self.pairs.unit
        return f"{unit.value} {int(self.pairs.steps[index]):,}"

    def _words(self, divergence: Divergence, departs: int, leaves: int) -> tuple[str, str]:
        """Return the verdict in a sentence, and the likely cause."""
        pairs = self.pairs
        size = relative_text(float(self.relative[departs]))
        out = f"; it leaves the tolerance of {self.tolerance} at {self._at(leaves)}" if departs < leaves else ""
        hedge = (
            " The logs name no steps: this holds if their first entries are of the first step, at the same interval."
            if pairs.unit is StepUnit.ENTRY
            else ""
        )
        if divergence is Divergence.FACTOR:
            return self._factor_words()
        if divergence in (Divergence.FIRST_STEP, Divergence.FIRST_LOGGED) and pairs.non_finite_in_one[0]:
            which, other = ("A", "B") if not math.isfinite(pairs.a[0]) else ("B", "A")
            value = _value_text(pairs.a[0] if which == "A" else pairs.b[0])
            return (
                f"{which} is {value} at {self._at(0)}, the first compared; {other} is not.",
                "Look for the first operator that puts out NaN or infinity in that step (tensight origin).",
            )
        if divergence is Divergence.FIRST_STEP:
            return (
                f"Different from the first {pairs.unit.value} on: by {size} at {self._at(0)}.",
                "Forward pass, data, initial weights or random layers: no weight has been updated yet." + hedge,
            )
        if divergence is Divergence.FIRST_LOGGED:
            return f"Different from the first {pairs.unit.value} that both logged, {self._at(0)}: by {size}.", (
                self._unlogged_meaning()
            )
        if divergence is Divergence.SECOND_STEP:
            return self._second_step_words(size, out, hedge)
        if divergence is Divergence.THIRD_STEP:
            return (
                f"Agrees in the first two {_plural(pairs.unit)} and differs from the third on: by {size} at "
                f"{self._at(2)}{out}.",
                "The state of the optimizer (momentum, moments, their decay), the schedule of the learning rate, or "
                "the data of the third step: forward pass, gradients and the first update agree." + hedge,
            )
        if divergence is Divergence.JUMP:
            return (
                f"Agrees up to {self._at(departs - 1)} ({_agreement(self.relative[:departs])}) and "
                f"jumps apart at {self._at(departs)}: by {size}{out}.",
                self._jump_meaning(departs),
            )
        if divergence is Divergence.NON_FINITE:
            a, b = pairs.a[leaves], pairs.b[leaves]
            return (
                f"{'A' if not math.isfinite(a) else 'B'} becomes {_value_text(a if not math.isfinite(a) else b)} at "
                f"{self._at(leaves)}, {'B' if not math.isfinite(a) else 'A'} does not; before, they agree within "
                f"{self.tolerance}.",
                "Look for the first operator that puts out NaN or infinity in that step (tensight origin).",
            )
        if divergence is Divergence.PASSING:
            last = int(np.flatnonzero(self.outside)[-1])
            return (
                f"Differs at {_steps_text(int(self.outside.sum()), pairs.unit)} between {self._at(leaves)} and "
                f"{self._at(last)}, by {relative_text(float(self.relative[leaves : last + 1].max()))} at most, and "
                "agrees again.",
                "The weights agree afterwards, so look at what is computed in these steps only: their data, or how the "
                "loss is logged.",
            )
        return self._drift_words(departs, leaves)

    def _jump_meaning(self, departs: int) -> str:
        changes = "its data, the schedule, a resume, a skipped update, or an evaluation that leaves its mode on"
        gap = int(self.pairs.steps[departs] - self.pairs.steps[departs - 1])
        if self.pairs.unit is not StepUnit.STEP or gap > 1:
            between = f"the {gap:,} steps" if self.pairs.unit is StepUnit.STEP else "the steps"
            return (
                f"What happened in {between} since the entry before was not logged: a change, such as {changes}; or a "
                "drift that grew quickly."
            )
        level = np.maximum(self.relative, self.visible)
        if level[departs] >= JUMP * level[:departs].max():
            return f"More than rounding accumulates in a step: look at what changes there, such as {changes}."
        return (
            f"A change in that step, such as {changes}; or rounding that tips a ReLU or a maximum: repeated runs of A "
            "tell them apart (--noise)."
        )

    def _factor_words(self) -> tuple[str, str]:
        pairs, factor = self.pairs, self._factor(0)
        if factor is None:
            return "", ""
        scaled = np.abs(pairs.b / factor.times - pairs.a) <= (
            self.allowed + pairs.rounding + _OF_ONE_RATIO * np.abs(pairs.a) / 10
        )
        until = len(scaled) if scaled.all() else int(np.argmin(scaled))
        if 0 < until < len(scaled):
            self.notes.append(f"up to {self._at(until - 1)} nothing but the factor differs")
        elif until:
            self.notes.append("nothing but the factor differs")
        logged = "" if pairs.begins or pairs.unit is StepUnit.ENTRY else " that both logged"
        larger, smaller = ("A", "B") if factor.times < 1 else ("B", "A")
        sentence = f"{larger} is {factor} × {smaller} from the first {pairs.unit.value}{logged} on."
        if factor.whole is not None:
            return sentence, (
                f"The number of accumulated micro-batches, if it is {factor.whole:,}: {larger} adds their losses, "
                f"or does not divide them by their number. Otherwise a sum in place of a mean over {factor.whole:,} "
                "items or processes, or a weight of the loss."
            )
        return sentence, (
            "Another reduction of the loss (a sum in place of a mean, tokens in place of sequences), a weight of the "
            "loss, or the number of accumulated micro-batches."
        )

    def _second_step_words(self, size: str, out: str, hedge: str) -> tuple[str, str]:
        if self._is_next(1):
            return (
                f"Agrees in the first {self.pairs.unit.value} ({_agreement(self.relative[:1])}) and differs from the "
                f"second on: by {size} at {self._at(1)}{out}.",
                "Backward pass or update of the weights (gradients, learning rate, weight decay, optimizer), or the "
                "data of the second step: the loss of the first agreed." + hedge,
            )
        return (
            f"Agrees at {self._at(0)} and differs at the next that both logged, {self._at(1)}: by {size}{out}.",
            f"Forward pass and initial weights agree. What lies between {self._at(0)} and {self._at(1)} was not "
            "logged: the backward pass, the update, data, or a quick drift. Log every step to tell them apart.",
        )

    def _drift_words(self, departs: int, leaves: int) -> tuple[str, str]:
        if not self._is_gradual(leaves):
            return self._leaving_words(departs, leaves)
        first = int(np.argmax(self.relative > 0))
        begin = ""
        if departs < leaves:
            before = _agreement(self.relative[:departs])
            size = relative_text(float(self.relative[departs]))
            begin = f", {before} up to {self._at(departs - 1)}, {size} at the next"
        elif self.relative[first] >= self.visible[first] and first < leaves:
            begin = f", from {relative_text(float(self.relative[first]))} at {self._at(first)}"
        return (
            f"Drifts apart slowly{begin}: leaves {self.tolerance} at {self._at(leaves)} ({self._amount_outside}).",
            self._drift_meaning,
        )

    def _leaving_words(self, departs: int, leaves: int) -> tuple[str, str]:
        """Return the words where it is not seen how the difference has grown."""
        before = (
            "" if leaves == 0 else f"Agrees up to {self._at(leaves - 1)} ({_agreement(self.relative[:leaves])}) and l"
        )
        since = "" if departs == leaves else f"; the difference is above rounding from {self._at(departs)} on"
        return (
            f"{before or 'L'}eaves {self.tolerance} at {self._at(leaves)}, by "
            f"{relative_text(float(self.relative[leaves]))}{since} ({self._amount_outside}).",
            "Whether it arose there (data, schedule, a resume) or had grown below what the logs show (accumulated "
            "rounding, a small difference of a hyper-parameter) cannot be told from them" + self._unless_coarse,
        )

    @property
    def _unless_coarse(self) -> str:
        if self._coarse:
            return ": their digits are too few. Log more of them."
        return "." if self.has_noise else ". Repeated runs of A show how far apart rounding brings two runs (--noise)."

    @property
    def _amount_outside(self) -> str:
        return f"{int(self.outside.sum()):,} of {len(self.pairs):,} {_plural(self.pairs.unit)} are outside"

    @property
    def _drift_meaning(self) -> str:
        if self.has_noise:
            meaning = (
                "More than the repeated runs of A differ. Few repeats do not show what happens rarely, such as "
                "rounding that tips a ReLU or a maximum: the more there are, the surer this is."
            )
        else:
            meaning = (
                "As accumulated rounding does, or rounding that tips a ReLU or a maximum. A small difference of a "
                "hyper-parameter may look alike; repeated runs of A tell them apart (--noise)."
            )
        if self._coarse:
            meaning += " Whether the second step differs already cannot be told: its digits are too few."
        elif not self.pairs.begins:
            meaning += " The first steps were not logged, so that they agreed is not known."
        return meaning

    def _unlogged_meaning(self) -> str:
        first = int(self.pairs.steps[0])
        if self.pairs.unit is StepUnit.EPOCH:
            return (
                "An epoch's loss holds many updates, so forward pass, backward pass and data cannot be told apart. Log "
                "the loss of every step."
            )
        return (
            f"The steps before {first:,} are not in both logs, so forward and backward pass cannot be told apart. Log "
            f"from the first step on. If both were resumed at {first:,}: forward pass, data, or the loaded state."
        )

    @property
    def _coarse(self) -> float:
        """The relative rounding of the first losses if it is coarse, 0 otherwise."""
        shown = float(self.pairs.rounding[0] / self.pairs.scale[0]) if self.pairs.scale[0] > 0 else 0.0
        return shown if shown > _COARSE else 0.0

    def _note_within(self) -> None:
        """Note a difference within the tolerance that rounding does not explain."""
        if self.has_noise:
            return
        jump = self._first_jump(len(self.pairs) - 1)
        if self._first_step_is_notable:
            self._note_first_step()
        elif jump is not None:
            self.notes.append(
                f"within the tolerance, but more than accumulates from one step to the next: the difference is "
                f"{relative_text(float(self.relative[jump]))} from {self._at(jump)} on"
            )

    def _note_visibility(self, divergence: Divergence, leaves: int) -> None:
        """Note that rounding hides differences in the first steps, or that they show one within the tolerance."""
        if leaves == 0 or divergence is Divergence.PASSING:
            return
        if self._coarse:
            self.notes.append(
                f"the numbers in the logs show differences from {relative_text(self._coarse)} on: smaller ones in the "
                "first steps would not be seen"
            )
        elif self._first_step_is_notable and not self.has_noise:
            self._note_first_step()

    @property
    def _first_step_is_notable(self) -> bool:
        """Whether the first losses differ by more than a few units in the last place of float32 or of the log."""
        return bool(self.relative[0] > max(_FEW_UNITS, JUMP * self.visible[0] if self._coarse else 0.0))

    def _note_first_step(self) -> None:
        self.notes.append(
            f"{self._at(0)}, the first compared, differs by {relative_text(float(self.relative[0]))}: within the "
            "tolerance, but more than the rounding of float32 (about 1e-07); if the training is not in lower "
            "precision, look at the forward pass"
        )

    def _note_ratio(self, divergence: Divergence, departs: int) -> None:
        """Note a constant ratio from the step on where the curves part, which another reduction of the loss causes."""
        is_at_once = divergence in (Divergence.JUMP, Divergence.SECOND_STEP, Divergence.THIRD_STEP)
        factor = self._factor(departs) if is_at_once else None
        # A factor near 1 is no other reduction.
        if factor is not None and max(factor.times, 1 / factor.times) >= _SMALLEST_REDUCTION:
            self.notes.append(
                f"from {self._at(departs)} on B is about {_number_text(factor.times)} times A: another reduction of "
                "the loss (sum, mean), another factor, or accumulated micro-batches that are not averaged"
            )

    def _note_non_finite(self, leaves: int) -> None:
        """Note where one becomes NaN or infinite after they have parted."""
        later = np.flatnonzero(self.pairs.non_finite_in_one)
        if len(later) and later[0] > leaves:
            at = int(later[0])
            which, value = ("A", self.pairs.a[at]) if not math.isfinite(self.pairs.a[at]) else ("B", self.pairs.b[at])
            self.notes.append(f"{which} becomes {_value_text(value)} at {self._at(at)}, the other does not")

    def _note_shift(self) -> None:
        """Note that the curves agree if one is shifted by a step or two."""
        pairs = self.pairs
        amount = len(pairs)
        if not self.outside[0] or amount < _FEWEST_FOR_PATTERN or not self._is_next(amount - 1):
            return
        for shift in range(1, _MOST_SHIFTED + 1):
            for early, late, names in ((pairs.a, pairs.b, ("A", "B")), (pairs.b, pairs.a, ("B", "A"))):
                first, second = early[shift:], late[:-shift]
                with np.errstate(invalid="ignore"):
                    agree = np.abs(first - second) <= self.allowed[shift:] + pairs.rounding[shift:]
                finite = first[np.isfinite(first)]
                is_flat = not len(finite) or float(np.ptp(finite)) <= 10 * self.allowed[0]
                if agree.mean() >= 0.9 and not is_flat:
                    self.notes.append(
                        f"the losses of {names[1]} are those of {names[0]} {shift} step{'' if shift == 1 else 's'} "
                        "later: the logs may count differently, or one training has begun further on"
                    )
                    return


def _agreement(relative: NDArray[np.float64]) -> str:
    largest = float(relative.max())
    return f"within {relative_text(largest)}" if largest else "no difference to be seen"


def _number_text(factor: float) -> str:
    return f"{factor:#.3g}".rstrip(".") if 1e-3 <= factor < 1e4 else f"{factor:.3g}"


def _plural(unit: StepUnit) -> str:
    return "entries" if unit is StepUnit.ENTRY else f"{unit.value}s"


def _steps_text(amount: int, unit: StepUnit) -> str:
    return f"{amount:,} {unit.value if amount == 1 else _plural(unit)}"


def _value_text(value: float) -> str:
    return "NaN" if math.isnan(value) else "infinite"
