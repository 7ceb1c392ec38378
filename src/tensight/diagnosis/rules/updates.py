"""Rules about updates that have no lasting effect: lost to rounding, undone, clamped or decayed away."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from tensight.diagnosis.findings import MOST_NAMED, Certainty, Finding, folded, listed
from tensight.diagnosis.rule import Rule
from tensight.diagnosis.rules.losses import first_loss, remains
from tensight.diagnosis.rules.parameters import are_trained, where_of
from tensight.diagnosis.rules.stages import UPDATES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tensight.diagnosis.facts import Facts, Table

_FORGETS = 0.02
"""Share of the weights that a decay takes in a step after which they hold the last 50 updates only."""

_STILL = 2.0
"""How many times the gradient a decay still is at the end of a training in which weights lose more than they learn."""

_TINY = 1e-6
"""Rate below which it is the rate that is too small, and not the weights that are too large, if updates are lost."""

_COUPLED = ("adam", "nadam", "radam", "rmsprop", "adagrad", "adadelta")
"""Beginnings of optimizers that add the decay to the gradient, and divide the sum by its size; AdamW does not."""

_MOSTLY = 0.8
"""Share of the loads that are of the same weights; a training with an inner loop goes back to others each time."""

_FEW = 64
"""Of so few elements, some are the lowest and the greatest one by chance."""


def undone(facts: Facts) -> Iterator[Finding]:
    """Find updates that are taken back before the next one, or again and again to the same earlier values."""
    table = facts["parameters"]
    steps, names = table.steps, table.names
    share, moved = table.panel("undone"), table.panel("moved")
    sizes = np.array([table.last("elements")[name] for name in names], float)
    updates = (moved > 0).sum(0)
    back = (share >= 0.95).sum(0)
    always = (back >= UPDATES) & (back >= 0.8 * (updates - 1))
    if always.any() and sizes[always].sum() > 0.5 * sizes[updates > 0].sum():
        chosen = table.chosen(always)
        first = int(np.flatnonzero((share >= 0.95)[:, always].any(1))[0])
        values = {"count": len(chosen), "names": listed(chosen), "steps": int(back.max())}
        yield Finding(
            "update-undone", "certain", int(steps[first]), "undone", values, where_of(table, chosen), tuple(chosen)
        )
        return
    restored = table.panel("restored")
    # Weights of which many elements are at the limits of a range come back to values at which they were.
    restored = np.where((table.panel("at_limit") > 0.25) & (sizes > _FEW), 0, restored)
    counts = (restored != 0).sum(0)
    distinct = np.array([len(set(column[column != 0].tolist())) for column in restored.T])
    # Trainings with an inner loop go back as well, each time to other values.
    again = (counts >= UPDATES) & (distinct <= np.maximum(2, 0.2 * counts)) & (updates > 0)
    if again.any() and sizes[again].sum() > 0.5 * sizes[updates > 0].sum():
        chosen = table.chosen(again)
        first = int(np.flatnonzero((restored != 0)[:, again].any(1))[0])
        values = {"count": len(chosen), "names": listed(chosen), "steps": int(counts[again].max())}
        yield Finding(
            "update-undone", "certain", int(steps[first]), "restored", values, where_of(table, chosen), tuple(chosen)
        )


def reloaded(facts: Facts) -> Iterator[Finding]:
    """Find trainings that load the same weights again and again, and go on with the same optimizer."""
    table, groups = facts["loads"], facts["groups"]
    is_whole = (table["keys"] > table["unexpected"]) & (table["fingerprint"] != 0)
    for module in dict.fromkeys(table["module"].tolist()):
        chosen = is_whole & (table["module"] == module)
        # Several loads of a step, as one for each task, count once.
        marks = dict(zip(table["step"][chosen].tolist(), table["fingerprint"][chosen].tolist(), strict=True))
        if len(marks) < UPDATES:
            continue
        mark, count = Counter(marks.values()).most_common(1)[0]
        steps = [step for step, each in marks.items() if each == mark]
        # What begins anew, as for each part of the data, has a new optimizer.
        before, after = (
            set(groups["optimizer"][of_steps].tolist())
            for of_steps in (groups["step"] < steps[0], groups["step"] >= steps[-1])
        )
        if count < UPDATES or count < _MOSTLY * len(marks) or not before or before != after:
            continue
        line = str(table["line"][chosen][-1])
        values = {"module": module, "count": count, "line": line, "first": steps[0], "last": steps[-1]}
        certainty: Certainty = "certain" if any(True for _ in undone(facts)) else "likely"
        yield Finding("weights-reloaded", certainty, steps[1], "same", values, {"module": module, "line": line})


def clamped(facts: Facts) -> Iterator[Finding]:
    """Find weights that are clamped to a range in which nothing is learnt."""
    if not any(True for _ in remains(facts)):
        return
    table = facts["parameters"]
    limit, outside = table.panel("at_limit"), table.panel("is_moved_outside")
    sizes = np.array([table.last("elements")[name] for name in table.names], float)
    updates, counts = (table.panel("moved") > 0).sum(0), outside.sum(0)
    # So many elements at two values are no distribution that training leads to.
    at_limit = ((limit > 0.25) & outside).sum(0) >= 0.8 * np.maximum(counts, 1)
    always = (updates >= 10) & (counts >= 0.8 * (updates - 1)) & at_limit & (sizes > _FEW)
    if not always.any() or sizes[always].sum() < 0.5 * sizes[updates > 0].sum():
        return
    names = table.chosen(always)
    values = {
        "count": len(names),
        "names": listed(names),
        "share": float(np.nanmean(limit[:, always][outside[:, always]])),
        "steps": int(counts[always].max()),
    }
    step = table.first_step(outside[:, always].any(1))
    yield Finding("clamped", "likely", step, "clamped", values, where_of(table, names))


def decayed(facts: Facts) -> Iterator[Finding]:
    """Find a decay that takes a large share of the weights in each step, or is more than their gradient."""
    return folded(_decayed(facts))


def _decayed(facts: Facts) -> Iterator[Finding]:
    groups, table = facts["groups"], facts["parameters"]
    norms = table.panel("norm")
    measured = np.flatnonzero(np.isfinite(norms).any(1))
    totals = np.sqrt(np.nansum(norms[measured] ** 2, 1))
    if len(totals) < UPDATES:
        return
    gradients = np.sqrt(np.nansum(table.panel("gradient_norm")[measured] ** 2, 1))
    has_fallen, stays = totals[-1] < 0.7 * totals[0], any(True for _ in remains(facts))
    for name in groups.names:
        of_name = groups["name"] == name
        decay, rate = float(groups["decay"][of_name][-1]), float(np.nanmax(groups["rate"][of_name]))
        if not decay > 0:
            continue
        optimizer = str(groups["optimizer"][of_name][0])
        is_coupled = optimizer.lower().startswith(_COUPLED) and not optimizer.lower().startswith("adamw")
        ratio = float(np.median(decay * totals[:UPDATES] / gradients[:UPDATES]))
        values = {
            "group": name,
            "share": rate * decay,
            "updates": 1 / (rate * decay),
            "decay": decay,
            "rate": rate,
            "first": float(totals[0]),
            "last": float(totals[-1]),
            "ratio": ratio,
            "optimizer": optimizer,
        }
        if is_coupled:
            # Later, weights are so small that decay and gradient balance, or weights are fewer than the loss needs.
            still = float(np.median(decay * totals[-UPDATES:] / gradients[-UPDATES:]))
            is_losing = still > _STILL and totals[-1] < 0.5 * totals[0]
            message = "coupled" if ratio > 3 and has_fallen and (stays or is_losing) else ""
        else:
            # The norm at which updates and decay are equal may be that of the first weights.
            has_settled = len(totals) >= 20 and stays
            has_settled |= optimizer.lower().startswith("adamw") and _has_forgotten(facts, name, decay)
            is_strong = rate * decay >= _FORGETS and (has_fallen or has_settled)
            message = "decay" if is_strong else ""
        if message:
            where = {"optimizer": name, "parameter": listed(table.names, MOST_NAMED)}
            yield Finding("decay-too-strong", "likely", int(groups.steps[0]), message, values, where)


def _has_forgotten(facts: Facts, group: str, decay: float) -> bool:
    """Whether a decay leaves nothing of what was learnt more than some updates ago, and much is left to learn.

    Weights are an average of the last ``1 / (rate * decay)`` updates (Wang and Aitchison 2024, arXiv:2405.13698), which
    should be those of an epoch or more.
    """
    groups = facts["groups"]
    share = decay * float(np.median(groups["rate"][groups["name"] == group]))
    steps, values = first_loss(facts)
    if share < _FORGETS or len(values) < 60 or steps[-1] * share < 4 or not np.isfinite(values).all():
        return False
    return bool(values[-10:].mean() > 0.1 * values[:5].mean() > 0)


def without_effect(facts: Facts) -> Iterator[Finding]:
    """Yield findings about updates with a gradient and a rate that change nothing: the values are as they were."""
    table = facts["parameters"]
    steps = table.steps
    if len(steps) < UPDATES:
        return
    gradient, lost, rate = (table.panel(name) for name in ("gradient", "lost", "rate"))
    compared = (gradient == 2) & np.isfinite(lost) & (rate > 0)
    counts = compared.sum(0)
    swallowed = compared & (lost > 0.5)
    share = np.divide(np.where(compared, lost, 0).sum(0), np.maximum(counts, 1))
    is_low = [dtype in ("bfloat16", "float16") or dtype.startswith("float8") for dtype in _dtypes(table)]
    most = (counts >= UPDATES) & (swallowed.sum(0) >= 0.8 * counts) & (share > 0.6)
    sizes = np.array([table.last("elements")[name] for name in table.names])
    matrices = most & np.array(is_low) & (sizes > 1)
    coarse = most & ~np.array(is_low) & _is_below_precision(table, sizes)
    if coarse.any():
        names = table.chosen(coarse)
        typical = float(np.nanmax(table.panel("norm")[:, coarse] / np.sqrt(sizes[coarse])))
        values = {
            "count": len(names),
            "names": listed(names),
            "rate": float(np.nanmax(rate[:, coarse])),
            "typical": typical,
            "spacing": float(np.spacing(np.float32(typical))),
        }
        where = where_of(table, names)
        if np.nanmax(rate[:, coarse]) < _TINY:
            optimizer = table.last("optimizer")[names[0]]
            where = {"optimizer": optimizer, **where}
            yield Finding(
                "learning-rate-too-small", "likely", int(steps[0]), "rounded", values | {"optimizer": optimizer}, where
            )
        else:
            yield Finding("update-lost", "certain", int(steps[0]), "coarse", values, where, tuple(names))
    if not matrices.any():
        return
    names = table.chosen(matrices)
    amount = int(sizes[matrices].sum())
    of = int(sizes[counts >= UPDATES].sum())
    is_beside = amount < 0.3 * of and _are_beside_float32(table, names)
    if amount < 0.3 * of and not is_beside:
        return
    mean = float((share[matrices] * sizes[matrices]).sum() / amount)
    dtype = _dtypes(table)[int(np.flatnonzero(matrices)[0])]
    change = table.panel("change")[:, matrices]
    yield Finding(
        "update-lost",
        "certain" if mean > 0.9 and not is_beside else "likely",
        int(steps[0]),
        "beside" if is_beside else "lost",
        {
            "count": len(names),
            "of": int((counts >= UPDATES).sum()),
            "names": listed(names),
            "share": mean,
            "dtype": dtype,
            "rate": float(np.nanmax(rate[:, matrices])),
            "change": float(np.nanmedian(change)),
        },
        where_of(table, names),
        tuple(names),
    )


def updates_lost(facts: Facts) -> Iterator[Finding]:
    """Find updates that are lost because the numbers next to the weights are too far apart."""
    return (finding for finding in facts.derived(without_effect) if finding.rule == "update-lost")


def _are_beside_float32(table: Table, names: list[str]) -> bool:
    """Whether parameters have matrices among them, and most other trained matrices are in float32."""
    shapes, dtypes = table.last("shape"), table.last("dtype")
    trained = [name for name in table.chosen(np.asarray(are_trained(table).any(0))) if "x" in shapes[name]]
    beside = [dtypes[name] == "float32" for name in trained if name not in names]
    return len(beside) < len(trained) and sum(beside) > len(trained) / 2


def _is_below_precision(table: Table, sizes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which float32 parameters are so large that an update of about the rate, as by Adam, is rounded away."""
    optimizers, dtypes = table.last("optimizer"), table.last("dtype")
    adaptive = [
        dtypes[name] == "float32" and optimizers[name].lower().startswith(("adam", "nadam", "radam", "rmsprop"))
        for name in table.names
    ]
    with np.errstate(all="ignore"):
        typical = (np.nan_to_num(table.panel("norm")).max(0) / np.sqrt(sizes)).astype(np.float32)
        below: NDArray[np.bool_] = np.nan_to_num(table.panel("rate")).max(0) < np.spacing(typical)
    return np.array(adaptive, np.bool_) & below


