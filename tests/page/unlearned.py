"""Trains a small network that does not learn: its loss applies a softmax of its own, and it is in evaluation mode."""

from __future__ import annotations

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
body = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))
model = nn.Sequential(body, nn.Softmax(1)).eval()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
inputs = torch.randn(256, 8)
labels = (inputs[:, 0] > 0).long() + 2 * (inputs[:, 1] > 0).long()
while True:
    rows = torch.randint(0, 256, (32,))
    loss = nn.functional.cross_entropy(model(inputs[rows]), labels[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
