"""What the trainings of this folder share: how many steps they have begun, and the bounds of their arguments."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator


def arguments(*numbers: str, **choices: list[str]) -> Namespace:
    """Read the command line: options that are numbers, and options with choices."""
    parser = ArgumentParser()
    parser.add_argument("--steps-file", required=True)
    for name in numbers:
        parser.add_argument(f"--{name}", type=float, required=True)
    for name, values in choices.items():
        parser.add_argument(f"--{name}", choices=values, required=True)
    torch.set_num_threads(1)
    torch.manual_seed(1)
    return parser.parse_args()


def counted(steps: int, path: str) -> Iterator[int]:
    """Yield the steps from 1, and keep in a file how many have begun."""
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    for step in range(1, steps + 1):
        os.pwrite(file, str(step).encode(), 0)
        yield step
    os.close(file)


def scale_weights(model: torch.nn.Module, scale: float) -> None:
    """Multiply the first values of all matrices."""
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.mul_(scale)
