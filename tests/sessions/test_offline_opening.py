"""Opening a dump, what is told while it is opened, and closing it."""

from __future__ import annotations

import asyncio
import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from tensight.dumps import open_dump
from tensight.graph import TensorAddress
from tensight.sessions.errors import NotFoundError, StateError
from tensight.sessions.offline.session import OfflineSession
from tensight.sessions.offline.value_memory import ValueMemory
from tensight.sessions.records import Command, State, WatchpointSpec
from tests.dumps.dump_writer import DumpWriter, GraphWriter
from tests.sessions.offline_runs import debugging, opened, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def kinds(session: OfflineSession) -> list[str]:
    return [event.kind for event in session.events.after(0).events]


def test_opening_returns_at_once_and_events_tell_how_far_it_is(dump_210: Path) -> None:
    async def ask() -> None:
        session = OfflineSession("7", "sick", open_dump(dump_210), workspace=None, memory=ValueMemory(2**30))
        session.begin()
        assert session.state is State.CONNECTING
        assert session.record().message == "the dump is being opened"
        assert session.graphs(0) == ()
        assert session.position(0, "kernel_graph0", "x") is None
        with pytest.raises(StateError, match="still being opened"):
            await session.origins()
        with pytest.raises(StateError, match="still being opened"):
            await session.command(Command(action="continue"))
        await opened(session)
        assert session.state is State.PAUSED
        assert kinds(session) == ["progress", "progress", "graph", "hits", "state"]
        graph = session.events.after(0).events[2].data
        assert graph == {"rank": 0, "graphs": ["kernel_graph0"]}
        await session.close("enough")

    asyncio.run(ask())


def test_a_session_at_a_glance(dump_210: Path) -> None:
    async def ask() -> dict[str, Any]:
        async with debugging(dump_210, name="sick") as session:
            return session.record().model_dump(mode="json")

    record = asyncio.run(ask())
    assert record.pop("created") > 0
    assert record.pop("last_event") > 0
    can = record.pop("capabilities")
    assert {name for name, able in can.items() if able} == {
        "can_terminate", "can_step", "can_go_to_step", "can_edit_watchpoints", "can_draw_graph", "has_previous_values",
        "has_execution_history", "has_origin", "has_statistics_table",
    }  # fmt: skip
    assert record == {
        "id": "1",
        "name": "sick",
        "fresh": False,
        "findings": 0,
        "state": "paused",
        "message": "before the first update; continue to check step by step, or go to a step to look at it",
        "step": 0,
        "present_step": None,
        "total_steps": 4,
        "node": "",
        "graph": "",
        "framework": "mindspore",
        "framework_version": "2.10.0",
        "backend": "CPU",
        "ranks": [
            {
                "rank": 0,
                "state": "paused",
                "step": 0,
                "node": "",
                "graph": "kernel_graph0",
                "graphs": ["kernel_graph0"],
                "address": "localhost",
                "device": "0",
                "process_id": None,
                "last_seen": None,
                "message": "",
            }
        ],
        "watchpoints": 0,
        "hits": 0,
        "ongoing": None,
        "outdated": False,
        "closer_command": "",
        "recommended_offered": False,
        "dump": "sick",
    }


def test_what_is_possible_depends_on_where_the_session_stands(dump_210: Path) -> None:
    async def ask() -> None:
        async with debugging(dump_210) as session:
            await session.command(Command(action="go_to_step", steps=2))
            can = session.capabilities()
            assert can.can_step
            assert can.can_step_back
            assert can.can_next_node
            assert can.can_previous_node
            assert can.can_run_to_node
            assert not can.can_recheck
            await session.create_watchpoint(WatchpointSpec(condition="TO"))
            assert session.capabilities().can_recheck
            await session.command(Command(action="go_to_step", steps=4))
            assert not session.capabilities().can_step

    asyncio.run(ask())


def test_on_a_cpu_every_condition_is_there_that_a_cpu_can_have(dump_200: Path) -> None:
    async def ask() -> None:
        async with debugging(dump_200) as session:
            missing = {one.id: one.unavailable_because for one in session.conditions() if not one.available}
            assert list(missing) == ["operator_overflow"]
            assert "this run is on CPU" in missing["operator_overflow"]

    asyncio.run(ask())


def test_on_ascend_nothing_is_missing(dump_copy: Callable[[str], Path]) -> None:
    path = dump_copy("sick-2.0.0")
    config = path / "rank_0" / ".dump_metadata" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "device_target": "Ascend"}))

    async def ask() -> None:
        async with debugging(path) as session:
            assert session.record().backend == "Ascend"
            assert all(one.available for one in session.conditions())

    asyncio.run(ask())


def test_a_graph_over_the_limit_is_not_drawn_and_the_message_says_why(dump_200: Path) -> None:
    async def ask() -> None:
        async with debugging(dump_200, most_drawn_nodes=50) as session:
            assert not session.capabilities().can_draw_graph
            assert "more than the 50 that are drawn" in session.record().message
            assert "--max-graph-node-size" in session.record().message
            with pytest.raises(StateError):
                await session.level(0, "kernel_graph_0")
            assert (await session.tree(0, "kernel_graph_0")).total > 0
            assert (await session.search(name="relu")).total > 0

    asyncio.run(ask())


