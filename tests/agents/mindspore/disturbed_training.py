"""A training of MindSpore that does what scripts do beside training, and is run with and without the debugger.

Usage: disturbed_training.py MODE [--end exit|abrupt] [--thread]

Its data come from processes, it saves and loads checkpoints and copies its network. With ``--end`` it ends the process
between a forward pass and the update; with ``--thread`` it trains in another thread than the one that began.
"""

import argparse
import copy
import hashlib
import os
import sys
import threading
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import dataset as datasets
from mindspore import nn

STEPS = 4


class Samples:
    """What worker processes load."""

    def __init__(self) -> None:
        self.pictures = np.random.default_rng(1).normal(size=(4 * STEPS, 6)).astype(np.float32)

    def __getitem__(self, index: int) -> Any:
        return self.pictures[index], np.ones(1, np.float32)

    def __len__(self) -> int:
        return len(self.pictures)


def fingerprint(network: nn.Cell) -> str:
    """Tell bits of weights apart."""
    digest = hashlib.sha256()
    for parameter in network.get_parameters():
        digest.update(parameter.asnumpy().tobytes())
    return digest.hexdigest()


def train(mode: str, end: str) -> None:
    # The mode is each thread's own.
    ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE)
    ms.set_seed(1)
    network = nn.SequentialCell(nn.Dense(6, 8), nn.Tanh(), nn.Dense(8, 1)).set_train()
    loss_of = nn.MSELoss()
    optimizer = nn.Momentum(network.trainable_params(), 0.1, 0.9)

    def forward(pictures: ms.Tensor, wanted: ms.Tensor) -> ms.Tensor:
        return loss_of(network(pictures), wanted)

    gradients_of = ms.value_and_grad(forward, None, optimizer.parameters)
    data = datasets.GeneratorDataset(
        Samples(), ["pictures", "wanted"], shuffle=False, num_parallel_workers=2, python_multiprocessing=True
    )
    for step, (pictures, wanted) in enumerate(data.batch(4).create_tuple_iterator(), 1):
        _, gradients = gradients_of(pictures, wanted)
        if step == STEPS and end == "exit":
            sys.exit(3)
        if step == STEPS and end == "abrupt":
            os._exit(4)
        optimizer(gradients)
        ms.save_checkpoint(network, f"{step}.ckpt")
        if step == 2:
            ms.load_checkpoint("1.ckpt", network)
        copied = copy.deepcopy(network)
        print("step", step, fingerprint(network), fingerprint(copied), copied(pictures).asnumpy().sum(), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=("graph", "pynative"))
    parser.add_argument("--end", choices=("exit", "abrupt"), default="")
    parser.add_argument("--thread", action="store_true")
    options = parser.parse_args()
    ms.set_device("CPU")
    if options.thread:
        other = threading.Thread(target=train, args=(options.mode, options.end))
        other.start()
        other.join()
    else:
        train(options.mode, options.end)
