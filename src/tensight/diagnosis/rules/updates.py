"""Rules about optimizers: rates, clipping, clearing of gradients, who updates what."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tensight.diagnosis.findings import Finding, listed
from tensight.diagnosis.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tensight.diagnosis.facts import Facts

UPDATES = 3
"""Number of updates in a row after which something is said to be always so."""


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
    for name, optimizer, steps, rates, _ in _groups(facts):
        measured = rates > 0
        if measured.sum() < 2 * UPDATES:
            continue
        highest = float(rates.max())
        low = np.flatnonzero(measured & (rates < 1e-3 * highest))
        if not len(low) or not 0 < rates[-1] < 1e-3 * highest:
            continue
        step = int(steps[low[0]])
        left = int(facts.last_step - step)
        if left < max(20, 0.25 * facts.last_step):
            continue
        schedule = _schedule_of(facts, optimizer)
        values = {
            "group": name,
            "step": step,
            "rate": float(rates[low[0]]),
            "highest": highest,
            "left": left,
            "schedule": schedule or "a schedule",
        }
        where = {"optimizer": name, "schedule": schedule}
        yield Finding("learning-rate-collapsed", "likely", step, "collapsed", values, where)


def rate_never_rose(facts: Facts) -> Iterator[Finding]:
    """Find warm-ups that are never stepped, or so rarely that the training is over before they are."""
    schedules = facts["schedules"]
    if not len(schedules) or facts.last_step < 10:
        return
    positions = schedules.last("position")
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
        }
        where = {"optimizer": name, "schedule": schedule}
        is_low = (rates <= 0.2 * initial).all()
        if position <= 0 and is_low and (rates == rates[0]).all():
            yield Finding("schedule-not-stepped", "likely", int(steps[0]), "never", values, where)
        elif is_low and facts.is_over and (np.diff(rates) > 0).all() and facts.last_step >= 20:
            yield Finding("schedule-not-stepped", "likely", int(steps[0]), "long", values, where)
        elif is_low and (np.diff(rates) >= 0).all() and position <= 0.2 * facts.last_step >= 10:
            yield Finding("schedule-not-stepped", "likely", int(steps[0]), "rarely", values, where)


def clipped_scaled(facts: Facts) -> Iterator[Finding]:
    """Find gradients that are clipped before they are unscaled."""
    return (finding for finding in _clipped(facts) if finding.rule == "clipped-scaled")


def clipped_away(facts: Facts) -> Iterator[Finding]:
    """Find gradients that are clipped to a small part of themselves in every step, or exactly to a limit."""
    return (finding for finding in _clipped(facts) if finding.rule == "clipped-away")


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
        scale = float(np.median([scales.get(at, math.nan) for at in compared]))
        values = {
            "optimizer": optimizer,
            "limit": limit,
            "typical": typical,
            "ratio": typical / limit if limit else math.inf,
            "steps": len(compared),
            "scale": scale,
        }
        where = {"optimizer": optimizer, "line": facts["steps"].last("update_line").get("step", "")}
        if math.isfinite(scale) and scale > 16 and limit * scale < 1e3 and limit < 0.02 * typical:
            yield Finding("clipped-scaled", "likely", step, "scaled", {**values, "meant": limit * scale}, where)
        elif 0 < limit < 1e-3 * typical and spread < 0.05:
            yield Finding("clipped-away", "certain", step, "away", values, where)
        elif 0 < limit < 0.02 * typical and spread < 1e-3:
            yield Finding("clipped-away", "likely", step, "limit", values, where)


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
    yield Finding("clips-nothing", "certain", step, "none", values, {"operator": "clip_grad_norm_"})


def stale(facts: Facts) -> Iterator[Finding]:
    """Find updates without a new backward pass, which use the gradients of the update before."""
    table = facts["groups"]
    repeated = table.panel("is_repeated") & (table.panel("backward_passes") == 0)
    for at, name in enumerate(table.names):
        if repeated[:, at].sum() < UPDATES or repeated[1:, at].mean() < 0.3:
            continue
        step = int(table.steps[np.flatnonzero(repeated[:, at])[0]])
        values = {"group": name, "count": int(repeated[:, at].sum()), "of": len(repeated)}
        where = {"optimizer": name, "line": facts["steps"].last("update_line").get("step", "")}
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
    names = [name for name, is_kept in zip(table.names, always.tolist(), strict=True) if is_kept]
    step = int(table.steps[np.flatnonzero(kept[:, always].any(1))[0]])
    norms = table.panel("gradient_norm")[:, always]
    totals = np.sqrt(np.nansum(norms**2, 1))
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
        "parameter": listed(names, 40),
        "line": facts["steps"].last("update_line").get("step", ""),
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
    where = {"line": str(facts["losses"]["line"][0]), "parameter": listed(parameters.names, 40)}
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
    step = int(table.steps[np.flatnonzero(several)[0]])
    values = {"passes": int(passes[several].max()), "updates": int(several.sum())}
    where = {"optimizer": table.names[0], "line": str(facts["losses"]["line"][0])}
    yield Finding("gradients-thrown-away", "certain", step, "cleared", values, where)


def scaled_gradients(facts: Facts) -> Iterator[Finding]:
    """Find gradients that the optimizer reads while they are multiplied by the loss scale."""
    table = facts["groups"]
    scales = dict(zip(facts["steps"]["step"].tolist(), facts["steps"]["scale"].tolist(), strict=True))
    for name in table.names:
        of_name = table["name"] == name
        scale = np.array([scales.get(step, math.nan) for step in table["step"][of_name].tolist()])
        before, after = table["norm_backward"][of_name], table["norm_update"][of_name]
        measured = np.isfinite(scale) & (scale >= 16) & (before > 0) & np.isfinite(after)
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
            where = {"optimizer": name, "line": facts["steps"].last("update_line").get("step", "")}
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
    counts = [math.prod(int(size) for size in shape.split("x") if size) for shape in functions["target_shape"].tolist()]
    count = float(np.median(counts)) * float(np.median(np.abs(functions["factor"])))
    rate = float(np.nanmax(rates["rate"]))
    if _is_adaptive(optimizer) or count < 8 or rate * count < 0.5:
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


def made_anew(facts: Facts) -> Iterator[Finding]:
    """Find optimizers that are made anew before their updates, so that their state is lost."""
    table = facts["groups"]
    fresh = table["is_new"]
    if not len(fresh) or fresh.sum() < UPDATES or fresh.mean() < 0.3:
        return
    first = int(np.flatnonzero(fresh)[0])
    kind = str(table["optimizer"][first]).split()[0]
    values = {"optimizer": kind, "count": int(fresh.sum()), "of": len(fresh)}
    where = {"optimizer": kind, "line": facts["steps"].last("update_line").get("step", "")}
    yield Finding("optimizer-made-anew", "certain", int(table["step"][first]), "anew", values, where)


def cleared_early(facts: Facts) -> Iterator[Finding]:
    """Find gradients that are gone when the optimizer updates."""
    table = facts["groups"]
    cleared = table.panel("is_cleared")
    for at, name in enumerate(table.names):
        if cleared[:, at].sum() >= 2 and cleared[:, at].mean() > 0.8:
            step = int(table.steps[np.flatnonzero(cleared[:, at])[0]])
            before = float(np.nanmedian(table.panel("norm_backward")[:, at]))
            values = {"group": name, "count": int(cleared[:, at].sum()), "norm": before}
            where = {"optimizer": name, "line": facts["steps"].last("update_line").get("step", "")}
            yield Finding("gradients-cleared-early", "certain", step, "cleared", values, where)
            return


def updated_twice(facts: Facts) -> Iterator[Finding]:
    """Find parameters that two optimizers update in the same step."""
    table = facts["parameters"]
    twice = table.panel("optimizers") > 1
    often = (twice.sum(0) >= 2) & (twice.mean(0) > 0.5)
    if not often.any():
        return
    names = [name for name, is_twice in zip(table.names, often.tolist(), strict=True) if is_twice]
    step = int(table.steps[np.flatnonzero(twice[:, often].any(1))[0]])
    optimizers = list(dict.fromkeys(facts["groups"]["optimizer"].tolist()))
    values = {"count": len(names), "names": listed(names), "optimizers": listed(optimizers)}
    where = {"parameter": listed(names), "optimizer": listed(optimizers)}
    yield Finding("two-optimizers", "likely", step, "twice", values, where, tuple(names))


def foreign(facts: Facts) -> Iterator[Finding]:
    """Find optimizers that hold parameters of no model that runs."""
    table = facts["groups"]
    for name in table.names:
        of_name = table["name"] == name
        unknown, parameters = int(table["unknown"][of_name][-1]), int(table["parameters"][of_name][-1])
        optimizer = str(table["optimizer"][of_name][0])
        if len(table["step"][of_name]) < UPDATES:
            continue
        if not unknown and _never_reached(facts, optimizer):
            # It holds another model, which the script has made and never calls.
            unknown = parameters
        if not unknown:
            continue
        weights = facts["parameters"]
        owners, prints = weights["owners"], weights.panel("fingerprint")
        moved = {each for at, each in enumerate(weights.names) if len(prints) > 1 and prints[-1, at] != prints[-2, at]}
        lost = [
            each
            for each, count in facts["parameters"].last("owners").items()
            # Those that change have a copy in higher precision, which the optimizer updates.
            if count == 0 and facts["parameters"].last("gradient")[each] == 2 and each not in moved
        ]
        if not len(owners) or not lost:
            continue
        values = {"group": name, "unknown": unknown, "of": parameters, "names": listed(lost)}
        where = {"optimizer": name, "parameter": listed(lost, 40)}
        since = table["step"][of_name][table["unknown"][of_name] > 0]
        step = int(since[0]) if len(since) else int(table.steps[0])
        yield Finding("optimizer-of-others", "certain", step, "others", values, where)


def _never_reached(facts: Facts, optimizer: str) -> bool:
    """Whether no parameter that an optimizer updates has ever had a gradient."""
    table = facts["parameters"]
    of_optimizer = table["optimizer"] == optimizer
    return bool(of_optimizer.any()) and not (table["gradient"][of_optimizer] > 0).any()


def never_steps(facts: Facts) -> Iterator[Finding]:
    """Find parameters with gradients whose optimizer never updates, while others do."""
    table = facts["parameters"]
    if len(table.steps) < 20:
        return
    present = table.present()
    held = (table.panel("owners") > 0) & present
    gradient = ((table.panel("gradient") == 2) & held).sum(0)
    never = (gradient >= 20) & ~(table.panel("optimizers") > 0).any(0) & held[-1]
    if not never.any():
        return
    names = [name for name, is_never in zip(table.names, never.tolist(), strict=True) if is_never]
    values = {"count": len(names), "names": listed(names), "steps": int(gradient[never].max())}
    step = int(table.steps[np.flatnonzero(held[:, never].any(1))[0]])
    yield Finding(
        "optimizer-never-steps", "likely", step, "never", values, {"parameter": listed(names, 40)}, tuple(names)
    )


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


def skipped(facts: Facts) -> Iterator[Finding]:
    """Find updates that a loss scaler skips again and again."""
    table = facts["steps"]
    if not len(table):
        return
    is_skipped = table["is_skipped"]
    if len(is_skipped) < 20 or is_skipped[-20:].mean() < 0.9:
        return
    step = int(table["step"][np.flatnonzero(is_skipped)[0]])
    values = {"count": int(is_skipped.sum()), "of": len(is_skipped), "scale": float(table["scale"][-1])}
    yield Finding("updates-skipped", "certain", step, "skipped", values, {"optimizer": "GradScaler"})


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
        },
        {
            "never": ("{count} updates with rate 0", "{count} 次更新的学习率为 0"),
            "ended": (
                "{count} updates with rate 0; {schedule} set it",
                "{count} 次更新的学习率为 0；由 {schedule} 设置",
            ),
        },
        (
            "Check how often the scheduler is stepped, and for how many steps it was made",
            "检查调度器的 step 次数以及创建时给定的总步数",
        ),
        ("A rate of 0 in the first one or two updates of a warm-up.", "预热的前一两次更新中的学习率 0。"),
        frozenset(("loss-stays", "schedule-over")),
        10,
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
            )
        },
        {
            "past": (
                "it is at {position} of {length}, stepped {per_update:.2g} times for each update",
                "当前位置 {position}，长度 {length}，每次更新 step {per_update:.2g} 次",
            )
        },
        (
            "Step it once for each epoch if T_max counts epochs, or give T_max in updates",
            "如果 T_max 以 epoch 计，则每个 epoch 只 step 一次，或以更新次数给出 T_max",
        ),
        ("Schedules with restarts (CosineAnnealingWarmRestarts).", "带重启的调度 (CosineAnnealingWarmRestarts)。"),
        frozenset(("loss-stays",)),
        20,
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
            )
        },
        {"collapsed": ("{schedule} sets it", "由 {schedule} 设置")},
        (
            "Check whether the scheduler is stepped for each batch although it counts epochs",
            "检查调度器是否按 batch 而不是按 epoch 调用 step",
        ),
        ("Schedules that end with the training.", "与训练同时结束的调度。"),
        frozenset(("loss-stays",)),
        22,
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
            "long": (
                "The warm-up of {schedule} is longer than the training: after {steps} updates {group} has come to rate {rate:.2g}"
                " only",
                "{schedule} 的预热比训练还长：{steps} 次更新后 {group} 的学习率只到 {rate:.2g}",
            ),
            "rarely": (
                "{schedule} was stepped {position} times in {steps} updates: {group} has come to rate {rate:.2g} only",
                "{schedule} 在 {steps} 次更新中只 step 了 {position} 次：{group} 的学习率只到 {rate:.2g}",
            ),
        },
        {
            "long": ("the full rate is {initial:.2g}", "完整学习率为 {initial:.2g}"),
            "never": ("{steps} updates; the full rate is {initial:.2g}", "{steps} 次更新；完整学习率为 {initial:.2g}"),
            "rarely": ("the full rate is {initial:.2g}", "完整学习率为 {initial:.2g}"),
        },
        ("Call scheduler.step() after each update", "每次更新后调用 scheduler.step()"),
        ("Schedules that begin with the full rate and count epochs.", "以完整学习率开始并按 epoch 计数的调度。"),
        frozenset(("loss-stays", "learning-rate-zero")),
        8,
    ),
    Rule(
        "clipped-scaled",
        "clipping",
        ("groups", "steps"),
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
        ("groups",),
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
                "their norm is {typical:.2g} after the backward pass and {limit:.2g} at the update, in {steps} steps",
                "在 {steps} 步中，反向传播后范数为 {typical:.2g}，更新时为 {limit:.2g}",
            ),
            "limit": (
                "their norm is {typical:.2g} after the backward pass and exactly {limit:.2g} at the update, in {steps} steps",
                "在 {steps} 步中，反向传播后范数为 {typical:.2g}，更新时恰为 {limit:.2g}",
            ),
        },
        (
            "Raise the limit: it should be met by exceptional steps only. Adam is indifferent to a constant factor, SGD"
            " is not",
            "提高上限：只应有个别步达到它。Adam 对常数因子不敏感，SGD 则不然",
        ),
        ("Clipping to a hundredth or more, which is common at the start.", "裁剪到百分之一以上，这在开始时很常见。"),
        frozenset(("loss-stays", "update-lost")),
        20,
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
        ("parameters",),
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
                "{steps} times; gradient norm {first:.3g} at first, {last:.3g} at last",
                "{steps} 次；梯度范数起初为 {first:.3g}，最后为 {last:.3g}",
            ),
            "some": (
                "{steps} times; their gradient norm is {first:.3g} at first, {last:.3g} at last",
                "{steps} 次；其梯度范数起初为 {first:.3g}，最后为 {last:.3g}",
            ),
        },
        ("Call optimizer.zero_grad() in each step", "在每一步调用 optimizer.zero_grad()"),
        ("Accumulation over several backward passes before one update.", "一次更新之前的多次反向传播累积。"),
        frozenset(("loss-rises", "loss-stays", "clipped-away")),
        10,
    ),
    Rule(
        "gradients-cleared-early",
        "accumulated-gradients",
        ("groups",),
        cleared_early,
        {
            "cleared": (
                "Gradients are cleared before {group} uses them, in {count} updates",
                "{group} 使用梯度之前梯度已被清零，共 {count} 次更新",
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
        frozenset(("no-gradients", "no-gradient", "zero-gradient", "loss-stays", "clipped-away")),
        3,
    ),
    Rule(
        "two-optimizers",
        "optimizer",
        ("parameters",),
        updated_twice,
        {
            "twice": (
                "{count} parameters are updated by two optimizers in each step: {names}",
                "{count} 个参数在每一步被两个优化器更新：{names}",
            )
        },
        {"twice": ("{optimizers}", "{optimizers}")},
        ("Give each parameter to one optimizer", "每个参数只交给一个优化器"),
        ("Optimizers that take turns.", "轮流工作的优化器。"),
        frozenset(("loss-stays",)),
        15,
    ),
    Rule(
        "optimizer-of-others",
        "optimizer",
        ("groups", "parameters"),
        foreign,
        {
            "others": (
                "{group} updates {unknown} parameters of no model that runs, while {names} get gradients and are in no"
                " optimizer",
                "{group} 更新 {unknown} 个不属于任何运行中模型的参数，而 {names} 有梯度却不在任何优化器中",
            )
        },
        {"others": ("{unknown} of its {of} parameters", "其 {of} 个参数中的 {unknown} 个")},
        (
            "Make the optimizer after the last change of the model (.to(), a new head, a copy)",
            "在模型最后一次修改 (.to()、新的头部、副本) 之后再创建优化器",
        ),
        ("", ""),
        frozenset(("not-in-optimizer", "no-gradients", "no-gradient", "loss-stays", "optimizer-never-steps")),
        5,
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
            )
        },
        {
            "skipped": (
                "the scale is {scale:.3g}, and gradients are still not finite",
                "缩放系数为 {scale:.3g}，梯度仍不是有限值",
            )
        },
        (
            "Look for what is not finite: `tensight run --recommended` names the operator",
            "查找非有限值的来源：`tensight run --recommended` 会给出算子",
        ),
        ("The first updates, with which a scale finds its size.", "最初的更新，缩放系数借此找到合适的大小。"),
        frozenset(("loss-stays",)),
        5,
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
        "no-optimizer",
        "accumulated-gradients",
        ("steps", "parameters", "losses"),
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
        frozenset(("loss-stays",)),
        5,
    ),
    Rule(
        "gradients-thrown-away",
        "accumulated-gradients",
        ("groups", "losses"),
        thrown_away,
        {
            "cleared": (
                "Gradients are cleared between the {passes} backward passes of an update: only the last one counts",
                "一次更新的 {passes} 次反向传播之间清零了梯度：只有最后一次有效",
            )
        },
        {"cleared": ("in each of {updates} updates", "{updates} 次更新中每次如此")},
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
        ("groups", "steps"),
        scaled_gradients,
        {
            "scaled": (
                "{group} updates with gradients that are still multiplied by the loss scale {scale:.0f}",
                "{group} 使用仍乘有损失缩放系数 {scale:.0f} 的梯度进行更新",
            )
        },
        {"scaled": ("their norm is {norm:.3g} at the update", "更新时其范数为 {norm:.3g}")},
        (
            "Call scaler.step(optimizer) and scaler.update() in place of optimizer.step()",
            "用 scaler.step(optimizer) 和 scaler.update() 代替 optimizer.step()",
        ),
        ("", ""),
        frozenset(("loss-stays", "loss-rises")),
        5,
    ),
    Rule(
        "accumulation-scale",
        "scaling",
        ("groups", "loss_functions", "losses"),
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
        frozenset(("loss-stays", "loss-rises")),
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
        frozenset(("loss-stays", "loss-rises")),
        25,
    ),
    Rule(
        "optimizer-made-anew",
        "optimizer",
        ("groups",),
        made_anew,
        {
            "anew": (
                "{optimizer} is made anew before {count} of {of} updates: its averages begin at 0 each time",
                "{optimizer} 在 {of} 次更新中的 {count} 次之前被重新创建：其平均值每次都从 0 开始",
            )
        },
        {},
        ("Make the optimizer once, before the loop", "在循环之前只创建一次优化器"),
        ("Optimizers without state, such as plain SGD.", "没有状态的优化器，如普通 SGD。"),
        frozenset(("loss-stays",)),
        10,
    ),
    Rule(
        "clips-nothing",
        "clipping",
        ("steps",),
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
        frozenset(("loss-rises",)),
        10,
    ),
    Rule(
        "optimizer-never-steps",
        "optimizer",
        ("parameters",),
        never_steps,
        {
            "never": (
                "{count} parameters get gradients in {steps} steps, but their optimizer never updates: {names}",
                "{count} 个参数在 {steps} 步中有梯度，但其优化器从未更新：{names}",
            )
        },
        {},
        ("Call step() of each optimizer", "调用每个优化器的 step()"),
        ("Optimizers that update now and then.", "偶尔更新的优化器。"),
        frozenset(("loss-stays",)),
        15,
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
