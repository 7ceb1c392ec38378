"""Rules about the course of the loss."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tensight.diagnosis.facts import sizes_of
from tensight.diagnosis.findings import MOST_NAMED, Finding, listed
from tensight.diagnosis.rule import DIVERGENCE, Rule
from tensight.diagnosis.rules import logs
from tensight.diagnosis.rules.alike import alike
from tensight.diagnosis.rules.passes import function_names, is_accumulating
from tensight.diagnosis.rules.stages import UPDATES, stage_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tensight.diagnosis.facts import Facts

_NEVER_NEGATIVE = ("cross_entropy", "bce", "bce_with_logits", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
_BOUNDED = (*_NEVER_NEGATIVE, "kl_div", "ctc_loss")
_NO_BETTER = 0.95
"""Share of the loss of a constant prediction that a training should come below."""

_ABOVE_GUESS = 5
"""How many times the loss of a guess a first loss is that takes long to come down; a head made for a relu has four."""

_FEW_CLASSES = 100
"""Number of classes up to which the shares of the classes are learnt in that many steps; those of words take longer."""

_WAY = 0.2
"""Share of the way to the loss of a constant prediction that a training has made that is not given up yet."""

_AT_LAST = 3
"""Minimum number of steps whose losses are compared with that of a constant prediction."""

_AT_IT = 0.002
"""Relative difference of a loss from that of a constant with which nothing but the constant is put out."""

_AT_ONCE = 5
"""Number of steps within which nothing worth learning is learnt."""

_SMOOTHED = 5
"""Number of steps over which a loss is averaged where its lowest place is looked for."""

_LONG = 60
"""Number of steps after which a loss should have begun to fall."""


_NO_CODE = 0.01
"""Divergence of a sample, in nats, with which its code says next to nothing: 1.4 % of what a toss of a coin says."""


def first_loss(facts: Facts) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the steps and values of the first loss; empty if a step has several, which may oppose each other.

    Of several batches whose gradients add up, it is the mean.
    """
    table = facts["losses"]
    if facts.is_log:
        loss = logs.course(facts)
        return (np.zeros(0, np.int64), np.zeros(0)) if loss is None else (loss.steps, loss.values)
    is_single = len(table.names) == 1 or is_accumulating(facts)
    if not len(table) or not is_single or facts["groups"]["maximizes"].any():
        return np.zeros(0, np.int64), np.zeros(0)
    steps, panel, present = table.steps, table.panel("value"), table.present()
    values = np.where(present, panel, 0).sum(1) / present.sum(1)
    begins = steps >= stage_of(facts)
    return steps[begins], values[begins]


def _optimizers(facts: Facts) -> int:
    return len(set(facts["groups"]["optimizer"].tolist()))


def _constant(facts: Facts) -> Iterator[Finding]:
    """Yield a finding about a loss that is exactly the same in every step."""
    steps, values = first_loss(facts)
    if len(values) < 5 or not np.isfinite(values).all():
        return
    line = facts.loss_line
    since = int(np.flatnonzero(values)[-1]) + 1 if values.any() else 0
    if since and len(values) - since >= _LONG and steps[since] - steps[0] <= _AT_ONCE:
        described = {"value": float(values[0]), "steps": len(values) - since, "step": int(steps[since])}
        yield Finding("loss-zero", "certain", int(steps[since]), "at_once", described, {"line": line})
        return
    if (values != values[0]).any() or (values[0] != 0 and _is_of_one_batch(facts)):
        return
    if _is_surrogate(facts):
        return
    message = "zero" if values[0] == 0 else "constant"
    rule = "loss-zero" if values[0] == 0 else "loss-constant"
    yield Finding(
        rule, "certain", int(steps[0]), message, {"value": float(values[0]), "steps": len(values)}, {"line": line}
    )


def _is_surrogate(facts: Facts) -> bool:
    """Whether gradients differ though the loss does not: its value is not what is learnt.

    A ratio of probabilities, for example, is 1 before the first update of a batch.
    """
    groups = facts["groups"]
    repeated = groups["is_repeated"][groups["step"] > groups.steps[:1]]
    return bool((facts["parameters"]["gradient"] > 1).any()) and not (len(repeated) and repeated.mean() > 0.5)


def _is_of_one_batch(facts: Facts) -> bool:
    """Whether the inputs are the same in each step: the loss is then, if no weight changes."""
    prints = facts["calls"]["fingerprint"]
    prints = prints[prints != 0]
    return len(prints) > 1 and len(set(prints.tolist())) == 1


def zero(facts: Facts) -> Iterator[Finding]:
    """Find a loss that is exactly 0 from the first steps on."""
    return (finding for finding in facts.derived(_constant) if finding.rule == "loss-zero")


def not_zero(facts: Facts) -> Iterator[Finding]:
    """Find a loss that is the same number in every step, and not 0."""
    return (finding for finding in facts.derived(_constant) if finding.rule == "loss-constant")


