"""Checkpoints of trainings with a fault, and of others that only look so."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from tensight.diagnosis.catalogue import diagnose, words_of
from tensight.diagnosis.facts import Facts

WEIGHTS = ("embedding.weight", "layer.weight", "layer.bias", "head.weight", "head.bias")
Rows = dict[str, dict[str, Any]]


def facts_of(
    changed: Rows,
    *,
    steps: tuple[int, ...] = (500, 1000),
    counters: tuple[float, ...] = (500, 1000),
    scale: float = math.nan,
    first: Rows | None = None,
) -> Facts:
    """Return the facts of the checkpoints of a training.

    Parameters
    ----------
    changed : dict
        Facts of tensors of the last checkpoint that differ from those of a healthy one, by name.
    steps, counters : tuple
        Of the checkpoints; -1 for an unknown step.
    scale : float
    first : dict, optional
        As `changed`, of the first checkpoint.
    """
    facts = Facts(keeps_all=True)
    for at, (step, counter) in enumerate(zip(steps, counters, strict=True)):
        about = {"name": f"checkpoint-{at}", "step_known": step >= 0, "counter": counter, "scale": scale}
        facts.add("checkpoints", step if step >= 0 else at, [about])
        given = changed if at == len(steps) - 1 else first or {}
        names = dict.fromkeys((*WEIGHTS, *(f"{name}.exp_avg_sq" for name in WEIGHTS), *given))
        facts.add("saved", step if step >= 0 else at, [_tensor(name, at) | given.get(name, {}) for name in names])
    return facts


def _tensor(name: str, at: int) -> dict[str, Any]:
    parameter, _, slot = name.partition(".exp_avg_sq")
    is_moment = name.endswith(".exp_avg_sq")
    role = "moment" if is_moment else "statistics" if "running" in name or "num_batches" in name else "parameter"
    return {
        "name": name,
        "role": role,
        "slot": "exp_avg_sq" if is_moment else slot,
        "parameter": parameter if is_moment else "",
        "axes": 1 if "bias" in name else 2,
        "elements": 64,
        "not_finite": 0,
        "zeros": 0,
        "lowest": -1.0,
        "highest": 1.0,
        "norm": 4.0 + at,
        "moved": 1 if at else -1,
        "has_state": not is_moment,
    }


def moments(*names: str, **values: Any) -> Rows:
    return {f"{name}.exp_avg_sq": values for name in names}


NORMALIZATION: Rows = {
    "norm.running_var": {"lowest": 1.0, "highest": 1.0},
    "norm.num_batches_tracked": {"lowest": 0.0, "highest": 0.0, "axes": 0},
}


# --- with a fault ---


def weights_of_nan() -> Facts:
    return facts_of({"head.weight": {"not_finite": 64}})


def moment_of_infinity() -> Facts:
    return facts_of(moments("layer.weight", not_finite=3), steps=(800,), counters=(800,))


def nan_from_the_first_checkpoint_on() -> Facts:
    return facts_of({"layer.weight": {"not_finite": 1}}, first={"layer.weight": {"not_finite": 1}})


def nothing_moves() -> Facts:
    return facts_of({key: {"moved": 0} for key in WEIGHTS})


def head_that_is_held_and_still() -> Facts:
    return facts_of({"head.weight": {"moved": 0}, "head.bias": {"moved": 0}})


def files_of_epochs_that_are_equal() -> Facts:
    return facts_of({name: {"moved": 0} for name in WEIGHTS}, steps=(-1, -1), counters=(math.nan, math.nan))


def optimizer_made_anew() -> Facts:
    return facts_of({}, counters=(500, 120))


def optimizer_of_the_last_session_alone() -> Facts:
    return facts_of({}, steps=(9000,), counters=(400,))


def optimizer_at_its_first_step() -> Facts:
    return facts_of({}, counters=(500, 1))


def no_gradient_at_all() -> Facts:
    return facts_of(moments(*WEIGHTS, zeros=64))


def embedding_without_a_gradient() -> Facts:
    return facts_of(moments("embedding.weight", zeros=64), steps=(300,), counters=(300,))


def layer_without_a_gradient() -> Facts:
    return facts_of(moments("layer.weight", "layer.bias", zeros=64))


def adapter_that_is_never_trained() -> Facts:
    return facts_of({"layer.lora_B.weight": {"zeros": 64}})


def head_of_zeros() -> Facts:
    return facts_of({"head.weight": {"zeros": 64, "lowest": 0.0, "highest": 0.0}}, steps=(70,), counters=(70,))


def embedding_that_was_overwritten() -> Facts:
    return facts_of({"embedding.weight": {"zeros": 64}}, counters=(math.nan, math.nan))


def evaluation_mode() -> Facts:
    return facts_of(NORMALIZATION)


def evaluation_mode_in_one_checkpoint() -> Facts:
    return facts_of(NORMALIZATION, steps=(-1,), counters=(250,))


def two_normalizations_without_a_batch() -> Facts:
    return facts_of(NORMALIZATION | {f"second.{name}": row for name, row in NORMALIZATION.items()})


def scale_of_a_256th() -> Facts:
    return facts_of({}, scale=2.0**-8)


def scale_of_a_half() -> Facts:
    return facts_of({}, steps=(90,), counters=(60,), scale=0.5)


def scale_that_vanishes() -> Facts:
    return facts_of({}, scale=1e-30)


def weight_that_explodes() -> Facts:
    return facts_of({"layer.weight": {"norm": 5e3}})


def all_weights_explode() -> Facts:
    return facts_of({key: {"norm": 1000000000.0} for key in WEIGHTS})


def embedding_that_grows() -> Facts:
    return facts_of({"embedding.weight": {"norm": 450.0}}, steps=(-1, -1))


# --- healthy ---


def as_usual() -> Facts:
    return facts_of({}, scale=65536.0)


def frozen_body() -> Facts:
    return facts_of({name: {"moved": 0, "has_state": False} for name in WEIGHTS[:3]})


def two_optimizers_in_turns() -> Facts:
    return facts_of({}, counters=(250, 500))


def before_the_first_update() -> Facts:
    zero = {"head.weight": {"zeros": 64}} | moments(*WEIGHTS, zeros=64) | NORMALIZATION
    return facts_of(zero, steps=(0,), counters=(0,))


def experts_that_are_not_used() -> Facts:
    return facts_of(moments(*WEIGHTS[:3], zeros=64))


def bias_of_zeros() -> Facts:
    return facts_of({"head.bias": {"zeros": 64}})


def one_normalization_that_saw_batches() -> Facts:
    seen = {"second.running_var": {"lowest": 0.3, "highest": 2.0}, "second.num_batches_tracked": {"highest": 100.0}}
    return facts_of(NORMALIZATION | seen)


def weights_that_grow_tenfold() -> Facts:
    return facts_of({key: {"norm": 40.0} for key in WEIGHTS})


FAULTY: list[tuple[Callable[[], Facts], str, str]] = [
    (weights_of_nan, "checkpoint-not-finite", "head.weight"),
    (moment_of_infinity, "checkpoint-not-finite", "layer.weight.exp_avg_sq"),
    (nan_from_the_first_checkpoint_on, "checkpoint-not-finite", "checkpoint-0"),
    (nothing_moves, "checkpoint-unmoved", "No weight has changed"),
    (head_that_is_held_and_still, "checkpoint-unmoved", "head.weight, head.bias"),
    (files_of_epochs_that_are_equal, "checkpoint-unmoved", "checkpoint-0 and checkpoint-1"),
    (optimizer_made_anew, "optimizer-state-lost", "120 updates at step 1000, and 500"),
    (optimizer_of_the_last_session_alone, "optimizer-state-lost", "400 updates at step 9000"),
    (optimizer_at_its_first_step, "optimizer-state-lost", "1 updates at step 1000"),
    (no_gradient_at_all, "optimizer-state-zero", "all 5 weights"),
    (embedding_without_a_gradient, "optimizer-state-zero", "embedding.weight"),
    (layer_without_a_gradient, "optimizer-state-zero", "2 of 5 weights"),
    (adapter_that_is_never_trained, "checkpoint-zeros", "lora_B"),
    (head_of_zeros, "checkpoint-zeros", "head.weight"),
    (embedding_that_was_overwritten, "checkpoint-zeros", "after 1000 updates"),
    (evaluation_mode, "statistics-untouched", "all 1 normalizations"),
    (evaluation_mode_in_one_checkpoint, "statistics-untouched", "after 250 updates"),
    (two_normalizations_without_a_batch, "statistics-untouched", "all 2 normalizations"),
    (scale_of_a_256th, "checkpoint-scale", "0.00391"),
    (scale_of_a_half, "checkpoint-scale", "0.5"),
    (scale_that_vanishes, "checkpoint-scale", "1e-30"),
    (weight_that_explodes, "checkpoint-grows", "1,250 times"),
    (all_weights_explode, "checkpoint-grows", "3 weights"),
    (embedding_that_grows, "checkpoint-grows", "embedding.weight"),
]
HEALTHY: list[tuple[Callable[[], Facts], str]] = [
    (as_usual, "checkpoint-scale"),
    (as_usual, "checkpoint-not-finite"),
    (frozen_body, "checkpoint-unmoved"),
    (two_optimizers_in_turns, "optimizer-state-lost"),
    (before_the_first_update, "statistics-untouched"),
    (experts_that_are_not_used, "optimizer-state-zero"),
    (bias_of_zeros, "checkpoint-zeros"),
    (one_normalization_that_saw_batches, "statistics-untouched"),
    (weights_that_grow_tenfold, "checkpoint-grows"),
]


@pytest.mark.parametrize(("make", "rule", "word"), FAULTY, ids=[make.__name__ for make, _, _ in FAULTY])
def test_the_fault_comes_first(make: Callable[[], Facts], rule: str, word: str) -> None:
    first = diagnose([make()]).findings[0].finding
    assert first.rule == rule
    message, evidence, _ = words_of(first)
    assert word in "\n".join(text[0].format(**first.values) for text in (message, evidence) if text)


@pytest.mark.parametrize(("make", "rule"), HEALTHY, ids=[f"{make.__name__}-{rule}" for make, rule in HEALTHY])
def test_nothing_is_found_of_others(make: Callable[[], Facts], rule: str) -> None:
    diagnosis = diagnose([make()])
    assert diagnosis.findings == []
    assert rule in diagnosis.passed
