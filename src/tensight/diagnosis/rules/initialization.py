"""Rules about the first values of weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tensight.diagnosis.findings import MOST_NAMED, Finding, listed
from tensight.diagnosis.rule import DIVERGENCE, Rule
from tensight.diagnosis.rules.losses import constant_predictions, first_loss, guess_of_classes
from tensight.diagnosis.rules.parameters import are_trained, where_of
from tensight.diagnosis.rules.stages import UPDATES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tensight.diagnosis.facts import Facts
    from tensight.diagnosis.findings import Certainty

_BODY = 1 / 3
"""Share of the elements and layers of a module from which on they are more than a head."""

_MOST_OF_MODEL = 0.5
"""Share of the elements and layers of a pretrained model from which on they are no head, and nothing that was added."""

_OTHER_WEIGHTS = 0.3
"""Distance of weights, relative to their norm, from which on they are no longer the same with noise."""

_FIRST = 3
"""Number of the first losses that must all be those of a guess, and of those that are averaged where they have fallen."""

_UNLEARNT, _LEARNT, _MANY_UPDATES = 0.95, 0.8, 100
"""Shares of the loss of a guess above and below which nothing, and something, has been learnt; updates that learn."""

_BEGINNING = 2
"""Position of a schedule up to which it is at its beginning."""


def equal_units(facts: Facts) -> Iterator[Finding]:
    """Find matrices whose rows are all the same, and stay so: their units learn the same."""
    table = facts["parameters"]
    steps = table.steps
    if len(steps) < UPDATES:
        return
    equal, moved = table.panel("equal_units"), table.panel("moved")
    present = table.present()
    owned = are_trained(table)
    # Later, rounding makes rows differ in their last bits.
    first = np.arange(len(steps))[:, None] < max(UPDATES, 5)
    updates = ((moved > 0) & owned & first).sum(0)
    always: NDArray[np.bool_] = (equal | ~present | ~first).all(0) & (updates >= UPDATES) & (present.sum(0) >= UPDATES)
    if not always.any():
        return
    names = table.chosen(always)
    yield Finding(
        "equal-units",
        "certain",
        int(steps[0]),
        "equal",
        {"count": len(names), "names": listed(names), "steps": int(updates[always].max())},
        where_of(table, names),
        tuple(names),
    )


def scale_by_depth(facts: Facts) -> Iterator[Finding]:
    """Find outputs that grow or shrink by a factor from layer to layer, over many layers."""
    table = facts["layers"]
    if not len(table):
        return
    rows = table["step"] == table.steps[0]
    deviations, names = table["deviation"][rows], table["name"][rows].tolist()
    elements = table["normalised"][rows]
    if len(names) < 5 or (elements >= 0).sum() > 1 or not np.isfinite(deviations).all() or (deviations <= 0).any():
        return
    # The last layer is made for the loss, and often small on purpose.
    logs = np.log10(deviations[:-1])
    slope = float(np.polyfit(np.arange(len(logs)), logs, 1)[0])
    span = float(logs[-1] - logs[0])
    steady = float((np.sign(np.diff(logs)) == np.sign(span)).mean())
    if abs(span) < 2.5 or steady < 0.8:
        return
    values = {
        "layers": len(logs),
        "first": float(deviations[0]),
        "last": float(deviations[-2]),
        "factor": 10**slope,
        "names": listed(names),
    }
    message = "grows" if span > 0 else "shrinks"
    yield Finding(
        "scale-by-depth", "likely", int(table.steps[0]), message, values, {"module": listed(names, MOST_NAMED)}
    )


def nothing_loaded(facts: Facts) -> Iterator[Finding]:
    """Find weights that are read or loaded, and are not in the model."""
    modules = set()
    for row in facts["loads"].rows():
        loaded = row["keys"] - row["unexpected"]
        if not row["missing"]:
            continue
        given, _, expected = row["example"].partition(" for ")
        is_renamed = bool(row["unexpected"]) and row["renamed"] >= 0.5 * row["unexpected"]
        if row["is_pretrained"]:
            if not row["missing_share"] >= _MOST_OF_MODEL:
                continue
            message = "anew"
        elif is_renamed and (given.endswith(f".{expected}") or expected.endswith(f".{given}")):
            message = "prefix"
        elif is_renamed and row["renamed_share"] >= _BODY:
            # Less may be a head, which is left out on purpose.
            message = "component"
        elif not loaded:
            message = "nothing"
        else:
            continue
        values = {name: row[name] for name in ("module", "keys", "unexpected", "missing", "renamed", "example")}
        where = {"module": row["module"], "line": row["line"]}
        step = int(row["step"])
        modules.add(row["module"])
        certainty: Certainty = "likely" if message == "anew" else "certain"
        yield Finding("nothing-loaded", certainty, step, message, {**values, "loaded": loaded}, where)
    files = list(facts["files"].rows())
    # Of several files the last one counts, and averages of them are equal to none.
    count = sum(row["matching"] > 1 for row in files)
    for row in files:
        is_absent = row["matching"] > 1 and not row["equal"] and row["distance"] > _OTHER_WEIGHTS
        if count == 1 and is_absent and row["module"] not in modules:
            values = {name: row[name] for name in ("module", "file", "matching", "distance", "line")}
            message = "replaced" if row["is_given"] else "file"
            where = {"module": row["module"], "line": row["line"]}
            yield Finding("nothing-loaded", "likely", int(row["step"]), message, values, where)


def forgotten(facts: Facts) -> Iterator[Finding]:
    """Find trainings that go on from a file with its optimizer, and begin with the loss of a model that knows nothing."""
    steps, values = first_loss(facts)
    if len(values) < 2 * _FIRST or not np.isfinite(values).all():
        return
    constant = constant_predictions(facts)[0]
    baseline = float(np.mean(list(constant.values()))) if constant else guess_of_classes(facts)
    first = float(values[:_FIRST].min())
    smooth = np.convolve(values, np.full(_FIRST, 1 / _FIRST), "valid")
    is_lower = smooth <= _LEARNT * baseline
    if not first >= _UNLEARNT * baseline > 0 or not is_lower.any():
        return
    step = int(steps[int(np.argmax(is_lower)) + _FIRST - 1])
    for row in facts["files"].rows():
        is_whole = 0 < row["matching"] == row["equal"] and row["is_given"]
        is_resumed = 0 < row["optimizer_states"] == row["optimizer_resumed"]
        if is_whole and is_resumed and row["updates"] >= max(_MANY_UPDATES, 2 * step):
            values_of = {name: row[name] for name in ("file", "updates")}
            described = {**values_of, "first": first, "baseline": baseline, "step": step, "last": float(smooth.min())}
            where = {"module": row["module"], "line": row["line"]}
            yield Finding("resumed-as-new", "possible", int(steps[0]), "guess", described, where)
            return


def half_resumed(facts: Facts) -> Iterator[Finding]:
    """Find trainings that go on from a file with its weights, and with one of the states that it has beside these."""
    for row in facts["files"].rows():
        if row["matching"] < 1 or row["equal"] < row["matching"]:
            continue
        has_optimizer, has_schedule = row["optimizer_states"] > 0, row["position"] > _BEGINNING
        if not has_optimizer or not has_schedule or row["position_resumed"] < 0:
            continue
        values = {name: row[name] for name in ("file", "optimizer_states", "position", "position_resumed")}
        where = {"module": row["module"], "line": row["line"]}
        if row["optimizer_resumed"] > 0 and row["position_resumed"] <= _BEGINNING:
            yield Finding("half-resumed", "likely", int(row["step"]), "schedule", values, where)
        elif not row["optimizer_resumed"] and row["position_resumed"] >= row["position"]:
            yield Finding("half-resumed", "likely", int(row["step"]), "optimizer", values, where)


RULES = (
    Rule(
        "nothing-loaded",
        "initialization",
        ("loads",),
        nothing_loaded,
        {
            "nothing": (
                "load_state_dict has loaded none of {keys} tensors into {module}: it has none of these names",
                "load_state_dict 没有把 {keys} 个张量中的任何一个加载到 {module}：它没有这些名称",
            ),
            "prefix": (
                "load_state_dict has loaded {loaded} of {keys} tensors into {module}: the names of others differ by a prefix",
                "load_state_dict 只把 {keys} 个张量中的 {loaded} 个加载到 {module}：其余名称相差一个前缀",
            ),
            "component": (
                "load_state_dict has loaded {loaded} of {keys} tensors into {module}: a part of the names of others differs",
                "load_state_dict 只把 {keys} 个张量中的 {loaded} 个加载到 {module}：其余名称有一部分不同",
            ),
            "anew": (
                "{module}.from_pretrained has initialized most of the model anew: the file has other names or shapes",
                "{module}.from_pretrained 重新初始化了模型的大部分：文件中的名称或形状不同",
            ),
            "file": (
                "{module} begins with none of the {matching} weights that {file} has for it",
                "{module} 开始训练时没有 {file} 中为它准备的 {matching} 个权重中的任何一个",
            ),
            "replaced": (
                "The weights of {file} that were loaded into {module} are no longer there when its training begins",
                "从 {file} 加载到 {module} 的权重在训练开始时已不存在",
            ),
        },
        {
            "nothing": (
                "strict=False: {missing} tensors of the module were not given, and keep what they had",
                "strict=False：模块中有 {missing} 个张量没有得到值，保持原值",
            ),
            "prefix": (
                "strict=False: {missing} tensors of the module were not given; {renamed} have another prefix, such as {example}",
                "strict=False：模块中有 {missing} 个张量没有得到值；其中 {renamed} 个前缀不同，例如 {example}",
            ),
            "component": (
                "strict=False: {missing} tensors of the module were not given; {renamed} have another name, such as {example}",
                "strict=False：模块中有 {missing} 个张量没有得到值；其中 {renamed} 个名称不同，例如 {example}",
            ),
            "anew": (
                "{missing} tensors are not those of the file, which has {unexpected} that were not used",
                "{missing} 个张量并非来自文件，文件中有 {unexpected} 个张量没有使用",
            ),
            **dict.fromkeys(
                ("file", "replaced"),
                (
                    "torch.load reads them at {line}; names, but for a prefix, and shapes fit, and the values differ by"
                    " {distance:.2g} of their norm",
                    "torch.load 在 {line} 读取；名称（除前缀外）和形状吻合，数值相差其范数的 {distance:.2g} 倍",
                ),
            ),
        },
        (
            "Look at what load_state_dict returns, and rename the keys, as by key.removeprefix('module.')",
            "查看 load_state_dict 的返回值并重命名键，例如 key.removeprefix('module.')",
        ),
        (
            "Dictionaries of which a part fits, as of a body without its head; new heads and layers of pretrained models; several files for one model, which may be"
            " averaged; and files whose weights another model has, as a teacher.",
            "只有一部分吻合的字典，例如不含头部的主干；预训练模型的新头部和新增层；同一模型的多个文件（可能取平均）；以及权重属于另一个模型（例如教师）的文件。",
        ),
        frozenset(("loss-stays", "frozen-as-made", "statistics-drift")),
        8,
        advice_on={
            **dict.fromkeys(
                ("file", "replaced"),
                (
                    "Look at which keys are kept before load_state_dict, into which model they are loaded, and what"
                    " initializes it afterwards",
                    "检查 load_state_dict 之前保留了哪些键、加载到哪个模型，以及之后是否又被初始化",
                ),
            ),
            "anew": (
                "Pass output_loading_info=True to see the keys; use the class and the configuration with which the file was"
                " saved",
                "传入 output_loading_info=True 查看键；使用保存该文件时的类和配置",
            ),
        },
    ),
    Rule(
        "half-resumed",
        "initialization",
        ("files",),
        half_resumed,
        {
            "schedule": (
                "The training goes on from {file} with its weights and optimizer, but its schedule begins anew",
                "训练从 {file} 的权重和优化器继续，但学习率计划从头开始",
            ),
            "optimizer": (
                "The training goes on from {file} with its weights and schedule, but its optimizer begins anew",
                "训练从 {file} 的权重和学习率计划继续，但优化器从头开始",
            ),
        },
        {
            "schedule": (
                "the file has a schedule at position {position}; here it begins at {position_resumed}",
                "文件中计划的位置为 {position}；此处从 {position_resumed} 开始",
            ),
            "optimizer": (
                "the file has the state of an optimizer for {optimizer_states} weights; here none has one at the first update",
                "文件中有 {optimizer_states} 个权重的优化器状态；此处第一次更新时没有任何状态",
            ),
        },
        (
            "Load the other state, too: what load_state_dict is not called for begins as in a new training",
            "同样加载另一个状态：未调用 load_state_dict 的对象会像新训练一样开始",
        ),
        (
            "Trainings that take the weights alone, as fine-tuning does, and files without both states.",
            "只取权重的训练（例如微调），以及不含这两种状态的文件。",
        ),
        frozenset(),
        20,
    ),
    Rule(
        "resumed-as-new",
        "initialization",
        ("files", "losses"),
        forgotten,
        {
            "guess": (
                "The training goes on from {file} after {updates} updates, and its loss begins at {first:.4g}: no better than a"
                " guess ({baseline:.4g})",
                "训练从 {file} 经过 {updates} 次更新后继续，而其损失从 {first:.4g} 开始：不比猜测 ({baseline:.4g}) 更好",
            )
        },
        {
            "guess": (
                "{step} steps bring it to four fifths of that, so that it can be learnt; it comes down to {last:.4g}",
                "{step} 步就使其降到该值的五分之四以下，可见是能学会的；它降到了 {last:.4g}",
            )
        },
        (
            "Compare with the training that wrote the file: how inputs are scaled, the order of features and of classes, and"
            " to which rows the targets belong",
            "与写出该文件的训练比较：输入如何缩放、特征和类别的顺序，以及目标属于哪些行",
        ),
        (
            "Files of which the optimizer is not loaded, as for another task, or counts fewer than 100 updates, and losses"
            " that do not fall.",
            "未加载其优化器 (如用于其他任务) 或更新不足 100 次的文件，以及不下降的损失。",
        ),
        frozenset(),
        29,
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
                "all rows of the matrix (of each gate, if the layer is recurrent) are equal, also after the first {steps} updates",
                "矩阵的所有行 (循环层则为每个门的所有行) 都相等，在前 {steps} 次更新之后仍然如此",
            )
        },
        (
            "Initialise the weights randomly; a constant gives every unit the same gradient",
            "随机初始化权重；常数会使每个单元得到相同的梯度",
        ),
        ("Matrices of zeros, which differ after their first update.", "全零矩阵，它们在第一次更新之后就会不同。"),
        frozenset(("loss-stays", "loss-constant", "zero-gradient")),
        15,
    ),
    Rule(
        "scale-by-depth",
        "initialization",
        ("layers",),
        scale_by_depth,
        {
            "grows": (
                "Outputs grow from layer to layer in the first step: from {first:.2g} to {last:.2g} over {layers} layers",
                "第一步中输出逐层增大：经过 {layers} 层从 {first:.2g} 到 {last:.2g}",
            ),
            "shrinks": (
                "Outputs shrink from layer to layer in the first step: from {first:.2g} to {last:.2g} over {layers} layers",
                "第一步中输出逐层减小：经过 {layers} 层从 {first:.2g} 到 {last:.2g}",
            ),
        },
        dict.fromkeys(
            ("grows", "shrinks"),
            (
                "standard deviations; {factor:.2g} times for each layer: {names}",
                "标准差；每层 {factor:.2g} 倍：{names}",
            ),
        ),
        (
            "Initialise each layer by its width (kaiming_normal_, xavier_uniform_), or normalise between layers",
            "按每层宽度初始化 (kaiming_normal_、xavier_uniform_)，或在层间归一化",
        ),
        ("Networks with normalizations between their layers.", "层间有归一化的网络。"),
        frozenset(("loss-stays", "loss-start", "zero-gradient", "clipped-away", *DIVERGENCE)),
        15,
    ),
)
