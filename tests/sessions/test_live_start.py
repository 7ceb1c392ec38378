"""Trainings that go on by themselves: told what to watch, and never kept waiting for a person."""

from __future__ import annotations

import asyncio

import pytest

from tensight.sessions.errors import StateError
from tensight.sessions.records import Edit, State
from tests.dumps.dump_writer import GraphWriter
from tests.sessions.live_stage import (
    CONV,
    GRAPH,
    PATIENCE_S,
    RELU,
    Agent,
    Play,
    Stage,
    command,
    kind,
    network,
    until,
    watch,
)

FREE = ("steps", "pause", "conditions")


async def told_until_it_runs(agent: Agent, step: int = 0) -> list[str]:
    """Ask for commands until the one to go on; return all of them."""
    told = [await agent.told(step)]
    while not told[-1].startswith("run step"):
        told.append(await agent.told(step))
    return told


def test_it_goes_on_at_once_and_a_person_can_stop_it(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent = stage.agent(abilities=FREE, run_at_start=True)
        session = await agent.attach()
        assert await agent.told() == "run step -1"
        assert session.state is State.RUNNING
        await command(session, "pause")
        assert session.record().message == "stops when the step that is running is done"
        waiting = await agent.stand(7)
        with pytest.raises(StateError):
            await command(session, "pause")
        await command(session, "continue", steps=2)
        assert kind(await waiting) == "run step 2"

    on_stage(scene)


def test_a_person_can_stop_it_before_it_begins(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent = stage.agent(abilities=FREE, run_at_start=True)
        session = await agent.attach()
        await command(session, "pause")
        await agent.stand()

    on_stage(scene)


def test_without_that_wish_it_waits_for_a_person(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent = stage.agent(abilities=FREE)
        session = await agent.attach()
        await agent.stand()
        assert session.state is State.PAUSED
        assert not session.watchpoints()

    on_stage(scene)


def test_the_recommended_watchpoints_are_set_before_it_goes_on(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent = stage.agent(abilities=FREE, run_at_start=True, recommended=True)
        session = await agent.attach()
        told = await told_until_it_runs(agent)
        points = session.watchpoints()
        assert len(points) > 5
        assert told[:-2] == [f"set {point.id}" for point in points]
        # Before the first step some look at the initial weights.
        assert told[-2:] == ["run recheck", "run step -1"]
        assert session.record().recommended_offered
        assert all(point.name.startswith("recommend_") for point in points)

    on_stage(scene)


def test_they_are_created_once_whatever_ran_before_under_that_name(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        first = stage.agent(abilities=FREE, run_at_start=True, recommended=True)
        session = await first.attach()
        amount = len(session.watchpoints())
        await first.done()
        second = stage.agent(abilities=FREE, run_at_start=True, recommended=True)
        again = await second.attach()
        assert again is not session
        assert len(again.watchpoints()) == amount
        assert (await told_until_it_runs(second)).count("run recheck") == 1

    on_stage(scene)


def test_a_run_that_asks_for_them_has_them_although_they_were_deleted_in_an_earlier_one(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        first = stage.agent(abilities=FREE, recommended=True)
        session = await first.attach()
        await first.stand()
        names = {point.name for point in session.watchpoints()}
        assert names
        await session.delete_watchpoints()
        await first.done()
        second = stage.agent(abilities=FREE, recommended=True)
        again = await second.attach()
        assert again is not session
        await second.stand()
        assert {point.name for point in again.watchpoints()} == names
        # Those that a person deletes in this run stay away in it.
        await again.delete_watchpoints()
        await second.send_graphs(network(), network("kernel_graph_1", "1"))
        assert not again.watchpoints()

    on_stage(scene)


def test_saved_watchpoints_are_sent_before_it_goes_on(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        first = stage.agent(abilities=FREE)
        session = await first.attach()
        await first.stand()
        await watch(session, name="mine")
        await first.done()
        second = stage.agent(abilities=FREE, run_at_start=True)
        await second.attach()
        assert await told_until_it_runs(second) == ["set 1", "run recheck", "run step -1"]

    on_stage(scene)


def test_watchpoints_come_back_to_the_same_network_and_to_no_other_of_the_same_name(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        first = stage.process()
        session = await first.attach()
        await first.stand()
        await watch(session, name="mine")
        await session.recommend(True)
        await first.done()

        unrelated = stage.process()
        other = (
            GraphWriter(GRAPH, "0")
            .parameter("embedding.table")
            .operator("Default/Gather-op1", inputs=("embedding.table",))
        )
        session = await unrelated.attach(other)
        assert session.name == "mindspore-0"
        assert session.watchpoints() == ()
        assert not session.record().recommended_offered
        await unrelated.stand()
        await watch(session, name="theirs")
        await unrelated.done()

        second = stage.process()
        session = await second.attach()
        names = [point.name for point in session.watchpoints()]
        assert "mine" in names
        assert "theirs" not in names
        # A script that asks for the recommended ones in every run goes on.
        await second.stand()
        assert len(await session.recommend(True)) == len(names) - 1
        assert [point.name for point in session.watchpoints()] == names

    on_stage(scene)


def test_an_agents_session_is_called_after_its_script(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        for script, name in (
            ("/usr/bin/python /usr/bin/tensight run --recommended nets/train.py --lr 0.1", "train"),
            ("python -m tensight run train.py", "train-2"),
            ("python -m nets.train 3", "nets.train"),
            ("python", "torch-0"),
        ):
            session = await stage.agent(job="", script=script).attach()
            assert session.name == name

    on_stage(scene)


def test_runs_of_one_name_are_told_apart_and_processes_of_one_run_are_together(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        first = await stage.agent(job="train\n4711-node1", rank=0, world_size=2).attach()
        assert await stage.agent(job="train\n4711-node1", rank=1, world_size=2).attach() is first
        second = await stage.agent(job="train\n4712-node1").attach()
        assert (first.name, second.name) == ("train", "train-2")

    on_stage(scene)


def test_a_hit_stops_it_for_good(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent = stage.agent(abilities=FREE, run_at_start=True)
        session = await agent.attach()
        await agent.told()
        await agent.report((CONV, 1))
        waiting = await agent.stand(4)
        assert session.record().hits == 1
        # That it announces itself again is no reason to go on.
        await agent.announce()
        await agent.send_graphs(network())
        waiting = await agent.stand(4)
        assert not waiting.done()

    on_stage(scene)


def test_no_rank_begins_before_the_others_have_come(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        ranks = [stage.agent(abilities=FREE, run_at_start=True, rank=rank, world_size=2) for rank in range(2)]
        session = await ranks[0].attach()
        first = ranks[0].ask()
        while not session.processes[0].connection.is_waiting:
            await asyncio.sleep(0)
        assert "1 of 2 ranks are attached" in session.record().message
        assert not first.done()
        await ranks[1].attach()
        assert await ranks[1].told() == "run step 1"
        assert kind(await asyncio.wait_for(first, PATIENCE_S)) == "run step 1"

    on_stage(scene)


def test_ranks_that_never_come_are_not_waited_for_for_ever(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent = stage.agent(abilities=FREE, run_at_start=True, world_size=3)
        await agent.attach()
        assert await agent.told() == "run step 1"

    on_stage(scene, gather_within_s=0.01)


def test_ranks_are_told_whether_anybody_looks_at_the_step(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        ranks = [stage.agent(abilities=FREE, rank=rank, world_size=2) for rank in range(2)]
        session = await ranks[0].attach()
        await ranks[1].attach()
        standing = [await rank.stand() for rank in ranks]
        await command(session, "continue", steps=4)
        more = []
        for step in range(1, 5):
            replies = [await asyncio.wait_for(one, PATIENCE_S) for one in standing]
            assert {kind(reply) for reply in replies} == {"run step 1"}
            more.append({reply.run_cmd.more for reply in replies})
            standing = [rank.ask(step) for rank in ranks]
        assert more == [{True}, {True}, {False}, {False}]
        await until(session, State.PAUSED)

    on_stage(scene)


def test_a_pause_of_several_ranks_ends_with_a_step_that_is_looked_at(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        ranks = [stage.agent(abilities=FREE, rank=rank, world_size=2) for rank in range(2)]
        session = await ranks[0].attach()
        await ranks[1].attach()
        standing = [await rank.stand() for rank in ranks]
        await command(session, "continue")
        assert [(await asyncio.wait_for(one, PATIENCE_S)).run_cmd.more for one in standing] == [True, True]
        await command(session, "pause")
        standing = [rank.ask(1) for rank in ranks]
        assert [(await asyncio.wait_for(one, PATIENCE_S)).run_cmd.more for one in standing] == [False, False]
        standing = [rank.ask(2) for rank in ranks]
        await until(session, State.PAUSED)
        assert session.step == 2

    on_stage(scene)


def test_a_graph_that_comes_in_the_middle_of_a_run_does_not_stop_it(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent = stage.agent(abilities=FREE, run_at_start=True)
        session = await agent.attach()
        assert await agent.told() == "run step -1"
        before = session.events.last
        assert kind(await agent.send_graphs(network(), network("kernel_graph_1", "1"))) == "nothing"
        assert [graph.name for graph in session.graphs(0)] == ["kernel_graph_0", "kernel_graph_1"]
        page = await session.events.wait_after(before, PATIENCE_S)
        assert any(event.kind == "graph" for event in page.events)
        assert await agent.told(1, root=1) == "run step -1"

    on_stage(scene)


def test_watchpoints_are_told_anew_for_a_graph_that_comes_later(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent = stage.agent(abilities=FREE)
        session = await agent.attach()
        waiting = await agent.stand()
        await watch(session, selection="none", edits=(Edit(path=RELU),))
        await command(session, "continue")
        assert kind(await waiting) == "set 1"
        assert (await told_until_it_runs(agent))[-1] == "run step -1"
        await agent.send_graphs(network(), network("kernel_graph_1", "1"))
        reply = await asyncio.wait_for(agent.ask(1, root=1), PATIENCE_S)
        assert kind(reply) == "set 1"
        graphs = {node.graph_name.decode() for node in reply.set_cmd.watch_nodes}
        assert graphs == {"kernel_graph_0", "kernel_graph_1"}
        assert await agent.told(1, root=1) == "run step -1"

    on_stage(scene)


def test_an_agent_that_was_told_a_selection_applies_it_to_later_graphs_itself(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent = stage.agent(abilities=FREE)
        session = await agent.attach()
        waiting = await agent.stand()
        await watch(session, selection=f"name:{RELU}")
        await command(session, "continue")
        reply = await waiting
        assert (kind(reply), list(reply.set_cmd.watch_nodes)) == ("set 1", [])
        assert (await told_until_it_runs(agent))[-1] == "run step -1"
        await agent.send_graphs(network(), network("kernel_graph_1", "1"))
        assert await agent.told(1, root=1) == "run step -1"

    on_stage(scene)


def test_from_an_operator_the_rest_of_the_step_counts_as_one(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent = stage.agent(abilities=(*FREE, "nodes", "run_to_node"))
        session = await agent.attach()
        waiting = await agent.stand()
        await command(session, "run_to_node", node=CONV)
        assert kind(await waiting) == f"run node {CONV}"
        waiting = await agent.stand(1, CONV)
        assert session.record().node == CONV
        await command(session, "continue", steps=1)
        assert kind(await waiting) == "run step 1"
        waiting = await agent.stand(1)
        await command(session, "continue", steps=1)
        assert kind(await waiting) == "run step 1"

    on_stage(scene)