def sign(facts: Facts) -> Iterator[Finding]:
    """Find a loss function that is negated: it is maximised."""
    table = facts["loss_functions"]
    if not len(table) or _optimizers(facts) > 1:
        return
    names, losses = function_names(facts), facts["losses"]
    is_single = len(losses.names) == 1 or is_accumulating(facts)
    if len(set(names)) > 1 or not is_single or len(set(table["step"].tolist())) < UPDATES:
        return
    maximizes = bool(facts["groups"]["maximizes"].any())
    direction = -1 if maximizes else 1
    factors, values = direction * table["factor"], direction * losses["value"]
    function, line = str(table["function"][0]), str(table["line"][0])
    is_likelihood = function == "log_likelihood"
    wrong = factors > 0 if is_likelihood else factors < 0
    if not wrong.all() or not (is_likelihood or function in _NEVER_NEGATIVE) or not (values <= 0).all():
        return
    described = {"function": function, "first": float(losses["value"][0]), "last": float(losses["value"][-1])}
    where = {"operator": function, "line": line}
    message = "maximized" if maximizes else "likelihood" if is_likelihood else "negated"
    yield Finding("loss-sign", "certain", int(table["step"][0]), message, described, where)


def maximized_divergence(facts: Facts) -> Iterator[Finding]:
    """Find a divergence of a normal distribution that is subtracted from the loss: it has no upper bound."""
    table = facts["loss_functions"]
    if not len(table) or _optimizers(facts) > 1 or facts["groups"]["maximizes"].any():
        return
    rows = table["function"] == "gaussian_kl"
    factors = table["factor"][rows]
    if len(set(table["step"][rows].tolist())) < 3 or not (factors < 0).all():
        return
    line = facts.loss_line
    step, losses = int(table["step"][rows][0]), facts["losses"]["value"]
    values = {"factor": float(factors[0]), "first": float(losses[0]), "last": float(losses[-1])}
    where = {"operator": "kl divergence, sub, mean", "line": line}
    yield Finding("divergence-maximized", "likely", step, "subtracted", values, where)


def without_code(facts: Facts) -> Iterator[Finding]:
    """Find variational autoencoders whose code is the same for all samples but for noise: the divergence has won."""
    table = facts["loss_functions"]
    rows = (table["function"] == "gaussian_kl") & np.isfinite(table["divergence"]) & (table["factor"] > 0)
    values, steps = table["divergence"][rows], table["step"][rows]
    if not len(values) or steps[-1] < _LONG:
        return
    # At first it may be small, as long as nothing has been learnt, or because its weight begins at 0.
    later = values[steps > steps[-1] / 2]
    if len(later) < _SMOOTHED or float(later.max()) > _NO_CODE:
        return
    described = {"value": float(later[-1]), "first": float(values[0]), "factor": float(table["factor"][rows][-1])}
    since = (
        int(steps[len(values) - int(np.argmax(values[::-1] > _NO_CODE))])
        if (values > _NO_CODE).any()
        else int(steps[0])
    )
    drawn = facts["steps"].last("drawn_line").get("step", "")
    where = {"operator": "normal" if drawn else "kl divergence", "line": drawn or facts.loss_line}
    message = "drawn" if drawn else "unused"
    yield Finding("code-unused", "likely", since, message, described | {"line": drawn}, where)


def negative(facts: Facts) -> Iterator[Finding]:
    """Find a loss below 0 that its function cannot be if it is given what it expects."""
    table, losses = facts["loss_functions"], facts["losses"]
    if not len(table) or (len(losses.names) > 1 and not is_accumulating(facts)):
        return
    keys = zip(losses["step"].tolist(), losses["name"].tolist(), strict=True)
    values_of = dict(zip(keys, losses["value"].tolist(), strict=True))
    rows = [row for row in table.rows() if row["is_alone"] and row["function"] in _BOUNDED and row["factor"] > 0]
    # Other differences are computed as kl_div is, but without its logarithm, whose line would be known.
    rows = [row for row in rows if row["function"] != "kl_div" or row["line"]]
    below = [row for row in rows if values_of.get((row["step"], row["loss"]), 0.0) < -1e-6]
    if len(below) < 3 or len(below) < 0.5 * len(rows):
        return
    row = below[0]
    values = {
        "function": row["function"],
        "value": values_of[row["step"], row["loss"]],
        "count": len(below),
        "of": len(rows),
    }
    where = {"operator": row["function"], "line": row["line"]}
    yield Finding("loss-negative", "certain", int(row["step"]), "negative", values, where)


def of_nothing(facts: Facts) -> Iterator[Finding]:
    """Find a loss that is a mean over nothing, which is NaN, or that has such a term."""
    table = facts["losses"]
    bad = ~np.isfinite(table["value"])
    steps = set(table["step"][bad].tolist())
    terms = [
        row
        for row in facts["loss_functions"].rows()
        if row["step"] in steps and not row["is_alone"] and 0 in sizes_of(row["input_shape"])
    ]
    # A loss that is NaN from some step on has another reason.
    if terms and len({row["step"] for row in terms}) == len(steps) < len(set(table["step"].tolist())):
        values = {**terms[0], "count": len(steps)}
        where = {"operator": terms[0]["function"], "line": terms[0]["line"]}
        yield Finding("mean-over-nothing", "certain", int(terms[0]["step"]), "term", values, where)
        return
    empty = (table["elements"] == 0) & bad
    if not empty.any():
        return
    at = int(np.flatnonzero(empty)[0])
    step = int(table["step"][at])
    values = {"step": step, "count": int(empty.sum()), "of": len(empty)}
    yield Finding("mean-over-nothing", "certain", step, "empty", values, {"line": str(table["line"][at])})


