"""Networks ported from PyTorch to MindSpore: layer and direction of each porting fault are named, without a mapping."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import tensight.torch
from tensight.analysis import Analysis
from tensight.compare import Verdict
from tensight.compare.runs import Finding, compare_runs
from tensight.compare.runs.words import notes, sentence
from tensight.dumps import open_dump
from tests.agents.mindspore.mindspore_stage import python_of

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
LENET = {
    "epsilon of batch norm": (Finding.FORWARD, "bn1/"),
    "momentum of batch norm": (Finding.FORWARD, "bn1/"),
    "padding": (Finding.FORWARD, "conv1/"),
    "missing bias": (Finding.FORWARD, "conv2/"),
    "pooling": (Finding.FORWARD, "pool"),
    "activation": (Finding.FORWARD, "relu"),
    "dropout": (Finding.FORWARD, "drop"),
    "loss reduction": (Finding.FORWARD, "Loss"),
    "label smoothing": (Finding.FORWARD, "Loss"),
    "transposed weight": (Finding.INITIAL_WEIGHTS, "fc2.weight"),
    "initialiser": (Finding.INITIAL_WEIGHTS, "fc1.weight"),
    "scaled gradients": (Finding.BACKWARD, "AccumulateGrad"),
    "clipping": (Finding.BACKWARD, "AccumulateGrad"),
    "weight decay": (Finding.UPDATE, "conv1/weight"),
    "weight decay of norms": (Finding.UPDATE, "bn1/weight"),
    "learning rate of a group": (Finding.UPDATE, "fc3/weight"),
    "momentum": (Finding.UPDATE, "conv1/weight"),
}
RESNET = {
    "epsilon of batch norm": (Finding.FORWARD, "block2/bn1/"),
    "momentum of batch norm": (Finding.FORWARD, "block2/bn2/"),
    "order of addition": (Finding.FORWARD, "block2/"),
}
ENCODER = {
    "epsilon of layer norm": (Finding.FORWARD, "layer2/norm2/"),
    "gelu": (Finding.FORWARD, "layer2/gelu/"),
    "missing scale": (Finding.FORWARD, "layer2/"),
    "axis of softmax": (Finding.FORWARD, "layer2/"),
}
FAULTS = {"lenet": LENET, "resnet": RESNET, "encoder": ENCODER}
"""By network and fault: the direction, and what must be named."""


class LeNet(nn.Module):
    """The reference."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1, self.conv2 = nn.Conv2d(1, 6, 5), nn.BatchNorm2d(6), nn.Conv2d(6, 16, 5)
        self.pool, self.relu = nn.MaxPool2d(2), nn.ReLU()
        self.fc1, self.fc2, self.fc3 = nn.Linear(256, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(self.relu(self.bn1(self.conv1(x))))
        x = self.pool(self.relu(self.conv2(x))).flatten(1)
        return self.fc3(self.relu(self.fc2(self.relu(self.fc1(x)))))


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn1, self.bn2, self.relu = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs), nn.ReLU()
        self.short = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if stride > 1 else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(y + (x if self.short is None else self.short(x)))


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.block1, self.block2, self.block3 = Residual(8, 8, 1), Residual(8, 16, 2), Residual(16, 16, 1)
        self.head = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.block3(self.block2(self.block1(self.stem(x)))).mean((2, 3)))


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out, self.up, self.down = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.gelu = nn.GELU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm1(x)
        shape = (*y.shape[:2], 2, y.shape[2] // 2)
        q, k, v = (one(y).view(shape).transpose(1, 2) for one in (self.query, self.key, self.value))
        weights = torch.softmax(q @ k.transpose(-1, -2) / shape[-1] ** 0.5, -1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(y.shape))
        return x + self.down(self.gelu(self.up(self.norm2(x))))


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(50, 16), nn.Linear(16, 50)
        self.layer1, self.layer2 = Layer(16), Layer(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer2(self.layer1(self.embed(x)))).reshape(-1, 50)


NETWORKS = {"lenet": LeNet, "resnet": ResNet, "encoder": Encoder}


def batch(network: str, generator: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the next inputs and targets, those of the ports."""
    if network == "encoder":
        tokens = torch.from_numpy(generator.integers(0, 50, (4, 9)))
        return tokens[:, :-1], tokens[:, 1:].reshape(-1)
    shape = (8, 1, 28, 28) if network == "lenet" else (8, 3, 12, 12)
    pixels = torch.from_numpy(generator.normal(size=shape).astype(np.float32))
    return pixels, torch.from_numpy(generator.integers(0, 10, 8))


def train(name: str, folder: Path, start: Path) -> None:
    torch.manual_seed(0)
    network = NETWORKS[name]()
    weights = {name: value.numpy() for name, value in network.state_dict().items() if value.is_floating_point()}
    np.savez(start, **weights)
    optimizer = torch.optim.SGD(network.parameters(), 0.01, momentum=0.9)
    generator = np.random.default_rng(0)
    with tensight.torch.debug(network, optimizer, record="full", record_folder=str(folder), quiet=True, port=1):
        for _ in range(3):
            x, y = batch(name, generator)
            loss = nn.functional.cross_entropy(network(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


@pytest.fixture(scope="module", params=FAULTS)
def recordings(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a network's recordings; that of the reference is ``reference``, of the sound port ``sound``."""
    name = str(request.param)
    python, folder = python_of("2.10"), tmp_path_factory.mktemp(name)
    train(name, folder / "reference", folder / "start.npz")
    script = Path(__file__).with_name("ports_of_mindspore.py")
    subprocess.run(
        [python, script, name, folder, folder / "start.npz", "sound", *FAULTS[name]],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        check=True,
        timeout=300,
    )
    return folder


def opened(folder: Path) -> Analysis:
    return Analysis(open_dump(str(folder)), cache_dir=folder.parent / "cache")


@pytest.mark.sampled(3)
def test_a_sound_port_is_the_same_and_each_porting_fault_is_named(recordings: Path) -> None:
    reference = opened(recordings / "reference")
    port = open_dump(str(recordings / "sound"))
    assert port.setup is not None
    assert port.setup["framework"]["name"] == "mindspore"
    assert port.setup["flags"]["device_target"] == "CPU"
    (result,) = compare_runs(reference, opened(recordings / "sound"))
    assert result.verdict is Verdict.SAME, sentence(result)
    assert result.weights
    assert all(one.agrees for one in result.weights)
    for fault, (finding, within) in FAULTS[recordings.name.rstrip("0123456789")].items():
        (result,) = compare_runs(reference, opened(recordings / fault.replace(" ", "-")))
        said = " ".join((sentence(result), *notes(result)))
        # An activation or a pooling that one run has in other words lies in the gap before what is named.
        assert (result.finding, within in said) == (finding, True), f"{fault}: {said}"
