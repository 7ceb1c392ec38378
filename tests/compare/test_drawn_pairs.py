"""Of drawn pairs of logs, checkpoints and runs, nothing false is said (benchmarks/drawn_pairs.py)."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import drawn_checkpoints
import drawn_logs
import drawn_runs
from drawn import Kind, Outcome


@pytest.mark.parametrize(
    ("kind", "amount"),
    [
        (drawn_logs.draw, 60),
        (drawn_checkpoints.draw, 30),
        (drawn_runs.draw, 10),
        pytest.param(drawn_logs.draw, 300, marks=pytest.mark.long),
        pytest.param(drawn_checkpoints.draw, 150, marks=pytest.mark.long),
        pytest.param(drawn_runs.draw, 60, marks=pytest.mark.long),
    ],
)
def test_no_verdict_on_a_drawn_pair_is_false(tmp_path: Path, kind: Kind, amount: int) -> None:
    outcomes = []
    for number in range(amount):
        folder = tmp_path / str(number)
        folder.mkdir()
        drawn = kind(random.Random(f"tests {number}"), folder)  # noqa: S311
        judgement = drawn.judge()
        assert judgement.outcome is not Outcome.FALSE, (number, drawn.description, judgement)
        outcomes.append(judgement.outcome)
    # What says nothing is never false either.
    assert outcomes.count(Outcome.RIGHT) > 0.6 * amount