def start(facts: Facts) -> Iterator[Finding]:
    """Find a loss that begins orders of magnitude above that of a guess, because the first outputs are too large."""
    table = facts["loss_functions"]
    losses = facts["losses"]
    if not len(table) or not len(losses):
        return
    row = next(iter(table.rows()))
    if any(file["is_given"] and file["equal"] > 0 for file in facts["files"].rows()):
        # Weights that were trained for other classes are sure of these.
        return
    # Of several batches, each loss is divided by their number.
    value = float(losses["value"][0]) / (abs(row["factor"]) if row["is_alone"] and row["factor"] else 1.0)
    # Cosines with a temperature, as of faces, are far apart from the start on.
    is_of_weights = row["is_of_layer"] or "loss_functions.is_of_layer" in facts.absent
    if not is_of_weights or not math.isfinite(value) or row["reduction"] not in ("mean", ""):
        return
    deviation, message, guess = row["input_deviation"], "", math.nan
    if row["function"] == "cross_entropy" and row["classes"] >= 2:
        guess = math.log(row["classes"])
        message = "large" if value >= _ABOVE_GUESS * guess and deviation >= 2 * guess else ""
    elif row["function"] == "bce_with_logits" and 0 <= row["target_min"] <= row["target_max"] <= 1:
        guess = math.log(2)
        message = "labels" if value >= 4 * guess and deviation >= 10 else ""
    elif row["function"] == "mse_loss" and len(set(function_names(facts))) == 1 and row["is_alone"]:
        guess = row["target_variance"] + row["target_mean"] ** 2
        message = "numbers" if guess > 0 and value > 100 * guess and deviation > 10 * math.sqrt(guess) else ""
    if not message:
        return
    values = {"value": value, "guess": guess, "classes": row["classes"], "deviation": deviation}
    layers = listed(facts["layers"].names, MOST_NAMED)
    where = {"operator": row["function"], "line": row["line"], "module": layers}
    yield Finding("loss-start", "likely", int(row["step"]), message, values, where)


