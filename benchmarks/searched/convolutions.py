"""A small convolutional net tells six textures apart, in noisy pictures of 16 x 16."""

from __future__ import annotations

import math

import torch
from reporting import arguments, counted, scale_weights
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

STEPS, EVERY = 100, 20
CLASSES, SIZE = 6, 16


def pictures(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return waves in six directions, anywhere in the picture, and the direction of each."""
    classes = torch.randint(CLASSES, (count,))
    angle = (classes + 0.5 * torch.rand(count)) * math.pi / CLASSES
    row, column = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    along = row * torch.sin(angle)[:, None, None] + column * torch.cos(angle)[:, None, None]
    length = 3 + 4 * torch.rand(count, 1, 1)
    waves = torch.sin(2 * math.pi * (along / length + torch.rand(count, 1, 1)))
    return (waves + 1.3 * torch.randn(count, SIZE, SIZE))[:, None], classes


def network(depth: int, width: int, norm: str) -> nn.Sequential:
    """Convolutions, each halving the picture, and a linear layer."""
    layers: list[nn.Module] = []
    inputs = 1
    for _ in range(depth):
        layers.append(nn.Conv2d(inputs, width, 3, 2, 1))
        if norm == "batch":
            layers.append(nn.BatchNorm2d(width))
        layers.append(nn.ReLU())
        inputs = width
    return nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(CLASSES))


def main() -> None:
    given = arguments("lr", "momentum", "decay", "init", "depth", "width", norm=["batch", "none"])
    images, classes = pictures(1024 + 512)
    model = network(int(given.depth), int(given.width), given.norm)
    model(images[:2])
    scale_weights(model, given.init)
    optimizer = torch.optim.SGD(model.parameters(), given.lr, momentum=given.momentum, weight_decay=given.decay)
    for step in counted(STEPS, given.steps_file):
        chosen = torch.randint(1024, (32,))
        loss = F.cross_entropy(model(images[chosen]), classes[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % EVERY == 0:
            model.eval()
            with torch.no_grad():
                logits = model(images[1024:])
                right = (logits.argmax(1) == classes[1024:]).float().mean().item()
                # What has no numbers in it is no answer.
                right = right if bool(logits.isfinite().all()) else math.nan
            model.train()
            print(f"step {step} accuracy {right:.6g}", flush=True)


main()
