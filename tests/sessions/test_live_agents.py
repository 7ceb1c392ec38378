"""Tensight's own agents: views computed in the process, steps counted there, statistics as the training runs."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from tensight import wire
from tensight.errors import InputError
from tensight.graph import TensorAddress
from tensight.sessions.errors import NotFoundError, StateError, UnavailableError
from tensight.sessions.live.session import LiveSession
from tensight.sessions.records import State
from tensight.tensors import View, ViewResult, compute_view, statistics
from tensight.wire import debugger_pb2 as pb
from tensight.wire import telemetry_pb2 as telemetry
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
    proto,
    stream,
    until,
    watch,
)

VALUE = np.arange(12, dtype=np.float32).reshape(3, 4)


def at(node: str, iteration: int, slot: int = 0, **more: Any) -> TensorAddress:
    return TensorAddress(0, GRAPH, node, slot, iteration, **more)


async def paused(
    stage: Stage, *abilities: str, step: int = 3, **options: Any
) -> tuple[Agent, LiveSession, asyncio.Task[Any]]:
    agent = stage.agent(abilities=abilities, **options)
    session = await agent.attach()
    return agent, session, await agent.stand(step)


async def show(agent: Agent, reply: pb.EventReply, values: dict[str, Any]) -> telemetry.Receipt:
    """Answer a request for views."""
    pieces: list[telemetry.ViewPiece] = []
    for index, message in enumerate(reply.view_cmd.views):
        asked = wire.view_of(message)
        array = values.get(asked.tensor.node)
        if array is None:
            pieces.append(wire.view_failure(index, "no such tensor here"))
        else:
            pieces += wire.view_pieces(index, compute_view(asked.view, asked.which, array, array - 1))
    return await agent.calls.send_views(agent.caller, stream(pieces))


def test_a_view_is_computed_in_the_process(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent, session, asking = await paused(stage, "views")
        assert session.capabilities().views_at_source
        views = [
            asyncio.create_task(session.view(at(CONV, 2), View("values", slice="[1, :2]"))),
            asyncio.create_task(session.view(at(CONV, 2), View("histogram", bins=3))),
            asyncio.create_task(session.view(at(RELU, 2), View("statistics"))),
        ]
        reply = await asking
        assert kind(reply) == "views"
        assert (await show(agent, reply, {CONV: VALUE, RELU: VALUE})).ok
        values, histogram, numbers = await asyncio.gather(*views)
        assert values.array.tolist() == [4, 5]
        assert histogram.histogram.counts.tolist() == [4, 4, 4]
        assert numbers.statistics == statistics(VALUE)
        await agent.stand(3)

    on_stage(scene)


def test_a_view_that_the_process_cannot_compute_says_why(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent, session, asking = await paused(stage, "views")
        view = asyncio.create_task(session.view(at(CONV, 2), View("values")))
        await show(agent, await asking, {})
        with pytest.raises(UnavailableError, match="no such tensor here"):
            await view

    on_stage(scene)


def test_a_difference_is_computed_in_a_process_that_keeps_previous_values(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent, session, asking = await paused(stage, "views", "previous")
        assert session.capabilities().has_previous_values
        assert session.previous(at(CONV, 2)) == at(CONV, 1)
        view = asyncio.create_task(session.view(at(CONV, 2), View("values"), "difference"))
        reply = await asking
        assert reply.view_cmd.views[0].which == b"difference"
        await show(agent, reply, {CONV: VALUE})
        assert (await view).array.tolist() == np.ones((3, 4)).tolist()

    on_stage(scene)


def test_what_is_here_is_not_asked_of_the_process(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent, session, asking = await paused(stage, "views")
        value = asyncio.create_task(session.value(at(CONV, 2)))
        await agent.answer(await asking, {CONV: VALUE})
        await value
        waiting = await agent.stand(3)
        result: ViewResult = await session.view(at(CONV, 2), View("values", slice="[0, :]"))
        assert result.array is not None
        assert result.array.tolist() == [0, 1, 2, 3]
        assert not waiting.done()

    on_stage(scene)


def test_views_that_nobody_asked_for_are_refused(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent, _, _ = await paused(stage, "views")
        receipt = await agent.calls.send_views(agent.caller, stream([wire.view_failure(0, "x")]))
        assert not receipt.ok
        unknown = stage.agent()
        assert not (await unknown.calls.send_views(unknown.caller, stream([wire.view_failure(0, "x")]))).ok
        assert not (await unknown.calls.send_statistics(unknown.caller, stream([telemetry.StatisticsRows()]))).ok

    on_stage(scene)


def test_a_view_that_makes_no_sense_is_refused(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent, session, asking = await paused(stage, "views")
        view = asyncio.create_task(session.view(at(CONV, 2), View("values", limit=2)))
        await asking
        receipt = await agent.calls.send_views(
            agent.caller, stream(wire.view_pieces(0, compute_view(View("values"), "current", VALUE)))
        )
        assert not receipt.ok
        agent.ask(3)
        with pytest.raises(UnavailableError):
            await view

    on_stage(scene)


def test_an_agent_that_counts_steps_is_told_all_of_them_at_once(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent, session, asking = await paused(stage, "steps", "pause", step=0)
        await command(session, "continue", steps=5)
        assert kind(await asking) == "run step 5"
        asking = await agent.stand(5)
        await command(session, "continue")
        assert kind(await asking) == "run step -1"

    on_stage(scene)


@pytest.mark.parametrize("abilities", [("steps",), ("pause",)])
def test_an_agent_that_could_not_be_paused_goes_step_by_step(on_stage: Play, abilities: tuple[str, ...]) -> None:
    async def scene(stage: Stage) -> None:
        agent, session, asking = await paused(stage, *abilities, step=0)
        await command(session, "continue", steps=5)
        assert kind(await asking) == "run step 1"
        assert await agent.told(1) == "run step 1"

    on_stage(scene)


def test_ranks_go_step_by_step_even_if_they_could_count(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        _, session, asking = await paused(stage, "steps", "pause", step=0, world_size=2)
        await command(session, "continue", steps=5)
        assert kind(await asking) == "run step 1"

    on_stage(scene)


def test_a_running_agent_learns_by_asking_that_it_is_to_pause(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent, session, asking = await paused(stage, "steps", "pause", step=0)
        await command(session, "continue")
        await asking
        answer = await agent.calls.poll(agent.caller, telemetry.PollRequest(step=4))
        assert (answer.pause, answer.exit) == (False, False)
        assert session.step == 4
        await command(session, "pause")
        assert (await agent.calls.poll(agent.caller, telemetry.PollRequest(step=5))).pause
        asking = await agent.stand(5)
        await command(session, "continue")
        await asking
        await command(session, "terminate")
        answer = await agent.calls.poll(agent.caller, telemetry.PollRequest(step=6))
        assert (answer.pause, answer.exit) == (True, True)
        assert await agent.told(6) == "exit"
        assert not (await stage.agent().calls.poll(stage.agent().caller, telemetry.PollRequest())).pause

    on_stage(scene)


def test_an_agent_that_finds_operators_itself_is_told_the_name(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent, session, asking = await paused(stage, "nodes", "run_to_node", step=0)
        await command(session, "run_to_node", node=RELU)
        reply = await asking
        assert (reply.run_cmd.run_level, reply.run_cmd.node_name) == (b"node", RELU.encode())
        await agent.stand(0, RELU)

    on_stage(scene)


NODES = ("nodes", "run_to_node", "previous")


def test_an_agent_that_goes_back_is_told_so_once(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent, session, asking = await paused(stage, *NODES, "back", step=3)
        assert session.capabilities().can_previous_node
        await command(session, "previous_node")
        assert kind(await asking) == "run back node"
        asking = await agent.stand(3, RELU)
        assert (session.record().node, session.record().step) == (RELU, 3)
        await command(session, "previous_node", node=CONV, graph=GRAPH)
        assert kind(await asking) == f"run back node {CONV}"
        asking = await agent.stand(3, CONV)
        await command(session, "next_node")
        assert kind(await asking) == "run node"
        asking = await agent.stand(3, RELU)
        await command(session, "continue", steps=1)
        assert kind(await asking) == "run step 1"
        await agent.stand(3)

    on_stage(scene)


def test_that_there_is_nothing_to_go_back_to_is_said(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent, session, asking = await paused(stage, *NODES, "back", step=3)
        for node, more, said in (
            ("", {}, "no operator was seen"),
            (CONV, {}, "is the first operator of its step"),
            (CONV, {"node": RELU}, "has not run in this step before"),
        ):
            if node:
                await command(session, "next_node")
                await asking
                asking = await agent.stand(3, node)
            last = session.events.last
            await command(session, "previous_node", **more)
            await asking
            asking = await agent.stand(3, node)
            page = await session.events.wait_after(last, 1)
            texts = [event.data["text"] for event in page.events if event.kind == "message"]
            assert len(texts) == 1
            assert said in texts[0]

    on_stage(scene)


@pytest.mark.parametrize(
    ("abilities", "step", "why"),
    [
        (NODES, 3, "goes forward only"),
        (("back",), 3, "only stop at the end of a step"),
        ((*NODES, "back"), 0, "no operator has run yet"),
    ],
)
def test_who_cannot_go_back_now_is_not_told_to(on_stage: Play, abilities: tuple[str, ...], step: int, why: str) -> None:
    async def scene(stage: Stage) -> None:
        _, session, asking = await paused(stage, *abilities, step=step)
        assert not session.capabilities().can_previous_node
        with pytest.raises(StateError, match=why):
            await command(session, "previous_node")
        assert not asking.done()

    on_stage(scene)


def test_back_to_an_operator_that_there_is_not_is_refused(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        _, session, _ = await paused(stage, *NODES, "back")
        with pytest.raises(NotFoundError, match="Tanh"):
            await command(session, "previous_node", node="Default/Tanh-op9")
        with pytest.raises(InputError, match="not an operator"):
            await command(session, "previous_node", node=WEIGHT)
        with pytest.raises(NotFoundError, match="rank 7"):
            await command(session, "previous_node", rank=7)
        assert session.state is State.PAUSED

    on_stage(scene)


def test_at_an_operator_that_was_gone_back_to_the_process_is_asked_again(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent, session, asking = await paused(stage, *NODES, "back", step=3)
        value = asyncio.create_task(session.value(at(WEIGHT, 2)))
        await agent.answer(await asking, {WEIGHT: VALUE})
        assert (await value).tolist() == VALUE.tolist()
        asking = await agent.stand(3)
        await command(session, "previous_node")
        await asking
        asking = await agent.stand(3, CONV)
        looking = asyncio.create_task(session.tensors_of(0, GRAPH, WEIGHT, None))
        reply = await asking
        assert kind(reply) == "view statistics"
        await agent.answer(reply, {})
        reply = await agent.ask(3, CONV)
        assert [asked.iter for asked in reply.view_cmd.tensors] == [b"prev"]
        await agent.answer(reply, {f"{WEIGHT}:prev": VALUE - 1})
        asking = await agent.stand(3, CONV)
        (record,) = await looking
        assert (record.step, record.statistics.max) == (2, 10)
        # Further on, what is here already counts again.
        await command(session, "next_node")
        await asking
        asking = await agent.stand(3)
        assert (await session.value(at(WEIGHT, 2))).tolist() == VALUE.tolist()
        assert not asking.done()

    on_stage(scene)


def test_an_agent_without_operators_cannot_run_to_one(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        _, session, _ = await paused(stage, backend="GPU")
        assert not session.capabilities().can_run_to_node

    on_stage(scene)


def test_statistics_of_a_running_training_become_a_table_and_curves(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent, session, _ = await paused(stage, step=2)
        batches = [
            telemetry.StatisticsRows(
                iteration=iteration,
                rows=[
                    telemetry.StatisticsRow(
                        graph=GRAPH.encode(),
                        node=node.encode(),
                        slot=0,
                        position=position,
                        summary=wire.summary_of(statistics(VALUE * (iteration + position))),
                    )
                    for position, node in enumerate((CONV, RELU, "appeared/Later-op7"))
                ],
            )
            for iteration in (0, 1)
        ]
        assert (await agent.calls.send_statistics(agent.caller, stream(batches))).ok
        page = await session.statistics_table()
        assert [(row.node, row.type, row.step) for row in page.rows] == [
            (CONV, "Conv2D", 2),
            (RELU, "ReLU", 2),
            ("appeared/Later-op7", "", 2),
        ]
        page = await session.statistics_table(step=1, query="relu")
        assert [row.statistics.max for row in page.rows] == [11]
        curve = await session.statistics_over_steps(at(RELU, 1))
        assert [row.statistics.max for row in curve] == [11, 22]
        assert not curve[0].statistics.partial

    on_stage(scene)


def test_statistics_that_contradict_themselves_are_refused(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent, session, _ = await paused(stage)
        summary = wire.summary_of(statistics(VALUE))
        summary.statistics.zero_count = 77
        row = telemetry.StatisticsRow(node=CONV.encode(), summary=summary)
        receipt = await agent.calls.send_statistics(agent.caller, stream([telemetry.StatisticsRows(rows=[row])]))
        assert not receipt.ok
        assert (await session.statistics_table(step=1)).total == 0

    on_stage(scene)


def test_inputs_that_an_agent_kept_are_asked_for_as_such(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent, session, asking = await paused(stage)
        value = asyncio.create_task(session.value(at(RELU, 2, io="input")))
        asked = (await asking).view_cmd.tensors[0]
        assert (asked.node_name, asked.io, asked.graph) == (RELU.encode(), b"input", GRAPH.encode())
        pieces = [message.SerializeToString() for message in wire.tensor_messages(wire.received_request(asked), VALUE)]
        await agent.calls.send_tensors(agent.caller, stream(pieces))
        assert (await value).tolist() == VALUE.tolist()
        # It is not taken for the output of the operator before.
        records = asyncio.create_task(session.tensors_of(0, GRAPH, RELU))
        await agent.answer(await agent.ask(3), {})
        assert [(one.io, one.status) for one in await records] == [("input", "available"), ("output", "not_kept")]

    on_stage(scene)


def test_an_agent_needs_no_graph_to_be_commanded(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent = stage.agent()
        message = agent.metadata(process=agent.who, graph_num=0)
        await agent.calls.send_metadata(agent.caller, message)
        asking = await agent.stand()
        session = stage.session()
        await watch(session, selection="name:Linear")
        await command(session, "continue")
        reply = await asking
        assert (kind(reply), reply.set_cmd.selection) == ("set 1", b"name:Linear")

    on_stage(scene)


def test_an_agent_that_announces_itself_again_is_the_same(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent, session, asking = await paused(stage, step=4)
        await watch(session)
        await command(session, "recheck")
        assert kind(await asking) == "set 1"
        assert (await agent.announce()).version_matched
        assert len(stage.sessions.all()) == 1
        await agent.send_graphs(network())
        # Whether it still has its watchpoints is not certain, and the check is still wanted.
        assert await agent.told(4) == "set 1"
        assert await agent.told(4) == "run recheck"
        await agent.stand(4)

    on_stage(scene)


def test_what_an_agent_reports_is_read_by_people_also_when_it_has_ended(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent, session, asking = await paused(stage)
        for _ in range(2):
            report = pb.Heartbeat(message=wire.NOTICE + b"3 updates are not counted", period=30)
            await agent.calls.send_heartbeat(agent.caller, report)
        warnings = [event.data["text"] for event in session.events.after(0).events if event.kind == "message"]
        assert (session.record().message, warnings) == ("3 updates are not counted", ["3 updates are not counted"])
        await command(session, "continue")
        await asking
        await agent.calls.poll(agent.caller, telemetry.PollRequest(step=4))
        assert session.record().message == "3 updates are not counted"
        await agent.done()
        record = session.record()
        assert (record.state, record.message) == (State.FINISHED, "3 updates are not counted")

    on_stage(scene)


@pytest.mark.parametrize(
    ("step", "message"), [(0, "the training ended before a step was counted, so nothing was checked"), (1, "")]
)
def test_a_training_without_a_step_was_not_checked(on_stage: Play, step: int, message: str) -> None:
    async def scene(stage: Stage) -> None:
        agent, session, asking = await paused(stage, step=step)
        await command(session, "continue")
        await asking
        await agent.done()
        record = session.record()
        assert (record.state, record.message) == (State.FINISHED, message)

    on_stage(scene)


def test_an_agent_of_another_protocol_is_a_mismatch(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent = stage.agent()
        agent.who.protocol = 99
        assert not (await agent.announce()).version_matched
        agent.ask()
        await until(stage.session(), State.MISMATCH)

    on_stage(scene)


def test_sources_and_the_order_of_execution_come_with_the_graph(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent = stage.agent()
        await agent.announce()
        chunks = [
            pb.Chunk(sources=[pb.SourceText(file=b"/home/me/train.py", text="x = 'é'".encode())]),
            pb.Chunk(buffer=proto(network()), execution_order=[RELU.encode(), CONV.encode()]),
        ]
        assert kind(await agent.calls.send_graph(agent.caller, stream(chunks), False)) == "nothing"
        session = stage.session()
        assert await session.source_text("/home/me/train.py") == "x = 'é'"
        assert [session.position(0, GRAPH, node) for node in (RELU, CONV, WEIGHT)] == [1, 2, 3]

    on_stage(scene)
