"""Rules over the ranks of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.diagnosis.facts import Facts
from tensight.diagnosis.findings import Finding
from tensight.diagnosis.rule import DIVERGENCE, Rule

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class SameSteps:
    """What ranks have read to be compared, in the steps that all of them have read.

    Ranks are added one after the other; what is kept does not grow with steps that only some have.
    """

    def __init__(self) -> None:
        self._rows: dict[int, list[tuple[int, dict[str, Any]]]] = {}
        self._ranks = 0

    def add(self, rank: int, rows: Iterable[dict[str, Any]]) -> None:
        """Add the rows of a rank."""
        of_step: dict[int, list[dict[str, Any]]] = {}
        for row in rows:
            of_step.setdefault(row["step"], []).append(row)
        single = {step: (rank, same[0]) for step, same in of_step.items() if len(same) == 1}
        if not self._ranks:
            self._rows = {step: [row] for step, row in single.items()}
        else:
            for step in [step for step in self._rows if step not in single]:
                del self._rows[step]
            for step, earlier in self._rows.items():
                earlier.append(single[step])
        self._ranks += 1

    def facts(self) -> Facts:
        """Return them as facts of one run; there are none of a single rank."""
        facts = Facts()
        for step in sorted(self._rows) if self._ranks > 1 else ():
            ordered = sorted(self._rows[step], key=lambda entry: entry[0])
            facts.add("ranks", step, [row for _, row in ordered])
        return facts


def replicas_differ(facts: Facts) -> Iterator[Finding]:
    """Find ranks whose weights differ."""
    table = facts["ranks"]
    if len(table.names) < 2:
        return
    weights = table.panel("weights")
    differ = (weights != weights[:, :1]).any(1)
    if not differ.any():
        return
    first = int(np.flatnonzero(differ)[0])
    # Ranks that meet again average their weights from time to time.
    if not differ[first:].all() or len(differ) - first < 3:
        return
    step = int(table.steps[first])
    ranks = [
        name
        for name, is_other in zip(table.names, (weights[first] != weights[first, 0]).tolist(), strict=True)
        if is_other
    ]
    norms = table.panel("norm")
    values = {
        "step": step,
        "ranks": ", ".join(ranks[:4]),
        "steps": int(differ.sum()),
        "norms": ", ".join(f"{value:.4g}" for value in norms[max(first - 1, 0), :4]),
    }
    message = "start" if first == 0 else "since"
    where = {"rank": ", ".join(ranks[:4]), "model": next(filter(None, table["called"].tolist()), "")}
    yield Finding("replicas-differ", "likely", step, message, values, where)


def same_data(facts: Facts) -> Iterator[Finding]:
    """Find ranks that read the same batches."""
    table = facts["ranks"]
    if len(table.names) < 2:
        return
    batch = table.panel("batch")
    same = (batch == batch[:, :1]).all(1) & (batch[:, 0] != 0)
    if len(same) < 3 or same.mean() < 0.8:
        return
    values = {"ranks": len(table.names), "steps": int(same.sum()), "of": len(same)}
    where = {"rank": ", ".join(table.names[:4]), "loader": str(table["loader_line"][-1])}
    yield Finding("ranks-same-data", "likely", int(table.steps[0]), "same", values, where)


def summed(facts: Facts) -> Iterator[Finding]:
    """Find gradients that are summed over the ranks, or divided by their number twice."""
    table = facts["ranks"]
    count = len(table.names)
    if count < 2 or set(table["world"].tolist()) != {count}:
        return
    before, after = table.panel("norm_backward"), table.panel("norm")
    measured = np.isfinite(before).all(1) & np.isfinite(after).all(1) & (before > 0).all(1)
    same = np.isclose(after, after[:, :1], rtol=1e-4).all(1)
    if (measured & same).sum() < 3 or (measured & ~same).mean() > 0.1:
        return
    before, after = before[measured & same], after[measured & same][:, 0]
    # The norm of a mean is at most the mean of the norms.
    above = after > 1.001 * before.mean(1)
    ratio = after / before[:, 0]
    is_reduced = np.isclose(before, before[:, :1], rtol=1e-4).all()
    step = table.first_step(measured & same)
    values = {"ranks": count, "ratio": float(np.median(ratio)), "steps": len(after), "share": float(above.mean())}
    where = {"rank": "all", "call": "all_reduce"}
    if not is_reduced and above.mean() > 0.5:
        yield Finding("ranks-gradients", "certain", step, "summed", values, where)
    elif is_reduced and np.allclose(ratio, 1 / count, rtol=1e-3):
        yield Finding("ranks-gradients", "certain", step, "twice", values, where)
    elif is_reduced and np.allclose(ratio, count, rtol=1e-3):
        yield Finding("ranks-gradients", "certain", step, "summed_again", values, where)


RULES = (
    Rule(
        "replicas-differ",
        "ranks",
        ("ranks",),
        replicas_differ,
        {
            "start": (
                "The replicas begin with different weights: {ranks} and rank 0",
                "各副本以不同的权重开始：{ranks} 与 rank 0",
            ),
            "since": (
                "The weights of {ranks} and rank 0 are equal at first and differ from step {step} on",
                "{ranks} 与 rank 0 的权重起初相等，从第 {step} 步起不同",
            ),
        },
        {
            "start": ("in {steps} of {read} steps that were read", "在读取的 {read} 步中有 {steps} 步"),
            "since": (
                "norm of the gradients of each rank in the step before: {norms}",
                "前一步各 rank 的梯度范数：{norms}",
            ),
        },
        (
            "Call the wrapped model (not model.module), and let the last backward pass before each update run outside of"
            " no_sync(), so that gradients are averaged",
            "调用包装后的模型 (而不是 model.module)，并让每次更新之前的最后一次反向传播在 no_sync() 之外运行，以平均梯度",
        ),
        ("Models that are sharded on purpose.", "有意切分的模型。"),
        frozenset(("loss-stays",)),
        10,
        over_ranks=True,
        advice_on={
            "start": (
                "Set the same seed on all ranks before the model is made, or broadcast the weights of rank 0, as"
                " DistributedDataParallel does when it wraps a model",
                "在创建模型之前为所有 rank 设置相同的种子，或广播 rank 0 的权重 (DistributedDataParallel 包装模型时会这样做)",
            )
        },
    ),
    Rule(
        "ranks-same-data",
        "ranks",
        ("ranks",),
        same_data,
        {
            "same": (
                "All {ranks} ranks read the same batches, in {steps} of {of} steps",
                "全部 {ranks} 个 rank 在 {of} 步中的 {steps} 步读取相同的批次",
            )
        },
        {},
        (
            "Use a DistributedSampler, or another seed for the data of each rank",
            "使用 DistributedSampler，或为各 rank 的数据设置不同的种子",
        ),
        ("Tensor and pipeline parallelism, where ranks share a batch.", "张量并行与流水线并行，各 rank 共享批次。"),
        frozenset(),
        20,
        over_ranks=True,
    ),
    Rule(
        "ranks-gradients",
        "ranks",
        ("ranks",),
        summed,
        {
            "summed": (
                "Gradients are summed over the {ranks} ranks, not averaged: their norm at the update is above the mean of the"
                " ranks' norms",
                "梯度在 {ranks} 个 rank 上求和而没有平均：更新时的范数大于各 rank 范数的平均值",
            ),
            "twice": (
                "Gradients are averaged over the {ranks} ranks twice: they are the same on all ranks after the backward pass,"
                " and divided by {ranks} again",
                "梯度在 {ranks} 个 rank 上被平均两次：反向传播后各 rank 已相同，又被除以 {ranks}",
            ),
            "summed_again": (
                "Gradients are summed over the {ranks} ranks although they are averaged already",
                "梯度已经平均，却又在 {ranks} 个 rank 上求和",
            ),
        },
        {
            "summed": (
                "in {share:.0%} of {steps} steps; that cannot be a mean",
                "在 {steps} 步的 {share:.0%} 中；这不可能是平均值",
            ),
            "twice": (
                "norm at the update over that after the backward pass: {ratio:.3g}",
                "更新时与反向传播后的范数之比：{ratio:.3g}",
            ),
        },
        (
            "Divide by the number of ranks once; DistributedDataParallel averages by itself",
            "只除以 rank 数一次；DistributedDataParallel 自己会求平均",
        ),
        ("Gradients that are clipped or scaled otherwise.", "以其他方式裁剪或缩放的梯度。"),
        frozenset(("loss-stays", *DIVERGENCE)),
        15,
        over_ranks=True,
    ),
)
