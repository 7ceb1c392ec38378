"""Rules about what a loss function is given: outputs that do not fit it, or the targets."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tensight.diagnosis.facts import sizes_of
from tensight.diagnosis.findings import Certainty, Finding
from tensight.diagnosis.rule import Rule
from tensight.diagnosis.rules.loss_functions import are_always, finding_of, first_activation, functions_of, rule_of
from tensight.diagnosis.rules.losses import first_loss

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensight.diagnosis.facts import Facts

_REGRESSION = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
_SQUASHING = ("softmax", "sigmoid", "tanh", "relu")
_PROBABILITIES = frozenset(("softmax", "sigmoid"))
_LEAST_STEPS = 2
_ENOUGH = 5
"""Number of steps with scores that are enough to say so."""

_COLLAPSED = 0.25
"""Share of their first spread that outputs have kept which were drawn together."""

_ALIGNED = 0.995
"""Length of the mean of vectors of length 1 from which on they are as good as the same."""

_LATER = 0.2
"""Share of the words after which a sequence is cut off on purpose, or by its end token."""

_MANY = 20
"""Number of batches that show all that is in the data, if they are no small ones."""


def activation_twice(facts: Facts) -> Iterator[Finding]:
    """Find an activation before a loss function that has its own."""
    for _, rows in functions_of(facts):
        function, first = rows[0]["function"], first_activation(rows[0])
        if not all(first_activation(row) == first for row in rows):
            continue
        if function in ("cross_entropy", "soft_cross_entropy") and first in ("softmax", "sigmoid"):
            yield finding_of("activation-twice", "certain", rows, "cross_entropy", activation=True)
        elif function == "bce_with_logits" and first in ("sigmoid", "softmax"):
            yield finding_of("activation-twice", "certain", rows, "bce", activation=True)
        elif function == "cross_entropy" and first in ("relu", "tanh"):
            yield finding_of("activation-twice", "likely", rows, "clipped", activation=True)
        elif (
            function == "bce"
            and first == "softmax"
            and sorted(row["target_row_sum"] for row in rows)[len(rows) // 2] > 1.01
        ):
            most = max(row["target_row_sum"] for row in rows)
            yield finding_of("activation-twice", "certain", rows, "labels", activation=True, most=most)


def wants_probabilities(facts: Facts) -> Iterator[Finding]:
    """Find scores where a loss function expects probabilities, or probabilities where it expects their logarithms."""
    for _, rows in functions_of(facts):
        first = first_activation(rows[0])
        if rows[0]["function"] == "kl_div" and first in ("softmax", "sigmoid"):
            # Where kl_div itself was called, its line is known.
            message = "shares" if any(row["line"] for row in rows) else "product"
            if message == "product" and not all(row["is_alone"] for row in rows):
                # In an overlap, or an expected value, probabilities are multiplied by targets on purpose.
                continue
            yield finding_of("no-logarithm", "certain", rows, message, activation=True)
        is_score = rows[0]["function"] == "dice" and not _PROBABILITIES.intersection(rows[0]["before"].split())
        if is_score and not first and all(row["is_of_layer"] for row in rows):
            yield finding_of("no-logarithm", "likely", rows, "overlap")
        if rows[0]["function"] not in ("nll_loss", "ctc_loss"):
            continue
        if first in ("softmax", "sigmoid"):
            yield finding_of("no-logarithm", "certain", rows, "probabilities", activation=True)
        else:
            masses = [row["row_mass"] for row in rows]
            others = [mass for mass in masses if not math.isnan(mass) and not 0.5 < mass < 2]
            # What ctc_loss computes for its backward pass leads scores towards logarithms of probabilities.
            is_aligned = rows[0]["function"] == "ctc_loss"
            fewest = min(_ENOUGH, len(rows)) if is_aligned else len(rows)
            if first in ("log_softmax", "log", "logsigmoid") or len(others) < fewest:
                continue
            yield finding_of("no-logarithm", "certain", rows, "alignment" if is_aligned else "scores")


def one_unit(facts: Facts) -> Iterator[Finding]:
    """Find a cross entropy or a softmax over one class, which is constant."""
    for _, rows in functions_of(facts):
        if rows[0]["function"] in ("cross_entropy", "nll_loss") and are_always(rows, "classes", 1):
            yield finding_of("one-class", "certain", rows, "loss")
        elif first_activation(rows[0]) in ("softmax", "log_softmax") and are_always(rows, "before_size", 1):
            yield finding_of("one-class", "certain", rows, "softmax", activation=True)


def wrong_axis(facts: Facts) -> Iterator[Finding]:
    """Find a softmax over another axis than that of the classes."""
    for _, rows in functions_of(facts):
        first = first_activation(rows[0])
        if first not in ("softmax", "log_softmax") or not all(first_activation(row) == first for row in rows):
            continue
        shape = rows[0]["input_shape"].split("x")
        if rows[0]["function"] in ("nll_loss", "cross_entropy", "ctc_loss"):
            axis = rows[0]["class_axis"]
            classes = rows[0]["classes"]
            is_wrong = any(row["before_size"] not in (row["classes"], -1) for row in rows) and classes > 1
            is_wrong |= len(shape) == 2 and axis == 1 and are_always(rows, "before_axis", 0)
        else:
            # In a table of samples and classes, probabilities are over the classes.
            is_wrong = len(shape) == 2 and are_always(rows, "before_axis", 0)
        if is_wrong:
            yield finding_of("softmax-axis", "certain", rows, "axis", activation=True)


def out_of_reach(facts: Facts) -> Iterator[Finding]:
    """Find targets that the output cannot reach."""
    for _, rows in functions_of(facts):
        if rows[0]["function"] in ("bce", "bce_with_logits"):
            # Targets a little outside are meant, as for the discriminator of a GAN; -1, 2 or 255 are not.
            strange = [row for row in rows if row["target_min"] < -0.5 or row["target_max"] > 1.5]
            if len(strange) >= max(_LEAST_STEPS, 0.5 * len(rows)):
                lowest = min(row["target_min"] for row in strange)
                highest = max(row["target_max"] for row in strange)
                yield finding_of("targets-out-of-reach", "certain", rows, "labels", lowest=lowest, highest=highest)
                continue
        if rows[0]["function"] not in (*_REGRESSION, "bce"):
            continue
        first = first_activation(rows[0])
        shares = [row["outside"] for row in rows if math.isfinite(row["outside"])]
        if not first or len(shares) < _LEAST_STEPS:
            continue
        mean = sum(shares) / len(shares)
        if mean < 0.02:
            continue
        lowest = min(row["target_min"] for row in rows)
        highest = max(row["target_max"] for row in rows)
        values = {"share": mean, "lowest": lowest, "highest": highest, "reach": _REACH.get(first, "")}
        certainty: Certainty = "certain" if mean > 0.1 else "likely"
        yield finding_of("targets-out-of-reach", certainty, rows, "outside", activation=True, **values)


_REACH = {"sigmoid": "0 … 1", "softmax": "0 … 1", "tanh": "-1 … 1", "relu": "0 … ∞", "exp": "0 … ∞"}


def broadcast(facts: Facts) -> Iterator[Finding]:
    """Find predictions of N values that are compared with N targets as N × N pairs."""
    for _, rows in functions_of(facts):
        square = 0
        for row in rows:
            made = sizes_of(row["made_shape"])
            given = sizes_of(row["input_shape"])
            count = max(made, default=0)
            is_vector = math.prod(made) == count and count > 1
            square += is_vector and len(given) >= 2 and given[-2:] == [count, count]
        if square >= 0.8 * len(rows) and square >= _LEAST_STEPS:
            row = rows[0]
            values = {"made": row["made_shape"].replace("x", "×"), "pairs": row["input_shape"].replace("x", "×")}
            yield finding_of("broadcast-in-loss", "certain", rows, "pairs", **values)
            return


def time_for_samples(facts: Facts) -> Iterator[Finding]:
    """Find recurrent layers that take the samples of a batch for steps in time."""
    table = facts["recurrent"]
    functions = {row["step"]: sizes_of(row["target_shape"]) for row in facts["loss_functions"].rows()}
    if len(facts["loss_functions"].names) != 1:
        return
    for name in table.names:
        of_name = (table["name"] == name) & ~table["is_batch_first"]
        pairs = [
            (sizes_of(shape), functions[step])
            for shape, step in zip(table["shape"][of_name].tolist(), table["step"][of_name].tolist(), strict=True)
            if functions.get(step)
        ]
        swapped = [
            (shape, target)
            for shape, target in pairs
            if target[0] == shape[0] > 1 and math.prod(target[1:]) == 1 and shape[1] not in (1, shape[0])
        ]
        if len(swapped) < _LEAST_STEPS or len(swapped) < len(pairs):
            continue
        (time, samples, _), _ = swapped[0]
        values = {"name": name, "time": time, "samples": samples, "shape": "×".join(map(str, swapped[0][0]))}
        step = int(table["step"][of_name][0])
        yield Finding("recurrent-axes", "likely", step, "swapped", values, {"module": name, "input": name})


def collapsed(facts: Facts) -> Iterator[Finding]:
    """Find outputs that no longer differ between samples, because the loss is a distance of two outputs and no more."""
    functions = list(functions_of(facts))
    for _, compared in functions:
        alignments = [row["alignment"] for row in compared if math.isfinite(row["alignment"])]
        if len(alignments) < _MANY or min(alignments[-_ENOUGH:]) < _ALIGNED:
            continue
        # Targets that are the same from the first step on are meant so.
        if alignments[0] < 1 - 2 * (1 - _ALIGNED) and all(row["factor"] < 0 for row in compared):
            aligned = {"before": alignments[0], "after": alignments[-1]}
            yield finding_of("outputs-collapse", "likely", compared, "directions", **aligned)
            return
    _, values = first_loss(facts)
    table = facts["calls"]
    if len(functions) != 1 or len(values) < _MANY or not (values > 0).all():
        return
    _, rows = functions[0]
    is_distance = rows[0]["function"] in (*_REGRESSION, "kl_div") and are_always(rows, "is_alone", True)
    has_fallen = float(values[-5:].mean()) < 0.1 * float(values[:5].mean())
    if not is_distance or not are_always(rows, "is_of_outputs", True) or not has_fallen:
        return
    last: tuple[str, float, float] | None = None
    for name in table.names:
        spreads = table["spread"][(table["name"] == name) & table["is_trained"]]
        spreads = spreads[np.isfinite(spreads)]
        if len(spreads) >= _MANY:
            # The one that is called last puts out what is compared.
            last = name, float(spreads[:3].mean()), float(spreads[-3:].mean())
    if last is not None and last[2] < _COLLAPSED * last[1]:
        name, before, after = last
        end = float(values[-1])
        yield finding_of(
            "outputs-collapse", "likely", rows, "distance", model=name, before=before, after=after, last=end
        )


RULES = (
    rule_of(
        "activation-twice",
        "output-and-loss",
        activation_twice,
        {
            "cross_entropy": (
                "{activation} before a cross entropy, which applies a softmax itself: the scores are squashed into 0 … 1 first",
                "交叉熵自带 softmax，而之前又用了 {activation}：分数先被压缩到 0 … 1",
            ),
            "bce": (
                "{activation} before binary_cross_entropy_with_logits, which applies its own sigmoid",
                "binary_cross_entropy_with_logits 自带 sigmoid，而之前又用了 {activation}",
            ),
            "labels": (
                "softmax before binary_cross_entropy: its outputs sum to 1, and several labels can be true",
                "binary_cross_entropy 之前使用了 softmax：其输出之和为 1，而可能有多个标签为真",
            ),
            "clipped": (
                "{activation} before a cross entropy: it takes a range from the scores",
                "交叉熵之前使用了 {activation}：它限制了分数的范围",
            ),
        },
        {
            "cross_entropy": (
                "the log-probabilities that the loss makes of them are within {input_min:.3g} … {input_max:.3g} in the first step",
                "第一步中损失由此得到的对数概率在 {input_min:.3g} … {input_max:.3g} 之间",
            ),
            "labels": ("up to {most:.2g} labels for each sample", "每个样本最多 {most:.2g} 个标签"),
            "bce": (
                "its input is within {input_min:.3g} … {input_max:.3g} in the first step",
                "第一步中其输入在 {input_min:.3g} … {input_max:.3g} 之间",
            ),
        },
        ("Give the loss the scores of the last layer", "把最后一层的分数直接交给损失函数"),
    ),
    rule_of(
        "no-logarithm",
        "output-and-loss",
        wants_probabilities,
        {
            "probabilities": (
                "{loss_function} is given probabilities ({activation}), and expects their logarithms",
                "{loss_function} 得到的是概率 ({activation})，而它需要对数概率",
            ),
            "shares": (
                "{loss_function} is given probabilities ({activation}), and expects their logarithms",
                "{loss_function} 得到的是概率 ({activation})，而它需要对数概率",
            ),
            "product": (
                "The targets are multiplied by probabilities ({activation}), not by their logarithms as in a divergence",
                "目标乘以的是概率 ({activation})，而不是散度中的对数概率",
            ),
            "scores": (
                "{loss_function} is given scores, and expects logarithms of probabilities: nothing keeps them from growing",
                "{loss_function} 得到的是分数，而它需要对数概率：没有什么阻止它们增长",
            ),
            "alignment": (
                "{loss_function} is given scores, and expects logarithms of probabilities: what it returns is no likelihood",
                "{loss_function} 得到的是分数，而它需要对数概率：其返回值不是似然",
            ),
            "overlap": (
                "The overlap with the targets (dice) is that of scores, not of probabilities: nothing bounds it",
                "与目标的重叠 (dice) 由分数而不是概率计算：没有什么限制它",
            ),
        },
        {
            "probabilities": ("values {input_min:.3g} … {input_max:.3g}", "数值 {input_min:.3g} … {input_max:.3g}"),
            **dict.fromkeys(
                ("scores", "alignment"),
                (
                    "the sum of their exponentials over the classes is {row_mass:.3g}, not 1",
                    "各类别的指数之和为 {row_mass:.3g}，而不是 1",
                ),
            ),
        },
        (
            "Use log_softmax before nll_loss and ctc_loss, or cross_entropy on the scores",
            "在 nll_loss 和 ctc_loss 之前使用 log_softmax，或对分数使用 cross_entropy",
        ),
        rank=8,
        advice_on={
            **dict.fromkeys(
                ("shares", "product"),
                (
                    "Use log_softmax in place of softmax: kl_div(log_softmax(scores), targets)",
                    "用 log_softmax 代替 softmax：kl_div(log_softmax(scores), targets)",
                ),
            ),
            "overlap": (
                "Apply sigmoid (or softmax over the classes) to the scores first",
                "先对分数使用 sigmoid (或对类别使用 softmax)",
            ),
        },
    ),
    rule_of(
        "one-class",
        "output-and-loss",
        one_unit,
        {
            "loss": (
                "{loss_function} over one class: it is 0 whatever the model puts out",
                "{loss_function} 只有一个类别：无论模型输出什么都为 0",
            ),
            "softmax": (
                "{activation} over one unit: its output is 1 whatever the model puts out",
                "{activation} 只有一个单元：无论模型输出什么都为 1",
            ),
        },
        {
            "loss": ("its input has the shape {input_shape}", "其输入形状为 {input_shape}"),
            "softmax": ("axis {before_axis} has one element", "第 {before_axis} 轴只有一个元素"),
        },
        (
            "Use one unit with a sigmoid (binary_cross_entropy_with_logits), or two with a softmax",
            "用一个单元加 sigmoid (binary_cross_entropy_with_logits)，或两个单元加 softmax",
        ),
        rank=3,
    ),
    rule_of(
        "softmax-axis",
        "output-and-loss",
        wrong_axis,
        {
            "axis": (
                "{activation} is computed over axis {before_axis}, which is not that of the classes",
                "{activation} 在第 {before_axis} 轴上计算，而那不是类别轴",
            )
        },
        {
            "axis": (
                "the loss is given {input_shape}; the axis has {before_size} elements in the first step",
                "损失的输入为 {input_shape}；第一步中该轴有 {before_size} 个元素",
            )
        },
        ("Give the axis of the classes (dim=1, or dim=-1)", "指定类别轴 (dim=1 或 dim=-1)"),
        rank=4,
    ),
    rule_of(
        "targets-out-of-reach",
        "targets",
        out_of_reach,
        {
            "outside": (
                "{share:.0%} of the targets cannot be reached: the output ends in {activation} ({reach}), the targets are"
                " {lowest:.3g} … {highest:.3g}",
                "{share:.0%} 的目标无法达到：输出以 {activation} 结尾 ({reach})，而目标在 {lowest:.3g} … {highest:.3g} 之间",
            ),
            "labels": (
                "{loss_function} is given targets of {lowest:.3g} … {highest:.3g}, and expects 0 … 1: it has no minimum",
                "{loss_function} 的目标在 {lowest:.3g} … {highest:.3g} 之间，而它需要 0 … 1：损失没有最小值",
            ),
        },
        dict.fromkeys(
            ("outside", "labels"), ("in {steps} of {read} steps that were read", "在读取的 {read} 步中有 {steps} 步")
        ),
        ("Scale the targets into that range, or leave out the activation", "把目标缩放到该范围，或去掉该激活函数"),
        rank=12,
    ),
    rule_of(
        "broadcast-in-loss",
        "broadcasting",
        broadcast,
        {
            "pairs": (
                "Every prediction is compared with every target: {made} predictions become {pairs} pairs",
                "每个预测都与每个目标比较：{made} 的预测变成 {pairs} 对",
            )
        },
        {"pairs": ("in {steps} of {read} steps that were read", "在读取的 {read} 步中有 {steps} 步")},
        (
            "Give both the same shape: squeeze the output, or unsqueeze the targets. As it is, the best prediction is the"
            " mean of the targets",
            "让两者形状相同：squeeze 输出或 unsqueeze 目标。现在最优预测只是目标的均值",
        ),
        rank=3,
    ),
    Rule(
        "recurrent-axes",
        "data",
        ("recurrent", "loss_functions"),
        time_for_samples,
        {
            "swapped": (
                "{name} takes the {time} samples of a batch for steps in time: without batch_first its input {shape} has time in"
                " front",
                "{name} 把一个批次的 {time} 个样本当作时间步：没有 batch_first 时其输入 {shape} 的第一轴是时间",
            )
        },
        {
            "swapped": (
                "there is one target for each of {time}, and none for each of {samples}",
                "{time} 个中每个都有一个目标，而 {samples} 个则没有",
            )
        },
        ("Use batch_first=True, or swap the first two axes", "使用 batch_first=True，或交换前两个轴"),
        ("Sequences with a target for each step in time.", "每个时间步都有目标的序列。"),
        frozenset(("loss-stays",)),
        8,
    ),
    rule_of(
        "outputs-collapse",
        "loss",
        collapsed,
        {
            "distance": (
                "The outputs of {model} collapse: they differ by {after:.2g} between samples, and by {before:.2g} at first",
                "{model} 的输出坍缩：样本之间的差异为 {after:.2g}，起初为 {before:.2g}",
            ),
            "directions": (
                "The outputs that are compared by their cosine collapse: all samples have the same direction",
                "以余弦比较的输出坍缩了：所有样本的方向都相同",
            ),
        },
        {
            "directions": (
                "the mean of their unit vectors has the length {after:.4f}, and had {before:.3f} at first; 1 is that of equal ones",
                "其单位向量的均值长度为 {after:.4f}，起初为 {before:.3f}；完全相同时为 1",
            ),
            "distance": (
                "the loss ({last:.2g} at last) is a distance of two outputs and no more, which is least where all are the same",
                "损失 (最后为 {last:.2g}) 只是两个输出之间的距离，在所有输出都相同时最小",
            ),
        },
        (
            "Push samples apart (negative pairs, a term for variance), or stop the gradient of one side, with a predictor on"
            " the other",
            "让不同样本相互远离 (负样本对、方差项)，或截断一侧的梯度并在另一侧使用预测头",
        ),
        (
            "Distances to data or to a detached output, and losses with further terms.",
            "与数据或已 detach 的输出之间的距离，以及含有其他项的损失。",
        ),
        needs="loss_functions.is_of_outputs",
    ),
)
