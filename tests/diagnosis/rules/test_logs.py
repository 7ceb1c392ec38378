"""Logs of trainings with a fault, and of others that only look so."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tensight.cli.diagnosis.logs import read_log
from tensight.diagnosis.catalogue import diagnose, words_of

Values = NDArray[np.float64]
Columns = dict[str, Values]
COUNT = 200
AT = np.arange(COUNT)
RANDOM = np.random.default_rng(7)


def noisy(values: Values, share: float = 0.04) -> Values:
    """Return values with noise of so large a share of them."""
    return values * np.exp(RANDOM.normal(0, share, len(values)))


def falling(to: float = 0.4, of: float = 2.3, pace: float = 30.0, count: int = COUNT) -> Values:
    return to + (of - to) * np.exp(-np.arange(count) / pace)


# --- loss-restarts ---


def resumed_without_weights() -> Columns:
    return {"loss": noisy(np.concatenate([falling(count=120), falling(count=80)]), 0.03)}


def resumed_at_an_earlier_step() -> Columns:
    steps = np.concatenate([np.arange(120), np.arange(90, 170)]).astype(float)
    return {"step": 10 * steps + 10, "loss": noisy(np.concatenate([falling(count=120), falling(count=80)]), 0.02)}


def language_model_from_its_start() -> Columns:
    return {
        "loss": noisy(np.concatenate([falling(3.0, 10.8, 10, 100), falling(3.0, 10.8, 10, 100)]), 0.01),
        "lr": np.full(COUNT, 1e-4),
    }


def lengths_of_single_batches() -> Columns:
    """What is another number in each entry names no stage."""
    return {**resumed_without_weights(), "max_len": RANDOM.integers(100, 512, COUNT).astype(float)}


def three_folds() -> Columns:
    return {"loss": noisy(np.tile(falling(count=66), 3), 0.03)}


def resumed_with_weights() -> Columns:
    steps = np.concatenate([np.arange(120), np.arange(90, 170)])
    return {"step": 10.0 * steps + 10, "loss": noisy(falling()[steps])}


def longer_sequences() -> Columns:
    """A stage of a curriculum whose loss begins as high as the first one, and falls as that did."""
    return {**resumed_without_weights(), "max_len": np.where(AT < 120, 64.0, 128.0)}


def two_tasks() -> Columns:
    return {**resumed_without_weights(), "task_id": np.where(AT < 120, 0.0, 1.0)}


def evaluation_that_goes_on() -> Columns:
    """Other data are trained on, and what is evaluated becomes better and better."""
    return {**resumed_without_weights(), "val_accuracy": noisy(0.9 - 0.8 * np.exp(-AT / 60), 0.01)}


# --- gradient-norm-zero ---


def cut_off() -> Columns:
    return {"loss": noisy(np.full(COUNT, 2.9)), "grad_norm": np.zeros(COUNT)}


def dies_in_the_midst() -> Columns:
    return {"loss": noisy(np.maximum(falling(), 1.5), 0.1), "grad_norm": np.where(AT < 80, noisy(falling(), 0.2), 0)}


def dead_from_the_second_entry_on() -> Columns:
    return {"loss": noisy(np.full(COUNT, 0.91), 0.1), "gnorm": np.where(AT < 2, 4.2, 0)}


def learnt_by_heart() -> Columns:
    return {"loss": falling(0.0, 2.3, 12), "grad_norm": np.where(AT < 190, noisy(falling(0.0, 3.0, 12), 0.2), 0)}


# --- gradient-norm-grows ---


def norm_that_explodes() -> Columns:
    return {"loss": noisy(falling(1.5)), "grad_norm": noisy(np.exp(np.clip(AT - 80, 0, None) / 12), 0.2)}


def norm_that_is_not_finite() -> Columns:
    return {"loss": noisy(falling(1.5)), "grad_norm": np.where(AT < 150, noisy(falling(), 0.2), math.nan)}


def norm_of_infinity() -> Columns:
    return {"loss": noisy(falling(2.0)), "grad_norm": np.where(AT < 60, noisy(falling(), 0.2), math.inf)}


def norm_that_grows_as_it_learns() -> Columns:
    return {"loss": noisy(falling(0.05)), "grad_norm": noisy(0.3 * (1 + AT / 20), 0.3)}


def first_norms_of_infinity() -> Columns:
    return {"loss": noisy(falling()), "grad_norm": np.where(AT < 6, math.inf, noisy(falling(), 0.2))}


# --- rules that watch trainings, too ---


def diverges() -> Columns:
    return {"loss": noisy(np.where(AT < 90, falling(0.4), 0.45 * np.exp(np.clip(AT - 90, 0, None) / 40)))}


def spike_that_stays() -> Columns:
    """A language model that comes back from a spike in part, and learns nothing from there on."""
    spike = np.where(AT >= 120, 2.2 + 1.6 * np.exp(-(AT - 120) / 4), 0)
    return {"loss": noisy(np.where(AT < 120, falling(3.0, 9.0, 25), 3.1) + spike, 0.01)}


def spike_to_a_guess() -> Columns:
    spike = np.where(AT >= 100, 1.7 + 3.0 * np.exp(-(AT - 100) / 5), 0)
    return {"loss": noisy(np.where(AT < 100, falling(0.6, 2.3, 20), 0.6) + spike, 0.02)}


def grows_without_bound() -> Columns:
    return {"loss": noisy(falling(0.8, 1.4, 40) * np.exp(np.maximum(AT - 130, 0) / 8))}


def guesses() -> Columns:
    return {"loss": noisy(np.full(COUNT, math.log(2)), 0.004)}


def nothing_is_learnt() -> Columns:
    return {"epoch": np.arange(30.0), "train_loss": noisy(np.full(30, 1.013), 0.001)}


def filtered() -> Columns:
    return {"loss": np.where(AT < 120, noisy(falling(1.0)), 0.0)}


def stuck() -> Columns:
    return {"loss": np.where(AT < 50, noisy(falling(0.5), 0.1), 0.693147)}


def epoch_again() -> Columns:
    return {"loss": np.tile(noisy(np.full(25, 2.3), 0.05), 8)}


def rate_past_its_end() -> Columns:
    return {"loss": noisy(falling()), "lr": 5e-4 * (1 + np.cos(np.pi * AT / 120))}


def rate_of_zero() -> Columns:
    return {"loss": noisy(np.full(COUNT, 2.9), 0.1), "learning_rate": np.zeros(COUNT)}


def rate_that_ends_early() -> Columns:
    return {"loss": noisy(falling(), 0.1), "learning_rate": np.clip(1e-3 * (1 - AT / 80), 0, None)}


def rate_that_collapses() -> Columns:
    return {"loss": noisy(falling(1.2), 0.1), "lr": 0.1 * 0.9**AT}


def scale_that_collapses() -> Columns:
    return {"loss": noisy(falling(1.2), 0.1), "loss_scale": 65536.0 / 2 ** np.clip(AT - 100, 0, 30)}


def scale_that_collapses_at_once() -> Columns:
    """fairseq lowers it until it ends the training, before a further entry."""
    return {"loss": noisy(falling(1.2), 0.1), "loss_scale": np.where(AT < COUNT - 1, 128.0, 1e-4)}


def scale_of_1024_that_comes_to_0() -> Columns:
    return {"loss": noisy(falling(1.2), 0.1), "loss_scale": np.where(AT < 150, 1024.0, 2.0**-20)}


def gradients_next_to_0() -> Columns:
    return {"loss": noisy(np.full(COUNT, 2.9)), "grad_norm": noisy(np.full(COUNT, 3e-10), 0.3)}


def rate_next_to_0() -> Columns:
    return {"loss": noisy(falling(2.2), 0.1), "lr": np.full(COUNT, 1e-10)}


def spike_that_passes() -> Columns:
    spike = np.where(AT >= 120, 6 * np.exp(-np.abs(AT - 120) / 4), 0)
    return {"loss": noisy(falling(2.5, 10.8, 12), 0.02) + spike, "grad_norm": noisy(0.5 + 5 * spike, 0.2)}


def harder_data() -> Columns:
    return {"loss": noisy(falling(1.8, 8, 15), 0.02) + np.where(AT >= 100, 1.5 * np.exp(-(AT - 100) / 25), 0)}


def spike_that_passes_slowly() -> Columns:
    """It still falls at the end of the log."""
    spike = np.where(AT >= 120, 4.0 * np.exp(-(AT - 120) / 60), 0)
    return {"loss": noisy(np.where(AT < 120, falling(3.0, 9.0, 25), 3.0) + spike, 0.01)}


def other_data() -> Columns:
    """Their loss is higher to the end."""
    spike = np.where(AT >= 120, 1.0 + 0.6 * np.exp(-(AT - 120) / 8), 0)
    return {"loss": noisy(falling(3.0, 9.0, 25) + spike, 0.01)}


def harder_task() -> Columns:
    """A stage whose loss is that of other data, and hardly falls."""
    return {"stage": np.where(AT < 120, 1.0, 2.0), "loss": noisy(np.where(AT < 120, falling(0.3), 2.0), 0.02)}


def stronger_augmentation() -> Columns:
    """The loss of the training is higher and hardly falls, and what is evaluated becomes better."""
    evaluated = {
        "val_loss": noisy(falling(0.5, 2.0, 60), 0.01),
        "val_accuracy": noisy(0.9 - 0.8 * np.exp(-AT / 60), 0.01),
    }
    return {"loss": noisy(np.where(AT < 80, falling(0.3, 2.3, 20), 1.5), 0.02), **evaluated}


def scale_that_is_low() -> Columns:
    """fairseq sums a loss, and its scale swings where it has found its size."""
    scale = np.where(AT < 5, 128.0 * 0.5**AT, 0.25 * 2.0 ** (AT // 30 % 3))
    return {"loss": noisy(falling(), 0.1), "loss_scale": scale}


def minimum_of_all_data() -> Columns:
    """Gradient descent on all data: the loss is the same to the last printed digit."""
    return {"loss": np.round(falling(0.25, 2.3, 8), 4)}


def restarts_of_the_rate() -> Columns:
    return {"loss": noisy(falling(), 0.1), "lr": 5e-4 * (1 + np.cos(np.pi * (AT % 50) / 50))}


def rate_that_ends_with_the_training() -> Columns:
    return {"loss": noisy(falling(), 0.1), "lr": np.clip(1e-3 * (1 - AT / (COUNT - 1)), 0, None)}


def half_precision() -> Columns:
    return {"loss": noisy(falling(), 0.1), "loss_scale": 2.0 ** np.clip(32 - AT, 15, None)}


def begins_in_the_midst() -> Columns:
    return {"step": 50_000.0 + 10 * AT, "loss": noisy(np.full(COUNT, 2.303), 0.01)}


def range_of_rates() -> Columns:
    """The rate grows by a factor to find where the loss diverges."""
    return {"lr": 1e-7 * 10 ** (AT / 30), "loss": falling(1.6, 2.3, 60) + (np.maximum(AT - 160, 0) / 8) ** 2}


def frozen_part() -> Columns:
    return {"loss": noisy(falling()), "lr_backbone": np.zeros(COUNT), "lr_head": np.full(COUNT, 1e-3)}


def language_model_that_is_tuned() -> Columns:
    """Its loss is that of a guess among ten classes by chance."""
    return {"loss": noisy(np.full(COUNT, 2.303), 0.01), "eval_ppl": noisy(np.full(COUNT, 10.0), 0.01)}


def removes_noise() -> Columns:
    """The loss of a diffusion model is noise after its first steps."""
    return {"loss": noisy(falling(0.06, 1.0, 2), 0.3)}


def policy_of_an_agent() -> Columns:
    return {
        "rollout/ep_rew_mean": noisy(20 + AT.astype(float), 0.1),
        "train/loss": noisy(2 + AT / 20, 0.5),
        "train/value_loss": noisy(4 + AT / 10, 0.5),
    }


FAULTY: list[tuple[Callable[[], Columns], str, str]] = [
    (resumed_without_weights, "loss-restarts", "step 121"),
    (resumed_at_an_earlier_step, "loss-restarts", "as after a resume"),
    (language_model_from_its_start, "loss-restarts", "step 101"),
    (lengths_of_single_batches, "loss-restarts", "as if the weights were lost"),
    (cut_off, "gradient-norm-zero", "in the whole log"),
    (dies_in_the_midst, "gradient-norm-zero", "from step 81 on"),
    (dead_from_the_second_entry_on, "gradient-norm-zero", "from step 3 on"),
    (gradients_next_to_0, "gradient-norm-zero", "at most"),
    (rate_next_to_0, "learning-rate-zero", "at most 1e-10"),
    (norm_that_explodes, "gradient-norm-grows", "orders of magnitude"),
    (norm_that_is_not_finite, "gradient-norm-grows", "nan from step 151 on"),
    (norm_of_infinity, "gradient-norm-grows", "inf from step 61 on"),
    (diverges, "loss-rises", "has risen to"),
    (spike_that_stays, "loss-rises", "does not come back"),
    (spike_to_a_guess, "loss-rises", "does not come back"),
    (grows_without_bound, "loss-rises", "has risen to"),
    (guesses, "loss-stays", "among 2 classes"),
    (nothing_is_learnt, "loss-stays", "not fallen in the whole log"),
    (filtered, "loss-zero", "from step 121 on"),
    (stuck, "loss-constant", "from step 51 on"),
    (epoch_again, "loss-constant", "first 25 entries"),
    (rate_past_its_end, "schedule-over", "step 121"),
    (rate_of_zero, "learning-rate-zero", "in the whole log"),
    (rate_that_ends_early, "learning-rate-zero", "from step 81 on"),
    (rate_that_collapses, "learning-rate-collapsed", "has fallen to"),
    (scale_that_collapses, "scale-collapsed", "65536"),
    (scale_that_collapses_at_once, "scale-collapsed", "from 128 to 0.0001 at step 200, where the log ends"),
    (scale_of_1024_that_comes_to_0, "scale-collapsed", "and stays there"),
]
HEALTHY: list[tuple[Callable[[], Columns], str]] = [
    (three_folds, "loss-restarts"),
    (resumed_with_weights, "loss-restarts"),
    (longer_sequences, "loss-restarts"),
    (two_tasks, "loss-restarts"),
    (evaluation_that_goes_on, "loss-restarts"),
    (learnt_by_heart, "gradient-norm-zero"),
    (norm_that_grows_as_it_learns, "gradient-norm-grows"),
    (first_norms_of_infinity, "gradient-norm-grows"),
    (spike_that_passes, "loss-rises"),
    (harder_data, "loss-rises"),
    (spike_that_passes_slowly, "loss-rises"),
    (other_data, "loss-rises"),
    (harder_task, "loss-rises"),
    (stronger_augmentation, "loss-rises"),
    (minimum_of_all_data, "loss-constant"),
    (restarts_of_the_rate, "schedule-over"),
    (rate_that_ends_with_the_training, "learning-rate-zero"),
    (half_precision, "scale-collapsed"),
    (scale_that_is_low, "scale-collapsed"),
    (begins_in_the_midst, "loss-stays"),
    (removes_noise, "loss-stays"),
    (language_model_that_is_tuned, "loss-stays"),
    (range_of_rates, "loss-rises"),
    (frozen_part, "learning-rate-zero"),
    (policy_of_an_agent, "loss-rises"),
]


def written(columns: Columns, folder: Path) -> Path:
    """Write columns as lines of JSON, with a step of each unless they have one."""
    global RANDOM
    RANDOM = np.random.default_rng(7)
    names, rows = list(columns), zip(*(values.tolist() for values in columns.values()), strict=True)
    log = folder / "history.jsonl"
    with log.open("w") as file:
        for step, row in enumerate(rows, 1):
            record = dict(zip(names, row, strict=True))
            file.write(json.dumps(record if {"step", "epoch"} & record.keys() else {"step": step, **record}) + "\n")
    return log


@pytest.mark.parametrize(("make", "rule", "word"), FAULTY, ids=[make.__name__ for make, _, _ in FAULTY])
def test_the_fault_comes_first(make: Callable[[], Columns], rule: str, word: str, tmp_path: Path) -> None:
    first = diagnose([read_log([written(make(), tmp_path)]).facts]).findings[0].finding
    assert first.rule == rule
    message, evidence, _ = words_of(first)
    assert word in "\n".join(text[0].format(**first.values) for text in (message, evidence) if text)


@pytest.mark.parametrize(("make", "rule"), HEALTHY, ids=[make.__name__ for make, _ in HEALTHY])
def test_nothing_is_found_of_others(make: Callable[[], Columns], rule: str, tmp_path: Path) -> None:
    diagnosis = diagnose([read_log([written(make(), tmp_path)]).facts])
    assert diagnosis.findings == []
    assert rule in diagnosis.passed


def test_a_loss_that_is_logged_as_0_is_no_finite_one(tmp_path: Path) -> None:
    """Of evaluations that are NaN, the norm is the one cause."""
    is_nan = AT >= 120
    columns = {
        "loss": np.where(is_nan, 0.0, noisy(falling(1.0))),
        "grad_norm": np.where(is_nan, math.nan, noisy(falling(), 0.2)),
        "eval_loss": np.where(is_nan, math.nan, noisy(falling(1.0))),
    }
    (explained,) = diagnose([read_log([written(columns, tmp_path)]).facts]).findings
    assert explained.finding.rule == "gradient-norm-grows"
    assert [finding.rule for finding in explained.explains] == ["loss-zero"]