def _stays(facts: Facts) -> Iterator[Finding]:
    """Yield a finding about a loss that is no better at the end than a constant prediction, or than at its start."""
    steps, values = first_loss(facts)
    if len(values) < _LONG or not np.isfinite(values).all() or _optimizers(facts) > 1:
        return
    constant, message = constant_predictions(facts)
    count = max(len(values) // 5, 10)
    first, last = values[:count], values[-count:]
    noise = float(np.hypot(first.std(), last.std()) / math.sqrt(count)) or 1e-12
    mean_first, mean_last = float(first.mean()), float(last.mean())
    fallen = (mean_first - mean_last) / noise
    line = facts.loss_line
    described = {"first": mean_first, "last": mean_last, "steps": int(steps[-1]), "begin": float(values[0])}
    if mean_last > 2 * mean_first > 0 and -fallen > 3 and has_fixed_targets(facts):
        halves = last[: count // 2], last[count // 2 :]
        spread = float(np.hypot(halves[0].std(), halves[1].std()) / math.sqrt(count // 2))
        # After a jump from which it recovers, it falls.
        if halves[0].mean() - halves[1].mean() <= 3 * spread:
            lowest = int(np.convolve(values, np.full(_SMOOTHED, 1 / _SMOOTHED), "valid").argmin()) + _SMOOTHED // 2
            yield Finding("loss-rises", "likely", int(steps[lowest]), "rises", described, {"line": line})
        return
    if _is_warming_up(facts):
        return
    # Targets differ from step to step, and may grow: only losses of the same steps are compared.
    of_both = [
        (value, constant[step])
        for step, value in zip(steps.tolist(), values.tolist(), strict=True)
        if step in constant and step > steps[-1] / 2
    ]
    if len(of_both) < _AT_LAST:
        guess = guess_of_classes(facts)
        # A loss that begins lower than that of a guess is of a model that has learnt before.
        is_guess = abs(mean_first - guess) < 0.1 * guess and mean_last > 0.98 * max(mean_first, guess)
        is_at_it = bool(np.abs(values[len(values) // 2 :] - guess).max() < _AT_IT * guess)
        is_long = len(values) >= (_LONG if is_at_it else 2 * _LONG)
        if is_guess and fallen < 3 and is_long and _full_rates(facts) >= _LONG:
            described["classes"] = int(facts["loss_functions"]["classes"][0])
            yield Finding("loss-stays", "likely", int(steps[0]), "start", described | {"guess": guess}, {"line": line})
        return
    value, baseline = np.mean(of_both, 0).tolist()
    limit = (_NO_BETTER if len(values) >= 2 * _LONG else 0.98) * baseline
    is_way_made = mean_first - mean_last > _WAY * (mean_first - baseline) and fallen > 3
    # What took long to learn a constant takes longer to learn more, unless it does not leave the constant at all.
    is_at_it = abs(value - baseline) < _AT_IT * baseline and abs(mean_last - baseline) < _AT_IT * baseline
    if is_way_made:
        reached = int(steps[values <= (1 + 2 * _AT_IT) * baseline][0]) if is_at_it else _reached(steps, values, last)
        if steps[-1] < (2 if is_at_it else 3) * reached:
            return
    else:
        reached = int(steps[0])
    if baseline > 0 and value > limit and mean_last > limit:
        described |= {"last": value, "baseline": baseline, "count": len(of_both)}
        yield Finding("loss-stays", "likely", reached, message, described, {"line": line})


def guess_of_classes(facts: Facts) -> float:
    """Return what the loss of a guess is that gives each class the same probability; NaN if that is unknown."""
    table = facts["loss_functions"]
    if (
        len(set(function_names(facts))) != 1
        or not table["is_alone"].all()
        or set(table["reduction"].tolist()) != {"mean"}
    ):
        return math.nan
    classes = int(table["classes"][0])
    is_of_classes = table["function"][0] in ("cross_entropy", "nll_loss") and classes >= 2
    return math.log(classes) * abs(float(table["factor"][0])) if is_of_classes else math.nan


def _is_warming_up(facts: Facts) -> bool:
    """Whether the learning rate has risen to the end, and has been near its highest value for a while only."""
    rates = facts["rates"]
    if not len(rates):
        return False
    is_full = rates["rate"] >= 0.5 * rates["rate"].max()
    return bool(is_full[-1] and not is_full[0]) and len(set(rates["step"][is_full].tolist())) < 2 * _LONG


def _full_rates(facts: Facts) -> int:
    """Return in how many steps a learning rate was at least half of its highest value, or of that of its scheduler."""
    rates = facts["rates"]
    if not len(rates):
        return 0
    highest = np.nanmax([rates["rate"].max(), rates["initial_rate"].max()])
    is_full = (rates["rate"] >= 0.5 * highest) & (rates["rate"] > 0)
    return len(set(rates["step"][is_full].tolist()))


def _reached(steps: NDArray[np.int64], values: NDArray[np.float64], last: NDArray[np.float64]) -> int:
    """Return the step in which a loss came to where it is at last, within its noise."""
    smooth = np.convolve(values, np.full(_AT_ONCE, 1 / _AT_ONCE), "valid")
    is_there = smooth <= last.mean() + 2 * last.std() / math.sqrt(_AT_ONCE)
    return int(steps[int(np.argmax(is_there))]) if is_there.any() else int(steps[-1])


def rises(facts: Facts) -> Iterator[Finding]:
    """Find a loss that rises."""
    return (finding for finding in facts.derived(_stays) if finding.rule == "loss-rises")


def remains(facts: Facts) -> Iterator[Finding]:
    """Find a loss that does not fall, or no further than that of an output that is the same for every sample."""
    findings = tuple(facts.derived(_stays))
    yield from (finding for finding in findings or alike(facts) if finding.rule == "loss-stays")


def has_fixed_targets(facts: Facts) -> bool:
    """Whether the targets of the loss are data: those that are computed, as in reinforcement learning, may grow."""
    table = facts["loss_functions"]
    functions = set(table["function"].tolist())
    if len(set(function_names(facts))) != 1:
        return False
    if functions & {"cross_entropy", "nll_loss", "bce", "bce_with_logits"}:
        return True
    calls = facts["calls"]
    variance = table["target_variance"]
    is_stable = (
        bool(np.isfinite(variance).all()) and float(variance.max()) < 4 * float(np.median(variance[:10])) + 1e-12
    )
    return is_stable and not (calls["calls"] > calls["with_gradients"]).any()


def class_counts(facts: Facts) -> list[dict[str, int]]:
    """Return how often each class is a target, for each row of ``loss_functions``."""
    table = facts["loss_functions"]
    return [
        {each: int(amount) for each, amount in zip(classes.split(), amounts.split(), strict=False)}
        for classes, amounts in zip(table["target_classes"].tolist(), table["target_counts"].tolist(), strict=True)
    ]


def constant_predictions(facts: Facts) -> tuple[dict[int, float], str]:
    """Return by step what a loss would be if the best constant was predicted in all steps, and what that is."""
    table = facts["loss_functions"]
    if (
        len(set(function_names(facts))) != 1
        or not table["is_alone"].all()
        or set(table["reduction"].tolist()) != {"mean"}
    ):
        return {}, ""
    function = str(table["function"][0])
    steps, factors = table["step"], np.abs(table["factor"])
    is_weighted = bool(np.isfinite(table["weightless"]).any())
    means, variances = table["target_mean"], table["target_variance"]
    if function == "cross_entropy" and not is_weighted:
        counts = class_counts(facts)
        total: dict[str, int] = {}
        for of_step in counts:
            for each, amount in of_step.items():
                total[each] = total.get(each, 0) + amount
        amount = sum(total.values())
        # Of few targets, not all classes are seen.
        if amount < 50 * max(len(total), 1) or len(total) > _FEW_CLASSES:
            return {}, ""
        costs = {each: -math.log(seen / amount) for each, seen in total.items()}
        losses = np.array(
            [
                sum(seen * costs[each] for each, seen in of_step.items()) / (sum(of_step.values()) or math.nan)
                for of_step in counts
            ]
        )
        message = "classes"
    elif function in ("bce", "bce_with_logits") and not is_weighted:
        share = float(np.nanmean(means)) if np.isfinite(means).any() else math.nan
        is_label = table["target_min"].min() >= 0 and table["target_max"].max() <= 1 and table["target_is_whole"].all()
        if not is_label or not 0 < share < 1:
            return {}, ""
        losses = -means * math.log(share) - (1 - means) * math.log(1 - share)
        message = "labels"
    elif function == "mse_loss" and np.isfinite(means).any():
        losses = variances + (means - np.nanmean(means)) ** 2
        message = "mean"
    elif function == "triplet":
        losses, message = table["margin"], "margin"
    else:
        return {}, ""
    by_step: dict[int, list[float]] = {}
    for step, loss in zip(steps.tolist(), (losses * factors).tolist(), strict=True):
        by_step.setdefault(step, []).append(loss)
    of_steps = {step: sum(of_step) / len(of_step) for step, of_step in by_step.items()}
    return {step: loss for step, loss in of_steps.items() if math.isfinite(loss)}, message


_SILENT = (
    "Trainings with several losses or several optimizers, whose losses may oppose each other.",
    "有多个损失或多个优化器的训练，其损失可能相互对抗。",
)

RULES = (
    Rule(
        "loss-zero",
        "loss",
        ("losses",),
        zero,
        {
            "zero": ("The loss is exactly 0 in every step", "损失在每一步都恰为 0"),
            "at_once": (
                "The loss is exactly 0 from step {step} on: nothing is learnt after that",
                "损失从第 {step} 步起恰为 0：此后学不到任何东西",
            ),
            "logged": (
                "The loss is logged as 0 from step {step} on, and was {before:.4g} just before",
                "日志中的损失从第 {step} 步起为 0，此前为 {before:.4g}",
            ),
        },
        {
            "zero": ("in {steps} of {read} steps that were read", "在读取的 {read} 步中有 {steps} 步"),
            "at_once": (
                "it was {value:.4g} in the first step, and 0 in {steps} of {read} steps that were read",
                "第一步为 {value:.4g}，在读取的 {read} 步中有 {steps} 步为 0",
            ),
            "logged": (
                "in {steps} entries; some trainers leave out losses that are NaN, and print 0",
                "共 {steps} 条记录；有些训练器会跳过 NaN 的损失并打印 0",
            ),
        },
        (
            "Look at what it is computed from: all targets ignored, a mask that covers all, one class",
            "检查它的来源：目标全被忽略、掩码覆盖一切、只有一个类别",
        ),
        _SILENT,
        frozenset(("zero-gradient", "loss-stays")),
        20,
        of_log=logs.zero,
    ),
    Rule(
        "loss-constant",
        "loss",
        ("losses",),
        not_zero,
        {
            "constant": (
                "The loss is {value:.6g} in every step, to the last bit",
                "损失在每一步都是 {value:.6g}，逐位相同",
            ),
            "logged": (
                "The loss is {value:.6g} in all entries of the log",
                "日志中所有记录的损失都是 {value:.6g}",
            ),
            "stuck": (
                "The loss is {value:.6g} in all entries from step {step} on, after an abrupt change",
                "损失在突变之后，从第 {step} 步起的所有记录中都是 {value:.6g}",
            ),
            "repeats": (
                "The losses of the first {period} entries repeat exactly from step {step} on: no weight changes",
                "前 {period} 条记录的损失从第 {step} 步起完全重复：没有权重在变化",
            ),
        },
        {
            "constant": ("in {steps} of {read} steps that were read", "在读取的 {read} 步中有 {steps} 步"),
            **dict.fromkeys(("logged", "stuck", "repeats"), ("{steps} entries", "共 {steps} 条记录")),
        },
        (
            "Look for what it does not depend on: the batch, the weights, or an output that saturates",
            "查找它不依赖的东西：批次、权重，或已饱和的输出",
        ),
        (
            "Losses whose gradients differ from step to step: a ratio of probabilities, whose value is not what is learnt; and"
            " trainings on one batch, whose loss is the same if no weight changes.",
            "梯度逐步不同的损失：如概率之比，其值并非学习的目标；以及只有一个批次的训练，权重不变则损失不变。",
        ),
        frozenset(("loss-stays", "zero-gradient")),
        22,
        of_log=logs.constant,
    ),
    Rule(
        "loss-sign",
        "loss",
        ("loss_functions", "losses"),
        sign,
        {
            "negated": (
                "{function} is negated before the backward pass: the training maximises it",
                "{function} 在反向传播之前被取负：训练在使其最大化",
            ),
            "maximized": (
                "The optimizer raises the loss (maximize=True), and that is {function}",
                "优化器在增大损失 (maximize=True)，而它是 {function}",
            ),
            "likelihood": (
                "The loss is a mean of logarithms of probabilities without a minus: the training minimises the likelihood",
                "损失是对数概率的平均而没有负号：训练在使似然最小化",
            ),
        },
        {
            "negated": (
                "the loss is {first:.4g} at first and {last:.4g} at last",
                "损失起初为 {first:.4g}，最后为 {last:.4g}",
            )
        },
        ("Remove the minus, unless this loss is meant to grow", "去掉负号，除非这个损失本应增大"),
        _SILENT,
        frozenset(("loss-stays", *DIVERGENCE)),
        5,
    ),
    Rule(
        "code-unused",
        "loss",
        ("loss_functions",),
        without_code,
        {
            "unused": (
                "The code of the autoencoder says nothing about a sample: its divergence from the normal distribution is"
                " {value:.2g}",
                "自编码器的编码不含样本的任何信息：其与正态分布的散度为 {value:.2g}",
            ),
            "drawn": (
                "The code of the autoencoder is drawn by a function without a gradient ({line}): its encoder learns from the"
                " divergence alone",
                "自编码器的编码由没有梯度的函数抽取 ({line})：其编码器只从散度中学习",
            ),
        },
        {
            "unused": (
                "it was {first:.2g} at first; what is put out is made of noise alone",
                "起初为 {first:.2g}；输出完全由噪声产生",
            ),
            "drawn": (
                "the divergence is {value:.2g} at last, {first:.2g} at first: the code says nothing about a sample",
                "散度最后为 {value:.2g}，起初为 {first:.2g}：编码不含样本的任何信息",
            ),
        },
        (
            "Weigh both terms alike: sum the error over the features as the divergence is summed over the code, or let the"
            " weight of the divergence rise from 0",
            "使两项的权重一致：像散度在编码上求和那样，误差也在特征上求和；或让散度的权重从 0 开始上升",
        ),
        (
            "Divergences from a distribution that is learnt, too, and those that are small only at first.",
            "与同样被学习的分布之间的散度，以及只在开始时很小的散度。",
        ),
        frozenset(("loss-stays",)),
        25,
        advice_on={
            "drawn": (
                "Draw noise and scale it: mean + deviation * torch.randn_like(deviation), or Normal(mean, deviation).rsample()",
                "抽取噪声再缩放：mean + deviation * torch.randn_like(deviation)，或 Normal(mean, deviation).rsample()",
            )
        },
    ),
    Rule(
        "divergence-maximized",
        "loss",
        ("loss_functions", "losses"),
        maximized_divergence,
        {
            "subtracted": (
                "The divergence from the normal distribution is subtracted from the loss: the training maximises it, and it has"
                " no upper bound",
                "损失中减去了与正态分布的散度：训练在使其最大化，而它没有上界",
            )
        },
        {
            "subtracted": (
                "its factor is {factor:.3g}; the loss is {first:.4g} at first and {last:.4g} at last",
                "其系数为 {factor:.3g}；损失起初为 {first:.4g}，最后为 {last:.4g}",
            )
        },
        ("Add it: loss = reconstruction + beta * divergence", "应相加：loss = reconstruction + beta * divergence"),
        _SILENT,
        frozenset(("loss-stays", *DIVERGENCE)),
        10,
    ),
    Rule(
        "loss-negative",
        "loss",
        ("loss_functions", "losses"),
        negative,
        {
            "negative": (
                "{function} is {value:.4g}, and cannot be below 0 if it is given what it expects",
                "{function} 为 {value:.4g}，而若输入符合要求它不可能小于 0",
            )
        },
        {"negative": ("in {count} of {of} steps", "{of} 步中的 {count} 步")},
        (
            "kl_div and ctc_loss expect logarithms of probabilities (log_softmax), kl_div targets that sum to 1, and binary"
            " cross entropies targets of 0 … 1",
            "kl_div 和 ctc_loss 需要对数概率 (log_softmax)，kl_div 需要和为 1 的目标，二元交叉熵需要 0 … 1 的目标",
        ),
        ("Losses with further terms.", "含有其他项的损失。"),
        frozenset(("loss-stays", *DIVERGENCE)),
        18,
    ),
    Rule(
        "mean-over-nothing",
        "loss",
        ("losses",),
        of_nothing,
        {
            "empty": (
                "The loss of step {step} is a mean over nothing, and so NaN",
                "第 {step} 步的损失是对空集求平均，因此为 NaN",
            ),
            "term": (
                "{function} is a mean over nothing in step {step}, which makes the loss NaN",
                "第 {step} 步中 {function} 对空集求平均，使损失为 NaN",
            ),
        },
        {
            "empty": ("in {count} of {of} backward passes", "{of} 次反向传播中的 {count} 次"),
            "term": (
                "it was given {input_shape}; in {count} of {read} steps that were read",
                "其输入为 {input_shape}；在读取的 {read} 步中有 {count} 步",
            ),
        },
        (
            "Leave out such batches, or divide by max(count, 1)",
            "跳过这样的批次，或除以 max(count, 1)",
        ),
        ("Means of which nothing is known, as those of compiled code.", "一无所知的平均，如编译后的代码。"),
        frozenset(("loss-stays", *DIVERGENCE, "zero-gradient", "updates-skipped")),
        4,
    ),
    Rule(
        "loss-start",
        "initialization",
        ("loss_functions", "losses"),
        start,
        {
            "large": (
                "The loss begins at {value:.4g}; guessing among {classes} classes gives {guess:.3g}: the first outputs are too"
                " large",
                "损失从 {value:.4g} 开始；在 {classes} 个类别中猜测只有 {guess:.3g}：最初的输出过大",
            ),
            "labels": (
                "The loss begins at {value:.4g}; a guess gives {guess:.3g}: the first outputs are too large",
                "损失从 {value:.4g} 开始；猜测只有 {guess:.3g}：最初的输出过大",
            ),
            "numbers": (
                "The loss begins at {value:.4g}; putting out 0 gives {guess:.3g}: the first outputs are too large",
                "损失从 {value:.4g} 开始；输出 0 只有 {guess:.3g}：最初的输出过大",
            ),
        },
        {
            "large": (
                "the standard deviation of the log-probabilities is {deviation:.3g}",
                "对数概率的标准差为 {deviation:.3g}",
            ),
            **dict.fromkeys(
                ("labels", "numbers"),
                ("the standard deviation of the outputs is {deviation:.3g}", "输出的标准差为 {deviation:.3g}"),
            ),
        },
        (
            "Check the initialization (a deviation that grows with depth or width), and whether weights were loaded",
            "检查初始化 (随深度或宽度增大的标准差)，以及权重是否已加载",
        ),
        ("Models whose weights were read from a file.", "权重从文件读取的模型。"),
        frozenset(("loss-stays", "clipped-away")),
        30,
    ),
    Rule(
        "loss-rises",
        "loss",
        ("losses",),
        rises,
        {
            "rises": (
                "The loss rises: {first:.4g} at first, {last:.4g} at last",
                "损失上升：起初 {first:.4g}，最后 {last:.4g}",
            ),
            **dict.fromkeys(
                ("diverges", "diverges_norm"),
                (
                    "The loss was lowest at step {step} ({lowest:.4g}) and has risen to {last:.4g} since",
                    "损失在第 {step} 步最低 ({lowest:.4g})，此后上升到 {last:.4g}",
                ),
            ),
            **dict.fromkeys(
                ("from_start", "from_start_norm"),
                (
                    "The loss rises from the start on: {lowest:.4g} at step {step}, {last:.4g} at last",
                    "损失从一开始就上升：第 {step} 步为 {lowest:.4g}，最后为 {last:.4g}",
                ),
            ),
            **dict.fromkeys(
                ("jumps", "jumps_norm"),
                (
                    "The loss jumps at step {jump} and does not come back: {lowest:.4g} before, {last:.4g} at last",
                    "损失在第 {jump} 步跳变且没有恢复：此前 {lowest:.4g}，最后 {last:.4g}",
                ),
            ),
        },
        {
            "rises": ("means over a fifth of {steps} steps", "{steps} 步中各五分之一的平均值"),
            **dict.fromkeys(
                ("diverges", "from_start", "jumps"),
                ("running medians of the log; it began at {first:.4g}", "日志的滑动中位数；起初为 {first:.4g}"),
            ),
            **dict.fromkeys(
                ("diverges_norm", "from_start_norm", "jumps_norm"),
                (
                    "the gradient norm was {norm_ratio:.3g} times the usual one just before; the loss began at {first:.4g}",
                    "紧接之前梯度范数是平时的 {norm_ratio:.3g} 倍；损失起初为 {first:.4g}",
                ),
            ),
        },
        ("Try a tenth of the learning rate; check the sign of the loss", "将学习率降为十分之一；检查损失的符号"),
        _SILENT,
        frozenset(("loss-stays",)),
        40,
        of_log=logs.rises,
    ),
    Rule(
        "loss-stays",
        "loss",
        ("losses",),
        remains,
        {
            "classes": (
                "After {steps} steps the loss is {last:.4g}: hardly better, or worse, than predicting the shares of the classes",
                "{steps} 步之后损失为 {last:.4g}：几乎不比 (或不如) 预测各类别的比例更好",
            ),
            "mean": (
                "After {steps} steps the loss is {last:.4g}: hardly better, or worse, than predicting the mean of the targets",
                "{steps} 步之后损失为 {last:.4g}：几乎不比 (或不如) 预测目标的均值更好",
            ),
            "labels": (
                "After {steps} steps the loss is {last:.4g}: hardly better, or worse, than predicting the share of the labels that are true",
                "{steps} 步之后损失为 {last:.4g}：几乎不比 (或不如) 预测真标签的比例更好",
            ),
            "margin": (
                "After {steps} steps the loss is {last:.4g}: hardly better, or worse, than putting out the same for all samples",
                "{steps} 步之后损失为 {last:.4g}：几乎不比 (或不如) 对所有样本输出相同结果更好",
            ),
            **dict.fromkeys(
                ("alike", "alike_behind"),
                (
                    "After {steps} steps the model puts out the same for every sample: its outputs differ by {output:.2g} between"
                    " samples, the targets by {target:.2g}",
                    "{steps} 步之后模型对每个样本的输出都相同：样本之间输出相差 {output:.2g}，目标相差 {target:.2g}",
                ),
            ),
            **dict.fromkeys(
                ("alike_classes", "alike_classes_behind"),
                (
                    "After {steps} steps the model puts out the same for every sample: its scores differ by {output:.2g} between samples",
                    "{steps} 步之后模型对每个样本的输出都相同：样本之间分数只相差 {output:.2g}",
                ),
            ),
            "start": (
                "After {steps} steps the loss is {last:.4g}: it has not fallen by more than its noise",
                "{steps} 步之后损失为 {last:.4g}：其下降没有超过自身的噪声",
            ),
            "guess": (
                "The loss stays at {last:.4g}, which is that of a guess among {classes} classes",
                "损失停在 {last:.4g}，等于在 {classes} 个类别中猜测的损失",
            ),
            "mean_logged": (
                "The loss stays at {last:.4g}, no better than predicting the mean of the targets: R2 is about 0 in all evaluations",
                "损失停在 {last:.4g}，不比预测目标的均值更好：所有评估中 R2 都约为 0",
            ),
            "logged": (
                "The loss stays at {last:.4g}: it has not fallen in the whole log",
                "损失停在 {last:.4g}：在整个日志中都没有下降",
            ),
        },
        {
            "start": (
                "it was {first:.4g} at first; a guess among {classes} classes gives {guess:.4g}",
                "起初为 {first:.4g}；在 {classes} 个类别中猜测为 {guess:.4g}",
            ),
            **dict.fromkeys(
                ("alike_behind", "alike_classes_behind"),
                (
                    "what layer {layer} is given differs by {before:.2g} of its size between samples, what {next} is given by {after:.2g}",
                    "{layer} 的输入在样本之间相差其大小的 {before:.2g}，{next} 的输入只相差 {after:.2g}",
                ),
            ),
            "guess": (
                "ln({classes}) is {guess:.4g}; the first fifth of the log has a mean of {first:.4g}",
                "ln({classes}) 为 {guess:.4g}；日志前五分之一的平均值为 {first:.4g}",
            ),
            "mean_logged": (
                "the first fifth of the log has a mean of {first:.4g}",
                "日志前五分之一的平均值为 {first:.4g}",
            ),
            "logged": (
                "the first fifth of the log has a mean of {first:.4g}, the last one {last:.4g}",
                "日志前五分之一的平均值为 {first:.4g}，最后五分之一为 {last:.4g}",
            ),
            "margin": (
                "that gives the margin, {baseline:.4g}; the loss was {begin:.4g} at first",
                "那样损失等于边距 {baseline:.4g}；损失起初为 {begin:.4g}",
            ),
            "labels": (
                "such a prediction gives {baseline:.4g} in the same {count} steps; the loss was {begin:.4g} at first",
                "在相同的 {count} 步中那样为 {baseline:.4g}；损失起初为 {begin:.4g}",
            ),
            "classes": (
                "such a prediction gives {baseline:.4g} in the same {count} steps; the loss was {begin:.4g} at first",
                "在相同的 {count} 步中那样为 {baseline:.4g}；损失起初为 {begin:.4g}",
            ),
            "mean": (
                "such a prediction gives {baseline:.4g} in the same {count} steps; the loss was {begin:.4g} at first",
                "在相同的 {count} 步中那样为 {baseline:.4g}；损失起初为 {begin:.4g}",
            ),
        },
        (
            "Try to learn one batch by heart: `tensight doctor` does. If that works, look at the data (do targets belong"
            " to their inputs?) and at the learning rate",
            "尝试让模型记住一个批次：`tensight doctor` 会这样做。若成功，检查数据 (目标与输入是否对应) 和学习率",
        ),
        _SILENT,
        frozenset(),
        90,
        of_log=logs.stays,
        advice_on={
            "margin": (
                "Check the order of the arguments (anchor, positive, negative) and which samples are of a kind; if all outputs"
                " are the same, lower the learning rate",
                "检查参数顺序 (anchor, positive, negative) 以及哪些样本属于同类；若所有输出都相同，则降低学习率",
            ),
            **dict.fromkeys(
                ("alike_behind", "alike_classes_behind"),
                (
                    "Let the differences through: a normalization or a relu there, the initialization that fits its function,"
                    " or scaled inputs; then try a smaller learning rate",
                    "让差异通过：在那里使用归一化或 relu、与其函数相配的初始化，或缩放输入；然后尝试更小的学习率",
                ),
            ),
        },
    ),
)
