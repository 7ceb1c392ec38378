"""What `tensight doctor` says of trainings: each trial is run alone, in a forked process."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tensight.agents.settings import as_variables
from tensight.cli.doctor import Check, _evaluation_verdict, _loss_verdict, _parameters_check
from tensight.diagnosis.lines import read_folder
from tests.processes.forked import PYTORCH, run

if TYPE_CHECKING:
    from pathlib import Path

STEPS = 4
PATIENCE_S = 120

BEGINNING = """\
import torch
from torch import nn
from torch.nn import functional as F
torch.manual_seed(0)
"""
DESCENT = """
model = Net()
optimizer = torch.optim.Adam(model.parameters(), 3e-3)
for inputs in torch.utils.data.DataLoader(torch.randn(1280, 8), 16):
    loss = F.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 1)
        self.kept = []
    def forward(self, inputs):
        hidden = torch.tanh(self.first(inputs))
"""
PLAIN = NET + "        return self.last(hidden)\n"
TRAININGS = {
    "healthy": PLAIN + DESCENT,
    "dropout left on": NET + "        return self.last(F.dropout(hidden, 0.5))\n" + DESCENT,
    "samples": NET + "        return self.last(hidden + 0.1 * torch.randn_like(hidden))\n" + DESCENT,
    "grows a cache": NET
    + "        self.kept.append(hidden.mean(0).detach())\n"
    + "        return self.last(hidden + torch.stack(self.kept).mean(0))\n"
    + DESCENT,
    "grows a cache that it is given": PLAIN.replace("inputs):", "inputs, cache):").replace(
        "return", "cache.append(hidden.mean(0).detach()); hidden = hidden + sum(cache); return"
    )
    + DESCENT.replace("model(inputs)", "model(inputs, [])"),
    "keeps what has a graph": NET
    + "        self.auxiliary = hidden.square().mean()\n        return self.last(hidden)\n"
    + DESCENT.replace("loss.backward", "(loss + model.auxiliary).backward"),
    "cut off": NET + "        return self.last(hidden.detach())\n" + DESCENT,
    "gradient of 0": NET + "        return self.last(torch.sign(hidden))\n" + DESCENT,
    "in no optimizer": PLAIN + DESCENT.replace("model.parameters()", "model.first.parameters()"),
    "head alone in the optimizer": PLAIN + DESCENT.replace("model.parameters()", "model.last.parameters()"),
    "frozen perceptual network": PLAIN
    + "fixed = nn.Sequential(nn.Linear(1, 8), nn.Tanh())\n"
    + DESCENT.replace("model(inputs)", "fixed(model(inputs))")
    .replace("inputs.sum", "fixed(inputs.sum")
    .replace("keepdim=True)", "keepdim=True))"),
    "head that is not reached": PLAIN.replace("self.kept = []", "self.other = nn.Linear(16, 1)") + DESCENT,
    "gradients that the script clears": PLAIN
    + DESCENT.replace("loss.backward()", "loss.backward(); model.last.weight.grad = model.last.bias.grad = None"),
    "critic": PLAIN
    + DESCENT.replace(
        "F.mse_loss(model(inputs), inputs.sum(1, keepdim=True))", "model(inputs).mean() - model(inputs + 1).mean()"
    ),
    "optimizer that waits": PLAIN
    + "generator = nn.Linear(8, 8)\nlater = torch.optim.Adam(generator.parameters())\n"
    + DESCENT.replace("model(inputs)", "model(generator(inputs).detach())"),
    "learning rate of 0": PLAIN + DESCENT.replace("3e-3", "0.0"),
    "gradient penalty": PLAIN
    + """
model = Net()
optimizer = torch.optim.Adam(model.parameters(), 3e-3)
for _ in range(40):
    inputs = torch.randn(16, 8, requires_grad=True)
    slope, = torch.autograd.grad(model(inputs).sum(), inputs, create_graph=True)
    optimizer.zero_grad()
    (slope + inputs.detach()).square().mean().backward()
    optimizer.step()
""",
    "teacher that follows": PLAIN
    + "import copy\nteacher = copy.deepcopy(Net()).requires_grad_(False)\n"
    + DESCENT.replace("inputs.sum(1, keepdim=True)", "9 * teacher(inputs)")
    + "    with torch.no_grad():\n        for p in teacher.parameters(): p.mul_(1.1)\n",
    "odd methods": PLAIN
    + """
    def odd(self, *_, **__):
        raise LookupError
    modules = named_modules = children = named_children = odd
    parameters = named_parameters = buffers = named_buffers = odd
