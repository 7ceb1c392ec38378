"""Rules about experiments with a model on one batch: what it mixes, ignores, and sees although it should not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensight.diagnosis.findings import Certainty, Finding
from tensight.diagnosis.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensight.diagnosis.facts import Facts


def _failed(facts: Facts, probe: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a probe that has failed, each model once."""
    models: set[str] = set()
    for row in facts["probes"].rows():
        if row["probe"] == probe and row["outcome"] == "fail" and row["model"] not in models:
            models.add(row["model"])
            yield row


def _finding(rule: str, certainty: Certainty, row: dict[str, Any], message: str) -> Finding:
    function = row["function"]
    at = f" ({function}, {row['line']})" if row["line"] else f" ({function})" if function else ""
    values = {**row, "at": at}
    where = {"module": row["module"] or row["model"], "operator": function, "line": row["line"]}
    return Finding(rule, certainty, 1, message, values, where)


def samples_mixed(facts: Facts) -> Iterator[Finding]:
    """Find models in which a sample changes what is put out for other samples of its batch, in evaluation mode."""
    for row in _failed(facts, "samples"):
        yield _finding("samples-mixed", "likely", row, "located" if row["function"] else "mixed")


def ignored_inputs(facts: Facts) -> Iterator[Finding]:
    """Find models whose outputs do not depend on an input, on a feature of it, or on any input at all."""
    for row in _failed(facts, "inputs"):
        yield _finding("input-ignored", "likely", row, row["why"])


def ignored_positions(facts: Facts) -> Iterator[Finding]:
    """Find models of sequences whose output depends on a single position."""
    for row in _failed(facts, "positions"):
        yield _finding("positions-ignored", "likely", row, row["why"])


def sees_later_words(facts: Facts) -> Iterator[Finding]:
    """Find models that predict the next word, and whose outputs change with the words that follow."""
    for row in _failed(facts, "order"):
        yield _finding("later-words-count", "certain", row, "located" if row["function"] else "seen")


def order_ignored(facts: Facts) -> Iterator[Finding]:
    """Find models of words that tell positions apart, and to which their order is the same all the same."""
    for row in _failed(facts, "arrangement"):
        yield _finding("order-ignored", "likely", row, "turned")


def padding_counts(facts: Facts) -> Iterator[Finding]:
    """Find models that are given a mask, and whose outputs change with what it hides."""
    for row in _failed(facts, "padding"):
        yield _finding("padding-counts", "likely", row, "counts")


def wrong_backward(facts: Facts) -> Iterator[Finding]:
    """Find functions with a backward of the script's own that is not the derivative of their forward."""
    for row in _failed(facts, "backward"):
        yield _finding("backward-wrong", "certain", row, "wrong")


def does_not_fall(facts: Facts) -> Iterator[Finding]:
    """Find losses that do not fall on one batch, however small the step against their gradient."""
    for row in _failed(facts, "loss"):
        yield _finding("loss-against-gradient", "likely", row, "rises")


def state_not_saved(facts: Facts) -> Iterator[Finding]:
    """Find states on which a training depends, and which `state_dict` does not have."""
    for row in _failed(facts, "resume"):
        yield _finding("state-not-saved", "likely", row, row["why"])


