"""Rules about the weights that a loss gives to classes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.diagnosis.rules.loss_functions import finding_of, functions_of, rule_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensight.diagnosis.facts import Facts
    from tensight.diagnosis.findings import Finding

_UNEVEN = 3.0
"""How many times as frequent as the rarest class the most frequent one is where weights should even that out."""

_PROPORTIONAL = 0.4
"""Distance of the exponent with which weights grow with the numbers of the samples from 1, that of weights in proportion."""

_FIT = 0.95
"""Correlation of the logarithms of both from which on it is no chance."""


def turned_around(facts: Facts) -> Iterator[Finding]:
    """Find weights that grow with how frequent a class is, in place of making up for it."""
    for _, rows in functions_of(facts):
        sentence = _of_classes(rows) or _of_labels(rows)
        if sentence is not None:
            message, values = sentence
            yield finding_of("weights-of-classes", "likely", rows, message, **values)


def _of_classes(rows: list[dict[str, Any]]) -> tuple[str, dict[str, Any]] | None:
    counts: dict[str, int] = {}
    weights: dict[str, float] = {}
    for row in rows:
        names = row["target_classes"].split()
        for name, count, weight in zip(names, row["target_counts"].split(), row["class_weights"].split(), strict=False):
            counts[name] = counts.get(name, 0) + int(count)
            weights[name] = float(weight)
    total = sum(counts.values())
    named = [name for name in counts if weights.get(name, 0.0) > 0]
    if len(named) < max(2, len(counts)):
        return None
    amounts, heavy = np.log([counts[name] for name in named]), np.log([weights[name] for name in named])
    if amounts.max() - amounts.min() < math.log(_UNEVEN) or total < 20 * len(named):
        return None
    exponent = float(np.polyfit(amounts, heavy, 1)[0])
    if abs(exponent - 1) > _PROPORTIONAL or float(np.corrcoef(amounts, heavy)[0, 1]) < _FIT:
        return None
    frequent, rare = named[int(amounts.argmax())], named[int(amounts.argmin())]
    values = {"frequent": frequent, "share": counts[frequent] / total, "weight": weights[frequent]}
    return "classes", values | {"rare": rare, "rare_share": counts[rare] / total, "rare_weight": weights[rare]}


def _of_labels(rows: list[dict[str, Any]]) -> tuple[str, dict[str, Any]] | None:
    weight = rows[0]["true_weight"]
    shares = [row["target_mean"] for row in rows if row["target_is_whole"] and 0 <= row["target_mean"] <= 1]
    if not weight > 0 or len(shares) < len(rows):
        return None
    share = sum(shares) / len(shares)
    if not 0 < share < 1 or abs(math.log(share / (1 - share))) < math.log(_UNEVEN):
        return None
    if abs(math.log(weight) / math.log(share / (1 - share)) - 1) > _PROPORTIONAL:
        return None
    return "labels", {"share": share, "weight": weight, "wanted": (1 - share) / share}


RULES = (
    rule_of(
        "weights-of-classes",
        "targets",
        turned_around,
        {
            "classes": (
                "The more frequent a class, the more it weighs: class {frequent} is {share:.0%} of the targets and weighs {weight:.3g},"
                " class {rare} is {rare_share:.1%} and weighs {rare_weight:.3g}",
                "类别越常见，权重越大：类别 {frequent} 占目标的 {share:.0%}，权重为 {weight:.3g}；类别 {rare} 占 {rare_share:.1%}，权重为"
                " {rare_weight:.3g}",
            ),
            "labels": (
                "{share:.1%} of the labels are true, and each weighs {weight:.3g} times as much as a false one: what is rare weighs less",
                "{share:.1%} 的标签为真，而每个真标签的权重是假标签的 {weight:.3g} 倍：稀少的反而更轻",
            ),
        },
        dict.fromkeys(("classes", "labels"), ("in {steps} steps", "共 {steps} 步")),
        (
            "Make up for how frequent they are: total / (classes * count) for each class; pos_weight is the number of false labels"
            " over that of true ones",
            "应补偿频率：每个类别取 total / (classes * count)；pos_weight 是假标签数除以真标签数",
        ),
        (
            "Classes that are about as frequent as each other, and weights that are not in proportion to their numbers.",
            "频率相近的类别，以及与其数量不成比例的权重。",
        ),
        12,
    ),
)
