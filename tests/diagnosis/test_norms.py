"""Batch normalizations: inputs of two kinds, and statistics of frozen parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from tests.diagnosis.diagnosed import CLASSES, FEATURES, each

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.diagnosis.diagnosed import Diagnosed


class Normalised(nn.Module):
    """A body with a normalization, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.BatchNorm1d(FEATURES), nn.Linear(FEATURES, 16), nn.BatchNorm1d(16), nn.ReLU())
        self.head = nn.Linear(16, CLASSES)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.body(given))
        return result


def train_on_two(
    training: Diagnosed,
    other: Callable[[torch.Tensor], torch.Tensor],
    make: Callable[[nn.Module], torch.optim.Optimizer],
) -> None:
    model = Normalised()
    optimizer = make(model)
    for _ in range(40):
        inputs, labels = training.batch()
        shares = model(other(inputs)).softmax(1)
        loss = F.cross_entropy(model(inputs), labels) - 0.01 * (shares * shares.log()).sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=1e-2)


def another_camera(training: Diagnosed) -> None:
    train_on_two(training, lambda inputs: 4 * inputs + 20, adam)


def numbers_in_another_unit(training: Diagnosed) -> None:
    train_on_two(training, lambda inputs: inputs * 0.01 + 5, adam)


def pictures_that_are_inverted(training: Diagnosed) -> None:
    training.inputs = training.inputs + 4
    train_on_two(training, lambda inputs: -inputs, adam)


@each(another_camera, numbers_in_another_unit, pictures_that_are_inverted)
def test_inputs_of_two_kinds(diagnosed: Diagnosed, train: Callable[[Diagnosed], None]) -> None:
    train(diagnosed)
    assert diagnosed.found() == [("norm-two-streams", "apart")]


def two_views(training: Diagnosed) -> None:
    train_on_two(training, lambda inputs: inputs + 0.3 * torch.randn_like(inputs), adam)


def normalised_apart(training: Diagnosed) -> None:
    train_on_two(training, lambda inputs: ((4 * inputs + 20) - 20) / 4, adam)


def train_frozen(training: Diagnosed, freeze: Callable[[Normalised], object]) -> None:
    model = Normalised()
    training.train(model, steps=40)
    model.body.requires_grad_(False)
    freeze(model)
    for _ in range(2):
        training.train(model, optimizer=torch.optim.Adam(model.head.parameters(), lr=1e-2), steps=12)
        model.train()
        freeze(model)


def frozen_body_in_training_mode(training: Diagnosed) -> None:
    model = Normalised()
    model.body.requires_grad_(False)
    training.train(model, optimizer=torch.optim.Adam(model.head.parameters(), lr=1e-2), steps=40)


def frozen_norms_alone(training: Diagnosed) -> None:
    model = Normalised()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.requires_grad_(False)
    training.train(model, optimizer=torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-2))


def frozen_and_then_set_to_training(training: Diagnosed) -> None:
    model = Normalised()
    model.body.requires_grad_(False)
    model.body.eval()
    training.train(
        model,
        optimizer=torch.optim.Adam(model.head.parameters(), lr=1e-2),
        steps=30,
        after=lambda step: model.train() if step == 1 else None,
    )


@each(frozen_body_in_training_mode, frozen_norms_alone, frozen_and_then_set_to_training)
def test_statistics_of_frozen_parts(diagnosed: Diagnosed, train: Callable[[Diagnosed], None]) -> None:
    train(diagnosed)
    assert diagnosed.found() == [("statistics-drift", "drift")]


def frozen_body_in_evaluation_mode(training: Diagnosed) -> None:
    model = Normalised()
    model.body.requires_grad_(False)
    model.body.eval()
    training.train(model, optimizer=torch.optim.Adam(model.head.parameters(), lr=1e-2), steps=40)


def target_within_a_module(training: Diagnosed) -> None:
    """The weights of the target follow those of the trained part, and its statistics those of its inputs."""

    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.online, self.target = Normalised(), Normalised().requires_grad_(False)
            self.target.load_state_dict(self.online.state_dict())

        def forward(self, given: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                self.target(given)
            result: torch.Tensor = self.online(given)
            return result

    model = Pair()

    def follow(_: int) -> None:
        with torch.no_grad():
            for mine, theirs in zip(model.target.parameters(), model.online.parameters(), strict=True):
                mine.lerp_(theirs, 0.05)

    optimizer = torch.optim.Adam(model.online.parameters(), lr=1e-2)
    training.train(model, optimizer=optimizer, steps=40, after=follow)


@each(two_views, normalised_apart, frozen_body_in_evaluation_mode, target_within_a_module)
def test_nothing_is_found(diagnosed: Diagnosed, train: Callable[[Diagnosed], None]) -> None:
    train(diagnosed)
    assert diagnosed.found() == []
    assert len(diagnosed.facts["modules"])
