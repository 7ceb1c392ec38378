"""Drawn pairs of logs: one training, or two that part in a known way, as two trainers print them."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from drawn import Drawn, Judgement, Outcome

from tensight.compare import Verdict
from tensight.compare.losses import RTOL, Divergence, LossComparison, compare_losses
from tensight.curves import read_curve
from tensight.errors import CurveError

if TYPE_CHECKING:
    import random
    from pathlib import Path

Losses = Sequence[float]
NumberFormat = Callable[[float], str]


def decimals(digits: int) -> NumberFormat:
    return lambda value: f"{value:.{digits}f}"


def thousands(digits: int) -> NumberFormat:
    return lambda value: f"{value:,.{digits}f}"


def comma(digits: int) -> NumberFormat:
    return lambda value: f"{value:.{digits}f}".replace(".", ",")


def german(digits: int) -> NumberFormat:
    return lambda value: f"{value:,.{digits}f}".translate(str.maketrans({",": ".", ".": ","}))


NUMBERS: dict[str, NumberFormat] = {
    "2 decimals": decimals(2),
    "4 decimals": decimals(4),
    "6 decimals": decimals(6),
    "repr": repr,
    "4 significant": lambda value: f"{value:.4g}",
    "exponent": lambda value: f"{value:.5E}",
    "thousands": thousands(3),
    "decimal comma": comma(4),
    "German": german(4),
    "French": lambda value: f"{value:,.4f}".replace(",", "\u202f").replace(".", ","),
    "underscores": lambda value: f"{value:_.4f}",
    "float32": lambda value: repr(float(np.float32(value))),
}
IN_JSON = ("2 decimals", "4 decimals", "6 decimals", "repr", "4 significant", "float32")
STEPS: dict[str, Callable[[int], str]] = {
    "plain": str,
    "thousands": lambda step: f"{step:,}",
    "underscores": lambda step: f"{step:_}",
    "padded": lambda step: f"{step:>8}",
}


@dataclass(frozen=True)
class Log:
    """How a training is logged.

    Attributes
    ----------
    form : str
        The trainer, a key of `FORMS`.
    number, step : str
        Keys of `NUMBERS` and `STEPS`.
    every : int
        Steps between two entries.
    is_mean : bool
        Whether an entry is the mean of its interval.
    first : int
        The number of the first step.
    begin : int
        Index of the first step that is logged, as after a resume.
    per_epoch : int
        Steps of an epoch.
    is_compressed : bool
    has_validation : bool
    """

    form: str
    number: str
    step: str
    every: int
    is_mean: bool
    first: int
    begin: int
    per_epoch: int
    is_compressed: bool
    has_validation: bool


@dataclass(frozen=True)
class Entry:
    """One line: its step, how many epochs have passed, the loss and that of the evaluation."""

    index: int
    step: str
    epoch: float
    loss: str
    value: float
    validation: str | None


def _text(log: Log, entries: list[Entry]) -> str:
    def more(entry: Entry) -> str:
        return "" if entry.validation is None else f" val_loss: {entry.validation}"

    return "".join(f"step {entry.step} loss: {entry.loss}{more(entry)} lr: 0{_sign(log)}001\n" for entry in entries)


def _sign(log: Log) -> str:
    return "," if log.number in ("decimal comma", "German", "French") else "."


def _equals(_: Log, entries: list[Entry]) -> str:
    return "".join(f"[INFO] iter={entry.step}, loss={entry.loss}, time={1.5:g}s\n" for entry in entries)


def _global_step(_: Log, entries: list[Entry]) -> str:
    return "".join(
        f"epoch {int(entry.epoch) + 1} global_step: {entry.step} total_steps: 99999 | lm loss: {entry.loss} |\n"
        for entry in entries
    )


def _bar(_: Log, entries: list[Entry]) -> str:
    return "".join(f" 10%|█  | {entry.step}/99,999 [00:01<00:10, 9.1it/s, loss={entry.loss}]\r" for entry in entries)


def _trainer(_: Log, entries: list[Entry]) -> str:
    return "".join(
        f"{{'loss': {entry.loss}, 'grad_norm': 1.5, 'learning_rate': 1e-05, 'epoch': {round(entry.epoch, 4)}}}\n"
        for entry in entries
    )


def _trainer_two_digits(_: Log, entries: list[Entry]) -> str:
    return "".join(f"{{'loss': {entry.loss}, 'epoch': {round(entry.epoch, 2)}}}\n" for entry in entries)


def _factory(_: Log, entries: list[Entry]) -> str:
    return "".join(
        f'{{"current_steps": {entry.step.strip()}, "total_steps": 99999, "loss": {entry.loss}, '
        f'"epoch": {entry.epoch}}}\n'
        for entry in entries
    )


def _fairseq(_: Log, entries: list[Entry]) -> str:
    return "".join(
        f'2026-01-02 03:04:05 | INFO | train_inner | {{"epoch": 1, "update": {entry.epoch:.3f}, '
        f'"loss": "{entry.loss}", "num_updates": "{entry.step.strip()}", "lr": "0.001"}}\n'
        for entry in entries
    )


def _csv(log: Log, entries: list[Entry]) -> str:
    header = "step,train_loss" + (",val_loss" if log.has_validation else "")
    rows = [
        f'"{entry.step.strip()}","{entry.loss}"' + ("" if entry.validation is None else f',"{entry.validation}"')
        for entry in entries
    ]
    return "\n".join([header, *rows]) + "\n"


def _semicolons(_: Log, entries: list[Entry]) -> str:
    return "\n".join(["step;loss", *(f"{entry.step.strip()};{entry.loss}" for entry in entries)]) + "\n"


def _state(_: Log, entries: list[Entry]) -> str:
    history = ", ".join(
        f'{{"loss": {entry.loss}, "step": {entry.step.strip()}, "epoch": {entry.epoch}}}' for entry in entries
    )
    return f'{{"log_history": [{history}]}}'


def _unnamed(_: Log, entries: list[Entry]) -> str:
    return "".join(f"loss: {entry.loss}\n" for entry in entries)


def _numbers(_: Log, entries: list[Entry]) -> str:
    return json.dumps([entry.value for entry in entries])


FORMS: dict[str, tuple[str, Callable[[Log, list[Entry]], str]]] = {
    "text": ("a.log", _text),
    "iter=": ("a.log", _equals),
    "global_step": ("a.log", _global_step),
    "bar": ("a.log", _bar),
    "Trainer": ("a.log", _trainer),
    "Trainer, 2 digits": ("a.log", _trainer_two_digits),
    "LLaMA-Factory": ("a.jsonl", _factory),
    "fairseq": ("a.log", _fairseq),
    "CSV": ("a.csv", _csv),
    "semicolons": ("a.csv", _semicolons),
    "trainer_state": ("a.json", _state),
    "unnamed": ("a.log", _unnamed),
    "list": ("a.json", _numbers),
}
JSON_FORMS = ("Trainer", "Trainer, 2 digits", "LLaMA-Factory", "trainer_state")
WITHOUT_STEPS = ("Trainer", "Trainer, 2 digits", "unnamed", "list")
PLAIN_STEPS = ("LLaMA-Factory", "trainer_state", "fairseq")
WITH_VALIDATION = ("text", "CSV")
OF_MEANS = ("Trainer", "Trainer, 2 digits", "LLaMA-Factory", "fairseq", "trainer_state")
"""Trainers that log the mean since the entry before."""


def _log(rng: random.Random, steps: int) -> Log:
    form = rng.choice(list(FORMS))
    every = rng.choice([1, 1, 1, 1, 2, 5, 10])
    return Log(
        form=form,
        number=rng.choice(IN_JSON if form in JSON_FORMS or form == "list" else list(NUMBERS)),
        step="plain" if form in PLAIN_STEPS else rng.choice(list(STEPS)),
        every=every,
        is_mean=every > 1 and form in OF_MEANS,
        first=rng.choice([0, 1, 1]),
        begin=rng.choice([0, 0, 0, every * rng.randrange(1, max(steps // every // 2, 2))]),
        per_epoch=rng.choice([40, 60, 1000]),
        is_compressed=rng.random() < 0.15,
        has_validation=form in WITH_VALIDATION and rng.random() < 0.6,
    )


def _other(rng: random.Random, log: Log, steps: int) -> Log:
    """Return how the other side is logged: alike but for one or two things, or in any way."""
    if rng.random() < 0.3:
        return replace(_log(rng, steps), per_epoch=log.per_epoch)
    drawn = _log(rng, steps)
    names = rng.sample(["number", "step", "every", "begin", "is_compressed", "form"], rng.choice([0, 1, 1, 2]))
    changes = {name: getattr(drawn, name) for name in names}
    if "form" in names:
        changes |= {name: getattr(drawn, name) for name in ("number", "step", "has_validation")}
    other = replace(log, **changes)
    other = replace(other, is_mean=other.every > 1 and other.form in OF_MEANS)
    if (other.form in JSON_FORMS or other.form == "list") and other.number not in IN_JSON:
        other = replace(other, number="4 decimals")
    return replace(other, step="plain") if other.form in PLAIN_STEPS else other


def _write(log: Log, losses: Losses, validation: Losses, folder: Path, side: str) -> tuple[Path, list[Entry]]:
    entries = []
    for index in range(log.begin + log.every - 1, len(losses), log.every):
        window = losses[index + 1 - log.every : index + 1] if log.is_mean else losses[index : index + 1]
        value = float(np.mean(window))
        entries.append(
            Entry(
                index=index,
                step=STEPS[log.step](index + log.first),
                epoch=(index + 1) / log.per_epoch,
                loss=NUMBERS[log.number](value) if math.isfinite(value) else str(value),
                value=value,
                validation=NUMBERS[log.number](validation[index]) if log.has_validation else None,
            )
        )
    name, form = FORMS[log.form]
    path = folder / (f"{side}-{name}" + (".gz" if log.is_compressed else ""))
    text = form(log, entries).replace(" nan", " NaN").encode()
    path.write_bytes(gzip.compress(text) if log.is_compressed else text)
    return path, entries


# --- trainings ---


def _training(rng: random.Random, steps: int) -> list[float]:
    scale = rng.choice([1.0, 1.0, 1.0, 0.05, 30.0, 2500.0, 40_000.0])
    falls, noise = rng.uniform(20, 200), rng.choice([0.0, 0.02, 0.1])
    return [
        scale * ((0.3 + 2 * math.exp(-at / falls)) * math.exp(rng.gauss(0, noise)) + 1e-3 * math.sin(at))
        for at in range(steps)
    ]


@dataclass(frozen=True)
class Plant:
    """What differs in the second training.

    Attributes
    ----------
    name : str
    at : int
        Index of the first step that differs.
    factor : float
        Of "factor" and "jump".
    """

    name: str
    at: int = 0
    factor: float = 1.0


def _plant(rng: random.Random, steps: int) -> Plant:
    name = rng.choice(["none", "none", "none", "factor", "weights", "update", "jump", "drift", "nan", "validation"])
    if name in ("jump", "nan"):
        return Plant(name, rng.randrange(steps // 4, 3 * steps // 4), rng.choice([0.8, 1.05, 1.3, 2.0]))
    if name == "factor":
        return Plant(name, 0, rng.choice([2, 4, 8, 16, 64, 0.5, 0.125]))
    return Plant(name, {"update": 1, "drift": 2}.get(name, 0))


def _planted(rng: random.Random, losses: list[float], plant: Plant) -> list[float]:
    """Return the losses of the second training, which also differs by rounding that grows."""
    grows = rng.choice([1.0, 1.02])
    result = [value * (1 + rng.gauss(0, min(1e-7 * grows**at, 5e-5))) for at, value in enumerate(losses)]
    if plant.name == "factor":
        return [value * plant.factor for value in result]
    if plant.name == "weights":
        return [value * (1 + 0.15 * math.sin(1.3 * at + 1)) for at, value in enumerate(result)]
    if plant.name == "update":
        return [value * (1 + (at > 0) * 0.08 * math.sin(1.3 * at + 0.4)) for at, value in enumerate(result)]
    if plant.name == "jump":
        return [value * (plant.factor if at >= plant.at else 1) for at, value in enumerate(result)]
    if plant.name == "drift":
        apart = [min(1e-6 * 1.25 ** (at - 1), 0.2) * (1.5 + math.sin(at)) for at in range(len(result))]
        return [value * (1 + size) for value, size in zip(result, apart, strict=True)]
    if plant.name == "nan":
        return [math.nan if at >= plant.at else value for at, value in enumerate(result)]
    return result


def draw(rng: random.Random, folder: Path) -> Drawn:
    steps = rng.choice([40, 60, 120, 200, 1200])
    losses, plant = _training(rng, steps), _plant(rng, steps)
    log = _log(rng, steps)
    other = _other(rng, log, steps)
    if plant.name == "validation":
        log, other = (
            replace(each, form=form, has_validation=True, step="plain", is_mean=False)
            for each, form in ((log, rng.choice(WITH_VALIDATION)), (other, rng.choice(WITH_VALIDATION)))
        )
    b_losses = _planted(rng, losses, plant)
    validation = [1.2 * value for value in losses]
    of_b = [value * (1 + (plant.name == "validation") * 0.33) for value in validation]
    a, in_a = _write(log, losses, validation, folder, "a")
    b, in_b = _write(other, b_losses, of_b, folder, "b")
    truth = Truth(plant, log, other, in_a, in_b)
    return Drawn(plant.name, f"{plant}\n    A {log}\n    B {other}", lambda: _judge(a, b, truth))


@dataclass(frozen=True)
class Truth:
    """What is known of a pair."""

    plant: Plant
    a: Log
    b: Log
    in_a: list[Entry]
    in_b: list[Entry]

    @property
    def common(self) -> list[tuple[Entry, Entry]]:
        """The entries of both logs that are of the same step."""
        of_b = {entry.index: entry for entry in self.in_b}
        return [(entry, of_b[entry.index]) for entry in self.in_a if entry.index in of_b]

    def first_visible(self) -> int | None:
        """Return the index of the first common step at which the plant is well above tolerance and rounding."""
        for entry, other in self.common:
            rounding = sum(
                10.0 ** -(2 if "2" in log.number else 3)
                * max(1.0, abs(each.value) if "significant" in log.number else 1)
                for log, each in ((self.a, entry), (self.b, other))
            )
            apart = abs(entry.value - other.value)
            if math.isnan(other.value) or apart > 4 * (RTOL * abs(entry.value) + rounding):
                return entry.index
        return None


def _judge(a: Path, b: Path, truth: Truth) -> Judgement:
    try:
        result = compare_losses(read_curve(a), read_curve(b))
    except CurveError as error:
        return Judgement(Outcome.UNDECIDED, "refused", [str(error)])
    said = [result.sentence, result.meaning, *result.notes]
    outcome, why = _outcome(result, truth)
    return Judgement(outcome, why, said)


def _outcome(result: LossComparison, truth: Truth) -> tuple[Outcome, str]:
    plant, divergence = truth.plant, result.divergence
    if result.verdict is Verdict.NOT_COMPARABLE:
        return Outcome.UNDECIDED, "not comparable"
    is_different = result.verdict is Verdict.DIFFERENT
    if plant.name == "none" or (plant.name == "validation" and not is_different):
        is_right = is_different == (plant.name != "none")
        return (Outcome.RIGHT if is_right else Outcome.FALSE), f"the plant is {plant.name}"
    if plant.name == "validation":
        is_right = "val_loss differs" in result.sentence
        return (Outcome.RIGHT if is_right else Outcome.FALSE), "only val_loss differs"
    visible = truth.first_visible()
    if not is_different:
        return (Outcome.UNDECIDED, "hardly visible") if visible is None else (Outcome.FALSE, f"visible at {visible}")
    return _of_difference(result, truth, visible, divergence)


def _of_difference(
    result: LossComparison, truth: Truth, visible: int | None, divergence: Divergence
) -> tuple[Outcome, str]:
    """Judge what is said of two trainings that differ."""
    plant, words = truth.plant, f"{result.sentence} {result.meaning}"
    compared = [entry.index for entry, _ in truth.common]
    logs_first = bool(compared) and compared[0] == 0
    is_first = divergence in (Divergence.FIRST_STEP, Divergence.FIRST_LOGGED, Divergence.FACTOR)
    if plant.name == "factor":
        named = f"{max(plant.factor, 1 / plant.factor):#.3g}".rstrip(".")
        if divergence is Divergence.FACTOR:
            said = float(result.sentence.partition(" × ")[0].rpartition(" ")[2])
            is_right = abs(said / float(named) - 1) < (0.06 if "about" in result.sentence else 0.01)
            return (Outcome.RIGHT, "") if is_right else (Outcome.FALSE, f"it is {named}")
        # "Cannot be told apart" is no wrong cause.
        return (Outcome.UNDECIDED if divergence is Divergence.FIRST_LOGGED else Outcome.FALSE), "it is a factor"
    if divergence is Divergence.FACTOR and not (plant.name == "jump" and compared and compared[0] >= plant.at):
        return Outcome.FALSE, "it is no factor"
    if plant.name == "nan" and result.sentence.startswith("B is NaN"):
        return Outcome.RIGHT, ""
    before = [index for index in compared if index < plant.at]
    if divergence is Divergence.FIRST_LOGGED and truth.a.first != truth.b.first and len(before) < 2:
        return Outcome.UNDECIDED, "the logs count from 0 and from 1, and hardly any entry shows it"
    if is_first and before and plant.name != "weights":
        return Outcome.FALSE, f"the steps up to {before[-1]} agree"
    if divergence is Divergence.FIRST_STEP and not logs_first and "The logs name no steps" not in words:
        return Outcome.FALSE, "the first step is not logged"
    if divergence is Divergence.SECOND_STEP and plant.name != "update" and "not logged" not in words:
        names_no_steps = "The logs name no steps" in words
        return (Outcome.UNDECIDED if names_no_steps else Outcome.FALSE), "it is not the second step"
    if plant.name == "jump" and ("slowly" in words or divergence is Divergence.PASSING):
        return Outcome.FALSE, "it is a jump"
    if (
        plant.name == "drift"
        and divergence is Divergence.JUMP
        and "or a drift" not in words
        and "or rounding" not in words
    ):
        return Outcome.FALSE, "it is a drift"
    if plant.name == "nan" and "NaN" not in " ".join([words, *result.notes]):
        return Outcome.FALSE, "it is NaN"
    if plant.name in ("jump", "nan") and result.leaves_at is not None and result.pairs.unit.value == "step":
        leaves = result.leaves_at - truth.a.first
        after = [index for index in compared if index >= plant.at]
        latest = max(after[0] if after else plant.at, visible or 0)
        if divergence is Divergence.DRIFT and "cannot be told" in words and leaves >= plant.at - 1:
            return Outcome.UNDECIDED, "it does not say when"
        if not plant.at - 1 <= leaves <= latest + 1:
            return Outcome.FALSE, f"it begins at {plant.at}, can be seen at {latest}; said is index {leaves}"
    return Outcome.RIGHT, ""
