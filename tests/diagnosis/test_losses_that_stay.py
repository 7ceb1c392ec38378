"""Losses that do not fall, and others that have not fallen yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from tests.diagnosis.diagnosed import CLASSES, FEATURES, each, network

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.diagnosis.diagnosed import Diagnosed

WORDS = 200
"""So many that the shares of the classes are unknown after a few batches."""


def labels_of_others(training: Diagnosed) -> None:
    training.train(network(), lambda out, _: F.cross_entropy(out, torch.randint(0, CLASSES, (len(out),))), steps=120)


def amounts_of_others(training: Diagnosed) -> None:
    training.train(
        network(out=1), lambda out, _: F.mse_loss(out[:, 0], 2.0 * torch.randint(0, 2, (len(out),)) - 1), steps=150
    )


def truths_of_others(training: Diagnosed) -> None:
    training.train(
        network(out=1),
        lambda out, _: F.binary_cross_entropy_with_logits(out[:, 0], torch.randint(0, 2, (len(out),)).float()),
        steps=150,
    )


def train_words(
    training: Diagnosed,
    rate: float,
    target: Callable[[torch.Tensor], torch.Tensor],
    steps: int = 130,
    warm_up: int = 0,
) -> None:
    """Train a model that predicts a word from another one; its outputs are small at first."""
    model = nn.Sequential(nn.Embedding(WORDS, 32), nn.Linear(32, WORDS))
    nn.init.normal_(model[1].weight, std=0.01)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1e-3, total_iters=warm_up) if warm_up else None
    for _ in range(steps):
        given = torch.randint(0, WORDS, (16,))
        optimizer.zero_grad()
        F.cross_entropy(model(given), target(given)).backward()
        optimizer.step()
        if schedule is not None:
            schedule.step()


def shuffled(given: torch.Tensor) -> torch.Tensor:
    return torch.randint(0, WORDS, given.shape)


def following(given: torch.Tensor) -> torch.Tensor:
    return (given + 1) % WORDS


def words_of_others(training: Diagnosed) -> None:
    train_words(training, 3e-4, shuffled)


def words_at_a_tiny_rate(training: Diagnosed) -> None:
    train_words(training, 1e-6, following)


@each(labels_of_others, amounts_of_others, truths_of_others, words_of_others, words_at_a_tiny_rate)
def test_a_loss_that_stays_is_reported(diagnosed: Diagnosed, train: Callable[[Diagnosed], None]) -> None:
    train(diagnosed)
    assert [rule for rule, _ in diagnosed.found()] == ["loss-stays"]


def words_that_are_learnt(training: Diagnosed) -> None:
    train_words(training, 3e-3, following)


def words_in_a_long_warm_up(training: Diagnosed) -> None:
    train_words(training, 1e-3, following, warm_up=1000)


def constant_that_is_learnt_late(training: Diagnosed) -> None:
    """For most of the training the loss falls to that of a constant; there was no time yet to come below that."""
    model = nn.Linear(FEATURES, 1)
    training.train(
        model,
        lambda out, labels: F.mse_loss(out[:, 0], 10 + labels.float()),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.008),
        steps=180,
    )


@each(words_that_are_learnt, words_in_a_long_warm_up, constant_that_is_learnt_late)
def test_a_loss_that_falls_late_is_not(diagnosed: Diagnosed, train: Callable[[Diagnosed], None]) -> None:
    train(diagnosed)
    assert diagnosed.found() == []
    assert diagnosed.facts.last_step >= 120
