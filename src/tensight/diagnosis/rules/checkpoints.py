"""Rules about checkpoints alone: the last one of a training, and the first one beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tensight.diagnosis.findings import MOST_NAMED, Finding, listed
from tensight.diagnosis.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tensight.diagnosis.facts import Facts

_FEW_STEPS = 10
"""Number of updates after which all that is trained should have changed."""

_LAGS = 0.3
"""Share of the steps of a training that its optimizer has made; of two optimizers, each makes a half."""

_GROWN = 100.0
"""How many times the norm of a weight has grown that has not just been learnt."""


def _last(facts: Facts) -> list[Mapping[str, object]]:
    """Return the tensors of the last checkpoint."""
    rows = list(facts["saved"].rows())
    return [row for row in rows if row["step"] == rows[-1]["step"]]


def _where(facts: Facts, names: Sequence[str]) -> dict[str, str]:
    return {"parameter": listed(names, MOST_NAMED), "line": facts["checkpoints"]["name"][-1]}


def _updates(facts: Facts) -> float:
    """Return how many updates the last checkpoint has seen; 0 if that is unknown."""
    table = facts["checkpoints"]
    counter = float(np.nan_to_num(table["counter"][-1]))
    return max(counter, float(table["step"][-1]) if table["step_known"][-1] else 0.0)


def not_finite(facts: Facts) -> Iterator[Finding]:
    """Find checkpoints whose tensors are NaN or infinite."""
    table = facts["saved"]
    for step in table.steps.tolist():
        rows = (table["step"] == step) & (table["not_finite"] > 0)
        if rows.any():
            names = table["name"][rows].tolist()
            about = facts["checkpoints"]
            file = about["name"][about["step"] == step][0]
            total = int((table["step"] == step).sum())
            values = {"count": len(names), "of": total, "names": listed(names), "file": file}
            where = {"parameter": listed(names, MOST_NAMED), "line": file}
            yield Finding("checkpoint-not-finite", "certain", int(step), "not_finite", values, where)
            return


def still(facts: Facts) -> Iterator[Finding]:
    """Find weights that are bit for bit the same in two checkpoints although they are trained."""
    table = facts["checkpoints"]
    if len(table) < 2:
        return
    weights = [row for row in _last(facts) if row["role"] == "parameter" and row["moved"] != -1]
    stuck = [str(row["name"]) for row in weights if row["moved"] == 0]
    begin = int(table["step"][0])
    values: dict[str, object] = {"begin": table["name"][0], "end": table["name"][-1], "of": len(weights)}
    values |= {"count": len(stuck), "names": listed(stuck)}
    if len(weights) > 1 and len(stuck) == len(weights):
        yield Finding("checkpoint-unmoved", "certain", begin, "all", values, _where(facts, stuck))
        return
    # Weights without a state in the optimizer are frozen on purpose, as far as can be known.
    held = [str(row["name"]) for row in weights if row["moved"] == 0 and row["has_state"]]
    if held:
        values |= {"count": len(held), "names": listed(held)}
        yield Finding("checkpoint-unmoved", "likely", begin, "some", values, _where(facts, held))


def states(facts: Facts) -> Iterator[Finding]:
    """Find optimizers whose counter went back or lags behind, and those whose moments are all 0."""
    table = facts["checkpoints"]
    counters, steps = table["counter"], table["step"]
    last = float(counters[-1])
    values: dict[str, object]
    if len(table) > 1 and np.isfinite(counters).all() and last < counters[0] and table["step_known"].all():
        values = {"before": int(counters[0]), "counter": int(last), "begin": int(steps[0]), "end": int(steps[-1])}
        yield Finding("optimizer-state-lost", "likely", int(steps[-1]), "back", values, _where(facts, ()))
    elif table["step_known"][-1] and np.isfinite(last) and steps[-1] > _FEW_STEPS and last < _LAGS * steps[-1]:
        values = {"counter": int(last), "end": int(steps[-1])}
        yield Finding("optimizer-state-lost", "likely", int(steps[-1]), "lags", values, _where(facts, ()))
    if not last > 0:
        return
    squares = [row for row in _last(facts) if row["slot"] == "exp_avg_sq"]
    zero = [str(row["parameter"]) for row in squares if row["zeros"] == row["elements"]]
    if squares and zero:
        values = {"count": len(zero), "of": len(squares), "names": listed(zero), "counter": int(last)}
        where = _where(facts, zero)
        if len(zero) == len(squares):
            yield Finding("optimizer-state-zero", "certain", int(steps[-1]), "all_zero", values, where)
        elif len(zero) < 0.5 * len(squares):
            # Experts that no batch has used have none either.
            yield Finding("optimizer-state-zero", "likely", int(steps[-1]), "zero", values, where)


def lost(facts: Facts) -> Iterator[Finding]:
    """Find optimizers whose counter went back, or lags behind the steps of the training."""
    return (finding for finding in facts.derived(states) if finding.rule == "optimizer-state-lost")


def without_gradients(facts: Facts) -> Iterator[Finding]:
    """Find weights whose mean squared gradient is exactly 0 although their optimizer has made steps."""
    return (finding for finding in facts.derived(states) if finding.rule == "optimizer-state-zero")


def zeros(facts: Facts) -> Iterator[Finding]:
    """Find matrices that are all zeros after updates."""
    if _updates(facts) < _FEW_STEPS:
        return
    rows = [row for row in _last(facts) if row["role"] == "parameter" and int(str(row["axes"])) > 1]
    zero = [str(row["name"]) for row in rows if row["elements"] == row["zeros"] and int(str(row["elements"])) > 1]
    if zero:
        values = {"count": len(zero), "of": len(rows), "names": listed(zero), "updates": int(_updates(facts))}
        step = int(facts["checkpoints"]["step"][-1])
        yield Finding("checkpoint-zeros", "likely", step, "zero", values, _where(facts, zero))


def statistics(facts: Facts) -> Iterator[Finding]:
    """Find running statistics that are as they were made although the weights were trained."""
    rows = [row for row in _last(facts) if row["role"] == "statistics"]
    counts = [row for row in rows if str(row["name"]).endswith("num_batches_tracked")]
    variances = [row for row in rows if str(row["name"]).endswith("running_var")]
    untouched = [str(row["name"]) for row in variances if row["lowest"] == 1 and row["highest"] == 1]
    never = [str(row["name"]) for row in counts if row["highest"] == 0]
    if _updates(facts) < _FEW_STEPS or not variances or len(untouched) < len(variances):
        return
    if len(never) < len(counts):
        return
    values = {"count": len(untouched), "updates": int(_updates(facts)), "names": listed(untouched)}
    step = int(facts["checkpoints"]["step"][-1])
    yield Finding("statistics-untouched", "likely", step, "initial", values, _where(facts, untouched))


def scale(facts: Facts) -> Iterator[Finding]:
    """Find loss scales below 1 in a checkpoint."""
    table = facts["checkpoints"]
    value = float(table["scale"][-1])
    if 0 < value < 1:
        step = int(table["step"][-1])
        yield Finding("checkpoint-scale", "certain", step, "low", {"scale": value}, _where(facts, ()))


def growth(facts: Facts) -> Iterator[Finding]:
    """Find weights whose norm has grown by orders of magnitude between two checkpoints."""
    table = facts["saved"]
    steps = table.steps
    if len(steps) < 2:
        return
    of_first = table["step"] == steps[0]
    before = dict(zip(table["name"][of_first].tolist(), table["norm"][of_first].tolist(), strict=True))
    grown: list[tuple[str, float]] = []
    for row in _last(facts):
        norm, earlier = float(str(row["norm"])), float(before.get(str(row["name"]), 0.0))
        is_matrix = row["role"] == "parameter" and int(str(row["axes"])) > 1
        if is_matrix and earlier > 0 and np.isfinite(norm) and norm > _GROWN * earlier:
            grown.append((str(row["name"]), norm / earlier))
    if grown:
        names = [name for name, _ in grown]
        values = {
            "count": len(grown),
            "names": listed(names),
            "ratio": max(ratio for _, ratio in grown),
            "begin": facts["checkpoints"]["name"][0],
            "end": facts["checkpoints"]["name"][-1],
        }
        yield Finding("checkpoint-grows", "likely", int(steps[-1]), "grows", values, _where(facts, names))


def _rule(
    id_: str,
    category: str,
    judge: Callable[[Facts], Iterable[Finding]],
    messages: dict[str, tuple[str, str]],
    evidence: dict[str, tuple[str, str]],
    advice: tuple[str, str],
    silent: tuple[str, str],
    rank: int,
) -> Rule:
    return Rule(
        id_,
        category,
        ("saved", "checkpoints"),
        judge,
        messages,
        evidence,
        advice,
        silent,
        rank=rank,
        of_log=judge,
    )


RULES = (
    _rule(
        "checkpoint-not-finite",
        "loss",
        not_finite,
        {
            "not_finite": (
                "{count} tensors of the checkpoint are not finite: {names}",
                "检查点中有 {count} 个张量非有限：{names}",
            )
        },
        {"not_finite": ("of {of} tensors of {file}", "{file} 共有 {of} 个张量")},
        (
            "Go back to the checkpoint before, and let `tensight run --recommended` name the operator that is not finite first",
            "回到之前的检查点，用 `tensight run --recommended` 找出最先产生非有限值的算子",
        ),
        ("Masks of -Inf.", "-Inf 掩码。"),
        5,
    ),
    _rule(
        "checkpoint-unmoved",
        "frozen",
        still,
        {
            "all": (
                "No weight has changed between {begin} and {end}",
                "{begin} 与 {end} 之间没有任何权重变化",
            ),
            "some": (
                "{count} weights are bit for bit the same in {begin} and {end}, although the optimizer holds them: {names}",
                "{count} 个权重在 {begin} 与 {end} 中逐位相同，尽管优化器持有它们：{names}",
            ),
        },
        dict.fromkeys(("all", "some"), ("{of} weights were compared", "比较了 {of} 个权重")),
        (
            "Run the training under `tensight diagnose`, which says whether their gradient is cut off, 0, or their update lost",
            "用 `tensight diagnose` 运行训练，它会指出其梯度是否被切断、为 0，或更新丢失",
        ),
        (
            "Weights of which the optimizer has no state, which may be frozen on purpose.",
            "优化器没有其状态的权重，可能是有意冻结的。",
        ),
        20,
    ),
    _rule(
        "optimizer-state-lost",
        "optimizer",
        lost,
        {
            "back": (
                "The optimizer counts {counter} updates at step {end}, and {before} at step {begin}: its state was lost in between",
                "优化器在第 {end} 步计 {counter} 次更新，在第 {begin} 步计 {before} 次：其状态在中间丢失",
            ),
            "lags": (
                "The optimizer counts {counter} updates at step {end}: its state was lost, or not loaded",
                "优化器在第 {end} 步只计 {counter} 次更新：其状态丢失或没有加载",
            ),
        },
        {},
        (
            "Load the state of the optimizer with that of the model, after the optimizer is made and its parameters are on their device",
            "在创建优化器且其参数已在设备上之后，与模型状态一起加载优化器状态",
        ),
        ("Optimizers that make every second or third step.", "每两三步才更新一次的优化器。"),
        10,
    ),
    _rule(
        "optimizer-state-zero",
        "gradient-zero",
        without_gradients,
        {
            "all_zero": (
                "The mean squared gradient of all {of} weights is 0 after {counter} updates",
                "{counter} 次更新后，全部 {of} 个权重的梯度平方均值都是 0",
            ),
            "zero": (
                "The mean squared gradient of {count} of {of} weights is 0 after {counter} updates: {names}",
                "{counter} 次更新后，{of} 个权重中有 {count} 个的梯度平方均值为 0：{names}",
            ),
        },
        {},
        (
            "They have never had a gradient: run the training under `tensight diagnose`, which says what cuts it off",
            "它们从未有过梯度：用 `tensight diagnose` 运行训练，它会指出梯度在何处被切断",
        ),
        ("Models half of which no batch has used, such as experts.", "有一半未被任何批次使用的模型，如专家模型。"),
        15,
    ),
    _rule(
        "checkpoint-zeros",
        "frozen",
        zeros,
        {
            "zero": (
                "{count} matrices are all zeros after {updates} updates: {names}",
                "{updates} 次更新后有 {count} 个矩阵全为零：{names}",
            )
        },
        {"zero": ("of {of} matrices", "共 {of} 个矩阵")},
        (
            "If they begin as zeros, as the second matrix of an adapter does, they were never trained; else look for what writes them",
            "若它们从零开始 (如适配器的第二个矩阵)，则从未被训练；否则查找是谁写入了零",
        ),
        ("Vectors, and checkpoints of the first updates.", "向量，以及最初几次更新的检查点。"),
        30,
    ),
    _rule(
        "statistics-untouched",
        "normalisation",
        statistics,
        {
            "initial": (
                "The running statistics of all {count} normalizations are as they were made, after {updates} updates",
                "{updates} 次更新后，全部 {count} 个归一化层的运行统计量仍为初始值",
            )
        },
        {
            "initial": (
                "variances of 1 everywhere, and no batch counted: {names}",
                "方差处处为 1 且未计入任何批次：{names}",
            )
        },
        (
            "The model was trained in evaluation mode, or its statistics were not saved: call model.train() before the training",
            "模型在评估模式下训练，或其统计量没有保存：训练前调用 model.train()",
        ),
        ("Models of which any normalization has seen a batch.", "至少一个归一化层见过批次的模型。"),
        25,
    ),
    _rule(
        "checkpoint-scale",
        "scaling",
        scale,
        {
            "low": (
                "The loss scale in the checkpoint is {scale:.3g}: gradients are not finite whatever the scale is",
                "检查点中的损失缩放系数为 {scale:.3g}：无论缩放系数多大，梯度都不是有限值",
            )
        },
        {},
        (
            "Look for what is not finite: `tensight run --recommended` names the operator",
            "查找非有限值的来源：`tensight run --recommended` 会给出算子",
        ),
        ("", ""),
        12,
    ),
    _rule(
        "checkpoint-grows",
        "loss",
        growth,
        {
            "grows": (
                "The norm of {count} weights has grown up to {ratio:,.0f} times from {begin} to {end}: {names}",
                "从 {begin} 到 {end}，{count} 个权重的范数最多增大到 {ratio:,.0f} 倍：{names}",
            )
        },
        {},
        (
            "Lower the learning rate, clip gradients, or use weight decay; compare the losses of these steps",
            "降低学习率、裁剪梯度或使用权重衰减；比较这些步的损失",
        ),
        ("Vectors, and matrices that begin as zeros.", "向量，以及从零开始的矩阵。"),
        40,
    ),
)
