"""Two networks against each other: one makes points that shall lie on a ring of eight spots as the real ones do."""

from __future__ import annotations

import itertools
import math

import torch
from reporting import arguments, counted, scale_weights
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

STEPS, EVERY = 200, 40
NOISE, WIDTH = 8, 48


def real_points(count: int) -> torch.Tensor:
    """Return points of the ring."""
    angle = torch.randint(8, (count,)) * math.pi / 4
    return 2 * torch.stack([angle.cos(), angle.sin()], 1) + 0.1 * torch.randn(count, 2)


def layers(inputs: int, outputs: int, depth: int, activation: str) -> nn.Sequential:
    """Return a network of linear layers."""
    between = {"relu": nn.ReLU, "tanh": nn.Tanh, "leaky": lambda: nn.LeakyReLU(0.2)}[activation]
    widths = [inputs, *[WIDTH] * depth]
    hidden = [layer for before, after in itertools.pairwise(widths) for layer in (nn.Linear(before, after), between())]
    return nn.Sequential(*hidden, nn.Linear(widths[-1], outputs))


def distance(made: torch.Tensor, real: torch.Tensor, directions: torch.Tensor) -> float:
    """Return the sliced Wasserstein distance of two sets of points."""
    return ((made @ directions).sort(0)[0] - (real @ directions).sort(0)[0]).abs().mean().item()


def main() -> None:
    given = arguments("lr", "ratio", "beta1", "init", "depth", activation=["relu", "tanh", "leaky"])
    maker = layers(NOISE, 2, int(given.depth), given.activation)
    judge = layers(2, 1, int(given.depth), given.activation)
    scale_weights(maker, given.init)
    scale_weights(judge, given.init)
    betas = (given.beta1, 0.99)
    maker_optimizer = torch.optim.Adam(maker.parameters(), given.lr, betas=betas)
    judge_optimizer = torch.optim.Adam(judge.parameters(), given.lr * given.ratio, betas=betas)
    real, noise, directions = real_points(512), torch.randn(512, NOISE), F.normalize(torch.randn(2, 32), dim=0)
    for step in counted(STEPS, given.steps_file):
        points = maker(torch.randn(64, NOISE))
        judge_loss = F.softplus(-judge(real_points(64))).mean() + F.softplus(judge(points.detach())).mean()
        judge_optimizer.zero_grad()
        judge_loss.backward()
        judge_optimizer.step()
        maker_optimizer.zero_grad()
        F.softplus(-judge(points)).mean().backward()
        maker_optimizer.step()
        if step % EVERY == 0:
            with torch.no_grad():
                print(f"step {step} distance {distance(maker(noise), real, directions):.6g}", flush=True)


main()
