"""Rules about gradients between the backward pass and the update: clipping, clearing, scale."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from tensight.diagnosis.facts import sizes_of
from tensight.diagnosis.findings import MOST_NAMED, Finding, folded, listed
from tensight.diagnosis.rule import DIVERGENCE, Rule
from tensight.diagnosis.rules import logs
from tensight.diagnosis.rules.stages import UPDATES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensight.diagnosis.facts import Facts


def clipped_scaled(facts: Facts) -> Iterator[Finding]:
    """Find gradients that are clipped before they are unscaled."""
    return (finding for finding in facts.derived(_clipped) if finding.rule == "clipped-scaled")


def clipped_away(facts: Facts) -> Iterator[Finding]:
    """Find gradients that are clipped to a small part of themselves in every step, or exactly to a limit."""
    return (finding for finding in facts.derived(_clipped) if finding.rule == "clipped-away")


def _clipped(facts: Facts) -> Iterator[Finding]:
    table = facts["groups"]
    by_optimizer: dict[str, list[tuple[int, float, float]]] = {}
    for row in table.rows():
        by_optimizer.setdefault(row["optimizer"], []).append((row["step"], row["norm_backward"], row["norm_update"]))
    scales = dict(zip(facts["steps"]["step"].tolist(), facts["steps"]["scale"].tolist(), strict=True))
    for optimizer, rows in by_optimizer.items():
        norms: dict[int, tuple[float, float]] = {}
        for step, before, after in rows:
            squares = norms.get(step, (before, 0.0))[1]
            norms[step] = before, math.hypot(squares, after)
        compared = {step: pair for step, pair in norms.items() if math.isfinite(pair[0]) and pair[0] > 0}
        compared = {step: pair for step, pair in compared.items() if math.isfinite(pair[1])}
        if len(compared) < 5:
            continue
        norms_before = np.array([pair[0] for pair in compared.values()])
        norms_after = np.array([pair[1] for pair in compared.values()])
        clipped = norms_after < 0.999 * norms_before
        if clipped.mean() < 0.95:
            continue
        spread = float(norms_after.std() / norms_after.mean()) if norms_after.mean() else 0.0
        limit, typical = float(np.median(norms_after)), float(np.median(norms_before))
        step = next(iter(compared))
        # The tables do not hold the same steps.
        scale = float(np.median([scales[at] for at in compared if math.isfinite(scales.get(at, math.nan))] or [1.0]))
        values = {
            "optimizer": optimizer,
            "limit": limit,
            "typical": typical,
            "ratio": typical / limit if limit else math.inf,
            "steps": len(compared),
            "scale": scale,
        }
        where = {"optimizer": optimizer, "line": _clip_line(facts) or facts.update_line}
        if scale > 16 and limit * scale < 1e3 and limit < 0.02 * typical:
            yield Finding("clipped-scaled", "likely", step, "scaled", {**values, "meant": limit * scale}, where)
        elif 0 < limit < 1e-3 * typical and spread < 0.05:
            # A rate may have been chosen for gradients of that length.
            yield Finding("clipped-away", "likely", step, "away", values, where)
        elif 0 < limit < 0.02 * typical and spread < 1e-3:
            yield Finding("clipped-away", "likely", step, "limit", values, where)


def _clip_line(facts: Facts) -> str:
    return str(facts["steps"].last("clip_line").get("step", ""))


def clipped_nothing(facts: Facts) -> Iterator[Finding]:
    """Find clipping when no backward pass has run since the last update."""
    table = facts["steps"]
    if not len(table):
        return
    calls, of_none = table["clips"], table["clips_of_none"]
    has = calls > 0
    if has.sum() < UPDATES or (of_none[has] < calls[has]).mean() > 0.1:
        return
    step = int(table["step"][np.flatnonzero(has)[0]])
    values = {"count": int(calls.sum())}
    where = {"operator": "clip_grad_norm_", "line": _clip_line(facts)}
    yield Finding("clips-nothing", "certain", step, "none", values, where)


def stale(facts: Facts) -> Iterator[Finding]:
    """Find updates without a new backward pass, which use the gradients of the update before."""
    return folded(_stale(facts))


def _stale(facts: Facts) -> Iterator[Finding]:
    table = facts["groups"]
    repeated = table.panel("is_repeated") & (table.panel("backward_passes") == 0)
    for at, name in enumerate(table.names):
        if repeated[:, at].sum() < UPDATES or repeated[1:, at].mean() < 0.3:
            continue
        step = table.first_step(repeated[:, at])
        values = {"group": name, "count": int(repeated[:, at].sum()), "of": len(repeated)}
        where = {"optimizer": name, "line": facts.update_line}
        yield Finding("gradients-repeated", "certain", step, "no_backward", values, where)


def not_cleared(facts: Facts) -> Iterator[Finding]:
    """Find gradients that add up over updates."""
    table = facts["parameters"]
    kept = table.panel("is_kept")
    compared = (table.panel("optimizers") > 0) & (table.panel("gradient") == 2)
    counts = kept.sum(0)
    always = (counts >= UPDATES) & (counts >= 0.7 * (compared.sum(0) - 1))
    if not always.any():
        return
    names = table.chosen(always)
    step = table.first_step(kept[:, always].any(1))
    # A gradient of NaN has no norm: without it, the others would seem to vanish.
    norms = np.where(compared, table.panel("gradient_norm"), 0.0)[:, always]
    totals = np.sqrt((norms**2).sum(1))
    optimizers = listed(list(dict.fromkeys(table.last("optimizer")[name] for name in names)))
    values = {
        "optimizer": optimizers,
        "count": len(names),
        "names": listed(names),
        "steps": int(counts.max()),
        "first": float(totals[0]),
        "last": float(totals[-1]),
    }
    where = {
        "optimizer": optimizers,
        "parameter": listed(names, MOST_NAMED),
        "line": facts.update_line,
    }
    message = "all" if len(names) == int((compared.sum(0) > UPDATES).sum()) else "some"
    yield Finding(
        "gradients-not-cleared", "certain", step, message, values, where, tuple(names) if message == "some" else ()
    )


def by_hand(facts: Facts) -> Iterator[Finding]:
    """Find backward passes that no optimizer follows, and whose gradients add up."""
    table = facts["steps"]
    if not len(table) or (table["updates"] > 0).any() or len(table) < UPDATES:
        return
    parameters = facts["parameters"]
    norms = parameters.panel("gradient_norm")
    totals = np.sqrt(np.nansum(norms**2, 1))
    moved = parameters.panel("fingerprint")
    has_moved = bool((moved[1:] != moved[:-1]).any()) if len(moved) > 1 else False
    kept = facts["losses"]["finds_gradients"]
    values = {"count": len(table), "first": float(totals[0]), "last": float(totals[-1])}
    where = {"line": str(facts["losses"]["line"][0]), "parameter": listed(parameters.names, MOST_NAMED)}
    if has_moved and kept[1:].mean() > 0.8:
        yield Finding("no-optimizer", "certain", 2, "added", values, where)
    elif not has_moved:
        yield Finding("no-optimizer", "certain", 2, "none", values, where)


def thrown_away(facts: Facts) -> Iterator[Finding]:
    """Find accumulated gradients that are cleared before each further backward pass."""
    table = facts["groups"]
    if len(set(table["optimizer"].tolist())) != 1:
        return
    passes, cleared = table.panel("backward_passes")[:, 0], table.panel("cleared_between")[:, 0]
    several = passes >= 3
    # Of the first update, not all passes were seen.
    several[0] = False
    if several.sum() < 2 or (cleared[several] < passes[several] - 1).any():
        return
    step = table.first_step(several)
    values = {"passes": int(passes[several].max()), "updates": int(several.sum())}
    where = {"optimizer": table.names[0], "line": str(facts["losses"]["line"][0])}
    yield Finding("gradients-thrown-away", "certain", step, "cleared", values, where)


_LARGE_SCALE = 16.0
"""Loss scale that no other factor is taken for."""


def scaled_gradients(facts: Facts) -> Iterator[Finding]:
    """Find gradients that the optimizer reads while they are multiplied by the loss scale, or that never were."""
    return itertools.chain(folded(_scaled(facts)), _never_scaled(facts))


def _never_scaled(facts: Facts) -> Iterator[Finding]:
    table, groups = facts["steps"], facts["groups"]
    is_large = table["scale"] >= _LARGE_SCALE
    often = is_large & (table["unscaled_passes"] > 0)
    if often.sum() < UPDATES or often.sum() < 0.8 * is_large.sum() or groups["is_unscaled"].any():
        return
    at = int(np.flatnonzero(often)[0])
    line = str(table["unscaled_line"][at])
    values = {"line": line, "scale": float(np.median(table["scale"][often]))}
    yield Finding("gradients-still-scaled", "certain", int(table["step"][at]), "never", values, {"line": line})


def _scaled(facts: Facts) -> Iterator[Finding]:
    table = facts["groups"]
    scales = dict(zip(facts["steps"]["step"].tolist(), facts["steps"]["scale"].tolist(), strict=True))
    for name in table.names:
        of_name = table["name"] == name
        scale = np.array([scales.get(step, math.nan) for step in table["step"][of_name].tolist()])
        before, after = table["norm_backward"][of_name], table["norm_update"][of_name]
        measured = np.isfinite(scale) & (scale >= _LARGE_SCALE) & (before > 0) & np.isfinite(after)
        if measured.sum() < UPDATES:
            continue
        ratio = after[measured] / before[measured]
        # Unscaled by hand, they have the norm that they had after the backward pass.
        if np.median(ratio) > 4 and table["is_unscaled"][of_name][measured].all():
            values = {
                "group": name,
                "scale": float(np.median(scale[measured])),
                "norm": float(np.median(after[measured])),
            }
            where = {"optimizer": name, "line": facts.update_line}
            yield Finding("gradients-still-scaled", "certain", int(table["step"][of_name][0]), "scaled", values, where)


def accumulation(facts: Facts) -> Iterator[Finding]:
    """Find the losses of several backward passes before an update, not divided by their number, or divided twice."""
    groups, functions = facts["groups"], facts["loss_functions"]
    if not len(functions) or len(set(groups["optimizer"].tolist())) != 1:
        return
    passes = groups.panel("backward_passes")[:, 0]
    count = int(np.median(passes))
    if count < 4 or (passes == count).mean() < 0.7 or len(set(facts["losses"]["line"].tolist())) != 1:
        return
    kinds = set(functions["function"].tolist())
    if len(kinds) != 1 or set(functions["reduction"].tolist()) != {"mean"}:
        return
    factor = float(np.median(np.abs(functions["factor"])))
    with np.errstate(all="ignore"):
        ratio = groups["norm_update"] / groups["norm_backward"]
    shrunk = float(np.nanmedian(ratio)) if np.isfinite(ratio).any() else 1.0
    is_shrunk_alike = bool(np.nanstd(ratio) < 0.01 * shrunk) if np.isfinite(ratio).any() else False
    total = factor * (shrunk if is_shrunk_alike else 1.0)
    optimizer = str(groups["optimizer"][0])
    values = {"passes": count, "factor": factor, "total": total, "function": kinds.pop(), "optimizer": optimizer}
    where = {"optimizer": optimizer, "line": str(facts["losses"]["line"][0])}
    step = int(groups.steps[0])
    if math.isclose(total * count * count, 1, rel_tol=0.02):
        yield Finding("accumulation-scale", "certain", step, "twice", values, where)
    elif math.isclose(total, 1, rel_tol=0.02) and not _is_adaptive(optimizer):
        yield Finding("accumulation-scale", "likely", step, "undivided", values, where)


def _is_adaptive(optimizer: str) -> bool:
    """Whether an optimizer is indifferent to the scale of its gradients."""
    words = ("adam", "rmsprop", "adagrad", "adadelta", "lion", "rprop", "adafactor", "lamb", "muon", "lars")
    return any(word in optimizer.lower() for word in words)


def summed(facts: Facts) -> Iterator[Finding]:
    """Find a loss that is summed over the batch, with a rate for a mean."""
    functions, rates = facts["loss_functions"], facts["rates"]
    if not len(functions) or set(functions["reduction"].tolist()) != {"sum"} or not len(rates):
        return
    if len(functions.names) != 1 or len(set(rates["optimizer"].tolist())) != 1:
        return
    optimizer = str(rates["optimizer"][0])
    counts = [math.prod(sizes_of(shape)) for shape in functions["target_shape"].tolist()]
    count = float(np.median(counts)) * float(np.median(np.abs(functions["factor"])))
    rate = float(np.nanmax(rates["rate"]))
    if _is_adaptive(optimizer) or not count >= 8 or not rate * count >= 0.5:
        return
    values = {
        "function": str(functions["function"][0]),
        "count": int(count),
        "rate": rate,
        "effective": rate * count,
        "optimizer": optimizer,
    }
    where = {"operator": str(functions["function"][0]), "optimizer": optimizer, "line": str(functions["line"][0])}
    yield Finding("loss-summed", "likely", int(functions["step"][0]), "sum", values, where)


def cleared_early(facts: Facts) -> Iterator[Finding]:
    """Find gradients that are gone when the optimizer updates."""
    table = facts["groups"]
    cleared = table.panel("is_cleared")
    for at, name in enumerate(table.names):
        if cleared[:, at].sum() >= 2 and cleared[:, at].mean() > 0.8:
            step = table.first_step(cleared[:, at])
            before = float(np.nanmedian(table.panel("norm_backward")[:, at]))
            values = {"group": name, "count": int(cleared[:, at].sum()), "norm": before}
            where = {"optimizer": name, "line": facts.update_line}
            yield Finding("gradients-cleared-early", "certain", step, "cleared", values, where)
            return


def skipped(facts: Facts) -> Iterator[Finding]:
    """Find updates that a loss scaler skips again and again."""
    table = facts["steps"]
    if not len(table):
        return
    is_skipped = table["is_skipped"]
    if len(is_skipped) < 20:
        return
    # In its first updates a scale finds its size.
    is_always, is_often = is_skipped[-20:].mean() >= 0.9, len(is_skipped) >= 60 and is_skipped[20:].mean() > 0.25
    if not is_always and not is_often:
        return
    step = int(table["step"][np.flatnonzero(is_skipped)[0]])
    values = {"count": int(is_skipped.sum()), "of": len(is_skipped), "scale": float(table["scale"][-1])}
    message = "skipped" if is_always else "often"
    scaler = "GradScaler" if facts.framework == "torch" else "loss scaler"
    where = {"optimizer": scaler, "line": facts.update_line}
    yield Finding("updates-skipped", "certain", step, message, values, where)


RULES = (
    Rule(
        "clipped-scaled",
        "clipping",
        ("groups.norm_backward", "steps"),
        clipped_scaled,
        {
            "scaled": (
                "Gradients of {optimizer} are clipped while they are still multiplied by the loss scale",
                "{optimizer} 的梯度在仍乘有损失缩放系数时就被裁剪",
            )
        },
        {
            "scaled": (
                "after unscaling their norm is {limit:.2g}, before clipping {typical:.2g}; {limit:.2g} times the scale"
                " {scale:.0f} is {meant:.2g}",
                "取消缩放后其范数为 {limit:.2g}，裁剪前为 {typical:.2g}；{limit:.2g} 乘以缩放系数 {scale:.0f} 为 {meant:.2g}",
            )
        },
        ("Call scaler.unscale_(optimizer) before clipping", "裁剪前调用 scaler.unscale_(optimizer)"),
        ("", ""),
        frozenset(("clipped-away", "loss-stays")),
        15,
    ),
    Rule(
        "clipped-away",
        "clipping",
        ("groups.norm_backward",),
        clipped_away,
        {
            "away": (
                "Gradients of {optimizer} are clipped to a {ratio:,.0f}th of themselves in every step",
                "{optimizer} 的梯度在每一步都被裁剪到自身的 1/{ratio:,.0f}",
            ),
            "limit": (
                "Gradients of {optimizer} are at the limit of clipping in every step",
                "{optimizer} 的梯度在每一步都达到裁剪上限",
            ),
        },
        {
            "away": (
                "their norm is {typical:.2g} after the backward pass and {limit:.2g} at the update, in {steps} of {read} steps that were read",
                "在读取的 {read} 步中的 {steps} 步，反向传播后范数为 {typical:.2g}，更新时为 {limit:.2g}",
            ),
            "limit": (
                "their norm is {typical:.2g} after the backward pass and exactly {limit:.2g} at the update, in {steps} of {read} steps that were read",
                "在读取的 {read} 步中的 {steps} 步，反向传播后范数为 {typical:.2g}，更新时恰为 {limit:.2g}",
            ),
        },
        (
            "If the gradients before clipping are of the usual size, raise the limit: it should be met by exceptional steps"
            " only. If they are too large, look at the scale of the loss, the inputs and the initial weights first",
            "若裁剪前的梯度大小正常，则提高上限：只应有个别步达到它。若梯度过大，先检查损失、输入和初始权重的尺度",
        ),
        ("Clipping to a hundredth or more, which is common at the start.", "裁剪到百分之一以上，这在开始时很常见。"),
        frozenset(("loss-stays", "update-lost")),
        20,
    ),
    Rule(
        "clips-nothing",
        "clipping",
        ("steps.clips",),
        clipped_nothing,
        {
            "none": (
                "Gradients are clipped when there are none: {count} calls of clip_grad_norm_ or clip_grad_value_, no backward"
                " pass between them and the last update",
                "在没有梯度时裁剪梯度：{count} 次调用 clip_grad_norm_ 或 clip_grad_value_，与上次更新之间没有反向传播",
            )
        },
        {},
        ("Clip after the backward pass and before the update", "在反向传播之后、更新之前裁剪"),
        ("", ""),
        frozenset((*DIVERGENCE,)),
        10,
    ),
    Rule(
        "gradients-repeated",
        "accumulated-gradients",
        ("groups",),
        stale,
        {
            "no_backward": (
                "{group} is updated without a new backward pass: {count} of {of} updates use the gradients of the one"
                " before",
                "{group} 在没有新的反向传播时就更新：{of} 次更新中有 {count} 次使用上一次的梯度",
            ),
        },
        {},
        (
            "Compute the gradients of each step before its update: loss.backward(), then optimizer.step(), once each",
            "每一步先计算梯度再更新：loss.backward()，然后 optimizer.step()，各一次",
        ),
        ("", ""),
        frozenset(("loss-stays", "gradients-not-cleared")),
        12,
    ),
    Rule(
        "gradients-not-cleared",
        "accumulated-gradients",
        ("parameters.is_kept",),
        not_cleared,
        {
            "all": (
                "Gradients are not cleared between updates: each backward pass adds to those that {optimizer} has used",
                "更新之间没有清零梯度：每次反向传播都加到 {optimizer} 已使用过的梯度上",
            ),
            "some": (
                "The gradients of {count} parameters are not cleared between updates: {names}",
                "{count} 个参数的梯度在更新之间没有清零：{names}",
            ),
        },
        {
            "all": (
                "in {steps} of {read} updates that were read; gradient norm {first:.3g} at first, {last:.3g} at last",
                "在读取的 {read} 次更新中有 {steps} 次；梯度范数起初为 {first:.3g}，最后为 {last:.3g}",
            ),
            "some": (
                "in {steps} of {read} updates that were read; their gradient norm is {first:.3g} at first, {last:.3g} at last",
                "在读取的 {read} 次更新中有 {steps} 次；其梯度范数起初为 {first:.3g}，最后为 {last:.3g}",
            ),
        },
        ("Call optimizer.zero_grad() in each step", "在每一步调用 optimizer.zero_grad()"),
        ("Accumulation over several backward passes before one update.", "一次更新之前的多次反向传播累积。"),
        frozenset((*DIVERGENCE, "loss-stays", "clipped-away")),
        10,
    ),
    Rule(
        "gradients-cleared-early",
        "accumulated-gradients",
        ("groups.is_cleared",),
        cleared_early,
        {
            "cleared": (
                "Gradients are cleared before {group} uses them, in {count} of {read} updates that were read",
                "{group} 使用梯度之前梯度已被清零，在读取的 {read} 次更新中有 {count} 次",
            )
        },
        {
            "cleared": (
                "after the backward pass their norm was {norm:.3g}, at the update there were none, or they were 0",
                "反向传播之后范数为 {norm:.3g}，更新时没有梯度或为 0",
            )
        },
        (
            "Call zero_grad() before the backward pass, not between it and step()",
            "在反向传播之前而不是在它与 step() 之间调用 zero_grad()",
        ),
        ("", ""),
        frozenset(("no-gradients", "no-gradient", "zero-gradient", "loss-constant", "loss-stays", "clipped-away")),
        3,
    ),
    Rule(
        "no-optimizer",
        "accumulated-gradients",
        ("steps", "parameters", "losses.finds_gradients"),
        by_hand,
        {
            "added": (
                "Gradients are not cleared: each of {count} backward passes adds to those of the one before",
                "没有清零梯度：{count} 次反向传播中的每一次都加到之前的梯度上",
            ),
            "none": (
                "{count} backward passes, and no update: gradients add up, and no optimizer ever steps",
                "{count} 次反向传播而没有更新：梯度不断累加，优化器从未执行 step",
            ),
        },
        {
            "added": (
                "their norm is {first:.3g} at first, {last:.3g} at last",
                "其范数起初为 {first:.3g}，最后为 {last:.3g}",
            ),
            "none": (
                "their norm is {first:.3g} at first, {last:.3g} at last",
                "其范数起初为 {first:.3g}，最后为 {last:.3g}",
            ),
        },
        (
            "Clear the gradients (p.grad = None) in each step; where they are accumulated, check that the update is reached",
            "每一步清零梯度 (p.grad = None)；若有意累积，请检查更新是否会被执行",
        ),
        ("", ""),
        frozenset(("loss-stays", "optimizer-never-steps")),
        5,
    ),
    Rule(
        "gradients-thrown-away",
        "accumulated-gradients",
        ("groups.cleared_between", "losses"),
        thrown_away,
        {
            "cleared": (
                "Gradients are cleared between the {passes} backward passes of an update: only the last one counts",
                "一次更新的 {passes} 次反向传播之间清零了梯度：只有最后一次有效",
            )
        },
        {"cleared": ("in each of {updates} updates that were read", "在读取的 {updates} 次更新中每次如此")},
        ("Call zero_grad() once, after the update", "只在更新之后调用一次 zero_grad()"),
        (
            "Trainings with several optimizers, which clear each other's gradients.",
            "有多个优化器、相互清零梯度的训练。",
        ),
        frozenset(("loss-stays", "accumulation-scale")),
        8,
    ),
    Rule(
        "gradients-still-scaled",
        "scaling",
        ("groups.norm_backward", "steps"),
        scaled_gradients,
        {
            "scaled": (
                "{group} updates with gradients that are still multiplied by the loss scale {scale:.0f}",
                "{group} 使用仍乘有损失缩放系数 {scale:.0f} 的梯度进行更新",
            ),
            "never": (
                "The loss at {line} is not scaled, though its gradients are divided by the scale {scale:.0f}: nothing of them is"
                " left",
                "{line} 处的损失没有缩放，但其梯度被除以缩放系数 {scale:.0f}：几乎什么都不剩",
            ),
        },
        {"scaled": ("their norm is {norm:.3g} at the update", "更新时其范数为 {norm:.3g}")},
        (
            "Call scaler.step(optimizer) and scaler.update() in place of optimizer.step()",
            "用 scaler.step(optimizer) 和 scaler.update() 代替 optimizer.step()",
        ),
        ("", ""),
        frozenset(("loss-stays", *DIVERGENCE)),
        5,
        advice_on={
            "never": (
                "Call scaler.scale(loss).backward() for each loss, or add the losses up before",
                "对每个损失调用 scaler.scale(loss).backward()，或先把损失相加",
            )
        },
    ),
    Rule(
        "accumulation-scale",
        "scaling",
        ("groups.cleared_between", "loss_functions", "losses"),
        accumulation,
        {
            "undivided": (
                "{passes} backward passes make one update of {optimizer}, and their losses are not divided: its gradients are"
                " {passes} times those of a mean",
                "{optimizer} 的一次更新由 {passes} 次反向传播组成，而损失没有除以次数：梯度是平均值的 {passes} 倍",
            ),
            "twice": (
                "{passes} backward passes make one update of {optimizer}, and their gradients are divided by {passes} twice",
                "{optimizer} 的一次更新由 {passes} 次反向传播组成，而梯度被除以 {passes} 两次",
            ),
        },
        {
            "undivided": ("{function} is a mean, multiplied by {factor:.3g}", "{function} 为平均值，乘以 {factor:.3g}"),
            "twice": (
                "{function} is a mean, and is multiplied by {total:.3g} in total",
                "{function} 为平均值，总共乘以 {total:.3g}",
            ),
        },
        ("Divide each loss by the number of backward passes, once", "将每个损失除以反向传播次数，且只除一次"),
        (
            "Optimizers that are indifferent to a factor, such as Adam, if nothing is divided.",
            "对常数因子不敏感的优化器 (如 Adam)，若没有相除。",
        ),
        frozenset(("loss-stays", *DIVERGENCE)),
        20,
    ),
    Rule(
        "loss-summed",
        "scaling",
        ("loss_functions", "rates"),
        summed,
        {
            "sum": (
                "{function} is summed over {count} targets: {optimizer} with rate {rate:.2g} updates as with {effective:.2g} on"
                " their mean",
                "{function} 对 {count} 个目标求和：{optimizer} 的学习率 {rate:.2g} 相当于对平均值使用 {effective:.2g}",
            )
        },
        {},
        ("Use the mean, or divide the rate", "使用平均值，或降低学习率"),
        ("Sums with Adam and the like, or with a rate that fits.", "使用 Adam 等优化器或合适学习率的求和。"),
        frozenset(("loss-stays", "clipped-away", *DIVERGENCE)),
        25,
    ),
    Rule(
        "updates-skipped",
        "scaling",
        ("steps",),
        skipped,
        {
            "skipped": (
                "The loss scaler skips the updates: {count} of {of}",
                "损失缩放器跳过了更新：{of} 次中的 {count} 次",
            ),
            "often": (
                "The loss scaler skips {count} of {of} updates, also after its first ones",
                "损失缩放器跳过了 {of} 次更新中的 {count} 次，且不仅在最初",
            ),
            "logged": (
                "Updates are skipped in {count} of {of} entries of the log, and at its end",
                "日志的 {of} 条记录中有 {count} 条跳过了更新，直到末尾",
            ),
        },
        {
            "skipped": (
                "the scale is {scale:.3g}, and gradients are still not finite",
                "缩放系数为 {scale:.3g}，梯度仍不是有限值",
            ),
            "often": ("the scale is {scale:.3g} at last", "缩放系数最后为 {scale:.3g}"),
        },
        (
            "Look for what is not finite: `tensight run --recommended` names the operator",
            "查找非有限值的来源：`tensight run --recommended` 会给出算子",
        ),
        ("The first updates, with which a scale finds its size.", "最初的更新，缩放系数借此找到合适的大小。"),
        frozenset(("loss-stays",)),
        5,
        of_log=logs.skipped,
    ),
)
