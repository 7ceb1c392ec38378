"""Trials of PyTorch under the debugger: which are ended, at which step, and what is said of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

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


LOST = """
import sys
import torch
from torch import nn

STEPS = 60
torch.manual_seed(0)
kind, steps = sys.argv[1:]
inputs = torch.randn(16, 4)
targets = inputs.sum(1, keepdim=True)
network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
if kind == "dead":
    with torch.no_grad():
        network[2].bias.fill_(-1000.0)
rate = {
    "stands still": lambda step: 1e-7,
    "one moves": lambda step: 1e-7,
    "warms up": lambda step: 0.01 if step > 8 else 0.0,
    "falls to zero": lambda step: 0.01 if step < 30 else 1e-9,
}.get(kind, lambda step: 0.01)
*others, last = [layer for layer in network if isinstance(layer, nn.Linear)]
weights = [weight for layer in others for weight in layer.parameters()]
optimizer = torch.optim.SGD([{"params": weights}, {"params": last.parameters()}], lr=0.01)
for step in range(1, STEPS + 1):
    optimizer.param_groups[0]["lr"] = rate(step)
    optimizer.param_groups[1]["lr"] = 0.01 if kind == "one moves" else rate(step)
    optimizer.zero_grad()
    loss = ((network(inputs) - targets) ** 2).mean()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
    with open(steps, "w") as file:
        file.write(str(step))
"""


def trials_after_a_healthy_one(folder: Path, *kinds: str) -> dict[str, Any]:
    """Run trials one after the other: how many steps one has is known once one is complete."""
    prepare(folder, LOST, re.sub(r"choice: \[.*\]", f"choice: [{', '.join(['healthy', *kinds])}]", ONLY_PRINTED))
    trials = {trial["params"]["kind"]: trial for trial in search(folder)["trials"]}
    assert (trials["healthy"]["state"], trials["healthy"]["warnings"]) == ("complete", [])
    return trials


def test_a_trial_that_trains_nothing_is_ended_in_its_beginning(tmp_path: Path) -> None:
    trials = trials_after_a_healthy_one(tmp_path, "stands still", "dead")

    conditions = {"stands still": "weight_change_too_small", "dead": "tensor_all_zero"}
    for kind, condition in conditions.items():
        trial = trials[kind]
        assert (trial["state"], trial["illness"]["condition"]) == ("pruned", condition)
        assert int((Path(trial["summary_dir"]) / "steps").read_text()) <= 11


def test_a_trial_goes_on_if_one_weight_moves_or_its_learning_rate_begins_or_ends_at_zero(tmp_path: Path) -> None:
    trials = trials_after_a_healthy_one(tmp_path, "one moves", "warms up", "falls to zero")

    assert {trial["state"] for trial in trials.values()} == {"complete"}
    # Only the beginning is judged.
    warnings = {warning["condition"] for warning in trials["falls to zero"]["warnings"]}
    assert "weight_change_too_small" not in warnings


def test_the_first_trial_is_not_judged_by_its_pace(tmp_path: Path) -> None:
    prepare(tmp_path, LOST, re.sub(r"choice: \[.*\]", "choice: [stands still]", ONLY_PRINTED))

    (trial,) = search(tmp_path)["trials"]

    assert trial["state"] == "complete"
