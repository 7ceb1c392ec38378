"""Tensors of 8-bit floats in a training: traced, recorded, and read back as they were."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tensight.analysis import Analysis
from tensight.dumps import open_dump, read_tensor
from tensight.tensors import statistics

pytestmark = pytest.mark.long

SCRIPT = """
import sys
import numpy as np
import torch
import tensight.torch

class Rounded(torch.nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.dtype = dtype

    def forward(self, x):
        return (8 * x).to(self.dtype)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(8, 70), torch.nn.Linear(70, 3)
        self.e4m3, self.e5m2 = Rounded(torch.float8_e4m3fn), Rounded(torch.float8_e5m2)
        self.other = Rounded(torch.float8_e4m3fnuz)

    def forward(self, x):
        x = self.first(x)
        with torch.no_grad():
            kept = self.e4m3(x), self.e5m2(x)
            self.other(x)
        for value in kept:
            values[value.dtype].append(value.view(torch.uint8).clone().numpy())
        return self.last(x + sum(value.float() for value in kept))

torch.manual_seed(0)
values = {torch.float8_e4m3fn: [], torch.float8_e5m2: []}
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
with tensight.torch.debug(net, optimizer, connect_within_s=0.0):
    for step in range(3):
        optimizer.zero_grad()
        batch = torch.randn(16, 8)
        batch[0, 0] = float("nan") if step == 2 else 1
        torch.nn.functional.cross_entropy(net(batch), torch.randint(0, 3, (16,))).backward()
        optimizer.step()
np.savez(sys.argv[1], e4m3=np.array(values[torch.float8_e4m3fn]), e5m2=np.array(values[torch.float8_e5m2]))
"""

DTYPES = {"e4m3": np.dtype(ml_dtypes.float8_e4m3fn), "e5m2": np.dtype(ml_dtypes.float8_e5m2)}


def trained(folder: Path, capture: str, **settings: str) -> dict[str, np.ndarray[Any, Any]]:
    """Train in a process of its own; return the values of each type at each step."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("TENSIGHT_")}
    variables |= {f"TENSIGHT_{name.upper()}": value for name, value in settings.items()} | {"TENSIGHT_CAPTURE": capture}
    command = [sys.executable, "-c", SCRIPT, str(folder / "values.npz")]
    subprocess.run(command, cwd=folder, env=variables, timeout=300, check=True)
    with np.load(folder / "values.npz") as values:
        return {name: values[name].view(dtype) for name, dtype in DTYPES.items()}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("capture", ["modules", "ops"])
@pytest.mark.parametrize("way", ["recorded", "traced"])
def test_8_bit_floats_of_a_training_are_read_back_as_they_were(tmp_path: Path, capture: str, way: str) -> None:
    folder = str(tmp_path / "run")
    settings = {"record": "full", "record_folder": folder} if way == "recorded" else {"trace": folder}
    values = trained(tmp_path, capture, **settings)
    dump = open_dump(folder)
    assert dump.problems == []
    table = Analysis(dump, cache_dir=tmp_path / "cache").statistics()
    assert not any(table.errors)
    found: dict[str, list[int]] = {name: [] for name in DTYPES}
    for row, file in enumerate(table.files):
        name = next((name for name, dtype in DTYPES.items() if table.dtypes[row] == dtype.name), "")
        if not name or file.io != "output":
            continue
        expected = values[name][file.iteration]
        whole = statistics(expected)
        assert table.shapes[row] == (16, 70)
        for field in ("content_hash", "nan_count", "pos_inf_count", "negative_count", "min", "max", "l2_norm"):
            assert table.rows[field][row] == getattr(whole, field), (name, field)
        if way == "recorded":
            read = read_tensor(file)
            assert read.dtype == DTYPES[name]
            assert read.tobytes() == expected.tobytes()
        found[name].append(file.iteration)
    assert {name: set(iterations) for name, iterations in found.items()} == {"e4m3": {0, 1, 2}, "e5m2": {0, 1, 2}}
    declared = {slot.dtype for graph in dump.graphs(0) for node in graph.nodes for slot in node.outputs}
    assert {dtype.name for dtype in DTYPES.values()} <= declared
    assert statistics(values["e4m3"][2]).nan_count > 0
