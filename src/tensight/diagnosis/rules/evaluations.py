"""Rules about what is measured on data that a training does not train on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tensight.diagnosis.findings import Finding
from tensight.diagnosis.rule import Rule
from tensight.diagnosis.rules.losses import first_loss

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tensight.diagnosis.facts import Facts

_FEWEST = 6
"""Minimum number of evaluations that have a course."""

_SINCE_BEST = 0.4
"""Share of the run since its best evaluation; one that is stopped early, with some patience, ends before that."""

_WORSE = 0.1
"""By which share of its best value a loss has risen that is more than a little worse."""

_GIVEN_BACK = 0.25
"""Share of what it had gained since the first evaluation that a loss has given back."""

_FALLEN = 0.8
"""Share of its value at the best evaluation to which the loss of the training has fallen since."""


class Evaluated(NamedTuple):
    """A loss or a measure on data that are not trained on, over the steps of its evaluations.

    Attributes
    ----------
    name : str
    steps : ndarray of int64, shape (n,)
    values : ndarray of float64, shape (n,)
        Finite.
    line : str
        Where it is computed; empty if unknown.
    """

    name: str
    steps: NDArray[np.int64]
    values: NDArray[np.float64]
    line: str


def _evaluated(facts: Facts, flag: str) -> Iterator[Evaluated]:
    """Yield the losses (``is_loss``), or the measures of which more is better (``is_skill``)."""
    table = facts["evaluations"]
    for name in table.names:
        rows = (table["name"] == name) & table[flag] & np.isfinite(table["value"])
        if rows.any():
            line = next(filter(None, table["line"][rows].tolist()), "")
            yield Evaluated(name, table["step"][rows], table["value"][rows], line)


def _noise(values: NDArray[np.float64]) -> float:
    """Return the standard deviation of values around a smooth course, from the differences of neighbours."""
    differences = np.abs(np.diff(values))
    # The median of the absolute value of a normal distribution, and two values in each difference.
    return 1.4826 * float(np.median(differences)) / math.sqrt(2)


def _smooth(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the median of each value and its two neighbours."""
    padded = np.concatenate((values[:1], values, values[-1:]))
    return np.median(np.lib.stride_tricks.sliding_window_view(padded, 3), axis=1)


def overfitting(facts: Facts) -> Iterator[Finding]:
    """Find a loss on other data that has risen for long, while that of the training fell."""
    steps, losses = first_loss(facts)
    steps, losses = steps[np.isfinite(losses)], losses[np.isfinite(losses)]
    skills = list(_evaluated(facts, "is_skill"))
    for evaluated in _evaluated(facts, "is_loss"):
        at, values = evaluated.steps, evaluated.values
        if len(values) < _FEWEST or not len(steps) or (values <= 0).any():
            continue
        smooth = _smooth(values)
        best = int(smooth.argmin())
        lowest, best_step = float(smooth[best]), int(at[best])
        since_best = (at[-1] - best_step) / max(at[-1] - min(at[0], steps[0]), 1)
        later = values[best + 1 :]
        if since_best < _SINCE_BEST or len(later) < _FEWEST // 2:
            continue
        thirds = [float(np.median(part)) for part in np.array_split(later, 3)]
        rise, gain = thirds[2] - lowest, max(float(values[0]) - lowest, 0.0)
        # A single jump to another level, or a loss that falls again, is something else.
        rises_on = thirds[0] <= thirds[1] <= thirds[2] and float(smooth[-1]) > lowest + rise / 2
        if not rises_on or rise < max(_WORSE * lowest, _GIVEN_BACK * gain, 4 * _noise(values)):
            continue
        quarter = (at[-1] - best_step) / 4
        then = losses[np.abs(steps - best_step) <= quarter]
        now = losses[steps > at[-1] - 2 * quarter]
        if not len(then) or not len(now) or not 0 <= now.mean() < _FALLEN * then.mean():
            continue
        if any(_improves(skill, best_step) for skill in skills):
            continue
        described = {
            "name": evaluated.name,
            "best": lowest,
            "best_step": best_step,
            "last": thirds[2],
            "share": float(since_best),
            "trained_then": float(then.mean()),
            "trained_now": float(now.mean()),
        }
        where = {"operator": evaluated.name, "line": evaluated.line}
        yield Finding("overfitting", "likely", best_step, "rises", described, where)


def _improves(skill: Evaluated, since: int) -> bool:
    """Whether a measure, such as an accuracy, has become better since a step: the loss alone is worse."""
    then = skill.values[skill.steps <= since][-3:]
    now = skill.values[-max(len(skill.values) // 4, 2) :]
    if not len(then) or skill.steps[-1] <= since:
        return False
    return float(np.median(now)) > float(np.median(then)) + _noise(skill.values)


RULES = (
    Rule(
        "overfitting",
        "evaluation",
        ("evaluations", "losses"),
        overfitting,
        {
            "rises": (
                "{name} is best at step {best_step} ({best:.4g}) and rises since, to {last:.4g}, while the loss of the training"
                " falls: the model learns its training data by heart",
                "{name} 在第 {best_step} 步最好 ({best:.4g})，此后上升到 {last:.4g}，而训练损失继续下降：模型在死记训练数据",
            )
        },
        {
            "rises": (
                "for {share:.0%} of the training; meanwhile its loss fell from {trained_then:.4g} to {trained_now:.4g}",
                "占训练的 {share:.0%}；其间训练损失从 {trained_then:.4g} 降到 {trained_now:.4g}",
            )
        },
        (
            "Keep the weights of the best evaluation and stop there; more data, augmentation, dropout or decay, or a smaller"
            " model move it further",
            "保留评估最好时的权重并在那里停止；更多数据、数据增强、dropout、权重衰减或更小的模型可使其后移",
        ),
        (
            "Evaluations that are noisy or a little worse, those whose accuracy still improves, and trainings that are stopped soon"
            " after the best one.",
            "带噪声或略微变差的评估、准确率仍在提高的评估，以及在最好的评估之后不久就停止的训练。",
        ),
        frozenset(),
        80,
    ),
)
