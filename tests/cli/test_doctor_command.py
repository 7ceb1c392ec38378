"""`tensight doctor`: what is wrong with a training is told, and nothing of one that is right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

HEALTHY = """\
import torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 3))
optimizer = torch.optim.Adam(net.parameters())
for _ in range(20):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(net(torch.randn(4, 8)), torch.randint(0, 3, (4,))).backward()
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
    command = [sys.executable, "-m", "tensight", "doctor", "--steps", "2", "--json", "train.py"]
    ended = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=380, check=False)
    checks = json.loads(ended.stdout)["checks"]
    return ended.returncode, {check["name"]: (check["state"], check["why"]) for check in checks}


def test_a_healthy_training_passes_all_that_can_be_checked(tmp_path: Path) -> None:
    code, checks = examined(tmp_path, HEALTHY)
    assert code == 0, checks
    assert {name: state for name, (state, _) in checks.items()} == {
        "repeatable": "ok",
        "gradients reach every parameter": "ok",
        "parameters move": "ok",
        "evaluation is deterministic": "ok",
        "checkpoint round trip": "ok",
        "loss falls on one batch": "not checked",
        "resume equals going on": "not checked",
    }


def test_a_generator_without_seed_unused_parameters_and_dropout_that_is_left_on_are_named(tmp_path: Path) -> None:
    code, checks = examined(tmp_path, SICK)
    assert code == 1
    state, why = checks["repeatable"]
    assert state == "wrong"
    assert "in step 1" in why
    assert "dropout" in why or "bernoulli" in why
    assert "train.py:10" in why
    for name in ("gradients reach every parameter", "parameters move"):
        assert checks[name][0] == "wrong"
        assert "2 of 6" in checks[name][1]
        assert "unused.bias, unused.weight" in checks[name][1]
    assert checks["evaluation is deterministic"][0] == "wrong"
    assert checks["checkpoint round trip"][0] == "not checked"
