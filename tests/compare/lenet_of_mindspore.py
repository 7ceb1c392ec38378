"""LeNet with batch norm, ported to MindSpore, once as it should be and once with each porting fault.

    python lenet_of_mindspore.py FOLDER START.npz FAULT...

Each variant begins with the weights of START, trains three steps in PyNative mode and is recorded in FOLDER/FAULT.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn, ops

import tensight.mindspore

WORDS = {"gamma": "weight", "beta": "bias", "moving_mean": "running_mean", "moving_variance": "running_var"}
STEPS = 3


class LeNet(nn.Cell):
    """The network, with a fault in it or not."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault
        self.conv1 = nn.Conv2d(1, 6, 5, pad_mode="same" if fault == "padding" else "valid", has_bias=True)
        self.bn1 = nn.BatchNorm2d(
            6,
            eps=1e-3 if fault == "epsilon of batch norm" else 1e-5,
            momentum=0.99 if fault == "momentum of batch norm" else 0.9,
        )
        self.conv2 = nn.Conv2d(6, 16, 5, pad_mode="valid", has_bias=fault != "missing bias")
        self.pool = nn.AvgPool2d(2, 2) if fault == "pooling" else nn.MaxPool2d(2, 2)
        self.relu, self.flatten = nn.ReLU(), nn.Flatten()
        self.act = nn.LeakyReLU(0.01) if fault == "activation" else nn.ReLU()
        self.drop = nn.Dropout(p=0.1)
        self.fc1, self.fc2, self.fc3 = nn.Dense(256, 120), nn.Dense(120, 84), nn.Dense(84, 10)

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        x = self.relu(self.bn1(self.conv1(x)))
        if self.fault == "padding":
            x = x[:, :, :24, :24]
        x = self.flatten(self.pool(self.relu(self.conv2(self.pool(x)))))
        x = self.relu(self.fc1(x))
        if self.fault == "dropout":
            x = self.drop(x)
        return self.fc3(self.act(self.fc2(x)))


def weight(fault: str, name: str, start: Any) -> ms.Tensor:
    head, _, leaf = name.rpartition(".")
    value = start[f"{head}.{WORDS.get(leaf, leaf)}"]
    if (fault, name) == ("transposed weight", "fc2.weight"):
        value = np.ascontiguousarray(np.pad(value, ((0, 36), (0, 0))).T[:84])
    if (fault, name) == ("initialiser", "fc1.weight"):
        value = value * np.float32(1.1)
    return ms.Tensor(value)


def optimizer(fault: str, network: nn.Cell) -> nn.Optimizer:
    parameters: Any = network.trainable_params()
    special = {
        "weight decay of norms": ("bn", {"weight_decay": 0.1}),
        "learning rate of a group": ("fc3", {"lr": 0.02}),
    }
    if fault in special:
        word, settings = special[fault]
        parameters = [
            {"params": [one for one in parameters if word in one.name], **settings},
            {"params": [one for one in parameters if word not in one.name]},
        ]
    momentum = 0.8 if fault == "momentum" else 0.9
    return nn.Momentum(parameters, 0.01, momentum, weight_decay=0.01 if fault == "weight decay" else 0.0)


def train(folder: Path, fault: str, start: Any) -> None:
    network = LeNet(fault)
    for parameter in network.get_parameters():
        parameter.set_data(weight(fault, parameter.name, start))
    smoothing = 0.1 if fault == "label smoothing" else 0.0
    loss = nn.CrossEntropyLoss(reduction="sum" if fault == "loss reduction" else "mean", label_smoothing=smoothing)
    chosen = optimizer(fault, network)
    network.set_train()

    def forward(x: ms.Tensor, y: ms.Tensor) -> ms.Tensor:
        return loss(network(x), y)

    gradients = ms.value_and_grad(forward, None, chosen.parameters)
    generator = np.random.default_rng(0)
    with tensight.mindspore.debug(network, chosen, record="full", record_folder=str(folder), quiet=True, port=1):
        for _ in range(STEPS):
            x = ms.Tensor(generator.normal(size=(8, 1, 28, 28)).astype(np.float32))
            y = ms.Tensor(generator.integers(0, 10, 8).astype(np.int32))
            _, found = gradients(x, y)
            if fault == "scaled gradients":
                found = tuple(2 * one for one in found)
            if fault == "clipping":
                found = ops.clip_by_global_norm(found, 0.5)
            chosen(found)


if __name__ == "__main__":
    ms.set_context(mode=ms.PYNATIVE_MODE)
    with np.load(sys.argv[2]) as arrays:
        weights = dict(arrays)
    for name in sys.argv[3:]:
        train(Path(sys.argv[1]) / name.replace(" ", "-"), name, weights)
