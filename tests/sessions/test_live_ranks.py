"""The ranks of one job: one session, which stops and goes as one."""

from __future__ import annotations

import asyncio
import time

import pytest

from tensight.sessions.records import Edit, State
from tests.sessions.live_stage import CONV, RELU, Agent, Play, Stage, command, kind, network, until, watch


async def job(stage: Stage, ranks: int, **options: object) -> list[Agent]:
    agents = [stage.agent(rank=rank, world_size=ranks, **options) for rank in range(ranks)]
    for agent in agents:
        await agent.attach()
    return agents


def test_the_ranks_of_a_job_form_one_session(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agents = await job(stage, 3)
        assert len(stage.sessions.all()) == 1
        session = stage.session()
        for agent in agents:
            agent.ask()
        await until(session, lambda: all(rank.state is State.PAUSED for rank in session.record().ranks))
        record = session.record()
        assert (record.name, record.framework, record.framework_version) == ("job", "torch", "2.7")
        assert [rank.rank for rank in record.ranks] == [0, 1, 2]
        assert record.ranks[0].process_id == 77
        assert record.message == ""
        assert [graph.name for graph in session.graphs(2)] == ["kernel_graph_0"]

    on_stage(scene)


def test_nobody_goes_on_before_all_have_arrived(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agents = await job(stage, 2)
        session = stage.session()
        waiting = [agent.ask() for agent in agents]
        await until(session, lambda: all(rank.state is State.PAUSED for rank in session.record().ranks))
        await command(session, "continue", steps=3)
        assert [kind(await one) for one in waiting] == ["run step 1", "run step 1"]
        early = agents[0].ask(1)
        assert await agents[1].told(1) == "run step 1"
        assert kind(await early) == "run step 1"
        late = agents[1].ask(2)
        await asyncio.wait({late}, timeout=0.05)
        assert not late.done()
        assert await agents[0].told(2) == "run step 1"
        assert kind(await late) == "run step 1"
        last = [agent.ask(3) for agent in agents]
        await until(session, State.PAUSED)
        assert not any(one.done() for one in last)

    on_stage(scene)


def test_hits_on_one_rank_stop_all_at_the_same_step(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agents = await job(stage, 2)
        session = stage.session()
        waiting = [agent.ask() for agent in agents]
        await until(session, lambda: all(rank.state is State.PAUSED for rank in session.record().ranks))
        await command(session, "continue")
        await asyncio.gather(*waiting)
        first = agents[0].ask(1)
        await agents[1].report((CONV, 1))
        second = agents[1].ask(1)
        await until(session, State.PAUSED)
        assert not first.done()
        assert not second.done()
        (node,) = (await session.hits()).nodes
        assert (node.rank, node.step) == (1, 1)

    on_stage(scene)


def test_each_rank_is_told_its_watchpoints_before_any_goes(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agents = await job(stage, 2)
        session = stage.session()
        waiting = [agent.ask() for agent in agents]
        await until(session, lambda: all(rank.state is State.PAUSED for rank in session.record().ranks))
        await watch(session, selection="none", edits=(Edit(path=RELU),))
        await command(session, "continue")
        replies = [await one for one in waiting]
        assert list(map(kind, replies)) == ["set 1", "set 1"]
        assert {node.rank_id for node in replies[1].set_cmd.watch_nodes} == {1}
        assert await agents[0].told() == "run recheck"
        ready = agents[0].ask()
        await asyncio.wait({ready}, timeout=0.05)
        assert not ready.done()
        assert await agents[1].told() == "run recheck"
        assert await agents[1].told() == "run step 1"
        assert kind(await ready) == "run step 1"

    on_stage(scene)


@pytest.mark.parametrize("paused", [False, True])
def test_a_rank_that_attaches_while_the_others_run_catches_up(on_stage: Play, paused: bool) -> None:
    async def scene(stage: Stage) -> None:
        first = stage.agent(rank=0, world_size=2)
        session = await first.attach()
        asking = await first.stand()
        assert "1 of 2" in session.record().message
        await watch(session)
        await command(session, "continue")
        assert kind(await asking) == "set 1"
        assert await first.told() == "run recheck"
        # Its first step waits for the other rank, in the training's own communication.
        assert await first.told() == "run step 1"
        if paused:
            await command(session, "pause")
        second = stage.agent(rank=1, world_size=2)
        assert await second.attach() is session
        assert await second.told() == "set 1"
        assert await second.told() == "run recheck"
        assert await second.told() == "run step 1"
        early = first.ask(1)
        if paused:
            await second.stand(1)
            assert not early.done()
        else:
            assert await second.told(1) == "run step 1"
            assert kind(await early) == "run step 1"

    on_stage(scene)


def test_ranks_that_run_when_another_joins_late_stay_together_with_it(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        first = stage.agent(rank=0, world_size=2)
        session = await first.attach()
        asking = await first.stand(7)
        second = stage.agent(rank=1, world_size=2)
        await second.attach()
        joining = second.ask(0)
        await until(session, lambda: all(rank.state is State.PAUSED for rank in session.record().ranks))
        await command(session, "continue", steps=1)
        assert [kind(await one) for one in (asking, joining)] == ["run step 1", "run step 1"]
        last = [first.ask(8), second.ask(1)]
        await until(session, State.PAUSED)
        assert not any(one.done() for one in last)

    on_stage(scene)


def test_a_lost_rank_lets_the_others_stop(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agents = await job(stage, 2)
        session = stage.session()
        waiting = [agent.ask() for agent in agents]
        await until(session, lambda: all(rank.state is State.PAUSED for rank in session.record().ranks))
        await command(session, "continue")
        await asyncio.gather(*waiting)
        await stage.attachments.disconnected(agents[1].caller)
        await until(session, lambda: session.record().ranks[1].state is State.LOST)
        first = await agents[0].stand(1)
        assert "rank 1" in session.record().message
        # What is left can go on without it.
        await command(session, "continue", steps=1)
        assert kind(await first) == "run step 1"

    on_stage(scene, lost_after_s=0.05)


def test_terminating_ends_all_ranks(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agents = await job(stage, 3)
        session = stage.session()
        waiting = [agent.ask() for agent in agents[:2]]
        await until(session, lambda: sum(rank.state is State.PAUSED for rank in session.record().ranks) == 2)
        await command(session, "terminate")
        assert [kind(await one) for one in waiting] == ["exit", "exit"]
        assert session.state is not State.TERMINATED
        assert await agents[2].told() == "exit"
        assert session.state is State.TERMINATED

    on_stage(scene)


def test_running_to_an_operator_of_one_rank_takes_the_others_along(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agents = await job(stage, 2, abilities=("nodes",))
        session = stage.session()
        waiting = [agent.ask() for agent in agents]
        await until(session, lambda: all(rank.state is State.PAUSED for rank in session.record().ranks))
        await command(session, "run_to_node", node=RELU, rank=1)
        assert [kind(await one) for one in waiting] == ["run step 1", "run node"]
        assert await agents[1].told(0, CONV) == "run node"
        target = agents[1].ask(0, RELU)
        other = agents[0].ask(1)
        await until(session, State.PAUSED)
        assert not target.done()
        assert not other.done()
        assert session.record().ranks[1].node == RELU

    on_stage(scene)


def test_jobs_of_different_names_are_different_sessions(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        first, second = stage.agent(job="a"), stage.agent(job="b")
        assert await first.attach() is not await second.attach()
        assert sorted(session.name for session in stage.sessions.all()) == ["a", "b"]

    on_stage(scene)


def test_a_job_that_is_started_again_is_a_new_run_with_the_same_name(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        first = stage.agent()
        session = await first.attach()
        await first.stand()
        await watch(session)
        await first.done()
        again = stage.agent()
        other = await again.attach()
        assert other is not session
        assert other.name == session.name
        assert [point.condition for point in other.watchpoints()] == ["tensor_too_large"]

    on_stage(scene)


def test_one_rank_that_is_started_again_takes_the_place_of_the_old_one(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agents = await job(stage, 2)
        session = stage.session()
        waiting = agents[0].ask()
        await stage.attachments.disconnected(agents[1].caller)
        again = stage.agent(rank=1, world_size=2)
        assert await again.attach() is session
        asking = again.ask()
        await until(session, lambda: all(rank.state is State.PAUSED for rank in session.record().ranks))
        await command(session, "continue", steps=1)
        assert [kind(await one) for one in (waiting, asking)] == ["run step 1", "run step 1"]

    on_stage(scene)


def test_no_more_processes_attach_than_there_may_be(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        await job(stage, 2)
        reply = await stage.agent(job="another").announce()
        assert kind(reply) == "failed"
        assert b"2 training processes" in reply.message
        assert len(stage.sessions.all()) == 1

    on_stage(scene, most_processes=2)


def test_one_machine_does_not_take_the_room_of_all_others(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        for number in range(2):
            await stage.agent(job=f"job-{number}").attach()
        reply = await stage.agent(job="one too many").announce()
        assert kind(reply) == "failed"
        assert b"2 training processes are attached from ipv4:127.0.0.1" in reply.message
        await stage.agent(job="another", host="10.0.0.2").attach()

    on_stage(scene, most_processes_of_a_host=2)


def test_sixty_four_ranks_go_a_step_together_quickly(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agents = await job(stage, 64)
        session = stage.session()
        waiting = [agent.ask() for agent in agents]
        await until(session, lambda: all(rank.state is State.PAUSED for rank in session.record().ranks))
        await command(session, "continue", steps=10)
        started = time.perf_counter()
        assert {kind(await one) for one in waiting} == {"run step 1"}
        for step in range(1, 10):
            replies = await asyncio.gather(*(agent.ask(step) for agent in agents))
            assert set(map(kind, replies)) == {"run step 1"}
        taken_s = time.perf_counter() - started
        assert taken_s < 60, f"{taken_s:.1f} s for 640 messages"

    on_stage(scene)


def test_graphs_of_ranks_may_differ(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        first, second = stage.agent(rank=0, world_size=2), stage.agent(rank=1, world_size=2)
        session = await first.attach(network())
        await second.attach(network().operator("Default/Tanh-op3", inputs=("2",)))
        assert [len(session.graphs(rank)[0]) for rank in (0, 1)] == [5, 6]
        assert session.position(1, "kernel_graph_0", "Default/Tanh-op3") == 3
        assert session.position(0, "kernel_graph_0", "Default/Tanh-op3") is None

    on_stage(scene)
