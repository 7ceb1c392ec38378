"""Continuing through a dump: each step is checked on all ranks, and the first with a hit is where it stops."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tensight.errors import InputError
from tensight.graph import TensorAddress
from tensight.sessions.errors import StateError
from tensight.sessions.offline.session import OfflineSession
from tensight.sessions.records import Command, Edit, HitParameter, State, WatchpointChange, WatchpointSpec
from tensight.sessions.workspace import Workspace
from tests.dumps.dump_writer import DumpWriter, GraphWriter
from tests.sessions.offline_runs import debugging, go, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DUMPS = ("sick-2.0.0", "sick-2.10.0")


async def watch(session: OfflineSession, condition: str, selection: str | None = None, **parameters: float) -> int:
    spec = WatchpointSpec(condition=condition, parameters=parameters, selection=selection)
    return (await session.create_watchpoint(spec)).id


async def nodes_with_hits(session: OfflineSession) -> list[str]:
    return [node.node for node in (await session.hits(limit=1000)).nodes]


def steps_of(path: Path, count: int, *, ranks: int = 1, every: int = 1) -> DumpWriter:
    """A network of one operator over a weight; iterations 0, every, 2·every, …"""
    writer = DumpWriter(path)
    for rank in range(ranks):
        graph = GraphWriter().parameter("w").operator("Default/Add-op1", inputs=("w",))
        graph.operator("Default/Mul-op2", inputs=("1",))
        writer.graph(graph, rank=rank)
        for iteration in range(0, count * every, every):
            writer.tensor(iteration, "Add.Add-op1", rank=rank)
            writer.tensor(iteration, "Mul.Mul-op2", rank=rank)
    return writer


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", DUMPS)
def test_stops_at_the_first_step_with_an_overflow_and_names_where_it_began_first(
    unpacked: Callable[[str], Path], planted: dict[str, Any], name: str
) -> None:
    inf, nan = planted[name]["planted"]["inf"], planted[name]["planted"]["nan"]

    async def ask() -> None:
        async with debugging(unpacked(name)) as session:
            await watch(session, "TO")
            record = await go(session, "continue")
            assert (record.state, record.step) == (State.PAUSED, inf["first_iteration"] + 1)
            assert not record.outdated
            assert record.hits > 1
            page = await session.hits(limit=3)
            assert page.step == 3
            first = page.nodes[0]
            assert (first.node, first.type) == (inf["operator"], "Log")
            assert first.line is not None
            assert (first.line.file, first.line.line) == (inf["file"], inf["line"])
            assert (first.rank, first.step) == (0, 3)
            (tensor,) = first.tensors
            assert tensor.address == str(TensorAddress(0, page.nodes[0].graph, inf["operator"], 0, 2))
            assert tensor.hits[0].error_code == 2
            assert tensor.hits[0].errors == ("A tensor contains +/-INF.",)
            names = await nodes_with_hits(session)
            assert names.index(inf["operator"]) < names.index(nan["operator"])
            positions = [node.position for node in (await session.hits(limit=1000)).nodes]
            assert positions == sorted(positions)  # type: ignore[type-var]

    asyncio.run(ask())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", DUMPS)
def test_finds_the_dead_relu_at_the_first_step_and_the_explosion_at_the_second(
    unpacked: Callable[[str], Path], planted: dict[str, Any], name: str
) -> None:
    facts = planted[name]["planted"]

    async def ask() -> None:
        async with debugging(unpacked(name)) as session:
            zero = await watch(session, "TZ", "type:ReLU")
            large = await watch(session, "TL", max_gt=1e6)
            record = await go(session, "continue")
            assert record.step == 1
            assert await nodes_with_hits(session) == [facts["dead_relu"]["operator"]]
            ((hit,),) = [one.hits for one in (await session.hits()).nodes[0].tensors]
            assert (hit.watchpoint, hit.condition, hit.abbreviation) == (zero, "tensor_all_zero", "TZ")
            assert hit.parameters == (HitParameter(name="zero_percentage_ge", preset=100.0, actual=100.0, hit=True),)
            await session.change_watchpoint(zero, WatchpointChange(enabled=False))
            record = await go(session, "continue")
            assert record.step == facts["exploding_gradient"]["first_iteration"] + 1 == 2
            (node, *_) = (await session.hits(watchpoint=large)).nodes
            assert node.node == facts["exploding_gradient"]["operator"]
            (parameter,) = node.tensors[0].hits[0].parameters
            value = await session.value(TensorAddress.parse(node.tensors[0].address))
            assert parameter.actual == pytest.approx(float(np.max(value)))
            assert parameter.hit

    asyncio.run(ask())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", DUMPS)
def test_finds_gradients_that_explode_and_weights_that_do_not_change(
    unpacked: Callable[[str], Path], planted: dict[str, Any], name: str
) -> None:
    facts = planted[name]["planted"]

    async def ask() -> None:
        async with debugging(unpacked(name)) as session:
            watched = await watch(session, "gradient_too_large", abs_mean_gt=1e6)
            assert (await go(session, "continue")).step == 2
            now = {node for node, first in facts["exploding_gradient"]["gradients"].items() if first == 1}
            assert now <= set(await nodes_with_hits(session))
            await session.delete_watchpoints([watched])
            await watch(session, "weight_not_changed")
            await go(session, "recheck")
            unchanged = facts["unchanged_weights"]
            assert set(unchanged["zero_gradient"]) <= set(await nodes_with_hits(session))
            assert set(unchanged["zero_learning_rate"]) <= set(await nodes_with_hits(session))

    asyncio.run(ask())


def test_initial_weights_are_checked_before_the_first_step_and_shown_on_the_weight(dump_200: Path) -> None:
    async def ask() -> None:
        async with debugging(dump_200) as session:
            await watch(session, "WI", zero_percentage_ge=100)
            record = await go(session, "continue")
            assert record.step == 0
            assert await nodes_with_hits(session) == ["network.fc1.bias", "network.fc2.bias"]
            (node, _) = (await session.hits()).nodes
            (tensor,) = node.tensors
            assert (node.type, node.step, tensor.io) == ("Parameter", 0, "output")
            assert tensor.address == "0/kernel_graph_0/network.fc1.bias:0@0"
            assert not np.any(await session.value(TensorAddress.parse(tensor.address)))
            (output,) = await session.tensors_of(0, "kernel_graph_0", "network.fc1.bias")
            assert (output.step, output.status, output.abbreviations) == (0, "available", ("WI",))
            assert (await go(session, "continue")).step == 4
            assert await nodes_with_hits(session) == []

    asyncio.run(ask())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["healthy-2.0.0", "healthy-2.10.0"])
def test_goes_to_the_end_of_a_healthy_training(unpacked: Callable[[str], Path], name: str) -> None:
    async def ask() -> None:
        async with debugging(unpacked(name)) as session:
            await watch(session, "TO")
            record = await go(session, "continue")
            assert record.step == record.total_steps
            assert (record.hits, record.state) == (0, State.PAUSED)
            with pytest.raises(StateError, match="is the last one of the dump"):
                await session.command(Command(action="continue"))

    asyncio.run(ask())


def test_continues_by_a_number_of_steps(dump_210_second: Path) -> None:
    async def ask() -> None:
        async with debugging(dump_210_second) as session:
            await watch(session, "TO")
            assert (await go(session, "continue", steps=2)).step == 2
            assert (await go(session, "continue", steps=1)).step == 3
            with pytest.raises(InputError, match="0 steps"):
                await session.command(Command(action="continue", steps=0))

    asyncio.run(ask())


def test_without_watchpoints_nothing_is_read_on_the_way(tmp_path: Path) -> None:
    writer = steps_of(tmp_path, 3)
    for path in writer.root.rglob("*.npy"):
        path.write_bytes(b"damaged")

    async def ask() -> None:
        async with debugging(tmp_path) as session:
            assert (await go(session, "continue")).step == 3
            assert session.record().hits == 0

    asyncio.run(ask())


def test_steps_of_which_nothing_was_dumped_are_passed_over_and_do_not_count(tmp_path: Path) -> None:
    writer = steps_of(tmp_path, 4, every=100)
    writer.tensor(200, "Mul.Mul-op2", np.array([np.nan], np.float32))

    async def ask() -> None:
        async with debugging(tmp_path) as session:
            assert session.record().total_steps == 301
            await watch(session, "TO")
            assert (await go(session, "continue", steps=1)).step == 1
            assert (await go(session, "continue", steps=1)).step == 101
            assert (await go(session, "continue")).step == 201
            assert await nodes_with_hits(session) == ["Default/Mul-op2"]
            assert (await go(session, "step_back")).step == 101
            assert (await go(session, "step_back", steps=5)).step == 0
            with pytest.raises(StateError, match="nothing before it"):
                await session.command(Command(action="step_back"))
            record = await go(session, "go_to_step", steps=50)
            assert (record.step, record.message) == (50, "nothing was recorded of this step")
            assert (await go(session, "recheck")).step == 50
            assert not session.record().outdated
            assert (await go(session, "continue", steps=1)).step == 101

    asyncio.run(ask())


def test_going_to_a_step_shows_it_unchecked(dump_200: Path) -> None:
    async def ask() -> None:
        async with debugging(dump_200) as session:
            await watch(session, "TO")
            record = await go(session, "go_to_step", steps=3)
            assert (record.step, record.hits, record.outdated) == (3, 0, True)
            record = await go(session, "recheck")
            assert record.hits > 0
            assert not record.outdated
            await watch(session, "TZ")
            assert session.record().outdated
            for step in (-1, 5):
                with pytest.raises(InputError, match="from step 0 to 4"):
                    await session.command(Command(action="go_to_step", steps=step))

    asyncio.run(ask())


def test_every_rank_is_checked(tmp_path: Path) -> None:
    writer = steps_of(tmp_path, 4, ranks=3)
    writer.tensor(2, "Mul.Mul-op2", np.array([np.inf], np.float32), rank=1)
    writer.tensor(2, "Add.Add-op1", np.array([np.inf], np.float32), rank=2)
    shutil.rmtree(tmp_path / "rank_0" / "Net" / "0" / "2")

    async def ask() -> None:
        async with debugging(tmp_path) as session:
            await watch(session, "TO")
            assert (await go(session, "continue")).step == 3
            page = await session.hits()
            assert [(node.rank, node.node) for node in page.nodes] == [(2, "Default/Add-op1"), (1, "Default/Mul-op2")]
            assert [node.rank for node in (await session.hits(rank=1)).nodes] == [1]

    asyncio.run(ask())


def test_only_the_nodes_that_a_person_chose_are_watched(dump_200: Path, planted: dict[str, Any]) -> None:
    inf = planted["sick-2.0.0"]["planted"]["inf"]["operator"]
    scope = inf.rpartition("/")[0]

    async def ask() -> None:
        async with debugging(dump_200) as session:
            spec = WatchpointSpec(condition="TO", selection="none", edits=(Edit(path=scope), Edit(path=inf, add=False)))
            await session.create_watchpoint(spec)
            await session.create_watchpoint(WatchpointSpec(condition="TO", selection="none"))
            await go(session, "go_to_step", steps=3)
            await go(session, "recheck")
            names = await nodes_with_hits(session)
            assert names
            assert all(name.startswith(scope) for name in names)
            assert inf not in names

    asyncio.run(ask())


def test_tensors_that_belong_to_no_node_are_watched_where_everything_is(tmp_path: Path) -> None:
    writer = steps_of(tmp_path, 1)
    writer.tensor(0, "Foo.Foo-op9", np.array([np.nan], np.float32))

    async def ask() -> None:
        async with debugging(tmp_path) as session:
            await watch(session, "TO", "all")
            # Nothing that a person types runs through Python's own regular expressions, which can take for ever.
            await watch(session, "TO", "name:(.*)*Foo-op9(.*)*$")
            await go(session, "continue")
            (node,) = (await session.hits()).nodes
            assert (node.graph, node.node, node.position) == ("", "Foo-op9", None)
            assert [hit.watchpoint for hit in node.tensors[0].hits] == [1]
            address = TensorAddress.parse(node.tensors[0].address)
            assert np.isnan(await session.value(address)).all()
            (record,) = await session.tensors_of(0, "", "Foo-op9")
            assert (record.type, record.scalar, record.abbreviations) == ("Foo", "nan", ("TO",))

    asyncio.run(ask())


def test_pausing_stops_between_steps(tmp_path: Path) -> None:
    steps_of(tmp_path, 300)

    async def ask() -> None:
        async with debugging(tmp_path) as session:
            await watch(session, "TO")
            record = await session.command(Command(action="continue"))
            assert record.state is State.RUNNING
            assert session.capabilities().can_pause
            with pytest.raises(StateError, match="it is running"):
                await session.command(Command(action="go_to_step", steps=1))
            with pytest.raises(StateError):
                await watch(session, "TZ")
            await until(session, lambda: session.step > 0)
            await session.command(Command(action="pause"))
            await until(session, lambda: session.state is State.PAUSED)
            assert 0 < session.step < 300
            with pytest.raises(StateError, match="possible while steps are checked"):
                await session.command(Command(action="pause"))
            assert (await go(session, "continue")).step == 300

    asyncio.run(ask())


def test_a_step_whose_check_is_paused_half_way_is_not_shown(tmp_path: Path) -> None:
    steps_of(tmp_path, 2)

    async def ask() -> None:
        async with debugging(tmp_path) as session:
            await watch(session, "TO")
            await session.command(Command(action="continue"))
            # Nothing else has had a turn in between: the first tensor that is read ends the check.
            await session.command(Command(action="pause"))
            await until(session, lambda: session.state is State.PAUSED)
            assert session.step == 0
            assert (await go(session, "continue")).step == 2

    asyncio.run(ask())


def test_closing_stops_a_check(tmp_path: Path) -> None:
    steps_of(tmp_path, 300)

    async def ask() -> None:
        async with debugging(tmp_path) as session:
            await watch(session, "TO")
            await session.command(Command(action="continue"))
            await until(session, lambda: session.step > 0)
            record = await session.command(Command(action="terminate"))
            assert record.state is State.TERMINATED
            assert session.step < 300

    asyncio.run(ask())


def test_what_could_not_be_checked_is_told_with_the_reason(dump_200: Path) -> None:
    async def ask() -> None:
        async with debugging(dump_200) as session:
            await watch(session, "weight_change_too_large")
            await go(session, "continue", steps=1)
            texts = [event.data["text"] for event in session.events.after(0).events if event.kind == "message"]
            assert texts == [
                "watchpoint 1 could not be checked on 9 tensors of 9: there is no value of the step before"
            ]

    asyncio.run(ask())


def test_rechecking_needs_something_to_check(dump_200: Path) -> None:
    async def ask() -> None:
        async with debugging(dump_200) as session:
            with pytest.raises(StateError, match="no watchpoint is enabled"):
                await session.command(Command(action="recheck"))

    asyncio.run(ask())


def test_the_recommended_watchpoints_find_every_sickness(
    dump_210: Path, planted: dict[str, Any], tmp_path: Path
) -> None:
    facts = planted["sick-2.10.0"]["planted"]

    async def ask() -> None:
        async with debugging(dump_210, workspace=Workspace(tmp_path)) as session:
            recommended = await session.recommend(accept=True)
            assert await session.recommend(accept=True) == recommended == session.watchpoints()
            seen: dict[str, int] = {}
            record = await go(session, "continue")
            while True:
                for node in await nodes_with_hits(session):
                    seen.setdefault(node, session.step)
                if record.step == record.total_steps:
                    break
                record = await go(session, "continue")
            for name in ("inf", "nan", "dead_relu"):
                assert seen[facts[name]["operator"]] == facts[name]["first_iteration"] + 1

    asyncio.run(ask())


def test_a_file_that_became_unreadable_does_not_stop_the_check(dump_copy: Callable[[str], Path]) -> None:
    path = dump_copy("sick-2.0.0")

    async def ask() -> None:
        async with debugging(path) as session:
            await watch(session, "TO")
            for file in (path / "rank_0" / "Sick" / "0" / "0").glob("*.npy"):
                file.write_bytes(b"\x93NUMPY damaged")
            assert (await go(session, "continue")).step == 3

    asyncio.run(ask())


def test_the_log_of_a_check_tells_where_it_stands(dump_200: Path) -> None:
    async def ask() -> None:
        async with debugging(dump_200) as session:
            await watch(session, "TO")
            before = session.events.last
            await go(session, "continue")
            events = session.events.after(before).events
            states = [(event.data["state"], event.data["step"]) for event in events if event.kind == "state"]
            assert states[0] == ("running", 0)
            assert states[-1] == ("paused", 3)
            (hits,) = [event.data for event in events if event.kind == "hits"]
            assert hits == {"step": 3, "total": session.record().hits}

    asyncio.run(ask())
