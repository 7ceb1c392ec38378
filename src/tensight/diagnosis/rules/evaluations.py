"""Rules about what is measured on data that a training does not train on."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tensight.diagnosis.facts import sizes_of
from tensight.diagnosis.findings import Finding
from tensight.diagnosis.rule import Rule
from tensight.diagnosis.rules.losses import class_counts, constant_predictions, first_loss

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tensight.diagnosis.facts import Facts

_FEWEST = 5
"""Minimum number of evaluations that have a course."""

_SINCE_BEST = 0.4
"""Share of the run since its best evaluation; one that is stopped early, with some patience, ends before that."""

_WORSE = 0.1
"""By which share of its best value a loss has risen that is more than a little worse."""

_GIVEN_BACK = 0.25
"""Share of what it had gained since the first evaluation that a loss has given back."""

_UNTRAINED = 0.1
"""Share of the loss of the untrained network by which evaluations differ, and are at most below that loss."""

_OF_CLASSES = re.compile(r"acc|top[-_@]?1(?!\d)")
_GUESSED = 0.05
"""Relative difference of an accuracy from that of a guess, and by how much one that improves has risen."""

_FALLEN = 0.8
"""Share of its value at the best evaluation to which the loss of the training has fallen since."""


_LEARNT = 0.5
"""Share of the loss of a constant prediction below which training data are learnt."""

_ABOVE = 1.2
"""How many times as often as the most frequent class answers are right that are no guesses."""

_STEADY, _SCALED = 1.5, 3.0
"""How far scales of inputs may differ that are the same, and from which factor on, or how many deviations, they do not."""

_ACCURACY = "accuracy"
"""As live trainings call the share of right answers."""


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
        best += int(values[max(best - 1, 0) : best + 2].argmin()) - min(best, 1)
        lowest, best_step = float(values[best]), int(at[best])
        since_best = (at[-1] - best_step) / max(at[-1] - min(at[0], steps[0]), 1)
        later = values[best + 1 :]
        if since_best < _SINCE_BEST or len(later) < 3:
            continue
        thirds = [float(np.median(part)) for part in np.array_split(later, 3)]
        rise, gain = thirds[2] - lowest, max(float(values[0]) - lowest, 0.0)
        # A single jump to another level, or a loss that falls again, is something else.
        rises_on = thirds[0] <= thirds[1] <= thirds[2] and float(smooth[-1]) > lowest + rise / 2
        if not rises_on or rise < max(_WORSE * lowest, _GIVEN_BACK * gain, 4 * _noise(values)):
            continue
        quarter = (at[-1] - best_step) / 4
        then = losses[np.abs(steps - best_step) <= quarter]
        if not len(then):
            # Of long trainings, the losses in the middle are not kept: those after it are lower.
            then = losses[steps > best_step][:_FEWEST]
        now = losses[steps > at[-1] - 2 * quarter]
        if not len(then) or not len(now) or not 0 <= np.median(now) < _FALLEN * np.median(then):
            continue
        others = [other for other in _evaluated(facts, "is_loss") if other.name != evaluated.name]
        # A measure that becomes a little better does not make up for a loss that is far above its start.
        is_far = thirds[2] > 1.5 * float(values[0]) and thirds[2] > 2 * lowest
        improves = any(_improves(skill, best_step) for skill in skills)
        improves |= any(_improves(each, best_step, -1) for each in others)
        if improves and not is_far:
            continue
        described = {
            "name": evaluated.name,
            "best": lowest,
            "best_step": best_step,
            "last": thirds[2],
            "share": float(since_best),
            "trained_then": float(np.median(then)),
            "trained_now": float(np.median(now)),
        }
        where = {"evaluation": evaluated.name, "line": evaluated.line}
        yield Finding("overfitting", "likely", best_step, "rises", described, where)


def no_better(facts: Facts) -> Iterator[Finding]:
    """Find evaluations no better than a constant prediction, although the training's loss has fallen far below that."""
    by_step, _ = constant_predictions(facts)
    steps, losses = first_loss(facts)
    factors = np.abs(facts["loss_functions"]["factor"])
    if not by_step or len(steps) < _FEWEST or (factors != 1).any():
        return
    function = str(facts["loss_functions"]["function"][0])
    guess = float(np.mean(list(by_step.values())))
    last = float(losses[-max(len(losses) // 10, 2) :].mean())
    is_learnt = losses < _LEARNT * guess
    table = facts["evaluations"]
    is_of_function = {str(name) for name in table["name"][table["function"] == function].tolist()}
    skills = {skill.name.removeprefix(_ACCURACY): skill for skill in _evaluated(facts, "is_skill")}
    for evaluated in _evaluated(facts, "is_loss"):
        at, values = evaluated.steps, evaluated.values
        if evaluated.name not in is_of_function or len(values) < _FEWEST or not last < _LEARNT * guess:
            continue
        # One that begins when the training data are known by heart may have been better before.
        learnt_at = int(steps[np.argmax(is_learnt)])
        skill = skills.get(evaluated.name.removeprefix(function))
        if values.min() < 0.99 * guess or at[0] > learnt_at or (skill is not None and _is_above_chance(facts, skill)):
            continue
        described = {
            "name": evaluated.name,
            "guess": guess,
            "lowest": float(values.min()),
            "trained": last,
            "count": len(values),
        }
        where = {"operator": evaluated.name, "line": evaluated.line}
        yield Finding("evaluation-no-better", "likely", int(at[0]), "guess", described, where)


def _is_above_chance(facts: Facts, skill: Evaluated) -> bool:
    """Whether a share of right answers comes above that of the most frequent class."""
    counts: Counter[str] = Counter()
    for of_step in class_counts(facts):
        counts.update(of_step)
    share = max(counts.values(), default=0) / (counts.total() or 1)
    return float(skill.values.max()) > _ABOVE * share


def _improves(measure: Evaluated, since: int, direction: int = 1) -> bool:
    """Whether a measure, such as an accuracy, has become better since a step: the loss alone is worse."""
    values = direction * measure.values
    then, now = values[measure.steps <= since][-3:], values[-max(len(values) // 4, 2) :]
    if not len(then) or measure.steps[-1] <= since or len(values) < _FEWEST:
        return False
    level = float(np.median(then))
    return float(np.median(now)) > level + max(2 * _noise(values), 0.01 * abs(level))


def _falls(facts: Facts, since: float, to: float) -> tuple[float, float] | None:
    """Return the loss of the training at a step and at last; None if it has not fallen to a share of that since."""
    steps, losses = first_loss(facts)
    steps, losses = steps[np.isfinite(losses)], losses[np.isfinite(losses)]
    if len(losses) < _FEWEST:
        return None
    count = max(len(losses) // 10, 1)
    before = losses[steps <= since]
    then, now = float(np.median((before if len(before) else losses)[-count:])), float(np.median(losses[-count:]))
    return (then, now) if 0 <= now < to * then else None


def constant(facts: Facts) -> Iterator[Finding]:
    """Find evaluations that give exactly the same again and again, while the loss of the training falls."""
    table = facts["evaluations"]
    for name in table.names:
        rows = (table["name"] == name) & (table["is_loss"] | table["is_skill"]) & np.isfinite(table["value"])
        values, steps = table["value"][rows], table["step"][rows]
        is_worst = values[-1] == 1 and bool(table["is_loss"][rows].all())
        if len(values) < _FEWEST or (values[-1] in (0, 1, 100) and not is_worst):
            continue
        is_last = values == values[-1]
        since = 0 if is_last.all() else len(values) - int(np.argmin(is_last[::-1]))
        count, unit = len(values) - since, float(np.nan_to_num(table["rounding"][rows]).max())
        # What is printed with few digits is rounded to the same.
        if count < max(_FEWEST, len(values) // 2) or abs(float(values[-1])) < 50 * 2 * unit:
            continue
        # As many answers of few samples are right again and again once nothing changes much.
        if since and not table["is_loss"][rows].all():
            continue
        trained = _falls(facts, float(steps[since]), _FALLEN)
        if trained is None:
            continue
        described = {
            "name": name,
            "value": float(values[-1]),
            "count": count,
            "trained_then": trained[0],
            "trained_now": trained[1],
        }
        where = {"evaluation": name, "line": str(table["line"][rows][0])}
        yield Finding("evaluation-constant", "likely", int(steps[since]), "same", described, where)
        return


def untrained(facts: Facts) -> Iterator[Finding]:
    """Find evaluations whose loss stays at that of the untrained network, while that of the training falls to half."""
    steps, losses = first_loss(facts)
    losses = losses[np.isfinite(losses)]
    if len(losses) < _FEWEST:
        return
    first = float(np.median(losses[: max(len(losses) // 50, 1)]))
    for evaluated in _evaluated(facts, "is_loss"):
        values = evaluated.values
        level = float(np.median(values))
        if len(values) < _FEWEST or first <= 0 or np.abs(values - values[0]).max() > _UNTRAINED * max(first, level):
            continue
        trained = _falls(facts, float(steps[0]), 0.5)
        if trained is None or level < (1 - _UNTRAINED) * first:
            continue
        if any(_improves(skill, int(evaluated.steps[2])) for skill in _evaluated(facts, "is_skill")):
            continue
        described = {
            "name": evaluated.name,
            "value": level,
            "count": len(values),
            "trained_then": first,
            "trained_now": trained[1],
        }
        where = {"evaluation": evaluated.name, "line": evaluated.line}
        message = "untrained" if level < (1 + 2 * _UNTRAINED) * first else "above"
        yield Finding("evaluation-constant", "likely", int(evaluated.steps[0]), message, described, where)
        return


def at_chance(facts: Facts) -> Iterator[Finding]:
    """Find accuracies that stay at that of a guess, while the loss of the training falls to half."""
    for skill in _evaluated(facts, "is_skill"):
        values = skill.values
        whole = 1.0 if values.max() <= 1 else 100.0
        level = float(np.median(values)) / whole
        if len(values) < _FEWEST or not _OF_CLASSES.search(skill.name.lower()) or not 0 < level <= 0.55:
            continue
        classes = round(1 / level)
        is_guess = abs(level * classes - 1) < _GUESSED and classes in (*range(2, 11), 20, 50, 100, 1000)
        # Neither a half of the evaluations nor the best of them is better than the others.
        count = max(len(values) // 3, 2)
        improved = float(np.median(values[-count:]) - np.median(values[:count])) / whole
        spread = float(values.max() - values.min()) / whole
        trained = _falls(facts, float(skill.steps[0]), 0.5)
        if not is_guess or trained is None or spread > 0.3 * level or improved > _GUESSED * level:
            continue
        described = {
            "name": skill.name,
            "value": level * whole,
            "count": len(values),
            "trained_then": trained[0],
            "trained_now": trained[1],
        }
        where = {"evaluation": skill.name, "line": skill.line}
        yield Finding("evaluation-constant", "likely", int(skill.steps[0]), "chance", described, where)
        return


def unchanging(facts: Facts) -> Iterator[Finding]:
    """Find evaluations that do not change, or stay at the loss of an untrained network, while the training learns."""
    return itertools.islice(itertools.chain(constant(facts), untrained(facts), at_chance(facts)), 1)


def collapses(facts: Facts) -> Iterator[Finding]:
    """Find measures, such as an accuracy, that had been good and are at last worse than at first."""
    for skill in _evaluated(facts, "is_skill"):
        values, steps = skill.values, skill.steps
        if len(values) < 2 * _FEWEST:
            continue
        smooth = _smooth(values)
        best = int(smooth.argmax())
        tail = values[-max(len(values) // 5, 3) :]
        first, highest, last = float(np.median(values[:3])), float(smooth[best]), float(np.median(tail))
        gain, later = highest - min(first, last), values[best + 1 :]
        is_lost = last < first + 0.1 * (highest - first) and float(tail.max()) < highest - _GIVEN_BACK * 2 * gain
        if highest - first < 0.2 * abs(highest) or not is_lost or len(later) < len(tail):
            continue
        if highest - last < 6 * _noise(values):
            continue
        described = {"name": skill.name, "best": highest, "best_step": int(steps[best]), "last": last, "first": first}
        fallen = best + 1 + int(np.argmax(later < highest - 0.5 * (highest - last)))
        where = {"evaluation": skill.name, "line": skill.line}
        yield Finding("evaluation-collapses", "likely", int(steps[fallen]), "lost", described, where)
        return


def not_finite(facts: Facts) -> Iterator[Finding]:
    """Find evaluations whose loss is not finite, to the end, though that of the training is."""
    table, losses = facts["evaluations"], facts["losses"]["value"]
    for name in table.names:
        rows = (table["name"] == name) & table["is_loss"]
        values, steps = table["value"][rows], table["step"][rows]
        if len(values) < 2 or np.isfinite(values[-2:]).any() or not np.isfinite(losses[-3:]).all():
            continue
        # Some trainers leave out losses that are NaN, and log 0.
        if not losses[-3:].any():
            continue
        is_finite = np.isfinite(values)
        first = int(np.flatnonzero(is_finite)[-1]) + 1 if is_finite.any() else 0
        described = {
            "name": name,
            "value": float(values[-1]),
            "count": len(values) - first,
            "of": len(values),
            "trained": float(losses[-1]),
        }
        where = {"evaluation": name, "line": str(table["line"][rows][0])}
        yield Finding("evaluation-not-finite", "certain", int(steps[first]), "not_finite", described, where)
        return


def other_inputs(facts: Facts) -> Iterator[Finding]:
    """Find evaluations whose inputs are of another scale than those of the training."""
    calls, table = facts["calls"], facts["evaluations"]
    is_trained = calls["is_trained"] & (calls["input_deviation"] > 0)
    for name in table.names:
        rows = (table["name"] == name) & np.isfinite(table["input_deviation"])
        if not rows.any():
            continue
        shape = sizes_of(table["input_shape"][rows][0])[1:]
        alike = is_trained & np.array([sizes_of(each)[1:] == shape for each in calls["input_shape"].tolist()], np.bool_)
        trained, others = calls["input_deviation"][alike], table["input_deviation"][rows]
        # Inputs that differ from step to step, as by a level of noise, have no scale.
        if len(trained) < _FEWEST or trained.max() > _STEADY * trained.min() or others.max() > _STEADY * others.min():
            continue
        usual, other = float(np.median(trained)), float(np.median(others))
        mean, other_mean = float(np.median(calls["input_mean"][alike])), float(np.median(table["input_mean"][rows]))
        is_scaled = other > _SCALED * usual or usual > _SCALED * other
        if not is_scaled and abs(other_mean - mean) < _SCALED * max(usual, other):
            continue
        values = {"name": name, "mean": mean, "deviation": usual, "other_mean": other_mean, "other": other}
        line = next(filter(None, table["line"][rows].tolist()), "")
        step = int(table["step"][rows][0])
        yield Finding("evaluation-inputs", "likely", step, "scale", values, {"loss": name, "line": line})
        return


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
        of_log=overfitting,
    ),
    Rule(
        "evaluation-constant",
        "evaluation",
        ("evaluations", "losses"),
        unchanging,
        {
            "same": (
                "{name} is {value:.6g} in each of {count} evaluations, while the loss of the training falls: what is evaluated is"
                " not what is trained, or its outputs are all the same",
                "{name} 在 {count} 次评估中都是 {value:.6g}，而训练损失在下降：评估的不是正在训练的模型，或其输出全都相同",
            ),
            "untrained": (
                "{name} stays at {value:.4g}, about the first loss of the training, while that falls: what is evaluated is not what is"
                " trained, or other data",
                "{name} 停在 {value:.4g} (约为训练的最初损失)，而训练损失在下降：评估的不是正在训练的模型，或数据不同",
            ),
            "above": (
                "{name} stays at {value:.4g}, above the first loss of the training, while that falls: what is evaluated is not what is"
                " trained, or other data",
                "{name} 停在 {value:.4g}，高于训练的最初损失，而训练损失在下降：评估的不是正在训练的模型，或数据不同",
            ),
            "chance": (
                "{name} stays at {value:.4g}, as that of a guess does, while the loss of the training falls",
                "{name} 停在 {value:.4g} (等同于猜测)，而训练损失在下降",
            ),
        },
        {
            "same": (
                "meanwhile the loss of the training fell from {trained_then:.4g} to {trained_now:.4g}",
                "其间训练损失从 {trained_then:.4g} 降到 {trained_now:.4g}",
            ),
            **dict.fromkeys(
                ("untrained", "above", "chance"),
                (
                    "{count} evaluations; the loss of the training fell from {trained_then:.4g} to {trained_now:.4g}",
                    "共 {count} 次评估；训练损失从 {trained_then:.4g} 降到 {trained_now:.4g}",
                ),
            ),
        },
        (
            "Check which weights are evaluated (a copy, an average, a checkpoint), in which mode, and whether its data are"
            " preprocessed as those of the training",
            "检查评估所用的权重 (副本、平均或检查点)、模式，以及其数据的预处理是否与训练相同",
        ),
        (
            "Measures that are 0 or perfect, and values that are printed with few digits.",
            "为 0 或满分的指标，以及打印位数很少的值。",
        ),
        frozenset(("overfitting",)),
        70,
        of_log=unchanging,
    ),
    Rule(
        "evaluation-collapses",
        "evaluation",
        ("evaluations",),
        collapses,
        {
            "lost": (
                "{name} was {best:.4g} at step {best_step} and is {last:.4g} at last, no better than at first ({first:.4g})",
                "{name} 在第 {best_step} 步为 {best:.4g}，最后为 {last:.4g}，不比起初 ({first:.4g}) 好",
            )
        },
        {"lost": ("median of the last fifth of the evaluations", "最后五分之一评估的中位数")},
        (
            "Go back to the weights of the best evaluation, and lower the learning rate; look at the loss and the gradient norm"
            " where it fell",
            "回到评估最好时的权重并降低学习率；查看其下降处的损失和梯度范数",
        ),
        (
            "Measures that are noisy, or lose a part of what they had gained.",
            "带噪声的指标，以及只失去部分提升的指标。",
        ),
        frozenset(("overfitting",)),
        60,
        of_log=collapses,
    ),
    Rule(
        "evaluation-not-finite",
        "evaluation",
        ("evaluations", "losses"),
        not_finite,
        {
            "not_finite": (
                "{name} is {value} in {count} of {of} evaluations, while the loss of the training is finite",
                "{name} 在 {of} 次评估中有 {count} 次为 {value}，而训练损失是有限值",
            )
        },
        {"not_finite": ("the loss of the training is {trained:.4g} at last", "训练损失最后为 {trained:.4g}")},
        (
            "Look at the data and the mode of the evaluation: an empty batch, targets that are all ignored, half precision, running"
            " statistics",
            "检查评估的数据和模式：空批次、全被忽略的目标、半精度、运行统计量",
        ),
        ("Single evaluations.", "个别评估。"),
        frozenset(),
        40,
        of_log=not_finite,
    ),
    Rule(
        "evaluation-no-better",
        "evaluation",
        ("evaluations.function", "loss_functions", "losses"),
        no_better,
        {
            "guess": (
                "{name} never comes below that of a guess ({guess:.4g}), while the loss of the training falls to {trained:.4g}:"
                " nothing that is learnt holds for other data",
                "{name} 从未低于猜测的损失 ({guess:.4g})，而训练损失降到 {trained:.4g}：学到的东西对其他数据都不成立",
            )
        },
        {"guess": ("the lowest of {count} evaluations is {lowest:.4g}", "{count} 次评估中最低为 {lowest:.4g}")},
        (
            "Check that inputs and targets belong together in both data sets, and are prepared the same way; print a few pairs",
            "检查两个数据集中输入与目标是否对应、预处理是否相同；打印几对样本",
        ),
        (
            "Evaluations that were better before, and those whose answers are right more often than the most frequent class.",
            "此前更好的评估，以及答对比例高于最常见类别的评估。",
        ),
        frozenset(("overfitting",)),
        30,
    ),
    Rule(
        "evaluation-inputs",
        "evaluation",
        ("evaluations.input_deviation", "calls.input_deviation"),
        other_inputs,
        {
            "scale": (
                "The model is evaluated on inputs of another scale than it is trained on: their deviation is {other:.3g}, in the"
                " training {deviation:.3g}",
                "评估所用输入的尺度与训练不同：其标准差为 {other:.3g}，训练中为 {deviation:.3g}",
            )
        },
        {
            "scale": (
                "their mean is {other_mean:.3g}, in the training {mean:.3g}; where {name} is computed",
                "其均值为 {other_mean:.3g}，训练中为 {mean:.3g}；在计算 {name} 处",
            )
        },
        (
            "Prepare both data sets the same way: the same division, mean and deviation, computed on the training data",
            "用相同方式准备两个数据集：相同的除数、均值和标准差，均由训练数据计算",
        ),
        (
            "Inputs whose scale differs between the steps of the training, and those of other shapes.",
            "训练各步之间尺度不同的输入，以及形状不同的输入。",
        ),
        frozenset(("overfitting", "evaluation-no-better", "evaluation-constant")),
        25,
    ),
)
