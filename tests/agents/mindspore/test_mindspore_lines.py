"""What a network or a script computes itself, in PyNative mode, is told as a range of lines that has it for certain."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from mindspore_stage import PATIENCE_S, Run, attached, name_of_job

if TYPE_CHECKING:
    from running import RunningServer

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("container_training.py")
FAULTY_STEP = 3


@pytest.mark.parametrize("kind", ["between", "end", "script"])
def test_lines_between_calls_of_cells_are_a_range(
    mindspore_server: RunningServer, version: str, kind: str, tmp_path: Path
) -> None:
    job = name_of_job()
    options = ("--job", job, "--break-at-start")
    arguments = (kind, str(FAULTY_STEP))
    with (
        Run(version, *arguments, folder=tmp_path, server=mindspore_server, options=options, script=SCRIPT) as run,
        attached(mindspore_server, job) as session,
    ):
        session.wait(PATIENCE_S)
        session.watch_recommended()
        assert session.continue_().wait(PATIENCE_S).step == FAULTY_STEP
        origin = next(one for one in session.origins() if one.anomaly == "inf")
        session.terminate()
        assert run.outcome().code == 0
    lines = SCRIPT.read_text().splitlines()
    first, last = (
        next(number for number, line in enumerate(lines, 1) if line.endswith(f"# {mark} {kind}"))
        for mark in ("BEGIN", "END")
    )
    assert origin.line is not None
    assert origin.line.end_line is not None
    assert first <= origin.line.line < last - 1 <= origin.line.end_line <= last
    assert "between lines" in origin.sentence
