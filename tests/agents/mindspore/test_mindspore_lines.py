"""What a network or a script computes itself, in PyNative mode, is told as a range of lines that has it for certain."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.agents.mindspore.mindspore_stage import origins_at_stop

if TYPE_CHECKING:
    from tests.server.running import RunningServer

pytestmark = pytest.mark.long


SCRIPT = Path(__file__).with_name("container_training.py")
FAULTY_STEP = 3


@pytest.mark.parametrize(
    ("version", "kind"),
    [("2.10", "between"), ("2.10", "end"), ("2.10", "script"), ("2.7", "between")],
    indirect=["version"],
)
def test_lines_between_calls_of_cells_are_a_range(
    mindspore_server: RunningServer, version: str, kind: str, tmp_path: Path
) -> None:
    arguments = (kind, str(FAULTY_STEP))
    origins = origins_at_stop(mindspore_server, version, tmp_path, SCRIPT, *arguments, step=FAULTY_STEP)
    origin = next(one for one in origins if one.anomaly == "inf")
    lines = SCRIPT.read_text().splitlines()
    first, last = (
        next(number for number, line in enumerate(lines, 1) if line.endswith(f"# {mark} {kind}"))
        for mark in ("BEGIN", "END")
    )
    assert origin.line is not None
    assert origin.line.end_line is not None
    assert first <= origin.line.line < last - 1 <= origin.line.end_line <= last
    assert "between lines" in origin.sentence
