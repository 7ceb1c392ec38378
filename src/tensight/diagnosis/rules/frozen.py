"""Rules about weights that are frozen by mistake."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tensight.diagnosis.findings import MOST_NAMED, Certainty, Finding, listed
from tensight.diagnosis.rule import Rule
from tensight.diagnosis.rules.losses import remains
from tensight.diagnosis.rules.parameters import are_as_made, are_trained, frozen_share, where_of
from tensight.diagnosis.rules.stages import UPDATES, stage_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensight.diagnosis.facts import Facts

_ALMOST_ALL = 0.8
"""Share of a model's elements that are frozen where little is left to learn with."""


def frozen(facts: Facts) -> Iterator[Finding]:
    """Find parameters that were trained, and no longer require gradients from some step on."""
    table = facts["parameters"]
    steps = table.steps
    if len(steps) < 2 * UPDATES:
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
        if switches == 1 and len(rows) - since >= UPDATES and held[rows[-1], at] and not is_new_stage:
            names.append(name)
            first[name] = int(steps[rows[since]])
    since_of = [first[name] for name in names]
    # Layers that are frozen one after the other, from the first one on, follow a schedule.
    if not names or (len(set(since_of)) > 1 and since_of == sorted(since_of)):
        return
    step = min(since_of)
    names = [name for name in names if first[name] == step]
    left = sum(bool(trainable[-1, at]) and bool(held[-1, at]) for at in range(len(table.names)))
    yield Finding(
        "frozen-since",
        "likely",
        step,
        "all" if not left else "some",
        {"count": len(names), "names": listed(names), "step": step},
        where_of(table, names),
        tuple(names),
    )


def frozen_moves(facts: Facts) -> Iterator[Finding]:
    """Find weights that require no gradients, and that their optimizer moves all the same: decay and momentum go on."""
    table = facts["parameters"]
    if len(table.steps) < UPDATES:
        return
    # A gradient of 0 that is not None. Models that take turns, as in GANs, have others.
    has_zeros = ~table.panel("is_trainable") & (table.panel("gradient") == 1)
    is_moving = has_zeros & (table.panel("optimizers") > 0) & (table.panel("moved") > 0) & table.present()
    at = np.flatnonzero(is_moving[-UPDATES:].all(0))
    if len(at):
        names = [table.names[each] for each in at]
        values = {"count": len(names), "names": listed(names), "change": float(table.panel("change")[-1, at].max())}
        step = int(table.steps[is_moving[:, at].any(1)][0])
        yield Finding("frozen-moves", "certain", step, "moves", values, where_of(table, names), tuple(names))


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
    if len(table.steps) < UPDATES or not layers or not len(functions):
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
    yield Finding("head-frozen", "likely", int(table.steps[0]), "head", values, where_of(table, [weight, bias]))


def frozen_as_made(facts: Facts) -> Iterator[Finding]:
    """Find a model that learns nothing, and of which almost all is frozen as it was made."""
    if not any(True for _ in remains(facts)):
        return
    table = facts["parameters"]
    trainable = np.asarray(table.panel("is_trainable").any(0))
    types = table.last("module_type")
    trained = table.chosen(np.asarray(are_trained(table).any(0)))
    off = table.chosen(~trainable)
    made = [name for name in off if name.endswith(".bias") and "norm" in types[name].lower()]
    share = frozen_share(table)
    if not trained or not made or share < _ALMOST_ALL or not are_as_made(table, made):
        return
    values = {"share": share, "names": listed(trained), "count": len(made), "made": listed(made, MOST_NAMED)}
    yield Finding("frozen-as-made", "likely", int(table.steps[0]), "made", values, where_of(table, off))


def bias_alone(facts: Facts) -> Iterator[Finding]:
    """Find models of which nothing but the bias of a layer is trained: it adds the same to the output of all inputs."""
    table = facts["parameters"]
    if len(table.steps) < UPDATES:
        return
    owned = np.asarray(are_trained(table).any(0))
    names, elements = table.chosen(owned), table.last("elements")
    layers = facts["layers"].names
    last = f"{layers[-1]}.bias" if layers else ""
    total = sum(elements.values())
    if not names or any(name != last for name in names) or total < 100 * sum(elements[name] for name in names):
        return
    values = {"names": listed(names), "count": sum(elements[name] for name in names), "of": total}
    yield Finding("bias-alone", "certain", int(table.steps[0]), "bias", values, where_of(table, names))


