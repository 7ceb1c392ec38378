"""Tensors of MindSpore are read where they lie: rightly, with every write to them noticed, and with none of ours."""

from __future__ import annotations

from pathlib import Path

from tests.agents.mindspore.mindspore_stage import Run

SCRIPT = Path(__file__).with_name("tensor_reading.py")


def test_what_is_read_is_what_is_there_now_and_stays_so(version: str, tmp_path: Path) -> None:
    with Run(version, folder=tmp_path, script=SCRIPT) as run:
        outcome = run.outcome()
    assert (outcome.code, outcome.errors) == (0, [])
    assert len(outcome.output) == 29
    assert [line for line in outcome.output if not line.endswith(": yes")] == []
