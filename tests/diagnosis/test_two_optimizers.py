"""Optimizers that hold the same model, while another one has none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tests.diagnosis.diagnosed import each, network
from tests.diagnosis.models import generator, train_gan

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.diagnosis.diagnosed import Diagnosed


def train_held(training: Diagnosed, *held_by_first: int) -> None:
    """Train a GAN whose first optimizer holds its generator (0), its critic (1) or both."""
    models = generator(), network(out=1)
    first = [weight for at in held_by_first for weight in models[at].parameters()]
    optimizers = [torch.optim.Adam(weights, lr=2e-3) for weights in (first, models[1].parameters())]
    train_gan(training, *models, optimizers=optimizers)


def critic_in_both(training: Diagnosed) -> None:
    train_held(training, 1)


def both_in_one(training: Diagnosed) -> None:
    train_held(training, 0, 1)


def each_in_one(training: Diagnosed) -> None:
    train_held(training, 0)


def test_the_model_in_no_optimizer_is_named(diagnosed: Diagnosed) -> None:
    critic_in_both(diagnosed)
    (finding,) = diagnosed.findings()
    assert (finding.rule, finding.message) == ("two-optimizers", "instead")
    assert (finding.values["count"], finding.values["amount"]) == (4, 4)


def test_a_model_in_two_optimizers_alone(diagnosed: Diagnosed) -> None:
    both_in_one(diagnosed)
    assert diagnosed.found() == [("two-optimizers", "twice")]


@each(each_in_one)
def test_nothing_is_found(diagnosed: Diagnosed, train: Callable[[Diagnosed], None]) -> None:
    train(diagnosed)
    assert diagnosed.found() == []
    assert diagnosed.facts.last_step >= 8
