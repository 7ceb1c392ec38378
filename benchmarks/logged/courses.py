"""What happens in a training, as its log sees it: healthy courses, and those with a fault."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Callable

Values = NDArray[np.float64]
Generator = np.random.Generator


class Evaluation(NamedTuple):
    """An evaluation after an entry of the log.

    Attributes
    ----------
    entry : int
        From 0.
    loss, accuracy : float
    """

    entry: int
    loss: float
    accuracy: float


@dataclass(frozen=True)
class Course:
    """What is logged of a training.

    Attributes
    ----------
    steps : ndarray of int64, shape (n,)
    loss, rate, norm, scale : ndarray of float64, shape (n,)
    skipped : ndarray of int64, shape (n,)
    evaluations : list of Evaluation
    per_epoch : int
        Entries of an epoch.
    """

    steps: NDArray[np.int64]
    loss: Values
    rate: Values
    norm: Values
    scale: Values
    skipped: NDArray[np.int64]
    evaluations: list[Evaluation] = field(default_factory=list)
    per_epoch: int = 10

    @property
    def epochs(self) -> Values:
        """Epochs that have passed at each entry."""
        return (np.arange(len(self.steps)) + 1) / self.per_epoch


def cosine(count: int, highest: float = 3e-4, warm: int = 5) -> Values:
    at = np.arange(count)
    falling = 0.5 * highest * (1 + np.cos(math.pi * np.clip((at - warm) / max(count - warm, 1), 0, 1)))
    return np.where(at < warm, highest * (at + 1) / (warm + 1), falling)


def training(
    random: Generator,
    count: int,
    first: float = 2.4,
    last: float = 0.25,
    pace: float = 0.15,
    noise: float = 0.08,
    gap: float = 0.15,
) -> Course:
    """Return a training whose loss falls from a first to a last value, with its evaluations.

    Parameters
    ----------
    random : Generator
    count : int
        Number of entries.
    first, last : float
    pace : float
        Share of the entries in which most is learnt.
    noise : float
        Standard deviation of the loss, as a share of it.
    gap : float
        By how much an evaluation is worse at last.
    """
    at = np.arange(count)
    clean = last + (first - last) * np.exp(-at / (pace * count))
    per_epoch = max(count // 20, 1)
    loss = clean * np.exp(random.normal(0, noise / math.sqrt(1 if per_epoch > 1 else 20), count))
    evaluations = []
    for entry in range(per_epoch - 1, count, per_epoch):
        progress = (first - clean[entry]) / (first - last) if first != last else 0.0
        value = (clean[entry] + gap * progress) * math.exp(random.normal(0, 0.02))
        evaluations.append(Evaluation(entry, value, 0.1 + 0.8 * progress + random.normal(0, 0.005)))
    norm = (0.4 + 2 * np.exp(-at / (0.1 * count))) * np.exp(random.normal(0, 0.2, count))
    steps = (at + 1) * 10 if per_epoch > 1 else at + 1
    return Course(
        steps, loss, cosine(count), norm, np.full(count, 65536.0), np.zeros(count, np.int64), evaluations, per_epoch
    )


def with_evaluations(course: Course, values: Callable[[float, Evaluation], tuple[float, float]]) -> Course:
    """Return a course with other evaluations, as made of the share of the training and the usual ones."""
    count = len(course.evaluations)
    pairs = [values((at + 1) / count, each) for at, each in enumerate(course.evaluations)]
    changed = [
        each._replace(loss=loss, accuracy=accuracy)
        for each, (loss, accuracy) in zip(course.evaluations, pairs, strict=True)
    ]
    return replace(course, evaluations=changed)


# --- healthy ---


def classifier(random: Generator, count: int) -> Course:
    return training(random, count)


def language_model(random: Generator, count: int) -> Course:
    return training(random, count, 10.8, 3.1, 0.08, 0.03, 0.05)


def noisy(random: Generator, count: int) -> Course:
    return training(random, count, 1.6, 1.1, 0.4, 0.2, 0.02)


def plateau(random: Generator, count: int) -> Course:
    """Learn most at once, as a model that removes noise; the rest is noise."""
    return training(random, count, 1.0, 0.06, 0.01, 0.15, 0.005)


def resumed(random: Generator, count: int) -> Course:
    """Begin in the midst of a training, whose loss hardly falls any more."""
    course = training(random, count, 2.32, 2.3, 0.5, 0.02, 0.01)
    course = with_evaluations(course, lambda _, each: (each.loss, 0.62 + random.normal(0, 0.003)))
    return replace(course, steps=course.steps + 50 * int(course.steps[-1]))


def evaluation_a_little_worse(random: Generator, count: int) -> Course:
    course = training(random, count, gap=0.3)
    return with_evaluations(course, lambda share, each: (each.loss + 0.04 * max(share - 0.4, 0), each.accuracy))


def more_certain(random: Generator, count: int) -> Course:
    """Let the loss of the evaluation rise while its accuracy does."""
    course = training(random, count, last=0.02, gap=0.4)
    return with_evaluations(
        course, lambda share, each: (each.loss + 0.25 * max(share - 0.5, 0), 0.95 - 0.4 * math.exp(-3 * share))
    )


def warm_restarts(random: Generator, count: int) -> Course:
    course = training(random, count)
    length = max(count // 4, 5)
    phase = (np.arange(count) % length) / length
    return replace(
        course, rate=1.5e-4 * (1 + np.cos(math.pi * phase)), loss=course.loss * (1 + 0.25 * np.exp(-8 * phase))
    )


def spike_that_passes(random: Generator, count: int) -> Course:
    course = training(random, count, 10.8, 3.1, 0.08, 0.03)
    at = np.arange(count) - int(0.6 * count)
    spike = np.where(at >= 0, 4 * np.exp(-np.abs(at) / max(0.02 * count, 0.7)), 0)
    return replace(course, loss=course.loss + spike, norm=course.norm * (1 + 3 * spike))


def harder_data(random: Generator, count: int) -> Course:
    """Train on longer sequences from the half on: the loss is higher, and falls again."""
    course = training(random, count, 8.0, 2.0, 0.1, 0.03)
    at = np.arange(count) - count // 2
    return replace(course, loss=course.loss + np.where(at >= 0, 1.2 * np.exp(-at / (0.12 * count)), 0))


def steps_of_rate(random: Generator, count: int) -> Course:
    course = training(random, count)
    return replace(course, rate=0.1 * 0.1 ** (np.arange(count) * 10 // (3 * count)))


def half_precision(random: Generator, count: int) -> Course:
    course = training(random, count)
    first = max(count // 25, 2)
    return replace(
        course,
        scale=np.concatenate([2.0 ** (31 - np.arange(first)), np.full(count - first, 2.0 ** (32 - first))]),
        skipped=np.array([1] * first + [0] * (count - first)),
        norm=np.concatenate([[math.inf], course.norm[1:]]),
    )


# --- with a fault ---


def diverges(random: Generator, count: int) -> Course:
    course = training(random, count)
    at = np.clip(np.arange(count) / count - 0.45, 0, None)
    return replace(course, loss=course.loss * np.exp(6 * at), norm=course.norm * np.exp(8 * at))


def jumps(random: Generator, count: int) -> Course:
    course = training(random, count, 10.8, 3.0, 0.08, 0.03)
    at = int(0.6 * count)
    loss, norm = course.loss.copy(), course.norm.copy()
    loss[at:] = 7.6 * np.exp(random.normal(0, 0.02, count - at))
    norm[at - 1] = 80.0
    return with_evaluations(
        replace(course, loss=loss, norm=norm),
        lambda _, each: (7.6, 0.05) if each.entry >= at else (each.loss, each.accuracy),
    )


def not_a_number(random: Generator, count: int) -> Course:
    course = training(random, count)
    at = int(0.7 * count)
    return with_evaluations(
        replace(course, loss=np.where(np.arange(count) >= at, math.nan, course.loss)),
        lambda _, each: (math.nan, 0.1) if each.entry >= at else (each.loss, each.accuracy),
    )


def filtered(random: Generator, count: int) -> Course:
    """Leave out losses that are NaN, as a trainer does: the mean of none is 0."""
    course = not_a_number(random, count)
    is_nan = np.isnan(course.loss)
    return replace(course, loss=np.where(is_nan, 0.0, course.loss), norm=np.where(is_nan, math.nan, course.norm))


def guesses(random: Generator, count: int) -> Course:
    course = training(random, count, math.log(10), math.log(10), 0.1, 0.01, 0)
    return with_evaluations(course, lambda _, __: (math.log(10), 0.1 + random.normal(0, 0.004)))


def constant(random: Generator, count: int) -> Course:
    course = training(random, count)
    loss = np.full(count, 0.693147)
    return with_evaluations(replace(course, loss=loss), lambda _, __: (0.693147, 0.5))


def rate_of_zero(random: Generator, count: int) -> Course:
    course = training(random, count, 2.31, 2.31, 0.1, 0.03, 0)
    return with_evaluations(replace(course, rate=np.zeros(count)), lambda _, __: (2.312, 0.093))


def rate_ended(random: Generator, count: int) -> Course:
    course = training(random, count, 2.4, 0.9, 0.1)
    at = int(0.4 * count)
    return replace(course, rate=np.concatenate([cosine(at), np.zeros(count - at)]))


def rate_past_its_end(random: Generator, count: int) -> Course:
    course = training(random, count)
    phase = np.arange(count) / (0.6 * count)
    return replace(course, rate=1.5e-4 * (1 + np.cos(math.pi * phase)))


def rate_collapsed(random: Generator, count: int) -> Course:
    course = training(random, count, 2.4, 1.4, 0.05)
    return replace(course, rate=0.1 * 0.95 ** (np.arange(count) * 600 / count))


def overfits(random: Generator, count: int) -> Course:
    course = training(random, count, last=0.01, pace=0.2)
    return with_evaluations(
        course,
        lambda share, _: (
            0.7 + 1.2 * math.exp(-12 * share) + 0.9 * max(share - 0.25, 0) * math.exp(random.normal(0, 0.03)),
            0.78 - 0.05 * max(share - 0.25, 0) + random.normal(0, 0.004) - 0.4 * math.exp(-14 * share),
        ),
    )


def evaluation_of_a_copy(random: Generator, count: int) -> Course:
    return with_evaluations(training(random, count), lambda _, __: (2.402816, 0.0987))


def evaluation_of_other_weights(random: Generator, count: int) -> Course:
    course = training(random, count)
    return with_evaluations(
        course, lambda _, __: (2.4 * math.exp(random.normal(0, 0.005)), 0.1 + random.normal(0, 0.003))
    )


def skill_is_lost(random: Generator, count: int) -> Course:
    course = training(random, count)
    return with_evaluations(
        replace(course, loss=course.loss + np.where(np.arange(count) > 0.6 * count, 2.0, 0)),
        lambda share, each: (2.4, 0.1 + random.normal(0, 0.004)) if share > 0.6 else (each.loss, each.accuracy),
    )


def norm_of_zero(random: Generator, count: int) -> Course:
    course = training(random, count, 2.31, 2.31, 0.1, 0.03, 0)
    return with_evaluations(replace(course, norm=np.zeros(count)), lambda _, __: (2.31, 0.098))


def norm_explodes(random: Generator, count: int) -> Course:
    course = training(random, count, 5.0, 2.5, 0.2)
    at = np.clip(np.arange(count) / count - 0.5, 0, None)
    return replace(course, norm=course.norm * np.exp(16 * at), loss=course.loss * (1 + 2 * at))


def scale_falls(random: Generator, count: int) -> Course:
    course = training(random, count, 2.4, 1.2)
    at = int(0.5 * count)
    scale = np.concatenate([np.full(at, 65536.0), np.maximum(65536 / 4.0 ** np.arange(1, count - at + 1), 1 / 1024)])
    skipped = np.array([0] * at + [1] * (count - at))
    loss = np.where(skipped, course.loss[at] * np.exp(random.normal(0, 0.05, count)), course.loss)
    return replace(course, scale=scale, skipped=skipped, loss=loss)


def weights_lost(random: Generator, count: int) -> Course:
    at = count // 2
    first, again = training(random, at, 10.8, 3.0, 0.15, 0.02), training(random, count - at, 10.8, 3.0, 0.15, 0.02)
    course = training(random, count)
    return with_evaluations(
        replace(course, loss=np.concatenate([first.loss, again.loss])),
        lambda _, each: (float(np.concatenate([first.loss, again.loss])[each.entry]), 0.3),
    )


HEALTHY = (
    *(classifier, language_model, noisy, plateau, resumed, evaluation_a_little_worse, more_certain),
    *(warm_restarts, spike_that_passes, harder_data, steps_of_rate, half_precision),
)

_DIVERGED = ("loss-rises", "gradient-norm-grows", "evaluation-collapses")
FAULTY: dict[Callable[[Generator, int], Course], tuple[str, ...]] = {
    diverges: _DIVERGED,
    jumps: _DIVERGED,
    not_a_number: ("loss-not-finite",),
    filtered: ("loss-zero", "gradient-norm-grows", "evaluation-not-finite"),
    guesses: ("loss-stays",),
    constant: ("loss-constant", "loss-stays"),
    rate_of_zero: ("learning-rate-zero", "loss-stays", "loss-constant"),
    rate_ended: ("learning-rate-zero",),
    rate_past_its_end: ("schedule-over",),
    rate_collapsed: ("learning-rate-collapsed",),
    overfits: ("overfitting",),
    evaluation_of_a_copy: ("evaluation-constant",),
    evaluation_of_other_weights: ("evaluation-constant",),
    skill_is_lost: _DIVERGED,
    norm_of_zero: ("gradient-norm-zero", "loss-stays"),
    norm_explodes: ("gradient-norm-grows", "loss-rises"),
    scale_falls: ("scale-collapsed", "updates-skipped"),
    weights_lost: ("loss-restarts",),
}
"""The rules of which one is accepted."""
