"""Evaluations that become worse while the loss of the training falls, and others that only look so."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from tensight.diagnosis.catalogue import diagnose, words_of
from tensight.diagnosis.facts import Facts

Values = NDArray[np.float64]
EPOCHS = np.arange(1, 31)
UPDATES = 100
"""Of an epoch."""


def facts_of(
    trained: Values, evaluated: Values, accuracy: Values | None = None, noise: float = 0.02, seed: int = 0
) -> Facts:
    """Return the facts of a training that is evaluated at the end of each epoch.

    Parameters
    ----------
    trained, evaluated, accuracy : ndarray, shape (epochs,)
    noise : float
        Standard deviation of all values, as a share of them.
    seed : int
    """
    random, facts = np.random.default_rng(seed), Facts()
    for epoch, value in enumerate(trained.tolist()):
        for step in range(1, UPDATES + 1, 10):
            facts.add(
                "losses", epoch * UPDATES + step, [{"name": "loss", "value": value * random.normal(1, 5 * noise)}]
            )
        rows = [{"name": "val_loss", "is_loss": True, "value": evaluated[epoch] * random.normal(1, noise)}]
        if accuracy is not None:
            rows.append({"name": "accuracy", "is_skill": True, "value": accuracy[epoch] * random.normal(1, noise / 4)})
        facts.add("evaluations", (epoch + 1) * UPDATES, rows)
    return facts


def falling(to: float, of: float = 2.3, epochs: float = 6.0) -> Values:
    return to + (of - to) * np.exp(-EPOCHS / epochs)


# --- overfitting ---


def network_that_is_too_large() -> Facts:
    return facts_of(falling(0.01), falling(0.6, epochs=2) + 0.04 * np.maximum(EPOCHS - 8, 0))


def language_model_tuned_for_many_epochs() -> Facts:
    """The loss of the training falls at the beginning of each epoch, that of the evaluation rises from the first on."""
    return facts_of(1.6 * 0.8**EPOCHS, 1.5 + 0.06 * EPOCHS, noise=0.005)


def accuracy_that_falls_too() -> Facts:
    return facts_of(
        falling(0.02), falling(0.7, epochs=2) + 0.05 * np.maximum(EPOCHS - 6, 0), 0.8 - 0.002 * EPOCHS, seed=1
    )


def evaluation_that_is_noisy() -> Facts:
    return facts_of(falling(0.3), falling(0.6), noise=0.15)


def evaluation_that_is_a_little_worse() -> Facts:
    return facts_of(falling(0.1), falling(0.6, epochs=2) + 0.002 * np.maximum(EPOCHS - 8, 0))


def loss_that_rises_while_the_accuracy_does() -> Facts:
    """Of a classifier that becomes more certain: its few errors cost more."""
    return facts_of(
        falling(0.01), falling(0.5, epochs=2) + 0.015 * np.maximum(EPOCHS - 10, 0), 0.9 - 0.5 * np.exp(-EPOCHS / 8)
    )


def stopped_early() -> Facts:
    return facts_of(falling(0.05), falling(0.5) + 0.1 * np.maximum(EPOCHS - 25, 0))


def both_rise() -> Facts:
    """Of a training that diverges, which is another fault than that of its data."""
    return facts_of(falling(0.6) + 0.1 * np.maximum(EPOCHS - 8, 0), falling(0.6) + 0.1 * np.maximum(EPOCHS - 8, 0))


# --- evaluation-constant ---


def copy_that_is_never_updated() -> Facts:
    return facts_of(falling(0.1), np.full(30, 2.3041), np.full(30, 0.1032), noise=0.0)


def accuracy_of_one_class() -> Facts:
    """Outputs that are all the same give the share of one class; the loss, whose outputs differ, does not stay."""
    facts = facts_of(falling(0.1), falling(0.3), np.full(30, 0.113))
    exact = Facts()
    for row in facts["losses"].rows():
        exact.add("losses", row["step"], [row])
    for row in facts["evaluations"].rows():
        exact.add("evaluations", row["step"], [{**row, "value": 0.113} if row["is_skill"] else row])
    return exact


def weights_of_the_start() -> Facts:
    return facts_of(falling(0.1), np.full(30, 2.3), np.full(30, 0.1), noise=0.004)


def accuracy_of_a_guess() -> Facts:
    return facts_of(falling(0.1), 2.3 + 0.2 * EPOCHS, np.full(30, 0.1), noise=0.02)


def other_preprocessing() -> Facts:
    return facts_of(falling(0.1), np.full(30, 7.9), np.full(30, 0.31))


def half_of_two_classes() -> Facts:
    """An accuracy of a half while the loss hardly falls yet."""
    return facts_of(falling(0.6, of=0.7), falling(0.65, of=0.7), np.full(30, 0.5))


def evaluation_that_has_converged() -> Facts:
    return facts_of(falling(0.3, of=0.7), np.full(30, 0.55), np.full(30, 0.8), noise=0.01)


# --- evaluation-collapses ---


def accuracy_that_is_lost() -> Facts:
    accuracy = np.where(EPOCHS < 18, 0.9 - 0.8 * np.exp(-EPOCHS / 4), 0.1)
    return facts_of(falling(0.5), falling(0.6), accuracy)


def reward_that_is_forgotten() -> Facts:
    return facts_of(falling(0.5), falling(0.6), np.where(EPOCHS < 15, 20 + 30.0 * EPOCHS, 25.0), noise=0.1)


def translation_that_degenerates() -> Facts:
    return facts_of(falling(0.5), falling(0.6), np.clip(2.0 * EPOCHS, 0, 28) * np.where(EPOCHS > 22, 0.04, 1))


def accuracy_that_loses_a_part() -> Facts:
    return facts_of(falling(0.5), falling(0.6), 0.9 - 0.8 * np.exp(-EPOCHS / 4) - 0.004 * np.maximum(EPOCHS - 15, 0))


# --- evaluation-not-finite ---


def loss_of_an_empty_batch() -> Facts:
    return facts_of(falling(0.3), np.full(30, np.nan))


def overflow_in_half_precision() -> Facts:
    return facts_of(falling(0.3), np.where(EPOCHS < 12, falling(0.6), np.inf))


def variance_that_vanishes() -> Facts:
    return facts_of(falling(0.3), np.where(EPOCHS < 28, falling(0.4), np.nan))


def single_evaluation() -> Facts:
    return facts_of(falling(0.3), np.where(EPOCHS == 12, np.nan, falling(0.4)))


FAULTY: list[tuple[Callable[[], Facts], str, str]] = [
    (network_that_is_too_large, "overfitting", "val_loss is best at step"),
    (language_model_tuned_for_many_epochs, "overfitting", "(1.5"),
    (accuracy_that_falls_too, "overfitting", "its loss fell from"),
    (copy_that_is_never_updated, "evaluation-constant", "2.3041 in each of 30"),
    (accuracy_of_one_class, "evaluation-constant", "0.113 in each of 30"),
    (weights_of_the_start, "evaluation-constant", "about the first loss of the training"),
    (other_preprocessing, "evaluation-constant", "above the first loss of the training"),
    (accuracy_of_a_guess, "evaluation-constant", "as that of a guess does"),
    (accuracy_that_is_lost, "evaluation-collapses", "no better than at first"),
    (reward_that_is_forgotten, "evaluation-collapses", "at last"),
    (translation_that_degenerates, "evaluation-collapses", "at last"),
    (loss_of_an_empty_batch, "evaluation-not-finite", "nan in 30 of 30"),
    (overflow_in_half_precision, "evaluation-not-finite", "inf in 19 of 30"),
    (variance_that_vanishes, "evaluation-not-finite", "nan in 3 of 30"),
]
HEALTHY: list[tuple[Callable[[], Facts], str]] = [
    (evaluation_that_is_noisy, "overfitting"),
    (evaluation_that_is_a_little_worse, "overfitting"),
    (loss_that_rises_while_the_accuracy_does, "overfitting"),
    (stopped_early, "overfitting"),
    (both_rise, "overfitting"),
    (evaluation_that_has_converged, "evaluation-constant"),
    (half_of_two_classes, "evaluation-constant"),
    (accuracy_that_loses_a_part, "evaluation-collapses"),
    (single_evaluation, "evaluation-not-finite"),
]


@pytest.mark.parametrize(("make", "rule", "word"), FAULTY, ids=[make.__name__ for make, _, _ in FAULTY])
def test_the_fault_is_found(make: Callable[[], Facts], rule: str, word: str) -> None:
    (explained,) = diagnose([make()]).findings
    assert explained.finding.rule == rule
    message, evidence, _ = words_of(explained.finding)
    assert evidence is not None
    assert word in "\n".join(text[0].format(**explained.finding.values) for text in (message, evidence))


@pytest.mark.parametrize(("make", "rule"), HEALTHY, ids=[make.__name__ for make, _ in HEALTHY])
def test_nothing_is_found_of_others(make: Callable[[], Facts], rule: str) -> None:
    diagnosis = diagnose([make()])
    assert rule in diagnosis.passed
    assert diagnosis.findings == []
