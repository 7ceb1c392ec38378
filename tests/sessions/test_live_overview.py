"""Overview and timeline of a training that goes on: what its agent told, as it is now."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from tensight.sessions.errors import NotFoundError
from tensight.sessions.live.executions import Executions
from tensight.sessions.live.overview import ReportedSource
from tensight.sessions.live.reported_tensors import ReportedRow, TensorKey
from tensight.sessions.live.statistics_store import StatisticsStore, received_statistics
from tensight.sessions.overview import HIT, INFINITE, NAN, NOTHING, OverviewChoice, overview
from tensight.tensors import statistics
from tests.sessions.live_stage import CONV, GRAPH, RELU, WEIGHT, Play, Stage, command, network
from tests.sessions.reported_statistics import tell
from tests.sessions.test_live_history import trained

MAXIMUM = OverviewChoice("max")


def row(value: float, iteration: int, node: str = "a", graph: str = GRAPH, rank: int = 0) -> ReportedRow:
    array = np.array([value, 0.0], np.float32)
    return ReportedRow(
        TensorKey(rank, graph, node, "output", 0), iteration, received_statistics(statistics(array)), "Log", 3
    )


def test_what_an_agent_told_is_pictured_with_its_hits(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent, session, asking = await trained(stage, oldest=2)
        await tell(agent, {RELU: [math.nan, 1.0]}, 3)
        found = await session.overview(0, MAXIMUM)
        assert (found.unread, found.total) == (0, 3)
        assert [(span.first, span.last) for span in found.steps] == [(step, step) for step in (1, 2, 3, 4)]
        places = {one.node: place for place, one in enumerate(found.rows)}
        assert found.values[places[CONV]] == (len(CONV), 100 + len(CONV), 200 + len(CONV), 300 + len(CONV))
        assert found.marks[places[CONV]] == (HIT, 0, HIT, 0)
        assert found.marks[places[RELU]] == (0, HIT, 0, HIT | NAN)
        assert found.values[places[RELU]][3] == 1
        assert found.rows[places[WEIGHT]].address == f"0/{GRAPH}/{WEIGHT}:0"
        with pytest.raises(NotFoundError):
            await session.overview(1, MAXIMUM)
        assert not asking.done()

    on_stage(scene)


def test_the_timeline_says_what_is_known_of_each_step(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        _, session, _ = await trained(stage, oldest=2)
        line = await session.timeline(0)
        assert (line.first_step, line.last_step, line.present_step, line.loss) == (0, 4, 4, None)
        assert [place.hits for place in line.steps] == [0, 1, 1, 1, 1]
        assert [place.statistics for place in line.steps] == [False, True, True, True, True]
        assert [place.values for place in line.steps] == [False, False, False, True, True]
        assert {place.graph for place in line.steps[1:]} == {GRAPH}
        await command(session, "go_to_step", steps=1)
        assert (await session.timeline(0)).present_step == 4
        assert [(place.first, place.last, place.hits) for place in (await session.timeline(0, 2)).steps] == [
            (0, 1, 1),
            (2, 4, 3),
        ]
        with pytest.raises(NotFoundError):
            await session.timeline(1)

    on_stage(scene)


def test_the_loss_is_what_is_called_so(on_stage: Play) -> None:
    loss = "Default/CrossEntropyLoss-op3"

    async def scene(stage: Stage) -> None:
        agent = stage.agent(run_at_start=True)
        session = await agent.attach(network().operator(loss, inputs=("2",), shape=()))
        await tell(agent, {loss: 0.5, RELU: 1.0}, 0)
        await tell(agent, {loss: math.inf, RELU: 1.0}, 1)
        found = (await session.timeline(0)).loss
        assert found is not None
        assert found.address == f"0/{GRAPH}/{loss}:0"
        assert (found.values, found.marks) == ((None, 0.5, None), (NOTHING, 0, INFINITE))

    on_stage(scene)


@pytest.fixture
def store(tmp_path: Path) -> StatisticsStore:
    return StatisticsStore(tmp_path / "statistics.sqlite", 20)


def test_a_node_of_several_graphs_has_one_row_and_ranks_are_apart(store: StatisticsStore) -> None:
    store.add([row(1.0, 0, graph="kernel_graph_0"), row(8.0, 0, rank=1)])
    store.add([row(2.0, 1, graph="kernel_graph_1"), row(3.0, 1, "b", "kernel_graph_1")])
    variants = {("kernel_graph_1", "a"): "kernel_graph_0"}
    source = ReportedSource(store, 0, first_of=lambda graph, node: variants.get((graph, node), graph))
    found = overview(source, {}, MAXIMUM)
    assert [(one.node, one.graph, one.graphs) for one in found.rows] == [
        ("a", "kernel_graph_1", ("kernel_graph_0", "kernel_graph_1")),
        ("b", "kernel_graph_1", ("kernel_graph_1",)),
    ]
    assert found.values == ((1, 2), (None, 3))
    # Graphs that run in one step have nodes of their own.
    assert overview(ReportedSource(store, 0), {}, MAXIMUM).values == ((1, None), (None, 2), (None, 3))
    assert overview(ReportedSource(store, 1), {}, MAXIMUM).values == ((8,),)
    store.close()


def test_what_is_told_again_or_dropped_is_pictured_as_the_store_has_it(store: StatisticsStore) -> None:
    store.add([row(1.0, 0), row(2.0, 0, "b")])
    store.add([row(5.0, 0)])
    assert overview(ReportedSource(store, 0), {}, MAXIMUM).values == ((5,), (2,))
    for iteration in range(1, 12):
        store.add([row(float(iteration), iteration), row(float(-iteration), iteration, "b")])
    found = overview(ReportedSource(store, 0, offset=10), {}, OverviewChoice("min"))
    assert [iteration + 11 for iteration in store.iterations()] == [span.first for span in found.steps]
    assert found.values[1] == tuple(-iteration for iteration in store.iterations())
    store.close()


def test_tensors_that_are_told_of_while_the_picture_is_made_are_left_out(store: StatisticsStore) -> None:
    store.add([row(1.0, 0)])
    source = ReportedSource(store, 0)
    store.add([row(2.0, 0, "b"), row(7.0, 0)])
    assert overview(source, {}, MAXIMUM).values == ((7,),)
    store.close()


def test_numbers_beyond_single_precision_stay_finite(store: StatisticsStore) -> None:
    huge = received_statistics(statistics(np.array([1e300, -1.0])))
    store.add([ReportedRow(TensorKey(0, GRAPH, "a", "output", 0), 0, huge)])
    found = overview(ReportedSource(store, 0), {}, MAXIMUM)
    assert found.values[0][0] == pytest.approx(3.4028e38, rel=1e-4)
    assert found.marks == ((0,),)
    store.close()


def test_which_graph_ran_is_known_only_where_the_process_told_it() -> None:
    ran = Executions()
    ran.advance(0, 7)
    for iteration, root_id in ((5, 8), (0, 7), (1, 7), (4, 8), (3, 7), (3, 9)):
        ran.note(iteration, root_id)
    assert ran.at([-1, *range(8)]) == [None, 7, 7, None, 9, 8, 8, None, None]
    assert ran.stretches() == [(0, 2, 7), (3, 4, 9), (4, 6, 8)]
    assert ran.page(1, 3) == [(1, 7), (2, None), (3, 9)]
    ran.note(4, 9)
    assert ran.stretches() == [(0, 2, 7), (3, 5, 9), (5, 6, 8)]
    assert ran.unrecorded() == ([(0, 2, 7), (3, 5, 9), (5, 6, 8)], range(7))
    # It begins again at an earlier step.
    ran.advance(1, 3)
    ran.note(2, 8)
    assert ran.stretches() == [(0, 1, 7), (2, 3, 8)]
    assert ran.unrecorded() == ([(2, 3, 8)], range(1, 3))
