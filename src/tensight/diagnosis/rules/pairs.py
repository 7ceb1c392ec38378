"""Rules about losses that compare outputs with each other: of two views, or of two kinds of things."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tensight.diagnosis.findings import Finding
from tensight.diagnosis.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensight.diagnosis.facts import Facts

_SETTLED = 5
_MASKED = -1000.0
"""A score below which a pair is left out, as that of a sample with itself."""

_LEAST_CLASSES = 4
_OUT_OF_REACH = 0.5
"""Share of the loss of a guess below which a loss should be able to fall."""


def equal_views(facts: Facts) -> Iterator[Finding]:
    """Find losses of pairs whose two sides are the same: the model is given the same twice."""
    calls, functions = facts["calls"], facts["loss_functions"]
    of_pairs = functions["is_of_pairs"] | functions["is_of_equals"]
    steps = np.unique(functions["step"][of_pairs])
    for name in calls.names:
        is_read = (calls["name"] == name) & calls["is_trained"] & np.isin(calls["step"], steps)
        is_twice = calls["is_twice"][is_read]
        if len(is_twice) < _SETTLED or not is_twice.all():
            continue
        row = int(np.flatnonzero(of_pairs)[0])
        function, line = str(functions["function"][row]), str(functions["line"][row])
        values = {"model": name, "steps": len(is_twice), "function": function}
        where = {"module": name, "input": name, "operator": function, "line": line}
        yield Finding("views-are-equal", "likely", int(calls["step"][is_read][0]), "equal", values, where)


def confined(facts: Facts) -> Iterator[Finding]:
    """Find similarities that are multiplied by so small a number that the loss cannot fall."""
    table = facts["loss_functions"]
    for name in table.names:
        rows = (table["name"] == name) & (table["function"] == "cross_entropy") & np.isfinite(table["pair_scale"])
        if rows.sum() < _SETTLED or rows.sum() < (table["name"] == name).sum():
            continue
        scales, classes = table["pair_scale"][rows], int(table["classes"][rows].min())
        scale = float(scales.max())
        # Of vectors of length 1, products are between -1 and 1.
        lowest = math.log1p((classes - 1) * math.exp(-2 * scale)) if scale > 0 and classes >= _LEAST_CLASSES else 0.0
        guess = math.log(max(classes, 1))
        if not lowest > _OUT_OF_REACH * guess:
            continue
        line, steps = str(table["line"][rows][0]), table["step"][rows]
        values = {
            "scale": scale,
            "lowest": lowest,
            "guess": guess,
            "classes": classes,
            "steps": len(set(steps.tolist())),
        }
        where = {"operator": "mul, cross_entropy", "line": line}
        message = "plain" if scale == 1 else "scale"
        yield Finding("similarities-confined", "certain", int(steps[0]), message, values, where)
        return


RULES = (
    Rule(
        "views-are-equal",
        "data",
        ("calls.is_twice", "loss_functions"),
        equal_views,
        {
            "equal": (
                "Both sides of the pairs are the same: {model} is given the same input twice, and puts out the same",
                "成对的两侧完全相同：{model} 两次得到相同的输入，输出也相同",
            )
        },
        {
            "equal": (
                "in each of {steps} steps that were read; {function} then compares an output with itself",
                "在读取的 {steps} 步中每一步都是如此；{function} 于是把输出与其自身比较",
            )
        },
        (
            "Draw the two views apart: call the augmentation once for each, on the batch before it was augmented",
            "分别生成两个视图：对增强之前的批次各调用一次数据增强",
        ),
        (
            "Equal inputs whose outputs differ, as by dropout, and losses that compare no outputs with each other.",
            "输入相同而输出不同 (如因 dropout) 的情形，以及不把输出相互比较的损失。",
        ),
        frozenset(("outputs-collapse",)),
        20,
    ),
    Rule(
        "similarities-confined",
        "output-and-loss",
        ("loss_functions.pair_scale",),
        confined,
        {
            "scale": (
                "Cosines are multiplied by {scale:.3g} before cross_entropy: its loss cannot fall below {lowest:.3g}, however"
                " well the pairs match",
                "余弦在 cross_entropy 之前乘以 {scale:.3g}：无论配对多好，损失都不会低于 {lowest:.3g}",
            ),
            "plain": (
                "Cosines go into cross_entropy without a temperature: its loss cannot fall below {lowest:.3g}, however well the"
                " pairs match",
                "余弦未经温度缩放就进入 cross_entropy：无论配对多好，损失都不会低于 {lowest:.3g}",
            ),
        },
        dict.fromkeys(
            ("scale", "plain"),
            (
                "of {classes} candidates each, a guess gives {guess:.3g}; in {steps} steps that were read",
                "每个有 {classes} 个候选，猜测的损失为 {guess:.3g}；在读取的 {steps} 步中",
            ),
        ),
        (
            "Divide by a temperature (0.07 makes scores up to 14), or multiply by exp() of a learnt logarithm of about 2.6",
            "应除以温度 (0.07 使分数达到 14)，或乘以所学对数 (约 2.6) 的 exp()",
        ),
        (
            "Products of vectors that are not normalized, and temperatures that grow while they are learnt.",
            "未归一化向量的乘积，以及在学习中增大的温度。",
        ),
        frozenset(("loss-stays",)),
        15,
    ),
)
