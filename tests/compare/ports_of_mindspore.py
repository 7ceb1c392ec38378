"""Networks ported to MindSpore, once as they should be and once with each porting fault.

    python ports_of_mindspore.py NETWORK FOLDER START.npz FAULT...

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

WORDS = {
    "gamma": "weight", "beta": "bias", "moving_mean": "running_mean", "moving_variance": "running_var",
    "embedding_table": "weight",
}  # fmt: skip
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


class Residual(nn.Cell):
    """Two convolutions with batch norm, and a way past them."""

    def __init__(self, inputs: int, outputs: int, stride: int, fault: str) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, pad_mode="pad", padding=1, has_bias=False)
        self.bn1 = nn.BatchNorm2d(outputs, eps=1e-4 if fault == "epsilon of batch norm" else 1e-5)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, pad_mode="pad", padding=1, has_bias=False)
        self.bn2 = nn.BatchNorm2d(outputs, momentum=0.1 if fault == "momentum of batch norm" else 0.9)
        self.relu = nn.ReLU()
        self.short = nn.Conv2d(inputs, outputs, 1, stride, has_bias=False) if stride > 1 else None
        self.is_late = fault == "order of addition"

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        past = x if self.short is None else self.short(x)
        return self.relu(y) + past if self.is_late else self.relu(y + past)


class ResNet(nn.Cell):
    """A residual network; faults are in its second block."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, pad_mode="pad", padding=1, has_bias=False)
        self.block1, self.block2 = Residual(8, 8, 1, ""), Residual(8, 16, 2, fault)
        self.block3, self.head = Residual(16, 16, 1, ""), nn.Dense(16, 10)

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        x = self.block3(self.block2(self.block1(self.stem(x))))
        return self.head(x.mean((2, 3)))


class Layer(nn.Cell):
    """A layer of a transformer's encoder."""

    def __init__(self, width: int, fault: str) -> None:
        super().__init__()
        eps = 1e-3 if fault == "epsilon of layer norm" else 1e-5
        self.norm1, self.norm2 = nn.LayerNorm((width,), epsilon=1e-5), nn.LayerNorm((width,), epsilon=eps)
        self.query, self.key, self.value = (nn.Dense(width, width) for _ in range(3))
        self.out, self.up, self.down = nn.Dense(width, width), nn.Dense(width, 2 * width), nn.Dense(2 * width, width)
        self.gelu = nn.GELU(approximate=fault == "gelu")
        self.scale = 1.0 if fault == "missing scale" else (width // 2) ** 0.5
        self.axis = -2 if fault == "axis of softmax" else -1

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        y = self.norm1(x)
        batch, length, width = y.shape
        shape = (batch, length, 2, width // 2)
        q, k, v = (one(y).reshape(shape).swapaxes(1, 2) for one in (self.query, self.key, self.value))
        weights = ops.softmax(ops.matmul(q, k.swapaxes(-1, -2)) / self.scale, self.axis)
        x = x + self.out(ops.matmul(weights, v).swapaxes(1, 2).reshape(batch, length, width))
        return x + self.down(self.gelu(self.up(self.norm2(x))))


class Encoder(nn.Cell):
    """A transformer's encoder; faults are in its second layer."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.layer1, self.layer2, self.head = Layer(16, ""), Layer(16, fault), nn.Dense(16, 50)

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        x = self.head(self.layer2(self.layer1(self.embed(x))))
        return x.reshape(-1, 50)


NETWORKS = {"lenet": LeNet, "resnet": ResNet, "encoder": Encoder}


def batch(network: str, generator: np.random.Generator) -> tuple[ms.Tensor, ms.Tensor]:
    """Return the next inputs and targets."""
    if network == "encoder":
        tokens = generator.integers(0, 50, (4, 9)).astype(np.int32)
        return ms.Tensor(tokens[:, :-1]), ms.Tensor(tokens[:, 1:].reshape(-1))
    shape = (8, 1, 28, 28) if network == "lenet" else (8, 3, 12, 12)
    pixels = generator.normal(size=shape).astype(np.float32)
    return ms.Tensor(pixels), ms.Tensor(generator.integers(0, 10, 8).astype(np.int32))


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


def train(name: str, folder: Path, fault: str, start: Any) -> None:
    network = NETWORKS[name](fault)
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
            x, y = batch(name, generator)
            _, found = gradients(x, y)
            if fault == "scaled gradients":
                found = tuple(2 * one for one in found)
            if fault == "clipping":
                found = ops.clip_by_global_norm(found, 0.5)
            chosen(found)


if __name__ == "__main__":
    ms.set_context(mode=ms.PYNATIVE_MODE)
    with np.load(sys.argv[3]) as arrays:
        weights = dict(arrays)
    for planted in sys.argv[4:]:
        train(sys.argv[1], Path(sys.argv[2]) / planted.replace(" ", "-"), planted, weights)
