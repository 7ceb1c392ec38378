"""Whatever of ours fails, wherever MindSpore has called it: the training goes on and arrives where it does alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.agents.mindspore.mindspore_stage import Run, address

if TYPE_CHECKING:
    from tests.server.running import RunningServer

pytestmark = pytest.mark.long


SCRIPT = Path(__file__).with_name("failing_training.py")


# In graph mode each part takes a compilation: `failing_training.py graph` is for those who have the minutes.
@pytest.mark.parametrize("mode", ["pynative"])
def test_no_exception_of_ours_reaches_a_training(mindspore_server: RunningServer, mode: str, tmp_path: Path) -> None:
    parts = {"PYTHONPATH": str(SCRIPT.parents[3])}
    arguments = (mode, *address(mindspore_server))
    with Run("2.10", *arguments, folder=tmp_path, variables=parts, script=SCRIPT) as run:
        outcome = run.outcome()
    assert outcome.code == 0, outcome
    summary = json.loads(outcome.output[-1])
    assert summary["problems"] == []
    assert summary["failed"] > summary["called"] / 2
