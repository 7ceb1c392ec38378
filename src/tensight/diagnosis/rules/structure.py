"""Rules about modes, running statistics, layers, ties and inputs of a model."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tensight.diagnosis.facts import sizes_of
from tensight.diagnosis.findings import MOST_NAMED, Certainty, Finding, listed
from tensight.diagnosis.rule import DIVERGENCE, Rule
from tensight.diagnosis.rules.losses import first_loss
from tensight.diagnosis.rules.parameters import are_as_made, frozen_share

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensight.diagnosis.facts import Facts, Table

_SETTLED = 3
_OF_START = 0.3
"""Share of running statistics that is still that of the start with which no model should be evaluated."""

_NEARLY_ALL = 0.9
"""Probability of dropout that no training is known to use on purpose."""

_FAR_APART = 3.0
"""Number of standard deviations by which the means of two batches differ that are no samples of one distribution."""


def evaluation_mode(facts: Facts) -> Iterator[Finding]:
    """Find modules with dropout or running statistics that are trained in evaluation mode."""
    table = facts["modules"]
    if len(table.steps) < 2:
        return
    training, trained, present = (table.panel("is_training"), table.panel("is_trained"), table.present())
    rate, statistics = table.panel("rate"), table.panel("has_statistics")
    acts = present & trained & ((rate > 0) | statistics)
    # A module that is switched without the one that holds it was switched on purpose, mostly to keep its statistics.
    off = acts & ~training & ~table.panel("parent_is_training")
    steps = table.steps
    names, since = [], math.inf
    for at, name in enumerate(table.names):
        rows = np.flatnonzero(acts[:, at])
        if len(rows) < 2 or not off[rows[-1], at]:
            continue
        is_off = off[rows, at]
        begins = 0 if is_off.all() else len(is_off) - int(np.argmin(is_off[::-1]))
        if len(rows) - begins < (2 if begins == 0 else _SETTLED):
            continue
        names.append(name)
        since = min(since, int(steps[rows[begins]]))
    if not names:
        return
    kinds = table.last("type")
    drops = [name for name in names if rate[:, table.names.index(name)].max(initial=0) > 0]
    others = [
        name for at, name in enumerate(table.names) if (acts[:, at] & training[:, at]).any() and name not in names
    ]
    values = {
        "count": len(names),
        "of": int(acts.any(0).sum()),
        "names": listed(names),
        "step": int(since),
        "types": listed(sorted({str(kinds[name]) for name in names})),
    }
    message = "start" if since == steps[0] else "since"
    certainty: Certainty = "certain" if drops and not others else "likely"
    rows = (table["step"] == since) & (table["name"] == names[0])
    where = {"module": listed(names), "mode": str(table["mode_line"][rows][0])}
    yield Finding("evaluation-mode", certainty, int(since), message, values, where)


def training_mode(facts: Facts) -> Iterator[Finding]:
    """Find evaluations in training mode: many calls in a row without gradients of a model that drops or counts."""
    table = facts["calls"]
    for name in table.names:
        of_name = table["name"] == name
        evaluated = table["in_training"][of_name]
        trained = table["with_gradients"][of_name]
        distinct = np.maximum(table["evaluated"][of_name], 1)
        # Several calls with the same input are samples: Monte Carlo dropout.
        rows = (evaluated >= 3) & (distinct >= 0.9 * np.minimum(evaluated, 60))
        # In every step it is part of the training: a teacher, or a sampled action.
        if rows.sum() < 2 or rows.mean() > 0.5 or not (trained > 0).any():
            continue
        step = int(table["step"][of_name][np.flatnonzero(rows)[0]])
        values = {"model": name, "count": int(evaluated[rows].max()), "times": int(rows.sum()), "step": step}
        yield Finding("training-mode", "likely", step, "evaluated", values, {"module": name})


def dropped_most(facts: Facts) -> Iterator[Finding]:
    """Find dropouts that drop nearly all, as if the probability were that of keeping an element."""
    table = facts["modules"]
    acts = table["is_training"] & table["is_trained"] & (table["rate"] >= _NEARLY_ALL)
    names = list(dict.fromkeys(table["name"][acts].tolist()))
    if len(set(table["step"][acts].tolist())) < _SETTLED:
        rates = facts["steps"].last("drop_rate")
        rate, line = rates.get("step", math.nan), facts["steps"].last("drop_line").get("step", "")
        # That of a module, which may be frozen, is no function of the script.
        if line and rate >= _NEARLY_ALL and not (table["rate"] >= _NEARLY_ALL).any():
            values = {"rate": rate, "line": line}
            yield Finding("dropout-rate", "likely", 1, "function", values, {"operator": "dropout", "line": line})
        return
    rate = float(table["rate"][acts].max())
    values = {"names": listed(names), "rate": rate, "kept": 1 - rate, "count": len(names)}
    step = int(table["step"][acts][0])
    yield Finding("dropout-rate", "likely", step, "most", values, {"module": listed(names, MOST_NAMED)})


def _is_worse(facts: Facts) -> bool:
    """Whether the loss of the last evaluation is far above that of the training, and no better than the first one."""
    _, losses = first_loss(facts)
    table = facts["evaluations"]
    values = table["value"][table["is_loss"] & np.isfinite(table["value"])]
    if len(values) < 2 or len(losses) < _SETTLED:
        return False
    return bool(values[-1] > 2 * losses[-10:].mean() > 0) and bool(values[-1] > 0.8 * values[0])


def momentum(facts: Facts) -> Iterator[Finding]:
    """Find running statistics that never move, or that forget all but the last batch."""
    table = facts["modules"]
    if len(table.steps) < 2:
        return
    of_step = table.panel("momentum")
    training, trained = table.panel("is_training"), table.panel("is_trained")
    groups: dict[tuple[str, float], list[str]] = {}
    for at, name in enumerate(table.names):
        rows = training[:, at] & trained[:, at] & np.isfinite(of_step[:, at])
        if rows.sum() < 2:
            continue
        value = float(of_step[rows, at][0])
        message = "never" if value == 0 else "last" if value == 1 else "keras" if value >= 0.9 else ""
        if not message and (1 - value) ** int(table.steps[-1]) > _OF_START and _is_worse(facts):
            message = "slow"
        if message:
            groups.setdefault((message, value), []).append(name)
    for (message, value), names in groups.items():
        values = {"count": len(names), "names": listed(names), "momentum": value, "meant": 1 - value}
        values |= {"share": (1 - value) ** int(table.steps[-1]), "steps": int(table.steps[-1])}
        certainty: Certainty = "likely" if message in ("keras", "slow") else "certain"
        yield Finding("norm-momentum", certainty, int(table.steps[0]), message, values, {"module": listed(names)})


def ties(facts: Facts) -> Iterator[Finding]:
    """Find parameters that begin equal, or share their memory, and are trained apart."""
    table = facts["ties"]
    for name in table.names:
        of_name = table["name"] == name
        kind = str(table["kind"][of_name][0])
        is_tied = table["is_tied"][of_name]
        if not table["is_trained"][of_name][-1] or (is_tied.any() and kind != "shared"):
            continue
        equal = table["is_equal"][of_name]
        first, second = str(table["first"][of_name][0]), str(table["second"][of_name][0])
        owners = facts["parameters"].last("owners")
        if kind == "shared" and not (owners.get(first, 0) and owners.get(second, 0)):
            continue
        if kind in ("equal", "transposed") and (len(equal) < 2 or equal[-1]):
            continue
        rows, columns = [*sizes_of(str(facts["parameters"].last("shape").get(first, ""))), 0, 0][:2]
        if kind == "transposed" and rows > columns:
            # Sparse autoencoders, whose code is wider than what they read, begin so and are not tied.
            continue
        step = int(table["step"][of_name][0] if equal.all() else table["step"][of_name][np.flatnonzero(~equal)[0]])
        where = {"parameter": f"{first}, {second}"}
        values = {"first": first, "second": second, "step": step}
        certainty: Certainty = "certain" if kind in ("declared", "shared") else "likely"
        yield Finding("tied-apart", certainty, step, kind, values, where)


def repeated(facts: Facts) -> Iterator[Finding]:
    """Find stacks of blocks that are one block, which is given its own output again and again."""
    table = facts["repeated"]
    for name in table.names:
        rows = [row for row in table.rows() if row["name"] == name]
        chained = [row for row in rows if row["chained"] >= row["count"] - 1]
        if len(chained) < _SETTLED or len(chained) < 0.8 * (len(rows) - 1):
            continue
        values = {key: chained[0][key] for key in ("name", "type", "count", "chained")}
        yield Finding("blocks-are-one", "likely", int(chained[0]["step"]), "one", values, {"module": name})


def norm_of_one(facts: Facts) -> Iterator[Finding]:
    """Find normalizations over one element, whose output is constant, and batch normalizations of one sample."""
    table = facts["layers"]
    elements, samples = table.panel("normalised"), table.panel("samples")
    single = [name for at, name in enumerate(table.names) if (elements[:, at] == 1).any()]
    if single:
        values = {"count": len(single), "names": listed(single)}
        yield Finding(
            "norm-of-one", "certain", int(table.steps[0]), "element", values, {"module": listed(single, MOST_NAMED)}
        )
    measured = [at for at in range(len(table.names)) if (samples[:, at] > 0).any()]
    alone = [table.names[at] for at in measured if (samples[samples[:, at] > 0, at] == 1).all()]
    running = set(
        facts["modules"]["name"][facts["modules"]["is_training"] & facts["modules"]["has_statistics"]].tolist()
    )
    alone = [name for name in alone if name in running]
    if alone and not single:
        values = {"count": len(alone), "names": listed(alone)}
        yield Finding(
            "norm-of-one", "likely", int(table.steps[0]), "sample", values, {"module": listed(alone, MOST_NAMED)}
        )


def wrong_scale(facts: Facts) -> Iterator[Finding]:
    """Find first layers whose outputs are far too large, because the inputs are, and pixels that are scaled wrongly."""
    yield from _pixels(facts)
    table, calls = facts["layers"], facts["calls"]
    if not len(table) or len(table.names) < 2:
        return
    rows = table["step"] == table.steps[0]
    deviations, elements, names = table["deviation"][rows], table["normalised"][rows], table["name"][rows].tolist()
    if len(names) < 2 or elements[0] >= 0 or elements[1] >= 0 or not deviations[0] > 1000:
        return
    of_step = (calls["step"] == table.steps[0]) & ~calls["is_ids"] & np.isfinite(calls["input_max"])
    highest = float(np.abs([calls["input_min"][of_step], calls["input_max"][of_step]]).max(initial=0))
    if not highest > 1000:
        return
    values = {"name": names[0], "deviation": float(deviations[0]), "highest": highest}
    where = {"module": names[0], "input": "the first input"}
    yield Finding("input-scale", "likely", int(table.steps[0]), "large", values, where)


def _pixels(facts: Facts) -> Iterator[Finding]:
    """Find pixels of 8 bits that are normalised or divided twice, or not divided before."""
    table = facts["layers"]
    for name in dict.fromkeys(table["name"][table["pixels"] != ""].tolist()):
        of_name = table["name"] == name
        texts = table["pixels"][of_name]
        scaled = texts[texts != ""].tolist()
        if len(scaled) < _SETTLED or len(scaled) < len(texts) / 2 or len(set(scaled)) > 1:
            continue
        first, _, second = scaled[0].partition(", ")
        message = {"not divided": "undivided", "divided twice": "divided"}.get(first, "twice")
        values = {"name": name, "first": first, "second": second, "count": len(scaled), "of": len(texts)}
        where = {"module": name, "input": "the pictures"}
        yield Finding("input-scale", "likely", int(table["step"][of_name][0]), message, values, where)


def mode_left(facts: Facts) -> Iterator[Finding]:
    """Find models that are trained in evaluation mode from some step on, after they were in training mode."""
    table = facts["calls"]
    drops = facts["modules"]["rate"] > 0
    line = facts["steps"].last("drop_line").get("step", "")
    have_modes = drops.any() or facts["modules"]["has_statistics"].any()
    # Without dropout the mode does not matter; nor where that does not depend on it.
    if have_modes or not line or (facts["calls"]["drops"] > 0).any():
        return
    for name in table.names:
        of_name = (table["name"] == name) & (table["with_gradients"] > 0)
        training, steps = table["is_training"][of_name], table["step"][of_name]
        if len(training) < 10 or training[-1] or not training[0]:
            continue
        since = len(training) - int(np.argmax(training[::-1]))
        if len(training) - since >= 5 and training[:since].all():
            values = {"model": name, "step": int(steps[since]), "line": line}
            where = {"module": name, "call": "model.eval()", "line": line}
            yield Finding("mode-left", "likely", int(steps[since]), "left", values, where)


def two_streams(facts: Facts) -> Iterator[Finding]:
    """Find batch normalizations that are called several times in a step, with inputs that are far apart."""
    table = facts["modules"]
    if not len(table) or len(set(facts["groups"]["optimizer"].tolist())) > 1:
        # The discriminator of a GAN sees two kinds of pictures on purpose.
        return
    apart, calls = table.panel("apart"), table.panel("calls")
    measured = np.isfinite(apart)
    often = (measured.sum(0) >= _SETTLED) & ((apart > _FAR_APART).sum(0) >= 0.8 * measured.sum(0))
    if not often.any():
        return
    names = table.chosen(often)
    at = table.names.index(names[0])
    values = {
        "count": len(names),
        "names": listed(names),
        "calls": int(calls[:, at].max()),
        "apart": float(np.nanmedian(apart[:, at])),
        "steps": int(measured[:, at].sum()),
    }
    step = table.first_step((apart[:, often] > _FAR_APART).any(1))
    yield Finding("norm-two-streams", "likely", step, "apart", values, {"module": listed(names, MOST_NAMED)})


def statistics_drift(facts: Facts) -> Iterator[Finding]:
    """Find frozen batch normalizations whose running statistics go on moving."""
    table = facts["modules"]
    if len(table.steps) < 2 * _SETTLED:
        return
    statistics, training = table.panel("statistics"), table.panel("is_training")
    frozen = table.panel("is_fixed") & table.panel("has_weights") & table.panel("has_statistics")
    present = table.present()
    # The script itself may have trained them before.
    rows = np.arange(len(table.steps))[:, None]
    begins = np.where(frozen | ~present, -1, rows).max(0) + 1
    is_since = rows >= begins
    moves = (statistics[1:] != statistics[:-1]) & (statistics[1:] != 0) & (statistics[:-1] != 0) & is_since[:-1]
    lasts = (present & is_since).sum(0) >= 2 * _SETTLED
    always = lasts & (moves.sum(0) > 0.8 * is_since[:-1].sum(0)) & training[-1]
    parameters = facts["parameters"]
    if not always.any() or not (parameters["is_trainable"] & (parameters["owners"] > 0)).any():
        return
    begin = dict(zip(table.chosen(always), table.steps[begins[always]].tolist(), strict=True))
    # What follows the weights of another model is no frozen part.
    names = [name for name, step in begin.items() if _is_still(parameters, f"{name}.weight", step)]
    others = {name for at, name in enumerate(table.names) if table.panel("is_trained")[:, at].any()}
    if not names or not _are_below_trained(facts, names):
        return
    if _is_part_as_made(facts, names) and bool(training[0, [table.names.index(name) for name in names]].all()):
        return
    values = {"count": len(names), "names": listed(names), "steps": int(moves.sum(0).max()), "others": len(others)}
    step = min(begin[name] for name in names)
    yield Finding("statistics-drift", "likely", step, "drift", values, {"module": listed(names, MOST_NAMED)})


def _is_still(parameters: Table, name: str, since: int) -> bool:
    """Whether a parameter has not changed since a step."""
    if name not in parameters.names:
        return False
    prints = parameters.panel("fingerprint")[parameters.steps >= since, parameters.names.index(name)]
    return len(set(prints.tolist())) == 1


def _is_part_as_made(facts: Facts, names: list[str]) -> bool:
    """Whether frozen normalizations, and layers beside them, are the smaller part of a model, and were never trained.

    Their statistics have nothing to lose: they belong to weights that were frozen as they were made.
    """
    table = facts["parameters"]
    modules, trainable = table.last("module"), table.last("is_trainable")
    has_others = any(not trainable[weight] and modules[weight] not in names for weight in table.names)
    return has_others and frozen_share(table) < 0.5 and are_as_made(table, [f"{name}.bias" for name in names])


def _are_below_trained(facts: Facts, names: list[str]) -> bool:
    """Whether trained parameters belong to the same model as frozen modules."""
    table = facts["parameters"]
    models, modules = table.last("model"), table.last("module")
    of_frozen = {models[weight] for weight, module in modules.items() if module in names}
    trained = table["is_trainable"] & (table["owners"] > 0)
    return not of_frozen.isdisjoint(table["model"][trained].tolist())


def drops_in_evaluation(facts: Facts) -> Iterator[Finding]:
    """Find functions that drop elements in evaluation mode, too."""
    table = facts["calls"]
    for name in table.names:
        of_name = table["name"] == name
        drops = table["drops"][of_name]
        # The same input several times is a sample each: Monte Carlo dropout.
        if (drops > 0).sum() < 2 or table["samples"][of_name].any():
            continue
        at = int(np.flatnonzero(drops > 0)[0])
        line = str(table["drop_line"][of_name][at])
        step = int(table["step"][of_name][at])
        values = {"model": name, "line": line, "count": int(drops[drops > 0].sum()), "step": step}
        where = {"module": name, "line": line, "operator": "dropout"}
        yield Finding("drops-in-evaluation", "likely", step, "drops", values, where)
        return
    if table["samples"].any():
        return
    for row in facts["probes"].rows():
        if row["probe"] == "evaluation" and row["function"] == "dropout" and row["outcome"] == "pass":
            values = {"model": row["model"], "line": row["line"]}
            where = {"module": row["model"], "line": row["line"], "operator": "dropout"}
            yield Finding("drops-in-evaluation", "likely", 1, "probed", values, where)
            return


RULES = (
    Rule(
        "evaluation-mode",
        "mode",
        ("modules",),
        evaluation_mode,
        {
            "start": (
                "{count} of {of} modules that behave otherwise in training are trained in evaluation mode: {names}",
                "{of} 个在训练中行为不同的模块中有 {count} 个在评估模式下训练：{names}",
            ),
            "since": (
                "From step {step} on {count} of {of} modules are trained in evaluation mode: {names}",
                "从第 {step} 步起，{of} 个模块中有 {count} 个在评估模式下训练：{names}",
            ),
        },
        {
            "start": (
                "{types}: in evaluation mode dropout drops nothing, and running statistics stand still",
                "{types}：在评估模式下 dropout 不丢弃元素，运行统计量不更新",
            ),
            "since": (
                "{types}: in evaluation mode dropout drops nothing, and running statistics stand still",
                "{types}：在评估模式下 dropout 不丢弃元素，运行统计量不更新",
            ),
        },
        ("Call model.train() after loading and after each evaluation", "在加载之后以及每次评估之后调用 model.train()"),
        (
            "Modules that are switched by themselves, while the one that holds them is in training mode: fine-tuning often"
            " keeps running statistics. Those of frozen parts.",
            "单独切换、而其所属模块处于训练模式的模块：微调时常保留运行统计量；以及被冻结的部分。",
        ),
        frozenset(("loss-stays",)),
        20,
    ),
    Rule(
        "training-mode",
        "mode",
        ("calls",),
        training_mode,
        {
            "evaluated": (
                "{model} is evaluated in training mode: {count} calls without gradients in a row before step {step}",
                "{model} 在训练模式下被评估：第 {step} 步之前连续 {count} 次不带梯度的调用",
            )
        },
        {
            "evaluated": (
                "{times} times; it drops elements, or moves running statistics",
                "{times} 次；它会丢弃元素或更新运行统计量",
            )
        },
        (
            "Call model.eval() before evaluating, and model.train() afterwards",
            "评估前调用 model.eval()，之后调用 model.train()",
        ),
        ("Calls without gradients in each step, such as of a teacher.", "每一步中不带梯度的调用，例如教师模型。"),
        frozenset(),
        40,
    ),
    Rule(
        "dropout-rate",
        "mode",
        ("steps",),
        dropped_most,
        {
            "most": (
                "Dropout drops {rate:.0%} of the elements: {names}",
                "Dropout 丢弃 {rate:.0%} 的元素：{names}",
            ),
            "function": (
                "Dropout drops {rate:.0%} of the elements ({line})",
                "Dropout 丢弃 {rate:.0%} 的元素 ({line})",
            ),
        },
        dict.fromkeys(
            ("most", "function"),
            ("PyTorch's p is the share that is dropped, not kept", "PyTorch 的 p 是丢弃的比例，而不是保留的比例"),
        ),
        ("If p was meant as the share that is kept, use 1 - p", "如果 p 本意是保留的比例，请使用 1 - p"),
        ("Probabilities below 0.9.", "小于 0.9 的概率。"),
        frozenset(("loss-stays", "loss-start")),
        20,
    ),
    Rule(
        "norm-momentum",
        "normalisation",
        ("modules",),
        momentum,
        {
            "never": (
                "The running statistics of {count} modules never move (momentum 0): {names}",
                "{count} 个模块的运行统计量从不更新 (momentum 0)：{names}",
            ),
            "last": (
                "The running statistics of {count} modules are those of the last batch alone (momentum 1): {names}",
                "{count} 个模块的运行统计量只来自最后一个批次 (momentum 1)：{names}",
            ),
            "keras": (
                "The running statistics of {count} modules follow almost the last batch alone (momentum {momentum}): {names}",
                "{count} 个模块的运行统计量几乎只跟随最后一个批次 (momentum {momentum})：{names}",
            ),
            "slow": (
                "The running statistics of {count} modules, with which the model is evaluated, are still {share:.0%} those of the"
                " start after {steps} steps (momentum {momentum}): {names}",
                "评估模型所用的 {count} 个模块的运行统计量在 {steps} 步之后仍有 {share:.0%} 是初始值 (momentum {momentum})：{names}",
            ),
        },
        {
            "slow": (
                "the loss of the last evaluation is more than twice that of the training, and no better than the first one;"
                " Keras and MindSpore mean {meant:.3g} by such a momentum",
                "最后一次评估的损失是训练损失的两倍以上，且不比第一次更好；Keras 和 MindSpore 中这样的 momentum 相当于 {meant:.3g}",
            ),
            "keras": (
                "in PyTorch momentum is the share of the new batch; Keras and MindSpore mean {meant:.3g} by it",
                "PyTorch 的 momentum 是新批次所占比例；Keras 和 MindSpore 中它的含义相当于 {meant:.3g}",
            ),
        },
        ("Use momentum=0.1, or 1 minus the value of the other framework", "使用 momentum=0.1，或 1 减去另一框架的值"),
        ("", ""),
        frozenset(("evaluation-no-better", "evaluation-constant", "overfitting")),
        30,
    ),
    Rule(
        "norm-two-streams",
        "normalisation",
        ("modules.apart",),
        two_streams,
        {
            "apart": (
                "Batch normalizations are called {calls} times in a step, with inputs that are far apart: {names}",
                "批归一化在一步中被调用 {calls} 次，而其输入相差很大：{names}",
            )
        },
        {
            "apart": (
                "their means differ by {apart:.2g} standard deviations, in {steps} of {read} steps that were read; the running statistics fit neither",
                "其均值相差 {apart:.2g} 个标准差，在读取的 {read} 步中有 {steps} 步；运行统计量对两者都不合适",
            )
        },
        (
            "Give each kind of input its own normalization, or normalise the inputs before the model",
            "为每种输入使用各自的归一化，或在模型之前归一化输入",
        ),
        ("Trainings with several optimizers, such as GANs.", "有多个优化器的训练，如 GAN。"),
        frozenset(("loss-stays",)),
        30,
    ),
    Rule(
        "statistics-drift",
        "normalisation",
        ("modules", "parameters"),
        statistics_drift,
        {
            "drift": (
                "The running statistics of {count} frozen normalizations go on moving: {names}",
                "{count} 个被冻结的归一化的运行统计量仍在变化：{names}",
            )
        },
        {
            "drift": (
                "in {steps} of {read} steps that were read, in training mode; their weights stay as they are",
                "在读取的 {read} 步中有 {steps} 步，处于训练模式；而其权重保持不变",
            )
        },
        (
            "Call eval() on the frozen part after each model.train()",
            "在每次 model.train() 之后对被冻结的部分调用 eval()",
        ),
        (
            "Normalizations without weights, and parts whose weights follow another model.",
            "没有权重的归一化，以及权重跟随其他模型的部分。",
        ),
        frozenset(),
        45,
    ),
    Rule(
        "drops-in-evaluation",
        "mode",
        ("calls.drops",),
        drops_in_evaluation,
        {
            "drops": (
                "{model} drops elements in evaluation mode, too: dropout at {line} does not depend on the mode",
                "{model} 在评估模式下也丢弃元素：{line} 处的 dropout 不依赖于模式",
            ),
            "probed": (
                "{model} drops elements in evaluation mode, too: the dropout at {line} is not given the mode",
                "{model} 在评估模式下也丢弃元素：{line} 处的 dropout 没有得到模式",
            ),
        },
        {
            "drops": ("{count} evaluated inputs, each given once", "{count} 个被评估的输入，每个只给一次"),
            "probed": (
                "its outputs in evaluation mode change with the random numbers; a function drops unless training=False",
                "它在评估模式下的输出随随机数变化；除非 training=False，函数会丢弃元素",
            ),
        },
        (
            "F.dropout(x, p, training=self.training); dropout_p=p if self.training else 0.0",
            "F.dropout(x, p, training=self.training)；dropout_p=p if self.training else 0.0",
        ),
        (
            "Inputs that are given several times: Monte Carlo dropout. Of a probe, calls with training=True.",
            "多次给出的同一输入：蒙特卡洛 dropout。在探测中，带 training=True 的调用。",
        ),
        frozenset(),
        30,
    ),
    Rule(
        "blocks-are-one",
        "tied-weights",
        ("repeated",),
        repeated,
        {
            "one": (
                "The {count} blocks of {name} are one {type}: they share all their weights",
                "{name} 的 {count} 个块是同一个 {type}：它们共享所有权重",
            )
        },
        {
            "one": (
                "it is given what it has put out itself, {chained} times in a step",
                "一步中有 {chained} 次把自身的输出作为输入",
            )
        },
        (
            "Make each block anew, as [Block() for _ in range(n)]; [Block()] * n repeats one object",
            "逐个新建各块，例如 [Block() for _ in range(n)]；[Block()] * n 只是重复同一个对象",
        ),
        (
            "Blocks that are called again without being listed several times, and heads in a list that are one.",
            "没有被多次列出而重复调用的块，以及列表中相同的头部。",
        ),
        frozenset(("loss-stays",)),
        30,
    ),
    Rule(
        "tied-apart",
        "tied-weights",
        ("ties",),
        ties,
        {
            "shared": (
                "{first} and {second} share their memory, but are two parameters: each update is applied to both",
                "{first} 与 {second} 共享内存，但是两个参数：每次更新都会作用两次",
            ),
            "transposed": (
                "{first} begins as the transpose of {second}, and differs from step {step} on: two parameters, trained apart",
                "{first} 起初是 {second} 的转置，从第 {step} 步起不同：它们是两个参数，被分别训练",
            ),
            "declared": (
                "The configuration ties {first} and {second}, but they are two parameters",
                "配置要求 {first} 与 {second} 共享，但它们是两个参数",
            ),
            "equal": (
                "{first} and {second} begin equal and differ from step {step} on: two parameters, trained apart",
                "{first} 与 {second} 起初相等，从第 {step} 步起不同：它们是两个参数，被分别训练",
            ),
        },
        {},
        (
            "Assign the parameter itself (output.weight = embedding.weight), after moving or loading the model",
            "直接赋参数本身 (output.weight = embedding.weight)，并在移动或加载模型之后进行",
        ),
        (
            "Layers that were copied from each other, such as those of an encoder, and codes that are wider than what they are made from.",
            "相互复制的层，如编码器的各层。",
        ),
        frozenset(),
        20,
    ),
    Rule(
        "norm-of-one",
        "normalisation",
        ("layers",),
        norm_of_one,
        {
            "element": (
                "Normalizations over one element put out a constant: {names}",
                "只作用于一个元素的归一化输出恒定：{names}",
            ),
            "sample": (
                "Batch normalizations see one sample at a time: {names}",
                "批归一化每次只看到一个样本：{names}",
            ),
        },
        {
            "sample": (
                "in evaluation they use running statistics instead, which may differ from those of any sample",
                "评估时使用运行统计量，它们可能与任何单个样本的统计量不同",
            )
        },
        (
            "Normalise over more: larger batches, fewer groups, or a layer normalization over the features",
            "在更多元素上归一化：更大的批次、更少的组，或对特征做层归一化",
        ),
        ("Normalizations in evaluation mode.", "处于评估模式的归一化。"),
        frozenset(("zero-gradient", "loss-stays", "loss-constant")),
        8,
    ),
    Rule(
        "mode-left",
        "mode",
        ("calls", "steps.drop_line"),
        mode_left,
        {
            "left": (
                "{model} is trained in evaluation mode from step {step} on: functions that depend on the mode, such as"
                " F.dropout, no longer act",
                "{model} 从第 {step} 步起在评估模式下训练：依赖模式的函数 (如 F.dropout) 不再起作用",
            )
        },
        {"left": ("elements were dropped at {line} before", "此前在 {line} 处有元素被丢弃")},
        ("Call model.train() after evaluating or sampling", "在评估或采样之后调用 model.train()"),
        (
            "Models that are in evaluation mode from the start, and those in which no function drops elements.",
            "从一开始就处于评估模式的模型，以及没有函数丢弃元素的模型。",
        ),
        frozenset(),
        30,
    ),
    Rule(
        "input-scale",
        "data",
        ("layers", "calls"),
        wrong_scale,
        {
            "large": (
                "The inputs are not scaled: they reach {highest:.3g}, and layer {name} puts out {deviation:.3g}",
                "输入未缩放：最大达 {highest:.3g}，层 {name} 的输出达 {deviation:.3g}",
            ),
            "twice": (
                "The pictures that layer {name} is given are normalised twice: by {first}, and then by {second}",
                "层 {name} 得到的图像被归一化两次：先用 {first}，再用 {second}",
            ),
            "divided": (
                "The pixels that layer {name} is given were divided by 255 twice: there is next to no difference between them",
                "层 {name} 得到的像素被除以 255 两次：它们之间几乎没有差别",
            ),
            "undivided": (
                "The pictures that layer {name} is given are normalised by {second}, but their pixels were not divided by 255 before",
                "层 {name} 得到的图像用 {second} 归一化，但像素之前没有除以 255",
            ),
        },
        {
            "large": ("standard deviation in the first step", "第一步的标准差"),
            **dict.fromkeys(
                ("twice", "undivided", "divided"),
                (
                    "in {count} of {of} steps the pixels are where this puts those from black to white",
                    "在 {of} 步中的 {count} 步，像素恰好位于此处理从黑到白所对应的位置",
                ),
            ),
        },
        ("Subtract the mean of each feature, and divide by its deviation", "减去每个特征的均值并除以其标准差"),
        (
            "Networks that begin with a normalization. Pixels that are normalised by other means than those of ImageNet, CLIP,"
            " CIFAR, MNIST, or by 0.5.",
            "以归一化开始的网络。用 ImageNet、CLIP、CIFAR、MNIST 或 0.5 以外的均值归一化的像素。",
        ),
        frozenset(("loss-stays", "loss-start", *DIVERGENCE, "zero-gradient", "scale-by-depth", "clipped-away")),
        12,
        advice_on={
            "twice": (
                "Normalise once: in the transform, in the processor, or in the model",
                "只归一化一次：在 transform、processor 或模型中",
            ),
            "divided": (
                "Divide once: ToTensor() and to_dtype(torch.float32, scale=True) do so, too",
                "只除一次：ToTensor() 和 to_dtype(torch.float32, scale=True) 也会做除法",
            ),
            "undivided": (
                "Divide by 255 first, as ToTensor() and to_dtype(torch.float32, scale=True) do",
                "先除以 255，如 ToTensor() 和 to_dtype(torch.float32, scale=True)",
            ),
        },
    ),
)
