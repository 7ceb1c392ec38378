"""Rules about the first values of weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tensight.diagnosis.findings import MOST_NAMED, Finding, listed
from tensight.diagnosis.rule import DIVERGENCE, Rule
from tensight.diagnosis.rules.parameters import are_trained, where_of
from tensight.diagnosis.rules.stages import UPDATES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tensight.diagnosis.facts import Facts


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
    """Find state dictionaries that are loaded without effect, since their keys are not those of the module."""
    for row in facts["loads"].rows():
        loaded = row["keys"] - row["unexpected"]
        if not row["missing"]:
            continue
        if row["unexpected"] and row["renamed"] >= 0.5 * row["unexpected"]:
            message = "prefix"
        elif not loaded:
            message = "nothing"
        else:
            continue
        values = {name: row[name] for name in ("module", "keys", "unexpected", "missing", "renamed", "example")}
        where = {"module": row["module"], "line": row["line"]}
        step = int(row["step"])
        yield Finding("nothing-loaded", "certain", step, message, {**values, "loaded": loaded}, where)


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
        },
        (
            "Look at what load_state_dict returns, and rename the keys, as by key.removeprefix('module.')",
            "查看 load_state_dict 的返回值并重命名键，例如 key.removeprefix('module.')",
        ),
        (
            "Dictionaries of which a part fits, as of a body without its head.",
            "只有一部分吻合的字典，例如不含头部的主干。",
        ),
        frozenset(("loss-stays", "frozen-as-made", "statistics-drift")),
        8,
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
