"""`tensight check` of a run whose ranks watched themselves, as a person reads it."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

from tests.agents.numpy_training import FORWARD
from tests.agents.test_watching_alone import trained
from tests.runs.test_watched_ranks import seen, write_ranks

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Run = Callable[..., Any]

__all__ = ["seen"]


def test_what_a_thousand_ranks_have_seen_is_said_once(tensight: Run, tmp_path: Path, seen: dict[int, bytes]) -> None:
    folder = write_ranks(tmp_path / "run", seen, 1024, healthy=[17])
    outcome = tensight("check", folder)
    assert (outcome.code, outcome.err) == (1, "")
    assert "1,024 ranks, 8 steps" in outcome.out
    (line,) = (line for line in outcome.out.splitlines() if FORWARD[2] in line)
    assert line.split() == ["step", "5", FORWARD[2], "0", "–", *line.split()[5:]]
    assert line.rstrip().endswith("1 of 128 NaN   on 1,023 of 1,024 ranks; not on 17")
    assert "numpy_training.py:" in outcome.out
    assert len(outcome.out.splitlines()) < 25


def test_the_rank_that_was_first_is_named(tensight: Run, tmp_path: Path, seen: dict[int, bytes]) -> None:
    folder = write_ranks(tmp_path / "run", seen, 64, early=[9])
    outcome = tensight("check", folder, "--advice")
    assert "on all 64 ranks; at first on rank 9, by step 5 on all of these" in outcome.out
    assert "step 3" in outcome.out


def test_a_healthy_run_has_nothing_to_say(tensight: Run, tmp_path: Path, seen: dict[int, bytes]) -> None:
    folder = write_ranks(tmp_path / "run", seen, 32, healthy=range(32))
    outcome = tensight("check", folder)
    assert (outcome.code, outcome.err) == (0, "")
    assert "32 ranks, 8 steps" in outcome.out
    assert "10 watchpoints without a hit on any rank" in outcome.out


def test_ranks_that_are_missing_or_were_killed_are_named(tensight: Run, tmp_path: Path, seen: dict[int, bytes]) -> None:
    folder = write_ranks(tmp_path / "run", seen, 16, healthy=range(16))
    for path in folder.glob("hits-3-*"):
        path.unlink()
    for path in folder.glob("hits-12-*"):
        path.write_bytes(path.read_bytes().partition(b'{"counts"')[0] + b'{"step":6}\n')
    outcome = tensight("check", folder)
    assert "Nothing was left on rank 3" in outcome.out
    assert "Not ended by itself on rank 12: step 6 is the last that was noted" in outcome.out


def test_programs_get_everything(tensight: Run, tmp_path: Path, seen: dict[int, bytes]) -> None:
    folder = write_ranks(tmp_path / "run", seen, 8, early=[2], healthy=[5])
    data = json.loads(tensight("check", folder, "--json").out)
    assert (data["ranks"], data["world_size"], data["steps"]) == (8, 8, {"least": 8, "most": 8})
    first = data["hits"][0]
    assert (first["node"], first["step"], first["rank"], first["ranks"]) == (FORWARD[2], 3, 2, [0, 1, 2, 3, 4, 6, 7])
    assert first["steps"] == {"3": [2], "5": [0, 1, 3, 4, 6, 7]}
    assert (first["severity"], first["check"]) == ("error", "unintended_overflow()")
    rows = list(csv.DictReader(io.StringIO(tensight("check", folder, "--format", "csv").out)))
    assert len(rows) == len(data["hits"])
    assert (rows[0]["rank"], rows[0]["ranks"]) == ("2", "0 1 2 3 4 6 7")
    only = json.loads(tensight("check", folder, "--json", "--ranks", "5").out)
    assert (only["ranks"], only["hits"]) == (1, [])


def test_a_damaged_file_is_told_beside_the_rest(tensight: Run, tmp_path: Path, seen: dict[int, bytes]) -> None:
    folder = write_ranks(tmp_path / "run", seen, 4)
    (path,) = folder.glob("hits-2-*")
    path.write_bytes(b"nonsense\n")
    outcome = tensight("check", folder)
    assert outcome.code == 1
    assert "1 problem with the files of this run" in outcome.err
    assert "on 3 of 4 ranks; not on 2" in outcome.out


def test_tensors_that_such_a_run_has_recorded_are_checked_on_request(tensight: Run, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    trained(folder, 8, nan_at=4, record="ring:2")
    outcome = tensight("check", folder)
    assert "The steps recorded up to step 4 are kept on rank 0" in outcome.out
    assert "1 rank, 8 steps" in outcome.out
    recorded = tensight("check", folder, "--recommended", "--quiet")
    assert recorded.code == 1
    assert "1 rank, 8 steps" not in recorded.out
    assert "NaN began at step 4" in tensight("origin", folder, "--quiet").out
