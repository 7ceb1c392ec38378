"""Rules about learning rates beside others that were tried on one batch."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from tensight.diagnosis.findings import Finding
from tensight.diagnosis.rule import Rule
from tensight.diagnosis.rules.losses import constant_predictions, first_loss, guess_of_classes, has_fixed_targets
from tensight.diagnosis.rules.updates import without_effect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensight.diagnosis.facts import Facts

_LONG = 60
"""Number of steps after which a loss should have begun to fall."""

_NO_BETTER = 0.95
"""Share of the loss of a constant prediction above which nothing has been learnt."""

_UNMOVED = 0.1
"""Share of the loss that it may have fallen by, and might fall by on one batch in as many updates, without learning."""

_SAME = 1.5
"""How many times the rate that was tried a rate may be that is no other one."""

_RISEN = 1.05


def tried(facts: Facts) -> Iterator[Finding]:
    """Yield findings about rates with which nothing is learnt, and with multiples of which the loss of a batch falls."""
    row = next(
        (row for row in facts["probes"].rows() if row["probe"] == "rates" and math.isfinite(row["factor"])), None
    )
    steps, values = first_loss(facts)
    rates = facts["rates"]
    if row is None or len(values) < _LONG or not has_fixed_targets(facts) or not _is_plain(facts):
        return
    at_first = rates["rate"][rates["step"] == rates["step"].min()]
    if len(set(at_first.tolist())) != 1:
        return
    rate = float(at_first[0])
    length = max(len(values) // 5, 10)
    first, last = float(values[:length].mean()), float(values[-length:].mean())
    baseline = _baseline(facts, int(steps[-1]), first)
    described = {
        **{name: row[name] for name in ("scale", "change", "count", "factor", "other")},
        "optimizer": str(rates["optimizer"][0]),
        "rate": rate,
        "first": first,
        "last": last,
        "steps": int(steps[-1]),
    }
    where = {"line": facts.update_line, "optimizer": str(rates["optimizer"][0])}
    if row["factor"] > 1:
        pace = max(row["scale"] - row["change"], 0.0) / row["count"]
        is_slow = pace * int(steps[-1]) <= _UNMOVED * row["scale"] and first - last <= _UNMOVED * first
        highest = max(rates["rate"].max(), 0.0 if _is_scheduled(facts) else np.nan_to_num(rates["initial_rate"]).max())
        if is_slow and last >= _NO_BETTER * baseline and highest <= _SAME * rate:
            yield Finding("learning-rate-too-small", "likely", int(steps[0]), "tried", described, where)
    else:
        is_high = not last < _NO_BETTER * (baseline if math.isfinite(baseline) else float(values[0]))
        is_risen = not row["change"] < _RISEN * row["scale"]
        if is_high and is_risen and float(rates["rate"][-1]) * _SAME >= rate:
            yield Finding("learning-rate-too-large", "likely", int(steps[0]), "tried", described, where)


def _is_plain(facts: Facts) -> bool:
    """Whether each update is that of one optimizer with the gradients of one backward pass, as where it was tried."""
    groups, steps = facts["groups"], facts["steps"]
    optimizers = set(groups["optimizer"].tolist())
    # The size of gradients matters little to optimizers such as Adam.
    is_clipped = bool((steps["clips"] > 0).any()) and not all("adam" in each.lower() for each in optimizers)
    is_single = len(optimizers) == 1 and int(groups["backward_passes"].max()) <= 1
    return is_single and not is_clipped and not np.isfinite(steps["scale"]).any()


def _is_scheduled(facts: Facts) -> bool:
    """Whether schedules have long been stepped: a rate that is lower than their first one will stay so."""
    positions = facts["schedules"].last("position").values()
    return bool(positions) and min(positions) >= _LONG


def _baseline(facts: Facts, last_step: int, first: float) -> float:
    """Return the loss of a prediction that knows nothing of the inputs; NaN if that is unknown."""
    constant = [loss for step, loss in constant_predictions(facts)[0].items() if step > last_step / 2]
    if constant:
        return float(np.mean(constant))
    guess = guess_of_classes(facts)
    # A loss that begins lower than that of a guess is of a model that has learnt before.
    return guess if abs(first - guess) < _UNMOVED * guess else math.nan


def too_small(facts: Facts) -> Iterator[Finding]:
    """Find learning rates with which nothing is learnt, and with multiples of which the loss of a batch falls."""
    findings = itertools.chain(facts.derived(tried), facts.derived(without_effect))
    return itertools.islice((each for each in findings if each.rule == "learning-rate-too-small"), 1)


COURSE = (
    "{count} updates on one batch take its first loss from {scale:.4g} to {change:.4g}, and with {factor:g} times the rate to"
    " {other:.4g}",
    "在一个批次上更新 {count} 次，其最初的损失从 {scale:.4g} 变为 {change:.4g}；学习率乘以 {factor:g} 则变为 {other:.4g}",
)
"""Evidence for both rules."""

RULES = (
    Rule(
        "learning-rate-too-small",
        "learning-rate",
        ("rates", "losses"),
        too_small,
        {
            "rounded": (
                "The learning rate {rate:.2g} of {optimizer} is too small: next to {typical:.3g}, numbers of float32 are {spacing:.2g}"
                " apart, so that {names} do not change at all",
                "{optimizer} 的学习率 {rate:.2g} 过小：在 {typical:.3g} 附近 float32 的间隔为 {spacing:.2g}，因此 {names} 完全不变",
            ),
            "tried": (
                "The learning rate {rate:.2g} of {optimizer} is too small: after {steps} steps the loss is {last:.4g}, as at"
                " first ({first:.4g})",
                "{optimizer} 的学习率 {rate:.2g} 过小：{steps} 步之后损失为 {last:.4g}，与起初 ({first:.4g}) 相当",
            ),
        },
        {
            "tried": COURSE,
            "rounded": ("an update by {optimizer} is about the rate", "{optimizer} 的一次更新约为学习率"),
        },
        (
            "Try larger ones, each ten times the one before; look whether a setting or a schedule has made it so small",
            "尝试更大的学习率，每次乘以十；检查是否有设置或调度器使其变得这么小",
        ),
        (
            "Rates that rise in the course of the training, losses that fall, or are those of a model that has learnt"
            " already, and targets that are computed.",
            "在训练过程中上升的学习率，正在下降或属于已学会的模型的损失，以及由计算得到的目标。",
        ),
        frozenset(("loss-stays", "update-lost")),
        24,
    ),
)
