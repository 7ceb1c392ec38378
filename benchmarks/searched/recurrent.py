"""A recurrent net reads a row of numbers of which two are marked, and says their sum."""

from __future__ import annotations

import torch
from reporting import arguments, counted, scale_weights
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

STEPS, EVERY = 120, 20
LENGTH = 12


def rows(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return numbers from 0 to 1 with a mark beside each, and the sum of the two that are marked."""
    numbers = torch.rand(count, LENGTH)
    marks = torch.zeros(count, LENGTH)
    marks.scatter_(1, torch.rand(count, LENGTH).topk(2)[1], 1.0)
    return torch.stack([numbers, marks], 2), (numbers * marks).sum(1)


class Reader(nn.Module):
    """A recurrent layer, and a linear one that reads its last state."""

    def __init__(self, cell: str, width: int, layers: int) -> None:
        super().__init__()
        self.recurrent = {"lstm": nn.LSTM, "gru": nn.GRU, "tanh": nn.RNN}[cell](2, width, layers, batch_first=True)
        self.head = nn.Linear(width, 1)

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        states, _ = self.recurrent(numbers)
        return self.head(states[:, -1])[:, 0]


def main() -> None:
    given = arguments("lr", "beta1", "init", "clip", "width", "layers", cell=["lstm", "gru", "tanh"])
    numbers, sums = rows(1024 + 256)
    model = Reader(given.cell, int(given.width), int(given.layers))
    scale_weights(model, given.init)
    optimizer = torch.optim.Adam(model.parameters(), given.lr, betas=(given.beta1, 0.99))
    for step in counted(STEPS, given.steps_file):
        chosen = torch.randint(1024, (32,))
        loss = F.mse_loss(model(numbers[chosen]), sums[chosen])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), given.clip)
        optimizer.step()
        if step % EVERY == 0:
            with torch.no_grad():
                print(f"step {step} error {F.mse_loss(model(numbers[1024:]), sums[1024:]).item():.6g}", flush=True)


main()
