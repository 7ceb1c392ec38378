"""A small training in PyTorch that is the same every time; with ``--inf-at STEP`` an input of that step is infinite."""

from __future__ import annotations

import argparse

import torch
from torch import nn

BATCH, FEATURES, HIDDEN, CLASSES = 8, 12, 16, 4


class Network(nn.Module):
    """A small classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, HIDDEN)
        self.second = nn.Linear(HIDDEN, CLASSES)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """Return one logit for each class."""
        return self.second(torch.relu(self.first(pictures)))


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--inf-at", type=int, default=0)
    options = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    network = Network()
    loss_of = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(network.parameters(), 0.1, momentum=0.9)
    for step in range(1, options.steps + 1):
        pictures = torch.randn(BATCH, FEATURES)
        if step == options.inf_at:
            pictures[0, 0] = torch.inf
        kinds = torch.randint(CLASSES, (BATCH,))
        optimizer.zero_grad()
        loss_of(network(pictures), kinds).backward()
        optimizer.step()


if __name__ == "__main__":
    main()
