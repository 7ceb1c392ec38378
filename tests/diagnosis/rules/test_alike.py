"""Models that put out the same for every sample, and others that resemble them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from tests.diagnosis.diagnosed import FEATURES, Diagnosed, Faulty, Healthy, network, table_tests
from tests.diagnosis.tasks import SIDE, give_pictures

if TYPE_CHECKING:
    from collections.abc import Callable

    Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

_WIDE = 64


def _sigmoids(inputs: int, outputs: int, *, deep: int = 5) -> nn.Sequential:
    sizes = [inputs, *[_WIDE] * deep]
    layers = [(nn.Linear(size, _WIDE), nn.Sigmoid()) for size in sizes[:-1]]
    return nn.Sequential(*(each for pair in layers for each in pair), nn.Linear(_WIDE, outputs))


def _learn_rows(training: Diagnosed, model: nn.Module, loss: Loss, rate: float) -> None:
    """Train with rows that are their own targets."""
    training.labels = training.inputs
    training.train(model, loss, torch.optim.Adam(model.parameters(), lr=rate), steps=150)


def pictures_behind_sigmoids(training: Diagnosed) -> None:
    """An autoencoder that learns the mean of all pictures: the loss falls, and no further."""
    give_pictures(training)
    training.inputs = training.inputs.clamp(0, 1).flatten(1)
    model = nn.Sequential(_sigmoids(SIDE * SIDE, 32), _sigmoids(32, SIDE * SIDE), nn.Sigmoid())
    _learn_rows(training, model, F.binary_cross_entropy, 3e-4)


def numbers_behind_sigmoids(training: Diagnosed) -> None:
    scales = torch.tensor([1.0, 30.0])
    model = _sigmoids(FEATURES, 2, deep=7)
    _learn_rows(training, model, lambda out, rows: F.mse_loss(out, 1 + rows[:, :2] * scales), 1e-3)


def dates_as_they_are(training: Diagnosed) -> None:
    """One feature is a million times as large as the others, and a normalization of each row leaves only that one."""
    training.inputs[:, 0] = 1e7
    model = nn.Sequential(nn.LayerNorm(FEATURES), nn.Linear(FEATURES, 16), nn.ReLU(), nn.Linear(16, FEATURES))
    _learn_rows(training, model, lambda out, rows: F.smooth_l1_loss(out[:, 1:], rows[:, 1:]), 1e-2)


def last_layer_that_begins_as_zeros(training: Diagnosed) -> None:
    model = network(out=FEATURES)
    nn.init.zeros_(model[2].weight)
    nn.init.zeros_(model[2].bias)
    _learn_rows(training, model, F.mse_loss, 1e-3)


def target_that_is_the_same(training: Diagnosed) -> None:
    """As of a discriminator's real pictures: the same output is what is wanted."""
    _learn_rows(training, network(out=1), lambda out, _: F.mse_loss(out, torch.ones_like(out)), 1e-2)


FAULTY: tuple[Faulty, ...] = (
    (pictures_behind_sigmoids, "loss-stays", "same for every sample"),
    (numbers_behind_sigmoids, "loss-stays", ""),
    (dates_as_they_are, "loss-stays", "same for every sample"),
)
HEALTHY: tuple[Healthy, ...] = (
    (last_layer_that_begins_as_zeros, "loss-stays"),
    (target_that_is_the_same, "loss-stays"),
)

test_the_fault_comes_first, test_nothing_is_found = table_tests(FAULTY, HEALTHY)
