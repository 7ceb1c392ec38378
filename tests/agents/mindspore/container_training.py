"""A PyNative training whose network, or script, computes something itself that overflows at one step.

Usage: container_training.py KIND STEP: ``between`` two cells, at the ``end`` of the network, or in the ``script``.
"""

import sys
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn, ops

STEPS = 4


class Between(nn.Cell):
    """Two layers, and something between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Dense(6, 8)
        self.second = nn.Dense(8, 1)

    def construct(self, pictures: Any, factor: Any) -> Any:
        """Return one number for each picture."""
        h = self.first(pictures)  # BEGIN between
        h = ops.tanh(h) * factor
        h = h * factor
        return self.second(h)  # END between


class End(Between):
    """Something behind the layers."""

    def construct(self, pictures: Any, factor: Any) -> Any:  # BEGIN end
        """Return one number for each picture."""
        h = self.second(self.first(pictures))
        h = ops.tanh(h) * factor
        return h * factor  # END end


class Script(Between):
    """Nothing but the layers."""

    def construct(self, pictures: Any, factor: Any) -> Any:  # noqa: ARG002 - as the others
        """Return one number for each picture."""
        return self.second(self.first(pictures))


def main() -> None:
    kind, faulty = sys.argv[1], int(sys.argv[2])
    ms.set_context(mode=ms.PYNATIVE_MODE)
    ms.set_device("CPU")
    ms.set_seed(1)
    network = {"between": Between, "end": End, "script": Script}[kind]()
    loss_of = nn.MSELoss()
    update = nn.SGD(network.trainable_params(), 0.001)

    def forward(pictures: Any, wanted: Any, factor: Any) -> Any:  # BEGIN script
        out = network(pictures, factor)
        if kind == "script":
            out = ops.tanh(out) * factor
            out = out * factor
        return loss_of(out, wanted)  # END script

    gradients_of = ms.value_and_grad(forward, None, update.parameters)
    numbers = np.random.default_rng(1)
    for step in range(1, STEPS + 1):
        pictures = ms.Tensor(numbers.normal(size=(4, 6)).astype(np.float32))
        factor = ms.Tensor(1e30 if step == faulty else 1.0, ms.float32)
        _, gradients = gradients_of(pictures, ms.Tensor(np.ones((4, 1), np.float32)), factor)
        update(gradients)


if __name__ == "__main__":
    main()