def test_several_ranks_are_there_with_their_machines(dump_copy: Callable[[str], Path]) -> None:
    path = dump_copy("sick-2.10.0")
    shutil.copytree(path / "rank_0", path / "rank_3")
    shutil.rmtree(path / "rank_3" / "Sick" / "0" / "2")
    table = {
        "server_list": [
            {"server_id": "10.0.0.1", "device": [{"device_id": "0", "rank_id": "0"}]},
            {"server_id": "10.0.0.2", "device": [{"device_id": "1", "rank_id": "3"}]},
        ]
    }
    (path / "rank_0" / ".dump_metadata" / "hccl.json").write_text(json.dumps(table))

    async def ask() -> None:
        async with debugging(path) as session:
            assert session.ranks == (0, 3)
            record = (await session.command(Command(action="go_to_step", steps=3))).ranks
            assert [(one.rank, one.address, one.device, one.message) for one in record] == [
                (0, "10.0.0.1", "0", ""),
                (3, "10.0.0.2", "1", "no data of this step"),
            ]
            with pytest.raises(NotFoundError, match="no rank 1; it has 0, 3"):
                session.graphs(1)
            with pytest.raises(NotFoundError):
                await session.tensors_of(1, "kernel_graph0", "x")

    asyncio.run(ask())


def test_what_of_a_dump_cannot_be_used_is_in_the_message(dump_copy: Callable[[str], Path]) -> None:
    path = dump_copy("sick-2.10.0")
    (path / "rank_0" / "graphs" / "ms_output_trace_code_graph_9.pb").write_bytes(b"no graph")

    async def ask() -> None:
        async with debugging(path) as session:
            assert session.state is State.PAUSED
            assert "not all of the dump can be used: rank_0/graphs/ms_output_trace" in session.record().message

    asyncio.run(ask())


def test_a_dump_without_any_step_can_be_looked_at(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path)
    writer.graph(GraphWriter().parameter("w").operator("Default/Add-op1", inputs=("w",)))

    async def ask() -> None:
        async with debugging(tmp_path) as session:
            record = session.record()
            assert (record.state, record.total_steps) == (State.PAUSED, 0)
            assert record.message.startswith("the dump has no steps")
            (tensor,) = [one for one in await session.tensors_of(0, "kernel_graph_0", "w") if one.io == "output"]
            assert tensor.status == "not_kept"
            with pytest.raises(StateError, match="step 0 is the last one"):
                await session.command(Command(action="continue"))
            assert (await session.statistics_table()).total == 0
            assert await session.origins() == ()

    asyncio.run(ask())


def test_a_dump_whose_list_does_not_fit_into_the_memory_limit_says_so(dump_200: Path) -> None:
    async def ask() -> None:
        memory = ValueMemory(100_000)
        async with debugging(dump_200, name="sick", memory=memory) as session:
            assert session.state is State.FAILED
            assert "1,025 tensors of sick needs 1,640,000 bytes" in session.record().message
            with pytest.raises(StateError, match="cannot be opened"):
                await session.statistics_table()
            with pytest.raises(StateError):
                await session.create_watchpoint(WatchpointSpec(condition="TO"))
        assert memory.held_bytes == 0

    asyncio.run(ask())


def test_a_dump_that_is_gone_when_it_is_read_fails_with_a_reason(dump_copy: Callable[[str], Path]) -> None:
    path = dump_copy("sick-2.0.0")

    async def ask() -> None:
        dump = open_dump(path)
        session = OfflineSession("1", "gone", dump, workspace=None, memory=ValueMemory(2**30))
        shutil.rmtree(path)
        session.begin()
        await opened(session)
        record = session.record()
        assert record.message
        assert record.total_steps in (0, None)
        await session.close("enough")

    asyncio.run(ask())


def test_a_session_closed_while_it_opens_stays_closed(dump_200: Path) -> None:
    async def ask() -> None:
        memory = ValueMemory(2**30)
        session = OfflineSession("1", "sick", open_dump(dump_200), workspace=None, memory=memory)
        session.begin()
        await until(session, lambda: session.events.last > 0)
        await session.close("changed my mind")
        await session.close("twice")
        assert session.state is State.TERMINATED
        assert session.record().message == "changed my mind"
        assert kinds(session)[-2:] == ["state", "closed"]
        assert session.events.after(0).events[-1].data == {"reason": "changed my mind"}

    asyncio.run(ask())


def test_a_closed_session_only_knows_its_log(dump_200: Path) -> None:
    async def ask() -> None:
        memory = ValueMemory(2**30)
        async with debugging(dump_200, memory=memory) as session:
            assert memory.held_bytes > 0
            address = TensorAddress(0, "kernel_graph_0", "network.fc1.weight", 0, 1)
            await session.value(address)
            await session.close("enough")
            assert memory.held_bytes == 0
            for ask in (
                session.value(address),
                session.tensors_of(0, "kernel_graph_0", "network.fc1.weight"),
                session.statistics_over_steps(address),
                session.statistics_table(),
                session.executions(0),
                session.origins(),
                session.command(Command(action="pause")),
            ):
                with pytest.raises(StateError):
                    await ask
            with pytest.raises(StateError):
                session.previous(address)
            assert session.graphs(0) == ()
            assert session.record().state is State.TERMINATED

    asyncio.run(ask())