def switched_module(facts: Facts) -> Iterator[Finding]:
    """Find an attribute requires_grad of a module, which has no effect on its parameters."""
    table, parameters = facts["modules"], facts["parameters"]
    trained = set(parameters.chosen(np.asarray(are_trained(parameters).any(0))))
    for switch, message in ((1, "on"), (0, "off")):
        of_switch = (table["switch"] == switch) & (table["is_frozen"] == (switch == 1))
        names = list(dict.fromkeys(table["name"][of_switch].tolist()))
        if not switch:
            # Of a module of which a part is frozen, it may be what the attribute is about.
            held = {name: {each for each in parameters.names if each.startswith(f"{name}.")} for name in names}
            names = [name for name in names if held[name] and held[name] <= trained]
        if names:
            step = int(table["step"][of_switch][0])
            where = {"module": listed(names, MOST_NAMED)}
            certainty: Certainty = "certain" if switch else "likely"
            yield Finding("switch-of-module", certainty, step, message, {"names": listed(names)}, where)


RULES = (
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
        (
            "Parts that are switched on and off in turns, as in GANs, and layers that are frozen one after the other.",
            "轮流打开和关闭的部分 (如 GAN)，以及逐层依次冻结的层。",
        ),
        frozenset(("loss-stays",)),
        30,
    ),
    Rule(
        "frozen-moves",
        "frozen",
        ("parameters",),
        frozen_moves,
        {
            "moves": (
                "{count} weights require no gradients, and the optimizer moves them all the same: {names}",
                "{count} 个权重不需要梯度，优化器却仍在移动它们：{names}",
            ),
        },
        {
            "moves": (
                "they have gradients of 0 instead of None, so that decay and momentum go on: by up to {change:.2g} of the"
                " norm in the last step that was read",
                "它们的梯度为 0 而不是 None，因此衰减和动量继续作用：在读取的最后一步中移动了范数的 {change:.2g}",
            ),
        },
        (
            "Set their gradients to None (zero_grad(set_to_none=True)), or leave them out of the optimizer",
            "把它们的梯度设为 None (zero_grad(set_to_none=True))，或从优化器中移除",
        ),
        ("Parts that are switched on and off in turns, as in GANs.", "轮流打开和关闭的部分 (如 GAN)。"),
        frozenset(("frozen-since",)),
        14,
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
        "frozen-as-made",
        "frozen",
        ("parameters", "losses"),
        frozen_as_made,
        {
            "made": (
                "{share:.0%} of the model is frozen as it was made, never trained, and the loss stays: trained are {names}",
                "模型的 {share:.0%} 保持创建时的状态被冻结，从未训练，而损失停滞：被训练的是 {names}",
            )
        },
        {
            "made": (
                "the biases of {count} frozen normalizations are 0 everywhere, as they begin: {made}",
                "{count} 个被冻结的归一化层的偏置处处为 0，即其初始值：{made}",
            )
        },
        (
            "Load trained weights before freezing, or freeze less: look at which names the filter matches",
            "冻结之前加载已训练的权重，或减少冻结：检查过滤器匹配了哪些名称",
        ),
        (
            "Frozen models without normalizations, with trained ones, and those whose loss falls.",
            "没有归一化层或归一化层已训练过的被冻结模型，以及损失下降的模型。",
        ),
        frozenset(("loss-stays", "statistics-drift")),
        25,
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
            ),
            "off": (
                "requires_grad = False was set on the modules {names} themselves, which has no effect: their parameters are"
                " trained",
                "在模块 {names} 本身上设置了 requires_grad = False，这没有作用：其参数仍被训练",
            ),
        },
        {},
        (
            "Call module.requires_grad_(True), which switches its parameters on",
            "调用 module.requires_grad_(True)，它会打开参数的梯度",
        ),
        ("", ""),
        frozenset(("loss-stays", "frozen-since")),
        5,
        advice_on={
            "off": (
                "Call module.requires_grad_(False), which switches off the gradients of its parameters",
                "调用 module.requires_grad_(False)，它会关闭参数的梯度",
            )
        },
    ),
)
