"""A training whose workers call models, and train some; at the end a process of its own trains, too, and fails.

    python training_with_workers.py METHOD

METHOD is how workers are started. A line says whether all of them computed what they would alone.
"""

from __future__ import annotations

import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress

import torch
import torch.multiprocessing
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Embedded(Dataset):
    """Data that a model has transformed."""

    def __init__(self) -> None:
        self.model = nn.Linear(4, 4)

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        with torch.no_grad():
            return self.model(torch.full((4,), float(index)))


def trained(seed: int) -> list[float]:
    """Train a small model; return its weights."""
    torch.manual_seed(seed)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randn(2, 4)).square().sum().backward()
        optimizer.step()
    return model.weight.detach().flatten().tolist()


def train(rank: int) -> None:
    """Train in a process that was started for that, and fail."""
    trained(rank)
    raise ValueError("after the last step")


def main() -> None:
    """Train with workers."""
    torch.set_num_threads(1)
    context = multiprocessing.get_context(sys.argv[1])
    data = Embedded()
    served = []
    loader = DataLoader(data, batch_size=8, num_workers=1, multiprocessing_context=context)
    # Those that are forked before the training has begun, and those that serve it while it runs.
    first = next(iter(loader))
    with context.Pool(1) as pool, ProcessPoolExecutor(1, mp_context=context) as executor:
        served += [*pool.map(trained, [1]), *executor.map(trained, [1])]
        alone = trained(1)
        second = next(iter(loader))
        served += [*pool.map(trained, [1]), *executor.map(trained, [1])]
    right = torch.stack([data[index] for index in range(8)])
    print(first.equal(right), second.equal(right), all(one == alone for one in served))
    with suppress(torch.multiprocessing.ProcessRaisedException):
        torch.multiprocessing.start_processes(train, nprocs=1, start_method="spawn")


if __name__ == "__main__":
    main()
