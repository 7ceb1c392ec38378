"""Looking back in a running training: an earlier step is shown, and nothing moves."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from tensight import wire
from tensight.errors import InputError
from tensight.graph import TensorAddress
from tensight.sessions.errors import StateError, UnavailableError
from tensight.sessions.live.session import LiveSession
from tensight.sessions.records import State
from tensight.tensors import View, compute_view, statistics
from tensight.wire import debugger_pb2 as pb
from tests.sessions.live_stage import (
    CONV,
    GRAPH,
    RELU,
    WEIGHT,
    Agent,
    Play,
    Stage,
    command,
    kind,
    network,
    stream,
    until,
)
from tests.sessions.reported_statistics import tell

ABILITIES = ("views", "history", "steps", "pause", "conditions")


def at(node: str, iteration: int) -> TensorAddress:
    return TensorAddress(0, GRAPH, node, 0, iteration)


def value(node: str, iteration: int) -> np.ndarray[Any, Any]:
    return np.full((2, 3), 100 * iteration + len(node), np.float32)


async def trained(
    stage: Stage, steps: int = 4, *, oldest: int = 1, abilities: tuple[str, ...] = ABILITIES
) -> tuple[Agent, LiveSession, asyncio.Task[pb.EventReply]]:
    """A training that stands after some steps; it told statistics and had a hit in each of them."""
    agent = stage.agent(abilities=abilities, run_at_start=True)
    session = await agent.attach()
    assert await agent.told() == "run step -1"
    for step in range(1, steps + 1):
        await tell(agent, {name: value(name, step - 1) for name in (CONV, RELU, WEIGHT)}, step - 1)
        await agent.report((CONV if step % 2 else RELU, step))
        await agent.stand(step, oldest_iteration=oldest)
        if step < steps:
            await command(session, "continue")
            assert await agent.told(step, oldest_iteration=oldest) == "run step -1"
    return agent, session, await agent.stand(steps, oldest_iteration=oldest)


async def show(agent: Agent, reply: pb.EventReply) -> None:
    """Answer views of any step as an agent with a ring of steps does."""
    pieces: list[Any] = []
    for index, message in enumerate(reply.view_cmd.views):
        asked = wire.view_of(message)
        assert asked.iteration is not None
        now, before = (value(asked.tensor.node, asked.iteration - back) for back in (0, 1))
        pieces += wire.view_pieces(index, compute_view(asked.view, asked.which, now, before))
    assert (await agent.calls.send_views(agent.caller, stream(pieces))).ok


def test_an_earlier_step_is_shown_with_its_hits_and_statistics(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        _, session, asking = await trained(stage, oldest=3)
        assert session.capabilities().can_step_back
        record = await command(session, "step_back")
        assert (record.step, record.present_step, record.state) == (3, 4, State.PAUSED)
        assert record.message == "shows step 3; the training is at step 4"
        assert [node.node for node in (await session.hits()).nodes] == [CONV]
        assert (await session.hits()).step == 3
        page = await session.statistics_table(query="Conv2D")
        assert [row.statistics.max for row in page.rows] == [float(value(CONV, 2).max())]
        record = await command(session, "step_back", steps=2)
        assert (record.step, record.hits) == (1, 1)
        (tensor,) = [one for one in await session.tensors_of(0, GRAPH, CONV) if one.io == "output"]
        assert (tensor.step, tensor.status, tensor.abbreviations) == (1, "statistics_only", ("TL",))
        assert tensor.statistics is not None
        assert not asking.done()

    on_stage(scene)


def test_values_of_an_earlier_step_come_from_where_the_training_recorded_them(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent, session, asking = await trained(stage)
        await command(session, "step_back", steps=2)
        (tensor,) = [one for one in await session.tensors_of(0, GRAPH, RELU) if one.io == "output"]
        assert (tensor.step, tensor.status) == (2, "at_source")
        views = [
            asyncio.create_task(session.view(at(RELU, 1), View("values", slice="[0, :]"))),
            asyncio.create_task(session.view(at(RELU, 2), View("values", slice="[0, :]"), "difference")),
        ]
        reply = await asking
        assert kind(reply) == "views"
        assert [view.iteration for view in reply.view_cmd.views] == [1, 2]
        await show(agent, reply)
        now, difference = await asyncio.gather(*views)
        assert now.array.tolist() == value(RELU, 1)[0].tolist()
        assert difference.array.tolist() == [100.0] * 3
        asking = agent.ask(4, oldest_iteration=1)
        whole = asyncio.create_task(session.value(at(RELU, 1)))
        await show(agent, await asking)
        array = await whole
        assert array.tolist() == value(RELU, 1).tolist()
        assert not array.flags.writeable

    on_stage(scene)


def test_what_the_training_does_not_have_any_more_is_not_asked_for(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        _, session, asking = await trained(stage, oldest=2)
        record = await command(session, "go_to_step", steps=1)
        assert record.hits == 1
        with pytest.raises(UnavailableError, match="not kept"):
            await session.value(at(CONV, 0))
        (tensor,) = [one for one in await session.tensors_of(0, GRAPH, CONV) if one.io == "output"]
        assert tensor.status == "statistics_only"
        assert not asking.done()

    on_stage(scene)


def test_statistics_of_an_earlier_step_that_were_not_told_are_asked_for(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent, session, asking = await trained(stage)
        await agent.send_graphs(network(), network("kernel_graph_1", "1"))
        await command(session, "go_to_step", steps=2)
        records = asyncio.create_task(session.tensors_of(0, "kernel_graph_1", RELU))
        reply = await asking
        assert [view.kind for view in reply.view_cmd.views] == [b"statistics"] * 2
        assert [view.iteration for view in reply.view_cmd.views] == [1, 1]
        await show(agent, reply)
        found = await records
        numbers = {one.io: one.statistics for one in found}
        assert numbers["output"] is not None
        assert numbers["output"].mean == statistics(value(RELU, 1)).mean

    on_stage(scene)


@pytest.mark.parametrize("action", ["continue", "recheck"])
def test_going_on_goes_on_from_where_the_training_stands(on_stage: Play, action: str) -> None:
    async def scene(stage: Stage) -> None:
        agent, session, asking = await trained(stage)
        await command(session, "step_back", steps=3)
        record = await command(session, action, **({"steps": 2} if action == "continue" else {}))
        assert (record.step, record.present_step) == (4, None)
        assert kind(await asking) == ("run step 2" if action == "continue" else "run recheck")
        await agent.stand(6 if action == "continue" else 4)
        assert session.record().step == (6 if action == "continue" else 4)

    on_stage(scene)


def test_the_way_back_to_the_present(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        _, session, _ = await trained(stage)
        present = await session.hits()
        before = session.events.last
        await command(session, "step_back")
        record = await command(session, "go_to_step", steps=4)
        assert (record.step, record.present_step, record.message) == (4, None, "")
        assert await session.hits() == present
        kinds = [event.kind for event in session.events.after(before).events]
        assert kinds.count("hits") == 2
        assert "state" in kinds

    on_stage(scene)


def test_watchpoints_that_change_meanwhile_make_the_present_outdated(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        _, session, _ = await trained(stage)
        await command(session, "step_back")
        await session.recommend(True)
        assert session.record().outdated
        await command(session, "go_to_step", steps=4)
        assert session.record().outdated

    on_stage(scene)


def test_steps_of_which_nothing_is_known_are_passed_over_or_refused(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent = stage.agent(abilities=("steps", "pause"), run_at_start=True)
        session = await agent.attach()
        await agent.told()
        await tell(agent, {CONV: value(CONV, 2)}, 2)
        await command(session, "pause")
        await agent.stand(9)
        assert (await command(session, "step_back")).step == 3
        with pytest.raises(StateError, match="nothing is known of a step before step 3"):
            await command(session, "step_back")
        with pytest.raises(StateError, match="nothing is known of step 5; of these there is something: 3, 9"):
            await command(session, "go_to_step", steps=5)
        with pytest.raises(InputError, match="there is no step 10; the training is at step 9"):
            await command(session, "go_to_step", steps=10)
        assert (await command(session, "go_to_step", steps=9)).present_step is None

    on_stage(scene)


def test_while_it_runs_there_is_no_looking_back(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent = stage.agent(abilities=ABILITIES, run_at_start=True)
        session = await agent.attach()
        await agent.told()
        assert not session.capabilities().can_go_to_step
        with pytest.raises(StateError, match="while the training is paused; it is running"):
            await command(session, "step_back")

    on_stage(scene)


def test_a_training_that_ends_meanwhile_shows_its_end(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent, session, _ = await trained(stage)
        await command(session, "step_back")
        await agent.calls.send_metadata(agent.caller, agent.metadata(step=4, training_done=True))
        await until(session, State.FINISHED)
        assert (session.record().step, session.record().present_step) == (4, None)

    on_stage(scene)


def test_mindspores_own_client_cannot_look_back(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        session = await process.attach()
        await process.stand(3)
        assert not session.capabilities().can_step_back
        assert not session.capabilities().can_go_to_step
        with pytest.raises(StateError, match="cannot do 'step_back'"):
            await command(session, "step_back")

    on_stage(scene)
