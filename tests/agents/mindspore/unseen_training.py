"""A training whose updates do not become steps by themselves, for different reasons.

Usage: unseen_training.py KIND STEPS

``replaced``: PyNative, the optimizer was made before the network was replaced; ``assigning``: graph mode, a function
assigns to the weights itself while an optimizer is there that trains something else; ``functions``: PyNative, no cell
is called.
"""

import sys
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn, ops


def network() -> nn.Cell:
    return nn.SequentialCell(nn.Dense(6, 8), nn.ReLU(), nn.Dense(8, 1))


def main() -> None:
    kind, steps = sys.argv[1], int(sys.argv[2])
    ms.set_context(mode=ms.GRAPH_MODE if kind == "assigning" else ms.PYNATIVE_MODE)
    ms.set_device("CPU")
    ms.set_seed(1)
    numbers = np.random.default_rng(1)
    loss_of = nn.MSELoss()
    model = network()
    update = nn.Momentum(model.trainable_params(), 0.1, 0.9)
    if kind != "functions":
        model = network()
    weights = ms.ParameterTuple(model.trainable_params())

    def forward(pictures: Any, wanted: Any) -> Any:
        if kind == "functions":
            return ((ops.matmul(pictures, model[0].weight.T) + model[0].bias - wanted) ** 2).mean()
        return loss_of(model(pictures), wanted)

    gradients_of = ms.value_and_grad(forward, None, update.parameters if kind != "assigning" else weights)

    def step(pictures: Any, wanted: Any) -> Any:
        loss, gradients = gradients_of(pictures, wanted)
        if kind == "assigning":
            for place in range(len(weights)):
                ops.assign_sub(weights[place], 0.1 * gradients[place])
        else:
            update(gradients)
        return loss

    if kind == "assigning":
        step = ms.jit(step)
    model(ms.Tensor(numbers.normal(size=(4, 6)).astype(np.float32)))
    for _ in range(steps):
        pictures = ms.Tensor(numbers.normal(size=(4, 6)).astype(np.float32))
        step(pictures, ms.Tensor(np.ones((4, 1), np.float32)))


if __name__ == "__main__":
    main()
