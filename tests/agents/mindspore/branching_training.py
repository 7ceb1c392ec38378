"""A training in GRAPH_MODE whose network takes branches by values, and overflows in one of them.

Usage: branching_training.py KIND STEP: how it branches, and the step from which on its data are too large.
"""

import sys

import mindspore as ms
import numpy as np
from mindspore import nn, ops

STEPS = 3


class Network(nn.Cell):
    """Two layers, and something between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Dense(6, 5)
        self.second = nn.Dense(5, 1)

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        """Return one number for each picture."""
        return self.second(self.between(self.first(x)))


class Branch(Network):
    """One branch."""

    def between(self, h: ms.Tensor) -> ms.Tensor:
        """Grow what is not small."""
        if h.sum() > -1e9:
            h = ops.exp(h)  # FAULT
        return h


class Nested(Network):
    """Branches in a function that is called in a branch."""

    def grow(self, h: ms.Tensor) -> ms.Tensor:
        """Grow what is not small."""
        if h.max() > -1e30:
            if h.min() < 1e30:
                return ops.exp(h)  # FAULT
            return ops.sigmoid(h)
        return ops.tanh(h)

    def between(self, h: ms.Tensor) -> ms.Tensor:
        """Grow what is not small."""
        return self.grow(h) if h.sum() > -1e30 else ops.relu(h)


class InTurn(Network):
    """Two branches, one after the other."""

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        """Return one number for each picture."""
        h = self.first(x)
        h = ops.tanh(h) if h[0, 0] > 1e30 else h * 2
        h = ops.sigmoid(h) if h[0, 0] > 1e30 else ops.exp(h)  # FAULT
        return self.second(h)


class Loop(Network):
    """A loop that runs as often as the data says."""

    def between(self, h: ms.Tensor) -> ms.Tensor:
        """Grow several times."""
        rounds = ops.cast(h.sum() * 0, ms.int32)
        while rounds < 2:
            h = ops.exp(h)  # FAULT
            rounds = rounds + 1
        return h


class Constant(Network):
    """What the branch that is not taken leaves is a constant, and that is what is too large."""

    def __init__(self) -> None:
        super().__init__()
        self.most = ms.Tensor(np.full((4, 5), np.inf, np.float32))

    def between(self, h: ms.Tensor) -> ms.Tensor:
        """Use a constant."""
        kept = self.most
        if h.sum() > 1e30:
            kept = ops.tanh(h)
        return ops.relu(kept) * h


if __name__ == "__main__":
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device("CPU")
    ms.set_seed(2)
    network = globals()[sys.argv[1]]()
    update = nn.Momentum(network.trainable_params(), 0.001, 0.9)
    train = nn.TrainOneStepCell(nn.WithLossCell(network, nn.MSELoss()), update)
    numbers = np.random.default_rng(2)
    for step in range(1, STEPS + 1):
        large = 300 if step >= int(sys.argv[2]) else 0.01
        pictures = numbers.uniform(-large, large, (4, 6)).astype(np.float32)
        train(ms.Tensor(pictures), ms.Tensor(np.ones((4, 1), np.float32)))
        print("step", step, flush=True)
