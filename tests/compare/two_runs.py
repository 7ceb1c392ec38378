"""Pairs of trainings that are recorded, for tests of their comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

import tensight.torch
from tensight.analysis import Analysis
from tensight.dumps import open_dump

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

STEPS = 3


class Block(nn.Module):
    """A transformer's block with what may go wrong in a port as arguments."""

    def __init__(self, width: int, eps: float = 1e-5, approximate: str = "none", scale: float = 1.0) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=eps), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.act, self.down = nn.Linear(width, 2 * width), nn.GELU(approximate), nn.Linear(2 * width, width)
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, 2, width // 2).permute(2, 0, 3, 1, 4)
        weights = torch.softmax(self.scale * q @ k.transpose(-1, -2) / (width // 2) ** 0.5, -1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))
        return x + self.down(self.act(self.up(self.norm2(x))))


class Network(nn.Module):
    """An embedding, two blocks of which the second can be changed, and a classifier."""

    def __init__(self, **changed: float | str) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.blocks = nn.ModuleList([Block(16), Block(16, **changed)])  # type: ignore[arg-type]
        self.head = nn.Linear(16, 50)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def make_network(**changed: float | str) -> Network:
    """Return a network whose weights depend on nothing but the seed."""
    torch.manual_seed(7)
    return Network(**changed)


def adam(network: nn.Module) -> torch.optim.Optimizer:
    """Return the optimizer of the reference."""
    return torch.optim.AdamW(network.parameters(), 1e-3)


def mean_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the loss of the reference."""
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def record(
    folder: Path,
    network: nn.Module,
    optimizer: Callable[[nn.Module], torch.optim.Optimizer] = adam,
    loss_of: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = mean_loss,
    *,
    capture: str = "modules",
    data_seed: int = 3,
    parts: int = 1,
    as_trace: bool = False,
    steps: int = STEPS,
) -> Analysis:
    """Train some steps while all of them are recorded, and open the recording, or the trace."""
    generator = torch.Generator().manual_seed(data_seed)
    batches = torch.randint(0, 50, (steps, 4, 9), generator=generator)
    chosen = optimizer(network)
    where = {"trace": str(folder)} if as_trace else {"record": "full", "record_folder": str(folder)}
    with tensight.torch.debug(network, chosen, capture=capture, quiet=True, port=1, **where):
        for batch in batches:
            chosen.zero_grad()
            for part in batch.chunk(parts):
                (loss_of(network(part[:, :-1]), part[:, 1:]) / parts).backward()
            chosen.step()
    return Analysis(open_dump(str(folder)), cache_dir=folder.parent / f"{folder.name}-cache")
