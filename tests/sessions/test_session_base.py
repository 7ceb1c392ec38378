"""What every session does with graphs, watchpoints and hits; on the graphs of a real dump."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

from tensight.dumps import Dump, open_dump
from tensight.errors import InputError
from tensight.graph import Graph, TensorAddress
from tensight.sessions.errors import NotFoundError, StateError, StorageError, UnavailableError
from tensight.sessions.hit_list import SessionHit
from tensight.sessions.records import Edit, HitRecord, State, WatchpointChange, WatchpointSpec
from tensight.sessions.session import Session
from tensight.sessions.workspace import Workspace
from tensight.tensors.views import View
from tensight.watchpoints import Platform
from tests.sessions.still_session import StillSession, operator, parameter, shared_large_graph

Answer = TypeVar("Answer")
LARGE = WatchpointSpec(condition="TL", parameters={"max_gt": 3})


def run(work: Coroutine[Any, Any, Answer]) -> Answer:
    return asyncio.run(asyncio.wait_for(work, 60))


def kinds_of_events(session: Session, after: int = 0) -> list[str]:
    return [event.kind for event in session.events.after(after).events]


@pytest.fixture(scope="module")
def sick(dump_200: Path) -> Dump:
    return open_dump(dump_200)


@pytest.fixture
def session(sick: Dump, tmp_path: Path) -> StillSession:
    return StillSession.of_dump(sick, name="sick", workspace=Workspace(tmp_path))


# graphs ---------------------------------------------------------------------------------------------------------------


def test_graphs_are_listed_for_a_rank_or_for_all(sick: Dump) -> None:
    graphs = sick.graphs(0)
    session = StillSession({0: graphs, 3: graphs})
    assert [record.rank for record in run(session.graph_records())] == [0, 3]
    assert [record.name for record in run(session.graph_records(3))] == ["kernel_graph_0"]


def test_unknown_ranks_graphs_and_nodes_are_not_found(session: StillSession) -> None:
    for work, message in (
        (session.tree(7, "kernel_graph_0"), "rank 7"),
        (session.tree(0, "graph"), "no graph 'graph' in rank 0"),
        (session.search(graph="graph"), "no graph 'graph'"),
        (session.node(0, "kernel_graph_0", "nobody"), "no node 'nobody'"),
        (session.tree(0, "kernel_graph_0", watchpoint=4), "no watchpoint 4"),
        (session.source_text("/etc/passwd"), "did not come"),
        (StillSession({0: ()}).level(0, ""), "rank 0 has no graph yet"),
    ):
        with pytest.raises(NotFoundError, match=message):
            run(work)


def test_parts_of_lists_that_cannot_be_are_refused(session: StillSession) -> None:
    for work in (
        session.tree(0, "kernel_graph_0", offset=-1),
        session.search(limit=0),
        session.sources(offset=-1),
        session.level(0, "kernel_graph_0", limit=0),
        session.hits(limit=0),
    ):
        with pytest.raises(InputError, match="offset must be at least 0"):
            run(work)


def test_a_search_goes_through_all_ranks_unless_one_is_named(sick: Dump) -> None:
    session = StillSession({0: sick.graphs(0), 1: sick.graphs(0)})
    assert [node.rank for node in run(session.search(name="Log-op144")).nodes] == [0, 1]
    assert [node.rank for node in run(session.search(name="Log-op144", rank=1)).nodes] == [1]


def test_the_tree_marks_what_a_watchpoint_watches_and_counts_hits(session: StillSession) -> None:
    async def tree() -> tuple[Any, ...]:
        made = await session.create_watchpoint(
            WatchpointSpec(condition="TO", selection="none", edits=(Edit(path="Default", containing="energy-"),))
        )
        record = HitRecord(watchpoint=made.id, condition="tensor_overflow", abbreviation="TO")
        name = (await session.search(name="Log-op144")).nodes[0].entry.path
        session.hit_list.replace(3, [SessionHit(0, "kernel_graph_0", name, 0, 2, record)])
        page = await session.tree(0, "kernel_graph_0", watchpoint=made.id)
        return page, made, await session.search(name="energy-", watchpoint=made.id), session.watchpoints()

    page, made, found, listed = run(tree())
    marks = {entry.path: (entry.watched, entry.hits) for entry in page.entries}
    assert marks["Default"] == ("some", 1)
    assert marks["Gradients"] == ("none", 0)
    assert marks["@constants"] == ("never", 0)
    assert made.nodes == sum(node.entry.watched == "all" for node in found.nodes) > 0
    assert [record.hits for record in listed] == [1]


def test_a_node_knows_its_place_in_the_order_of_execution(session: StillSession, sick: Dump) -> None:
    name = sick.execution_order(0)[5]
    assert run(session.node(0, "kernel_graph_0", name)).position == 5


def test_a_graph_that_is_too_large_can_be_listed_but_not_drawn(sick: Dump) -> None:
    session = StillSession.of_dump(sick, most_drawn_nodes=100)
    assert not session.capabilities().can_draw_graph
    with pytest.raises(StateError, match="graphs of up to 100 are drawn"):
        run(session.level(0, "kernel_graph_0"))
    assert run(session.tree(0, "kernel_graph_0")).total > 0
    assert StillSession.of_dump(sick).capabilities().can_draw_graph


def test_pictures_and_relations_come_from_the_named_graph(session: StillSession) -> None:
    level = run(session.level(0, "kernel_graph_0", "Default"))
    assert level.entries
    assert level.edges
    name = run(session.search(name="Log-op144")).nodes[0].entry.path
    relations = run(session.relations(TensorAddress(0, "kernel_graph_0", name, 0, 2)))
    assert relations.centre == name
    assert {node.distance for node in relations.nodes} == {-1, 0, 1}


def test_sources_tell_which_texts_were_sent(sick: Dump, planted: dict) -> None:
    file = planted["sick-2.0.0"]["planted"]["inf"]["file"]
    session = StillSession.of_dump(sick, texts={file: "import this\n"})
    page = run(session.sources("sick_network"))
    assert [one.has_text for one in page.files if one.file == file] == [True]
    assert run(session.source_text(file)) == "import this\n"


@pytest.mark.long
def test_the_loop_goes_on_while_a_large_graph_is_looked_at() -> None:
    session = StillSession({0: (shared_large_graph(),)})

    async def turns_of_the_loop() -> list[int]:
        turns = []
        for work in (
            session.search(name="layer99"),
            session.level(0, "kernel_graph_0"),
            session.sources("net3"),
            session.create_watchpoint(WatchpointSpec(condition="GE")),
        ):
            task = asyncio.ensure_future(work)
            turns.append(0)
            while not task.done():
                turns[-1] += 1
                await asyncio.wait([task], timeout=0.001)
            await task
        return turns

    # Work that blocked the loop would leave it two or three turns.
    assert min(run(turns_of_the_loop())) >= 5


# watchpoints ----------------------------------------------------------------------------------------------------------


def test_a_new_watchpoint_is_told_and_makes_the_hits_outdated(session: StillSession) -> None:
    record = run(session.create_watchpoint(LARGE))
    assert (record.id, record.selection, record.nodes > 100) == (1, "all", True)
    assert record.words == "Watches all tensors; hits when the largest element is greater than 3."
    assert session.hit_list.outdated
    assert kinds_of_events(session) == ["watchpoints", "state"]
    assert session.events.after(1).events[0].data["outdated"] is True
    assert session.watchpoints() == (record,)


def test_changes_and_deletions_are_told_too(session: StillSession) -> None:
    async def edit() -> None:
        await session.create_watchpoint(LARGE)
        changed = await session.change_watchpoint(1, WatchpointChange(selection="weights"))
        assert 0 < changed.nodes < 50
        await session.delete_watchpoints([1])

    run(edit())
    assert kinds_of_events(session).count("watchpoints") == 3
    assert session.watchpoints() == ()


def test_a_wrong_edit_changes_and_tells_nothing(session: StillSession) -> None:
    for work in (
        session.create_watchpoint(LARGE.model_copy(update={"parameters": {}})),
        session.create_watchpoint(LARGE.model_copy(update={"condition": "nothing"})),
        session.change_watchpoint(1, WatchpointChange()),
        session.delete_watchpoints([1]),
    ):
        with pytest.raises((InputError, NotFoundError)):
            run(work)
    assert kinds_of_events(session) == []
    assert not session.hit_list.outdated


def test_nothing_can_be_edited_while_the_run_goes_on(session: StillSession) -> None:
    session.now = State.RUNNING
    assert not session.capabilities().can_edit_watchpoints
    for work in (
        session.create_watchpoint(LARGE),
        session.change_watchpoint(1, WatchpointChange()),
        session.delete_watchpoints(),
        session.recommend(True),
    ):
        with pytest.raises(StateError, match="it is running"):
            run(work)


def test_a_condition_that_cannot_be_checked_here_is_refused_with_the_reason(sick: Dump) -> None:
    session = StillSession.of_dump(sick, platform=Platform.GPU, live=True, step=1)
    with pytest.raises(StateError, match="on Ascend; this run is on GPU"):
        run(session.create_watchpoint(WatchpointSpec(condition="OO")))
    with pytest.raises(StateError, match="past it"):
        run(session.create_watchpoint(WatchpointSpec(condition="WI")))
    assert {one.id for one in session.conditions() if not one.available} == {
        "operator_overflow",
        "weight_initialization",
    }


def test_watchpoints_survive_the_session_by_its_name(sick: Dump, tmp_path: Path) -> None:
    first = StillSession.of_dump(sick, name="job", workspace=Workspace(tmp_path))
    run(first.create_watchpoint(LARGE))
    run(first.create_watchpoint(LARGE.model_copy(update={"name": "exploding"})))
    again = StillSession.of_dump(sick, name="job", workspace=Workspace(tmp_path))
    assert [record.nodes for record in again.watchpoints()] == [0, 0]
    run(again.graphs_changed())
    assert again.watchpoints() == first.watchpoints()
    assert kinds_of_events(again) == ["watchpoints"]
    assert StillSession.of_dump(sick, name="other", workspace=Workspace(tmp_path)).watchpoints() == ()


def test_a_full_disk_loses_no_watchpoint_and_is_told(session: StillSession, tmp_path: Path) -> None:
    (tmp_path / "watchpoints").rmdir()
    (tmp_path / "watchpoints").write_text("in the way")
    record = run(session.create_watchpoint(LARGE))
    assert session.watchpoints() == (record,)
    assert kinds_of_events(session) == ["message", "watchpoints", "state"]
    message = session.events.after(0).events[0].data
    assert message["level"] == "warning"
    assert "will be lost when the server ends" in message["text"]
    assert str(tmp_path / "watchpoints") in message["text"]


def test_refused_writes_are_summed_up(session: StillSession, monkeypatch: pytest.MonkeyPatch) -> None:
    full = StorageError("no space left")
    assert [session.warn_of(full, "rank 0: ") for _ in range(3)] == [True, False, False]
    monkeypatch.setattr(session, "_next_storage_warning", 0.0)
    assert [session.warn_of(full) for _ in range(2)] == [True, False]
    assert [event.data["text"] for event in session.events.after(0).events] == [
        "rank 0: no space left",
        "no space left (2 more writes failed since the last warning)",
    ]


def test_watchpoints_that_cannot_be_read_again_are_told(sick: Dump, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    run(StillSession.of_dump(sick, name="job", workspace=workspace).create_watchpoint(LARGE))
    (path,) = workspace.watchpoints.iterdir()
    path.write_bytes(b"\0")
    again = StillSession.of_dump(sick, name="job", workspace=workspace)
    texts = [event.data["text"] for event in again.events.after(0).events]
    assert "is damaged" in texts[0]
    assert texts[1].endswith(".damaged")


def test_the_recommended_watchpoints_fit_the_run_and_are_there_once(sick: Dump) -> None:
    session = StillSession.of_dump(sick, platform=Platform.GPU, live=True, step=0)
    listed = run(session.recommended())
    assert session.watchpoints() == ()
    records = run(session.recommend(True))
    assert records == listed
    conditions = [record.abbreviation for record in records]
    assert "WI" in conditions
    assert "OO" not in conditions
    assert all(record.nodes for record in records)
    # The network has no tanh and no sigmoid.
    assert [record.name for record in records if record.condition == "activation_range"] == [
        "recommend_relu_activation_range_watchpoint"
    ]
    assert session.record().recommended_offered
    assert run(session.recommended()) == ()
    assert run(session.recommend(True)) == records
    assert session.watchpoints() == records
    later = StillSession.of_dump(sick, live=True, step=3)
    assert "WI" not in [record.abbreviation for record in run(later.recommend(True))]


def test_a_path_that_names_nothing_is_said(sick: Dump) -> None:
    session = StillSession.of_dump(sick)
    paths = (Edit(path="Default"), Edit(path="Defualt/network"))
    created = run(session.create_watchpoint(WatchpointSpec(condition="TO", selection="none", edits=paths)))
    assert created.nodes > 0
    texts = [event.data["text"] for event in session.events.after(0).events if event.kind == "message"]
    assert [text for text in texts if "no graph has" in text] == [
        "watchpoint 1: no graph has a scope or a node 'Defualt/network' so far; check its spelling"
    ]


def test_who_refuses_the_recommended_watchpoints_is_not_asked_again(sick: Dump, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    session = StillSession.of_dump(sick, name="job", workspace=workspace)
    assert run(session.recommend(False)) == ()
    assert session.watchpoints() == ()
    assert not session.hit_list.outdated
    assert StillSession.of_dump(sick, name="job", workspace=workspace).record().recommended_offered


def test_a_graph_that_comes_later_is_watched_too() -> None:
    first = Graph("first", [parameter("w"), operator("Default/A-op1", "w")])
    second = Graph("second", [operator("Default/B-op2")])
    session = StillSession({0: ()})

    async def grow() -> list[int]:
        counts = [(await session.create_watchpoint(WatchpointSpec(condition="TO"))).nodes]
        for graphs in ((first,), (first, second)):
            session.by_rank[0] = graphs
            await session.graphs_changed()
            counts.append(session.watchpoints()[0].nodes)
        return counts

    assert run(grow()) == [0, 2, 3]


def test_a_session_that_is_closed_holds_no_graph() -> None:
    session = StillSession({0: (Graph("g", [operator("Default/A-op1", stack=("# In file /p/a.py:1/    a/",))]),)})

    async def look_at_everything() -> None:
        made = await session.create_watchpoint(WatchpointSpec(condition="TO"))
        await session.tree(0, "g", watchpoint=made.id)
        await session.sources()

    run(look_at_everything())
    graph = weakref.ref(session.by_rank.pop(0)[0])
    session.forget_graphs()
    gc.collect()
    assert graph() is None


def test_two_people_editing_at_once_both_succeed(session: StillSession) -> None:
    async def both() -> list[int]:
        made = await asyncio.gather(*(session.create_watchpoint(LARGE) for _ in range(8)))
        return sorted(record.id for record in made)

    assert run(both()) == list(range(1, 9))


# hits and views -------------------------------------------------------------------------------------------------------


def test_hits_are_paged_with_the_step_and_whether_they_are_outdated(session: StillSession) -> None:
    record = HitRecord(watchpoint=1, condition="tensor_overflow", abbreviation="TO")
    session.hit_list.replace(3, [SessionHit(0, "g", f"n{n}", 0, 2, record, position=-n) for n in range(30)])
    page = run(session.hits(focus="n3"))
    assert (page.total, page.offset, page.step, page.outdated) == (30, 20, 3, False)
    run(session.create_watchpoint(LARGE))
    assert run(session.hits()).outdated


def test_views_are_of_the_value_the_one_before_or_the_difference(session: StillSession, sick: Dump) -> None:
    (file,) = (
        file for file in sick.tensors(iterations=[2]) if file.node == "network.fc2.weight" and file.io == "output"
    )
    address = file.address
    assert address is not None
    view = View("values")
    current, previous, difference = (
        run(session.view(address, view, which)).array for which in ("current", "previous", "difference")
    )
    assert current is not None
    assert previous is not None
    np.testing.assert_allclose(difference, current.astype(float) - previous)
    first = TensorAddress(address.rank, address.graph, address.node, address.slot, 0)
    assert run(session.view(first, view)).array is not None
    for which in ("previous", "difference"):
        with pytest.raises(UnavailableError, match="no value of the step before"):
            run(session.view(first, view, which))  # type: ignore[arg-type]
