"""Rules about optimizers: what they hold, and whether they update it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tensight.diagnosis.findings import MOST_NAMED, Certainty, Finding, folded, listed
from tensight.diagnosis.rule import Rule
from tensight.diagnosis.rules.losses import remains
from tensight.diagnosis.rules.parameters import where_of
from tensight.diagnosis.rules.stages import UPDATES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tensight.diagnosis.facts import Facts, Table


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
    is_reached = (gradient == 2) | table.panel("is_read")
    outside = (present.sum(0) >= 2) & ((owners == 0) | ~present).all(0) & is_reached.any(0)
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
    if not message or (is_most and len(lost) >= len(held)):
        # A few layers may be meant to learn alone; where nothing is learnt, they are too few.
        is_initial = table.last("is_initial")
        untrained = sum(elements[name] for name in lost if is_initial[name])
        has_learnt = untrained <= 0.5 * sum(elements[name] for name in lost)
        message = "most" if any(True for _ in remains(facts)) else "" if has_learnt else "initial"
        certainty = "likely"
    is_held = np.isin(names, held)
    if not trainable[:, is_held].any() and not (gradient[:, is_held] > 0).any():
        message, certainty = "exchanged", "certain"
    elif is_thawed:
        lost, message, certainty = is_thawed, "among", "certain"
    elif any(nested[name] for name in lost):
        lost, message, certainty = [name for name in lost if nested[name]], "nested", "certain"
    if not message:
        return
    yield Finding(
        "not-in-optimizer",
        certainty,
        table.first_step(is_reached[:, [names.index(name) for name in lost]].any(1)),
        message,
        {"count": len(lost), "names": listed(lost), "held": len(held), "held_names": listed(held)},
        {**where_of(table, lost), "optimizer": listed(_holders(table, held), MOST_NAMED)},
        tuple(lost),
    )


def _holders(table: Table, names: Sequence[str]) -> list[str]:
    """Return the optimizers that update parameters."""
    optimizers = table.last("optimizer")
    return list(dict.fromkeys(filter(None, (optimizers[name] for name in names))))


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


def made_anew(facts: Facts) -> Iterator[Finding]:
    """Find optimizers that are made anew before their updates, so that their state is lost."""
    table = facts["groups"]
    fresh = table["is_new"]
    if not len(fresh) or fresh.sum() < UPDATES or fresh.mean() < 0.3:
        return
    first = int(np.flatnonzero(fresh)[0])
    kind = str(table["optimizer"][first]).split()[0]
    values = {"optimizer": kind, "count": int(fresh.sum()), "of": len(fresh)}
    where = {"optimizer": kind, "line": facts.update_line}
    yield Finding("optimizer-made-anew", "certain", int(table["step"][first]), "anew", values, where)


def updated_twice(facts: Facts) -> Iterator[Finding]:
    """Find parameters that two optimizers update in the same step."""
    table = facts["parameters"]
    twice = table.panel("optimizers") > 1
    often = (twice.sum(0) >= 2) & (twice.mean(0) > 0.5)
    if not often.any():
        return
    names = table.chosen(often)
    step = table.first_step(twice[:, often].any(1))
    optimizers = list(dict.fromkeys(facts["groups"]["optimizer"].tolist()))
    others = _in_no_optimizer(table, names)
    if not others:
        # Each may follow a loss of its own, as the encoder of an adversarial autoencoder does.
        often &= ~(table.panel("is_updated_apart") & twice).any(0)
        names = table.chosen(often)
    if not names:
        return
    values = {
        "count": len(names),
        "names": listed(names),
        "optimizers": listed(optimizers),
        "others": listed(others),
        "amount": len(others),
    }
    where = {"parameter": listed([*others, *names], MOST_NAMED), "optimizer": listed(optimizers)}
    message = "instead" if others else "twice"
    yield Finding("two-optimizers", "likely", step, message, values, where, (*names, *others))


def _in_no_optimizer(table: Table, names: Sequence[str]) -> list[str]:
    """Return the parameters of models that get gradients, and of which no optimizer holds any, beside given others."""
    models = table.last("model")
    held = {models[name] for at, name in enumerate(table.names) if (table.panel("owners")[:, at] > 0).any()}
    reached = (table.panel("gradient") == 2).sum(0) >= UPDATES
    return [name for name in table.chosen(reached) if models[name] not in held and name not in names]


def foreign(facts: Facts) -> Iterator[Finding]:
    """Find optimizers that hold parameters of no model that runs."""
    findings = list(_foreign(facts))
    totals = {count: sum(finding.values[count] for finding in findings) for count in ("unknown", "of")}
    return folded(replace(finding, values={**finding.values, **totals}) for finding in findings)


def _foreign(facts: Facts) -> Iterator[Finding]:
    table = facts["groups"]
    for name in table.names:
        of_name = table["name"] == name
        unknown, parameters = int(table["unknown"][of_name][-1]), int(table["parameters"][of_name][-1])
        optimizer = str(table["optimizer"][of_name][0])
        if len(table["step"][of_name]) < UPDATES:
            continue
        if not unknown and _holds_another(facts, optimizer):
            # It holds another model, which the script has made and never calls.
            unknown = parameters
        if not unknown:
            continue
        weights = facts["parameters"]
        since = table["step"][of_name][table["unknown"][of_name] > 0]
        step = int(since[0]) if len(since) else int(table.steps[0])
        lost = _without_owner(weights)
        prints = weights.panel("fingerprint")[weights.steps >= step]
        moves = ((prints[1:] != prints[:-1]) & (prints[1:] != 0) & (prints[:-1] != 0)).any(0)
        # If some of them change, they have copies in higher precision, which the optimizer updates.
        if not lost or set(weights.chosen(moves)) & set(lost):
            continue
        values = {"group": name, "unknown": unknown, "of": parameters, "names": listed(lost)}
        where = {"optimizer": name, "parameter": listed(lost, MOST_NAMED)}
        yield Finding("optimizer-of-others", "certain", step, "others", values, where)


def _without_owner(weights: Table) -> list[str]:
    """Return the parameters with gradients that no optimizer holds."""
    gradients, is_read = weights.last("gradient"), weights.last("is_read")
    return [
        name for name, count in weights.last("owners").items() if count == 0 and (gradients[name] == 2 or is_read[name])
    ]


def _holds_another(facts: Facts, optimizer: str) -> bool:
    """Whether an optimizer holds one model, without a gradient, and another one has all the gradients."""
    table = facts["parameters"]
    held, trained = table["optimizer"] == optimizer, table["gradient"] == 2
    is_reached = bool((held & trained).any())
    models = set(table["model"][held].tolist())
    return bool(models) and not is_reached and models.isdisjoint(table["model"][trained].tolist())


def never_steps(facts: Facts) -> Iterator[Finding]:
    """Find parameters with gradients whose optimizer never updates, while others do."""
    table = facts["parameters"]
    if len(table.steps) < 20:
        return
    present = table.present()
    held = (table.panel("owners") > 0) & present
    gradient = ((table.panel("gradient") == 2) & held).sum(0)
    # The hooks of a compiled update are not called, but its parameters move.
    prints = table.panel("fingerprint")
    is_unmoved = (prints == prints[-1]).mean(0) > 0.9
    never = (gradient >= 20) & ~(table.panel("optimizers") > 0).any(0) & held[-1] & is_unmoved
    if not never.any():
        return
    names = table.chosen(never)
    values = {"count": len(names), "names": listed(names), "steps": int(gradient[never].max())}
    step = table.first_step(held[:, never].any(1))
    yield Finding(
        "optimizer-never-steps", "likely", step, "never", values, {"parameter": listed(names, MOST_NAMED)}, tuple(names)
    )


def not_prepared(facts: Facts) -> Iterator[Finding]:
    """Find optimizers that update with a part of what Accelerate accumulates, as those that it did not prepare."""
    table = facts["groups"]
    for name in table.names:
        of_name = table["name"] == name
        expected, passes = table["accumulates"][of_name], table["backward_passes"][of_name]
        early = (expected > 1) & (passes > 0) & (passes < expected)
        if early.sum() < UPDATES or early.mean() < 0.8:
            continue
        at = int(np.flatnonzero(early)[0])
        values = {"group": name, "expected": int(expected[at]), "passes": int(np.median(passes[early]))}
        where = {"optimizer": name, "line": facts.update_line}
        step = int(table["step"][of_name][at])
        message = "apart" if table["is_prepared"][of_name][early].all() else "unprepared"
        yield Finding("optimizer-not-prepared", "certain", step, message, values, where)
        return


def without_effect(facts: Facts) -> Iterator[Finding]:
    """Find updates that change no element of a weight from some step on, although it has a gradient and a rate."""
    table = facts["parameters"]
    names, steps = table.names, table.steps
    moved, change, norms = table.panel("moved"), table.panel("change"), table.panel("gradient_norm")
    sizes = norms * table.panel("rate")
    # What one optimizer rounds away, another one does not.
    optimizers, last = table.panel("optimizer"), table.last("optimizer")
    is_same = optimizers == np.array([last[name] for name in names], object)
    is_due = is_same & (table.panel("gradient") == 2) & (sizes > 0) & np.isfinite(sizes) & np.isfinite(moved)
    types = table.last("dtype")
    stuck, since = [], {}
    for at, name in enumerate(names):
        # In low precision, rounding loses all of an update that has become a little smaller.
        if types[name] not in ("float32", "float64"):
            continue
        rows = np.flatnonzero(is_due[:, at])
        still = moved[rows, at] == 0
        first = int(np.argmax(still)) if still.any() else len(still)
        if first < UPDATES or len(still) - first < 5 or not still[first:].all():
            continue
        # Updates of such a size cannot be lost to rounding.
        are_alike = np.median(sizes[rows[first:], at]) > 0.01 * np.median(sizes[rows[:first], at])
        if are_alike and np.median(change[rows[:first], at]) > 1e-4:
            stuck.append(name)
            since[name] = int(steps[rows[first]])
    if not stuck:
        return
    step = min(since.values())
    values = {"count": len(stuck), "names": listed(stuck), "step": step, "optimizer": table.last("optimizer")[stuck[0]]}
    where = {"parameter": listed(stuck, MOST_NAMED), "optimizer": str(values["optimizer"])}
    yield Finding("update-without-effect", "certain", step, "since", values, where, tuple(stuck))


RULES = (
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
            "exchanged": (
                "Nothing is trained: the weights that the optimizer holds require no gradients, and those that do are in no"
                " optimizer: {names}",
                "没有任何参数被训练：优化器持有的权重不需要梯度，而需要梯度的权重不在任何优化器中：{names}",
            ),
            **dict.fromkeys(
                ("among", "most", "initial"),
                (
                    "{count} parameters get gradients, but no optimizer updates them: {names}",
                    "{count} 个参数有梯度，但没有优化器更新它们：{names}",
                ),
            ),
        },
        {
            "initial": (
                "the optimizers hold {held} others; the values of these are as evenly spread as an initialization leaves them: nothing"
                " was learnt or loaded",
                "优化器持有另外 {held} 个参数；这些参数的值仍像初始化那样均匀分布：既没有学习也没有加载",
            ),
            "exchanged": ("the optimizer holds {held_names}", "优化器持有 {held_names}"),
            "most": (
                "the optimizers hold {held} others, and the loss stays",
                "优化器持有另外 {held} 个参数，而损失停滞",
            ),
            "within": (
                "the optimizers hold {held} others, some of them of the same modules",
                "优化器持有另外 {held} 个参数（有些属于同一模块）",
            ),
            "nested": (
                "they get gradients; layers in a plain list or dictionary are no part of the model",
                "它们有梯度；普通列表或字典中的层不属于模型",
            ),
            "among": ("the optimizers hold {held} others", "优化器持有另外 {held} 个参数"),
        },
        (
            "Give them to the optimizer (add_param_group, or make the optimizer after the last change of the model), or"
            " switch off their gradients with requires_grad_(False)",
            "把它们交给优化器 (add_param_group，或在模型最后一次修改之后再创建优化器)，或用 requires_grad_(False) 关闭其梯度",
        ),
        (
            "A body below a trained head, and most of a model beside a few trained parameters: feature extraction and adapters"
            " often leave the gradients of the rest on. Unless the loss stays, or the rest is as it was initialized.",
            "已训练的头部之下的主干，以及只训练少数参数时模型的其余部分：特征提取和适配器常保留其梯度；损失停滞或其余部分仍为初始值时除外。",
        ),
        frozenset(("loss-stays",)),
        20,
        advice_on={
            "nested": (
                "Hold them in nn.ModuleList or nn.ModuleDict, or as attributes of a module, before the optimizer is made",
                "在创建优化器之前，用 nn.ModuleList、nn.ModuleDict 或模块的属性来持有它们",
            )
        },
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
        "update-without-effect",
        "optimizer",
        ("parameters",),
        without_effect,
        {
            "since": (
                "From step {step} on updates by {optimizer} change nothing in {count} weights: {names}",
                "从第 {step} 步起，{optimizer} 的更新不再改变 {count} 个权重：{names}",
            )
        },
        {
            "since": (
                "they have gradients and a learning rate, and changed with each update before",
                "它们有梯度和学习率，且之前每次更新都会变化",
            )
        },
        (
            "Look for what has replaced their values at that step, so that the optimizer updates something else, or for a"
            " gradient so large that the optimizer's average of its square is infinite since",
            "查找在该步替换了这些值的代码 (优化器因此更新了别的对象)，或过大的梯度 (优化器中其平方的平均值从此为无穷大)",
        ),
        (
            "Weights that no update has changed before, and updates that could be lost to rounding.",
            "此前从未被更新改变的权重，以及可能因舍入而丢失的更新。",
        ),
        frozenset(("loss-stays", "update-undone")),
        12,
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
            ),
            "instead": (
                "{count} parameters are updated by two optimizers in each step ({names}), and {amount} of another model by none:"
                " {others}",
                "{count} 个参数在每一步被两个优化器更新 ({names})，而另一个模型的 {amount} 个参数不在任何优化器中：{others}",
            ),
        },
        dict.fromkeys(("twice", "instead"), ("{optimizers}", "{optimizers}")),
        ("Give each parameter to one optimizer", "每个参数只交给一个优化器"),
        (
            "Optimizers that take turns, or that follow losses of their own.",
            "轮流工作的优化器，以及各自遵循不同损失的优化器。",
        ),
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
                "{group} holds {unknown} parameters of no model that runs, while {names} get gradients and are in no"
                " optimizer",
                "{group} 持有 {unknown} 个不属于任何运行中模型的参数，而 {names} 有梯度却不在任何优化器中",
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
        "optimizer-not-prepared",
        "optimizer",
        ("groups.accumulates",),
        not_prepared,
        {
            "unprepared": (
                "{group} was not given to accelerator.prepare(): it updates after {passes} of {expected} backward passes, with"
                " losses that are divided by {expected}",
                "{group} 没有经过 accelerator.prepare()：它在 {expected} 次反向传播中的 {passes} 次之后就更新，而损失已除以 {expected}",
            ),
            "apart": (
                "{group} updates after {passes} of {expected} backward passes, with losses that are divided by {expected}: the"
                " batches are not within accelerator.accumulate(model)",
                "{group} 在 {expected} 次反向传播中的 {passes} 次之后就更新，而损失已除以 {expected}："
                "批次不在 accelerator.accumulate(model) 之内",
            ),
        },
        {},
        (
            "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)",
            "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)",
        ),
        ("Trainings that accumulate nothing.", "不做累积的训练。"),
        frozenset(("loss-stays", "accumulation-scale")),
        6,
        advice_on={
            "apart": (
                "Put the pass and the update of each batch into `with accelerator.accumulate(model):`",
                "把每个批次的前向、反向和更新放入 `with accelerator.accumulate(model):`",
            )
        },
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
)
