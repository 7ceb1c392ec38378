"""Rules about trainings that diverge: losses that are not finite, jump or swing, and loss scales that collapse."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from tensight.diagnosis.findings import Finding
from tensight.diagnosis.rule import Rule
from tensight.diagnosis.rules import logs
from tensight.diagnosis.rules.losses import constant_predictions, first_loss, has_fixed_targets
from tensight.diagnosis.rules.rates import COURSE, tried
from tensight.diagnosis.rules.stages import UPDATES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tensight.diagnosis.facts import Facts

_BEFORE, _AFTER = 20, 10
"""Number of steps before and after a jump that are compared."""

_LONG = 60
"""Number of steps whose course shows whether a loss has a minimum."""

_SWINGS = 20
"""Number of updates in a row that take each other back."""


_AT_ONCE, _THROWN = 3, 4.0
"""After how many updates a loss that has become so many times larger was thrown up by them."""


def not_finite(facts: Facts) -> Iterator[Finding]:
    """Find a loss that is NaN or infinite from some step on."""
    table = facts["losses"]
    for name in table.names:
        of_name = table["name"] == name
        values, steps = table["value"][of_name], table["step"][of_name]
        is_finite = np.isfinite(values)
        if len(values) < UPDATES or is_finite[-UPDATES:].any():
            continue
        # A loss that is not finite in single steps only is skipped by many trainings on purpose.
        first = int(np.flatnonzero(is_finite)[-1]) + 1 if is_finite.any() else 0
        step = int(steps[first])
        before = float(values[first - 1]) if first else math.nan
        described = {
            "step": step,
            "value": float(values[-1]),
            "count": len(values) - first,
            "before": before,
        }
        cause, values_of_cause = _nan_in_inputs(facts, step) or (_cause(facts, step) if first else ("", {}))
        message = f"{'since' if first else 'start'}{cause and '_'}{cause}"
        where = {"operator": name, "line": facts.loss_line}
        yield Finding("loss-not-finite", "certain", step, message, {**described, **values_of_cause}, where)
        return


def jumps(facts: Facts) -> Iterator[Finding]:
    """Find a loss that jumps after an exceptional update or batch, and does not come back at once."""
    steps, values = first_loss(facts)
    if len(values) < _BEFORE + _AFTER or not np.isfinite(values).all():
        return
    has_fixed = has_fixed_targets(facts)
    for at in range(_BEFORE, len(values) - _AFTER):
        before = values[at - _BEFORE : at]
        if steps[at + _AFTER] - steps[at - _BEFORE] != _BEFORE + _AFTER:
            continue
        level = float(np.median(before))
        # Of a normal distribution, the median of the distances is 0.67 standard deviations.
        deviation = 1.4826 * float(np.median(np.abs(before - level))) + 1e-12 * abs(level)
        after = float(np.median(values[at : at + _AFTER]))
        if level <= 0 or values[at] < max(3 * level, level + 10 * deviation) or after < 3 * level:
            continue
        if int((values[max(at - 4 * _BEFORE, 0) : at] >= after).sum()) > 1:
            # It is as high now and then, as with rewards that are rare.
            continue
        cause, values_of_cause = _cause(facts, int(steps[at]))
        if not cause or not (has_fixed or cause == "targets"):
            # What is exceptional after that follows from this jump.
            return
        described = {
            "step": int(steps[at]),
            "level": level,
            "value": float(values[at]),
            "after": after,
            **values_of_cause,
        }
        where = {"line": facts.loss_line}
        yield Finding("loss-jumps", "likely", int(steps[at]), cause, described, where)
        return


def _nan_in_inputs(facts: Facts, step: int) -> tuple[str, dict[str, object]] | None:
    """Return that a model was given NaN in a step, and which one; None if none was."""
    calls = facts["calls"]
    given = calls["name"][(calls["step"] == step) & calls["holds_nan"]].tolist()
    return ("nan", {"model": given[0], "of_step": step}) if given else None


def _cause(facts: Facts, step: int) -> tuple[str, dict[str, object]]:
    """Return what was exceptional in a step or in the update before it, and its values; empty if nothing was."""
    rates = facts["rates"]
    for name in rates.names:
        of_name = rates["name"] == name
        ratio = _exceptional(rates["step"][of_name], rates["rate"][of_name], step - 1)
        if ratio > 5:
            return "rate", {"group": name, "ratio": ratio, "of_step": step - 1}
    parameters = facts["parameters"]
    if len(parameters):
        change, norm = parameters.panel("change"), parameters.panel("norm")
        moved = np.where(np.isfinite(change) & np.isfinite(norm), change, 0) * np.nan_to_num(norm)
        ratio = _exceptional(parameters.steps, np.sqrt((moved**2).sum(1)), step - 1)
        if ratio > 10:
            return "update", {"ratio": ratio, "of_step": step - 1}
    calls = facts["calls"]
    for name in calls.names:
        of_name = (calls["name"] == name) & np.isfinite(calls["input_max"]) & ~calls["is_ids"]
        reach = np.maximum(np.abs(calls["input_min"][of_name]), np.abs(calls["input_max"][of_name]))
        for of_step in (step, step - 1):
            ratio = _exceptional(calls["step"][of_name], reach, of_step)
            if ratio > 10:
                return "batch", {"model": name, "ratio": ratio, "of_step": of_step}
    functions = facts["loss_functions"]
    for name in functions.names:
        of_name = (functions["name"] == name) & np.isfinite(functions["target_variance"])
        steps = functions["step"][of_name]
        reach = np.maximum(np.abs(functions["target_min"][of_name]), np.abs(functions["target_max"][of_name]))
        for of_step in (step, step - 1):
            ratio, later = _exceptional(steps, reach, of_step), reach[steps > of_step][:_AFTER]
            # Targets that go on like that are other ones, as of another task.
            if ratio > 10 and len(later) and float(np.median(later)) < 0.3 * float(reach[steps == of_step][0]):
                return "targets", {
                    "function": str(functions["function"][of_name][0]),
                    "ratio": ratio,
                    "of_step": of_step,
                }
    return "", {}


def _exceptional(steps: NDArray[np.int64], values: NDArray[np.float64], step: int) -> float:
    """Return how often the value of a step has the usual one before it; 0 if that is unknown."""
    at, is_before = steps == step, (steps < step) & np.isfinite(values)
    before, since = values[is_before][-_BEFORE:], steps[is_before][-_BEFORE:]
    if not at.any() or len(before) < UPDATES:
        return 0.0
    usual = float(np.median(before))
    if step - since[0] > 2 * _BEFORE:
        # Of a training that changes slowly, what was read long before is no longer usual.
        usual = max(usual, float(before[-1]))
    value = float(values[at][0])
    return value / usual if usual > 0 and math.isfinite(value) else 0.0


def too_fast(facts: Facts) -> Iterator[Finding]:
    """Find learning rates with which updates throw the loss up, or take each other back."""
    on_batch = [finding for finding in facts.derived(tried) if finding.rule == "learning-rate-too-large"]
    return iter(on_batch) if on_batch else itertools.chain(_thrown(facts), _swings(facts))


def _thrown(facts: Facts) -> Iterator[Finding]:
    """Find a loss that the first update multiplies, and that does not come back below its start."""
    steps, values = first_loss(facts)
    rates = facts["rates"]
    if len(values) < _LONG or not np.isfinite(values).all() or not len(rates) or not has_fixed_targets(facts):
        return
    first, last = float(values[0]), float(np.median(values[-_SWINGS:]))
    # A model that has learnt before begins low, and may rise to what is usual for another task.
    constant = list(constant_predictions(facts)[0].values())
    usual = max(first, float(np.median(constant))) if constant else math.nan
    if first <= 0 or not float(values[1:_AT_ONCE].min()) >= _THROWN * usual or last < 0.8 * first:
        return
    highest = int(values[:_SWINGS].argmax())
    described = {
        "optimizer": str(rates["optimizer"][0]),
        "rate": float(rates["rate"][0]),
        "first": first,
        "highest": float(values[highest]),
        "at": int(steps[highest]),
        "last": last,
    }
    where = {"line": facts.update_line, "optimizer": str(described["optimizer"])}
    yield Finding("learning-rate-too-large", "likely", int(steps[0]), "thrown", described, where)


def _swings(facts: Facts) -> Iterator[Finding]:
    """Find weights that each update takes back and forth in turns: the rate is too large."""
    table = facts["parameters"]
    _, values = first_loss(facts)
    if len(values) < 2 * _SWINGS or not np.isfinite(values).all() or len(table.steps) < _SWINGS:
        return
    turn, change, norm = (table.panel(name)[-_SWINGS:] for name in ("turn", "change", "norm"))
    is_measured = np.isfinite(turn) & np.isfinite(change) & np.isfinite(norm)
    moved = np.where(is_measured, change, 0) * np.nan_to_num(norm)
    totals = moved.sum(1)
    if (totals <= 0).any():
        return
    turns = (np.where(is_measured, turn, 0) * moved).sum(1) / totals
    # What is learnt already is no loss: Adam, for example, goes back and forth around a minimum.
    first, last = float(np.median(values[:5])), float(np.median(values[-_SWINGS:]))
    falls = last < 0.5 * first or last < 0.95 * float(np.median(values[-2 * _SWINGS : -_SWINGS]))
    if float(np.max(turns)) > -0.8 or falls:
        return
    rates = facts["rates"]
    rate = float(rates["rate"][-1]) if len(rates) else math.nan
    optimizer = str(rates["optimizer"][-1]) if len(rates) else "the optimizer"
    described = {
        "optimizer": optimizer,
        "rate": rate,
        "cosine": float(np.median(turns)),
        "steps": _SWINGS,
        "first": first,
        "last": last,
    }
    where = {"line": facts.update_line, "optimizer": optimizer}
    yield Finding("learning-rate-too-large", "likely", int(table.steps[-_SWINGS]), "swings", described, where)


def unbounded(facts: Facts) -> Iterator[Finding]:
    """Find a loss that falls below 0 faster and faster: nothing keeps it from falling."""
    steps, values = first_loss(facts)
    is_finite = np.isfinite(values)
    if not is_finite.all():
        # It may have fallen below all numbers.
        steps, values = steps[: int(np.argmin(is_finite))], values[: int(np.argmin(is_finite))]
    if len(values) < _LONG:
        return
    # Of long trainings, the steps that were kept are not evenly spaced.
    at = [int(np.searchsorted(steps, steps[-1] * share)) for share in (0.25, 0.5, 0.75)]
    smooth = [float(np.median(values[max(each - 5, 0) : each + 5])) for each in at]
    smooth.append(float(np.median(values[-10:])))
    begin, falls = float(np.median(values[:5])), -np.diff(smooth)
    if not (falls > 0).all() or falls[2] < 2 * falls[1] or falls[1] < 2 * falls[0]:
        return
    if not smooth[-1] < -10 * max(abs(begin), 1.0):
        return
    table = facts["loss_functions"]
    operator = str(table["function"][0]) if len(table) else str(facts["losses"]["function"][0])
    described = {"begin": begin, "half": smooth[1], "last": smooth[3], "steps": int(steps[-1])}
    where = {"operator": f"loss {operator}", "line": facts.loss_line}
    first = int(steps[np.flatnonzero(values < 0)[0]])
    yield Finding("loss-unbounded", "likely", first, "faster", described, where)


def scale_collapsed(facts: Facts) -> Iterator[Finding]:
    """Find a loss scale that falls and falls, below 1."""
    table = facts["steps"]
    scale = table["scale"] if len(table) else np.zeros(0)
    measured = np.flatnonzero(np.isfinite(scale))
    if len(measured) < UPDATES:
        return
    highest, last = float(scale[measured].max()), float(scale[measured[-1]])
    if highest < 64 or not 0 < last < 1:
        return
    low = measured[scale[measured] < 1]
    described = {"highest": highest, "last": last, "skipped": int(table["is_skipped"].sum()), "of": len(table)}
    step = int(table["step"][low[0]])
    yield Finding("scale-collapsed", "certain", step, "collapsed", described, {"optimizer": "GradScaler"})


_CAUSES = {
    "rate": (
        "in step {of_step} the learning rate of {group} was {ratio:.3g} times the usual one",
        "第 {of_step} 步中 {group} 的学习率是平时的 {ratio:.3g} 倍",
    ),
    "update": (
        "the update of step {of_step} was {ratio:.3g} times the usual size",
        "第 {of_step} 步的更新是平时的 {ratio:.3g} 倍",
    ),
    "batch": (
        "the inputs of {model} in step {of_step} reach {ratio:.3g} times as far as usual",
        "第 {of_step} 步中 {model} 的输入范围是平时的 {ratio:.3g} 倍",
    ),
    "targets": (
        "the targets of {function} in step {of_step} reach {ratio:.3g} times as far as usual",
        "第 {of_step} 步中 {function} 的目标范围是平时的 {ratio:.3g} 倍",
    ),
}
_NAN = (
    "the inputs of {model} hold NaN in step {of_step}: the data, or what prepares them, are at fault",
    "第 {of_step} 步中 {model} 的输入含有 NaN：问题在数据或其预处理",
)
_SINCE = (
    "The loss is {value} from step {step} on; it was {before:.4g} before",
    "损失从第 {step} 步起为 {value}；此前为 {before:.4g}",
)

RULES = (
    Rule(
        "loss-not-finite",
        "loss",
        ("losses",),
        not_finite,
        {
            **dict.fromkeys(
                ("start", "start_nan"), ("The loss is {value} from the first step on", "损失从第一步起就是 {value}")
            ),
            **dict.fromkeys(("since", "since_nan"), _SINCE),
            **{f"since_{cause}": _SINCE for cause in _CAUSES},
        },
        {
            **dict.fromkeys(
                ("start", "since"), ("in {count} of {read} steps that were read", "在读取的 {read} 步中有 {count} 步")
            ),
            **{f"since_{cause}": words for cause, words in _CAUSES.items()},
            **dict.fromkeys(("start_nan", "since_nan"), _NAN),
        },
        (
            "Let `tensight run --recommended` name the operator that is not finite first; try a tenth of the learning rate",
            "用 `tensight run --recommended` 找出最先产生非有限值的算子；将学习率降为十分之一试试",
        ),
        ("Single steps whose loss is not finite, and that are skipped.", "个别损失非有限且被跳过的步。"),
        frozenset(("zero-gradient", "updates-skipped", "scale-collapsed", "loss-rises")),
        35,
        of_log=logs.not_finite,
        advice_on={
            **dict.fromkeys(
                ("start_nan", "since_nan"),
                (
                    "Look for NaN in the data (torch.isnan), and at divisions and logarithms that prepare them",
                    "在数据中查找 NaN (torch.isnan)，并检查预处理中的除法和对数",
                ),
            ),
            "start": (
                "No update has caused it: let `tensight run --recommended` name the operator that is not finite first, and look"
                " at its inputs; in float16 all above 65,504 is infinite",
                "这不是更新造成的：用 `tensight run --recommended` 找出最先产生非有限值的算子并检查其输入；float16 中超过 65,504 即为无穷大",
            ),
        },
    ),
    Rule(
        "loss-jumps",
        "loss",
        ("losses", "loss_functions"),
        jumps,
        dict.fromkeys(
            _CAUSES,
            (
                "The loss jumps at step {step}: {level:.4g} before, {after:.4g} after it",
                "损失在第 {step} 步跳变：之前为 {level:.4g}，之后为 {after:.4g}",
            ),
        ),
        _CAUSES,
        (
            "Look at that batch and that update; clip gradients, or let the rate rise more slowly",
            "检查该批次和该次更新；裁剪梯度，或让学习率更慢地上升",
        ),
        (
            "Jumps that nothing exceptional precedes, as at the start of another task, and single batches.",
            "之前没有任何异常的跳变 (如换了任务)，以及个别批次。",
        ),
        frozenset(("loss-rises", "loss-stays")),
        38,
    ),
    Rule(
        "learning-rate-too-large",
        "learning-rate",
        ("losses", "parameters"),
        too_fast,
        {
            "thrown": (
                "The first updates of {optimizer} throw the loss up, from {first:.4g} to {highest:.4g} at step {at}: the learning"
                " rate {rate:.3g} is too large",
                "{optimizer} 的最初几次更新使损失从 {first:.4g} 升到第 {at} 步的 {highest:.4g}：学习率 {rate:.3g} 过大",
            ),
            "swings": (
                "Each update of {optimizer} takes back the one before: the learning rate {rate:.3g} is too large",
                "{optimizer} 的每次更新都抵消前一次：学习率 {rate:.3g} 过大",
            ),
            "tried": (
                "The learning rate {rate:.2g} of {optimizer} is too large: after {steps} steps the loss is {last:.4g}, at first"
                " {first:.4g}",
                "{optimizer} 的学习率 {rate:.2g} 过大：{steps} 步之后损失为 {last:.4g}，起初为 {first:.4g}",
            ),
        },
        {
            "tried": COURSE,
            "thrown": (
                "the loss is {last:.4g} at last, and was {first:.4g} at first",
                "损失最后为 {last:.4g}，起初为 {first:.4g}",
            ),
            "swings": (
                "cosine {cosine:.2f} between updates that follow each other, in the last {steps} steps; the loss is {last:.4g},"
                " at first {first:.4g}",
                "最后 {steps} 步中相邻两次更新之间的余弦为 {cosine:.2f}；损失为 {last:.4g}，起初为 {first:.4g}",
            ),
        },
        ("Try a third of it", "尝试其三分之一"),
        (
            "Weights that go back and forth while the loss falls, or after it has fallen to half; losses that come back below"
            " their start.",
            "损失仍在下降或已降到一半之后来回变化的权重；重新降到起初以下的损失。",
        ),
        frozenset(("loss-stays", "loss-rises", "loss-not-finite")),
        25,
        advice_on=dict.fromkeys(("thrown", "tried"), ("Try a tenth of it", "尝试其十分之一")),
    ),
    Rule(
        "loss-unbounded",
        "loss",
        ("losses",),
        unbounded,
        {
            "faster": (
                "The loss falls below 0 faster and faster, to {last:.3g}: nothing keeps it from falling",
                "损失越来越快地降到 0 以下，达到 {last:.3g}：没有什么阻止它下降",
            )
        },
        {
            "faster": (
                "{begin:.3g} at first, {half:.3g} after half of {steps} steps",
                "起初为 {begin:.3g}，{steps} 步的一半之后为 {half:.3g}",
            )
        },
        (
            "Look for a term that is subtracted, or that has no minimum: the sign of a divergence, scores where probabilities are"
            " expected",
            "查找被减去的项或没有最小值的项：散度的符号、需要概率却给了分数的地方",
        ),
        (
            "Likelihoods of densities, which fall below 0 more and more slowly.",
            "密度的似然，其降到 0 以下的速度越来越慢。",
        ),
        frozenset(("loss-rises", "loss-stays", "loss-not-finite")),
        28,
        of_log=unbounded,
    ),
    Rule(
        "scale-collapsed",
        "scaling",
        ("steps",),
        scale_collapsed,
        {
            "collapsed": (
                "The loss scale has fallen from {highest:.0f} to {last:.2g}: gradients are not finite whatever the scale is",
                "损失缩放系数从 {highest:.0f} 降到 {last:.2g}：无论缩放系数多大，梯度都不是有限值",
            ),
            "logged": (
                "The loss scale has fallen from {highest:.0f} to {last:.2g}, and stays there: gradients are not finite whatever the"
                " scale is",
                "损失缩放系数从 {highest:.0f} 降到 {last:.2g} 并停在那里：无论缩放系数多大，梯度都不是有限值",
            ),
            "ended": (
                "The loss scale falls from {highest:.0f} to {last:.2g} at step {step}, where the log ends: gradients are not finite"
                " whatever the scale is",
                "损失缩放系数在第 {step} 步从 {highest:.0f} 降到 {last:.2g}，日志在该处结束：无论缩放系数多大，梯度都不是有限值",
            ),
        },
        {"collapsed": ("{skipped} of {of} updates were skipped", "{of} 次更新中跳过了 {skipped} 次")},
        (
            "Look for what is not finite: `tensight run --recommended` names the operator",
            "查找非有限值的来源：`tensight run --recommended` 会给出算子",
        ),
        ("The first updates, with which a scale finds its size.", "最初的更新，缩放系数借此找到合适的大小。"),
        frozenset(("updates-skipped", "loss-stays")),
        4,
        of_log=logs.scale_collapsed,
    ),
)