RULES = (
    Rule(
        "samples-mixed",
        "data",
        ("probes",),
        samples_mixed,
        {
            "mixed": (
                "{model} mixes the samples of a batch: one that changes alters the outputs of others",
                "{model} 混合了批次中的样本：改变一个样本会改变其他样本的输出",
            ),
            "located": (
                "{model} mixes the samples of a batch: one that changes alters the outputs of others, first in"
                " {function} at {line}",
                "{model} 混合了批次中的样本：改变一个样本会改变其他样本的输出，最先出现在 {line} 处的 {function}",
            ),
        },
        dict.fromkeys(
            ("mixed", "located"),
            (
                "in evaluation mode, another sample in its row changes the outputs of the other rows by up to"
                " {change:.3g}, and its own by {scale:.3g}; {total} samples",
                "在评估模式下，把一行换成另一个样本，使其他行的输出最多改变 {change:.3g}，自身改变 {scale:.3g}；共 {total} 个样本",
            ),
        ),
        (
            "Look for a view or reshape where a transpose is meant, a softmax, mean or normalization over the axis of"
            " the samples, or a layer that expects the batch in another axis (batch_first)",
            "检查是否应使用 transpose 却用了 view 或 reshape，softmax、均值或归一化是否沿样本轴，或者某层期望批次在另一个轴"
            " (batch_first)",
        ),
        (
            "Batch normalization, layers named after the batch, models that are given links between samples (edges, an"
            " adjacency), and those of which the axis of the samples is not known.",
            "批归一化、名称含 batch 的层、输入含样本间联系（边、邻接矩阵）的模型，以及样本轴未知的模型。",
        ),
        frozenset(
            ("axes-mixed", "softmax-axis", "recurrent-axes", "positions-ignored", "loss-stays", "outputs-collapse")
        ),
        6,
    ),
    Rule(
        "input-ignored",
        "data",
        ("probes",),
        ignored_inputs,
        {
            "inputs": (
                "{model} ignores what it is given as {inputs}",
                "{model} 忽略了输入 {inputs}",
            ),
            "features": (
                "{model} ignores {count} of {total} features of its input: {inputs}",
                "{model} 忽略了输入的 {total} 个特征中的 {count} 个：{inputs}",
            ),
            "same": (
                "{model} puts out the same for all samples, whatever it is given",
                "{model} 对所有样本输出相同，与输入无关",
            ),
        },
        {
            "inputs": (
                "with the values of other samples in their place, all outputs stay as they are, bit for bit",
                "换成其他样本的值后，所有输出逐位不变",
            ),
            "features": (
                "with the values of other samples in their place, all outputs stay as they are, bit for bit",
                "换成其他样本的值后，所有输出逐位不变",
            ),
            "same": (
                "the inputs of the {total} samples of a batch differ, and their outputs do not",
                "一个批次的 {total} 个样本输入不同，输出却相同",
            ),
        },
        (
            "Follow the input through forward: is it used at all, overwritten, sliced, or multiplied by 0?",
            "在 forward 中跟踪该输入：它是否被使用、被覆盖、被切片，或者乘以 0？",
        ),
        (
            "Inputs that are the same for all samples of the batch, such as a mask that hides nothing; targets of models"
            " that compute their loss.",
            "批次中所有样本相同的输入，例如不遮住任何内容的掩码；自行计算损失的模型的目标。",
        ),
        frozenset(("loss-stays", "zero-gradient", "outputs-collapse")),
        9,
    ),
    Rule(
        "positions-ignored",
        "data",
        ("probes",),
        ignored_positions,
        {
            "first": (
                "{model} reads the first position of each sequence only",
                "{model} 只读取每个序列的第一个位置",
            ),
            "last": (
                "{model} reads the last position of each sequence only",
                "{model} 只读取每个序列的最后一个位置",
            ),
        },
        dict.fromkeys(
            ("first", "last"),
            (
                "with other values everywhere else in {inputs}, all outputs stay as they are, bit for bit; its sequences"
                " have the length {total}",
                "换掉 {inputs} 其余所有位置的值后，所有输出逐位不变；序列长度为 {total}",
            ),
        ),
        (
            "Is the output of the right step taken: output[:, -1] of a recurrent layer with batch_first=True,"
            " output[-1] without?",
            "是否取了正确的时间步：batch_first=True 的循环层取 output[:, -1]，否则取 output[-1]？",
        ),
        ("Models that put out a vector for each position.", "对每个位置输出一个向量的模型。"),
        frozenset(("loss-stays", "zero-gradient")),
        9,
    ),
    Rule(
        "later-words-count",
        "targets",
        ("probes",),
        sees_later_words,
        {
            "seen": (
                "{model} predicts the next word and sees it: later words change the outputs of earlier positions",
                "{model} 预测下一个词却看到了它：后面的词会改变前面位置的输出",
            ),
            "located": (
                "{model} predicts the next word and sees it: later words change the outputs of earlier positions, first in"
                " {function} at {line}",
                "{model} 预测下一个词却看到了它：后面的词会改变前面位置的输出，最先出现在 {line} 处的 {function}",
            ),
        },
        dict.fromkeys(
            ("seen", "located"),
            (
                "other words from position {count} on change the outputs before it by up to {change:.3g}, and those from"
                " there on by {scale:.3g}",
                "从位置 {count} 起换成其他词，使之前的输出最多改变 {change:.3g}，之后的输出改变 {scale:.3g}",
            ),
        ),
        (
            "Give the attention a causal mask (is_causal=True), pad convolutions on the left, read in one direction",
            "为注意力提供因果掩码 (is_causal=True)，卷积在左侧填充，只沿一个方向读取",
        ),
        (
            "Models whose targets are not the words that they read, one position ahead.",
            "目标不是所读入的词前移一位的模型。",
        ),
        frozenset(("next-word-visible", "samples-mixed")),
        5,
    ),
    Rule(
        "order-ignored",
        "data",
        ("probes",),
        order_ignored,
        {
            "turned": (
                "The order of the words makes no difference to {model}, although it has {module}",
                "词的顺序对 {model} 没有影响，尽管它有 {module}",
            )
        },
        {
            "turned": (
                "with all {total} positions of {inputs} turned around but the first and the last, the outputs are those of the"
                " same words as before",
                "除首尾外把 {inputs} 的 {total} 个位置颠倒后，每个词的输出与之前相同",
            )
        },
        (
            "Are the numbers of the positions 0, 1, 2 …, and is what they give added to the embeddings of the words?",
            "位置编号是否为 0、1、2 …，其结果是否加到了词嵌入上？",
        ),
        (
            "Models without attention between words, and those in which nothing is named after positions, which are WARN.",
            "没有词间注意力的模型，以及没有任何部分以位置命名的模型 (WARN)。",
        ),
        frozenset(("loss-stays",)),
        8,
    ),
    Rule(
        "padding-counts",
        "data",
        ("probes",),
        padding_counts,
        {
            "counts": (
                "The mask of {model} ({inputs}) does not hide the padding: its contents change the outputs of the rest",
                "{model} 的掩码 ({inputs}) 没有遮住填充：填充的内容会改变其余部分的输出",
            )
        },
        {
            "counts": (
                "other values at the {count} positions that it hides change the outputs by up to {change:.3g}; at the"
                " other positions, by {scale:.3g}",
                "换掉它遮住的 {count} 个位置的值，使输出最多改变 {change:.3g}；换掉其余位置则改变 {scale:.3g}",
            )
        },
        (
            "Pass the mask on to every attention, and leave the padding out of means and of the last position",
            "把掩码传给每个注意力层，求均值和取最后位置时排除填充",
        ),
        (
            "Masks of which it is not clear what they hide, and models that are given none.",
            "含义不明的掩码，以及没有掩码的模型。",
        ),
        frozenset(("loss-stays",)),
        12,
    ),
    Rule(
        "backward-wrong",
        "backward",
        ("probes",),
        wrong_backward,
        {
            "wrong": (
                "The backward of {function} is not the derivative of its forward",
                "{function} 的 backward 不是其 forward 的导数",
            )
        },
        {
            "wrong": (
                "input {count}: it returns {change:.4g} where the output changes by {scale:.4g} per unit (float64)",
                "第 {count} 个输入：它返回 {change:.4g}，而输出每单位改变 {scale:.4g} (float64)",
            )
        },
        (
            "Correct it, and check it with torch.autograd.gradcheck in double precision",
            "改正后在双精度下用 torch.autograd.gradcheck 检查",
        ),
        (
            "Functions that return what they are given, as a reversal of gradients does, and those that are constant"
            " almost everywhere, as a rounding is: they have another backward on purpose.",
            "原样返回输入的函数（例如梯度反转）以及几乎处处为常数的函数（例如取整）：它们故意使用另外的 backward。",
        ),
        frozenset(("loss-stays", "loss-rises", "zero-gradient")),
        4,
    ),
    Rule(
        "loss-against-gradient",
        "backward",
        ("probes",),
        does_not_fall,
        {
            "rises": (
                "The loss does not fall on one batch, however small the step: its gradient leads up",
                "在一个批次上，无论步长多小，损失都不下降：它的梯度指向错误的方向",
            )
        },
        {
            "rises": (
                "in {count} tries with the same batch and random numbers none was lower; where the gradient promises a fall"
                " by {scale:.3g}, the loss changes by {change:+.3g}",
                "用同一批次和随机数尝试 {count} 次都没有更低；梯度预示下降 {scale:.3g} 时，损失改变 {change:+.3g}",
            )
        },
        (
            "Look for what changes gradients or goes around them: hooks, detach, straight-through terms with a sign",
            "检查改变或绕过梯度之处：钩子、detach、带符号的直通项",
        ),
        (
            "Losses that differ with the same weights and random numbers, and those with a backward function of the"
            " script's own.",
            "权重和随机数相同而值不同的损失，以及使用脚本自己的反向函数的损失。",
        ),
        frozenset(("loss-rises", "loss-stays", "learning-rate-too-large")),
        7,
    ),
    Rule(
        "state-not-saved",
        "initialization",
        ("probes",),
        state_not_saved,
        dict.fromkeys(
            ("loss", "weights"),
            (
                "A training resumed from a checkpoint would not go on as this one: state_dict lacks {inputs}",
                "从检查点恢复的训练不会与本次训练一致：state_dict 缺少 {inputs}",
            ),
        ),
        {
            "loss": (
                "with the contents of every state_dict loaded into what was there at first, a loss of the next two steps"
                " is {change:.6g} instead of {scale:.6g}",
                "把所有 state_dict 的内容加载到初始状态后，接下来两步中的一个损失为 {change:.6g}，而不是 {scale:.6g}",
            ),
            "weights": (
                "with the contents of every state_dict loaded into what was there at first, other weights result from the"
                " next two steps",
                "把所有 state_dict 的内容加载到初始状态后，接下来两步得到不同的权重",
            ),
        },
        (
            "Make it a buffer (register_buffer), a part of get_extra_state or of state_dict, or save it beside these",
            "把它注册为缓冲区 (register_buffer)，放入 get_extra_state 或 state_dict，或者一并保存",
        ),
        (
            "States of the samples of a batch, what is empty at first, as caches are, random generators, and the data.",
            "批次样本的状态、起初为空的内容（例如缓存）、随机数生成器以及数据。",
        ),
        frozenset(),
        60,
    ),
)
