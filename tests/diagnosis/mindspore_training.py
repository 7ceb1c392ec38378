"""Trainings on MindSpore, one of which is diagnosed: python mindspore_training.py FOLDER NAME [FAULT].

It is run by the Python of an environment with MindSpore, never by that of the tests. Without a folder ("-"), nothing is
diagnosed.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

FEATURES, CLASSES, BATCH = 8, 4, 32


class Network(nn.Cell):
    def __init__(self, fault: str) -> None:
        super().__init__()
        self.body = nn.SequentialCell(nn.Dense(FEATURES, 16), nn.BatchNorm1d(16), nn.ReLU())
        self.hidden = nn.Dense(16, 16)
        self.listed = {"layers": [nn.Dense(16, 16)]} if fault == "listed" else None
        self.head = nn.Dense(16, CLASSES)
        self.fault = fault

    def construct(self, x: Tensor) -> Tensor:
        x = self.body(x)
        if self.fault == "cut":
            x = ops.stop_gradient(x)
        x = ops.tanh(self.hidden(x))
        if self.listed is not None:
            for layer in self.listed["layers"]:
                x = layer(x)
        x = self.head(x)
        return ops.softmax(x, axis=-1) if self.fault == "twice" else x


def rate_of(fault: str) -> Any:
    return {"zero": 0.0, "scheduled": nn.CosineDecayLR(0.0, 1e-2, 10)}.get(fault, 1e-2)


def train(fault: str, style: str) -> None:
    random = np.random.RandomState(0)
    points = random.randn(256, FEATURES).astype(np.float32)
    labels = ((points[:, 0] > 0) + 2 * (points[:, 1] > 0)).astype(np.int32)
    network = Network(fault)
    network.set_train(fault != "evaluating")
    loss_of = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    weights = [weight for weight in network.trainable_params() if fault != "left" or "hidden" not in weight.name]
    optimizer = nn.Adam(weights, rate_of(fault))
    first = {weight.name: weight.asnumpy().copy() for weight in network.get_parameters()}

    def forward(inputs: Tensor, targets: Tensor) -> Tensor:
        return loss_of(network(inputs), targets)

    gradients_of = ms.value_and_grad(forward, None, optimizer.parameters)

    def step(inputs: Tensor, targets: Tensor) -> Tensor:
        loss, gradients = gradients_of(inputs, targets)
        if style == "jit":
            return ops.depend(loss, optimizer(gradients))
        optimizer(gradients)
        return loss

    if style == "jit":
        step = ms.jit(step)
    elif style == "cell":
        step = nn.TrainOneStepCell(nn.WithLossCell(network, loss_of), optimizer)
        step.set_train(fault != "evaluating")
    for number in range(1, 25):
        rows = random.randint(0, len(points), BATCH)
        loss = step(Tensor(points[rows]), Tensor(labels[rows]))
        if fault == "restored" or (fault == "loaded" and number == 8):
            for weight in network.get_parameters():
                weight.set_data(Tensor(first[weight.name]))
        print(number, float(loss.asnumpy()).hex())


STYLES: dict[str, tuple[int, str]] = {
    "pynative": (ms.PYNATIVE_MODE, "functional"),
    "jit": (ms.GRAPH_MODE, "jit"),
    "cell": (ms.GRAPH_MODE, "cell"),
}


def diagnosed(folder: str) -> Any:
    if folder == "-":
        return nullcontext()
    from tensight.agents.core.settings import AgentSettings
    from tensight.agents.mindspore.debugger import Debugger

    return Debugger((), AgentSettings(diagnose=folder, quiet=True))


def main(folder: str, name: str, fault: str = "") -> None:
    mode, style = STYLES[name]
    ms.set_context(mode=mode, device_target="CPU", pynative_synchronize=mode == ms.PYNATIVE_MODE, runtime_num_threads=1)
    ms.set_seed(1)
    with diagnosed(folder):
        train(fault, style)


if __name__ == "__main__":
    main(*sys.argv[1:])
