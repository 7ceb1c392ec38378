"""Rules about parameters: why a weight does not change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tensight.diagnosis.findings import MOST_NAMED, Certainty, Finding, folded, listed
from tensight.diagnosis.rule import Rule
from tensight.diagnosis.rules.losses import remains
from tensight.diagnosis.rules.stages import stage_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tensight.diagnosis.facts import Facts, Table

SETTLED = 3
"""Number of steps after which a weight that had no gradient is said to have none."""

_NEVER, _ZERO = 0, 1


def _owned(table: Table) -> NDArray[np.bool_]:
    """Return which parameters are trainable and updated by an optimizer, in which steps."""
    owned: NDArray[np.bool_] = table.panel("is_trainable") & (table.panel("optimizers") > 0)
    return owned


def _any_gradient(facts: Facts) -> NDArray[np.bool_]:
    """Return for each step whether any parameter had a gradient that was not 0."""
    result: NDArray[np.bool_] = (facts["parameters"].panel("gradient") == 2).any(1)
    return result


def _where(table: Table, names: list[str]) -> dict[str, str]:
    modules = table.last("module")
    named = list(dict.fromkeys(modules[name] for name in names))
    return {"parameter": listed(names, MOST_NAMED), "module": listed(named, MOST_NAMED)}


def no_gradient(facts: Facts) -> Iterator[Finding]:
    """Find parameters that an optimizer updates, and that have never had a gradient while others had."""
    table = facts["parameters"]
    steps = table.steps
    if len(steps) < SETTLED:
        return
    owned, gradient = _owned(table), table.panel("gradient")
    has_any = _any_gradient(facts)
    if has_any.sum() < SETTLED:
        return
    counts = (owned & has_any[:, None]).sum(0)
    never = (counts >= SETTLED) & ((gradient == _NEVER) | ~owned).all(0)
    # A script that clears gradients of some layers leaves these as they are.
    never &= ~table.panel("is_cleared").any(0)
    # On the bias of a layer, a loss of its derivative does not depend.
    modules, shapes = table.last("module"), table.last("shape")
    reached = {modules[name] for at, name in enumerate(table.names) if (gradient[:, at] == 2).any()}
    never &= ["x" in shapes[name] or modules[name] not in reached for name in table.names]
    unused = never & (table.panel("is_unused") | ~owned).all(0)
    line = facts["steps"].last("checkpoint_line").get("step", "")
    for chosen, message in ((never & ~unused, "checkpointed" if line else "some"), (unused, "unused")):
        if not chosen.any():
            continue
        names = table.chosen(chosen)
        certainty: Certainty = "likely" if message == "unused" else "certain"
        step = int(steps[np.flatnonzero(owned[:, chosen].any(1))[0]])
        values = {
            "count": len(names),
            "of": int((counts >= SETTLED).sum()),
            "names": listed(names),
            "steps": int(counts.max()),
            "line": line,
        }
        where = {**_where(table, names), "line": "" if message == "unused" else line}
        yield Finding("no-gradient", certainty, step, message, values, where, tuple(names))


def no_gradient_at_all(facts: Facts) -> Iterator[Finding]:
    """Find updates in which no parameter has a gradient."""
    table = facts["parameters"]
    owned = _owned(table)
    if len(table.steps) < SETTLED or not owned.any():
        return
    has_none = owned.any(1) & ((table.panel("gradient") == _NEVER) | ~owned).all(1)
    if not has_none[: max(SETTLED, int(0.9 * len(has_none)))].all():
        return
    # Of the other steps, only the values of losses are read.
    losses = facts["losses"]
    is_read = np.isin(losses["step"], table.steps)
    step = int(table.steps[0])
    line = facts.update_line
    has_backward = bool((facts["steps"]["backward_passes"] > 0).any())
    is_cut = bool(is_read.any()) and not bool(losses["is_connected"][is_read].any())
    is_cleared = len(facts["groups"]) > 0 and bool(facts["groups"]["is_cleared"].all())
    if is_cleared:
        return
    message = "cut" if is_cut else "unreached" if has_backward else "no_backward"
    where = {"parameter": "", "line": (losses["line"][is_read][0] if is_cut else line) or line}
    function = str(losses["function"][is_read][0]) if is_cut else ""
    yield Finding(
        "no-gradients", "certain", step, message, {"line": where["line"], "function": function or "leaf"}, where
    )


def zero_gradient(facts: Facts) -> Iterator[Finding]:
    """Find parameters whose gradient is exactly 0 in every step."""
    table = facts["parameters"]
    steps = table.steps
    if len(steps) < SETTLED:
        return
    owned, gradient = _owned(table), table.panel("gradient")
    counts = (owned & (gradient == _ZERO)).sum(0)
    measured = (owned & table.present()).sum(0)
    always = (
        (counts >= np.clip(0.9 * measured, SETTLED, None)) & (measured >= min(8, len(steps))) & ~(gradient == 2).any(0)
    )
    if not always.any():
        return
    elements = np.array([table.last("elements")[name] for name in table.names])
    shapes = table.last("shape")
    types = table.last("module_type")
    layers = facts["layers"]
    given = set(layers["name"][layers["has_input"]].tolist())
    reached = {name for at, name in enumerate(table.names) if (gradient[:, at] == 2).any()}
    names = []
    for name, is_zero, amount in zip(table.names, always.tolist(), elements.tolist(), strict=True):
        is_vector = "x" not in shapes[name]
        # A bias before a normalization, or the keys' bias of an attention, has a gradient of 0 by construction. A matrix
        # whose bias has one is given zeros, as the first queries of some decoders are.
        is_meant = is_vector and "norm" not in types[name].lower()
        has_biased = name.endswith(".weight") and f"{name.removesuffix('weight')}bias" in reached
        # What is given something else than zeros has a gradient, unless the weight is rounded on its way.
        has_biased &= name.removesuffix(".weight") not in given
        if is_zero and amount and not is_meant and not has_biased:
            names.append(name)
    if not names:
        return
    # The vectors beside such a matrix are counted with it.
    modules = table.last("module")
    chosen = {modules[name] for name in names}
    names = [name for name in table.chosen(always) if modules[name] in chosen]
    trained = int((owned & (gradient != _NEVER)).any(0).sum())
    message = "all" if not (owned & (gradient == 2)).any() else "some"
    yield Finding(
        "zero-gradient",
        "certain",
        int(steps[np.flatnonzero(owned[:, always].any(1))[0]]),
        message,
        {"count": len(names), "of": trained, "names": listed(names), "steps": int(counts[always].max())},
        _where(table, names),
        tuple(names) if message == "some" else (),
    )


def outside_of_models(facts: Facts) -> Iterator[Finding]:
    """Find tensors of modules that get gradients, and that neither a model nor an optimizer holds."""
    table = facts["leaves"]
    names = [name for name in table.names if not table["is_held"][table["name"] == name].any()]
    seen = [name for name in names if (table["name"] == name).sum() >= 2]
    if not seen:
        return
    values = {"count": len(seen), "names": listed(seen)}
    step = int(table["step"][table["name"] == seen[0]][0])
    yield Finding("not-a-parameter", "certain", step, "outside", values, {"parameter": listed(seen, 20)}, tuple(seen))


def not_in_optimizer(facts: Facts) -> Iterator[Finding]:
    """Find parameters with gradients that no optimizer holds, beside others of the same part of the model."""
    table = facts["parameters"]
    steps = table.steps
    if len(steps) < 2:
        return
    trainable, gradient = table.panel("is_trainable"), table.panel("gradient")
    owners = table.panel("owners")
    present = table.present()
    is_reached = ((gradient == 2) | table.panel("is_read")).any(0)
    outside = (present.sum(0) >= 2) & ((owners == 0) | ~present).all(0) & is_reached
    thawed_later = outside & trainable[-1] & ~(trainable | ~present).all(0)
    outside &= (trainable | ~present).all(0) | thawed_later
    if not outside.any():
        return
    names = table.names
    lost_before = set(table.chosen(thawed_later))
    held = [name for at, name in enumerate(names) if (owners[:, at] > 0).any()]
    lost = table.chosen(outside)
    if not held:
        return
    models, nested = table.last("model"), table.last("is_nested")
    lost = [name for name in lost if nested[name] or any(models[name] == models[other] for other in held)]
    if not lost:
        return
    is_thawed = [name for name in lost if name in lost_before]
    elements = table.last("elements")
    is_most = sum(elements[name] for name in lost) > 3 * sum(elements[name] for name in held)
    message, certainty = _kind_of_omission(names, held, lost)
    if is_most and len(lost) >= len(held):
        message = ""
    if is_thawed:
        lost, message, certainty = is_thawed, "among", "certain"
    elif any(nested[name] for name in lost):
        lost, message, certainty = [name for name in lost if nested[name]], "nested", "certain"
    if not message:
        return
    yield Finding(
        "not-in-optimizer",
        certainty,
        int(steps[0]),
        message,
        {"count": len(lost), "names": listed(lost), "held": len(held)},
        _where(table, lost),
        tuple(lost),
    )


def _kind_of_omission(names: list[str], held: list[str], lost: list[str]) -> tuple[str, Certainty]:
    """Return which sentence fits, and how certain it is; empty if the omission looks intended."""
    order = {name: at for at, name in enumerate(names)}
    modules_held = {name.rpartition(".")[0] for name in held}
    if any(name.rpartition(".")[0] in modules_held for name in lost):
        return "within", "likely"
    # A frozen body below a trained head is often meant so, and only its parameters still require gradients.
    if max(order[name] for name in lost) < min(order[name] for name in held):
        return "", "possible"
    return "among", "likely"


def frozen(facts: Facts) -> Iterator[Finding]:
    """Find parameters that were trained, and no longer require gradients from some step on."""
    table = facts["parameters"]
    steps = table.steps
    if len(steps) < 2 * SETTLED:
        return
    trainable, present = table.panel("is_trainable"), table.present()
    trained = (table.panel("gradient") == 2) & trainable
    held = table.panel("owners") > 0
    stage = stage_of(facts)
    names, first = [], {}
    for at, name in enumerate(table.names):
        rows = np.flatnonzero(present[:, at])
        off = ~trainable[rows, at]
        if not off[-1] or off.all() or not trained[rows, at].any():
            continue
        switches = int((off[1:] != off[:-1]).sum())
        since = int(np.flatnonzero(off)[0])
        # Models that take turns, as in GANs, are switched on and off.
        is_new_stage = int(steps[rows[since]]) <= stage
        if switches == 1 and len(rows) - since >= SETTLED and held[rows[-1], at] and not is_new_stage:
            names.append(name)
            first[name] = int(steps[rows[since]])
    if not names:
        return
    step = min(first.values())
    names = [name for name in names if first[name] == step]
    left = sum(bool(trainable[-1, at]) and bool(held[-1, at]) for at in range(len(table.names)))
    yield Finding(
        "frozen-since",
        "likely",
        step,
        "all" if not left else "some",
        {"count": len(names), "names": listed(names), "step": step},
        _where(table, names),
        tuple(names),
    )


def undone(facts: Facts) -> Iterator[Finding]:
    """Find updates that are taken back before the next one, or again and again to the same earlier values."""
    table = facts["parameters"]
    steps, names = table.steps, table.names
    share, moved = table.panel("undone"), table.panel("moved")
    sizes = np.array([table.last("elements")[name] for name in names], float)
    updates = (moved > 0).sum(0)
    back = (share >= 0.95).sum(0)
    always = (back >= SETTLED) & (back >= 0.8 * (updates - 1))
    if always.any() and sizes[always].sum() > 0.5 * sizes[updates > 0].sum():
        chosen = table.chosen(always)
        first = int(np.flatnonzero((share >= 0.95)[:, always].any(1))[0])
        values = {"count": len(chosen), "names": listed(chosen), "steps": int(back.max())}
        yield Finding(
            "update-undone", "certain", int(steps[first]), "undone", values, _where(table, chosen), tuple(chosen)
        )
        return
    restored = table.panel("restored")
    counts = (restored != 0).sum(0)
    distinct = np.array([len(set(column[column != 0].tolist())) for column in restored.T])
    # Trainings with an inner loop go back as well, each time to other values.
    again = (counts >= SETTLED) & (distinct <= np.maximum(2, 0.2 * counts)) & (updates > 0)
    if again.any() and sizes[again].sum() > 0.5 * sizes[updates > 0].sum():
        chosen = table.chosen(again)
        first = int(np.flatnonzero((restored != 0)[:, again].any(1))[0])
        values = {"count": len(chosen), "names": listed(chosen), "steps": int(counts[again].max())}
        yield Finding(
            "update-undone", "certain", int(steps[first]), "restored", values, _where(table, chosen), tuple(chosen)
        )


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
    always = (updates >= 10) & (counts >= 0.8 * (updates - 1)) & at_limit & (sizes > 64)
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
    yield Finding("clamped", "likely", step, "clamped", values, _where(table, names))


def decayed(facts: Facts) -> Iterator[Finding]:
    """Find a decay that takes a large share of the weights in each step."""
    return folded(_decayed(facts))


def _decayed(facts: Facts) -> Iterator[Finding]:
    groups, table = facts["groups"], facts["parameters"]
    for name in groups.names:
        of_name = groups["name"] == name
        decay, rate = float(groups["decay"][of_name][-1]), float(np.nanmax(groups["rate"][of_name]))
        optimizer = str(groups["optimizer"][of_name][0])
        is_coupled = optimizer.lower().startswith("adam") and not optimizer.lower().startswith("adamw")
        if not decay > 0 or is_coupled or rate * decay < 0.02:
            continue
        norms = table.panel("norm")
        measured = np.flatnonzero(np.isfinite(norms).any(1))
        totals = np.sqrt(np.nansum(norms[measured] ** 2, 1))
        has_settled = len(totals) >= 20 and any(True for _ in remains(facts))
        if len(totals) < SETTLED or not (totals[-1] < 0.7 * totals[0] or has_settled):
            # The norm at which updates and decay are equal may be that of the first weights.
            continue
        values = {
            "group": name,
            "share": rate * decay,
            "decay": decay,
            "rate": rate,
            "first": float(totals[0]),
            "last": float(totals[-1]),
        }
        where = {"optimizer": name, "parameter": listed(table.names, MOST_NAMED)}
        yield Finding("decay-too-strong", "likely", int(groups.steps[0]), "decay", values, where)


def frozen_by_prefix(facts: Facts) -> Iterator[Finding]:
    """Find layers that are frozen because their numbers begin like that of another one: layer1 and layer10."""
    table = facts["parameters"]
    trainable = table.last("is_trainable")
    by_parent: dict[tuple[str, str], dict[str, bool]] = {}
    for name in table.names:
        parts = name.split(".")
        for at, part in enumerate(parts[:-1]):
            stem = part.rstrip("0123456789")
            number = part[len(stem) :]
            if number:
                siblings = by_parent.setdefault((".".join(parts[:at]), stem), {})
                siblings[number] = siblings.get(number, False) or bool(trainable[name])
    for (parent, stem), siblings in by_parent.items():
        off = {number for number, is_on in siblings.items() if not is_on}
        roots = {number for number in off if not any(number != other and number.startswith(other) for other in off)}
        longer = off - roots
        if not longer or len(off) == len(siblings):
            continue
        # All that begin alike are frozen, and others between them are not.
        expected = {number for number in siblings if any(number.startswith(root) for root in roots)}
        between = [n for n in siblings if siblings[n] and max(map(int, roots)) < int(n) < max(map(int, longer))]
        if expected == off and between:
            prefix = f"{parent}." if parent else ""
            names = [f"{prefix}{stem}{number}" for number in sorted(longer, key=int)]
            values = {"names": listed(names), "root": listed([f"{stem}{number}" for number in sorted(roots, key=int)])}
            where = {"module": listed(names, MOST_NAMED)}
            yield Finding("frozen-by-prefix", "likely", int(table.steps[0]), "prefix", values, where)


def head_frozen(facts: Facts) -> Iterator[Finding]:
    """Find a last layer that is frozen as it was made, while layers below it are trained."""
    table, functions = facts["parameters"], facts["loss_functions"]
    layers = facts["layers"].names
    if len(table.steps) < SETTLED or not layers or not len(functions):
        return
    weight, bias = f"{layers[-1]}.weight", f"{layers[-1]}.bias"
    trainable, shapes = table.last("is_trainable"), table.last("shape")
    if weight not in trainable or trainable[weight] or trainable.get(bias, True):
        return
    # A bias of zeros is how layers are made, and not how they are after training.
    of_bias = table["name"] == bias
    classes = set(functions["classes"].tolist())
    is_head = shapes[weight].partition("x")[0] in {str(count) for count in classes if count > 1}
    below = [name for name in table.names if name not in (weight, bias)]
    trained = [name for name in below if trainable[name] and table.last("owners")[name]]
    if not table["is_zero"][of_bias].all() or not is_head or not trained:
        return
    values = {"name": layers[-1], "count": len(trained), "names": listed(trained)}
    yield Finding("head-frozen", "likely", int(table.steps[0]), "head", values, _where(table, [weight, bias]))


def bias_alone(facts: Facts) -> Iterator[Finding]:
    """Find models of which nothing but the bias of a layer is trained: it adds the same to the output of all inputs."""
    table = facts["parameters"]
    if len(table.steps) < SETTLED:
        return
    owned = np.asarray(_owned(table).any(0))
    names, elements = table.chosen(owned), table.last("elements")
    layers = facts["layers"].names
    last = f"{layers[-1]}.bias" if layers else ""
    total = sum(elements.values())
    if not names or any(name != last for name in names) or total < 100 * sum(elements[name] for name in names):
        return
    values = {"names": listed(names), "count": sum(elements[name] for name in names), "of": total}
    yield Finding("bias-alone", "certain", int(table.steps[0]), "bias", values, _where(table, names))


def switched_module(facts: Facts) -> Iterator[Finding]:
    """Find an attribute requires_grad of a module, which has no effect on its parameters."""
    table = facts["modules"]
    on = (table["switch"] == 1) & table["is_frozen"]
    names = list(dict.fromkeys(table["name"][on].tolist()))
    if names:
        step = int(table["step"][on][0])
        yield Finding(
            "switch-of-module", "certain", step, "on", {"names": listed(names)}, {"module": listed(names, MOST_NAMED)}
        )


def updates_lost(facts: Facts) -> Iterator[Finding]:
    """Find updates with a gradient and a rate that change nothing: the values are as they were."""
    table = facts["parameters"]
    steps = table.steps
    if len(steps) < SETTLED:
        return
    gradient, lost, rate = (table.panel(name) for name in ("gradient", "lost", "rate"))
    compared = (gradient == 2) & np.isfinite(lost) & (rate > 0)
    counts = compared.sum(0)
    swallowed = compared & (lost > 0.5)
    share = np.divide(np.where(compared, lost, 0).sum(0), np.maximum(counts, 1))
    is_low = [dtype in ("bfloat16", "float16") or dtype.startswith("float8") for dtype in _dtypes(table)]
    most = (counts >= SETTLED) & (swallowed.sum(0) >= 0.8 * counts) & (share > 0.6)
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
        yield Finding("update-lost", "certain", int(steps[0]), "coarse", values, _where(table, names), tuple(names))
    if not matrices.any():
        return
    names = table.chosen(matrices)
    amount = int(sizes[matrices].sum())
    of = int(sizes[counts >= SETTLED].sum())
    if amount < 0.3 * of:
        return
    mean = float((share[matrices] * sizes[matrices]).sum() / amount)
    dtype = _dtypes(table)[int(np.flatnonzero(matrices)[0])]
    change = table.panel("change")[:, matrices]
    yield Finding(
        "update-lost",
        "certain" if mean > 0.9 else "likely",
        int(steps[0]),
        "lost",
        {
            "count": len(names),
            "of": int((counts >= SETTLED).sum()),
            "names": listed(names),
            "share": mean,
            "dtype": dtype,
            "rate": float(np.nanmedian(rate[:, matrices])),
            "change": float(np.nanmedian(change)),
        },
        _where(table, names),
        tuple(names),
    )


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


def equal_units(facts: Facts) -> Iterator[Finding]:
    """Find matrices whose rows are all the same, and stay so: their units learn the same."""
    table = facts["parameters"]
    steps = table.steps
    if len(steps) < SETTLED:
        return
    equal, moved = table.panel("equal_units"), table.panel("moved")
    present = table.present()
    owned = _owned(table)
    # Later, rounding makes rows differ in their last bits.
    first = np.arange(len(steps))[:, None] < max(SETTLED, 5)
    updates = ((moved > 0) & owned & first).sum(0)
    always: NDArray[np.bool_] = (equal | ~present | ~first).all(0) & (updates >= SETTLED) & (present.sum(0) >= SETTLED)
    if not always.any():
        return
    names = table.chosen(always)
    yield Finding(
        "equal-units",
        "certain",
        int(steps[0]),
        "equal",
        {"count": len(names), "names": listed(names), "steps": int(updates[always].max())},
        _where(table, names),
        tuple(names),
    )


RULES = (
    Rule(
        "no-gradients",
        "gradient-cut",
        ("parameters",),
        no_gradient_at_all,
        {
            "cut": (
                "No weight has a gradient: the loss at {line} was computed from no parameter",
                "没有任何权重得到梯度：{line} 处的损失不是由任何参数计算得到的",
            ),
            "unreached": (
                "No weight has a gradient when the optimizer updates, although backward passes ran",
                "虽然执行了反向传播，但优化器更新时没有任何权重有梯度",
            ),
            "no_backward": (
                "No weight has a gradient: no backward pass runs before the optimizer updates",
                "没有任何权重得到梯度：优化器更新之前没有执行反向传播",
            ),
        },
        {"cut": ("the backward pass begins at a tensor made by {function}", "反向传播从 {function} 产生的张量开始")},
        (
            "Compute the loss from the model's output with operators of PyTorch: torch.tensor(), .item(), .data,"
            " .numpy() and .detach() end the graph",
            "用 PyTorch 的算子从模型输出计算损失：torch.tensor()、.item()、.data、.numpy() 和 .detach() 会截断计算图",
        ),
        ("", ""),
        frozenset(("no-gradient", "loss-stays", "not-in-optimizer")),
        5,
    ),
    Rule(
        "no-gradient",
        "gradient-cut",
        ("parameters",),
        no_gradient,
        {
            "some": (
                "{count} of {of} trainable weights never have a gradient: {names}",
                "{of} 个可训练权重中有 {count} 个从未得到梯度：{names}",
            ),
            "checkpointed": (
                "{count} of {of} trainable weights never have a gradient: no input of their block under reentrant"
                " checkpointing requires one ({line}): {names}",
                "{of} 个可训练权重中有 {count} 个从未得到梯度：其可重入检查点块的输入都不需要梯度 ({line})：{names}",
            ),
            "unused": (
                "{count} of {of} trainable weights never have a gradient: their modules are not called: {names}",
                "{of} 个可训练权重中有 {count} 个从未得到梯度：其模块没有被调用：{names}",
            ),
        },
        dict.fromkeys(
            ("some", "checkpointed", "unused"),
            (
                "{steps} updates without a gradient for them, while others had one",
                "{steps} 次更新中它们没有梯度，而其他权重有",
            ),
        ),
        (
            "Look for what ends the graph behind them: .detach(), .data, .numpy(), .item(), torch.no_grad(), an argmax or a"
            " comparison, of which only the result is used, a layer that is never called, or reentrant checkpointing of a block whose input requires no gradient (use_reentrant=False,"
            " or let the input require gradients: model.enable_input_require_grads())",
            "查找在它们之后截断计算图的地方：.detach()、.data、.numpy()、.item()、torch.no_grad()、只使用其结果的 argmax 或比较、从未被调用的层，或输入不需要梯度的可重入检查点",
        ),
        (
            "Weights that no optimizer holds, and frozen ones; those whose gradients the script clears before the update; and"
            " a bias whose matrix has a gradient, as where the loss is one of derivatives.",
            "不在任何优化器中的权重，以及被冻结的权重；脚本在更新之前清除其梯度的权重；以及矩阵有梯度的偏置，例如损失由导数构成时。",
        ),
        frozenset(("loss-stays",)),
        20,
    ),
    Rule(
        "zero-gradient",
        "gradient-zero",
        ("parameters",),
        zero_gradient,
        {
            "all": ("The gradients of all weights are exactly 0", "所有权重的梯度恒为 0"),
            "some": (
                "The gradients of {count} of {of} weights are exactly 0 in every step: {names}",
                "{of} 个权重中有 {count} 个在每一步的梯度都恒为 0：{names}",
            ),
        },
        {
            "all": ("{steps} steps", "{steps} 步"),
            "some": ("{steps} steps, while others have gradients", "{steps} 步，而其他权重有梯度"),
        },
        (
            "Follow them back from the loss: a unit that is always off (ReLU), a factor that is 0, a softmax over one"
            " unit, a custom backward that returns zeros, or two factors that both begin at 0",
            "从损失向后追踪：始终关闭的单元 (ReLU)、等于 0 的因子、只有一个单元的 softmax、返回零的自定义 backward，或两个初始都为 0 的因子",
        ),
        (
            "Vectors, of which the bias before a normalization has a gradient of 0 by construction; and matrices whose bias has a"
            " gradient: their inputs are 0.",
            "向量：归一化之前的偏置的梯度本来就是 0；以及偏置有梯度的矩阵：其输入为 0。",
        ),
        frozenset(("loss-stays",)),
        25,
    ),
    Rule(
        "not-in-optimizer",
        "not-in-optimizer",
        ("parameters",),
        not_in_optimizer,
        {
            "within": (
                "{count} parameters get gradients, but no optimizer updates them: {names}",
                "{count} 个参数有梯度，但没有优化器更新它们：{names}",
            ),
            "nested": (
                "{count} parameters of modules that the model calls, but does not hold, are in no optimizer: {names}",
                "模型调用但不持有的模块的 {count} 个参数不在任何优化器中：{names}",
            ),
            "among": (
                "{count} parameters get gradients, but no optimizer updates them: {names}",
                "{count} 个参数有梯度，但没有优化器更新它们：{names}",
            ),
        },
        {
            "within": (
                "{held} others, some of them of the same modules, are updated",
                "另外 {held} 个参数（有些属于同一模块）会被更新",
            ),
            "nested": (
                "they get gradients; layers in a plain list or dictionary are no part of the model",
                "它们有梯度；普通列表或字典中的层不属于模型",
            ),
            "among": ("{held} others are updated", "另外 {held} 个参数会被更新"),
        },
        (
            "Give them to the optimizer (add_param_group, or make the optimizer after the last change of the model), or"
            " switch off their gradients with requires_grad_(False)",
            "把它们交给优化器 (add_param_group，或在模型最后一次修改之后再创建优化器)，或用 requires_grad_(False) 关闭其梯度",
        ),
        (
            "A body below a trained head, and most of a model beside a few trained parameters: feature extraction and adapters"
            " often leave the gradients of the rest on.",
            "已训练的头部之下的主干，以及只训练少数参数时模型的其余部分：特征提取和适配器常保留其梯度。",
        ),
        frozenset(("loss-stays",)),
        20,
    ),
    Rule(
        "not-a-parameter",
        "not-in-optimizer",
        ("leaves",),
        outside_of_models,
        {
            "outside": (
                "Tensors get gradients, but are no parameters of the model, and in no optimizer: {names}",
                "有张量得到梯度，但既不是模型的参数，也不在任何优化器中：{names}",
            )
        },
        {},
        (
            "Register them: nn.Parameter for a tensor, nn.ModuleList or nn.ModuleDict for layers in a list or dictionary",
            "注册它们：张量用 nn.Parameter，列表或字典中的层用 nn.ModuleList 或 nn.ModuleDict",
        ),
        (
            "Inputs that require gradients, and tensors that no module holds.",
            "需要梯度的输入，以及不属于任何模块的张量。",
        ),
        frozenset(("loss-stays",)),
        15,
    ),
    Rule(
        "frozen-since",
        "frozen",
        ("parameters",),
        frozen,
        {
            "all": (
                "From step {step} on no weight that is trained requires gradients: {names}",
                "从第 {step} 步起，所有正在训练的权重都不再需要梯度：{names}",
            ),
            "some": (
                "From step {step} on {count} weights that were trained require no gradients: {names}",
                "从第 {step} 步起，{count} 个之前被训练的权重不再需要梯度：{names}",
            ),
        },
        {
            "all": ("the optimizer still holds them", "优化器仍然持有它们"),
            "some": ("the optimizer still holds them", "优化器仍然持有它们"),
        },
        (
            "If this is not meant: look for requires_grad_(False), or for a function that evaluates, saves or exports,"
            " and does not switch gradients on again",
            "如果不是有意为之：查找 requires_grad_(False)，或评估、保存、导出后没有重新打开梯度的函数",
        ),
        ("Parts that are switched on and off in turns, as in GANs.", "轮流打开和关闭的部分，如 GAN。"),
        frozenset(("loss-stays",)),
        30,
    ),
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
                "in {steps} steps what the update had moved was back at its values before that",
                "在 {steps} 步中，更新所改变的值又回到更新之前",
            ),
            "restored": ("in {steps} steps", "共 {steps} 步"),
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
                "in {steps} steps {share:.0%} of their elements are at a limit of the range",
                "在 {steps} 步中 {share:.0%} 的元素处于范围的边界",
            )
        },
        ("Widen the range", "放宽范围"),
        (
            "Weights that are clamped in trainings whose loss falls, or of which no best constant prediction is known.",
            "损失仍在下降，或常数预测的最优损失未知的训练中被 clamp 的权重。",
        ),
        frozenset(("loss-stays",)),
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
            "coarse": (
                "Updates are lost to rounding: next to {typical:.3g}, numbers of float32 are {spacing:.2g} apart, and an update"
                " is about the rate {rate:.2g}: {names}",
                "更新因舍入而丢失：在 {typical:.3g} 附近 float32 的间隔为 {spacing:.2g}，而一次更新约为学习率 {rate:.2g}：{names}",
            ),
        },
        {
            "lost": (
                "learning rate {rate:.2g}; a step changes them by {change:.2g} of their norm: {names}",
                "学习率 {rate:.2g}；一步的变化为其范数的 {change:.2g}：{names}",
            )
        },
        (
            "Keep a copy of the weights in float32 for the optimizer, use stochastic rounding, or a larger rate",
            "为优化器保留 float32 的权重副本、使用随机舍入，或提高学习率",
        ),
        (
            "float32 weights whose updates are small for another reason than their size, and less than half of the elements.",
            "因其他原因而更新很小的 float32 权重，以及少于一半的元素。",
        ),
        frozenset(("loss-stays",)),
        20,
    ),
    Rule(
        "equal-units",
        "initialization",
        ("parameters",),
        equal_units,
        {
            "equal": (
                "All units of a layer are the same, and learn the same: {names}",
                "同一层的所有单元都相同，学到的也相同：{names}",
            )
        },
        {
            "equal": (
                "all rows of the matrix are equal, also after the first {steps} updates",
                "矩阵的所有行都相等，在前 {steps} 次更新之后仍然如此",
            )
        },
        (
            "Initialise the weights randomly; a constant gives every unit the same gradient",
            "随机初始化权重；常数会使每个单元得到相同的梯度",
        ),
        ("Matrices of zeros, which differ after their first update.", "全零矩阵，它们在第一次更新之后就会不同。"),
        frozenset(("loss-stays", "zero-gradient")),
        15,
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
            )
        },
        {
            "decay": (
                "decay {decay:.3g} times rate {rate:.3g}; the norm of all weights is {first:.3g} at first, {last:.3g} at last",
                "衰减 {decay:.3g} 乘以学习率 {rate:.3g}；所有权重的范数起初为 {first:.3g}，最后为 {last:.3g}",
            )
        },
        ("Use a decay of 0.01 to 0.1 with AdamW, less with SGD", "AdamW 使用 0.01 到 0.1 的衰减，SGD 更小"),
        ("Adam's own decay, which is divided by the size of the gradients.", "Adam 自带的衰减，它会除以梯度大小。"),
        frozenset(("loss-stays", "zero-gradient", "loss-constant")),
        20,
    ),
    Rule(
        "frozen-by-prefix",
        "frozen",
        ("parameters",),
        frozen_by_prefix,
        {
            "prefix": (
                "{names} are frozen, too: their names begin with {root}",
                "{names} 也被冻结：它们的名字以 {root} 开头",
            )
        },
        {},
        (
            "Compare whole names, or add the dot: name.startswith('layer1.')",
            "比较完整名称，或加上点：name.startswith('layer1.')",
        ),
        ("", ""),
        frozenset(("loss-stays",)),
        20,
    ),
    Rule(
        "head-frozen",
        "frozen",
        ("parameters", "layers", "loss_functions"),
        head_frozen,
        {
            "head": (
                "The last layer ({name}) is frozen as it was made, while {count} weights below it are trained",
                "最后一层 ({name}) 保持创建时的状态被冻结，而其下的 {count} 个权重被训练",
            )
        },
        {"head": ("its bias is 0 everywhere; trained are {names}", "其偏置处处为 0；被训练的是 {names}")},
        (
            "Let the new head be trained: with peft, name it in modules_to_save",
            "让新的头部参与训练：使用 peft 时在 modules_to_save 中给出其名称",
        ),
        (
            "Frozen last layers without a bias, or with one that was trained.",
            "没有偏置或偏置已训练过的被冻结的最后一层。",
        ),
        frozenset(("loss-stays",)),
        20,
    ),
    Rule(
        "bias-alone",
        "frozen",
        ("parameters", "layers"),
        bias_alone,
        {
            "bias": (
                "Nothing is trained but {names}, which adds the same to the output of every input",
                "只训练了 {names}，而它对每个输入的输出都加上相同的值",
            )
        },
        {"bias": ("{count} of {of} elements", "{of} 个元素中的 {count} 个")},
        (
            "Look for what freezes the rest: a name that is compared in part, requires_grad_(False) after a new head was made",
            "查找冻结其余部分的代码：按部分名称的比较、创建新头部之后的 requires_grad_(False)",
        ),
        ("Trainings of the biases of several layers.", "训练多个层的偏置。"),
        frozenset(("loss-stays", "no-gradient")),
        15,
    ),
    Rule(
        "switch-of-module",
        "frozen",
        ("modules.switch",),
        switched_module,
        {
            "on": (
                "requires_grad = True was set on the modules {names} themselves, which has no effect: their parameters stay"
                " frozen",
                "在模块 {names} 本身上设置了 requires_grad = True，这没有作用：其参数仍被冻结",
            )
        },
        {},
        (
            "Call module.requires_grad_(True), which switches its parameters on",
            "调用 module.requires_grad_(True)，它会打开参数的梯度",
        ),
        ("", ""),
        frozenset(("loss-stays", "frozen-since")),
        5,
    ),
)
