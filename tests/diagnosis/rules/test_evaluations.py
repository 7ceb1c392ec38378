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


FAULTY: list[tuple[Callable[[], Facts], str, str]] = [
    (network_that_is_too_large, "overfitting", "val_loss is best at step"),
    (language_model_tuned_for_many_epochs, "overfitting", "(1.5"),
    (accuracy_that_falls_too, "overfitting", "its loss fell from"),
]
HEALTHY: list[tuple[Callable[[], Facts], str]] = [
    (evaluation_that_is_noisy, "overfitting"),
    (evaluation_that_is_a_little_worse, "overfitting"),
    (loss_that_rises_while_the_accuracy_does, "overfitting"),
    (stopped_early, "overfitting"),
    (both_rise, "overfitting"),
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
