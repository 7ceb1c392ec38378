"""Rules about sequences of words: masks that hide the wrong positions or none, and padding that is a word."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tensight.diagnosis.facts import sizes_of
from tensight.diagnosis.findings import MOST_NAMED, Finding, listed
from tensight.diagnosis.rule import DIVERGENCE, Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensight.diagnosis.facts import Facts

_LEAST_STEPS = 2
_MOSTLY, _DISTINCT = 0.6, 24
"""Least share of an id that most ids are, and number of distinct ids from which on they are no states of a board."""

_LEAST_KEYS, _HARD = 8, 0.9
"""Minimum number of keys, and the greatest weight with which a query sees next to nothing else."""


def mask_of_words(facts: Facts) -> Iterator[Finding]:
    """Find attention layers whose mask hides all words, and leaves the padding."""
    table = facts["attentions"]
    masked = table.panel("masked")
    names = [name for at, name in enumerate(table.names) if (masked[:, at] == "words").sum() >= _LEAST_STEPS]
    if names:
        values = {"names": listed(names), "steps": int((masked == "words").any(1).sum())}
        where = {"module": listed(names, MOST_NAMED), "argument": "key_padding_mask"}
        yield Finding("mask-inverted", "certain", table.first_step((masked == "words").any(1)), "words", values, where)


def sees_targets(facts: Facts) -> Iterator[Finding]:
    """Find models that predict the next word, and read it: their attention has no mask, or they read from the end, too."""
    functions, calls = facts["loss_functions"], facts["calls"]
    offsets = functions["offset"][functions["offset"] >= 0]
    if len(offsets) < _LEAST_STEPS or (offsets != 1).any() or len(functions.names) > 1:
        return
    lengths = {sizes_of(shape)[-1] for shape in calls["input_shape"][calls["is_ids"]].tolist() if "x" in shape}
    attentions, recurrent = facts["attentions"], facts["recurrent"]
    names, message = [], ""
    if len(attentions):
        # Of several layers, one without a mask may look at something else.
        is_open = attentions["is_of_itself"] & ~attentions["is_masked"]
        if is_open.all() and set(attentions["positions"].tolist()) <= lengths:
            names, message = attentions.names, "attention"
    elif len(recurrent) and recurrent["is_bidirectional"].all():
        names, message = recurrent.names, "recurrent"
    if names:
        values = {"names": listed(names), "last": float(facts["losses"]["value"][-1])}
        line = next(filter(None, attentions["line"].tolist()), "")
        where = {"module": listed(names, MOST_NAMED), "line": line}
        yield Finding("next-word-visible", "likely", int(functions["step"][0]), message, values, where)


def padding_that_is_a_word(facts: Facts) -> Iterator[Finding]:
    """Find an id that an embedding takes for padding although it is a word of the sequences."""
    table, parameters = facts["loss_functions"], facts["parameters"]
    for name in table.names:
        of_name = table["name"] == name
        shares = [share for share in table["padding_words"][of_name].tolist() if math.isfinite(share)]
        if len(shares) <= _LEAST_STEPS or min(shares) < 0.01:
            continue
        modules = dict.fromkeys(parameters["module"][parameters["module_type"] == "Embedding"].tolist())
        index = int(table["padding_index"][of_name].max())
        values = {"index": index, "share": sum(shares) / len(shares), "names": listed(list(modules))}
        step = int(table["step"][of_name][0])
        yield Finding("padding-is-word", "likely", step, "word", values, {"module": listed(list(modules), MOST_NAMED)})
        return


def mostly_one_id(facts: Facts) -> Iterator[Finding]:
    """Find embeddings most of whose ids are one and the same, scattered among others, as if words were unknown."""
    table = facts["layers"]
    for name in dict.fromkeys(table["name"][table["distinct"] >= _DISTINCT].tolist()):
        of_name = (table["name"] == name) & (table["lookups"] > 0)
        shares, ids, steps = (table[fact][of_name] for fact in ("common", "common_id", "step"))
        is_usual = len(shares) > _LEAST_STEPS and shares.min() >= _MOSTLY and shares.mean() >= _MOSTLY + 0.1
        if not is_usual or (ids != ids[0]).any() or (table["distinct"][of_name] < _DISTINCT).any():
            continue
        if _are_restored(facts, int(ids[0]), int(table["lookups"][of_name].min())):
            continue
        rows = sizes_of(str(facts["parameters"].last("shape").get(f"{name}.weight", "")))
        message = "last" if rows and ids[0] == rows[0] - 1 else "unknown"
        values = {"name": name, "index": int(ids[0]), "share": float(shares.mean()), "steps": len(steps)}
        where = {"module": name, "input": f"id {ids[0]}"}
        yield Finding("ids-mostly-one", "likely", int(steps[0]), message, values, where)


def _are_restored(facts: Facts, index: int, lookups: int) -> bool:
    """Whether the targets are other ids where one hides them, as masked words are restored; so if they are unknown."""
    table = facts["loss_functions"]
    if not (table["target_shape"] != "").any():
        return True
    for classes, counts in zip(table["target_classes"].tolist(), table["target_counts"].tolist(), strict=True):
        count_of = dict(zip(classes.split(), map(int, counts.split()), strict=True))
        total = sum(count_of.values())
        if total >= lookups / 8 and count_of.get(str(index), 0) < total / 2:
            return True
    return False


def hard_attention(facts: Facts) -> Iterator[Finding]:
    """Find attentions each of whose queries sees next to nothing but one key, from the first step on."""
    table = facts["weightings"]
    rows = table["keys"] >= _LEAST_KEYS
    names = list(dict.fromkeys(table["name"][rows].tolist()))
    if not names or len(set(table["step"][rows].tolist())) < _LEAST_STEPS:
        return
    greatest = table["greatest"][rows]
    if greatest.min() < _HARD:
        return
    line = next(filter(None, table["line"][rows].tolist()), "")
    values = {"greatest": float(greatest.mean()), "keys": int(table["keys"][rows].max()), "count": len(names)}
    where = {"operator": "softmax", "line": line}
    yield Finding("attention-saturated", "likely", int(table["step"][rows][0]), "hard", values, where)


def detached_states(facts: Facts) -> Iterator[Finding]:
    """Find modules that are called step after step, and whose state is detached before each call."""
    table = facts["cells"]
    for name in table.names:
        of_name = table["name"] == name
        detached, used = table["detached"][of_name], table["used"][of_name]
        is_cut = (table["attached"][of_name] == 0) & (detached >= _LEAST_STEPS) & (used == 1)
        if is_cut.sum() < _LEAST_STEPS or not is_cut.all():
            continue
        line = next(filter(None, table["line"][of_name].tolist()), "")
        values = {"name": name, "calls": int(detached[-1]) + 1}
        where = {"module": name, "line": line, "operator": "detach"}
        parameters = facts["parameters"]
        cut = set(parameters["name"][parameters["cut_line"] == (line or None)].tolist())
        behind = tuple(each for each in parameters.names if each in cut or each.startswith(f"{name}."))
        step = int(table["step"][of_name][0])
        yield Finding("state-detached", "certain", step, "detached", values, where, behind)


RULES = (
    Rule(
        "attention-saturated",
        "initialization",
        ("weightings",),
        hard_attention,
        {
            "hard": (
                "The scores of attention are so large that a query gives {greatest:.2f} of its weight to one of {keys} keys before"
                " anything is learnt",
                "注意力分数过大：在学到任何东西之前，每个查询就把 {greatest:.2f} 的权重给了 {keys} 个键中的一个",
            )
        },
        {"hard": ("in {count} attentions, from the first step on", "在 {count} 个注意力中，从第一步起")},
        (
            "Divide the products of queries and keys by the root of their size, and look at the scale of what they are made from",
            "把查询与键的乘积除以其维度的平方根，并检查其来源的尺度",
        ),
        (
            "Attentions that become so while they are trained, and those with fewer than eight keys.",
            "在训练中才变成这样的注意力，以及少于八个键的注意力。",
        ),
        frozenset(("loss-stays", "loss-start", "scale-by-depth", *DIVERGENCE)),
        25,
    ),
    Rule(
        "state-detached",
        "gradient-cut",
        ("cells",),
        detached_states,
        {
            "detached": (
                "{name} learns nothing from earlier steps of a sequence: its state is detached before each call",
                "{name} 学不到序列中更早的内容：它的状态在每次调用之前都被 detach",
            )
        },
        {
            "detached": (
                "it is called {calls} times for a sequence, each time with its own last output, and a loss leads to one of"
                " these calls only",
                "对每个序列它被调用 {calls} 次，每次输入自己上一次的输出，而损失只与其中一次调用相连",
            )
        },
        (
            "Detach the state between batches, not between the steps of a sequence",
            "应在批次之间 detach 状态，而不是在序列的各步之间",
        ),
        (
            "States that are detached before some of the calls only, as in truncated backpropagation, and modules each of whose"
            " outputs is in a loss.",
            "只在部分调用之前 detach 的状态 (如截断反向传播)，以及每个输出都参与损失的模块。",
        ),
        frozenset(("loss-stays", "no-gradient")),
        4,
    ),
    Rule(
        "mask-inverted",
        "data",
        ("attentions",),
        mask_of_words,
        {
            "words": (
                "The mask of {names} is inverted: it hides all words, and the attention sees padding only",
                "{names} 的掩码颠倒了：它遮住所有词，注意力只能看到填充",
            )
        },
        {
            "words": (
                "in {steps} steps key_padding_mask is True exactly where the ids are no padding",
                "在 {steps} 步中 key_padding_mask 恰在 id 不是填充的位置为 True",
            )
        },
        (
            "key_padding_mask is True where nothing is to be read: key_padding_mask = ids == padding",
            "key_padding_mask 在不应读取的位置为 True：key_padding_mask = ids == padding",
        ),
        ("Masks that hide something else than all words.", "遮住的不是全部词的掩码。"),
        frozenset(("loss-stays", "zero-gradient")),
        8,
    ),
    Rule(
        "ids-mostly-one",
        "data",
        ("layers.common", "loss_functions", "parameters"),
        mostly_one_id,
        {
            "unknown": (
                "{share:.0%} of the ids that layer {name} is given are {index}, scattered among others, as if words were unknown",
                "层 {name} 得到的 id 中有 {share:.0%} 是 {index}，散布在其他 id 之间，仿佛大多数词都未知",
            ),
            "last": (
                "{share:.0%} of the ids that layer {name} is given are {index}, its last row, as if larger ids were cut off",
                "层 {name} 得到的 id 中有 {share:.0%} 是 {index}，即它的最后一行，仿佛更大的 id 被截断",
            ),
        },
        dict.fromkeys(
            ("unknown", "last"),
            ("in each of {steps} steps, between other ids", "在 {steps} 步中的每一步，位于其他 id 之间"),
        ),
        (
            "Compare the vocabulary with the words: another language, capital letters, punctuation, a tokenizer of another model",
            "对照词表与文本：语言不同、大小写、标点、另一个模型的分词器",
        ),
        (
            "Padding at the ends, embeddings of fewer than 1000 rows, ids that differ by position, and words that are hidden to be"
            " restored.",
            "两端的填充、少于 1000 行的嵌入、随位置而异的 id，以及为了还原而遮住的词。",
        ),
        frozenset(("loss-stays",)),
        8,
        advice_on={
            "last": (
                "Give the embedding as many rows as there are ids, and do not clamp them",
                "让嵌入的行数等于 id 的个数，不要截断 id",
            )
        },
    ),
    Rule(
        "next-word-visible",
        "targets",
        ("loss_functions", "calls"),
        sees_targets,
        {
            "attention": (
                "The model predicts the next word and reads it, too: {names} look at all positions, without a causal mask",
                "模型预测下一个词却也读到了它：{names} 在没有因果掩码的情况下看到所有位置",
            ),
            "recurrent": (
                "The model predicts the next word and reads it, too: {names} read each sequence from its end, as well"
                " (bidirectional)",
                "模型预测下一个词却也读到了它：{names} 还从末尾读取每个序列 (bidirectional)",
            ),
        },
        dict.fromkeys(
            ("attention", "recurrent"),
            (
                "the targets are the ids that it reads, one position ahead; the loss is {last:.4g} at last",
                "目标就是它读入的 id，前移一位；损失最后为 {last:.4g}",
            ),
        ),
        (
            "Give the attention a mask (nn.Transformer.generate_square_subsequent_mask, is_causal=True), or read in one"
            " direction",
            "为注意力提供掩码 (nn.Transformer.generate_square_subsequent_mask、is_causal=True)，或只沿一个方向读取",
        ),
        (
            "Models of which any attention has a mask, and targets that are not the next ids.",
            "任何注意力带有掩码的模型，以及不是下一个 id 的目标。",
        ),
        frozenset(),
        20,
    ),
    Rule(
        "padding-is-word",
        "gradient-zero",
        ("loss_functions.padding_words", "parameters"),
        padding_that_is_a_word,
        {
            "word": (
                "Id {index} is a word of the sequences, but padding (padding_idx) to {names}: its vector is never trained",
                "id {index} 是序列中的词，但对 {names} 来说是填充 (padding_idx)：它的向量从不被训练",
            )
        },
        {
            "word": (
                "{share:.1%} of the targets are at that id, with other words before and after it",
                "{share:.1%} 的目标位于该 id 处，其前后都有其他词",
            )
        },
        (
            "Number the words from 1 on if 0 is padding, or leave padding_idx out",
            "如果 0 是填充，则词从 1 开始编号，或不使用 padding_idx",
        ),
        ("Padding at the ends of sequences, and where no targets count.", "序列两端的填充，以及目标不计入的位置。"),
        frozenset(),
        30,
    ),
)
