from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tensight.analysis import Analysis, check, origins, query
from tensight.dumps import open_dump
from tensight.errors import DumpError, InputError
from tensight.ranks import FEW_RANKS
from tensight.runs.checking import CheckQuery, RunCheck
from tensight.runs.origins import RunOrigins
from tensight.runs.run import Run
from tensight.runs.statistics import RunStatistics
from tensight.runs.summary import run_summary
from tensight.watchpoints import Selector, Watchpoint, parse_check, recommended_watchpoints
from tests.dumps.test_trace_files import written as write_trace

POINTS = recommended_watchpoints()
DIFFERING = Watchpoint(1, "", parse_check("weights_differ"), Selector.parse("weights"))
NOWHERE = "an engine that would be refused"


@pytest.fixture
def three_ranks(dump_copy: Callable[[str], Path]) -> Path:
    """A dump of three equal ranks, of which the last has another weight after the first step."""
    dump = dump_copy("sick-2.10.0")
    for rank in (1, 2):
        shutil.copytree(dump / "rank_0", dump / f"rank_{rank}")
    change(next((dump / "rank_2" / "Sick" / "0" / "1").glob("Parameter.*conv_weight*.npy")))
    return dump


def change(file: Path) -> None:
    values = np.load(file)
    values.flat[0] += 1
    np.save(file, values)


def facts(checked: RunCheck, *, without: int | None = None) -> list[list[str]]:
    """Return the hits of each watchpoint as texts, because NaN is not equal to itself."""
    return [[str(hit) for hit in checked.hits(result) if hit["rank"] != without] for result in checked.results]


def test_a_run_has_the_hits_that_its_ranks_have_together(three_ranks: Path, tmp_path: Path) -> None:
    checked = RunCheck(Run(three_ranks, cache_dir=tmp_path), [*POINTS, DIFFERING])
    expected = check(Analysis(open_dump(three_ranks), cache_dir=tmp_path / "whole"), [*POINTS, DIFFERING])
    for result, other in zip(checked.results, expected, strict=True):
        found = [
            (
                hit["rank"],
                hit["graph"],
                hit["node"],
                hit["slot"],
                hit["step"],
                hit["parameters_hit"],
                str(hit["actual"]),
            )
            for hit in checked.hits(result)
        ]
        assert found == [
            (
                hit.tensor.rank,
                hit.tensor.graph,
                hit.tensor.node,
                hit.tensor.slot,
                hit.tensor.step,
                hit.parameters_hit,
                str(dict(hit.actual)),
            )
            for hit in other.hits
        ]
        assert (result.tensors, result.checked, dict(result.not_checked)) == (
            other.tensors,
            other.checked,
            dict(other.not_checked),
        )
    assert sum(result.hits for result in checked.results) > 100


def test_engines_give_the_same_rows(three_ranks: Path, tmp_path: Path) -> None:
    tables = []
    for engine in ("threads", "processes"):
        run = Run(three_ranks, cache_dir=tmp_path / engine, engine=engine)
        (results,) = run.query(CheckQuery((*POINTS, DIFFERING)))
        tables.append(pq.read_table(results.path).sort_by([("rank", "ascending"), ("row", "ascending")]))
        assert sorted(results.about) == [0, 1, 2]
    assert tables[0].num_rows > 100
    assert str(tables[0].to_pylist()) == str(tables[1].to_pylist())  # NaN is not equal to itself


def test_tensors_that_differ_between_ranks_are_told_with_the_ranks_that_deviate(
    three_ranks: Path, tmp_path: Path
) -> None:
    checked = RunCheck(Run(three_ranks, cache_dir=tmp_path), [DIFFERING])
    (result,) = checked.results
    (tensor,) = checked.tensor_hits(result, 10)
    assert (tensor.steps, tensor.ranks) == ((2,), (2,))
    assert [hit["rank"] for hit in checked.hits(result)] == [0, 1, 2]


def test_a_difference_counts_only_after_it_has_persisted(three_ranks: Path, tmp_path: Path) -> None:
    for step in (2, 3):
        change(next((three_ranks / "rank_2" / "Sick" / "0" / str(step)).glob("Parameter.*conv_weight*.npy")))
    point = Watchpoint(1, "", parse_check("weights_differ"), Selector.parse("weights"), persistence=2)
    checked = RunCheck(Run(three_ranks, cache_dir=tmp_path), [point])
    assert {(hit["rank"], hit["step"]) for hit in checked.hits(checked.results[0])} == {
        (rank, step) for rank in range(3) for step in (3, 4)
    }


def test_what_was_answered_is_not_asked_again(three_ranks: Path, tmp_path: Path) -> None:
    first = RunCheck(Run(three_ranks, cache_dir=tmp_path), POINTS)
    again = RunCheck(Run(three_ranks, cache_dir=tmp_path, engine=NOWHERE), POINTS)
    assert facts(again) == facts(first)
    one = RunCheck(Run(three_ranks, cache_dir=tmp_path, engine=NOWHERE), POINTS, ranks=[1])
    of_one = [hit for result in first.results for hit in first.hits(result) if hit["rank"] == 1]
    assert sum(result.hits for result in one.results) == len(of_one) > 100
    assert one.inspected.ranks == (1,)


