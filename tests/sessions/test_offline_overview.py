"""Overview and timeline of dumps: what is pictured is what NumPy finds in the files, of what has been read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tensight.sessions.errors import NotFoundError, StateError
from tensight.sessions.offline import overview as offline_overview
from tensight.sessions.offline.session import OfflineSession
from tensight.sessions.overview import HIT, INFINITE, NAN, NOTHING, OverviewChoice
from tensight.sessions.records import Overview, OverviewStatistic, WatchpointChange, WatchpointSpec
from tests.dumps import statistics_writer
from tests.dumps.dump_writer import DumpWriter, GraphWriter
from tests.sessions.offline_runs import debugging, go

LOG = "Default/network-Loss/network-SickNetwork/energy-EnergyFeature/Log-op144"


async def whole(session: OfflineSession, **choice: Any) -> Overview:
    """Ask until everything has been read."""
    while True:
        found = await session.overview(0, OverviewChoice(**choice), read=True)
        if not found.unread:
            return found


def row(found: Overview, node: str, io: str = "output") -> int:
    return next(place for place, one in enumerate(found.rows) if (one.node, one.io) == (node, io))


def stored(dump: Path, iteration: int, name: str) -> NDArray[Any]:
    (path,) = (dump / "rank_0" / "Sick" / "0" / str(iteration)).glob(f"{name}.DefaultFormat.npy")
    return np.load(path)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("statistic", "of"),
    [
        ("abs_mean", lambda values: np.abs(values).mean(dtype=np.float64)),
        ("abs_max", lambda values: np.abs(values).max()),
        ("min", np.min),
        ("std", lambda values: values.std(dtype=np.float64, ddof=1)),
        ("zero_percent", lambda values: 100 * np.mean(values == 0)),
        ("negative_percent", lambda values: 100 * np.mean(values < 0)),
        ("non_finite_percent", lambda values: 0.0),
    ],
)
def test_cells_hold_what_is_in_the_files(dump_200: Path, statistic: OverviewStatistic, of: Any) -> None:
    async def ask() -> None:
        async with debugging(dump_200) as session:
            found = await whole(session, statistic=statistic, query="Conv2D-op122", rows=1000)
            assert [(one.io, one.slot) for one in found.rows] == [("input", 0), ("input", 1), ("output", 0)]
            assert [(span.first, span.last) for span in found.steps] == [(step, step) for step in (1, 2, 3, 4)]
            for place, name in ((1, "Conv2D.Conv2D-op122*.input.1"), (2, "Conv2D.Conv2D-op122*.output.0")):
                expected = [of(stored(dump_200, iteration, name)) for iteration in range(4)]
                assert found.values[place] == pytest.approx(expected, rel=1e-4)
            assert found.rows[2].address == f"0/kernel_graph_0/{found.rows[2].node}:0"
            assert found.rows[2].graphs == ("kernel_graph_0",)

    asyncio.run(ask())


def test_where_and_when_it_began_is_the_first_marked_cell(dump_200: Path) -> None:
    async def ask() -> None:
        async with debugging(dump_200) as session:
            found = await whole(session, rows=1000)
            marks = np.array(found.marks)
            sick = (marks & (NAN | INFINITE)) > 0
            first = int(np.flatnonzero(sick.any(axis=0))[0])
            assert found.steps[first].first == 3
            assert found.rows[int(np.flatnonzero(sick[:, first])[0])].node == LOG
            assert marks[row(found, LOG)].tolist()[:3] == [0, 0, INFINITE]

    asyncio.run(ask())


def test_a_dump_is_read_only_when_that_is_asked_for_and_in_parts(
    dump_200: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask() -> None:
        async with debugging(dump_200, cache_dir=tmp_path) as session:
            found = await session.overview(0, OverviewChoice())
            assert found.unread > 0
            assert found.unread_bytes > 0
            assert {mark for marks in found.marks for mark in marks} == {NOTHING}
            # As if each tensor took the time that one answer may take.
            monkeypatch.setattr(offline_overview, "READ_FOR_S", 1e-9)
            part = await session.overview(0, OverviewChoice(), read=True)
            assert part.unread == found.unread
            monkeypatch.setattr(offline_overview, "READ_FOR_S", 60.0)
            rest = await session.overview(0, OverviewChoice(), read=True)
            assert (rest.unread, rest.unread_bytes) == (0, 0)
            assert any(NOTHING not in marks for marks in rest.marks)

    asyncio.run(ask())


def test_hits_of_all_steps_that_were_checked_are_marked_until_watchpoints_change(dump_200: Path) -> None:
    async def ask() -> None:
        async with debugging(dump_200) as session:
            await session.create_watchpoint(WatchpointSpec(condition="tensor_overflow"))
            await go(session, "continue")
            await go(session, "continue")
            assert session.step == 4
            found = await session.overview(0, OverviewChoice(rows=1000))
            marks = [marks & HIT for marks in found.marks[row(found, LOG)]]
            assert marks[:3] == [0, 0, HIT]
            line = await session.timeline(0)
            assert [place.hits > 0 for place in line.steps] == [False, False, False, True, True]
            await session.change_watchpoint(1, WatchpointChange(enabled=False))
            line = await session.timeline(0)
            assert [place.hits > 0 for place in line.steps] == [False, False, False, False, True]

    asyncio.run(ask())


def test_of_a_dump_without_values_what_was_recorded_is_pictured(dump_copy: Callable[[str], Path]) -> None:
    path = dump_copy("sick-2.0.0")
    statistics_writer.record_dump(path / "rank_0" / "Sick", ("Max Value", "Min Value", "NaN Count"))

    async def ask() -> None:
        async with debugging(path) as session:
            found = await session.overview(0, OverviewChoice("max", query="ReLU-op124", rows=1000))
            assert (found.unread, found.unread_bytes) == (0, 0)
            assert [value is not None for value in found.values[-1]] == [True] * 4
            share = await session.overview(0, OverviewChoice("zero_percent", query="Conv2D-op122", rows=1000))
            assert set(share.values[-1]) == {None}
            line = await session.timeline(0)
            assert [place.statistics for place in line.steps] == [False, True, True, True, True]
            assert not any(place.values for place in line.steps)

    asyncio.run(ask())


def test_the_timeline_of_a_dump(dump_200: Path, dump_200_second: Path) -> None:
    async def ask() -> None:
        async with debugging(dump_200) as session:
            await go(session, "go_to_step", steps=2)
            line = await session.timeline(0)
            assert (line.first_step, line.last_step, line.present_step) == (0, 4, 2)
            assert [(place.first, place.last) for place in line.steps] == [(step, step) for step in range(5)]
            assert [place.statistics for place in line.steps] == [False, True, True, True, True]
            assert [place.values for place in line.steps] == [False, True, True, True, True]
            assert [place.graph for place in line.steps] == ["", *["kernel_graph_0"] * 4]
            short = await session.timeline(0, columns=2)
            assert [(place.first, place.last, place.values) for place in short.steps] == [(0, 1, True), (2, 4, True)]
            with pytest.raises(NotFoundError):
                await session.timeline(7)
            with pytest.raises(NotFoundError):
                await session.overview(7, OverviewChoice())
        async with debugging(dump_200_second) as session:
            line = await session.timeline(0)
            assert len({place.graph for place in line.steps[1:]}) > 1

    asyncio.run(ask())


@pytest.mark.parametrize(
    ("others", "loss"),
    [
        (("Default/network-WithLossCell/Neg-op1",), "Default/network-WithLossCell/_loss_fn-Mse/ReduceMean-op2"),
        # What is smoothed in the cell of the loss is none; it is what the step returns.
        (("Default/_loss_fn-Smoothed/Sub-op1", "Gradients/Default/Grad_Sub/Neg-op1"), "Default/ReduceMean-op2"),
    ],
    ids=["called so", "returned"],
)
def test_the_loss_is_found_by_its_name_or_by_what_a_step_returns(
    tmp_path: Path, others: tuple[str, ...], loss: str
) -> None:
    dump = DumpWriter(tmp_path / "dump")
    graph = GraphWriter()
    graph.parameter("inputs0")
    for other in others:
        graph.operator(other, inputs=("inputs0",), shape=())
    graph.operator(loss, inputs=("1",), shape=())
    dump.graph(graph)
    for iteration, value in enumerate((0.5, 0.25, np.nan)):
        for other in others:
            name = other.rpartition("/")[2]
            dump.tensor(iteration, f"{name.partition('-')[0]}.{name}", np.float32(-value))
        dump.tensor(iteration, "ReduceMean.ReduceMean-op2", np.float32(value))

    async def ask() -> None:
        async with debugging(tmp_path / "dump") as session:
            found = (await session.timeline(0)).loss
            assert found is not None
            assert found.address.endswith("ReduceMean-op2:0")
            assert found.values == (None, 0.5, 0.25, None)
            assert found.marks == (NOTHING, 0, 0, NAN)

    asyncio.run(ask())


def test_a_closed_session_has_no_picture(dump_200: Path) -> None:
    async def ask() -> None:
        async with debugging(dump_200) as session:
            await session.close("enough")
            with pytest.raises(StateError):
                await session.overview(0, OverviewChoice())
            with pytest.raises(StateError):
                await session.timeline(0)

    asyncio.run(ask())
