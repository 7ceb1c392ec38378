"""A training of MindSpore in several processes: each rank has its own data, and gradients are averaged over all ranks.

    msrun --worker_num=2 --local_worker_num=2 ranked_training.py [--steps N] [--nan-at STEP] [--apart]

It writes a line after each step, and at the end what it arrived at. At step ``--nan-at`` the data of the last rank is
bad. With ``--apart`` the ranks know nothing of each other but their numbers.
"""

from __future__ import annotations

import argparse
import hashlib
import os

import mindspore as ms
import numpy as np
from mindspore import Tensor, communication, nn

BATCH = 8


class Network(nn.Cell):
    """A small classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Dense(12, 16)
        self.second = nn.Dense(16, 4)
        self.relu = nn.ReLU()

    def construct(self, pictures: Tensor) -> Tensor:
        """Return one logit for each class."""
        return self.second(self.relu(self.first(pictures)))


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--nan-at", type=int, default=0)
    parser.add_argument("--apart", action="store_true")
    options = parser.parse_args()
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device("CPU")
    if options.apart:
        rank, size = int(os.environ["RANK_ID"]), int(os.environ["RANK_SIZE"])
    else:
        communication.init()
        rank, size = communication.get_rank(), communication.get_group_size()
        ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True, device_num=size)
    ms.set_seed(1)
    network = Network()
    optimizer = nn.Momentum(network.trainable_params(), 0.05, 0.9)
    loss_of = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    train = nn.TrainOneStepCell(nn.WithLossCell(network, loss_of), optimizer)
    train.set_train()
    data = np.random.default_rng(rank)
    for step in range(1, options.steps + 1):
        pictures = data.standard_normal((BATCH, 12)).astype(np.float32)
        if step == options.nan_at and rank == size - 1:
            pictures[2, 3] = np.nan
        loss = train(Tensor(pictures), Tensor(data.integers(0, 4, BATCH).astype(np.int32)))
        print(f"step {step}: {float(loss.asnumpy())!r}", flush=True)
    digest = hashlib.sha256()
    for parameter in network.get_parameters():
        digest.update(parameter.asnumpy().tobytes())
    print("arrived at", digest.hexdigest(), flush=True)


if __name__ == "__main__":
    main()
