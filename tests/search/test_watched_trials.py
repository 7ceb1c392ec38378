"""Trials of PyTorch under the debugger: which are ended, at which step, and what is said of them."""

from __future__ import annotations

from pathlib import Path

from searches import prepare, search

TRAINING = """
import sys
import torch
from torch import nn

torch.manual_seed(0)
kind, steps = sys.argv[1:]
inputs = torch.randn(16, 4)
targets = inputs.sum(1, keepdim=True)
network = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
first, _, last = network
rate = 0.0 if kind == "frozen" else 0.01
groups = [
    {"params": first.parameters(), "lr": 0.0 if kind == "half frozen" else rate},
    {"params": last.parameters(), "lr": 1e6 if kind == "explodes" else rate},
]
optimizer = torch.optim.SGD(groups)
for step in range(1, 21):
    optimizer.zero_grad()
    outputs = network(inputs)
    if kind == "nan" and step == 4:
        outputs = outputs * float("nan")
    loss = ((outputs - targets) ** 2).mean()
    loss.backward()
    optimizer.step()
    with open(steps, "w") as file:
        file.write(str(step))
"""

CONFIGURATION = """
command: train.py {kind} {summary_dir}/steps
summary_base_dir: runs
tuner: {name: grid}
target: {name: loss, from: agent}
parameters:
  kind: {choice: [healthy, half frozen, nan, explodes, frozen]}
"""


def test_trials_that_fall_ill_are_ended_at_once_and_others_are_not(tmp_path: Path) -> None:
    prepare(tmp_path, TRAINING, CONFIGURATION)

    trials = {trial["params"]["kind"]: trial for trial in search(tmp_path, "--jobs", "2")["trials"]}

    files = {kind: Path(trial["summary_dir"]) / "steps" for kind, trial in trials.items()}
    steps = {kind: int(file.read_text()) if file.exists() else 0 for kind, file in files.items()}
    assert {kind: trial["state"] for kind, trial in trials.items()} == {
        "healthy": "complete",
        "half frozen": "complete",
        "nan": "pruned",
        "explodes": "pruned",
        "frozen": "pruned",
    }
    assert {kind: trial["illness"] and trial["illness"]["condition"] for kind, trial in trials.items()} == {
        "healthy": None,
        "half frozen": None,
        "nan": "unintended_overflow",
        "explodes": "weight_growth",
        "frozen": "weight_not_changed",
    }
    assert trials["healthy"]["warnings"] == []
    assert "weight_not_changed" in [warning["condition"] for warning in trials["half frozen"]["warnings"]]
    assert (steps["healthy"], steps["half frozen"]) == (20, 20)
    # The step in which it hits is not over when the training stands.
    assert steps["nan"] <= 4
    assert steps["explodes"] <= 2
    assert steps["frozen"] <= 11
    assert trials["nan"]["reason"].startswith("unintended_overflow at step 4: ")
    assert "train.py:" in trials["nan"]["illness"]["line"]
