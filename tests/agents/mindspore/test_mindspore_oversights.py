"""Trainings of MindSpore that a person may believe to be debugged, and are not: that is said within the first steps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.agents.mindspore.mindspore_stage import PATIENCE_S, Run, attached, name_of_job

if TYPE_CHECKING:
    from tests.server.running import RunningServer


SCRIPT = Path(__file__).with_name("unseen_training.py")
STRANGE = "3 updates by Momentum are not counted as steps: none of its parameters belongs"


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("version", "kind", "steps", "said"),
    [
        ("2.10", "replaced", 4, STRANGE),
        ("2.7", "assigning", 34, "33 backward passes since step 0, and no update by an optimizer"),
        ("2.10", "functions", 4, "3 steps were counted, and no call of a model was seen in them: in PyNative mode"),
        ("2.7", "replaced", 4, STRANGE),
    ],
    indirect=["version"],
)
def test_what_becomes_no_step_is_reported_once(
    mindspore_server: RunningServer, version: str, kind: str, steps: int, said: str, tmp_path: Path
) -> None:
    job = name_of_job()
    options = ("--job", job, "--break-at-start")
    arguments = (kind, str(steps))
    with (
        Run(version, *arguments, folder=tmp_path, server=mindspore_server, options=options, script=SCRIPT) as run,
        attached(mindspore_server, job) as session,
    ):
        session.wait(PATIENCE_S)
        session.watch("tensor_overflow", on="all")
        session.continue_()
        assert said in session.wait_until(lambda record: bool(record.message), PATIENCE_S).message
        outcome = run.outcome()
    assert outcome.code == 0
    assert sum(said in notice for notice in outcome.notices) == 1
