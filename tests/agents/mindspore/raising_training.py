"""A training whose network raises what comes in to a constant negative power, which is zero at one step.

Usage: raising_training.py STEP: the one at which it is.
"""

import sys

import mindspore as ms
import numpy as np
from mindspore import nn

STEPS = 6


class Network(nn.Cell):
    """One layer on a power."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Dense(6, 1)

    def construct(self, pictures: ms.Tensor) -> ms.Tensor:
        """Return one number for each picture."""
        return self.dense((pictures - 1.5) ** -2.5)  # FAULT: a picture may have 1.5


if __name__ == "__main__":
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device("CPU")
    ms.set_seed(2)
    network = Network()
    update = nn.Momentum(network.trainable_params(), 0.001, 0.9)
    train = nn.TrainOneStepCell(nn.WithLossCell(network, nn.MSELoss()), update)
    numbers = np.random.default_rng(2)
    for step in range(1, STEPS + 1):
        pictures = numbers.uniform(2, 3, (4, 6)).astype(np.float32)
        if step == int(sys.argv[1]):
            pictures[2, 3] = 1.5
        train(ms.Tensor(pictures), ms.Tensor(np.ones((4, 1), np.float32)))
