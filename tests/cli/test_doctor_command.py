"""`tensight doctor`: whether a training is repeatable, and what experiments show."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

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


def doctor(folder: Path, script: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(script)
    kept = ("TENSIGHT_CACHE_DIR", "TENSIGHT_KERNELS")
    variables = {name: value for name, value in os.environ.items() if not name.startswith("TENSIGHT_") or name in kept}
    command = [sys.executable, "-m", "tensight", "doctor", "--steps", "3", *options, "train.py"]
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=380, check=False)


def examined(folder: Path, script: str) -> tuple[int, dict[str, Any], list[str]]:
    """Return the exit code, the outcomes of experiments by their names, and the rules of findings."""
    ended = doctor(folder, script, "--json")
    report = json.loads(ended.stdout)
    rows = {row["probe"]: row for row in report["probes"]}
    return ended.returncode, rows, [finding["rule"] for finding in report["findings"]]


@pytest.mark.long
def test_a_healthy_training_passes_all_that_can_be_tried(tmp_path: Path) -> None:
    ended = doctor(tmp_path, HEALTHY)
    assert ended.returncode == 0, ended.stdout
    assert "PASS two runs are equal (two runs of 3 steps are bit-identical" in ended.stdout
    assert "PASS resuming from state_dict equals going on" in ended.stdout
    assert "needs the states of the generators: torch" in ended.stdout
    assert "PASS the loss falls on one batch" in ended.stdout
    assert "not tried padding does not count" in ended.stdout
    assert "could not judge" not in ended.stdout
    assert "Experiments with the batch of step 3 take at most" in ended.stderr


@pytest.mark.long
def test_what_state_dict_lacks_is_named(tmp_path: Path) -> None:
    code, rows, rules = examined(tmp_path, FORGETFUL)
    assert code == 1
    assert (rows["repeatable"]["outcome"], rows["resume"]["outcome"]) == ("pass", "fail")
    assert rows["resume"]["inputs"] == "Net.calls"
    assert "state-not-saved" in rules


@pytest.mark.long
def test_a_generator_without_seed_and_dropout_that_is_left_on_are_named(tmp_path: Path) -> None:
    code, rows, rules = examined(tmp_path, SICK)
    assert code == 1
    assert rows["repeatable"]["outcome"] == "fail"
    why = rows["repeatable"]["why"]
    assert "in step 1" in why
    assert "dropout" in why or "bernoulli" in why
    assert "train.py:10" in why
    assert rows["evaluation"]["function"] == "dropout"
    assert {"no-gradient", "drops-in-evaluation"} <= set(rules)


def test_a_training_in_several_processes_is_refused_in_a_sentence(tmp_path: Path) -> None:
    ended = doctor(tmp_path, "import torch\ntorch.multiprocessing.spawn(print, nprocs=2)\n")
    assert ended.returncode == 2
    assert "the script trains in 2 processes" in ended.stderr
