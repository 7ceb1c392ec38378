"""Rules about weights whose gradient is missing, or exactly 0."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from tensight.diagnosis.findings import MOST_NAMED, Certainty, Finding, listed
from tensight.diagnosis.rule import Rule
from tensight.diagnosis.rules.parameters import are_trained, where_of
from tensight.diagnosis.rules.stages import UPDATES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tensight.diagnosis.facts import Facts, Table

_NEVER, _ZERO = 0, 1
_MOST_DIGITS = 6
_MESSAGES = {"detach": "detached", "no_grad": "no_grad", "unread": "unread", "left": "left"}


def no_gradient(facts: Facts) -> Iterator[Finding]:
    """Find parameters that an optimizer updates, and that have never had a gradient while others had."""
    table = facts["parameters"]
    steps = table.steps
    if len(steps) < UPDATES:
        return
    owned, gradient = are_trained(table), table.panel("gradient")
    has_any = (table.panel("gradient") == 2).any(1)
    if has_any.sum() < UPDATES:
        return
    counts = (owned & has_any[:, None]).sum(0)
    never = (counts >= UPDATES) & ((gradient == _NEVER) | ~owned).all(0)
    never &= ~table.panel("is_left_out").any(0)
    # A script that clears gradients of some layers leaves these as they are.
    never &= ~table.panel("is_cleared").any(0)
    # On the bias of a layer, a loss of its derivative does not depend.
    modules, shapes = table.last("module"), table.last("shape")
    reached = {modules[name] for at, name in enumerate(table.names) if (gradient[:, at] == 2).any()}
    never &= ["x" in shapes[name] or modules[name] not in reached for name in table.names]
    is_unused = table.panel("is_unused") | ~owned
    # What was hardly called in steps that were read, but in others, may have had gradients there.
    never &= ~(table.panel("is_used_unread").any(0) & (is_unused.mean(0) > 0.5))
    # Whether a router gives each expert something is judged by itself.
    experts = tuple(f"{name}." for name in facts["experts"].names)
    is_expert = np.array([name.startswith(experts) for name in table.names], np.bool_)
    never &= ~(is_expert & is_unused.all(0))
    unused = never & is_unused.all(0)
    never &= ~_ends_of_stacks(table, never & ~unused & (table.panel("cut") == "unread").any(0))
    line = facts["steps"].last("checkpoint_line").get("step", "")
    for chosen, message in ((never & ~unused, "checkpointed" if line else "some"), (unused, "unused")):
        if not chosen.any():
            continue
        names = table.chosen(chosen)
        cut, cut_line = _cut(table, names)
        if cut and message == "some":
            message, line = _MESSAGES.get(cut, "operator"), cut_line
        certainty: Certainty = "likely" if message in ("unused", "unread", "left") else "certain"
        step = int(steps[np.flatnonzero(owned[:, chosen].any(1))[0]])
        values = {
            "count": len(names),
            "of": int((counts >= UPDATES).sum()),
            "names": listed(names),
            "steps": int(counts.max()),
            "line": line,
            "cut": cut,
        }
        where = {**where_of(table, names), "line": "" if message == "unused" else line}
        yield Finding("no-gradient", certainty, step, message, values, where, tuple(names))


def _ends_of_stacks(table: Table, unread: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which unread parameters are of the last block of a stack, whose earlier blocks use the same part.

    Of the last block, a part may be for the one that would follow.
    """
    reached, names = set(table.chosen((table.panel("gradient") == 2).any(0))), set(table.names)
    is_end = np.zeros(len(unread), np.bool_)
    for at in np.flatnonzero(unread).tolist():
        steps = table.names[at].split(".")
        for depth, step in enumerate(steps):
            number = int(step) if step.isdecimal() and len(step) < _MOST_DIGITS else 0
            if number:
                before, after = (
                    ".".join((*steps[:depth], str(n), *steps[depth + 1 :])) for n in (number - 1, number + 1)
                )
                is_end[at] |= before in reached and after not in names
    return is_end


def _cut(table: Table, names: list[str]) -> tuple[str, str]:
    """Return what ends the graph between parameters and the loss, and its line; empty if that is unknown."""
    is_cut = (table["cut"] != "") & np.isin(table["name"], names)
    cuts = Counter(zip(table["cut"][is_cut].tolist(), table["cut_line"][is_cut].tolist(), strict=True))
    return cuts.most_common(1)[0][0] if cuts else ("", "")


