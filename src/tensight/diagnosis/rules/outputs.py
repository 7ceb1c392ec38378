"""Rules about what a loss function is given: outputs that do not fit it, and targets that do not fit the outputs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.diagnosis.facts import sizes_of
from tensight.diagnosis.findings import Certainty, Finding
from tensight.diagnosis.rule import DIVERGENCE, Rule, Words
from tensight.diagnosis.rules.losses import first_loss, remains
from tensight.diagnosis.rules.passes import function_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

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


def _functions(facts: Facts) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield each loss function with its rows; those of a step that was the only one are left out."""
    by_name: dict[str, list[dict[str, Any]]] = {}
    for name, row in zip(function_names(facts), facts["loss_functions"].rows(), strict=True):
        by_name.setdefault(name, []).append(row)
    for name, rows in by_name.items():
        if len(rows) >= _LEAST_STEPS:
            yield name, rows


def _always(rows: list[dict[str, Any]], fact: str, value: object) -> bool:
    return all(row[fact] == value for row in rows)


def _where(rows: Sequence[Mapping[str, Any]], *, activation: bool = False) -> dict[str, str]:
    # Lines are noted in the first steps of a stage, or in the ones after those.
    lines = [(row["before_line"] if activation else "") or row["line"] for row in rows]
    return {"operator": rows[0]["called"] or rows[0]["function"], "line": next(filter(None, lines), "")}


def _first(row: Mapping[str, Any]) -> str:
    """Return the last function before a loss function, if that is an activation."""
    names = row["before"].split()
    return names[0] if names and names[0] in (*_SQUASHING, "log_softmax", "logsigmoid", "exp", "log") else ""


def _finding(
    rule: str,
    certainty: Certainty,
    rows: list[dict[str, Any]],
    message: str,
    *,
    activation: bool = False,
    **values: object,
) -> Finding:
    row = rows[0]
    described = {
        **row,
        "loss_function": row["called"] or row["function"],
        "activation": _first(row),
        "steps": len(rows),
        **values,
    }
    return Finding(rule, certainty, row["step"], message, described, _where(rows, activation=activation))


