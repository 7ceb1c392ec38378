"""A perceptron learns a wavy function of six numbers."""

from __future__ import annotations

import itertools

import torch
from reporting import arguments, counted, scale_weights
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

STEPS, EVERY = 150, 30
INPUTS = 6


def samples(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return points, and a function of them with some noise; its mean is far from zero."""
    points = torch.randn(count, INPUTS)
    values = 5 + torch.sin(2 * points[:, 0]) * points[:, 1] + points[:, 2:4].square().sum(1) - points[:, 4]
    return points, values + 0.1 * torch.randn(count)


def network(depth: int, width: int, activation: str) -> nn.Sequential:
    """Return a network of linear layers."""
    between = {"relu": nn.ReLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid}[activation]
    widths = [INPUTS, *[width] * depth]
    hidden = [layer for before, after in itertools.pairwise(widths) for layer in (nn.Linear(before, after), between())]
    return nn.Sequential(*hidden, nn.Linear(width, 1))


def main() -> None:
    given = arguments(
        "lr",
        "momentum",
        "decay",
        "init",
        "depth",
        "width",
        activation=["relu", "tanh", "sigmoid"],
        optimizer=["sgd", "adam", "rmsprop"],
    )
    points, values = samples(2048 + 512)
    model = network(int(given.depth), int(given.width), given.activation)
    scale_weights(model, given.init)
    if given.optimizer == "sgd":
        optimizer: torch.optim.Optimizer = torch.optim.SGD(
            model.parameters(), given.lr, given.momentum, weight_decay=given.decay
        )
    elif given.optimizer == "adam":
        betas = (given.momentum, 0.99)
        optimizer = torch.optim.Adam(model.parameters(), given.lr, betas, weight_decay=given.decay)
    else:
        optimizer = torch.optim.RMSprop(model.parameters(), given.lr, momentum=given.momentum, weight_decay=given.decay)
    for step in counted(STEPS, given.steps_file):
        chosen = torch.randint(2048, (32,))
        loss = F.mse_loss(model(points[chosen])[:, 0], values[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % EVERY == 0:
            with torch.no_grad():
                error = F.mse_loss(model(points[2048:])[:, 0], values[2048:])
                print(f"step {step} error {error.item():.6g}", flush=True)


main()