def no_gradient_at_all(facts: Facts) -> Iterator[Finding]:
    """Find updates in which no parameter has a gradient."""
    table = facts["parameters"]
    owned = are_trained(table)
    if len(table.steps) < UPDATES or not owned.any():
        return
    has_none = owned.any(1) & ((table.panel("gradient") == _NEVER) | ~owned).all(1)
    if not has_none[: max(UPDATES, int(0.9 * len(has_none)))].all():
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
    has_loss = has_backward and bool(is_read.any())
    names = table.chosen(np.asarray(owned.any(0)))
    line = (str(losses["line"][is_read][0]) if has_loss else line) or line
    function = str(losses["function"][is_read][0]) if has_loss else ""
    cut, cut_line = _cut(table, names)
    made_line = str(losses["made_line"][is_read][0]) if has_loss else ""
    if has_backward and cut not in ("", "unread", "left"):
        message, line = _MESSAGES.get(cut, "operator"), cut_line
    elif is_cut and made_line and not function:
        message, line = "anew", made_line
    where = {"parameter": listed(names, MOST_NAMED), "line": line}
    values = {"line": line, "function": function or "leaf", "cut": cut}
    yield Finding("no-gradients", "certain", step, message, values, where)


def cancelled_estimators(facts: Facts) -> Iterator[Finding]:
    """Find straight-through estimators without a detach, whose gradient cancels: z + (q - z) is q."""
    table = facts["cancelling"]
    names = table.names
    if not names:
        return
    line = str(table["line"][table["name"] == names[0]][0])
    parameters = facts["parameters"]
    gradient = parameters.panel("gradient")
    covered = parameters.chosen((gradient == _ZERO).any(0) & ~(gradient == 2).any(0))
    values = {"line": line, "lines": listed(names), "steps": int((table["name"] == names[0]).sum())}
    where = {"operator": "detach", "line": line}
    yield Finding("straight-through-cancels", "certain", table.steps[0], "cancels", values, where, tuple(covered))


