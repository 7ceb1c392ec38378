"""`tensight selftest` with trainings of MindSpore, in the environments that have it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.agents.mindspore.mindspore_stage import ENVIRONMENTS, NOT_INHERITED, PATIENCE_S, SCRIPT, python_of

pytestmark = pytest.mark.long

RESNET = ENVIRONMENTS.parent / "examples" / "resnet_mindspore.py"


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("version", "command", "weight", "stops"),
    [
        # The fourth batch has an Inf, and what is wrong goes on into the weights.
        ("2.10", (SCRIPT, "--style", "functional", "--inf-at", "4"), "moments.first.weight", True),
        ("2.7", (RESNET, "--mode", "pynative"), "stage1.bn1.moving_mean", False),
    ],
)
def test_a_training_is_the_same_with_the_debugger_which_finds_its_faults(
    tmp_path: Path, version: str, command: tuple[Any, ...], weight: str, stops: bool
) -> None:
    python = python_of(version)
    inherited = {name: text for name, text in os.environ.items() if not name.startswith(NOT_INHERITED)}
    outcome = subprocess.run(
        [python, "-m", "tensight", "selftest", "--steps", "5", "--json", *command],
        cwd=tmp_path,
        env={**inherited, "GLOG_v": "3"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr + outcome.stdout
    data = json.loads(outcome.stdout)
    assert (data["passed"], data["attached"], data["unstable"], data["changed"]) == (True, True, [], [])
    assert data["stops"] > 0 if stops else data["stops"] == 0
    for run in data["runs"].values():
        assert (run["framework"], run["steps"]) == ("mindspore", 5)
        assert weight in run["digests"]