"""
    + DESCENT.replace("model.parameters()", "[*model.first.parameters(), *model.last.parameters()]"),
    "spawned": PLAIN
    + "def train(rank):\n"
    + "".join(f"    {line}\n" for line in DESCENT.splitlines())
    + "if __name__ == '__main__':\n    torch.multiprocessing.spawn(train)\n",
}


@dataclass(frozen=True)
class Examined:
    """What a trial has reported, and how its process has ended."""

    report: dict[str, Any]
    code: int
    errors: str
    parameters: Check


def examined(name: str, mode: str, folder: Path, steps: int = STEPS) -> Examined:
    """Run some steps of a training with a trial of doctor; the plain one is diagnosed."""
    (folder / "train.py").write_text(BEGINNING + TRAININGS[name])
    standard_output = "1"
    command = [sys.executable, "-m", "tensight.agents.doctor", "report", mode, standard_output, str(steps), "train.py"]
    chosen = {"TENSIGHT_DEBUG": "1", **as_variables({"diagnose": str(folder), "quiet": True})}
    environment = {**os.environ, **(chosen if mode == "plain" else {})}
    ended = run(command, PYTORCH, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
    report = json.loads((folder / "report").read_text()) if (folder / "report").exists() else {}
    return Examined(report, ended.returncode, ended.stderr, _parameters_check(read_folder(folder)))


@pytest.mark.parametrize(
    ("name", "state", "sentence"),
    [
        ("healthy", "ok", "all 4"),
        (
            "cut off",
            "wrong",
            "2 of 4 trainable weights never have a gradient: what is computed from them is detached (train.py:13)",
        ),
        (
            "gradient of 0",
            "wrong",
            "The gradients of 2 of 4 weights are exactly 0 in every step: sign, whose derivative is 0, is between",
        ),
        ("in no optimizer", "not checked", "2 parameters get gradients, but no optimizer updates them: last.weight, "),
        ("head alone in the optimizer", "ok", "all 2"),
        ("frozen perceptual network", "ok", "all 4"),
        (
            "head that is not reached",
            "not checked",
            "2 of 6 trainable weights never have a gradient: their modules are",
        ),
        ("gradients that the script clears", "ok", "all 4"),
        ("critic", "ok", "all 4"),
        ("gradient penalty", "ok", "all 4"),
        ("learning rate of 0", "not checked", "The learning rate of Adam group 0 is 0"),
        ("optimizer that waits", "not checked", "2 of 6 are not updated by their optimizer yet: "),
        ("spawned", "ok", "all 4"),
        ("odd methods", "ok", "all 4"),
    ],
)
def test_what_happens_to_parameters_is_told_apart(tmp_path: Path, name: str, state: str, sentence: str) -> None:
    trial = examined(name, "plain", tmp_path)
    assert trial.code == 0, trial.errors
    assert trial.parameters.state == state, trial.parameters
    assert trial.parameters.why.startswith(sentence), trial.parameters


def test_too_few_steps_are_said(tmp_path: Path) -> None:
    check = examined("cut off", "plain", tmp_path, steps=2).parameters
    assert (check.state, check.why) == ("not checked", "rules need 3 steps, and 2 were read: try more --steps")


@pytest.mark.parametrize(
    ("name", "state", "words"),
    [
        ("healthy", "ok", "gives the same for the same inputs"),
        ("dropout left on", "wrong", "applies dropout at train.py:13"),
        ("samples", "ok", "it draws some itself: randn_like at train.py:13"),
        ("grows a cache", "not checked", "it keeps state from call to call: Net.kept"),
        ("grows a cache that it is given", "ok", "gives the same for the same inputs"),
        ("keeps what has a graph", "ok", "gives the same for the same inputs"),
    ],
)
def test_dropout_is_blamed_only_where_it_is_on(tmp_path: Path, name: str, state: str, words: str) -> None:
    trial = examined(name, "evaluate", tmp_path)
    verdict = _evaluation_verdict(trial.report)
    assert verdict[0] == state, verdict
    assert words in verdict[1]
    assert ("dropout" in verdict[1]) == (state == "wrong")


def test_a_training_is_resumed_whose_model_keeps_a_tensor_with_its_graph(tmp_path: Path) -> None:
    trial = examined("keeps what has a graph", "resume", tmp_path)
    assert trial.code == 0, trial.errors
    assert "error" not in trial.report


@pytest.mark.parametrize("mode", ["reload", "evaluate", "one-batch", "resume"])
def test_methods_of_a_model_that_raise_do_not_end_the_training(tmp_path: Path, mode: str) -> None:
    trial = examined("odd methods", mode, tmp_path)
    assert trial.code == 0, trial.errors
    assert trial.report


def test_a_loss_that_depends_on_gradients_of_its_inputs_is_not_replayed(tmp_path: Path) -> None:
    trial = examined("gradient penalty", "one-batch", tmp_path)
    assert trial.code == 0, trial.errors
    assert "error" in trial.report


def test_a_loss_may_rise_where_a_teacher_follows(tmp_path: Path) -> None:
    assert examined("teacher that follows", "one-batch", tmp_path).report["follows"]
    assert not examined("healthy", "one-batch", tmp_path).report["follows"]
    losses = [3, 3.2, 3.5, 3.6, 4.0]
    assert _loss_verdict(losses, "the first batch", follows=True)[0] == "not checked"
    assert _loss_verdict(losses, "the first batch")[0] == "wrong"


def test_a_training_in_several_processes_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\ntorch.multiprocessing.spawn(print, nprocs=2)\n")
    command = [sys.executable, "-m", "tensight.agents.doctor", "report", "evaluate", "1", "2", "train.py"]
    ended = run(command, PYTORCH, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S)
    assert ended.returncode == 1
    assert ended.stderr.startswith("the script trains in 2 processes")