def _dtypes(table: Table) -> list[str]:
    last = table.last("dtype")
    return [str(last[name]) for name in table.names]


RULES = (
    Rule(
        "update-undone",
        "undone",
        ("parameters",),
        undone,
        {
            "undone": (
                "The updates of {count} weights are undone before the next step: {names}",
                "{count} 个权重的更新在下一步之前被撤销：{names}",
            ),
            "restored": (
                "{count} weights are set back to the same earlier values again and again: {names}",
                "{count} 个权重一再被恢复为相同的旧值：{names}",
            ),
        },
        {
            "undone": (
                "in {steps} of {read} steps that were read what the update had moved was back at its values before that",
                "在读取的 {read} 步中的 {steps} 步，更新所改变的值又回到更新之前",
            ),
            "restored": ("in {steps} of {read} steps that were read", "在读取的 {read} 步中有 {steps} 步"),
        },
        (
            "Look for what writes to them between two steps: a restored state, a copy that is loaded back, a clamp",
            "查找两步之间写入它们的代码：恢复的状态、重新加载的副本、clamp",
        ),
        (
            "Values that change between steps without going back, such as clipped or averaged ones.",
            "在步之间改变但没有恢复的值，如被裁剪或平均的值。",
        ),
        frozenset(("loss-stays",)),
        10,
    ),
    Rule(
        "weights-reloaded",
        "undone",
        ("loads", "groups"),
        reloaded,
        {
            "same": (
                "{module}.load_state_dict puts the same weights back again and again ({line}): what is learnt between is"
                " undone",
                "{module}.load_state_dict 一再放回相同的权重 ({line})：其间学到的内容被撤销",
            )
        },
        {
            "same": (
                "{count} times from step {first} to step {last}, and the same optimizer goes on",
                "从第 {first} 步到第 {last} 步共 {count} 次，且同一优化器继续训练",
            )
        },
        (
            "Look at what decides which weights are kept, as the comparison by which a checkpoint becomes the best one",
            "检查由什么决定保留哪些权重，如判断哪个检查点最好的比较",
        ),
        (
            "Trainings that begin anew with a new optimizer, and those that load other weights each time.",
            "以新的优化器重新开始的训练，以及每次加载不同权重的训练。",
        ),
        frozenset(("loss-stays", "update-undone")),
        15,
    ),
    Rule(
        "clamped",
        "undone",
        ("parameters", "losses", "loss_functions"),
        clamped,
        {
            "clamped": (
                "{count} weights are clamped after each update, to a range in which the loss does not fall: {names}",
                "{count} 个权重在每次更新后被 clamp 到损失无法下降的范围：{names}",
            )
        },
        {
            "clamped": (
                "in {steps} of {read} steps that were read {share:.0%} of their elements are at a limit of the range",
                "在读取的 {read} 步中的 {steps} 步 {share:.0%} 的元素处于范围的边界",
            )
        },
        ("Widen the range", "放宽范围"),
        (
            "Weights that are clamped in trainings whose loss falls, or of which no best constant prediction is known.",
            "损失仍在下降，或常数预测的最优损失未知的训练中被 clamp 的权重。",
        ),
        frozenset(("loss-stays", "update-undone")),
        20,
    ),
    Rule(
        "update-lost",
        "precision",
        ("parameters",),
        updates_lost,
        {
            "lost": (
                "Updates are lost to rounding: {share:.0%} of the elements of {count} {dtype} weights do not change although"
                " they have a gradient",
                "更新因舍入而丢失：{count} 个 {dtype} 权重中 {share:.0%} 的元素虽有梯度却没有变化",
            ),
            "beside": (
                "The updates of {count} {dtype} weights are lost to rounding, while those beside them are float32: {share:.0%} of"
                " their elements do not change although they have a gradient",
                "{count} 个 {dtype} 权重的更新因舍入而丢失，而旁边的权重是 float32：其 {share:.0%} 的元素虽有梯度却没有变化",
            ),
            "coarse": (
                "Updates are lost to rounding: next to {typical:.3g}, numbers of float32 are {spacing:.2g} apart, and an update"
                " is about the rate {rate:.2g}: {names}",
                "更新因舍入而丢失：在 {typical:.3g} 附近 float32 的间隔为 {spacing:.2g}，而一次更新约为学习率 {rate:.2g}：{names}",
            ),
        },
        dict.fromkeys(
            ("lost", "beside"),
            (
                "learning rate up to {rate:.2g}; a step changes them by {change:.2g} of their norm: {names}",
                "学习率最高 {rate:.2g}；一步的变化为其范数的 {change:.2g}：{names}",
            ),
        ),
        (
            "Keep a copy of the weights in float32 for the optimizer, use stochastic rounding, or a larger rate",
            "为优化器保留 float32 的权重副本、使用随机舍入，或提高学习率",
        ),
        (
            "float32 weights whose updates are small for another reason than their size, and less than a third of the elements if"
            " others are not float32.",
            "因其他原因而更新很小的 float32 权重，以及其余权重不是 float32 时少于三分之一的元素。",
        ),
        frozenset(("loss-stays",)),
        20,
        advice_on={
            "beside": (
                "Keep these weights in float32, too: look for .half(), .bfloat16() or .to(dtype), and for a file that was loaded"
                " with assign=True; autocast computes in {dtype} without changing weights",
                "这些权重也保持 float32：检查 .half()、.bfloat16()、.to(dtype) 以及用 assign=True 加载的文件；autocast 以 {dtype}"
                " 计算而不改变权重",
            )
        },
    ),
    Rule(
        "decay-too-strong",
        "undone",
        ("groups", "parameters"),
        decayed,
        {
            "decay": (
                "Weight decay takes {share:.0%} of the weights of {group} in each step",
                "权重衰减在每一步取走 {group} 权重的 {share:.0%}",
            ),
            "coupled": (
                "Weight decay is {ratio:.3g} times the gradient at first: {group} updates towards 0, and not by the loss",
                "权重衰减起初是梯度的 {ratio:.3g} 倍：{group} 朝 0 更新，而不是按损失更新",
            ),
        },
        {
            "decay": (
                "decay {decay:.3g} times rate {rate:.3g}, so that weights hold little more than the last {updates:.0f} updates; the"
                " norm of all weights is {first:.3g} at first, {last:.3g} at last",
                "衰减 {decay:.3g} 乘以学习率 {rate:.3g}，因此权重几乎只保留最近 {updates:.0f} 次更新；所有权重的范数起初为"
                " {first:.3g}，最后为 {last:.3g}",
            ),
            "coupled": (
                "{optimizer} adds decay {decay:.3g} times the weights to the gradient; the norm of all weights is {first:.3g} at"
                " first, {last:.3g} at last",
                "{optimizer} 将衰减 {decay:.3g} 乘以权重加到梯度上；所有权重的范数起初为 {first:.3g}，最后为 {last:.3g}",
            ),
        },
        (
            "Use a decay of 0.01 to 0.1 with AdamW, less with SGD and Adam",
            "AdamW 使用 0.01 到 0.1 的衰减，SGD 和 Adam 更小",
        ),
        (
            "The decay of Adam and the like, which is divided by the size of the gradients, in trainings whose loss falls.",
            "损失仍在下降的训练中 Adam 等优化器的衰减，它会除以梯度大小。",
        ),
        frozenset(("loss-stays", "zero-gradient", "loss-constant")),
        20,
    ),
)
