"""Rules about averages of weights, and about targets that follow a model."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tensight.diagnosis.findings import Finding
from tensight.diagnosis.rule import Rule
from tensight.diagnosis.rules.stages import UPDATES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tensight.diagnosis.facts import Facts

_COPIED = 0.9999
"""Share of the way to the model after which an average is a copy of it."""

_WARMED_UP = 0.8
"""Share of its pace at first below which an average slows down: a decay that is reversed by mistake is constant."""

_LONG, _FAR, _HARDLY = 100, 0.1, 0.05
"""After how many steps of a training that has ended an average is far behind: its distance, and the share it went."""


def averages_still(facts: Facts) -> Iterator[Finding]:
    """Find averages and targets that never move, or are too coarse to."""
    return (finding for finding in facts.derived(_averages) if finding.rule == "average-still")


def averages_follow(facts: Facts) -> Iterator[Finding]:
    """Find averages that are no averages."""
    return (finding for finding in facts.derived(_averages) if finding.rule == "average-follows")


def _falls(pace: NDArray[np.float64]) -> bool:
    """Whether an average follows more slowly from step to step, as with a decay that is warmed up."""
    measured = pace[np.isfinite(pace)]
    return bool(measured[-1] < _WARMED_UP * measured[0])


def _averages(facts: Facts) -> Iterator[Finding]:
    table, parameters = facts["models"], facts["parameters"]
    outside = parameters.panel("is_moved_outside") if len(parameters) else np.zeros((0, 0), np.bool_)
    for name in table.names:
        of_name = (table["name"] == name) & table["is_known"]
        if of_name.sum() < 2:
            continue
        moved, distance, steps = table["moved"][of_name], table["distance"][of_name], table["step"][of_name]
        pace, stuck = table["pace"][of_name], table["stuck"][of_name]
        dtype, is_average = str(table["dtype"][of_name][0]), bool(table["is_average"][of_name][0])
        typical_pace = float(np.nanmedian(pace)) if np.isfinite(pace).any() else math.nan
        typical_stuck = float(np.nanmedian(stuck)) if np.isfinite(stuck).any() else math.nan
        values = {
            "name": name,
            "dtype": dtype,
            "count": len(steps),
            "last": int(steps[-1]),
            "distance": float(distance[-1]),
            "pace": typical_pace,
            "stuck": typical_stuck,
        }
        where = {"module": name, "parameter": name}
        is_coarse = dtype in ("bfloat16", "float16")
        is_long = steps[-1] >= 200 or (facts.is_over and steps[-1] >= 50)
        is_growing = distance[-1] > distance[0] >= 0
        if is_coarse and moved.any() and typical_stuck > 0.5 and is_average:
            yield Finding("average-still", "likely", int(steps[0]), "rounded", values, where)
        elif not moved.any() and is_growing and outside.any() and outside[1:].any(1).mean() > 0.8 and is_long:
            yield Finding("average-still", "likely", int(steps[0]), "pulls", values, where)
        elif not moved.any() and is_growing and is_average:
            yield Finding("average-still", "likely", int(steps[0]), "rounded" if is_coarse else "still", values, where)
        elif not moved.any() and is_growing and is_long and _is_target(facts, name):
            yield Finding("average-still", "likely", int(steps[0]), "target", values, where)
        elif is_average and moved.mean() > 0.8 and len(moved) >= 5 and typical_pace > 0.5 and not _falls(pace):
            # Of a decay that is reversed, a part remains.
            is_copied = typical_pace > _COPIED
            message = "equal" if table["is_equal"][of_name].all() else "copied" if is_copied else "close"
            yield Finding("average-follows", "likely", int(steps[0]), message, values, where)
        elif moved.mean() > 0.8 and is_average and table["leaves_statistics"][of_name].mean() > 0.8:
            yield Finding("average-still", "likely", int(steps[0]), "statistics", values, where)
        elif is_average and facts.is_over and facts.last_step >= _LONG and moved.mean() > 0.8 and distance[-1] > _FAR:
            share = 1 - (1 - min(max(typical_pace, 0.0), 1.0)) ** facts.last_step
            if share < _HARDLY:
                described = {**values, "share": share, "last": facts.last_step}
                yield Finding("average-still", "likely", int(steps[0]), "slow", described, where)


def _is_target(facts: Facts, name: str) -> bool:
    """Whether a copy that began equal is asked in each step without gradients, by a loss that wants a moving target."""
    functions = set(facts["loss_functions"]["function"].tolist())
    if functions & {"kl_div", "logsigmoid", "cross_entropy", "nll_loss"}:
        # A reference that holds a model back, or a teacher.
        return False
    rows = facts["models"]["name"] == name
    changes = facts["parameters"]["change"]
    change = float(np.nanmedian(changes)) if np.isfinite(changes).any() else 0.0
    if facts["models"]["first_distance"][rows][0] > 20 * change:
        return False
    calls = facts["calls"]
    without = calls["calls"] > calls["with_gradients"]
    return bool(without.any())


def written_back(facts: Facts) -> Iterator[Finding]:
    """Find averages that are written into the trained model again and again, which then goes on from there."""
    table = facts["models"]
    for name in table.names:
        of_name = (table["name"] == name) & table["is_average"]
        written, pace = table["is_written_back"][of_name], table["pace"][of_name]
        typical = float(np.nanmedian(pace[pace != 0])) if np.isfinite(pace[pace != 0]).any() else math.nan
        # The slow weights of Lookahead go half of the way before they are written back.
        if written.sum() < UPDATES or not typical < 0.2:
            continue
        step = int(table["step"][of_name][np.flatnonzero(written)[0]])
        values = {"name": name, "count": int(written.sum()), "pace": typical, "step": step}
        where = {"module": name, "parameter": name}
        yield Finding("average-written-back", "likely", step, "written", values, where)


def _line_in(called: str) -> str:
    """Return the line of a text as target_net (dqn.py:31)."""
    return called.rpartition("(")[2].rstrip(")")


def alias(facts: Facts) -> Iterator[Finding]:
    """Find a target network, or an average, that is the trained model itself."""
    table, calls = facts["models"], facts["calls"]
    for row in calls.rows():
        if row["also_called"] and row["is_trained"]:
            name, twin = row["also_called"].partition(" ")[0], row["called"].partition(" ")[0]
            values = {"name": name, "twin": twin, "line": row["also_called"], "other": row["called"]}
            where = {"module": f"{name}, {twin}", "parameter": name, "line": _line_in(row["also_called"])}
            yield Finding("target-alias", "likely", int(row["step"]), "called", values, where)
            return
    is_alias = table["kind"] == "alias"
    if not is_alias.any() or not (calls["calls"] > calls["with_gradients"])[calls["is_trained"]].any():
        return
    at = int(np.flatnonzero(is_alias)[0])
    name, twin = str(table["name"][at]), str(table["twin"][at])
    without = (calls["calls"] > calls["with_gradients"]) & calls["is_trained"]
    if without.sum() < 0.8 * calls["is_trained"].sum():
        return
    values = {"name": name, "twin": twin, "steps": len(set(calls["step"][without].tolist()))}
    where = {"module": f"{name}, {twin}", "parameter": name}
    yield Finding("target-alias", "likely", int(table["step"][at]), "alias", values, where)


RULES = (
    Rule(
        "average-written-back",
        "averages",
        ("models",),
        written_back,
        {
            "written": (
                "{name} is written into the trained model again and again, which goes on from there",
                "{name} 一再被写入正在训练的模型，而训练从那里继续",
            )
        },
        {
            "written": (
                "seen {count} times in {read} steps that were read, first before step {step}; the average goes {pace:.1%} of the way to the model in a step, and the"
                " rest is lost each time",
                "在读取的 {read} 步中见到 {count} 次，首次在第 {step} 步之前；该平均每步只走完与模型距离的 {pace:.1%}，其余每次都丢失",
            )
        },
        ("Put the trained weights back after evaluating", "评估之后恢复训练中的权重"),
        (
            "Slow weights that go most of the way before, as those of Lookahead.",
            "先走完大部分距离的慢权重，如 Lookahead。",
        ),
        frozenset(("loss-stays", "update-undone")),
        15,
    ),
    Rule(
        "target-alias",
        "averages",
        ("calls.also_called",),
        alias,
        dict.fromkeys(
            ("alias", "called"),
            (
                "{name} is no copy: it is {twin} itself, and moves with each update",
                "{name} 不是副本：它就是 {twin} 本身，随每次更新而变化",
            ),
        ),
        {
            "called": (
                "the script calls one and the same model as {other} and as {line}",
                "脚本以 {other} 和 {line} 调用的是同一个模型",
            ),
            "alias": (
                "the model is called without gradients, too, in {steps} of {read} steps that were read",
                "在读取的 {read} 步中的 {steps} 步该模型也在不带梯度的情况下被调用",
            ),
        },
        ("Make a copy: copy.deepcopy(model)", "创建副本：copy.deepcopy(model)"),
        ("Names of one model in different functions.", "不同函数中同一模型的名称。"),
        frozenset(("loss-stays",)),
        20,
    ),
    Rule(
        "average-still",
        "averages",
        ("models",),
        averages_still,
        {
            "still": (
                "{name} never moves, while the model that it averages or follows is trained",
                "{name} 从不变化，而它所平均或跟随的模型正在训练",
            ),
            "rounded": (
                "{name} is too coarse to follow: its steps are lost to rounding in {dtype}",
                "{name} 精度太低而无法跟随：其更新在 {dtype} 下因舍入而丢失",
            ),
            "target": (
                "A copy of the model ({name}) is asked without gradients and never moves: a target that is not synchronised",
                "模型的副本 ({name}) 在不带梯度的情况下被调用且从不变化：未同步的目标网络",
            ),
            "pulls": (
                "A copy of the model ({name}) never moves, and the model is changed outside of its optimizer in each step:"
                " the update goes the wrong way",
                "模型的副本 ({name}) 从不变化，而模型每一步都在优化器之外被改变：更新方向反了",
            ),
            "slow": (
                "{name} has gone {share:.1%} of the way to the model in all {last} steps: its decay is for far longer trainings",
                "{name} 在全部 {last} 步中只走完与模型距离的 {share:.1%}：其衰减系数适用于长得多的训练",
            ),
            "statistics": (
                "{name} follows the parameters, but not the running statistics of the model",
                "{name} 跟随参数，但不跟随模型的运行统计量",
            ),
        },
        {
            **dict.fromkeys(
                ("still", "rounded", "target", "pulls"),
                (
                    "read {count} times, up to step {last}; its distance to the model is {distance:.2g} of the model's norm",
                    "读取 {count} 次，直到第 {last} 步；与模型的距离为模型范数的 {distance:.2g}",
                ),
            ),
            "slow": (
                "{pace:.2g} of the way in a step; at last its distance to the model is {distance:.2g} of the model's norm",
                "每步走完距离的 {pace:.2g}；最后与模型的距离为模型范数的 {distance:.2g}",
            ),
        },
        ("Call its update after each step; keep it in float32", "在每一步之后调用其更新；以 float32 保存"),
        (
            "Copies whose name does not say that they should move, such as frozen references.",
            "名称未表明应变化的副本，如冻结的参考模型。",
        ),
        frozenset(),
        20,
        advice_on={
            "slow": (
                "Use a smaller decay, or one that begins small, as min(decay, (1 + step) / (10 + step))",
                "使用更小的衰减系数，或从小值开始，例如 min(decay, (1 + step) / (10 + step))",
            )
        },
    ),
    Rule(
        "average-follows",
        "averages",
        ("models", "parameters"),
        averages_follow,
        {
            "equal": (
                "{name} is the trained model itself, bit for bit: it averages nothing",
                "{name} 与正在训练的模型逐位相同：它没有做任何平均",
            ),
            "copied": (
                "{name} is made equal to the trained model in each step: it averages nothing",
                "{name} 在每一步都被设为与正在训练的模型相同：它没有做任何平均",
            ),
            "close": (
                "{name} follows the trained model at once: its decay seems to be reversed",
                "{name} 立即跟随正在训练的模型：其衰减系数似乎颠倒了",
            ),
        },
        dict.fromkeys(
            ("equal", "copied", "close"),
            (
                "at each step it goes {pace:.0%} of the way to the model, read {count} times",
                "每一步走完与模型距离的 {pace:.0%}，读取 {count} 次",
            ),
        ),
        (
            "average = decay * average + (1 - decay) * weights, with a decay near 1",
            "average = decay * average + (1 - decay) * weights，decay 接近 1",
        ),
        (
            "Averages that follow more slowly from step to step: their decay is warmed up.",
            "逐步变慢的平均：其 decay 处于预热阶段。",
        ),
        frozenset(),
        20,
    ),
)
