"""The files of many ranks that watched themselves, put together: equal hits and findings are one, with their ranks."""

from __future__ import annotations

import json
import pickle
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tensight.diagnosis import lines
from tensight.errors import InputError
from tensight.ranks import RankFile
from tensight.runs.watched_ranks import files_of_ranks, is_watched_run, merge, read_rank, read_watched_run
from tensight.watchpoints.rank_hits import KIND, MOST_HITS, MOST_LINE
from tests.agents.numpy_training import FORWARD
from tests.agents.test_watching_alone import trained

if TYPE_CHECKING:
    from collections.abc import Collection

LATE, EARLY, HEALTHY = 5, 3, 0
"""Steps in which NaN appears on some rank."""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[int, bytes]:
    """What a rank writes, by the step in which NaN appears on it."""
    written = {}
    for nan_at in (LATE, EARLY, HEALTHY):
        folder = tmp_path_factory.mktemp("rank")
        trained(folder, 8, world_size=1024, nan_at=nan_at)
        (path,) = folder.glob(f"{KIND}-*.jsonl")
        written[nan_at] = path.read_bytes()
    return written


def write_ranks(
    folder: Path, seen: dict[int, bytes], count: int, *, early: Collection[int] = (), healthy: Collection[int] = ()
) -> Path:
    """Write the files of a run, whose ranks have a NaN in step 5, unless they are named."""
    folder.mkdir()
    for rank in range(count):
        content = seen[EARLY if rank in early else HEALTHY if rank in healthy else LATE]
        first, _, rest = content.partition(b"\n")
        header = json.dumps({**json.loads(first), "rank": rank, "world_size": count}).encode()
        (folder / f"{KIND}-{rank}-{4000 + rank}.jsonl").write_bytes(header + b"\n" + rest)
    return folder


def cause(shared: Any) -> tuple[int, str, int]:
    return shared.hit.step, shared.hit.node, len(shared.ranks)


def test_equal_hits_of_a_thousand_ranks_are_one(tmp_path: Path, seen: dict[int, bytes]) -> None:
    run = read_watched_run(write_ranks(tmp_path / "run", seen, 1024, early={17}, healthy={20, 84}))
    assert (run.world_size, len(run.steps), run.silent, run.not_over, run.problems) == (1024, 1024, [], [], [])
    causes = [shared for shared in run.hits if shared.is_cause]
    assert [cause(shared) for shared in causes] == [(EARLY, FORWARD[2], 1022)]
    (first,) = causes
    assert (first.rank, first.steps[EARLY]) == (17, [17])
    assert first.steps[LATE] == [rank for rank in range(1024) if rank not in (17, 20, 84)]
    assert len(
        {(shared.watchpoint.text, shared.hit.node, shared.hit.slot, shared.hit.io) for shared in run.hits}
    ) == len(run.hits)


def test_ranks_are_read_anywhere_and_put_together_in_any_order(tmp_path: Path, seen: dict[int, bytes]) -> None:
    folder = write_ranks(tmp_path / "run", seen, 12, early={3}, healthy={7})
    tasks = pickle.loads(pickle.dumps(files_of_ranks(folder)))  # noqa: S301 - our own
    sent = [pickle.loads(pickle.dumps(read_rank(task))) for task in reversed(tasks)]  # noqa: S301
    assert merge(sent) == read_watched_run(folder, engine="threads") == read_watched_run(folder, engine="processes")


def test_memory_grows_with_what_is_distinct_and_not_with_ranks(tmp_path: Path, seen: dict[int, bytes]) -> None:
    peaks = {}
    for count in (64, 512):
        folder = write_ranks(tmp_path / str(count), seen, count)
        tracemalloc.start()
        read_watched_run(folder, engine="threads")
        peaks[count] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    # Each rank adds its number to every hit that it shares, and how far it has come.
    per_rank = (peaks[512] - peaks[64]) / 448
    assert per_rank < 4 * 1024


def test_ranks_that_left_nothing_or_did_not_end_are_named(tmp_path: Path, seen: dict[int, bytes]) -> None:
    folder = write_ranks(tmp_path / "run", seen, 8)
    for path in folder.glob(f"{KIND}-5-*"):
        path.unlink()
    for path in folder.glob(f"{KIND}-6-*"):
        path.write_bytes(path.read_bytes().partition(b'{"over"')[0])
    for path in folder.glob(f"{KIND}-2-*"):
        (folder / f"{KIND}-2-1.jsonl").write_bytes(path.read_bytes())
    run = read_watched_run(folder)
    assert (run.silent, run.not_over, run.restarted) == ([5], [6], [2])
    assert run.steps[6] == 8
    # A rank that was started again counts once.
    assert [sorted(shared.ranks) for shared in run.hits if shared.is_cause] == [[0, 1, 2, 3, 4, 6, 7]]


def test_findings_of_ranks_are_one_with_their_ranks(tmp_path: Path, seen: dict[int, bytes]) -> None:
    folder = write_ranks(tmp_path / "run", seen, 6, healthy=range(6))
    for rank in range(6):
        file = RankFile(folder, lines.KIND, rank, 1)
        for step in range(1, 31):
            value = float("nan") if rank != 4 and step > 20 else 1.0 / (step + rank)
            file.write([lines.line_of("steps", step, [{"name": "step"}])])
            file.write([lines.line_of("losses", step, [{"name": "loss", "value": value}])])
    run = read_watched_run(folder)
    (finding,) = run.findings
    assert (finding.explained.finding.rule, finding.ranks) == ("loss-not-finite", [0, 1, 2, 3, 5])