def zero_gradient(facts: Facts) -> Iterator[Finding]:
    """Find parameters whose gradient is exactly 0 in every step."""
    table = facts["parameters"]
    steps = table.steps
    if len(steps) < UPDATES:
        return
    owned, gradient = are_trained(table), table.panel("gradient")
    counts = (owned & (gradient == _ZERO)).sum(0)
    measured = (owned & table.present()).sum(0)
    always = (
        (counts >= np.clip(0.9 * measured, UPDATES, None)) & (measured >= min(8, len(steps))) & ~(gradient == 2).any(0)
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
    cut, line = _cut(table, names)
    columns = [table.names.index(name) for name in names]
    if cut:
        message = f"flat_{message}"
    elif message == "some" and len(names) > 1 and not np.nan_to_num(table.panel("norm")[:, columns]).any():
        message = "zeros_some"
    yield Finding(
        "zero-gradient",
        "certain",
        int(steps[np.flatnonzero(owned[:, always].any(1))[0]]),
        message,
        {
            "count": len(names),
            "of": trained,
            "names": listed(names),
            "steps": int(counts[always].max()),
            "cut": cut,
        },
        {**where_of(table, names), "line": line},
        tuple(names) if message.endswith("some") else (),
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
            "anew": (
                "No weight has a gradient: the loss is a new tensor, made at {line}, which no parameter leads to",
                "没有任何权重得到梯度：损失是在 {line} 新建的张量，与任何参数都没有联系",
            ),
            "detached": (
                "No weight has a gradient: what is computed from them is detached ({line}) on its way to the loss",
                "没有任何权重得到梯度：由它们算出的结果在到达损失之前被 detach ({line})",
            ),
            "no_grad": (
                "No weight has a gradient: gradients are switched off ({line}) between them and the loss",
                "没有任何权重得到梯度：它们与损失之间的计算关闭了梯度 ({line})",
            ),
            "operator": (
                "No weight has a gradient: {cut} ({line}), between them and the loss, has none",
                "没有任何权重得到梯度：它们与损失之间的 {cut} ({line}) 没有梯度",
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
        {
            "cut": ("the backward pass begins at a tensor made by {function}", "反向传播从 {function} 产生的张量开始"),
            "anew": ("the backward pass begins at it, and ends there", "反向传播从它开始，也在它结束"),
            "unreached": (
                "the backward pass at {line} begins at a tensor made by {function}, and ends before it comes to a weight",
                "{line} 处的反向传播从 {function} 产生的张量开始，在到达任何权重之前就结束了",
            ),
        },
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
            "detached": (
                "{count} of {of} trainable weights never have a gradient: what is computed from them is detached ({line})"
                " on its way to the loss: {names}",
                "{of} 个可训练权重中有 {count} 个从未得到梯度：由它们算出的结果在到达损失之前被 detach ({line})：{names}",
            ),
            "no_grad": (
                "{count} of {of} trainable weights never have a gradient: gradients are switched off ({line}) between"
                " them and the loss: {names}",
                "{of} 个可训练权重中有 {count} 个从未得到梯度：它们与损失之间的计算关闭了梯度 ({line})：{names}",
            ),
            "operator": (
                "{count} of {of} trainable weights never have a gradient: {cut} ({line}), between them and the loss, has none:"
                " {names}",
                "{of} 个可训练权重中有 {count} 个从未得到梯度：它们与损失之间的 {cut} ({line}) 没有梯度：{names}",
            ),
            "unread": (
                "{count} of {of} trainable weights never have a gradient: nothing that is computed from them is used in the"
                " loss: {names}",
                "{of} 个可训练权重中有 {count} 个从未得到梯度：损失没有用到由它们算出的任何结果：{names}",
            ),
            "left": (
                "{count} of {of} trainable weights never have a gradient: what is computed from them is detached ({line}), and"
                " is no tensor of a graph after that: {names}",
                "{of} 个可训练权重中有 {count} 个从未得到梯度：由它们算出的结果被 detach ({line})，此后不再属于任何计算图：{names}",
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
            ("some", "detached", "no_grad", "operator", "unread", "left", "checkpointed", "unused"),
            (
                "in {steps} of {read} steps that were read none had a gradient, while others had one",
                "在读取的 {read} 步中有 {steps} 步它们没有梯度，而其他权重有",
            ),
        ),
        (
            "Look for what ends the graph behind them: .detach(), .data, torch.no_grad(), .numpy(), .item(), or an argmax or"
            " a comparison of which only the result is used",
            "查找在它们之后截断计算图的地方：.detach()、.data、torch.no_grad()、.numpy()、.item()，或只使用其结果的 argmax 或比较",
        ),
        (
            "Weights that no optimizer holds, and frozen ones; those whose gradients the script clears before the update; and"
            " a bias whose matrix has a gradient, as where the loss is one of derivatives.",
            "不在任何优化器中的权重，以及被冻结的权重；脚本在更新之前清除其梯度的权重；以及矩阵有梯度的偏置，例如损失由导数构成时。",
        ),
        frozenset(("loss-stays",)),
        20,
        advice_on={
            "detached": (
                "Leave out .detach() or .data there, or take these weights out of the optimizer if that is meant",
                "去掉该处的 .detach() 或 .data；如果是有意为之，则将这些权重移出优化器",
            ),
            "left": (
                "Compute with the tensor itself: NumPy and Python's numbers have no graph, and torch.tensor() begins a new one",
                "直接用张量计算：NumPy 和 Python 数值没有计算图，而 torch.tensor() 会开始新的图",
            ),
            "unread": (
                "Use what they put out, or leave them out of the model",
                "使用它们的输出，或从模型中移除",
            ),
            "no_grad": (
                "Call them outside of torch.no_grad(), or take these weights out of the optimizer if that is meant",
                "在 torch.no_grad() 之外调用它们；如果是有意为之，则将这些权重移出优化器",
            ),
            "operator": (
                "Compute the loss from what that operator is given, or use a straight-through estimate of its gradient",
                "用该算子的输入来计算损失，或使用直通梯度估计",
            ),
            "checkpointed": (
                "Checkpoint with use_reentrant=False, or let the input require gradients:"
                " model.enable_input_require_grads()",
                "使用 use_reentrant=False，或让输入需要梯度：model.enable_input_require_grads()",
            ),
            "unused": (
                "Call them in forward(), or leave them out of the model",
                "在 forward() 中调用它们，或从模型中移除",
            ),
        },
    ),
    Rule(
        "straight-through-cancels",
        "gradient-zero",
        ("cancelling", "parameters"),
        cancelled_estimators,
        {
            "cancels": (
                "z + (q - z) without detach() is q ({line}): what z gets by the sum and by the difference cancels, and no"
                " gradient reaches it",
                "没有 detach() 的 z + (q - z) 就是 q ({line})：z 从加法和减法得到的梯度相互抵消，没有梯度到达 z",
            ),
        },
        {
            "cancels": (
                "the same tensor is added and subtracted in {steps} of the first steps: {lines}",
                "在最初的 {steps} 步中，同一个张量既被加上又被减去：{lines}",
            ),
        },
        (
            "Detach the difference: z + (q - z).detach() has the value of q and the gradient of z",
            "将差 detach：z + (q - z).detach() 的值是 q，梯度则是 z 的梯度",
        ),
        (
            "Sums whose other term is computed from the same tensor, as a mean that is subtracted and added again, and"
            " differences with a factor.",
            "另一项由同一张量算出的和（例如减去又加回的均值），以及带有因子的差。",
        ),
        frozenset(("zero-gradient", "loss-stays")),
        18,
    ),
    Rule(
        "zero-gradient",
        "gradient-zero",
        ("parameters",),
        zero_gradient,
        {
            "all": ("The gradients of all weights are exactly 0", "所有权重的梯度恒为 0"),
            "flat_all": (
                "The gradients of all weights are exactly 0: {cut}, whose derivative is 0, is between them and the loss",
                "所有权重的梯度恒为 0：它们与损失之间有导数为 0 的 {cut}",
            ),
            "zeros_some": (
                "The gradients of {count} of {of} weights are exactly 0 in every step: they are 0 themselves, so that neither of"
                " two that are multiplied with each other gets any: {names}",
                "{of} 个权重中有 {count} 个在每一步的梯度都恒为 0：它们自身为 0，彼此相乘的两个权重都得不到梯度：{names}",
            ),
            "flat_some": (
                "The gradients of {count} of {of} weights are exactly 0 in every step: {cut}, whose derivative is 0, is between"
                " them and the loss: {names}",
                "{of} 个权重中有 {count} 个在每一步的梯度都恒为 0：它们与损失之间有导数为 0 的 {cut}：{names}",
            ),
            "some": (
                "The gradients of {count} of {of} weights are exactly 0 in every step: {names}",
                "{of} 个权重中有 {count} 个在每一步的梯度都恒为 0：{names}",
            ),
        },
        {
            **dict.fromkeys(
                ("all", "flat_all"),
                ("in {steps} of {read} steps that were read", "在读取的 {read} 步中有 {steps} 步"),
            ),
            **dict.fromkeys(
                ("some", "zeros_some", "flat_some"),
                (
                    "in {steps} of {read} steps that were read, while others have gradients",
                    "在读取的 {read} 步中有 {steps} 步，而其他权重有梯度",
                ),
            ),
        },
        (
            "Follow them back from the loss: a unit that is always off (ReLU), a round, sign or floor without a"
            " straight-through gradient, a factor that is 0, a softmax over one unit, a custom backward that returns zeros, or"
            " two factors that both begin at 0",
            "从损失向后追踪：始终关闭的单元 (ReLU)、没有直通梯度的 round、sign 或 floor、等于 0 的因子、只有一个单元的 softmax、"
            "返回零的自定义 backward，或两个初始都为 0 的因子",
        ),
        (
            "Vectors, of which the bias before a normalization has a gradient of 0 by construction; and matrices whose bias has a"
            " gradient: their inputs are 0.",
            "向量：归一化之前的偏置的梯度本来就是 0；以及偏置有梯度的矩阵：其输入为 0。",
        ),
        frozenset(("loss-stays",)),
        25,
        advice_on={
            "zeros_some": (
                "Let one of each two begin at random, as the first factor of an adapter does",
                "让每两个中的一个随机初始化，例如适配器的第一个因子",
            ),
            **dict.fromkeys(
                ("flat_all", "flat_some"),
                (
                    "Use a straight-through estimate of its gradient, such as x + (round(x) - x).detach(); draw noise apart from"
                    " what it is scaled by, as rsample() does",
                    "使用直通梯度估计，例如 x + (round(x) - x).detach()；像 rsample() 那样把噪声与其尺度分开抽取",
                ),
            ),
        },
    ),
)
