"""Rules about what the model is given."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from tensight.diagnosis.facts import sizes_of
from tensight.diagnosis.findings import Certainty, Finding
from tensight.diagnosis.rule import DIVERGENCE, Rule
from tensight.diagnosis.rules.losses import has_fixed_targets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensight.diagnosis.facts import Facts

_SETTLED = 5
_DRIFTED = 10.0
"""How many times the scale of inputs has grown or shrunk that are not just others."""

_CHANNELS = (1, 3, 4)
"""Numbers of channels of pictures."""

_LEAST_READ = 3
"""Number of steps in which the pictures of the first layer must have been read."""

_MANY = 4
"""Number of calls of a model of which one alone is used by an update."""


def constant(facts: Facts) -> Iterator[Finding]:
    """Find inputs all of whose elements are the same."""
    table = facts["calls"]
    for name in table.names:
        of_name = (table["name"] == name) & table["is_trained"] & np.isfinite(table["input_min"])
        is_constant, lowest = table["is_constant"][of_name], table["input_min"][of_name]
        if of_name.sum() < _SETTLED or is_constant.mean() < 0.9:
            continue
        value, shape = float(lowest[is_constant][-1]), str(table["input_shape"][of_name][-1])
        # A number that changes from step to step is not lost, and a single one may be all that a model is given.
        if (lowest[is_constant] != value).any() or math.prod(sizes_of(shape)) < 2:
            continue
        values = {
            "model": name,
            "value": value,
            "shape": shape,
            "count": int(is_constant.sum()),
            "of": len(is_constant),
        }
        message = "ids" if table["is_ids"][of_name][-1] else "numbers"
        step = int(table["step"][of_name][np.flatnonzero(is_constant)[0]])
        certainty: Certainty = "certain" if is_constant.all() else "likely"
        yield Finding("input-constant", certainty, step, message, values, {"input": name, "module": name})


def drifting(facts: Facts) -> Iterator[Finding]:
    """Find inputs whose scale grows or shrinks all the time, as if they were changed where they are stored."""
    table = facts["calls"]
    if not has_fixed_targets(facts):
        return
    for name in table.names:
        rows = (table["name"] == name) & table["is_trained"] & np.isfinite(table["input_deviation"])
        deviations = table["input_deviation"][rows]
        if len(deviations) < 4 * _SETTLED or not deviations[0] > 0:
            continue
        parts = [float(np.median(part)) for part in np.array_split(deviations, 4)]
        falls = all(later <= 0.8 * earlier for earlier, later in itertools.pairwise(parts))
        grows = all(later > 1.25 * earlier for earlier, later in itertools.pairwise(parts))
        if not (falls and parts[-1] * _DRIFTED < parts[0]) and not (grows and parts[-1] > _DRIFTED * parts[0]):
            continue
        values = {"model": name, "first": float(deviations[0]), "last": float(deviations[-1])}
        values |= {"steps": int(table["step"][rows][-1]), "middle": parts[1]}
        where = {"input": name, "module": name}
        yield Finding(
            "inputs-drift", "likely", int(table["step"][rows][0]), "falls" if falls else "grows", values, where
        )


def without_content(facts: Facts) -> Iterator[Finding]:
    """Find pictures and signals many of which have one value everywhere, although their targets differ."""
    table = facts["loss_functions"]
    for name in table.names:
        rows = (table["name"] == name) & np.isfinite(table["empty"])
        shares, usual = table["empty"][rows], table["empty_usual"][rows]
        is_often = len(shares) >= _SETTLED and 0.3 <= shares.mean() <= 0.95 and shares.min() >= 0.1
        # Those that are empty may be a class, or not counted.
        if not is_often or usual.mean() > 0.8 or table["ignored"][rows].max() > 0:
            continue
        if (table["reduction"][rows] == "none").any():
            continue
        values = {"share": float(shares.mean()), "steps": len(shares), "usual": float(usual.mean())}
        where = {"input": "the first input", **_loader(facts)}
        yield Finding("samples-empty", "likely", int(table["step"][rows][0]), "empty", values, where)
        return


def repeated(facts: Facts) -> Iterator[Finding]:
    """Find trainings that see the same batch in each step, although their loader has others."""
    table, steps = facts["calls"], facts["steps"]
    batches = int(steps["batches"].max()) if len(steps) else -1
    for name in table.names:
        of_name = (table["name"] == name) & table["is_trained"] & (table["fingerprint"] != 0)
        prints = table["fingerprint"][of_name]
        rows = table["input_shape"][of_name][-1:].tolist()
        # A whole data set in one batch comes from no loader.
        is_of_loader = bool(rows) and rows[0].partition("x")[0] == str(int(steps["batch_size"].max()))
        if len(prints) < 20 or batches < 2 or len(set(prints.tolist())) > 1 or not is_of_loader:
            continue
        values = {"model": name, "steps": len(prints), "batches": batches}
        step = int(table["step"][of_name][0])
        yield Finding("batch-repeated", "likely", step, "same", values, {"input": name, "module": name})


def read_by_each_worker(facts: Facts) -> Iterator[Finding]:
    """Find streams that each process of a loader reads as a whole, so that each batch comes once from each."""
    steps = facts["steps"]
    workers = int(steps["workers"].max()) if len(steps) else 0
    if workers < 2:
        return
    table = facts["calls"]
    for name in table.names:
        rows = (table["name"] == name) & table["is_trained"] & (table["fingerprint"] != 0)
        at, prints = table["step"][rows], table["fingerprint"][rows]
        together = at == at[:1] + np.arange(len(at))
        blocks = prints[together][: int(together.sum()) // workers * workers].reshape(-1, workers)
        if len(blocks) < _SETTLED or (blocks != blocks[:, :1]).any() or len(set(blocks[:, 0].tolist())) < len(blocks):
            continue
        values = {"model": name, "workers": workers, "blocks": len(blocks)}
        where = {"input": name, "module": name, **_loader(facts)}
        yield Finding("stream-repeated", "certain", int(at[0]), "workers", values, where)


def copied_generators(facts: Facts) -> Iterator[Finding]:
    """Find random generators of data sets that each process of a loader copies, so that all draw the same numbers."""
    table = facts["generators"]
    for row in {row["name"]: row for row in table.rows()}.values():
        is_repeated = not row["is_persistent"] and 0 < row["batches"] < facts.last_step
        if row["workers"] < 2 and not is_repeated:
            continue
        values = {key: row[key] for key in ("name", "type", "used_in", "workers")}
        where = {"call": row["used_in"], **({"loader": row["line"]} if row["line"] else {})}
        message = "workers" if row["workers"] > 1 else "epochs"
        yield Finding("generator-copied", "likely", int(table["step"][0]), message, values, where)


def _loader(facts: Facts) -> dict[str, str]:
    """Return where the script makes its longest loader of data, as a part of a place; empty if that is unknown."""
    line = next(iter(facts["ranks"].last("loader_line").values()), "")
    return {"loader": str(line)} if line else {}


def channels_last(facts: Facts) -> Iterator[Finding]:
    """Find pictures whose rows are taken for channels by the first convolution."""
    calls, layers, parameters = facts["calls"], facts["layers"], facts["parameters"]
    shapes = {shape for shape in calls["input_shape"][calls["is_trained"]].tolist() if shape}
    if len(shapes) != 1 or not len(layers):
        return
    shape = str(next(iter(shapes)))
    sizes, first = sizes_of(shape), layers.names[0]
    weight = sizes_of(str(parameters.last("shape").get(f"{first}.weight", "")))
    if len(sizes) != 4 or len(weight) != 4 or layers.last("type")[first] != "Conv2d":
        return
    _, rows, columns, channels = sizes
    if channels in _CHANNELS and rows == columns > max(_CHANNELS) and weight[1] == rows:
        values = {"shape": shape, "name": first, "rows": rows, "channels": channels}
        yield Finding(
            "channels-last", "likely", int(layers.steps[0]), "last", values, {"module": first, "input": shape}
        )


def reshaped(facts: Facts) -> Iterator[Finding]:
    """Find pictures whose rows, columns and colours were mixed by a reshape where they should be permuted."""
    table = facts["layers"]
    is_given = np.isfinite(table["mixed"])
    shares = table["mixed"][is_given]
    if len(shares) >= _LEAST_READ and shares.min() >= 0.5 and shares.mean() >= 0.7:
        name = str(table["name"][is_given][0])
        values = {"name": name, "share": float(shares.mean()), "steps": len(shares)}
        where = {"module": name, "input": "the pictures"}
        yield Finding("pictures-reshaped", "likely", int(table["step"][is_given][0]), "mixed", values, where)


def unused(facts: Facts) -> Iterator[Finding]:
    """Find batches whose outputs no backward pass reaches, because only the last loss has one."""
    table, steps = facts["calls"], facts["steps"]
    passes = dict(zip(steps["step"].tolist(), steps["backward_passes"].tolist(), strict=True)) if len(steps) else {}
    for name in table.names:
        of_name = (table["name"] == name) & (table["used"] > 0) & table["is_training"] & table["is_trained"]
        calls, used = table["with_gradients"][of_name], table["used"][of_name]
        single = np.array([passes.get(step) == 1 for step in table["step"][of_name].tolist()], np.bool_)
        # Calls to choose actions, for example, have inputs of another shape.
        is_last = table["is_last_used"][of_name] & table["is_alike"][of_name]
        lost = (calls >= _MANY) & (used == 1) & is_last & single
        if lost.sum() < 3 or lost.mean() < 0.8:
            continue
        line = facts.loss_line
        count = int(np.median(calls[lost]))
        values = {"model": name, "calls": count, "unused": count - 1, "steps": int(lost.sum())}
        where = {"module": name, "line": line}
        yield Finding("batches-unused", "likely", int(table["step"][of_name][0]), "last", values, where)


def one_class(facts: Facts) -> Iterator[Finding]:
    """Find batches of one class each, although there are several."""
    table = facts["loss_functions"]
    for name in table.names:
        of_name = (table["name"] == name) & (table["classes"] >= 2)
        shapes = table["target_shape"][of_name].tolist()
        sizes = [int(shape) for shape in shapes if shape.isdigit()]
        classes = [text.split() for text in table["target_classes"][of_name].tolist() if text]
        if len(classes) < 20 or len(sizes) < len(classes) or min(sizes) < 8:
            continue
        single = sum(len(each) == 1 for each in classes) / len(classes)
        distinct = {each[0] for each in classes if len(each) == 1}
        if single > 0.7 and len(distinct) >= 2:
            step = int(table["step"][of_name][0])
            values = {"share": single, "distinct": len(distinct), "size": min(sizes)}
            where = {"input": "targets of each batch", **_loader(facts)}
            yield Finding("batch-of-one-class", "certain", step, "sorted", values, where)


RULES = (
    Rule(
        "inputs-drift",
        "data",
        ("calls.input_deviation", "loss_functions"),
        drifting,
        {
            "falls": (
                "The inputs of {model} shrink all the time: their deviation is {first:.3g} at first and {last:.3g} at step {steps}",
                "{model} 的输入一直在缩小：其标准差起初为 {first:.3g}，第 {steps} 步为 {last:.3g}",
            ),
            "grows": (
                "The inputs of {model} grow all the time: their deviation is {first:.3g} at first and {last:.3g} at step {steps}",
                "{model} 的输入一直在增大：其标准差起初为 {first:.3g}，第 {steps} 步为 {last:.3g}",
            ),
        },
        dict.fromkeys(("falls", "grows"), ("it is {middle:.3g} in between", "其间为 {middle:.3g}")),
        (
            "Look for what changes the stored data in place each time they are read, as x -= mean, x /= 255, or a function with a"
            " trailing underscore; copy them first",
            "检查每次读取时就地修改所存数据的代码，如 x -= mean、x /= 255 或带下划线后缀的函数；应先复制",
        ),
        (
            "Scales that change by less than ten times, or up and down, and trainings whose targets are computed.",
            "变化不到十倍或时增时减的尺度，以及目标由计算得到的训练。",
        ),
        frozenset(("loss-stays", "loss-rises", "input-scale")),
        11,
    ),
    Rule(
        "input-constant",
        "data",
        ("calls",),
        constant,
        {
            "numbers": (
                "All elements of the input of {model} are {value:.4g}: the data are lost before they reach it",
                "{model} 的输入的所有元素都是 {value:.4g}：数据在到达模型之前已丢失",
            ),
            "ids": (
                "All ids that {model} reads are {value:.0f}: every word is the same to it",
                "{model} 读入的所有 id 都是 {value:.0f}：对它来说每个词都一样",
            ),
        },
        dict.fromkeys(
            ("numbers", "ids"),
            ("shape {shape}; in {count} of {of} steps", "形状 {shape}；在 {of} 步中的 {count} 步"),
        ),
        (
            "Look at the data before the model: an integer division, a scale that is applied twice, an unknown vocabulary",
            "检查进入模型之前的数据：整数除法、重复的缩放、未知的词表",
        ),
        (
            "States that begin at 0 and change in further calls of the step, and inputs beside others that differ.",
            "从 0 开始、并在同一步的后续调用中变化的状态，以及与其他不同输入一同给出的输入。",
        ),
        frozenset(("loss-stays", "loss-constant", "zero-gradient", "batch-repeated", "equal-units")),
        5,
    ),
    Rule(
        "samples-empty",
        "data",
        ("loss_functions.empty",),
        without_content,
        {
            "empty": (
                "{share:.0%} of the samples have no content, one value everywhere, but targets that differ",
                "{share:.0%} 的样本没有内容 (处处同一个值)，目标却各不相同",
            )
        },
        {
            "empty": (
                "in {steps} steps; of those samples, at most {usual:.0%} have the same target",
                "{steps} 步；这些样本中至多 {usual:.0%} 有相同的目标",
            )
        },
        (
            "Look at samples as the model is given them: files that could not be read, crops beside the content, an augmentation"
            " that removes everything",
            "查看模型实际得到的样本：无法读取的文件、裁剪到内容之外、抹去一切的数据增强",
        ),
        (
            "Samples whose targets are the same or ignored, inputs beside others, and vectors of features.",
            "目标相同或被忽略的样本、与其他输入一同给出的输入，以及特征向量。",
        ),
        frozenset(("loss-stays",)),
        9,
    ),
    Rule(
        "batch-repeated",
        "data",
        ("calls", "steps"),
        repeated,
        {
            "same": (
                "{model} sees the same batch in each of {steps} steps, while its loader has {batches}",
                "{model} 在 {steps} 步中每一步看到的都是同一批次，而加载器有 {batches} 个批次",
            )
        },
        {},
        (
            "Iterate over the loader: next(iter(loader)) in the loop begins anew each time",
            "遍历加载器：循环中的 next(iter(loader)) 每次都重新开始",
        ),
        (
            "Trainings without a loader, which may learn one batch by heart on purpose.",
            "没有加载器、可能有意记住一个批次的训练。",
        ),
        frozenset(("loss-stays",)),
        10,
    ),
    Rule(
        "stream-repeated",
        "data",
        ("calls", "steps.workers"),
        read_by_each_worker,
        {
            "workers": (
                "{model} is given each batch {workers} times in a row: each of the {workers} processes of the loader reads the"
                " whole stream",
                "{model} 连续 {workers} 次得到同一批次：加载器的 {workers} 个进程各自读取整个数据流",
            )
        },
        {"workers": ("{blocks} batches were compared", "比较了 {blocks} 个批次")},
        (
            "Let each process read a part of it: torch.utils.data.get_worker_info() in __iter__ of the IterableDataset",
            "让每个进程只读取一部分：在 IterableDataset 的 __iter__ 中使用 torch.utils.data.get_worker_info()",
        ),
        (
            "Streams that are shuffled otherwise in each process, and batches that are used several times without one.",
            "各进程打乱方式不同的数据流，以及没有多个进程时重复使用的批次。",
        ),
        frozenset(("batch-repeated", "loss-stays")),
        10,
    ),
    Rule(
        "generator-copied",
        "data",
        ("generators",),
        copied_generators,
        {
            "workers": (
                "Each of the {workers} processes of the loader draws the same numbers: they have copies of {name}",
                "加载器的 {workers} 个进程抽取相同的随机数：它们各有 {name} 的一份副本",
            ),
            "epochs": (
                "The loader draws the same numbers in each epoch: its process begins with a copy of {name} each time",
                "加载器在每个 epoch 抽取相同的随机数：它的进程每次都从 {name} 的副本开始",
            ),
        },
        dict.fromkeys(
            ("workers", "epochs"),
            (
                "a {type} that {used_in} uses; the loader has no worker_init_fn",
                "{used_in} 使用的 {type}；加载器没有 worker_init_fn",
            ),
        ),
        (
            "Seed it in each process: a worker_init_fn, or torch.initial_seed() where it is first used; or draw from torch",
            "在每个进程中设置种子：使用 worker_init_fn，或在首次使用处用 torch.initial_seed()；或用 torch 抽取",
        ),
        (
            "Generators of libraries, those that the data set seeds itself, and those of NumPy and random as a whole, which PyTorch"
            " seeds.",
            "库中的生成器、数据集自行设置种子的生成器，以及由 PyTorch 设置种子的 NumPy 和 random 全局生成器。",
        ),
        frozenset(("stream-repeated", "batch-repeated")),
        9,
    ),
    Rule(
        "channels-last",
        "data",
        ("calls", "layers", "parameters"),
        channels_last,
        {
            "last": (
                "Pictures of shape {shape} have their channels last, and {name} takes their {rows} rows for channels",
                "形状为 {shape} 的图像通道在最后，而 {name} 把它们的 {rows} 行当作通道",
            )
        },
        {},
        (
            "Permute them to (samples, channels, rows, columns): permute(0, 3, 1, 2)",
            "转置为 (样本, 通道, 行, 列)：permute(0, 3, 1, 2)",
        ),
        (
            "Pictures that are not square, and models that permute them before their first convolution.",
            "非正方形图像，以及在第一个卷积之前转置它们的模型。",
        ),
        frozenset(("loss-stays",)),
        12,
    ),
    Rule(
        "pictures-reshaped",
        "data",
        ("layers.mixed",),
        reshaped,
        {
            "mixed": (
                "The pictures that layer {name} is given were reshaped and not permuted: their rows, columns and colours are mixed",
                "层 {name} 得到的图像被 reshape 而不是 permute：它们的行、列和颜色混在一起",
            )
        },
        {
            "mixed": (
                "{share:.0%} of the pictures, in {steps} steps, are smooth only if read as rows, columns, channels",
                "{steps} 步中 {share:.0%} 的图像只有按行、列、通道的顺序读取时才平滑",
            )
        },
        (
            "Use permute(0, 3, 1, 2), or transpose of NumPy, in place of reshape(samples, channels, rows, columns)",
            "用 permute(0, 3, 1, 2) 或 NumPy 的 transpose 代替 reshape(样本, 通道, 行, 列)",
        ),
        (
            "Grey and small pictures, and those of other than three channels.",
            "灰度图像、过小的图像，以及不是三个通道的图像。",
        ),
        frozenset(("loss-stays",)),
        12,
    ),
    Rule(
        "batches-unused",
        "data",
        ("calls", "steps", "losses"),
        unused,
        {
            "last": (
                "{model} is called {calls} times before each update, and only the last output is used: {unused} batches have no"
                " backward pass",
                "每次更新之前 {model} 被调用 {calls} 次，而只用到最后一次的输出：{unused} 个批次没有反向传播",
            )
        },
        {"last": ("in {steps} updates", "{steps} 次更新")},
        (
            "Indent backward() and step() into the loop over the batches, or add up the losses",
            "把 backward() 和 step() 缩进到批次循环中，或把损失相加",
        ),
        ("Calls whose inputs have different shapes, as those that choose actions.", "输入形状不同的调用，如选择动作。"),
        frozenset(("loss-stays",)),
        12,
    ),
    Rule(
        "batch-of-one-class",
        "data",
        ("loss_functions",),
        one_class,
        {
            "sorted": (
                "{share:.0%} of the batches hold one class only: the data are sorted, and not shuffled",
                "{share:.0%} 的批次只含一个类别：数据已排序而未打乱",
            )
        },
        {"sorted": ("{distinct} classes, batches of at least {size}", "{distinct} 个类别，批次大小至少 {size}")},
        ("Shuffle the data (shuffle=True)", "打乱数据 (shuffle=True)"),
        ("", ""),
        frozenset(("loss-stays", *DIVERGENCE, "loss-start")),
        8,
    ),
)
