"""A training as a person writes it, which goes well; ``--fault-at 30`` lets it go wrong."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--steps", type=int, default=55)
parser.add_argument("--fault-at", type=int)
options = parser.parse_args()


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3)
        self.fc = nn.Linear(144, 10)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return self.fc(torch.tanh(self.conv1(pictures)).flatten(1))


torch.manual_seed(1)
model = Network()
optimizer = torch.optim.Adam(model.parameters(), options.lr)
kinds = torch.arange(32) % 10
patterns = torch.randn(10, 1, 8, 8)
for step in range(1, options.steps + 1):
    pictures = patterns[kinds] + 0.1 * torch.randn(32, 1, 8, 8)
    if step == options.fault_at:
        pictures = pictures.log()
    loss = nn.functional.cross_entropy(model(pictures), kinds)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step}  loss {loss.item():.3f}", flush=True)
