"""Trials of PyTorch under the debugger: which are ended, at which step, and what is said of them."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from tensight.dumps import open_dump, read_tensor
from tests.processes.forking_interpreter import forking_interpreter
from tests.search import searches
from tests.search.searches import prepare

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
  kind: {choice: [healthy, half frozen, begins small, nan, explodes]}
"""

ONLY_PRINTED = CONFIGURATION.replace("  - {name: loss, from: agent}\n", "")


def search(folder: Path, *options: str) -> dict[str, Any]:
    """Run a search whose trials are forked, and return what `--json` prints."""
    return searches.search(folder, *options, python=forking_interpreter().python)


@pytest.mark.long
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
    }
    assert {kind: trial["illness"] and trial["illness"]["condition"] for kind, trial in trials.items()} == {
        "healthy": None,
        "half frozen": None,
        "begins small": None,
        "nan": "unintended_overflow",
        "explodes": "unintended_overflow",
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
    assert trials["nan"]["reason"].startswith("unintended_overflow at step 4: ")
    assert "train.py:" in trials["nan"]["illness"]["line"]


@pytest.mark.long
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


@pytest.mark.long
def test_the_loss_that_the_debugger_sees_is_a_target(tmp_path: Path) -> None:
    only_healthy = CONFIGURATION.replace("[healthy, half frozen, begins small, nan, explodes]", "[healthy]")
    prepare(tmp_path, TRAINING, only_healthy)

    (trial,) = search(tmp_path)["trials"]

    seen, printed = trial["values"]
    losses = [float(line.split()[1]) for line in (Path(trial["summary_dir"]) / "output.log").read_text().splitlines()]
    assert printed == losses[-1]
    assert seen in [pytest.approx(loss, rel=1e-5) for loss in losses]
    assert len(losses) > 20
    assert seen < losses[0]


NOWHERE = """
import pathlib, sqlite3, sys, threading
import torch
from torch import nn

STEPS = 60
torch.manual_seed(0)
kind, trial, every = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
pause = threading.Event()
inputs = torch.randn(16, 4)
targets = inputs.sum(1, keepdim=True)
network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
first, between, last = [layer for layer in network if isinstance(layer, nn.Linear)]
kind, _, distance = kind.partition(" from ")
with torch.no_grad():
    if distance:
        targets = network(inputs) + float(distance)
    if kind == "dead":
        between.bias.fill_(-1000.0)
rate = {
    "nothing moves": lambda step: 0.0,
    "stands still": lambda step: 1e-7,
    "one moves": lambda step: 1e-7,
    "warms up": lambda step: 0.01 if step > 8 else 0.0,
    "warms up late": lambda step: 0.01 if step > 15 else 1e-7,
    "falls to zero": lambda step: 0.01 if step < 30 else 1e-9,
}.get(kind, lambda step: 0.01)
weights = [weight for layer in (first, between) for weight in layer.parameters()]
optimizer = torch.optim.SGD([{"params": weights}, {"params": last.parameters()}], lr=0.01)

def is_reported(step):
    storage = sqlite3.connect(f"file:{pathlib.Path('runs/search.db').absolute()}?mode=ro", uri=True, timeout=60)
    query = "select 1 from trial_intermediate_values join trials using (trial_id) where number = ? and step = ?"
    found = storage.execute(query, (trial, step)).fetchone()
    storage.close()
    return found is not None

for step in range(1, STEPS + 1):
    optimizer.param_groups[0]["lr"] = rate(step)
    optimizer.param_groups[1]["lr"] = 0.01 if kind == "one moves" else rate(step)
    optimizer.zero_grad()
    loss = ((network(inputs) - targets) ** 2).mean()
    loss.backward()
    optimizer.step()
    if step % every == 0:
        print("step", step, "loss", loss.item())
        # The search ends a trial for a value before it takes note of the next one.
        while step < STEPS and not is_reported(step):
            pause.wait(0.02)
"""

NOWHERE_CONFIGURATION = """
command: train.py {kind} {trial} EVERY
summary_base_dir: runs
tuner: {name: grid}
target: {name: loss, from: {pattern: 'step (?P<step>.+) loss (?P<value>.+)'}}
parameters:
  kind: {choice: KINDS}
"""

OTHERS = ("healthy from 1", "healthy from 2", "healthy from 3")
"""How far the outputs are from the targets when the training begins."""


def trials_after(folder: Path, *kinds: str, every: int = 4) -> dict[str, Any]:
    """Run trials one after the other, and return them by their kind."""
    text = NOWHERE_CONFIGURATION.replace("EVERY", str(every)).replace("KINDS", json.dumps(kinds))
    prepare(folder, NOWHERE, text)
    return {trial["params"]["kind"]: trial for trial in search(folder)["trials"]}


def conditions_of(trial: dict[str, Any]) -> set[str]:
    """Return what was found in a trial that did not end it."""
    return {warning["condition"] for warning in trial["warnings"]}


@pytest.mark.long
def test_a_trial_that_gets_nowhere_is_ended_only_if_its_target_is_worse_than_half(tmp_path: Path) -> None:
    bad = {
        "stands still from 20": ("weights stand still", "weight_change_too_small"),
        "nothing moves from 9": ("nothing moves", "weight_not_changed"),
        "dead from 6": ("gradients stay zero", "tensor_all_zero"),
    }
    good = "stands still from 0.1"

    trials = trials_after(tmp_path, *OTHERS, *bad, good)

    for number, (kind, (words, condition)) in enumerate(bad.items(), 3):
        trial = trials[kind]
        assert (trial["state"], trial["illness"]["condition"]) == ("pruned", condition)
        # Whether the search reads the value of step 12 before what the debugger says of it is left to the machine.
        *_, step = trial["intermediate"]
        assert step in ("8", "12")
        value = f"loss {trial['intermediate'][step]:.5g} at step {step}"
        reason = f"{words}, and {value} is worse than that of 3 of {number} other trials ({condition} at step "
        assert trial["reason"].startswith(reason)
    assert {trials[kind]["state"] for kind in (*OTHERS, good)} == {"complete"}
    assert "weight_change_too_small" in conditions_of(trials[good])


@pytest.mark.long
@pytest.mark.long
def test_a_trial_that_gets_nowhere_goes_on_while_there_are_few_others(tmp_path: Path) -> None:
    trials = trials_after(tmp_path, OTHERS[0], "stands still from 9")

    assert trials["stands still from 9"]["state"] == "complete"
    assert "weight_change_too_small" in conditions_of(trials["stands still from 9"])


@pytest.mark.long
def test_where_weights_need_not_move_no_trial_is_ended_because_they_do_not(tmp_path: Path) -> None:
    kinds = [f"stands still from {distance}" for distance in (0.3, 0.1, 0.2, 0.25, 0.5)]

    trials = trials_after(tmp_path, *kinds)

    assert [trials[kind]["state"] for kind in kinds] == ["complete"] * 5
    assert all("weight_change_too_small" in conditions_of(trials[kind]) for kind in kinds[1:])


@pytest.mark.long
def test_a_trial_that_moves_again_goes_on(tmp_path: Path) -> None:
    trial = trials_after(tmp_path, *OTHERS, "warms up late from 9", every=20)["warms up late from 9"]

    assert trial["state"] == "complete"
    assert "weight_change_too_small" in conditions_of(trial)
    assert trial["intermediate"]["20"] > 30, "it was worse than others"


@pytest.mark.long
def test_a_trial_goes_on_if_one_weight_moves_or_its_learning_rate_begins_or_ends_at_zero(tmp_path: Path) -> None:
    kinds = ["one moves from 9", "warms up from 9", "falls to zero from 9"]

    trials = trials_after(tmp_path, *OTHERS, *kinds)

    assert {trial["state"] for trial in trials.values()} == {"complete"}
    # Only the beginning is judged.
    assert "weight_change_too_small" not in conditions_of(trials["falls to zero from 9"])


AT_THE_END = """
import sys
import torch
from torch import nn

STEPS = 600
torch.manual_seed(0)
kind, rate, distance = sys.argv[1].split()
inputs = torch.randn(16, 4)
network = nn.Linear(4, 1)
with torch.no_grad():
    targets = network(inputs) + float(distance)
optimizer = torch.optim.SGD(network.parameters(), lr=float(rate))
for step in range(1, STEPS + 1):
    optimizer.zero_grad()
    loss = ((network(inputs) - targets) ** 2).mean()
    loss.backward()
    optimizer.step()
    if kind == "waits" and step == STEPS - 100:
        open("gate").read()
print("loss", loss.item())
"""
"""It tells its target at its end only; one that waits gets there only if it is ended."""


@pytest.mark.long
def test_where_no_target_comes_before_the_end_the_loss_tells_whether_a_trial_is_lost(tmp_path: Path) -> None:
    kinds = ["others 0.01 1", "others 0.01 2", "others 0.01 3", "waits 1e-9 9", "still 1e-9 0.0001"]
    text = re.sub(r"choice: .*\]", f"choice: {json.dumps(kinds)}", ONLY_PRINTED)
    prepare(tmp_path, AT_THE_END, text.replace("{kind} {summary_dir}/steps", "{kind}"))
    os.mkfifo(tmp_path / "gate")

    *others, ended, still = search(tmp_path)["trials"]

    assert [trial["state"] for trial in (*others, still)] == ["complete"] * 4
    assert "weight_change_too_small" in conditions_of(still)
    assert (ended["state"], ended["illness"]["condition"]) == ("pruned", "weight_change_too_small")
    assert ended["reason"].startswith(
        "weights stand still, and its loss 81 after half of its steps is worse than that "
    )
