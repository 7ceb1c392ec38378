"""A training in which somebody writes to a weight between two updates, or whose data are no numbers at one step.

Usage: jumping_training.py MODE KIND STEP: ``weight`` is one times 1e18, ``nan`` is in one, or in ``data``; ``loaded``
is one times 1e18 from a checkpoint, ``assigned`` one by an operator, ``memory`` has a NaN behind MindSpore's back.
"""

import sys

import mindspore as ms
import numpy as np
from mindspore import nn, ops

STEPS = 4


class Network(nn.Cell):
    """Two layers with a norm between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Dense(6, 8)
        self.norm = nn.LayerNorm((8,))
        self.second = nn.Dense(8, 1)

    def construct(self, pictures: ms.Tensor) -> ms.Tensor:
        """Return one number for each picture."""
        return self.second(self.norm(ops.tanh(self.first(pictures))))


if __name__ == "__main__":
    mode, kind, faulty = sys.argv[1], sys.argv[2], int(sys.argv[3])
    ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE)
    ms.set_device("CPU")
    ms.set_seed(1)
    network = Network()
    update = nn.Adam(network.trainable_params(), 0.01)
    train = nn.TrainOneStepCell(nn.WithLossCell(network, nn.MSELoss()), update).set_train()
    numbers = np.random.default_rng(1)
    for step in range(1, STEPS + 1):
        pictures = numbers.normal(size=(4, 6)).astype(np.float32)
        weight = network.second.weight
        if step == faulty and kind == "weight":
            weight.set_data(weight * 1e18)
        if step == faulty and kind == "nan":
            values = weight.asnumpy().copy()
            values[0, 0] = np.nan
            weight.set_data(ms.Tensor(values))
        if step == faulty and kind == "loaded":
            ms.load_param_into_net(network, {"second.weight": ms.Parameter(weight * 1e18)})
        if step == faulty and kind == "assigned":
            ops.assign(weight, weight * 1e18)
        if step == faulty and kind == "memory":
            weight.asnumpy()[0, 0] = np.nan
        if step == faulty and kind == "data":
            pictures[0, 0] = np.nan
        train(ms.Tensor(pictures), ms.Tensor(np.ones((4, 1), np.float32)))
