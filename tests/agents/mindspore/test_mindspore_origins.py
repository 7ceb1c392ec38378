"""Where an anomaly began, in a graph of MindSpore of which nothing but overflows is watched."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from mindspore_stage import PATIENCE_S, Run, attached, name_of_job

if TYPE_CHECKING:
    from running import RunningServer

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("raising_training.py")


def test_an_operator_that_takes_a_constant_is_certain(
    mindspore_server: RunningServer, version: str, tmp_path: Path
) -> None:
    job = name_of_job()
    options = ("--job", job, "--break-at-start")
    with (
        Run(version, "4", folder=tmp_path, server=mindspore_server, options=options, script=SCRIPT) as run,
        attached(mindspore_server, job) as session,
    ):
        session.wait(PATIENCE_S)
        session.watch("tensor_overflow", on="all")
        assert session.continue_().wait(PATIENCE_S).step == 4
        origin = next(one for one in session.origins() if one.anomaly == "inf")
        assert (origin.type, origin.step, origin.certain, origin.arrived) == ("Pow", 4, True, False)
        assert origin.candidates == ()
        assert origin.line is not None
        assert "# FAULT" in origin.line.code
        _, constant = (one.peer for one in session.node(origin.node).inputs)
        assert session.node(constant).value == "Tensor(shape=[], dtype=Float32, value=-2.5)"
        session.terminate()
        assert run.outcome().code == 0
