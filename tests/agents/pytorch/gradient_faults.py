"""Planted mistakes whose gradients and updates are too large, or nothing."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from tests.agents.pytorch import trainings
from tests.agents.pytorch.networks import CLASSES, Mlp
from tests.agents.pytorch.planting import TOO_LARGE, UNTRAINED, Fault, classified_by, sick
from tests.agents.pytorch.trainings import Training, batches_of, points, supervised

if TYPE_CHECKING:
    pass

VANISHING = frozenset({"gradient_imbalance", "gradient_vanishing"})


class Recurrence(nn.Module):
    """A recurrent cell written by hand, whose weight is too large."""

    def __init__(self, size: int = 48) -> None:
        super().__init__()
        self.read = nn.Linear(4, size)
        self.again = nn.Linear(size, size, bias=False)
        self.head = nn.Linear(size, 1)
        nn.init.normal_(self.again.weight, std=4 / math.sqrt(size))

    def forward(self, sequence: torch.Tensor) -> torch.Tensor:
        """Return one number for each sequence."""
        hidden = sequence.new_full((len(sequence), self.again.in_features), 0.1)
        for word in sequence.unbind(1):
            hidden = torch.tanh(self.again(hidden) + self.read(word))  # planted: exploding recurrence
        return self.head(hidden)


def recurrence() -> Training:
    """Read long sequences, and clip no gradient."""
    torch.manual_seed(trainings.SEED)
    sequences = torch.randn(256, 60, 4) / 10
    batch = batches_of(sequences, sequences[..., 0].mean(1, keepdim=True), 32)
    model = Recurrence()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return supervised(model, optimizer, batch, F.mse_loss)


class Deep(nn.Module):
    """Sigmoids, one upon another, with nothing to help the gradient through."""

    def __init__(self, layers: int = 14) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(layers))
        self.head = nn.Linear(16, CLASSES)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return one logit for each class."""
        for layer in self.layers:
            hidden = torch.sigmoid(layer(hidden))  # planted: vanishing gradient
        return self.head(hidden)


class Fast(Mlp):
    """An ordinary network, which its learning rate does not suit."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return what the last layer says."""
        for layer in self.layers[:-1]:
            hidden = F.leaky_relu(layer(hidden))
        return self.layers[-1](hidden)  # planted: learning rate too large


def too_fast() -> Training:
    """Train with a learning rate far too large."""
    torch.manual_seed(trainings.SEED)
    inputs, _ = points()
    batch = batches_of(inputs, inputs.sum(1, keepdim=True), 32)
    model = Fast(16, 32, 32, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=3.0)

    def step(number: int) -> torch.Tensor:
        rows, targets = batch(number)
        optimizer.zero_grad()
        loss = F.mse_loss(model(rows), targets)
        loss.backward()
        optimizer.step()
        return loss

    return Training((model,), (optimizer,), step)


class Jumping(nn.Module):
    """A classifier one of whose weights is written to behind the optimizer's back."""

    def __init__(self) -> None:
        super().__init__()
        self.inlet = nn.Linear(16, 32)
        self.head = nn.Linear(32, CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return one logit for each class."""
        hidden = torch.tanh(self.inlet(inputs))
        return self.head(hidden)


def jumping() -> Training:
    """Train, and scale the wrong way once."""
    torch.manual_seed(trainings.SEED)
    batch = batches_of(*points(), 32)
    model = Jumping()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step(number: int) -> torch.Tensor:
        rows, classes = batch(number)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(rows), classes)
        loss.backward()
        optimizer.step()
        if sick(number):
            with torch.no_grad():
                model.head.weight.mul_(1e4)  # planted: weight that jumps
        return loss

    return Training((model,), (optimizer,), step)


FAULTS: tuple[Fault, ...] = (
    Fault(
        "exploding recurrence",
        recurrence,
        TOO_LARGE,
        r"^Gradients/Default/",
    ),
    Fault("learning rate too large", too_fast, TOO_LARGE, r"^layers\.2\.weight$", step=1),
    Fault("weight that jumps", jumping, TOO_LARGE, r"^head\.weight$", step=7),
    Fault("vanishing gradient", partial(classified_by, Deep), VANISHING | UNTRAINED, r"layers"),
)
