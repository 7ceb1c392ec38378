"""A training that MindSpore itself dumps, as `MINDSPORE_DUMP_CONFIG` asks for; says how its weights end.

Usage: dumping_training.py FILE: where the weights go, an npz file.
"""

import sys

import mindspore as ms
import numpy as np
from mindspore import nn

STEPS = 3
LEAVE_OUTPUTS = ("Adam", "RMSProp")
PUT_OUT_PARAMETERS = {
    "Adadelta": {},
    "Adagrad": {},
    "AdaMax": {},
    "Adam": {"use_amsgrad": True},
    "FTRL": {},
    "Momentum": {"momentum": 0.9},
    "ProximalAdagrad": {},
    "SGD": {"momentum": 0.9},
}


def trained(optimizer: str, steps: int = STEPS, **settings: object) -> nn.Cell:
    """Return a network that an optimizer has trained for some steps."""
    network = nn.SequentialCell(nn.Dense(6, 40), nn.ReLU(), nn.Dense(40, 3))
    update = getattr(nn, optimizer)(network.trainable_params(), learning_rate=0.01, **settings)
    step = nn.TrainOneStepCell(nn.WithLossCell(network, nn.MSELoss()), update)
    numbers = np.random.default_rng(3)
    for _ in range(steps):
        pictures = ms.Tensor(numbers.standard_normal((8, 6), np.float32))
        step(pictures, ms.Tensor(numbers.standard_normal((8, 3), np.float32)))
    return network


if __name__ == "__main__":
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device("CPU")
    ms.set_seed(3)
    weights = {
        f"{optimizer}.{parameter.name}": parameter.asnumpy()
        for optimizer in LEAVE_OUTPUTS
        for parameter in trained(optimizer).trainable_params()
    }
    for optimizer, settings in PUT_OUT_PARAMETERS.items():
        trained(optimizer, 1, **settings)
    normalization = nn.BatchNorm2d(3)
    for trains in (True, False):
        normalization.set_train(trains)
        normalization(ms.Tensor(np.random.default_rng(3).standard_normal((2, 3, 4, 4), np.float32)))
    np.savez(sys.argv[1], **weights)
