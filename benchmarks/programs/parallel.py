"""Parts of a network on several processes: torchrun --nproc-per-node 2 parallel.py ddp|fsdp2|tensor-parallel."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from learning import CLASSES, points, report
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional as F  # noqa: N812 - as everybody calls it


class Block(nn.Module):
    """Up, and down again, beside the old."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden + self.down(F.gelu(self.up(self.norm(hidden))))


class Network(nn.Module):
    """Some blocks between two layers."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.inlet = nn.Linear(16, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(3))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = self.inlet(hidden)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden)


way = sys.argv[1]
if "RANK" not in os.environ:
    os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    store = dist.HashStore()
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
else:
    dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(14)
rows, labels = points(512, 16)
model = Network()
mesh = init_device_mesh("cpu", (ranks,))
if way == "ddp":
    trained = nn.parallel.DistributedDataParallel(model)
elif way == "fsdp2":
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    trained = fully_shard(model, mesh=mesh)
else:
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    for block in model.blocks:
        parallelize_module(block, mesh, plan)
    trained = model
optimizer = torch.optim.AdamW(trained.parameters(), lr=3e-3)
losses = []
for step in range(30):
    chosen = torch.arange(32) + step * 32 % 512
    mine = chosen if way == "tensor-parallel" else chosen[rank::ranks]
    optimizer.zero_grad()
    loss = F.cross_entropy(trained(rows[mine]), labels[mine])
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
if rank == 0:
    report(losses, model)
dist.destroy_process_group()
