"""Rules about targets: which they are, how they are numbered and shifted, and which of them count."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tensight.diagnosis.facts import sizes_of
from tensight.diagnosis.rules.loss_functions import are_always, finding_of, first_activation, functions_of, rule_of
from tensight.diagnosis.rules.losses import remains

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensight.diagnosis.facts import Facts
    from tensight.diagnosis.findings import Finding

_REGRESSION = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")

_LEAST_STEPS = 2

_SAME = 0.5
"""Share of the rows from which on an output is compared with its own label."""

_LATER = 0.2
"""Share of the words after which a sequence is cut off on purpose, or by its end token."""

_LEAST_COMPARED = 64
"""Number of targets that are compared with the inputs."""

_RELATED = 1.8
"""How many times the square of a correlation by chance those with other features are of targets that follow them."""

_MANY = 20
"""Number of batches that show all that is in the data, if they are no small ones."""


def shifted(facts: Facts) -> Iterator[Finding]:
    """Find a language model whose targets are two positions ahead."""
    for _, rows in functions_of(facts):
        offsets = [row["offset"] for row in rows if row["offset"] >= 0]
        if len(offsets) < _LEAST_STEPS or len(offsets) < 0.8 * len(rows):
            continue
        if all(offset >= 2 for offset in offsets):
            yield finding_of("targets-shifted", "certain", rows, "twice", offset=offsets[0])
        elif all(offset == 0 for offset in offsets) and all(row["hidden_ignored"] > 0 for row in rows):
            share = sum(row["hidden_ignored"] for row in rows) / len(rows)
            yield finding_of("targets-shifted", "certain", rows, "visible", share=share)
        elif all(offset == 0 for offset in offsets) and facts["calls"]["is_causal"].any():
            yield finding_of("targets-shifted", "likely", rows, "none", offset=0)


def ignored(facts: Facts) -> Iterator[Finding]:
    """Find targets that are ignored all, or of which a class is."""
    for _, rows in functions_of(facts):
        if rows[0]["function"] == "ctc_loss":
            blanks = [row["ignored"] for row in rows if row["ignored"] > 0]
            if len(blanks) >= _LEAST_STEPS:
                share = sum(blanks) / len(blanks)
                yield finding_of(
                    "targets-ignored", "certain", rows, "blank", index=rows[0]["ignored_index"], share=share
                )
            continue
        if rows[0]["function"] not in ("cross_entropy", "nll_loss"):
            continue
        later = [row["later_ignored"] for row in rows if math.isfinite(row["later_ignored"])]
        if len(later) >= max(_LEAST_STEPS, 0.9 * len(rows)) and min(later) > _LATER:
            yield finding_of("targets-ignored", "likely", rows, "later", share=sum(later) / len(later))
            continue
        everything = [row for row in rows if row["ignored"] >= 1]
        if len(everything) >= _LEAST_STEPS and len(everything) >= 0.5 * len(rows):
            yield finding_of("targets-ignored", "certain", everything, "all", of=len(rows))
            continue
        index, classes = rows[0]["ignored_index"], rows[0]["classes"]
        share = sum(row["ignored"] for row in rows) / len(rows)
        # Padding is one of many words; one of a few classes is a class.
        is_class = 0 <= index < classes <= 100 and not _is_word(facts, index, classes)
        if is_class and share > 0.5 / classes and not any(row["offset"] >= 0 for row in rows):
            yield finding_of("targets-ignored", "likely", rows, "class", index=index, share=share)


def _is_word(facts: Facts, index: int, classes: int) -> bool:
    """Whether a class is an id that the model reads, too, of a vocabulary that the classes are."""
    calls = facts["calls"]
    lowest, highest = calls["input_min"][calls["is_ids"]], calls["input_max"][calls["is_ids"]]
    return bool(((lowest <= index) & (index <= highest) & (highest < classes)).any())


def padding(facts: Facts) -> Iterator[Finding]:
    """Find targets that are padding."""
    for _, rows in functions_of(facts):
        # Losses that are not reduced may be masked afterwards.
        shares = [row["padding"] for row in rows if math.isfinite(row["padding"]) and row["reduction"] != "none"]
        if len(shares) >= 3 and min(shares) > 0.15:
            yield finding_of("padding-counted", "likely", rows, "counted", share=sum(shares) / len(shares))


def other_rows(facts: Facts) -> Iterator[Finding]:
    """Find outputs of some rows that are compared with the labels of other rows."""
    every = facts["loss_functions"]["same_rows"]
    if (every >= _SAME).any():
        # Mixed samples are compared with the labels of both.
        return
    for _, rows in functions_of(facts):
        compared = [row for row in rows if math.isfinite(row["same_rows"])]
        if len(compared) >= _LEAST_STEPS:
            same = sum(row["same_rows"] for row in compared) / len(compared)
            yield finding_of("targets-of-other-rows", "likely", compared, "other", same=same)


def several_labels(facts: Facts) -> Iterator[Finding]:
    """Find a cross entropy over classes whose targets are true for several of them."""
    for _, rows in functions_of(facts):
        if rows[0]["function"] != "soft_cross_entropy" or not are_always(rows, "target_is_whole", True):
            continue
        sums = [row["target_row_sum"] for row in rows if math.isfinite(row["target_row_sum"])]
        if len(sums) >= 3 and min(sums) > 1.2:
            yield finding_of("targets-several", "likely", rows, "several", mean=sum(sums) / len(sums))


def ends_ignored(facts: Facts) -> Iterator[Finding]:
    """Find an end token that is never a target, because sequences are filled up with it, and those are ignored."""
    for _, rows in functions_of(facts):
        shares = [row["ends_ignored"] for row in rows if math.isfinite(row["ends_ignored"])]
        if len(shares) >= 3 and min(shares) > 0.9:
            yield finding_of("end-never-target", "likely", rows, "ignored", share=sum(shares) / len(shares))


def one_target(facts: Facts) -> Iterator[Finding]:
    """Find a single class that is the target of every sample of every batch."""
    groups = facts["groups"]
    if len(set(groups["optimizer"].tolist())) > 1:
        # The networks of a GAN are given one class each.
        return
    functions = list(functions_of(facts))
    kinds = [rows[0]["function"] for _, rows in functions]
    for _, rows in functions:
        function = rows[0]["function"]
        if len(rows) < _MANY or kinds.count(function) > 1 or _targets_seen(rows) < 8 * len(rows):
            continue
        if function in ("cross_entropy", "nll_loss"):
            seen = {row["target_classes"] for row in rows}
            is_single = len(seen) == 1 and seen.pop().isdigit() and rows[0]["classes"] >= 2
            classes, target = rows[0]["classes"], rows[0]["target_min"]
        elif function in ("bce", "bce_with_logits"):
            bounds = {(row["target_min"], row["target_max"]) for row in rows}
            is_single = bounds in ({(0.0, 0.0)}, {(1.0, 1.0)})
            classes, target = 2, rows[0]["target_min"]
        else:
            continue
        if not is_single:
            continue
        values = {"target": int(target), "classes": classes, "batches": len(rows)}
        shape = sizes_of(rows[0]["input_shape"])
        if rows[0]["is_of_pairs"] and len(shape) == 2 and shape[0] == shape[1]:
            yield finding_of("targets-of-one-class", "certain", rows, "pairs", **values)
        elif rows[0]["is_of_layer"] or first_activation(rows[0]):
            yield finding_of("targets-of-one-class", "likely", rows, "single", **values)


def outside_of_classes(facts: Facts) -> Iterator[Finding]:
    """Find classes that are not used as they are numbered: 1 … n in place of 0 … n - 1."""
    for _, rows in functions_of(facts):
        if rows[0]["function"] not in ("cross_entropy", "nll_loss") or len(rows) < 5:
            continue
        classes = rows[0]["classes"]
        # Of words, one may stand for those that are to be restored.
        is_of_words = any(row["offset"] >= 0 for row in rows) or _is_word(facts, 0, classes) or _is_of_each(facts, rows)
        if not 3 <= classes <= 1000 or is_of_words or rows[0]["ignored_index"] == 0:
            continue
        seen = {int(each) for row in rows for each in row["target_classes"].split()}
        if 0 not in seen and seen == set(range(1, classes)) and _targets_seen(rows) > 20 * classes:
            yield finding_of("targets-off-by-one", "likely", rows, "one_based", last=classes - 1)


def _is_of_each(facts: Facts, rows: list[dict[str, Any]]) -> bool:
    """Whether there are targets for each word of the sequences that a model reads: some are of no other use."""
    calls = facts["calls"]
    samples = [sizes_of(shape)[:1] for shape in calls["input_shape"][calls["is_ids"]].tolist()]
    counts = [math.prod(sizes_of(row["target_shape"])) for row in rows]
    return bool(samples) and bool(samples[0]) and max(counts) > samples[0][0]


def _targets_seen(rows: list[dict[str, Any]]) -> int:
    return sum(math.prod(sizes_of(row["target_shape"])) for row in rows)


def classes_as_numbers(facts: Facts) -> Iterator[Finding]:
    """Find numbers of classes that are predicted by a regression."""
    for _, rows in functions_of(facts):
        if rows[0]["function"] != "mse_loss" or not are_always(rows, "target_is_whole", True):
            continue
        lowest = min(row["target_min"] for row in rows)
        highest = max(row["target_max"] for row in rows)
        distinct = max(row["target_distinct"] for row in rows)
        is_classes = lowest == 0 and 3 <= highest <= 1000 and distinct >= 4 and distinct >= 0.8 * (highest + 1)
        width = rows[0]["input_shape"].split("x")
        if is_classes and (len(width) == 1 or width[-1] == "1"):
            yield finding_of("classes-by-regression", "likely", rows, "classes", highest=int(highest))


def copied(facts: Facts) -> Iterator[Finding]:
    """Find targets that are among the features which the model is given."""
    for _, rows in functions_of(facts):
        compared = [row for row in rows if row["features"] > 0]
        sizes = [math.prod(sizes_of(row["target_shape"])) for row in compared]
        # Of few samples, a feature may be the target by chance.
        if len(compared) < _LEAST_STEPS or sum(sizes) < _LEAST_COMPARED:
            continue
        features = set.intersection(*(set(row["copied"].split()) for row in compared))
        if not features or len({row["features"] for row in compared}) > 1:
            continue
        # A feature is the target on purpose where nothing else says anything about it, as in many a first example.
        related = sum(row["related"] for row in compared) / len(compared)
        if not related > _RELATED:
            continue
        feature = min(map(int, features))
        count = compared[0]["features"]
        yield finding_of(
            *("targets-copied", "likely", compared, "feature"),
            feature=feature,
            features=count,
            samples=sum(sizes),
            related=related,
        )


def targets_wild(facts: Facts) -> Iterator[Finding]:
    """Find targets of a regression that are orders of magnitude larger than what the model puts out."""
    for _, rows in functions_of(facts):
        if rows[0]["function"] not in _REGRESSION or first_activation(rows[0]):
            continue
        measured = [row for row in rows if math.isfinite(row["target_variance"])]
        if len(measured) < _LEAST_STEPS:
            continue
        spread = math.sqrt(max(row["target_variance"] for row in measured))
        mean = max(abs(row["target_mean"]) for row in measured)
        last = max(abs(measured[-1]["input_max"]), abs(measured[-1]["input_min"]))
        if max(spread, mean) > 100 and last < 0.05 * mean and mean > 5 * spread:
            yield finding_of("targets-not-scaled", "likely", rows, "offset", mean=mean, spread=spread, output=last)
        elif spread > 1000 and last < 0.05 * spread:
            yield finding_of("targets-not-scaled", "likely", rows, "spread", mean=mean, spread=spread, output=last)
        elif max(spread, mean) > 1000 and any(True for _ in remains(facts)):
            yield finding_of("targets-not-scaled", "likely", rows, "stays", mean=mean, spread=spread, output=last)


RULES = (
    rule_of(
        "targets-shifted",
        "targets",
        shifted,
        {
            "twice": (
                "The targets are {offset} positions ahead of the words that the model reads: shifted twice",
                "目标比模型读入的词超前 {offset} 个位置：移位了两次",
            ),
            "visible": (
                "The targets that count are the words that the model sees; those that are hidden from it are ignored",
                "计入的目标是模型看得到的词；对它隐藏的词却被忽略",
            ),
            "none": (
                "The targets are the very words that the model reads: a model of language has to predict the next one",
                "目标就是模型读入的词：语言模型应预测下一个词",
            ),
        },
        {
            "visible": (
                "{share:.0%} of the targets are ignored, all of them at one id, a mask token between words",
                "{share:.0%} 的目标被忽略，且都位于词之间的同一个 id (掩码标记) 处",
            ),
            "twice": (
                "the target of each position equals the id {offset} positions later, in {steps} of {read} steps that were read",
                "在读取的 {read} 步中的 {steps} 步，每个位置的目标等于其后 {offset} 个位置的 id",
            ),
            "none": (
                "the target of each position equals the id at that position, in {steps} of {read} steps that were read",
                "在读取的 {read} 步中的 {steps} 步，每个位置的目标等于该位置的 id",
            ),
        },
        (
            "A model that computes its loss itself shifts its labels: give it the ids unshifted. One that does not wants"
            " them shifted by one",
            "自行计算损失的模型会移动标签：请给出未移位的 id；否则需移动一个位置",
        ),
        rank=6,
        advice_on={
            "visible": (
                "Ignore the words that are not hidden: labels[~hidden] = -100",
                "应忽略没有被隐藏的词：labels[~hidden] = -100",
            )
        },
    ),
    rule_of(
        "targets-ignored",
        "targets",
        ignored,
        {
            "all": (
                "All targets of {steps} of {of} batches are ignored: their loss is a mean over nothing",
                "{of} 个批次中有 {steps} 个的目标全被忽略：其损失是对空集求平均",
            ),
            "blank": (
                "The targets contain class {index}, which ctc_loss takes for the blank: it is never put out",
                "目标包含类别 {index}，而 ctc_loss 把它当作空白符：它永远不会被输出",
            ),
            "later": (
                "Of each sequence only the beginning is a target; what follows is ignored, {share:.0%} of the words",
                "每个序列只有开头是目标；其后的内容被忽略，占单词的 {share:.0%}",
            ),
            "class": (
                "Class {index} is ignored (ignore_index), {share:.0%} of the targets",
                "类别 {index} 被忽略 (ignore_index)，占目标的 {share:.0%}",
            ),
        },
        {
            "class": ("one of {classes} classes is never learnt", "{classes} 个类别中有一个永远学不到"),
            "blank": ("{share:.0%} of the targets are it", "占目标的 {share:.0%}"),
            "later": ("in {steps} of {read} steps that were read", "在读取的 {read} 步中有 {steps} 步"),
        },
        (
            "Use an ignore_index that is no class, such as -100, and mask less",
            "使用不是类别的 ignore_index，如 -100，并减少屏蔽",
        ),
        rank=8,
        advice_on={
            "blank": (
                "Let the classes begin at 1, or give ctc_loss another blank",
                "让类别从 1 开始编号，或为 ctc_loss 指定其他空白符",
            ),
            "later": (
                "Look at which labels are -100: those of the prompt should be, not those of the answer",
                "检查哪些标签是 -100：应当屏蔽的是提示，而不是回答",
            ),
        },
    ),
    rule_of(
        "targets-off-by-one",
        "targets",
        outside_of_classes,
        {
            "one_based": (
                "Class 0 is never a target, classes 1 … {last} are: they may be counted from 1",
                "类别 0 从不是目标，而 1 … {last} 都是：它们可能从 1 开始计数",
            )
        },
        {"one_based": ("in {steps} batches", "{steps} 个批次")},
        ("Count classes from 0", "类别从 0 开始计数"),
        rank=30,
    ),
    rule_of(
        "targets-several",
        "targets",
        several_labels,
        {
            "several": (
                "cross_entropy is given {mean:.2g} true classes for each sample, and expects shares that sum to 1",
                "cross_entropy 的每个样本有 {mean:.2g} 个真类别，而它需要和为 1 的比例",
            )
        },
        {"several": ("mean over {steps} batches", "{steps} 个批次的平均")},
        (
            "Use binary_cross_entropy_with_logits for labels that are true independently",
            "对相互独立的标签使用 binary_cross_entropy_with_logits",
        ),
        ("Shares that sum to 1, as of mixtures and teachers.", "和为 1 的比例，如混合或教师的输出。"),
        rank=10,
    ),
    rule_of(
        "end-never-target",
        "targets",
        ends_ignored,
        {
            "ignored": (
                "The end of a sequence is never a target: it has the id with which sequences are filled up, and that is ignored",
                "序列的结尾从不是目标：它与填充使用同一个 id，而该 id 被忽略",
            )
        },
        {
            "ignored": (
                "{share:.0%} of the sequences, in {steps} of {read} steps that were read",
                "{share:.0%} 的序列，在读取的 {read} 步中有 {steps} 步",
            )
        },
        (
            "Fill up with an id of its own, or ignore labels by the attention mask instead of by the id",
            "用单独的 id 填充，或按注意力掩码而不是按 id 忽略标签",
        ),
        ("Sequences that are cut off before their end.", "在结尾之前被截断的序列。"),
        rank=20,
        needs="loss_functions.ends_ignored",
    ),
    rule_of(
        "targets-of-one-class",
        "targets",
        one_target,
        {
            "pairs": (
                "Each of {classes} samples is compared with all others, and the target is number {target} for every one: each is"
                " to resemble the same sample",
                "{classes} 个样本两两比较，而每个样本的目标都是第 {target} 个：所有样本都要与同一个样本相似",
            ),
            "single": (
                "The target is class {target} in every sample of {batches} batches: there is nothing to tell apart",
                "{batches} 个批次中每个样本的目标都是类别 {target}：没有可区分的内容",
            ),
        },
        {
            "pairs": ("in all {batches} batches", "全部 {batches} 个批次"),
            "single": ("of {classes} classes", "共 {classes} 个类别"),
        },
        (
            "Look at the targets: for pairs they are torch.arange(len(batch))",
            "检查目标：成对比较时应为 torch.arange(len(batch))",
        ),
        (
            "Contrastive losses whose positive pair comes first, and trainings with several optimizers.",
            "正样本对排在首位的对比损失，以及有多个优化器的训练。",
        ),
        rank=15,
        needs="loss_functions.is_of_layer",
    ),
    rule_of(
        "classes-by-regression",
        "targets",
        classes_as_numbers,
        {
            "classes": (
                "The numbers of classes 0 … {highest} are predicted with a squared error, as if class 2 were between 1 and 3",
                "用平方误差预测类别编号 0 … {highest}，仿佛类别 2 介于 1 与 3 之间",
            )
        },
        {"classes": ("all targets are whole numbers, and all numbers occur", "所有目标都是整数，且每个数都出现")},
        (
            "Use one output for each class, and cross_entropy; keep it if the numbers are amounts",
            "每个类别一个输出并用 cross_entropy；若数字表示数量则保留",
        ),
        rank=25,
    ),
    rule_of(
        "targets-copied",
        "targets",
        copied,
        {
            "feature": (
                "The targets are among the inputs: feature {feature} of {features}, counted"
                " from 0, is the target itself but for a factor and a constant",
                "目标就在输入之中：特征 {feature} (共 {features} 个) 除了一个系数和常数之外就是目标本身",
            )
        },
        {
            "feature": (
                "for all {samples} samples of {steps} steps that were compared; other features are related to it, too,"
                " {related:.1f} times as much as by chance",
                "比较的 {steps} 步中的全部 {samples} 个样本都如此；其余特征与目标的关系也是偶然情况的 {related:.1f} 倍",
            )
        },
        (
            "Leave this column, or this time, out of the inputs: with new data it will not be known",
            "从输入中去掉这一列或这一时刻：对新数据它是未知的",
        ),
        (
            "Models that are given one or two features, or whose targets are vectors, as those of autoencoders, and features that"
            " alone say anything about the target.",
            "只有一两个特征、或目标是向量的模型 (如自编码器)，以及唯一与目标有关的特征。",
        ),
        rank=25,
        needs="loss_functions.features",
    ),
    rule_of(
        "targets-not-scaled",
        "targets",
        targets_wild,
        {
            "offset": (
                "The targets are around {mean:.3g}, the outputs still below {output:.3g}: they are not scaled",
                "目标约为 {mean:.3g}，而输出仍低于 {output:.3g}：目标未缩放",
            ),
            "spread": (
                "The targets spread over {spread:.3g}, the outputs still below {output:.3g}: they are not scaled",
                "目标的离散程度为 {spread:.3g}，而输出仍低于 {output:.3g}：目标未缩放",
            ),
            "stays": (
                "The targets are around {mean:.3g}, and nothing is learnt of them: they are not scaled",
                "目标约为 {mean:.3g}，而模型什么也没有学到：目标未缩放",
            ),
        },
        dict.fromkeys(("offset", "stays"), ("standard deviation {spread:.3g}", "标准差 {spread:.3g}")),
        ("Subtract the mean of the targets, and divide by their deviation", "减去目标均值并除以标准差"),
        rank=25,
    ),
    rule_of(
        "targets-of-other-rows",
        "targets",
        other_rows,
        {
            "other": (
                "{loss_function} compares the outputs of some rows with the labels of others: they are chosen by different"
                " masks or indices",
                "{loss_function} 把一些行的输出与另一些行的标签作比较：它们由不同的掩码或索引选出",
            )
        },
        {
            "other": (
                "{same:.0%} of {target_shape} rows are the same on both sides, in {steps} of the first steps",
                "在最初的 {steps} 步中，{target_shape} 行里两边相同的占 {same:.0%}",
            )
        },
        (
            "Choose outputs and labels by the same mask: loss(out[mask], labels[mask])",
            "用同一个掩码选择输出和标签：loss(out[mask], labels[mask])",
        ),
        (
            "Rows that are chosen more than once, or all; tables that are not as long; targets a few rows later; and targets that"
            " are no labels.",
            "被多次选中或全部选中的行；长度不同的表；后移几行的目标；以及不是标签的目标。",
        ),
        rank=12,
        needs="loss_functions.same_rows",
    ),
    rule_of(
        "padding-counted",
        "targets",
        padding,
        {
            "counted": (
                "{share:.0%} of the targets are padding: the loss counts the id with which sequences are filled up",
                "{share:.0%} 的目标是填充：损失计入了用于补齐序列的 id",
            )
        },
        {"counted": ("in {steps} of {read} steps that were read", "在读取的 {read} 步中有 {steps} 步")},
        (
            "Set the labels of padding to the ignore_index of the loss (-100)",
            "将填充位置的标签设为损失的 ignore_index (-100)",
        ),
        (
            "An id that ends each sequence once, one that is also a word, and losses of each position that are masked.",
            "每个序列末尾只出现一次的 id、同时也是词的 id，以及之后按位置屏蔽的损失。",
        ),
        rank=20,
    ),
)