def test_only_the_rank_with_a_changed_file_is_asked_again(three_ranks: Path, tmp_path: Path) -> None:
    before = RunCheck(Run(three_ranks, cache_dir=tmp_path), POINTS)
    others = facts(before, without=1)
    file = next((three_ranks / "rank_1" / "Sick" / "0" / "0").glob("Conv2D.*output.0*.npy"))
    values = np.load(file)
    values.flat[3] = np.inf
    np.save(file, values)
    run = Run(three_ranks, cache_dir=tmp_path)
    units: list[str] = []
    run.progress = lambda unit, done, total: units.append(unit)
    after = RunCheck(run, POINTS)
    assert set(units) == {"bytes"}  # of one rank
    assert facts(after, without=1) == others
    assert sum(result.hits for result in after.results) > sum(result.hits for result in before.results)


def test_origins_of_ranks_are_those_of_the_whole_dump_and_equal_ones_are_told_once(
    three_ranks: Path, tmp_path: Path
) -> None:
    searched = RunOrigins(Run(three_ranks, cache_dir=tmp_path))
    whole = origins(Analysis(open_dump(three_ranks), cache_dir=tmp_path / "whole"))
    assert [origin.sentence for origin in searched.origins] == [origin.sentence for origin in whole]
    assert [(origin.address, origin.user_frame) for origin in searched.origins] == [
        (origin.address, origin.user_frame) for origin in whole
    ]
    assert len(searched.groups) == len(searched.origins) / 3
    assert {group.ranks for group in searched.groups} == {(0, 1, 2)}
    again = RunOrigins(Run(three_ranks, cache_dir=tmp_path, engine=NOWHERE))
    assert str(again.groups) == str(searched.groups)


def test_the_statistics_of_a_run_are_those_of_the_whole_dump(three_ranks: Path, tmp_path: Path) -> None:
    statistics = RunStatistics(Run(three_ranks, cache_dir=tmp_path, engine="processes"))
    whole = Analysis(open_dump(three_ranks), cache_dir=tmp_path / "whole")
    everything = "select * exclude (row) from tensors order by rank, row"
    assert str(query(statistics.table, everything).to_pylist()) == str(whole.table().to_pylist())
    assert statistics.inspected.tensors == len(whole.statistics_table.files)


def test_many_ranks_are_searched_for_origins_while_they_are_checked(
    dump_copy: Callable[[str], Path], tmp_path: Path
) -> None:
    dump = dump_copy("sick-2.10.0")
    for rank in range(1, FEW_RANKS + 1):
        shutil.copytree(dump / "rank_0", dump / f"rank_{rank}")
    RunCheck(Run(dump, cache_dir=tmp_path), POINTS)
    searched = RunOrigins(Run(dump, cache_dir=tmp_path, engine=NOWHERE))
    assert {group.ranks for group in searched.groups} == {tuple(range(FEW_RANKS + 1))}


def test_the_summary_of_many_ranks_is_that_of_the_dump(dump_copy: Callable[[str], Path], tmp_path: Path) -> None:
    dump = dump_copy("sick-2.10.0")
    for rank in range(1, FEW_RANKS + 1):
        shutil.copytree(dump / "rank_0", dump / f"rank_{rank}")
    (next((dump / "rank_3" / "Sick" / "0" / "3").glob("Conv2D*output*.npy"))).write_bytes(b"garbage")
    opened = open_dump(dump)
    summary, whole = run_summary(opened), opened.summary()
    # Of each rank the last files are opened, not only of the last ranks.
    assert [problem["where"][:6] for problem in summary.pop("problems")] == ["rank_3"]
    assert summary.pop("opened") <= whole.pop("opened")
    del whole["problems"]
    assert summary == whole


def test_a_rank_that_cannot_be_read_is_a_problem_and_the_others_are_checked(tmp_path: Path) -> None:
    write_trace(tmp_path)
    (tmp_path / "rank_1.trace").write_bytes(b"no trace")
    checked = RunCheck(Run(tmp_path, cache_dir=tmp_path / "cache"), POINTS)
    assert checked.inspected.ranks == (0,)
    assert [problem.where for problem in checked.problems] == ["rank 1"]


def test_without_a_readable_rank_there_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "rank_0.trace").write_bytes(b"no trace")
    with pytest.raises(DumpError, match="is not a trace"):
        RunCheck(Run(tmp_path, cache_dir=tmp_path / "cache"), POINTS)


def test_a_cache_that_cannot_be_written_costs_only_time(three_ranks: Path) -> None:
    run = Run(three_ranks, cache_dir="/proc/no/cache")
    checked = RunCheck(run, POINTS)
    assert sum(map(len, facts(checked))) == sum(result.hits for result in checked.results) > 100


def test_a_damaged_file_of_answers_is_asked_anew(three_ranks: Path, tmp_path: Path) -> None:
    first = facts(RunCheck(Run(three_ranks, cache_dir=tmp_path), POINTS))
    (file,) = tmp_path.rglob("results-*.parquet")
    file.write_bytes(file.read_bytes()[:-100])
    assert facts(RunCheck(Run(three_ranks, cache_dir=tmp_path), POINTS)) == first


@pytest.mark.parametrize(
    ("where", "message"), [({"ranks": [7]}, "rank 7 is not in the dump"), ({"steps": [99]}, "step 99 is not in")]
)
def test_a_rank_or_step_that_is_not_there_is_named(
    where: dict[str, Any], message: str, three_ranks: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        RunCheck(Run(three_ranks, cache_dir=tmp_path), POINTS, **where)
