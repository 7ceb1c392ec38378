from __future__ import annotations

import contextlib
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from launch import run
from learning import CLASSES, points
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

WORLD = 2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(16, 48)
        self.fc2 = nn.Linear(48, 48)
        self.fc3 = nn.Linear(48, CLASSES)

    def forward(self, x):
        return self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(x)))))


def table(seed):
    torch.manual_seed(seed)
    return points(512, 16, 1.2)


def ddp_worker(rank, fault, seed):
    """As in the tutorial."""
    x, y = table(seed)
    dataset = TensorDataset(x, y)
    model = DDP(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    if fault == "same-data":
        sampler = None
        loader = DataLoader(dataset, batch_size=32)
    else:
        sampler = DistributedSampler(dataset, WORLD, rank, shuffle=True)
        loader = DataLoader(dataset, batch_size=32, sampler=sampler)
    for epoch in range(6):
        if sampler is not None:
            sampler.set_epoch(epoch)
        for inputs, labels in loader:
            optimizer.zero_grad()
            if fault == "wrapper-bypassed":
                outputs = model.module(inputs)
            else:
                outputs = model(inputs)
            loss = F.cross_entropy(outputs, labels)
            loss.backward()
            if fault == "averaged-again":
                for p in model.parameters():
                    dist.all_reduce(p.grad)
                    p.grad /= WORLD * WORLD
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)


def manual_worker(rank, fault, seed):
    """Gradients averaged by hand; each rank has its part of the rows."""
    x, y = table(seed)
    x, y = x[rank::WORLD], y[rank::WORLD]
    if fault == "replicas-differ":
        torch.manual_seed(seed + rank)
    model = Net()
    torch.manual_seed(seed + 10 * rank)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(100):
        i = torch.randint(0, len(x), (32,))
        loss = F.cross_entropy(model(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        if fault != "not-averaged":
            for p in model.parameters():
                dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
                p.grad /= WORLD
        optimizer.step()
        if rank == 0 and step % 20 == 19:
            print(f"step {step + 1} loss {loss.item():.4f}", flush=True)


def summed_worker(rank, fault, seed):
    """The same by one flat tensor, with SGD."""
    x, y = table(seed)
    torch.manual_seed(seed)
    model = Net()
    for p in model.parameters():
        dist.broadcast(p.data, 0)
    torch.manual_seed(seed + 10 * rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    half = len(x) // WORLD
    x, y = x[rank * half : (rank + 1) * half], y[rank * half : (rank + 1) * half]
    for step in range(120):
        i = torch.randint(0, half, (16,))
        loss = F.cross_entropy(model(x[i]), y[i])
        model.zero_grad()
        loss.backward()
        flat = torch.cat([p.grad.flatten() for p in model.parameters()])
        dist.all_reduce(flat)
        if fault != "sum-not-divided":
            flat /= WORLD
        at = 0
        for p in model.parameters():
            p.grad.copy_(flat[at : at + p.numel()].view_as(p))
            at += p.numel()
        optimizer.step()
        if rank == 0 and step % 24 == 23:
            print(f"{step + 1}: {loss.item():.4f}", flush=True)


def accumulate_worker(rank, fault, seed):
    """No communication but in the last of four small batches."""
    x, y = table(seed)
    x, y = x[rank::WORLD], y[rank::WORLD]
    torch.manual_seed(seed)
    model = DDP(Net())
    torch.manual_seed(seed + 10 * rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(50):
        optimizer.zero_grad()
        total = 0.0
        for part in range(4):
            i = torch.randint(0, len(x), (8,))
            with model.no_sync() if part < 3 else contextlib.nullcontext():
                loss = F.cross_entropy(model(x[i]), y[i]) / 4
                loss.backward()
            total += loss.item()
        optimizer.step()
        if rank == 0 and step % 10 == 9:
            print(f"{step + 1}: {total:.4f}", flush=True)


def local_worker(rank, fault, seed):
    """Local SGD: ranks train by themselves, and average their weights every fourth step."""
    x, y = table(seed)
    x, y = x[rank::WORLD], y[rank::WORLD]
    torch.manual_seed(seed)
    model = Net()
    torch.manual_seed(seed + 10 * rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(120):
        i = torch.randint(0, len(x), (32,))
        loss = F.cross_entropy(model(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 4 == 3:
            with torch.no_grad():
                for p in model.parameters():
                    dist.all_reduce(p)
                    p /= WORLD
        if rank == 0 and step % 24 == 23:
            print(f"{step + 1}: {loss.item():.4f}", flush=True)


def worker(rank, train, fault, seed, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=WORLD)
    train(rank, fault, seed)
    dist.barrier()
    dist.destroy_process_group()


def launched(train):
    def start(fault):
        with tempfile.TemporaryDirectory() as folder:
            store = os.path.join(folder, "store")
            mp.spawn(worker, args=(train, fault, torch.initial_seed(), store), nprocs=WORLD)

    return start


if __name__ == "__main__":
    run(
        {
            "ddp": launched(ddp_worker),
            "manual": launched(manual_worker),
            "summed": launched(summed_worker),
            "accumulate": launched(accumulate_worker),
            "local": launched(local_worker),
        }
    )
