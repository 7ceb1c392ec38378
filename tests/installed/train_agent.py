"""A training in float32 and bfloat16 that divides by zero in its sixth step, and prints the bits that it arrived at."""

import hashlib
import sys

import torch
from torch import nn

STEPS, FAULT_AT = 10, 6


class Narrow(nn.Module):
    """Layers in bfloat16, between others in float32."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(16, 32, dtype=torch.bfloat16)
        self.second = nn.Linear(32, 16, dtype=torch.bfloat16)

    def forward(self, inputs):
        return self.second(torch.relu(self.first(inputs.bfloat16()))).float()


torch.manual_seed(1)
torch.set_num_threads(1)
network = nn.Sequential(nn.Linear(8, 16), Narrow(), nn.LayerNorm(16), nn.Linear(16, 4))
optimizer = torch.optim.AdamW(network.parameters(), 1e-3)
for step in range(1, STEPS + 1):
    inputs = torch.rand(16, 8)
    if step == FAULT_AT and "--healthy" not in sys.argv:
        inputs /= inputs - inputs
    optimizer.zero_grad()
    nn.functional.cross_entropy(network(inputs), torch.arange(16) % 4).backward()
    optimizer.step()
arrived = hashlib.sha256()
for weight in network.parameters():
    arrived.update(weight.detach().contiguous().view(torch.uint8).numpy().tobytes())
print("arrived", arrived.hexdigest())
