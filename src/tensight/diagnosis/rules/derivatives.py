"""Rules about derivatives in a loss, such as gradient penalties and the residuals of differential equations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensight.diagnosis.findings import Certainty, Finding
from tensight.diagnosis.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensight.diagnosis.facts import Facts


def constant_derivatives(facts: Facts) -> Iterator[Finding]:
    """Find derivatives in a loss that are constants to the weights, as they are computed without create_graph."""
    table = facts["derivatives"]
    kinds, lines = table["kind"], table["line"]
    # As a factor, or as the input of a model, it is often meant to be a constant.
    used = set(lines[kinds == "used"].tolist())
    for line in dict.fromkeys(lines.tolist()):
        of_line = lines == line
        steps = sorted(set(table["step"][of_line].tolist()))
        # A single step shows it: where networks take turns, or a penalty is rare, no more may have been seen.
        if line in used:
            continue
        message = "term" if (kinds[of_line] == "term").any() else "residual"
        sum_line = str(table["sum_line"][of_line & (kinds == message)][0])
        values = {"line": line, "sum_line": sum_line, "steps": len(steps)}
        where = {"operator": "create_graph", "line": line}
        certainty: Certainty = "certain" if message == "term" else "likely"
        yield Finding("derivative-constant", certainty, steps[0], message, values, where)


RULES = (
    Rule(
        "derivative-constant",
        "gradient-cut",
        ("derivatives",),
        constant_derivatives,
        {
            "term": (
                "A term of the loss trains nothing: the derivative in it is computed without create_graph=True ({line}), and"
                " is a constant to the weights",
                "损失中有一项什么也不训练：其中的导数在计算时没有使用 create_graph=True ({line})，对权重来说是常数",
            ),
            "residual": (
                "A derivative in the loss is a constant to the weights: it is computed without create_graph=True ({line})",
                "损失中的一个导数对权重来说是常数：它在计算时没有使用 create_graph=True ({line})",
            ),
        },
        {
            "term": (
                "no graph leads from it to a weight; it is added to the loss at {sum_line}, in {steps} of the first steps",
                "它没有通向任何权重的计算图；在最初的 {steps} 步中，它在 {sum_line} 处加到损失上",
            ),
            "residual": (
                "no graph leads from it to a weight; at {sum_line}, it meets another derivative of the same output, which has one,"
                " in {steps} of the first steps",
                "它没有通向任何权重的计算图；在最初的 {steps} 步中，它在 {sum_line} 处与同一输出的另一个有计算图的导数相遇",
            ),
        },
        (
            "Pass create_graph=True there; where the derivative is meant to be a constant, detach it",
            "在该处传入 create_graph=True；如果该导数本应是常数，则将其 detach",
        ),
        (
            "Derivatives with respect to parameters; those along which an input moves, as an adversarial one or a sample of"
            " Langevin dynamics; those that are factors of a term, or targets; and those that are detached.",
            "对参数的导数；用来移动输入的导数，例如对抗样本或 Langevin 动力学的样本；作为某一项的因子或作为目标的导数；以及已被 detach 的导数。",
        ),
        frozenset(("loss-stays",)),
        22,
    ),
)
