"""Walking through the operators of a step of a dump."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from tensight.errors import InputError
from tensight.sessions.errors import NotFoundError, StateError
from tensight.sessions.records import Command, WatchpointSpec
from tests.dumps.dump_writer import DumpWriter, GraphWriter
from tests.sessions.offline_runs import debugging, go

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tensight.sessions.offline.session import OfflineSession


def order_of(path: Path, graph: int = 0) -> list[str]:
    """The operators of a graph as they ran, by the dump's own list."""
    file = path / "rank_0" / "execution_order" / f"ms_execution_order_graph_{graph}.csv"
    return file.read_text().split()[1:]


async def walk(session: OfflineSession, action: str) -> list[str]:
    """Walk until the session says that there is no more."""
    nodes: list[str] = []
    with suppress(StateError):
        while True:
            nodes.append((await go(session, action)).node)
    return nodes


@pytest.mark.parametrize("name", ["sick-2.0.0", "sick-2.10.0"])
def test_walks_through_a_step_in_the_order_of_execution_and_back(unpacked: Callable[[str], Path], name: str) -> None:
    path = unpacked(name)
    listed = order_of(path)

    async def ask() -> None:
        async with debugging(path) as session:
            await go(session, "go_to_step", steps=3)
            assert await walk(session, "next_node") == listed
            assert session.record().node == listed[-1]
            assert await walk(session, "previous_node") == listed[-2::-1]
            with pytest.raises(StateError, match=r"is the first operator of step 3; go back a step"):
                await session.command(Command(action="previous_node"))
            await go(session, "go_to_step", steps=3)
            assert session.record().node == ""
            assert (await go(session, "previous_node")).node == listed[-1]
            with pytest.raises(StateError, match=r"is the last operator of step 3; continue to the next step"):
                await session.command(Command(action="next_node"))

    asyncio.run(ask())


def test_standing_at_an_operator_hides_nothing_of_the_step(dump_200: Path) -> None:
    async def ask() -> None:
        async with debugging(dump_200) as session:
            await session.create_watchpoint(WatchpointSpec(condition="TO"))
            record = await go(session, "continue")
            hits, last = record.hits, order_of(dump_200)[-1]
            record = await go(session, "next_node")
            assert (record.step, record.hits, record.outdated) == (3, hits, False)
            assert record.ranks[0].node == record.node
            assert record.graph == "kernel_graph_0"
            (*_, output) = await session.tensors_of(0, record.graph, last)
            assert output.status == "available"
            assert (await go(session, "continue", steps=1)).node == ""

    asyncio.run(ask())


def test_runs_to_an_operator_forwards_and_back(dump_200: Path) -> None:
    async def ask() -> None:
        async with debugging(dump_200) as session:
            await go(session, "go_to_step", steps=1)
            order = order_of(dump_200)
            for node in (order[50], order[3], order[3]):
                assert (await go(session, "run_to_node", node=node)).node == node
            assert (await go(session, "next_node")).node == order[4]
            assert (await go(session, "run_to_node")).node == order[5]
            with pytest.raises(NotFoundError, match="there is no node 'nothing'; search for a part of its name"):
                await session.command(Command(action="run_to_node", node="nothing"))
            part = order[0].rpartition("/")[2]
            with pytest.raises(NotFoundError, match=f"some that contain it: .*{part}"):
                await session.command(Command(action="run_to_node", node=part))
            with pytest.raises(NotFoundError, match="in graph 'other'"):
                await session.command(Command(action="run_to_node", node=order[0], graph="other"))
            with pytest.raises(InputError, match="is not an operator"):
                await session.command(Command(action="run_to_node", node="network.fc1.weight"))
            with pytest.raises(NotFoundError, match="no rank 4"):
                await session.command(Command(action="run_to_node", node=order[0], rank=4))

    asyncio.run(ask())


def test_before_the_first_step_there_is_nothing_to_walk_through(dump_200: Path) -> None:
    async def ask() -> None:
        async with debugging(dump_200) as session:
            for action in ("next_node", "previous_node"):
                with pytest.raises(StateError, match="nothing has run before step 1"):
                    await session.command(Command(action=action))  # type: ignore[arg-type]
            with pytest.raises(StateError, match="is for a training that runs"):
                await session.command(Command(action="look_closer"))

    asyncio.run(ask())


def test_only_graphs_that_ran_in_the_step_are_walked_through(dump_200_second: Path) -> None:
    async def ask() -> None:
        async with debugging(dump_200_second) as session:
            await go(session, "go_to_step", steps=2)
            nodes = await walk(session, "next_node")
            owners = [graph.name for node in nodes for graph in session.graphs(0) if node in graph]
            assert list(dict.fromkeys(owners)) == [f"kernel_graph_{number}" for number in (1, 3, 4, 5)]
            training = order_of(dump_200_second)[0]
            with pytest.raises(StateError, match=r"did not run in step 2; its graph ran in step 1, 3, 5$"):
                await session.command(Command(action="run_to_node", node=training))

    asyncio.run(ask())


def test_ranks_are_walked_through_one_at_a_time(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path)
    for rank, names in enumerate((("A-op1", "B-op2"), ("C-op1", "D-op2"))):
        graph = GraphWriter()
        for name in names:
            graph.operator(f"Default/{name}", shape=(2,))
            writer.tensor(0, f"{name[0]}.{name}", rank=rank)
            writer.tensor(1, f"{name[0]}.{name}", rank=rank)
        writer.graph(graph, rank=rank)
    shutil.rmtree(tmp_path / "rank_0" / "Net" / "0" / "1")

    async def ask() -> None:
        async with debugging(tmp_path) as session:
            await go(session, "go_to_step", steps=1)
            assert (await go(session, "next_node")).node == "Default/A-op1"
            record = await go(session, "run_to_node", node="Default/D-op2")
            assert [one.node for one in record.ranks] == ["", "Default/D-op2"]
            assert (await go(session, "previous_node")).node == "Default/C-op1"
            assert (await go(session, "next_node", rank=0)).node == "Default/A-op1"
            await go(session, "go_to_step", steps=2)
            assert (await go(session, "next_node")).node == "Default/C-op1"
            with pytest.raises(StateError, match="nothing was recorded of step 2 on rank 0"):
                await session.command(Command(action="next_node", rank=0))

    asyncio.run(ask())
