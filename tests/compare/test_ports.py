"""LeNet ported from PyTorch to MindSpore: layer and direction of each porting fault are named, without a mapping."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from mindspore_stage import python_of
from torch import nn

import tensight.torch
from tensight.analysis import Analysis
from tensight.compare import Verdict
from tensight.compare.runs import Finding, compare_runs
from tensight.compare.runs.words import notes, sentence
from tensight.dumps import open_dump

ROOT = Path(__file__).parents[2]
FAULTS = {
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


def train(folder: Path, start: Path) -> None:
    torch.manual_seed(0)
    network = LeNet()
    weights = {name: value.numpy() for name, value in network.state_dict().items() if value.is_floating_point()}
    np.savez(start, **weights)
    optimizer = torch.optim.SGD(network.parameters(), 0.01, momentum=0.9)
    generator = np.random.default_rng(0)
    with tensight.torch.debug(network, optimizer, record="full", record_folder=str(folder), quiet=True, port=1):
        for _ in range(3):
            x = torch.from_numpy(generator.normal(size=(8, 1, 28, 28)).astype(np.float32))
            loss = nn.functional.cross_entropy(network(x), torch.from_numpy(generator.integers(0, 10, 8)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all recordings; that of the reference is called ``reference``, of the sound port ``sound``."""
    python, folder = python_of("2.10"), tmp_path_factory.mktemp("ports")
    train(folder / "reference", folder / "start.npz")
    script = Path(__file__).with_name("lenet_of_mindspore.py")
    subprocess.run(
        [python, script, folder, folder / "start.npz", "sound", *FAULTS],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        check=True,
        timeout=300,
    )
    return folder


def opened(folder: Path) -> Analysis:
    return Analysis(open_dump(str(folder)), cache_dir=folder.parent / "cache")


def test_a_sound_port_is_the_same(recordings: Path) -> None:
    (result,) = compare_runs(opened(recordings / "reference"), opened(recordings / "sound"))
    assert result.verdict is Verdict.SAME, sentence(result)
    assert len(result.weights) == 14
    assert all(one.agrees for one in result.weights)


@pytest.mark.parametrize("fault", FAULTS)
def test_layer_and_direction_of_a_porting_fault_are_named(recordings: Path, fault: str) -> None:
    finding, within = FAULTS[fault]
    (result,) = compare_runs(opened(recordings / "reference"), opened(recordings / fault.replace(" ", "-")))
    assert result.finding is finding, sentence(result)
    # An activation or a pooling that one run has in other words lies in the gap before what is named.
    assert within in " ".join((sentence(result), *notes(result))), (sentence(result), notes(result))
