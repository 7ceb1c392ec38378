"""Trainings that look as if something were wrong with them, and of which nothing is found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from tests.diagnosis.diagnosed import CLASSES, FEATURES, network

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.diagnosis.diagnosed import Diagnosed


def plain(training: Diagnosed) -> None:
    training.train(network(), steps=80)


def norms_that_rest_in_bfloat16(training: Diagnosed) -> None:
    """Towards the end of its schedule an update is less than half of the distance between two numbers about 1."""
    model = nn.Sequential(nn.Linear(FEATURES, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, CLASSES)).bfloat16()
    training.inputs = training.inputs.bfloat16()
    optimizer = torch.optim.Adam(model.parameters(), lr=8e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 if step < 20 else 0.1)
    training.train(model, optimizer=optimizer, steps=50, after=lambda _: schedule.step())


def gradients_of_transforms(training: Diagnosed) -> None:
    """Tensors within transforms of torch.func have no memory that could be read."""
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    names = [name for name, _ in model.named_parameters()]

    def loss(weights: dict[str, torch.Tensor], inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(torch.func.functional_call(model, weights, (inputs,)), labels)

    for _ in range(12):
        weights = {name: weight.detach() for name, weight in model.named_parameters()}
        gradients = torch.func.grad(loss)(weights, *training.batch())
        for name, weight in zip(names, model.parameters(), strict=True):
            weight.grad = gradients[name]
        optimizer.step()


HEALTHY: tuple[Callable[[Diagnosed], None], ...] = (
    plain,
    norms_that_rest_in_bfloat16,
    gradients_of_transforms,
)


@pytest.mark.parametrize("train", HEALTHY, ids=lambda train: train.__name__)
def test_nothing_is_found(diagnosed: Diagnosed, train: Callable[[Diagnosed], None]) -> None:
    train(diagnosed)
    assert diagnosed.findings() == []
    assert diagnosed.facts.last_step >= 8