def activation_twice(facts: Facts) -> Iterator[Finding]:
    """Find an activation before a loss function that has its own."""
    for _, rows in _functions(facts):
        function, first = rows[0]["function"], _first(rows[0])
        if not all(_first(row) == first for row in rows):
            continue
        if function in ("cross_entropy", "soft_cross_entropy") and first in ("softmax", "sigmoid"):
            yield _finding("activation-twice", "certain", rows, "cross_entropy", activation=True)
        elif function == "bce_with_logits" and first in ("sigmoid", "softmax"):
            yield _finding("activation-twice", "certain", rows, "bce", activation=True)
        elif function == "cross_entropy" and first in ("relu", "tanh"):
            yield _finding("activation-twice", "likely", rows, "clipped", activation=True)
        elif (
            function == "bce"
            and first == "softmax"
            and sorted(row["target_row_sum"] for row in rows)[len(rows) // 2] > 1.01
        ):
            most = max(row["target_row_sum"] for row in rows)
            yield _finding("activation-twice", "certain", rows, "labels", activation=True, most=most)


def wants_probabilities(facts: Facts) -> Iterator[Finding]:
    """Find scores where a loss function expects probabilities, or probabilities where it expects their logarithms."""
    for _, rows in _functions(facts):
        first = _first(rows[0])
        if rows[0]["function"] == "kl_div" and first in ("softmax", "sigmoid"):
            # Where kl_div itself was called, its line is known.
            message = "shares" if any(row["line"] for row in rows) else "product"
            if message == "product" and not all(row["is_alone"] for row in rows):
                # In an overlap, or an expected value, probabilities are multiplied by targets on purpose.
                continue
            yield _finding("no-logarithm", "certain", rows, message, activation=True)
        is_score = rows[0]["function"] == "dice" and not _PROBABILITIES.intersection(rows[0]["before"].split())
        if is_score and not first and all(row["is_of_layer"] for row in rows):
            yield _finding("no-logarithm", "likely", rows, "overlap")
        if rows[0]["function"] not in ("nll_loss", "ctc_loss"):
            continue
        if first in ("softmax", "sigmoid"):
            yield _finding("no-logarithm", "certain", rows, "probabilities", activation=True)
        else:
            masses = [row["row_mass"] for row in rows]
            others = [mass for mass in masses if not math.isnan(mass) and not 0.5 < mass < 2]
            # What ctc_loss computes for its backward pass leads scores towards logarithms of probabilities.
            is_aligned = rows[0]["function"] == "ctc_loss"
            fewest = min(_ENOUGH, len(rows)) if is_aligned else len(rows)
            if first in ("log_softmax", "log", "logsigmoid") or len(others) < fewest:
                continue
            yield _finding("no-logarithm", "certain", rows, "alignment" if is_aligned else "scores")


def one_unit(facts: Facts) -> Iterator[Finding]:
    """Find a cross entropy or a softmax over one class, which is constant."""
    for _, rows in _functions(facts):
        if rows[0]["function"] in ("cross_entropy", "nll_loss") and _always(rows, "classes", 1):
            yield _finding("one-class", "certain", rows, "loss")
        elif _first(rows[0]) in ("softmax", "log_softmax") and _always(rows, "before_size", 1):
            yield _finding("one-class", "certain", rows, "softmax", activation=True)


def wrong_axis(facts: Facts) -> Iterator[Finding]:
    """Find a softmax over another axis than that of the classes."""
    for _, rows in _functions(facts):
        first = _first(rows[0])
        if first not in ("softmax", "log_softmax") or not all(_first(row) == first for row in rows):
            continue
        shape = rows[0]["input_shape"].split("x")
        if rows[0]["function"] in ("nll_loss", "cross_entropy"):
            axis = rows[0]["class_axis"]
            classes = rows[0]["classes"]
            is_wrong = any(row["before_size"] not in (row["classes"], -1) for row in rows) and classes > 1
            is_wrong |= len(shape) == 2 and axis == 1 and _always(rows, "before_axis", 0)
        else:
            # In a table of samples and classes, probabilities are over the classes.
            is_wrong = len(shape) == 2 and _always(rows, "before_axis", 0)
        if is_wrong:
            yield _finding("softmax-axis", "certain", rows, "axis", activation=True)


def out_of_reach(facts: Facts) -> Iterator[Finding]:
    """Find targets that the output cannot reach."""
    for _, rows in _functions(facts):
        if rows[0]["function"] in ("bce", "bce_with_logits"):
            # Targets a little outside are meant, as for the discriminator of a GAN; -1, 2 or 255 are not.
            strange = [row for row in rows if row["target_min"] < -0.5 or row["target_max"] > 1.5]
            if len(strange) >= max(_LEAST_STEPS, 0.5 * len(rows)):
                lowest = min(row["target_min"] for row in strange)
                highest = max(row["target_max"] for row in strange)
                yield _finding("targets-out-of-reach", "certain", rows, "labels", lowest=lowest, highest=highest)
                continue
        if rows[0]["function"] not in (*_REGRESSION, "bce"):
            continue
        first = _first(rows[0])
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
        yield _finding("targets-out-of-reach", certainty, rows, "outside", activation=True, **values)


_REACH = {"sigmoid": "0 … 1", "softmax": "0 … 1", "tanh": "-1 … 1", "relu": "0 … ∞", "exp": "0 … ∞"}


def broadcast(facts: Facts) -> Iterator[Finding]:
    """Find predictions of N values that are compared with N targets as N × N pairs."""
    for _, rows in _functions(facts):
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
            yield _finding("broadcast-in-loss", "certain", rows, "pairs", **values)
            return


def shifted(facts: Facts) -> Iterator[Finding]:
    """Find a language model whose targets are two positions ahead."""
    for _, rows in _functions(facts):
        offsets = [row["offset"] for row in rows if row["offset"] >= 0]
        if len(offsets) < _LEAST_STEPS or len(offsets) < 0.8 * len(rows):
            continue
        if all(offset >= 2 for offset in offsets):
            yield _finding("targets-shifted", "certain", rows, "twice", offset=offsets[0])
        elif all(offset == 0 for offset in offsets) and all(row["hidden_ignored"] > 0 for row in rows):
            share = sum(row["hidden_ignored"] for row in rows) / len(rows)
            yield _finding("targets-shifted", "certain", rows, "visible", share=share)
        elif all(offset == 0 for offset in offsets) and facts["calls"]["is_causal"].any():
            yield _finding("targets-shifted", "likely", rows, "none", offset=0)


def ignored(facts: Facts) -> Iterator[Finding]:
    """Find targets that are ignored all, or of which a class is."""
    for _, rows in _functions(facts):
        if rows[0]["function"] == "ctc_loss":
            blanks = [row["ignored"] for row in rows if row["ignored"] > 0]
            if len(blanks) >= _LEAST_STEPS:
                share = sum(blanks) / len(blanks)
                yield _finding("targets-ignored", "certain", rows, "blank", index=rows[0]["ignored_index"], share=share)
            continue
        if rows[0]["function"] not in ("cross_entropy", "nll_loss"):
            continue
        later = [row["later_ignored"] for row in rows if math.isfinite(row["later_ignored"])]
        if len(later) >= max(_LEAST_STEPS, 0.9 * len(rows)) and min(later) > _LATER:
            yield _finding("targets-ignored", "likely", rows, "later", share=sum(later) / len(later))
            continue
        everything = [row for row in rows if row["ignored"] >= 1]
        if len(everything) >= _LEAST_STEPS and len(everything) >= 0.5 * len(rows):
            yield _finding("targets-ignored", "certain", everything, "all", of=len(rows))
            continue
        index, classes = rows[0]["ignored_index"], rows[0]["classes"]
        share = sum(row["ignored"] for row in rows) / len(rows)
        # Padding is one of many words; one of a few classes is a class.
        is_class = 0 <= index < classes <= 100 and not _is_word(facts, index, classes)
        if is_class and share > 0.5 / classes and not any(row["offset"] >= 0 for row in rows):
            yield _finding("targets-ignored", "likely", rows, "class", index=index, share=share)


def _is_word(facts: Facts, index: int, classes: int) -> bool:
    """Whether a class is an id that the model reads, too, of a vocabulary that the classes are."""
    calls = facts["calls"]
    lowest, highest = calls["input_min"][calls["is_ids"]], calls["input_max"][calls["is_ids"]]
    return bool(((lowest <= index) & (index <= highest) & (highest < classes)).any())


def padding(facts: Facts) -> Iterator[Finding]:
    """Find targets that are padding."""
    for _, rows in _functions(facts):
        # Losses that are not reduced may be masked afterwards.
        shares = [row["padding"] for row in rows if math.isfinite(row["padding"]) and row["reduction"] != "none"]
        if len(shares) >= 3 and min(shares) > 0.15:
            yield _finding("padding-counted", "likely", rows, "counted", share=sum(shares) / len(shares))


def several_labels(facts: Facts) -> Iterator[Finding]:
    """Find a cross entropy over classes whose targets are true for several of them."""
    for _, rows in _functions(facts):
        if rows[0]["function"] != "soft_cross_entropy" or not _always(rows, "target_is_whole", True):
            continue
        sums = [row["target_row_sum"] for row in rows if math.isfinite(row["target_row_sum"])]
        if len(sums) >= 3 and min(sums) > 1.2:
            yield _finding("targets-several", "likely", rows, "several", mean=sum(sums) / len(sums))


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


def ends_ignored(facts: Facts) -> Iterator[Finding]:
    """Find an end token that is never a target, because sequences are filled up with it, and those are ignored."""
    for _, rows in _functions(facts):
        shares = [row["ends_ignored"] for row in rows if math.isfinite(row["ends_ignored"])]
        if len(shares) >= 3 and min(shares) > 0.9:
            yield _finding("end-never-target", "likely", rows, "ignored", share=sum(shares) / len(shares))


def one_target(facts: Facts) -> Iterator[Finding]:
    """Find a single class that is the target of every sample of every batch."""
    groups = facts["groups"]
    if len(set(groups["optimizer"].tolist())) > 1:
        # The networks of a GAN are given one class each.
        return
    functions = list(_functions(facts))
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
            yield _finding("targets-of-one-class", "certain", rows, "pairs", **values)
        elif rows[0]["is_of_layer"] or _first(rows[0]):
            yield _finding("targets-of-one-class", "likely", rows, "single", **values)


def collapsed(facts: Facts) -> Iterator[Finding]:
    """Find outputs that no longer differ between samples, because the loss is a distance of two outputs and no more."""
    functions = list(_functions(facts))
    for _, compared in functions:
        alignments = [row["alignment"] for row in compared if math.isfinite(row["alignment"])]
        if len(alignments) < _MANY or min(alignments[-_ENOUGH:]) < _ALIGNED:
            continue
        # Targets that are the same from the first step on are meant so.
        if alignments[0] < 1 - 2 * (1 - _ALIGNED) and all(row["factor"] < 0 for row in compared):
            aligned = {"before": alignments[0], "after": alignments[-1]}
            yield _finding("outputs-collapse", "likely", compared, "directions", **aligned)
            return
    _, values = first_loss(facts)
    table = facts["calls"]
    if len(functions) != 1 or len(values) < _MANY or not (values > 0).all():
        return
    _, rows = functions[0]
    is_distance = rows[0]["function"] in (*_REGRESSION, "kl_div") and _always(rows, "is_alone", True)
    has_fallen = float(values[-5:].mean()) < 0.1 * float(values[:5].mean())
    if not is_distance or not _always(rows, "is_of_outputs", True) or not has_fallen:
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
        yield _finding("outputs-collapse", "likely", rows, "distance", model=name, before=before, after=after, last=end)


def outside_of_classes(facts: Facts) -> Iterator[Finding]:
    """Find classes that are not used as they are numbered: 1 … n in place of 0 … n - 1."""
    for _, rows in _functions(facts):
        if rows[0]["function"] not in ("cross_entropy", "nll_loss") or len(rows) < 5:
            continue
        classes = rows[0]["classes"]
        # Of words, one may stand for those that are to be restored.
        is_of_words = any(row["offset"] >= 0 for row in rows) or _is_word(facts, 0, classes) or _is_of_each(facts, rows)
        if not 3 <= classes <= 1000 or is_of_words or rows[0]["ignored_index"] == 0:
            continue
        seen = {int(each) for row in rows for each in row["target_classes"].split()}
        if 0 not in seen and seen == set(range(1, classes)) and _targets_seen(rows) > 20 * classes:
            yield _finding("targets-off-by-one", "likely", rows, "one_based", last=classes - 1)


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
    for _, rows in _functions(facts):
        if rows[0]["function"] != "mse_loss" or not _always(rows, "target_is_whole", True):
            continue
        lowest = min(row["target_min"] for row in rows)
        highest = max(row["target_max"] for row in rows)
        distinct = max(row["target_distinct"] for row in rows)
        is_classes = lowest == 0 and 3 <= highest <= 1000 and distinct >= 4 and distinct >= 0.8 * (highest + 1)
        width = rows[0]["input_shape"].split("x")
        if is_classes and (len(width) == 1 or width[-1] == "1"):
            yield _finding("classes-by-regression", "likely", rows, "classes", highest=int(highest))


def targets_wild(facts: Facts) -> Iterator[Finding]:
    """Find targets of a regression that are orders of magnitude larger than what the model puts out."""
    for _, rows in _functions(facts):
        if rows[0]["function"] not in _REGRESSION or _first(rows[0]):
            continue
        measured = [row for row in rows if math.isfinite(row["target_variance"])]
        if len(measured) < _LEAST_STEPS:
            continue
        spread = math.sqrt(max(row["target_variance"] for row in measured))
        mean = max(abs(row["target_mean"]) for row in measured)
        last = max(abs(measured[-1]["input_max"]), abs(measured[-1]["input_min"]))
        if max(spread, mean) > 100 and last < 0.05 * mean and mean > 5 * spread:
            yield _finding("targets-not-scaled", "likely", rows, "offset", mean=mean, spread=spread, output=last)
        elif spread > 1000 and last < 0.05 * spread:
            yield _finding("targets-not-scaled", "likely", rows, "spread", mean=mean, spread=spread, output=last)
        elif max(spread, mean) > 1000 and any(True for _ in remains(facts)):
            yield _finding("targets-not-scaled", "likely", rows, "stays", mean=mean, spread=spread, output=last)


def _rule(
    id_: str,
    category: str,
    judge: Any,
    message: Mapping[str, tuple[str, str]],
    evidence: Mapping[str, tuple[str, str]],
    advice: tuple[str, str],
    silent: tuple[str, str] = ("", ""),
    rank: int = 10,
    advice_on: Mapping[str, Words] | None = None,
    needs: str = "loss_functions",
) -> Rule:
    explains = frozenset(
        (
            *("loss-stays", "loss-zero", "loss-constant", "zero-gradient", "loss-start", "no-gradient", "loss-sign"),
            *("targets-out-of-reach", "loss-negative", "clipped-away", *DIVERGENCE),
        )
    ) - {id_}
    return Rule(
        *(id_, category, (needs,), judge, message, evidence, advice, silent, explains, rank), advice_on=advice_on or {}
    )


RULES = (
    _rule(
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
    _rule(
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
    _rule(
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
    _rule(
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
    _rule(
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
    _rule(
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
    _rule(
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
                "{share:.0%} of the targets are ignored, each where one id that hides words stands between words",
                "{share:.0%} 的目标被忽略，且都位于词之间用于隐藏的那个 id 处",
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
    _rule(
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
    _rule(
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
    _rule(
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
    _rule(
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
    _rule(
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
    _rule(
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
    _rule(
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
    _rule(
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
    _rule(
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
