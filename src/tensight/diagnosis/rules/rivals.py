"""Rules about two models one of which judges the other, or whose losses are computed from each other's outputs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tensight.diagnosis.findings import Finding
from tensight.diagnosis.rule import Rule
from tensight.diagnosis.rules.stages import UPDATES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensight.diagnosis.facts import Facts


_CERTAIN, _LONG = 2.0, 20
"""Least logit of an answer that is certain, 88 %; and number of steps in which all answers must be."""


def generator_target(facts: Facts) -> Iterator[Finding]:
    """Find generators that are trained towards the answer that a discriminator is to give for what they make."""
    table = facts["loss_functions"]
    is_logistic = table["function"] == "logistic"
    is_answer = ((table["target_distinct"] == 1) | is_logistic) & (table["factor"] > 0)
    given_by, leads_on = table["given_by"], table["leads_on"]
    target = np.where(is_logistic, table["answer"], table["target_min"])
    for generator in dict.fromkeys(given_by[is_answer & leads_on].tolist()):
        of_generator = is_answer & (given_by == generator)
        trained, detached = of_generator & leads_on, of_generator & ~leads_on
        real = is_answer & (given_by == "")
        if min(len(set(table["step"][rows].tolist())) for rows in (trained, detached, real)) < UPDATES:
            continue
        targets = [set(target[rows].tolist()) for rows in (trained, detached, real)]
        functions = {str(name) for name in table["function"][trained | detached | real].tolist()}
        if len(functions) > 1 or any(len(each) > 1 for each in targets):
            continue
        if targets[0] != targets[1] or targets[1] == targets[2]:
            continue
        row = int(np.flatnonzero(trained)[0])
        function, line = str(table["function"][row]), str(table["line"][row])
        values = {
            "generator": generator,
            "function": function,
            "answer": float(targets[0].pop()),
            "other": float(targets[2].pop()),
            "steps": len(set(table["step"][trained].tolist())),
        }
        where = {"module": generator, "operator": function, "line": line, "argument": "target"}
        yield Finding("generator-target", "certain", int(table["step"][row]), "generated", values, where)


def certain_discriminator(facts: Facts) -> Iterator[Finding]:
    """Find discriminators that tell all samples apart with certainty, so that generators learn next to nothing."""
    table = facts["loss_functions"]
    is_logistic = table["function"] == "logistic"
    is_answer = np.isin(table["function"], ("bce", "bce_with_logits")) & (table["target_distinct"] == 1) | is_logistic
    lowest, highest = table["input_min"], table["input_max"]
    target = np.where(is_logistic, table["answer"], table["target_mean"])
    is_logit = (table["function"] == "bce_with_logits") | is_logistic
    limit = np.where(is_logit, _CERTAIN, 1 / (1 + math.exp(-_CERTAIN)))
    is_certain = np.where(target >= 0.5, lowest > limit, highest < np.where(is_logit, -limit, 1 - limit))
    for generator in dict.fromkeys(table["given_by"][is_answer & table["leads_on"]].tolist()):
        rows = is_answer & ~table["leads_on"] & np.isin(table["given_by"], ("", generator))
        steps = np.array(sorted(set(table["step"][rows].tolist())), np.int64)
        certain = np.array(
            [bool(is_certain[rows & (table["step"] == step)].all()) for step in steps.tolist()], np.bool_
        )
        if len(steps) < 2 * _LONG or len({*target[rows].tolist()}) < 2 or not certain[-_LONG:].all():
            continue
        since = len(steps) - int(np.argmax(~certain[::-1])) if not certain.all() else 0
        if steps[since] > (steps[0] + steps[-1]) / 2:
            continue
        values = {"generator": generator, "step": int(steps[since]), "steps": len(steps) - since}
        line = next(filter(None, table["line"][rows].tolist()), "")
        where = {"module": generator, "operator": str(table["function"][rows][0]), "line": line}
        yield Finding("discriminator-certain", "likely", int(steps[since]), "certain", values, where)


def differentiated_advantage(facts: Facts) -> Iterator[Finding]:
    """Find policies whose loss is differentiated through the estimate of the value, too."""
    table = facts["loss_functions"]
    rows = table["function"] == "policy_gradient"
    steps = sorted(set(table["step"][rows].tolist()))
    if len(steps) < UPDATES:
        return
    line = next(filter(None, table["line"][rows].tolist()), "")
    values = {"steps": len(steps)}
    yield Finding("advantage-attached", "likely", steps[0], "attached", values, {"operator": "mul", "line": line})


RULES = (
    Rule(
        "generator-target",
        "targets",
        ("loss_functions.given_by",),
        generator_target,
        {
            "generated": (
                "{generator} is trained to be recognised: its target is {answer:.3g}, as that of the discriminator for what it"
                " makes",
                "{generator} 被训练成容易被识破：它的目标是 {answer:.3g}，与判别器对其产物的目标相同",
            )
        },
        {
            "generated": (
                "in {steps} steps that were read; for real samples the target of {function} is {other:.3g}",
                "在读取的 {steps} 步中；对真实样本 {function} 的目标是 {other:.3g}",
            )
        },
        (
            "Give its loss the target of real samples, or negate it",
            "为它的损失使用真实样本的目标，或取负",
        ),
        (
            "Losses without targets, as those of Wasserstein or hinge, and targets that differ from step to step.",
            "没有目标的损失 (如 Wasserstein 或 hinge)，以及逐步不同的目标。",
        ),
        frozenset(("loss-stays",)),
        10,
    ),
    Rule(
        "discriminator-certain",
        "loss",
        ("loss_functions.given_by",),
        certain_discriminator,
        {
            "certain": (
                "Since step {step} the discriminator tells each real sample from each one of {generator} with certainty: the generator"
                " hardly learns from it",
                "从第 {step} 步起判别器完全确定地区分每个真实样本与 {generator} 的每个样本：生成器几乎学不到东西",
            )
        },
        {
            "certain": (
                "all its answers are above 88 % or below 12 % in {steps} steps that were read",
                "在读取的 {steps} 步中，它的所有回答都高于 88 % 或低于 12 %",
            )
        },
        (
            "Train the discriminator less often or with a smaller rate, give it dropout or a gradient penalty, or smooth its targets",
            "减少判别器的更新次数或降低其学习率，加入 dropout 或梯度惩罚，或平滑它的目标",
        ),
        (
            "Discriminators that are certain for less than half of the training, and losses of Wasserstein or hinge.",
            "确定状态不到训练一半的判别器，以及 Wasserstein 或 hinge 损失。",
        ),
        frozenset(("loss-rises",)),
        40,
    ),
    Rule(
        "advantage-attached",
        "gradient-cut",
        ("loss_functions",),
        differentiated_advantage,
        {
            "attached": (
                "The loss of the policy is differentiated through the advantage, too: the value is trained to make the loss of"
                " the policy small",
                "策略的损失也通过优势求导：价值被训练成使策略的损失变小",
            )
        },
        {
            "attached": (
                "in {steps} steps that were read a logarithm of a probability is multiplied by a difference that leads to"
                " weights",
                "在读取的 {steps} 步中，对数概率乘以一个与权重相连的差",
            )
        },
        (
            "Multiply by advantage.detach(); the value has a loss of its own",
            "乘以 advantage.detach()；价值有自己的损失",
        ),
        (
            "Advantages that are detached, and products with probabilities themselves.",
            "已 detach 的优势，以及与概率本身的乘积。",
        ),
        frozenset(("loss-stays",)),
        25,
    ),
)
