"""Trials of PyTorch under the debugger: which are ended, at which step, and what is said of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from searches import prepare, search

from tensight.dumps import open_dump, read_tensor

TRAINING = """
import itertools, sys, time
import torch
from torch import nn

end = None

torch.manual_seed(0)
kind, steps = sys.argv[1:]
inputs = torch.randn(16, 4)
targets = inputs.sum(1, keepdim=True)
network = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
first, _, last = network
if kind == "begins small":
    with torch.no_grad():
        last.weight.mul_(1e-4)
rate = {"frozen": 0.0, "begins small": 0.5}.get(kind, 0.01)
groups = [
    {"params": first.parameters(), "lr": 0.0 if kind == "half frozen" else rate},
    {"params": last.parameters(), "lr": 1e6 if kind == "explodes" else rate},
]
optimizer = torch.optim.SGD(groups)
for step in itertools.count(1):
    # The debugger reports a loss some times a second.
    if step > 20 and (kind != "healthy" or time.monotonic() > end):
        break
    if step == 2:
        end = time.monotonic() + 1
    optimizer.zero_grad()
    outputs = network(inputs)
    if kind == "nan" and step == 4:
        outputs = outputs * float("nan")
    loss = ((outputs - targets) ** 2).mean()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
    with open(steps, "w") as file:
        file.write(str(step))
"""

CONFIGURATION = """
command: train.py {kind} {summary_dir}/steps
summary_base_dir: runs
tuner: {name: grid}
targets:
  - {name: loss, from: agent}
  - {name: printed, goal: minimize, from: {pattern: 'loss (\\S+)'}}
parameters:
  kind: {choice: [healthy, half frozen, begins small, nan, explodes, frozen]}
"""

ONLY_PRINTED = CONFIGURATION.replace("  - {name: loss, from: agent}\n", "")


def test_trials_that_fall_ill_are_ended_at_once_and_others_are_not(tmp_path: Path) -> None:
    prepare(tmp_path, TRAINING, ONLY_PRINTED)

    trials = {trial["params"]["kind"]: trial for trial in search(tmp_path, "--jobs", "2")["trials"]}

    files = {kind: Path(trial["summary_dir"]) / "steps" for kind, trial in trials.items()}
    steps = {kind: int(file.read_text()) if file.exists() else 0 for kind, file in files.items()}
    assert {kind: trial["state"] for kind, trial in trials.items()} == {
        "healthy": "complete",
        "half frozen": "complete",
        "begins small": "complete",
        "nan": "pruned",
        "explodes": "pruned",
        "frozen": "pruned",
    }
    assert {kind: trial["illness"] and trial["illness"]["condition"] for kind, trial in trials.items()} == {
        "healthy": None,
        "half frozen": None,
        "begins small": None,
        "nan": "unintended_overflow",
        "explodes": "unintended_overflow",
        "frozen": "weight_not_changed",
    }
    assert trials["healthy"]["warnings"] == []
    assert "weight_not_changed" in [warning["condition"] for warning in trials["half frozen"]["warnings"]]
    assert (steps["healthy"] >= 20, steps["half frozen"]) == (True, 20)
    # A weight that grows tenfold in a step may be on its way to its size.
    assert "weight_growth" in [warning["condition"] for warning in trials["begins small"]["warnings"]]
    assert "weight_growth" in [warning["condition"] for warning in trials["explodes"]["warnings"]]
    # The step in which it hits is not over when the training stands.
    assert steps["nan"] <= 4
    assert steps["explodes"] <= 10
    assert steps["frozen"] <= 11
    assert trials["nan"]["reason"].startswith("unintended_overflow at step 4: ")
    assert "train.py:" in trials["nan"]["illness"]["line"]


def test_an_error_may_be_noted_only_and_the_last_steps_are_recorded(tmp_path: Path) -> None:
    text = re.sub(r"choice: \[.*\]", "choice: [frozen]", ONLY_PRINTED)
    prepare(tmp_path, TRAINING, text + "watch: note\nrecord: ring:3\n")

    (trial,) = search(tmp_path)["trials"]

    assert (trial["state"], trial["illness"]) == ("complete", None)
    assert "weight_not_changed" in [warning["condition"] for warning in trial["warnings"]]
    folder = Path(trial["summary_dir"])
    assert (folder / "steps").read_text() == "20"
    dump = open_dump(folder / "recording")
    assert len(dump.iterations()) == 3
    assert {read_tensor(file).dtype.kind for file in dump.tensors() if file.iteration == dump.iterations()[-1]} >= {"f"}


def test_the_loss_that_the_debugger_sees_is_a_target(tmp_path: Path) -> None:
    only_healthy = CONFIGURATION.replace("[healthy, half frozen, begins small, nan, explodes, frozen]", "[healthy]")
    prepare(tmp_path, TRAINING, only_healthy)

    (trial,) = search(tmp_path)["trials"]

    seen, printed = trial["values"]
    losses = [float(line.split()[1]) for line in (Path(trial["summary_dir"]) / "output.log").read_text().splitlines()]
    assert printed == losses[-1]
    assert seen in [pytest.approx(loss, rel=1e-5) for loss in losses]
    assert len(losses) > 20
    assert seen < losses[0]
