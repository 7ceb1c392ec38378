"""`tensight doctor`: what is wrong with a training is told, and nothing of one that is right."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tensight.cli.doctor import _loss_verdict

if TYPE_CHECKING:
    from pathlib import Path

HEALTHY = """\
import torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 3))
optimizer = torch.optim.Adam(net.parameters())
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
data = torch.utils.data.TensorDataset(torch.randn(80, 8), torch.randint(0, 3, (80,)))
for inputs, labels in torch.utils.data.DataLoader(data, 4, shuffle=True):
    optimizer.zero_grad()
    inputs += 1
    torch.nn.functional.cross_entropy(net(inputs), labels).backward()
    optimizer.step()
    schedule.step()
"""
FORGETFUL = """\
import torch
torch.manual_seed(0)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(8, 8)
        self.calls = 0
    def forward(self, inputs):
        self.calls += 1
        return (self.inner(inputs) / self.calls).square().mean()
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, maximize=True)
for _ in range(20):
    optimizer.zero_grad()
    (net(torch.randn(4, 8)) * 4).backward()
    optimizer.step()
"""
SICK = """\
import time
import torch
torch.manual_seed(0)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(8, 16), torch.nn.Linear(16, 3)
        self.unused = torch.nn.Linear(4, 4)
    def forward(self, inputs):
        return self.last(torch.nn.functional.dropout(self.first(inputs), 0.5))
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
torch.manual_seed(time.time_ns() % 2**31)
for _ in range(20):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(net(torch.ones(4, 8)), torch.arange(4) % 3).backward()
    optimizer.step()
"""


def examined(folder: Path, script: str) -> tuple[int, dict[str, tuple[str, str]]]:
    (folder / "train.py").write_text(script)
    kept = ("TENSIGHT_CACHE_DIR", "TENSIGHT_KERNELS")
    variables = {name: value for name, value in os.environ.items() if not name.startswith("TENSIGHT_") or name in kept}
    command = [sys.executable, "-m", "tensight", "doctor", "--steps", "3", "--json", "train.py"]
    ended = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=380, check=False)
    checks = json.loads(ended.stdout)["checks"]
    return ended.returncode, {check["name"]: (check["state"], check["why"]) for check in checks}


@pytest.mark.long
def test_a_healthy_training_passes_all_that_can_be_checked(tmp_path: Path) -> None:
    code, checks = examined(tmp_path, HEALTHY)
    assert code == 0, checks
    assert {name: state for name, (state, _) in checks.items()} == {
        "repeatable": "ok",
        "every parameter is trained": "ok",
        "evaluation is deterministic": "ok",
        "checkpoint round trip": "ok",
        "loss falls on one batch": "ok",
        "resume equals going on": "ok",
    }
    assert "schedulers" in checks["resume equals going on"][1]
    assert "generators: torch" in checks["resume equals going on"][1]
    assert "in 15 steps" in checks["loss falls on one batch"][1]


@pytest.mark.long
def test_what_state_dict_lacks_is_named(tmp_path: Path) -> None:
    _, checks = examined(tmp_path, FORGETFUL)
    state, why = checks["resume equals going on"]
    assert state == "wrong"
    assert "state_dict lacks Net.calls:" in why
    assert checks["checkpoint round trip"][0] == "ok"
    assert checks["loss falls on one batch"][1].startswith("the first inputs of the model in every step: from ")


@pytest.mark.parametrize(
    ("losses", "state"),
    [
        ([3, 3.1, 2.5, 2.4, 2.0], "ok"),
        ([3, 3.2, 3.5, 3.6, 4.0], "wrong"),
        ([3, 2.5, 2.0, math.nan, math.nan], "wrong"),
        ([3, 3, 3, 3, 3], "not checked"),
        ([3, 3.5, 2.9, 3.6, 3.7], "not checked"),
        ([3, 2, 1], "not checked"),
        ([1.71348, 1.7134, 1.7133, 1.71325], "not checked"),
        ([379070, 379069, 379069, 379068], "not checked"),
        ([3.5e10, 2e10, 4e9, 2e9], "not checked"),
        ([-1, -4, -9, -20], "not checked"),
        ([2, 1, -1, -3], "not checked"),
    ],
)
def test_a_loss_is_judged_by_its_course(losses: list[float], state: str) -> None:
    assert _loss_verdict(losses, "the first batch")[0] == state


@pytest.mark.long
def test_a_generator_without_seed_unused_parameters_and_dropout_that_is_left_on_are_named(tmp_path: Path) -> None:
    code, checks = examined(tmp_path, SICK)
    assert code == 1
    state, why = checks["repeatable"]
    assert state == "wrong"
    assert "in step 1" in why
    assert "dropout" in why or "bernoulli" in why
    assert "train.py:10" in why
    state, why = checks["every parameter is trained"]
    assert state == "not checked"
    assert "2 of 6 trainable weights never have a gradient: their modules are not called: unused.weight" in why
    assert checks["evaluation is deterministic"][0] == "wrong"
    for name in ("checkpoint round trip", "resume equals going on", "loss falls on one batch"):
        assert checks[name][0] == "not checked"
