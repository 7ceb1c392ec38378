"""Weights that should be the same on all ranks: compared where all stand, and a reason to stop."""

from __future__ import annotations

import asyncio
from typing import Any

from tensight.sessions.live.session import LiveSession
from tensight.sessions.records import State, WatchpointSpec
from tensight.wire import debugger_pb2 as pb
from tests.sessions.live_stage import CONV, PATIENCE_S, WEIGHT, Agent, Play, Stage, command, kind, until

FREE = ("steps", "pause", "conditions")


def hashes(value: int, node: str = WEIGHT, watchpoint: int = 1) -> list[pb.ContentHash]:
    return [pb.ContentHash(node=node.encode(), slot=0, hash=value, watchpoint=watchpoint)]


async def job(stage: Stage, ranks: int = 2, abilities: tuple[str, ...] = FREE) -> tuple[list[Agent], LiveSession]:
    """Some ranks, attached, with a watchpoint for weights that differ; on their way to step 1."""
    agents = [stage.agent(abilities=abilities, rank=rank, world_size=ranks) for rank in range(ranks)]
    for agent in agents:
        await agent.attach()
    session = agents[0].session
    standing = [agent.ask() for agent in agents]
    await until(session, State.PAUSED)
    await session.create_watchpoint(WatchpointSpec(condition="weights_differ"))
    await command(session, "continue")
    # The watchpoint, a check of the initial values, and off.
    told = [kind(await one) for one in standing]
    while set(told) != {"run step 1"}:
        told = [kind(one) for one in await asyncio.gather(*(agent.ask() for agent in agents))]
    return agents, session


def ask(agents: list[Agent], step: int, *values: int, **more: Any) -> list[asyncio.Task[pb.EventReply]]:
    return [agent.ask(step, hashes=hashes(value, **more)) for agent, value in zip(agents, values, strict=True)]


def test_equal_weights_do_not_stop_a_job(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agents, session = await job(stage)
        for step in (1, 2):
            replies = [await asyncio.wait_for(one, PATIENCE_S) for one in ask(agents, step, 2**63 + 5, 2**63 + 5)]
            assert {kind(reply) for reply in replies} == {"run step 1"}
        assert len(session.hit_list) == 0

    on_stage(scene)


def test_weights_that_differ_stop_all_ranks_and_name_them(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agents, session = await job(stage, 3)
        standing = ask(agents, 1, 7, 7, 8)
        await until(session, State.PAUSED)
        assert not any(one.done() for one in standing)
        page = await session.hits()
        assert [(node.rank, node.node) for node in page.nodes] == [(0, WEIGHT), (1, WEIGHT), (2, WEIGHT)]
        (hit,) = page.nodes[0].tensors[0].hits
        assert (hit.watchpoint, hit.condition, hit.hit) == (1, "weights_differ", True)
        assert session.record().hits == 3
        # They are looked at once; a person may go on all the same.
        await command(session, "continue", steps=1)
        assert {kind(await asyncio.wait_for(one, PATIENCE_S)) for one in standing} == {"run step 1"}

    on_stage(scene)


def test_they_are_compared_again_when_everything_is_checked_again(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agents, session = await job(stage)
        standing = ask(agents, 1, 7, 8)
        await until(session, State.PAUSED)
        await command(session, "recheck")
        assert {kind(await one) for one in standing} == {"run recheck"}
        standing = ask(agents, 1, 7, 8)
        await until(session, State.PAUSED)
        assert session.record().hits == 2
        assert not any(one.done() for one in standing)

    on_stage(scene)


def test_ranks_at_different_steps_are_not_compared(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agents, session = await job(stage)
        first = agents[0].ask(1, hashes=hashes(7))
        while not session.processes[0].connection.is_waiting:
            await asyncio.sleep(0)
        assert not first.done()
        assert len(session.hit_list) == 0

    on_stage(scene)


def test_of_a_single_process_nothing_is_compared(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent = stage.agent(abilities=FREE, run_at_start=True)
        session = await agent.attach()
        assert await agent.told(hashes=hashes(1)) == "run step -1"
        assert len(session.hit_list) == 0

    on_stage(scene)


def test_names_that_are_too_long_are_refused(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent = stage.agent(abilities=FREE)
        session = await agent.attach()
        assert await agent.told(hashes=hashes(1, "x" * 20_000)) == "failed"
        assert await agent.stand()
        assert session.state is State.PAUSED

    on_stage(scene)


def test_what_a_process_cannot_check_is_told_and_nothing_else_suffers(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent = stage.agent(abilities=("steps", "pause"))
        session = await agent.attach()
        asking = await agent.stand()
        too_large = {"max_gt": 3.0}
        await session.create_watchpoint(
            WatchpointSpec(condition="tensor_too_large", parameters=too_large, persistence=3, selection=f"name:{CONV}")
        )
        await session.create_watchpoint(WatchpointSpec(condition="tensor_too_large", parameters=too_large))
        before = session.events.last
        await command(session, "continue")
        assert kind(await asking) == "set 2"
        page = await session.events.wait_after(before, PATIENCE_S)
        texts = [event.data["text"] for event in page.events if event.kind == "message"]
        assert len(texts) == 1
        assert "rank 0 does not check watchpoint" in texts[0]
        assert "how many steps in a row" in texts[0]

    on_stage(scene)


def test_agents_are_told_in_how_many_steps_a_condition_must_hold(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent = stage.agent(abilities=FREE)
        session = await agent.attach()
        asking = await agent.stand()
        await session.create_watchpoint(
            WatchpointSpec(condition="tensor_too_large", parameters={"max_gt": 3.0}, persistence=3)
        )
        await command(session, "continue")
        assert (await asking).set_cmd.persistence == 3

    on_stage(scene)


def test_a_hit_on_a_weight_has_the_line_where_it_is_used_first(on_stage: Play) -> None:
    from tests.sessions.test_live_origins import program, send

    async def scene(stage: Stage) -> None:
        agent = stage.agent(abilities=FREE)
        await agent.announce()
        await send(agent, program())
        await agent.report(("fc.weight", 1))
        await agent.stand(1)
        (node,) = (await agent.session.hits()).nodes
        assert node.line is not None
        assert node.line.line == 5

    on_stage(scene)
