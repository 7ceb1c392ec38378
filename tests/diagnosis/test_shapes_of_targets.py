"""Heads that are frozen as they were made, and weights that are rounded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from tests.diagnosis.diagnosed import CLASSES, FEATURES, each, network

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.diagnosis.diagnosed import Diagnosed


def new_head_that_is_frozen(training: Diagnosed) -> None:
    model = network()
    nn.init.zeros_(model[2].bias)
    model[2].requires_grad_(False)
    training.train(model, optimizer=torch.optim.Adam(model[0].parameters(), lr=1e-2))


def all_but_the_body_frozen(training: Diagnosed) -> None:
    model = nn.Sequential(network(out=16), nn.Linear(16, 16), nn.Linear(16, CLASSES))
    nn.init.zeros_(model[2].bias)
    for name, weight in model.named_parameters():
        weight.requires_grad_(name.startswith("0."))
    training.train(model, optimizer=torch.optim.Adam(model[0].parameters(), lr=1e-2))


@each(new_head_that_is_frozen, all_but_the_body_frozen)
def test_a_head_that_is_frozen_as_it_was_made(diagnosed: Diagnosed, train: Callable[[Diagnosed], None]) -> None:
    train(diagnosed)
    assert diagnosed.found()[:1] == [("head-frozen", "head")]


def trained_head_that_is_frozen(training: Diagnosed) -> None:
    model = network()
    model[2].requires_grad_(False)
    training.train(model, optimizer=torch.optim.Adam(model[0].parameters(), lr=1e-2))


def test_weights_that_are_rounded(diagnosed: Diagnosed) -> None:
    """The bias has a gradient, but what is rounded has none."""

    class Rounded(nn.Linear):
        def forward(self, given: torch.Tensor) -> torch.Tensor:
            return F.linear(given, torch.round(self.weight * 8) / 8, self.bias)

    model = nn.Sequential(Rounded(FEATURES, 16), nn.ReLU(), Rounded(16, CLASSES))
    diagnosed.train(model)
    assert diagnosed.found()[:1] == [("zero-gradient", "flat_some")]


@each(
    trained_head_that_is_frozen,
)
def test_nothing_is_found(diagnosed: Diagnosed, train: Callable[[Diagnosed], None]) -> None:
    train(diagnosed)
    assert diagnosed.found() == []
