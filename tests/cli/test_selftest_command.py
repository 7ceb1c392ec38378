"""`tensight selftest`: what the debugger changes in a training, with real trainings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tensight.cli.trials import Measured, judge

SCRIPT = """\
import sys, torch
from torch import nn

if "--seed" in sys.argv:
    torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.2), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(model.parameters())
for step in range(int(sys.argv[1])):
    loss = nn.functional.cross_entropy(model(torch.randn(16, 8)), torch.randint(0, 2, (16,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("step", step)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path / "train.py"


def selftest(*arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TENSIGHT_")}
    return subprocess.run(
        [sys.executable, "-m", "tensight", "selftest", *map(str, arguments)],
        env={**environment, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.long
def test_a_training_that_sets_its_seed_is_the_same_with_the_debugger(script: Path) -> None:
    outcome = selftest("--steps", 20, script, 1000, "--seed")
    assert (outcome.returncode, outcome.stderr) == (0, ""), outcome.stdout
    # Six parameters with three states each, and three buffers.
    assert "✓ Bit-identical after 20 steps: all 27 tensors" in outcome.stdout
    assert "watchpoints on everything (no stop)" in outcome.stdout


@pytest.mark.long
def test_of_one_that_does_not_it_says_that_nothing_can_be_told(script: Path) -> None:
    outcome = selftest("--steps", 5, "--capture", "ops", "--json", script, 3)
    assert outcome.returncode == 1
    data: dict[str, Any] = json.loads(outcome.stdout)
    assert (data["passed"], data["attached"], data["changed"]) == (False, True, [])
    assert "0.weight" in data["unstable"]
    # It ended by itself before the fifth.
    assert {run["steps"] for run in data["runs"].values()} == {3}


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import torch\n", "no optimizer of PyTorch or MindSpore took a step in this process"),
        (
            "import mindspore\n",
            f"MindSpore is not installed for {sys.executable}: run tensight of the",
        ),
        ("raise SystemExit('wrong dataset')\n", "ended with exit code 1; the last it printed:\n  wrong dataset"),
    ],
)
def test_a_script_that_cannot_be_compared_is_refused_in_words(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "train.py").write_text(text)
    outcome = selftest(tmp_path / "train.py")
    assert (outcome.returncode, outcome.stdout) == (2, "")
    assert words in outcome.stderr


def test_only_a_difference_that_the_script_does_not_make_itself_is_the_debuggers() -> None:
    plain = Measured(5, 0.01, 1000, {"a": "1", "b": "2"})
    debugged = Measured(5, 0.02, 1500, {"a": "1", "b": "3"}, debugged_steps=5)
    verdict = judge(plain, plain, debugged)
    assert (verdict.changed, verdict.unstable, verdict.passed) == (("b",), (), False)
    assert (verdict.slowdown, verdict.added_bytes) == (2.0, 500)
    other = Measured(5, 0.01, 1000, {"a": "1", "b": "4"})
    verdict = judge(plain, other, debugged)
    assert (verdict.changed, verdict.unstable, verdict.passed) == ((), ("b",), False)


def test_a_debugger_that_was_not_there_proves_nothing() -> None:
    plain = Measured(5, 0.01, 1000, {"a": "1"})
    assert judge(plain, plain, Measured(5, 0.01, 1000, {"a": "1"}, debugged_steps=4)).passed
    assert not judge(plain, plain, Measured(5, 0.01, 1000, {"a": "1"}, debugged_steps=0)).passed
    assert judge(plain, plain, Measured(5, 0.01, 1000, {}, debugged_steps=5)).passed is not True
