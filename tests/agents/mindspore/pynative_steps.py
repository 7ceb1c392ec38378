"""Many short steps of a training on MindSpore in PyNative mode.

    python pynative_steps.py [--jit] [--steps N] [--stop-at STEP ...]

It writes a line after each step; at a step of ``--stop-at`` it waits for a line on standard input.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops


class Network(nn.Cell):
    def __init__(self, squash: Any) -> None:
        super().__init__()
        self.squash = squash
        self.first = nn.Dense(12, 16)
        self.norm = nn.LayerNorm((16,))
        self.second = nn.Dense(16, 4)

    def construct(self, x: Tensor) -> Tensor:
        return self.second(self.squash(self.norm(self.first(x))))


def squashed(x: Tensor) -> Tensor:
    return ops.tanh(x) * 2


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jit", action="store_true")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--stop-at", type=int, nargs="*", default=[])
    options = parser.parse_args()
    ms.set_context(mode=ms.PYNATIVE_MODE)
    ms.set_seed(1)
    random = np.random.default_rng(1)
    network = Network(ms.jit(squashed) if options.jit else squashed)
    loss_of = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    optimizer = nn.Momentum(network.trainable_params(), 0.01, 0.9)
    step = nn.TrainOneStepCell(nn.WithLossCell(network, loss_of), optimizer).set_train()
    for number in range(1, options.steps + 1):
        pictures = Tensor(random.normal(0, 1, (8, 12)).astype(np.float32))
        step(pictures, Tensor(random.integers(0, 4, 8).astype(np.int32))).asnumpy()
        print("step", number, flush=True)
        if number in options.stop_at:
            sys.stdin.readline()


if __name__ == "__main__":
    main()
