"""Rules about what activation functions put out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tensight.diagnosis.findings import Finding, listed
from tensight.diagnosis.rule import Rule
from tensight.diagnosis.rules.losses import first_loss

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tensight.diagnosis.facts import Facts, Table

_FEWEST_UNITS = 8
_READS = 3
"""Number of the last steps, of which layers are read, in which units must be so."""

_MOST = 0.9
"""Share of units, or of elements, without which little is left to learn with."""

_LEARNT = 0.8
"""Share of the first losses below which a loss has fallen of a model that learns, whatever its units do."""


def _learns(facts: Facts) -> bool:
    """Whether the loss has fallen far, or is not known: then nothing is said of units."""
    _, losses = first_loss(facts)
    count = max(len(losses) // 10, 1)
    if len(losses) < 2 * _READS or not np.isfinite(losses).all():
        return True
    first, last = float(losses[:count].mean()), float(losses[-count:].mean())
    return first <= 0 or last < _LEARNT * first


def _has_zeros(facts: Facts) -> bool:
    """Whether a matrix begins at 0: what is 0 behind it is no fault of the activation function."""
    table = facts["parameters"]
    first = table["step"] == table.steps[:1]
    is_matrix = np.array(["x" in shape for shape in table["shape"].tolist()], np.bool_)
    return bool((first & is_matrix & (table["norm"] == 0)).any())


def _shares_silent(table: Table) -> NDArray[np.float64]:
    return np.where(table["silent"] >= 0, table["silent"] / np.maximum(table["units"], 1), np.nan)


def _layers_with(
    table: Table, values: NDArray[np.float64]
) -> Iterator[tuple[str, NDArray[np.float64], NDArray[np.int64]]]:
    """Yield layers, the share of their inputs that is so in each step that was read, and these steps.

    Parameters
    ----------
    table : Table
        The layers.
    values : ndarray of float64, shape (rows,)
        The share by row; NaN where there is none.
    """
    for name in table.names:
        rows = (table["name"] == name) & (table["units"] >= _FEWEST_UNITS) & np.isfinite(values)
        if rows.sum() >= _READS:
            yield name, values[rows], table["step"][rows]


def silent(facts: Facts) -> Iterator[Finding]:
    """Find layers nearly all of whose inputs are 0 for all samples, after a relu."""
    yield from _shares(facts, _shares_silent(facts["layers"]), "units-silent")


def saturated(facts: Facts) -> Iterator[Finding]:
    """Find layers nearly all of whose inputs are at the ends of a tanh or sigmoid, where its slope is next to 0."""
    yield from _shares(facts, facts["layers"]["saturated"], "units-saturated")


def _shares(facts: Facts, shares: NDArray[np.float64], rule: str) -> Iterator[Finding]:
    if _learns(facts) or _has_zeros(facts):
        return
    layers: list[tuple[str, float, int]] = []
    for name, values, steps in _layers_with(facts["layers"], shares):
        if (values[-_READS:] >= _MOST).all():
            since = len(values) - int(np.argmax(values[::-1] < _MOST)) if (values < _MOST).any() else 0
            layers.append((name, float(values[-_READS:].mean()), int(steps[since])))
    if not layers:
        return
    table = facts["layers"]
    name, value, step = layers[0]
    row = {key: table[key][table["name"] == name][-1] for key in ("activation", "units")}
    described = {
        "name": name,
        "share": value,
        "units": int(row["units"]),
        "activation": str(row["activation"]),
        "count": len(layers),
        "names": listed([each for each, *_ in layers]),
        "steps": len(set(table["step"].tolist())),
        "step": step,
    }
    message = "first" if step <= int(table.steps[0]) else "later"
    where = {"module": listed([each for each, *_ in layers], 3), "operator": str(row["activation"])}
    yield Finding(rule, "likely", step, message, described, where)


_EXPLAINED = frozenset(("loss-stays", "loss-constant", "zero-gradient", "outputs-collapse", "input-ignored"))

RULES = (
    Rule(
        "units-silent",
        "activations",
        ("layers.silent", "losses"),
        silent,
        {
            "first": (
                "{share:.0%} of the {units} units before layer {name} put out 0 for all samples from the first step on: {activation}"
                " lets nothing of them through",
                "{name} 之前的 {units} 个单元中 {share:.0%} 从第一步起对所有样本都输出 0：{activation} 不让它们通过",
            ),
            "later": (
                "{share:.0%} of the {units} units before layer {name} put out 0 for all samples from about step {step} on: {activation}"
                " lets nothing of them through",
                "{name} 之前的 {units} 个单元中 {share:.0%} 大约从第 {step} 步起对所有样本都输出 0：{activation} 不让它们通过",
            ),
        },
        dict.fromkeys(
            ("first", "later"),
            (
                "layers: {names}; in the last of {steps} steps in which layers were read",
                "层：{names}；在读取了各层的 {steps} 步中的最后几步",
            ),
        ),
        (
            "Look at the bias and the scale of the layer before it; a smaller learning rate, a warm-up, or a function such as GELU"
            " or LeakyReLU keeps units alive",
            "检查前一层的偏置和尺度；更小的学习率、预热，或 GELU、LeakyReLU 等函数可使单元保持活跃",
        ),
        (
            "Models whose loss has fallen by a fifth, such as those with sparse codes, and trainings with several losses.",
            "损失已下降五分之一的模型 (如稀疏编码)，以及有多个损失的训练。",
        ),
        _EXPLAINED,
        28,
    ),
    Rule(
        "units-saturated",
        "activations",
        ("layers.saturated", "losses"),
        saturated,
        {
            "first": (
                "{share:.0%} of what {activation} gives layer {name} is at the ends of its range from the first step on, where its slope"
                " is next to 0",
                "{activation} 给 {name} 的值中 {share:.0%} 从第一步起就在其范围的两端，那里斜率几乎为 0",
            ),
            "later": (
                "{share:.0%} of what {activation} gives layer {name} is at the ends of its range from about step {step} on, where its"
                " slope is next to 0",
                "{activation} 给 {name} 的值中 {share:.0%} 大约从第 {step} 步起就在其范围的两端，那里斜率几乎为 0",
            ),
        },
        dict.fromkeys(
            ("first", "later"),
            (
                "layers: {names}; in the last of {steps} steps in which layers were read",
                "层：{names}；在读取了各层的 {steps} 步中的最后几步",
            ),
        ),
        (
            "Make what it is given smaller: scale the inputs, use the usual initialization, a normalization, or a smaller learning rate",
            "减小它的输入：缩放数据、使用常规初始化、归一化或更小的学习率",
        ),
        (
            "Models whose loss has fallen by a fifth, such as those with binary codes, and trainings with several losses.",
            "损失已下降五分之一的模型 (如二值编码)，以及有多个损失的训练。",
        ),
        _EXPLAINED,
        28,
    ),
)
