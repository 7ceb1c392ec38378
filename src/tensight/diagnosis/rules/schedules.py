"""Rules about learning rates and their schedules."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tensight.diagnosis.findings import Finding, folded
from tensight.diagnosis.rule import Rule
from tensight.diagnosis.rules import logs
from tensight.diagnosis.rules.stages import UPDATES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tensight.diagnosis.facts import Facts


def _groups(facts: Facts) -> Iterator[tuple[str, str, NDArray[np.int64], NDArray[np.float64], float]]:
    """Yield each group with its optimizer, the steps, its rates, and the rate with which a scheduler began."""
    table = facts["rates"]
    rates = table.panel("rate")
    steps = table.steps
    for at, name in enumerate(table.names):
        measured = np.flatnonzero(np.isfinite(rates[:, at]))
        if len(measured):
            of_name = table["name"] == name
            optimizer = str(table["optimizer"][of_name][0])
            yield (
                name,
                optimizer,
                steps[measured],
                rates[measured, at],
                float(table["initial_rate"][of_name][-1]),
            )


def rate_zero(facts: Facts) -> Iterator[Finding]:
    """Find groups whose learning rate is 0."""
    return folded(_zero(facts))


def _zero(facts: Facts) -> Iterator[Finding]:
    for name, optimizer, steps, rates, _ in _groups(facts):
        zero = rates == 0
        if not zero[-1]:
            continue
        since = len(zero) - int(np.argmin(zero[::-1])) if not zero.all() else 0
        count = int(facts.last_step - steps[since]) + 1
        if count < UPDATES or (facts.is_over and since and count < max(UPDATES, 0.05 * facts.last_step)):
            continue
        step = int(steps[since])
        message = "never" if since == 0 else "ended"
        schedule = _schedule_of(facts, optimizer)
        values = {"group": name, "step": step, "count": count, "schedule": schedule or "its schedule"}
        yield Finding("learning-rate-zero", "certain", step, message, values, {"optimizer": name, "schedule": schedule})


def _schedule_of(facts: Facts, optimizer: str) -> str:
    table = facts["schedules"]
    names = table["name"][table["optimizer"] == optimizer]
    return str(names[-1]) if len(names) else ""


def schedule_over(facts: Facts) -> Iterator[Finding]:
    """Find schedules that are stepped past their end, so that the rate goes back up."""
    table = facts["schedules"]
    for name in table.names:
        of_name = table["name"] == name
        position, length = table["position"][of_name], table["length"][of_name]
        steps = table["step"][of_name]
        past = (length > 0) & (position > length)
        if name != "CosineAnnealingLR" or not past.any():
            continue
        at = int(np.flatnonzero(past)[0])
        updates = int(steps[-1] - steps[0]) or 1
        per_update = (int(position[-1]) - int(position[0])) / updates
        values = {
            "schedule": name,
            "length": int(length[at]),
            "position": int(position[-1]),
            "per_update": per_update,
            "step": int(steps[at]),
        }
        where = {"schedule": name, "optimizer": str(table["optimizer"][of_name][0])}
        yield Finding("schedule-over", "likely", int(steps[at]), "past", values, where)


def follows_wrong_way(facts: Facts) -> Iterator[Finding]:
    """Find a schedule that waits for a measure to rise, although that is a loss."""
    table, losses = facts["schedules"], facts["losses"]
    for name in table.names:
        of_name = table["name"] == name
        best, mode = float(table["best"][of_name][-1]), str(table["mode"][of_name][-1])
        optimizer = str(table["optimizer"][of_name][0])
        rates = next((given for _, other, _, given, _ in _groups(facts) if other == optimizer), np.zeros(0))
        if mode != "max" or not math.isfinite(best) or not len(losses) or len(rates) < UPDATES:
            continue
        values_of = losses["value"][np.isfinite(losses["value"])]
        falls = int((np.diff(rates) < 0).sum())
        is_loss = len(values_of) > 0 and values_of.min() <= best <= 1.2 * values_of.max()
        if is_loss and falls and values_of[-1] < best:
            values = {
                "schedule": name,
                "best": best,
                "last": float(values_of[-1]),
                "falls": falls,
                "rate": float(rates[-1]),
            }
            where = {"schedule": name, "optimizer": optimizer}
            yield Finding("schedule-mode", "likely", int(losses["step"][0]), "max", values, where)


def rate_collapsed(facts: Facts) -> Iterator[Finding]:
    """Find rates that a schedule has brought down by orders of magnitude long before the end."""
    return folded(_collapsed(facts))


def _collapsed(facts: Facts) -> Iterator[Finding]:
    for name, optimizer, steps, rates, _ in _groups(facts):
        measured = rates > 0
        if measured.sum() < 2 * UPDATES:
            continue
        # A rate that is high in single steps has not fallen from there.
        highest = float(np.sort(rates)[-UPDATES])
        is_low = measured & (rates < 1e-3 * highest)
        if not is_low[-1]:
            continue
        # A rate that has been as low before and risen again, as in cycles, has not come to its end there.
        first = len(is_low) - int(np.argmin(is_low[::-1]))
        step = int(steps[first])
        # Of a training in stages, each may have an optimizer of its own.
        left = int(steps[-1]) - step
        if left < max(20, 0.25 * int(steps[-1] - steps[0])):
            continue
        schedule = _schedule_of(facts, optimizer)
        if not schedule and len(np.unique(rates)) <= 2:
            # Nothing brings it down: it was set, as for a second stage.
            continue
        values = {
            "group": name,
            "step": step,
            "rate": float(rates[first]),
            "highest": float(rates[0]) if rates[0] == rates.max() else highest,
            "left": left,
            "schedule": schedule or "a schedule",
        }
        where = {"optimizer": name, "schedule": schedule}
        yield Finding("learning-rate-collapsed", "likely", step, "collapsed", values, where)


def rate_never_rose(facts: Facts) -> Iterator[Finding]:
    """Find warm-ups that are never stepped, or so rarely that the training is over before they are."""
    return folded(_never_rose(facts))


def _never_rose(facts: Facts) -> Iterator[Finding]:
    schedules = facts["schedules"]
    if not len(schedules) or facts.last_step < 10:
        return
    positions, lengths = schedules.last("position"), schedules.last("length")
    for name, optimizer, steps, rates, initial in _groups(facts):
        schedule = _schedule_of(facts, optimizer)
        if not schedule or not math.isfinite(initial) or initial <= 0:
            continue
        position = int(positions[schedule])
        values = {
            "group": name,
            "rate": float(rates[-1]),
            "initial": initial,
            "schedule": schedule,
            "steps": facts.last_step,
            "position": position,
            "length": lengths[schedule],
        }
        where = {"optimizer": name, "schedule": schedule}
        is_low = (rates <= 0.2 * initial).all()
        if position <= 0 and is_low and (rates == rates[0]).all():
            yield Finding("schedule-not-stepped", "likely", int(steps[0]), "never", values, where)
        elif schedule == "OneCycleLR" and position <= 0 and _counts_updates(facts, lengths[schedule]):
            # Its beginning is what the optimizer has as its first rate.
            yield Finding("schedule-not-stepped", "likely", int(steps[0]), "cycle", values, where)
        elif is_low and facts.is_over and (np.diff(rates) > 0).all() and facts.last_step >= 20:
            yield Finding("schedule-not-stepped", "likely", int(steps[0]), "long", values, where)
        elif is_low and (np.diff(rates) >= 0).all() and position <= 0.2 * facts.last_step >= 10:
            yield Finding("schedule-not-stepped", "likely", int(steps[0]), "rarely", values, where)


def _counts_updates(facts: Facts, length: int) -> bool:
    """Whether a schedule is as long as some epochs of updates."""
    steps = facts["steps"]
    batches = int(steps["batches"].max()) if len(steps) else -1
    return 1 < batches <= length and length % batches == 0


def wrong_unit(facts: Facts) -> Iterator[Finding]:
    """Find schedules that count epochs, as it seems, and are stepped with each update."""
    table, steps = facts["schedules"], facts["steps"]
    batches = int(steps["batches"].max()) if len(steps) else -1
    for name in table.names:
        of_name = table["name"] == name
        last, position = int(table["last_milestone"][of_name][-1]), int(table["position"][of_name][-1])
        per_update = position / max(int(table["step"][of_name][-1]), 1)
        # All of its changes fall into the first epoch.
        if last <= 0 or batches < 4 or last >= batches or per_update < 0.8 or position <= last:
            continue
        values = {"schedule": name, "last": last, "batches": batches, "position": position}
        where = {"schedule": name, "optimizer": str(table["optimizer"][of_name][0])}
        yield Finding("schedule-unit", "likely", int(table["step"][of_name][0]), "epochs", values, where)


RULES = (
    Rule(
        "learning-rate-zero",
        "learning-rate",
        ("rates",),
        rate_zero,
        {
            "never": (
                "The learning rate of {group} is 0 from the first update on",
                "{group} 的学习率从第一次更新起就是 0",
            ),
            "ended": ("The learning rate of {group} is 0 from step {step} on", "{group} 的学习率从第 {step} 步起为 0"),
            "tiny": (
                "The learning rate {group} is at most {highest:.2g} in the whole log: no weight changes by so little",
                "学习率 {group} 在整个日志中至多为 {highest:.2g}：不会有权重因此变化",
            ),
            "never_logged": ("The learning rate {group} is 0 in the whole log", "学习率 {group} 在整个日志中都是 0"),
            "ended_logged": (
                "The learning rate {group} is 0 from step {step} on, and the training goes on",
                "学习率 {group} 从第 {step} 步起为 0，而训练仍在继续",
            ),
        },
        {
            "never": ("{count} updates with rate 0", "{count} 次更新的学习率为 0"),
            "ended": (
                "{count} updates with rate 0; {schedule} set it",
                "{count} 次更新的学习率为 0；由 {schedule} 设置",
            ),
            **dict.fromkeys(("tiny", "never_logged", "ended_logged"), ("in {count} entries", "共 {count} 条记录")),
        },
        (
            "Check how often the scheduler is stepped, and for how many steps it was made",
            "检查调度器的 step 次数以及创建时给定的总步数",
        ),
        ("A rate of 0 in the first one or two updates of a warm-up.", "预热的前一两次更新中的学习率 0。"),
        frozenset(("update-lost", "loss-stays", "schedule-over")),
        10,
        of_log=logs.rate_zero,
        advice_on={
            "never": (
                "Look where the rate comes from: a setting, a schedule, or a checkpoint of a schedule that had ended"
                " (load_state_dict takes over its rates)",
                "检查学习率的来源：设置、调度器，或调度已结束的检查点 (load_state_dict 会恢复其学习率)",
            )
        },
    ),
    Rule(
        "schedule-over",
        "learning-rate",
        ("schedules",),
        schedule_over,
        {
            "past": (
                "{schedule} was made for {length} steps, and goes on past them from step {step}: the rate rises again",
                "{schedule} 的长度为 {length}，从第 {step} 步起已超出：学习率重新上升",
            ),
            "logged": (
                "The learning rate {group} comes down to {lowest:.2g} at step {step}, as at the end of a schedule, and rises again",
                "学习率 {group} 在第 {step} 步降到 {lowest:.2g} (如同调度结束)，之后重新上升",
            ),
        },
        {
            "past": (
                "it is at {position} of {length}, stepped {per_update:.2g} times for each update",
                "当前位置 {position}，长度 {length}，每次更新 step {per_update:.2g} 次",
            ),
            "logged": (
                "it was {highest:.2g} at most, and is {last:.2g} at last",
                "最高为 {highest:.2g}，最后为 {last:.2g}",
            ),
        },
        (
            "Step it once for each epoch if T_max counts epochs, or give T_max in updates",
            "如果 T_max 以 epoch 计，则每个 epoch 只 step 一次，或以更新次数给出 T_max",
        ),
        ("Schedules with restarts (CosineAnnealingWarmRestarts).", "带重启的调度 (CosineAnnealingWarmRestarts)。"),
        frozenset(("loss-stays",)),
        20,
        of_log=logs.rate_rises_again,
    ),
    Rule(
        "learning-rate-collapsed",
        "learning-rate",
        ("rates",),
        rate_collapsed,
        {
            "collapsed": (
                "The learning rate of {group} has fallen to {rate:.2g} at step {step}, from {highest:.2g}, and training"
                " goes on for {left} steps and more",
                "{group} 的学习率在第 {step} 步已从 {highest:.2g} 降到 {rate:.2g}，而训练还继续了至少 {left} 步",
            ),
            "logged": (
                "The learning rate {group} has fallen to {rate:.2g} at step {step}, from {highest:.2g}: hardly anything is learnt"
                " in the rest of the log",
                "学习率 {group} 在第 {step} 步已从 {highest:.2g} 降到 {rate:.2g}：日志的其余部分几乎学不到东西",
            ),
        },
        {"collapsed": ("{schedule} sets it", "由 {schedule} 设置")},
        (
            "Check whether the scheduler is stepped for each batch although it counts epochs",
            "检查调度器是否按 batch 而不是按 epoch 调用 step",
        ),
        ("Schedules that end with the training.", "与训练同时结束的调度。"),
        frozenset(
            (
                "update-lost",
                "loss-stays",
            )
        ),
        22,
        of_log=logs.rate_collapsed,
    ),
    Rule(
        "schedule-not-stepped",
        "learning-rate",
        ("rates", "schedules"),
        rate_never_rose,
        {
            "never": (
                "{schedule} is never stepped: {group} stays at rate {rate:.2g}, the beginning of its warm-up",
                "{schedule} 从未被 step：{group} 一直停在预热起点的学习率 {rate:.2g}",
            ),
            "cycle": (
                "{schedule} is never stepped: {group} stays at rate {rate:.2g}, at which the cycle begins",
                "{schedule} 从未被 step：{group} 一直停在周期起点的学习率 {rate:.2g}",
            ),
            "long": (
                "The warm-up of {schedule} is longer than the training: after {steps} updates {group} has come to rate {rate:.2g}"
                " only",
                "{schedule} 的预热比训练还长：{steps} 次更新后 {group} 的学习率只到 {rate:.2g}",
            ),
            "rarely": (
                "{schedule} was stepped {position} times in {steps} updates: {group} has come to rate {rate:.2g} only",
                "{schedule} 在 {steps} 次更新中只 step 了 {position} 次：{group} 的学习率只到 {rate:.2g}",
            ),
            "logged": (
                "The warm-up is longer than the training: the learning rate {group} rises to the end of the log, to {rate:.2g}",
                "预热比训练还长：学习率 {group} 一直上升到日志末尾，为 {rate:.2g}",
            ),
        },
        {
            "cycle": (
                "{steps} updates; it was made for {length} of them",
                "{steps} 次更新；该调度为 {length} 次更新而创建",
            ),
            "long": ("the full rate is {initial:.2g}", "完整学习率为 {initial:.2g}"),
            "never": ("{steps} updates; the full rate is {initial:.2g}", "{steps} 次更新；完整学习率为 {initial:.2g}"),
            "rarely": ("the full rate is {initial:.2g}", "完整学习率为 {initial:.2g}"),
        },
        ("Call scheduler.step() after each update", "每次更新后调用 scheduler.step()"),
        ("Schedules that begin with the full rate and count epochs.", "以完整学习率开始并按 epoch 计数的调度。"),
        frozenset(("loss-stays", "learning-rate-zero", "update-lost")),
        8,
        of_log=logs.never_warm,
        advice_on={
            **dict.fromkeys(("long", "logged"), ("Make the warm-up shorter than the training", "让预热比训练短")),
            "rarely": (
                "Call scheduler.step() after each update, or give the warm-up in the epochs in which it is stepped",
                "每次更新后调用 scheduler.step()，或按其 step 的单位 (epoch) 给出预热长度",
            ),
        },
    ),
    Rule(
        "schedule-mode",
        "learning-rate",
        ("schedules", "losses"),
        follows_wrong_way,
        {
            "max": (
                "{schedule} waits for the loss to rise (mode max), and lowers the rate although it falls",
                "{schedule} 等待损失上升 (mode max)，虽然损失在下降却降低学习率",
            )
        },
        {
            "max": (
                "its best value is {best:.4g}, the loss is {last:.4g} at last; the rate was lowered {falls} times, to {rate:.2g}",
                "其最佳值为 {best:.4g}，损失最后为 {last:.4g}；学习率降低了 {falls} 次，到 {rate:.2g}",
            )
        },
        ("Use mode='min' for a loss", "对损失使用 mode='min'"),
        ("Schedules that follow an accuracy.", "跟随准确率的调度。"),
        frozenset(("loss-stays", "learning-rate-collapsed")),
        18,
    ),
    Rule(
        "schedule-unit",
        "learning-rate",
        ("schedules", "steps"),
        wrong_unit,
        {
            "epochs": (
                "{schedule} is stepped with each update, and its last change is at {last}, within the first of the epochs, which"
                " have {batches} batches",
                "{schedule} 每次更新都 step，而其最后一次变化在 {last}，处于第一个 epoch 之内 (每个 epoch 有 {batches} 个批次)",
            )
        },
        {"epochs": ("it is at {position} now", "当前位置为 {position}")},
        (
            "Step it once for each epoch, or give its milestones in updates",
            "每个 epoch 只 step 一次，或以更新次数给出里程碑",
        ),
        ("Schedules that go on changing after the first epoch.", "在第一个 epoch 之后仍会变化的调度。"),
        frozenset(("loss-stays", "learning-rate-collapsed")),
        18,
    ),
)