def test_rules_that_compare_ranks_see_all_of_them(tmp_path: Path, seen: dict[int, bytes]) -> None:
    folder = write_ranks(tmp_path / "run", seen, 6, healthy=range(6))
    for rank in range(6):
        file = RankFile(folder, lines.KIND, rank, 1)
        for step in range(1, 9):
            row = {"name": f"rank {rank}", "weights": 7 if rank != 4 or step < 3 else 8, "world": 6, "norm": 1.0}
            file.write([lines.line_of("steps", step, [{"name": "step"}]), lines.line_of("ranks", step, [row])])
    rules = {finding.explained.finding.rule: finding for finding in read_watched_run(folder).findings}
    assert rules["replicas-differ"].explained.finding.where["rank"] == "rank 4"
    assert rules["replicas-differ"].ranks == list(range(6))


def test_only_some_ranks_are_read_on_request(tmp_path: Path, seen: dict[int, bytes]) -> None:
    folder = write_ranks(tmp_path / "run", seen, 8, healthy=[1])
    assert list(read_watched_run(folder, [1]).steps) == [1]
    assert read_watched_run(folder, [1]).hits == []
    with pytest.raises(InputError, match="no rank 8 has left a file"):
        read_watched_run(folder, [8])
    (tmp_path / "empty").mkdir()
    assert not is_watched_run(str(tmp_path / "empty"))
    with pytest.raises(InputError, match="no rank 0 has left a file"):
        read_watched_run(tmp_path / "empty")


HOSTILE = (
    b"nonsense",
    b"[]",
    b'{"hit": []}',
    b'{"hit": {"step": -1, "watchpoint": 2, "node": "a"}}',
    b'{"hit": {"step": 1e400, "watchpoint": 2, "node": "a"}}',
    b'{"hit": {"step": true, "watchpoint": 2, "node": "a"}}',
    b'{"hit": {"step": 1, "watchpoint": 77, "node": "a"}}',
    b'{"hit": {"step": 1, "watchpoint": 2, "node": 5}}',
    b'{"hit": {"step": 1, "watchpoint": 2, "node": "a", "actual": {"x": "y"}}}',
    b'{"hit": {"step": 1, "watchpoint": 2, "node": "a", "values": 3}}',
    b'{"hit": {"step": 1, "watchpoint": 2, "node": "a", "source": {"file": 1, "line": 1}}}',
    b'{"hit": {"step": 1, "watchpoint": 2, "node": "a", "parameters_hit": 9}}',
    b'{"counts": {"2": [1, 2]}}',
    b'{"counts": {"2": [1, 2, "3"]}}',
    b'{"counts": 8}',
    b'{"kept": "x"}',
    b'{"over": null}',
    b'{"step": []}',
    b"[" * 50_000,
)


@pytest.mark.parametrize("line", HOSTILE, ids=range(len(HOSTILE)))
def test_a_line_that_makes_no_sense_is_a_problem_and_the_others_count(
    tmp_path: Path, seen: dict[int, bytes], line: bytes
) -> None:
    folder = write_ranks(tmp_path / "run", seen, 2)
    (path,) = folder.glob(f"{KIND}-1-*")
    first, _, rest = path.read_bytes().partition(b"\n")
    path.write_bytes(first + b"\n" + line + b"\n" + rest)
    run = read_watched_run(folder)
    assert len(run.problems) == 1
    assert "line 2 is left out" in run.problems[0]
    assert [shared.ranks for shared in run.hits if shared.is_cause] == [[0, 1]]


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"nonsense\n",
        b'{"rank": 1}\n',
        b'{"rank": 1, "watchpoints": [{"id": 1, "check": "no_condition(", "selection": "all"}]}\n',
        b'{"rank": 1, "watchpoints": [{"id": 0, "check": "unintended_overflow()", "selection": "all"}]}\n',
        b'{"rank": 1, "watchpoints": [3]}\n',
        b'{"rank": 1, "watchpoints": [' + b" " * MOST_LINE + b"]}\n",
    ],
    ids=range(7),
)
def test_a_file_that_is_none_is_a_problem_and_the_other_ranks_count(
    tmp_path: Path, seen: dict[int, bytes], first: bytes
) -> None:
    folder = write_ranks(tmp_path / "run", seen, 2)
    (path,) = folder.glob(f"{KIND}-1-*")
    path.write_bytes(first)
    run = read_watched_run(folder)
    assert len(run.problems) == 1
    assert str(path) in run.problems[0]
    assert [shared.ranks for shared in run.hits if shared.is_cause] == [[0]]


def test_a_rank_with_very_many_hits_is_read_up_to_a_bound(tmp_path: Path, seen: dict[int, bytes]) -> None:
    folder = write_ranks(tmp_path / "run", seen, 1)
    (path,) = folder.glob(f"{KIND}-0-*")
    with path.open("ab") as file:
        for number in range(MOST_HITS + 50):
            file.write(b'{"hit": {"step": 1, "watchpoint": 2, "node": "n%d"}}\n' % number)
    run = read_watched_run(folder)
    assert len(run.hits) == MOST_HITS
