"""`tensight diagnose` and `tensight explain`, as a person runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TRAINING = """
import sys
import torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4), *([nn.Softmax(1)] if "twice" in sys.argv else []))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
inputs = torch.randn(256, 8)
labels = (inputs[:, 0] > 0).long() + 2 * (inputs[:, 1] > 0).long()
for step in range(int(sys.argv[1])):
    rows = torch.randint(0, 256, (32,))
    loss = nn.functional.cross_entropy(model(inputs[rows]), labels[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("parameters", sum(float(p.double().abs().sum()) for p in model.parameters()).hex())
if "fails" in sys.argv:
    raise ValueError("after all")
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(TRAINING)
    return path


def tensight(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("tensight")), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_fault_is_named_with_its_line(script: Path) -> None:
    done = tensight("diagnose", "--json", script, 40, "twice")
    assert done.returncode == 1, done.stderr
    (finding,) = json.loads(done.stdout)["findings"]
    assert (finding["rule"], finding["category"], finding["certainty"], finding["step"]) == (
        "activation-twice",
        "output-and-loss",
        "certain",
        1,
    )
    assert finding["where"] == {"operator": "cross_entropy", "line": "train.py:13"}
    text = tensight("diagnose", script, 40, "twice").stdout
    assert "softmax before cross_entropy" in text
    assert "train.py:13" in text
    assert "40 steps looked at" in text


def test_a_healthy_training_ends_after_some_steps_with_exit_code_0(script: Path) -> None:
    done = tensight("diagnose", "--json", "--steps", 30, script, 100_000)
    result = json.loads(done.stdout)
    assert (done.returncode, result["findings"], result["steps"]) == (0, [], 30)


def test_what_a_failed_training_showed_is_judged_and_how_it_failed_is_said(script: Path) -> None:
    done = tensight("diagnose", script, 40, "twice", "fails")
    assert done.returncode == 1
    assert "ValueError: after all" in done.stdout
    assert "softmax before cross_entropy" in done.stdout


def test_where_no_step_is_seen_nothing_is_judged(tmp_path: Path) -> None:
    script = tmp_path / "plain.py"
    script.write_text("import torch\n")
    done = tensight("diagnose", script)
    assert done.returncode == 2
    assert "nothing can be judged" in done.stdout


def test_a_diagnosed_training_computes_the_same_bits(script: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "TENSIGHT_DEBUG": "1", "TENSIGHT_DIAGNOSE": str(tmp_path)}
    command = [sys.executable, str(script), "100"]
    plain = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    diagnosed = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True, env=environment)
    assert plain.stdout == diagnosed.stdout
    assert list(tmp_path.glob("facts-0-*.json"))


def test_explain_says_what_a_rule_finds_and_what_to_do() -> None:
    text = tensight("explain", "softmax-axis").stdout
    assert "softmax over another axis" in text
    assert "dim=1" in text
    assert tensight("explain", "softmax-axes").returncode == 2
    rules = json.loads(tensight("explain", "--json").stdout)
    assert len(rules) > 40
    assert all(words["en"] and words["zh"] for rule in rules for words in rule["messages"].values())
