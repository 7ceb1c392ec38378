"""A training of two networks, each trained wholly before the other is called in a step; nobody calls a third one.

Usage: two_networks_training.py STYLE NUMBER STEP: data of this network, 1 or 2, are no numbers at the step.
STYLE is ``functional`` or ``wrapped``, in PyNative mode, or ``graph``.
"""

import sys
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn, ops

STEPS = 4


class Smoothed(nn.Optimizer):
    """What people write: it updates by averages of the gradients, which are zero at first."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(0.01, parameters)
        self.averages = self.parameters.clone(prefix="average", init="zeros")

    def construct(self, gradients: Any) -> Any:
        for place in range(len(self.averages)):
            average = 0.9 * self.averages[place] + 0.1 * gradients[place]
            ops.assign(self.averages[place], average)
            ops.assign(self.parameters[place], self.parameters[place] - 0.01 * average)
        return True


def network(prefix: str) -> nn.Cell:
    cell = nn.SequentialCell(nn.Dense(6, 8), nn.Tanh(), nn.Dense(8, 1))
    cell.update_parameters_name(prefix)
    return cell


def trainer(style: str, cell: nn.Cell, optimizer: nn.Optimizer) -> Any:
    if style != "functional":
        return nn.TrainOneStepCell(nn.WithLossCell(cell, nn.MSELoss()), optimizer).set_train()
    loss_of = nn.MSELoss()
    gradients_of = ms.value_and_grad(lambda x, y: loss_of(cell(x), y), None, optimizer.parameters)

    def train(x: ms.Tensor, y: ms.Tensor) -> ms.Tensor:
        loss, gradients = gradients_of(x, y)
        optimizer(gradients)
        return loss

    return train


if __name__ == "__main__":
    style, number, faulty = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    ms.set_context(mode=ms.GRAPH_MODE if style == "graph" else ms.PYNATIVE_MODE)
    ms.set_device("CPU")
    ms.set_seed(1)
    numbers = np.random.default_rng(1)
    networks = [network("first."), network("second."), network("third.")]
    optimizers = [
        Smoothed(networks[0].trainable_params()),
        *(nn.Adam(cell.trainable_params(), 0.01) for cell in networks[1:]),
    ]
    trainers = [trainer(style, *pair) for pair in zip(networks[:2], optimizers[:2], strict=True)]
    for step in range(1, STEPS + 1):
        for which, train in enumerate(trainers, 1):
            pictures = numbers.normal(size=(4, 6)).astype(np.float32)
            if (which, step) == (number, faulty):
                pictures[0, 0] = np.nan
            train(ms.Tensor(pictures), ms.Tensor(np.ones((4, 1), np.float32)))
