"""Pairs of entries of two loss curves, and the noise between repeated runs of a training."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from tensight.compare.loss_axes import common_axis, interval_of
from tensight.curves import Curve, StepUnit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tensight.compare.loss_axes import Axis

_FEWEST_FOR_DTYPE = 8
"""Number of different values that a curve needs before its dtype is inferred as a low-precision one."""

_NOISE_FACTORS = {1: 4.0, 2: 3.0, 3: 2.5}
_NOISE_FACTOR = 2.0
_FLOAT32 = float(np.finfo(np.float32).eps)


@dataclass(frozen=True, eq=False)
class PairedLosses:
    """Two curves at their common steps.

    Attributes
    ----------
    steps : ndarray of int64, shape (n,)
        Steps as A counts them.
    a, b : ndarray of float64, shape (n,)
    rounding : ndarray of float64, shape (n,)
        Absolute difference that the rounding of the logged numbers explains.
    only_a, only_b : int
        Number of entries that the other curve does not have.
    unit : StepUnit
        What `steps` counts.
    begins : bool
        Whether the first pair is the first step of both trainings, according to their logs.
    ambiguity : str
        Why a difference would say nothing, as the pairs may not be of the same; empty if they are.
    is_alike : bool
        Whether both log at the same interval.
    notes : tuple of str
    """

    steps: NDArray[np.int64]
    a: NDArray[np.float64]
    b: NDArray[np.float64]
    rounding: NDArray[np.float64]
    only_a: int
    only_b: int
    unit: StepUnit
    begins: bool
    ambiguity: str
    is_alike: bool
    notes: tuple[str, ...]

    def __len__(self) -> int:
        """Return the number of pairs."""
        return len(self.steps)

    @property
    def scale(self) -> NDArray[np.float64]:
        """The larger magnitude of the two, to which differences are relative."""
        return np.maximum(np.abs(self.a), np.abs(self.b))

    @property
    def equal(self) -> NDArray[np.bool_]:
        """Where both are the same number, or both are NaN."""
        result: NDArray[np.bool_] = (self.a == self.b) | self.both_nan
        return result

    @property
    def both_nan(self) -> NDArray[np.bool_]:
        """Where both are NaN."""
        result: NDArray[np.bool_] = np.isnan(self.a) & np.isnan(self.b)
        return result

    @property
    def non_finite_in_one(self) -> NDArray[np.bool_]:
        """Where at least one is NaN or infinite and the other one differs."""
        result: NDArray[np.bool_] = ~(np.isfinite(self.a) & np.isfinite(self.b)) & ~self.equal
        return result

    @property
    def differences(self) -> NDArray[np.float64]:
        """Smallest possible absolute differences, given the rounding; infinite where `non_finite_in_one`."""
        with np.errstate(invalid="ignore", over="ignore"):
            apart = np.maximum(np.abs(self.a - self.b) - self.rounding, 0.0)
        apart[self.equal] = 0.0
        apart[self.non_finite_in_one] = np.inf
        return apart

    @property
    def relative(self) -> NDArray[np.float64]:
        """The differences relative to `scale`."""
        apart, scale = self.differences, self.scale
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            result = np.where(apart == 0, 0.0, apart / scale)
        result[self.non_finite_in_one] = np.inf
        return result

    @property
    def first_visible(self) -> NDArray[np.float64]:
        """The smallest visible relative difference: the rounding of the log, or of float32 if that is larger."""
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            seen = np.where(self.scale > 0, self.rounding / self.scale, 0.0)
        visible: NDArray[np.float64] = np.maximum(np.nan_to_num(seen, nan=0.0, posinf=0.0), _FLOAT32)
        return visible

    def until(self, step: int) -> PairedLosses:
        """Return the pairs up to a step."""
        kept = int(np.searchsorted(self.steps, step, "right"))
        return replace(self, steps=self.steps[:kept], a=self.a[:kept], b=self.b[:kept], rounding=self.rounding[:kept])


def pair_losses(a: Curve, b: Curve, axis: Axis | None = None) -> PairedLosses:
    """Pair the entries of two curves by what both count (see `common_axis`), or as other series of their logs."""
    axis = axis or common_axis(a, b)
    notes = [*axis.notes]
    if len(axis.steps):
        notes += _length_notes(a, b, axis)
    low_a, low_b = _low_precision(a), _low_precision(b)
    for name, low in (("A", low_a), ("B", low_b)):
        if low:
            notes.append(f"all losses of {name} are {low[0]} numbers; differences of one unit of it are not counted")
    values_a, values_b = (
        curve.values[indices] if means is None else means
        for curve, indices, means in ((a, axis.in_a, axis.a), (b, axis.in_b, axis.b))
    )
    return PairedLosses(
        steps=axis.steps,
        a=values_a,
        b=values_b,
        rounding=_roundings(a, low_a)[axis.in_a] + _roundings(b, low_b)[axis.in_b],
        only_a=len(a) - len(axis.steps),
        only_b=len(b) - len(axis.steps),
        unit=axis.unit,
        begins=axis.begins,
        ambiguity=axis.ambiguity,
        is_alike=axis.is_alike or axis.a is not None or axis.b is not None,
        notes=tuple(notes),
    )


def _length_notes(a: Curve, b: Curve, axis: Axis) -> list[str]:
    """Return notes about steps that only one curve has, and about different logging intervals."""
    notes = []
    word = "entries" if axis.unit is StepUnit.ENTRY else f"{axis.unit.value}s"
    steps = axis.steps
    if len(a) != len(b) or len(steps) != len(a):
        notes.append(
            f"A has {_span(a)}, B {_span(b, a.unit)}; compared were the {len(steps):,} {word} that both have "
            f"({steps[0]:,} to {steps[-1]:,})"
        )
    is_mean = axis.a is not None or axis.b is not None
    if a.unit is b.unit is not StepUnit.ENTRY and not is_mean and interval_of(a.steps) != interval_of(b.steps):
        notes.append(
            f"A has a loss every {_every(a)}, B every {_every(b)}; if a log holds the mean of its interval, as that of "
            "Hugging Face's Trainer does, the values are not of the same thing"
        )
    return notes


def _span(curve: Curve, named: StepUnit | None = None) -> str:
    word = "entries" if curve.unit is StepUnit.ENTRY else f"{curve.unit.value}s"
    amount = f"{len(curve):,}" if curve.unit is named else f"{len(curve):,} {word}"
    return f"{amount} ({curve.steps[0]:,} to {curve.steps[-1]:,})"


def _every(curve: Curve) -> str:
    interval = interval_of(curve.steps)
    return curve.unit.value if interval == 1 else f"{interval:,} {curve.unit.value}s"


def _low_precision(curve: Curve) -> tuple[str, NDArray[np.float64]] | None:
    """Return the 16-bit dtype of all losses, with half a unit in the last place of each; None for higher precision."""
    finite = np.isfinite(curve.values) & (curve.values != 0)
    values, rounding = curve.values[finite], curve.rounding[finite]
    if len(np.unique(values)) < _FEWEST_FOR_DTYPE:
        return None
    # Most bfloat16 numbers are float16 numbers, too.
    dtypes: tuple[tuple[str, type, int], ...] = (("bfloat16", ml_dtypes.bfloat16, 8), ("float16", np.float16, 11))
    for name, dtype, bits in dtypes:
        half_unit = np.ldexp(1.0, np.frexp(values)[1] - bits - 1)
        with np.errstate(over="ignore"):
            nearest = values.astype(np.float32).astype(dtype).astype(np.float64)
        # If numbers are printed more coarsely than the dtype's precision, any would seem to be of this dtype.
        if np.all(rounding < half_unit / 4) and np.all(np.abs(nearest - values) <= rounding):
            halves = np.zeros(len(curve))
            halves[finite] = half_unit
            return name, halves
    return None


def _roundings(curve: Curve, low: tuple[str, NDArray[np.float64]] | None) -> NDArray[np.float64]:
    """Return the rounding of each value, plus a small slack for the rounding of float64 subtraction."""
    printed = curve.rounding + (low[1] if low else 0.0)
    with np.errstate(invalid="ignore"):
        slack = np.where(printed > 0, 4 * np.finfo(np.float64).eps * np.abs(curve.values), 0.0)
    rounding: NDArray[np.float64] = printed + np.nan_to_num(slack, nan=0.0, posinf=0.0)
    return rounding


def noise_floor(
    paired: PairedLosses, a: Curve, repeats: Sequence[Curve]
) -> tuple[PairedLosses, NDArray[np.float64], tuple[str, ...]]:
    """Estimate by how much B may differ from A, from the differences between repeated runs of A.

    The noise at a step is the largest difference between any two runs up to slightly after that step, times a factor,
    because few repeats do not show the largest possible difference.

    Parameters
    ----------
    paired : PairedLosses
        A and B.
    a : Curve
    repeats : sequence of Curve
        Repeated runs of A, at least one.

    Returns
    -------
    (PairedLosses, ndarray of float64, tuple of str)
        The pairs up to the last step with known noise, the noise at each as an absolute difference, and notes.
    """
    runs = (a, *repeats)
    apart = np.zeros(len(a))
    covered = 0
    for index, first in enumerate(runs):
        for second in runs[index + 1 :]:
            pairs = pair_losses(first, second)
            if not len(pairs):
                continue
            differences = np.where(np.isfinite(pairs.differences), pairs.differences, 0.0)
            at = np.minimum(np.searchsorted(a.steps, pairs.steps), len(a) - 1)
            np.maximum.at(apart, at, differences)
            covered = max(covered, int(at[-1]) + 1)
    notes: list[str] = []
    if not covered:
        return paired.until(-(2**62)), np.empty(0), ("the repeated runs have no step of A",)
    last = int(a.steps[covered - 1])
    kept = paired.until(last)
    if len(kept) < len(paired):
        notes.append(f"the repeated runs end at step {last:,}; what follows was not compared")
    # In another run the same difference may occur some steps earlier, except in the first step.
    window = np.minimum(np.arange(covered), max(5, covered // 10))
    envelope = np.maximum.accumulate(apart[:covered])[np.minimum(np.arange(covered) + window, covered - 1)]
    factor = _NOISE_FACTORS.get(len(repeats), _NOISE_FACTOR)
    floor = factor * envelope[np.minimum(np.searchsorted(a.steps, kept.steps), covered - 1)]
    if not apart.any():
        notes.append("A repeats itself exactly, so every difference counts")
    return kept, floor, tuple(notes)
