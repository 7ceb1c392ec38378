"""A run that a live session recorded opens like a dump, with the hits, names and texts that it kept."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tensight.dumps.recorder import DumpRecorder, RankRecorder, RecordedRow
from tensight.graph import Graph, TensorAddress
from tensight.sessions.errors import NotFoundError
from tensight.sessions.hit_list import SessionHit
from tensight.sessions.live.recording import HitsEncoder
from tensight.sessions.records import Edit, Frame, HitParameter, HitRecord, WatchpointSpec
from tensight.sessions.registry import Sessions
from tensight.sessions.watchpoint_list import WatchpointList
from tensight.sessions.workspace import Workspace
from tests.agents.numpy_training import FORWARD
from tests.agents.test_recording_of_steps import RecordedTraining
from tests.dumps.dump_writer import GraphWriter, part
from tests.sessions.offline_runs import debugging, go, opened

if TYPE_CHECKING:
    from pathlib import Path

GRAPH = "kernel_graph_0"
RELU = "Default/network/ReLU-op1"


def keep(rank: RankRecorder, graph: Graph, node: str, iteration: int, values: Any) -> None:
    array = np.array(values, np.float32)
    writer = rank.new_tensor(array.dtype, array.shape)
    writer.write([array.tobytes()])
    rank.keep_tensor(writer, graph, graph.node(node), 0, iteration)


def record(workspace: Workspace, number: str) -> None:
    """A run of three steps: the initial weight, a value in step 2, statistics in step 3, a hit in step 2."""
    folder = workspace.run_folder(number)
    recorder = DumpRecorder(folder / "dump", folder / "arriving", framework_version="2.0.0", device_target="GPU")
    rank = recorder.rank(0)
    written = GraphWriter().parameter("w.weight").operator(RELU, inputs=("w.weight",))
    file = rank.new_graph()
    file.write([written.body + part(2, written.name) + part(6, written.root)])
    graph = file.parse("the test")
    rank.keep_graphs([(file, graph)])
    keep(rank, graph, "w.weight", -1, [0.0] * 4)
    keep(rank, graph, RELU, 1, [1.0, 2.0, 3.0, 9.0])
    keep(rank, graph, "w.weight", 0, [0.5] * 4)
    rank.record_statistics(0, 2, [RecordedRow("ReLU", RELU, "output", 0, "float32", (4,), 16, max=7.0, min=0.0)])
    rank.record_executions(0, range(3))


def keep_about(workspace: Workspace, number: str, network: str = "") -> None:
    hit = HitRecord(
        watchpoint=3,
        condition="tensor_too_large",
        abbreviation="TL",
        parameters=(HitParameter(name="max_gt", preset=5.0, actual=9.0, hit=True),),
    )
    kept = SessionHit(0, GRAPH, RELU, 0, 1, hit, position=0, type="ReLU", line=Frame(file="/home/me/net.py", line=7))
    workspace.write(f"runs/{number}/hits.json", HitsEncoder()({2: (kept,)}))
    workspace.write_json(f"runs/{number}/sources.json", {"/home/me/net.py": "x = relu(w)\n"})
    about = {"format": 1, "name": "my job", "network": network, "identity": {"framework": "torch"}}
    workspace.write_json(f"runs/{number}/session.json", about)


def test_a_run_opens_with_the_name_hits_and_texts_of_its_training(tmp_path: Path) -> None:
    async def ask() -> None:
        workspace = Workspace(tmp_path)
        record(workspace, "7")
        keep_about(workspace, "7")
        sessions = Sessions(workspace, None)
        session = await sessions.open_dump("runs/7")
        await opened(session)
        glance = session.record()
        assert (glance.name, glance.dump, glance.framework) == ("my job", "runs/7", "torch")
        assert (glance.backend, glance.total_steps) == ("GPU", 3)
        assert await sessions.open_dump("runs/7") is session
        assert [one.session for one in await sessions.dumps()] == [session.id]

        glance = await go(session, "go_to_step", steps=2)
        assert (glance.hits, glance.outdated) == (1, False)
        (node,) = (await session.hits()).nodes
        assert node.node == RELU
        assert node.line == Frame(file="/home/me/net.py", line=7)
        assert node.tensors[0].hits[0].parameters[0].actual == 9.0
        assert await session.source_text("/home/me/net.py") == "x = relu(w)\n"
        assert (await go(session, "go_to_step", steps=1)).hits == 0
        await sessions.close_all("the test is over")
        assert session.source_texts() == {}

    asyncio.run(ask())


def test_the_watchpoints_are_those_of_the_job_and_of_its_network(tmp_path: Path) -> None:
    async def ask() -> None:
        workspace = Workspace(tmp_path)
        for number, network in (("7", "a"), ("8", "a"), ("9", "another")):
            record(workspace, number)
            keep_about(workspace, number, network)
        sessions = Sessions(workspace, None, max_offline=3)
        first = await sessions.open_dump("runs/7")
        await opened(first)
        made = await first.create_watchpoint(WatchpointSpec(condition="TL", parameters={"max_gt": 5}))
        # Where the live session of the job finds them.
        kept = WatchpointList("my job", workspace, lambda _: (), network="a")
        assert [str(one.watchpoint.check) for one in kept.all()] == [made.text]
        found = {}
        for number in ("8", "9"):
            session = await sessions.open_dump(f"runs/{number}")
            await opened(session)
            found[number] = [one.text for one in session.watchpoints()]
        assert found == {"8": [made.text], "9": []}
        await sessions.close_all("the test is over")

    asyncio.run(ask())


def test_the_watchpoints_of_the_job_are_there(tmp_path: Path) -> None:
    async def ask() -> None:
        workspace = Workspace(tmp_path)
        for number in ("7", "8"):
            record(workspace, number)
            keep_about(workspace, number)
        sessions = Sessions(workspace, None)
        first = await sessions.open_dump("runs/7")
        await opened(first)
        made = await first.create_watchpoint(WatchpointSpec(condition="TL", parameters={"max_gt": 5}))
        second = await sessions.open_dump("runs/8")
        await opened(second)
        assert [one.text for one in second.watchpoints()] == [made.text]
        await sessions.close_all("the test is over")

    asyncio.run(ask())


def test_values_and_statistics_that_were_kept_are_told_and_checked(tmp_path: Path) -> None:
    async def ask() -> None:
        workspace = Workspace(tmp_path)
        record(workspace, "7")
        sessions = Sessions(workspace, None)
        session = await sessions.open_dump("runs/7")
        await opened(session)
        assert session.name == "runs/7"
        (initial,) = await session.tensors_of(0, GRAPH, "w.weight")
        assert (initial.status, initial.step) == ("available", 0)
        address = TensorAddress(0, GRAPH, "w.weight", 0, 0)
        assert session.previous(address) == TensorAddress.parse(initial.address)
        assert [row.step for row in await session.statistics_over_steps(address)] == [0, 1]

        await session.create_watchpoint(WatchpointSpec(condition="WI", selection="all"))
        await session.create_watchpoint(WatchpointSpec(condition="TL", parameters={"max_gt": 5}))
        found = []
        for _ in range(3):
            glance = await go(session, "continue")
            found += [(glance.step, node.node) for node in (await session.hits()).nodes]
        assert found == [(0, "w.weight"), (2, RELU), (3, RELU)]
        (*_, output) = await session.tensors_of(0, GRAPH, RELU)
        assert output.status == "statistics_only"
        assert output.statistics is not None
        assert output.statistics.max == 7.0
        await sessions.close_all("the test is over")

    asyncio.run(ask())


@pytest.mark.parametrize("damage", ["{", "[]", '{"steps": [{"step": 2}]}', '{"steps": 7}'])
def test_damaged_files_beside_the_dump_are_told_and_do_not_matter(tmp_path: Path, damage: str) -> None:
    async def ask() -> None:
        workspace = Workspace(tmp_path)
        record(workspace, "7")
        keep_about(workspace, "7")
        for name in ("hits.json", "sources.json", "session.json"):
            (tmp_path / "runs" / "7" / name).write_text(damage)
        sessions = Sessions(workspace, None)
        session = await sessions.open_dump("runs/7")
        await opened(session)
        assert (await go(session, "go_to_step", steps=2)).hits == 0
        with pytest.raises(NotFoundError):
            await session.source_text("/home/me/net.py")
        messages = [event for event in session.events.after(0).events if event.kind == "message"]
        assert bool(messages) == (damage != "[]")
        await sessions.close_all("the test is over")

    asyncio.run(ask())


def test_a_node_has_the_name_and_the_address_of_the_training_also_where_its_files_have_another_one(
    tmp_path: Path,
) -> None:
    training = RecordedTraining(tmp_path / "run", "full", nan_at=2)
    training.train(3)
    training.recorder.close()
    # Another operator's name ends alike, so files have one of their own.
    node = FORWARD[2]
    assert not list((tmp_path / "run").rglob("MatMul.MatMul-op0.*"))

    async def ask() -> None:
        async with debugging(tmp_path / "run") as session:
            await session.create_watchpoint(
                WatchpointSpec(condition="TO", selection="none", edits=(Edit(path=node),), name="mine")
            )
            glance = await go(session, "continue")
            (hit,) = (await session.hits()).nodes
            assert (glance.step, hit.node) == (2, node)
            # The address that the live session shows of this value.
            address = TensorAddress(0, hit.graph, node, 0, 1)
            assert hit.tensors[0].address == str(address)
            assert np.isnan(await session.value(address)).any()

    asyncio.run(ask())
