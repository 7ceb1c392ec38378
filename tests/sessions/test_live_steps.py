"""The conversation with MindSpore's own client: what it is told, in which order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tensight.errors import InputError
from tensight.graph.protobuf_fields import length_delimited
from tensight.sessions.errors import NotFoundError, StateError
from tensight.sessions.records import State
from tensight.wire import debugger_pb2 as pb
from tests.sessions.live_stage import (
    CONV,
    GRAPH,
    RELU,
    OldProcess,
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


def test_a_process_is_paused_when_it_asks_for_a_command(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process(device="3", backend="GPU")
        reply = await process.announce()
        assert (kind(reply), reply.version_matched) == ("version_matched", True)
        session = stage.session()
        assert session.state is State.CONNECTING
        assert kind(await process.send_graphs(network())) == "nothing"
        assert session.state is State.CONNECTING
        await process.stand()
        record = session.record()
        assert (record.name, record.step, record.backend) == ("mindspore-3", 0, "GPU")
        assert record.framework_version == "2.0.0"
        assert (record.ranks[0].device, record.ranks[0].graphs) == ("3", ("kernel_graph_0",))
        assert record.capabilities.can_step
        assert record.capabilities.can_next_node
        assert record.capabilities.can_edit_watchpoints
        assert not record.capabilities.can_pause

    on_stage(scene)


def test_a_command_before_the_graph_is_refused(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        await process.announce()
        reply = await process.ask()
        assert kind(reply) == "failed"
        assert b"graph" in reply.message

    on_stage(scene)


def test_a_process_that_nobody_knows_is_refused(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        assert kind(await process.ask()) == "failed"
        assert kind(await process.send_graphs(network())) == "failed"
        assert kind(await process.done()) == "version_matched"
        assert stage.sessions.all() == []

    on_stage(scene)


def test_steps_are_counted_down_one_by_one(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        session = await process.attach()
        asking = await process.stand()
        record = await command(session, "continue", steps=3)
        assert record.state is State.RUNNING
        assert kind(await asking) == "run step 1"
        assert await process.told(1) == "run step 1"
        assert await process.told(2) == "run step 1"
        await process.stand(3)
        assert session.step == 3

    on_stage(scene)


def test_a_run_without_end_goes_on_until_it_is_paused(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        session = await process.attach()
        asking = await process.stand()
        await command(session, "continue")
        assert kind(await asking) == "run step 1"
        for step in range(1, 50):
            assert await process.told(step) == "run step 1"
        record = await command(session, "pause")
        assert record.state is State.RUNNING
        assert record.message
        await process.stand(50)
        with pytest.raises(StateError, match="paused"):
            await command(session, "pause")

    on_stage(scene)


def test_commands_that_do_not_fit_are_refused(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process(backend="Ascend")
        session = await process.attach()
        with pytest.raises(StateError, match="connecting"):
            await command(session, "continue")
        await process.stand()
        with pytest.raises(StateError, match="operators"):
            await command(session, "next_node")
        with pytest.raises(StateError, match="recorded run"):
            await command(session, "go_to_step", steps=1)
        with pytest.raises(InputError, match="0 steps"):
            await command(session, "continue", steps=0)
        assert session.state is State.PAUSED

    on_stage(scene)


def test_hits_stop_the_run_at_the_step_where_they_are(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        session = await process.attach()
        asking = await process.stand()
        point = await watch(session)
        await command(session, "continue")
        assert kind(await asking) == "set 1"
        assert await process.told(0) == "run recheck"
        assert await process.told(0) == "run step 1"
        assert kind(await process.report((CONV, point.id), ("no/such/node", point.id))) == "nothing"
        assert session.state is State.RUNNING
        await process.stand(1)
        page = await session.hits()
        assert [(node.node, node.step) for node in page.nodes] == [(CONV, 1), ("no/such/node", 1)]
        (tensor,) = page.nodes[0].tensors
        assert tensor.address == f"0/kernel_graph_0/{CONV}:0@1"
        assert tensor.hits[0].parameters[0].actual == 7.5
        assert tensor.hits[0].parameters[0].hit
        assert page.nodes[0].type == "Conv2D"

    on_stage(scene)


def test_hits_of_the_step_before_are_gone_in_the_next(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        session = await process.run()
        await process.report((CONV, 1))
        asking = await process.stand(1)
        assert (await session.hits()).total == 1
        await command(session, "continue", steps=1)
        assert kind(await asking) == "run step 1"
        await process.stand(2)
        page = await session.hits()
        assert (page.total, page.step, page.outdated) == (0, 2, False)

    on_stage(scene)


def test_a_check_that_could_not_be_made_is_no_hit_but_stops_the_run(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        session = await process.attach()
        asking = await process.stand()
        await watch(session)
        await command(session, "continue")
        await asking
        await process.report((CONV, 1), error_code=5)
        await process.stand(1)
        (node,) = (await session.hits()).nodes
        hit = node.tensors[0].hits[0]
        assert not hit.hit
        assert len(hit.errors) == 2
        assert hit.parameters[0].actual is None
        assert session.record().hits == 0

    on_stage(scene)


def test_initial_watchpoints_are_checked_before_the_first_step_and_can_stop_it(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        session = await process.attach()
        asking = await process.stand()
        await watch(session, "weight_initialization")
        await command(session, "continue", steps=5)
        assert kind(await asking) == "set 1"
        assert await process.told(0) == "run recheck"
        await process.report(("conv1.weight", 1))
        asking = await process.stand(0)
        assert (await session.hits()).nodes[0].step == 0
        await command(session, "continue", steps=1)
        # Nothing has changed, so nothing is checked again.
        assert kind(await asking) == "run step 1"

    on_stage(scene)


def test_a_recheck_replaces_the_hits_and_the_process_stays_where_it_is(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        session = await process.attach()
        asking = await process.stand(4)
        await watch(session)
        await command(session, "recheck")
        assert kind(await asking) == "set 1"
        assert await process.told(4) == "run recheck"
        await process.report((CONV, 1), (RELU, 1))
        asking = await process.stand(4)
        assert (await session.hits()).total == 2
        await watch(session, "tensor_all_zero")
        assert (await session.hits()).outdated
        await command(session, "recheck")
        assert (await session.hits()).total == 0
        assert kind(await asking) == "set 2"
        assert await process.told(4) == "run recheck"
        asking = await process.stand(4)
        assert ((await session.hits()).total, (await session.hits()).outdated) == (0, False)
        assert session.record().step == 4

    on_stage(scene)


def test_an_operator_is_reached_by_single_operators_and_never_named(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process(backend="GPU")
        session = await process.attach()
        asking = await process.stand()
        await command(session, "run_to_node", node=RELU)
        assert kind(await asking) == "run node"
        assert await process.told(1, CONV) == "run node"
        asking = await process.stand(1, RELU)
        assert session.record().node == RELU
        # Once more to the same: in the next step.
        await command(session, "run_to_node", node=RELU, graph="kernel_graph_0")
        assert kind(await asking) == "run node"
        assert await process.told(2, CONV) == "run node"
        asking = await process.stand(2, RELU)
        await command(session, "next_node")
        assert kind(await asking) == "run node"
        await process.stand(3, CONV)

    on_stage(scene)


def test_a_hit_on_the_way_to_an_operator_stops_there(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process(backend="GPU")
        session = await process.attach()
        asking = await process.stand()
        await command(session, "run_to_node", node=RELU)
        assert kind(await asking) == "run node"
        await process.report((CONV, 1))
        await process.stand(1, CONV)

    on_stage(scene)


def test_only_operators_of_the_graph_can_be_run_to(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process(backend="GPU")
        session = await process.attach()
        await process.stand()
        with pytest.raises(NotFoundError, match="Tanh"):
            await command(session, "run_to_node", node="Default/Tanh-op9")
        with pytest.raises(NotFoundError, match="in graph 'another'"):
            await command(session, "run_to_node", node=RELU, graph="another")
        with pytest.raises(NotFoundError, match=f"some that contain it: {RELU}"):
            await command(session, "run_to_node", node=RELU.rpartition("/")[2].lower())
        with pytest.raises(NotFoundError, match="rank 7"):
            await command(session, "run_to_node", node=RELU, rank=7)
        with pytest.raises(InputError, match="not an operator"):
            await command(session, "run_to_node", node="conv1.weight")

    on_stage(scene)


def test_a_waiting_process_is_terminated_at_once(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        session = await process.attach()
        asking = await process.stand()
        assert (await command(session, "terminate")).state is State.TERMINATED
        assert kind(await asking) == "exit"
        await process.done()
        assert session.state is State.TERMINATED
        # Should the reply have been lost, it is told again.
        assert await process.told() == "exit"
        with pytest.raises(StateError, match="ended already"):
            await command(session, "terminate")

    on_stage(scene)


def test_a_running_process_is_terminated_when_it_asks(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        session = await process.run()
        record = await command(session, "terminate")
        assert record.state is State.RUNNING
        assert "end" in record.message
        assert await process.told(1) == "exit"
        assert session.state is State.TERMINATED

    on_stage(scene)


@pytest.mark.parametrize("version", ["", "1.0.1", "3.0.0", "nonsense"])
def test_a_version_that_is_not_understood_can_only_be_terminated(on_stage: Play, version: str) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        reply = await process.announce(version)
        assert (kind(reply), reply.version_matched) == ("version_matched", False)
        session = stage.session()
        asking = process.ask()
        await until(session, State.MISMATCH)
        assert "1.1 to 2.3" in session.record().message
        with pytest.raises(StateError):
            await command(session, "continue")
        await command(session, "terminate")
        assert kind(await asking) == "exit"
        assert session.state is State.TERMINATED

    on_stage(scene)


def test_a_newer_version_of_the_same_generation_is_let_in_with_a_remark_that_stays(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        assert (await process.announce("2.7.0")).version_matched
        await process.send_graphs(network())
        await process.stand()
        assert "newer" in stage.session().record().message

    on_stage(scene)


@pytest.mark.parametrize("how", ["metadata", "command"])
def test_the_end_of_the_training_finishes_the_session(on_stage: Play, how: str) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        session = await process.run()
        if how == "metadata":
            await process.done()
        else:
            assert kind(await process.ask(1, training_done=True)) == "exit"
        assert session.state is State.FINISHED
        assert not session.capabilities().can_terminate

    on_stage(scene)


def test_a_graph_that_arrives_later_stops_the_run(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        session = await process.run()
        await process.send_graphs(network("kernel_graph_1", "1"))
        await process.stand(1, root=1)
        record = session.record().ranks[0]
        assert (record.graphs, record.graph) == (("kernel_graph_0", "kernel_graph_1"), "kernel_graph_1")

    on_stage(scene)


def test_several_graphs_arrive_in_one_stream(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        session = await process.attach(network(), network("kernel_graph_1", "1"), network("kernel_graph_2", "1"))
        assert [graph.name for graph in session.graphs(0)] == ["kernel_graph_0", "kernel_graph_1", "kernel_graph_2"]
        assert {event.kind for event in session.events.after(0).events} >= {"graph", "state"}

    on_stage(scene)


def test_a_graph_that_is_none_is_refused_in_words_and_leaves_nothing(on_stage: Play, tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        await process.announce()
        writer = network()
        writer.body = b"\xff\xff\xff"
        reply = await process.send_graphs(writer)
        assert kind(reply) == "failed"
        assert "refused" in stage.session().record().message
        assert stage.session().graphs(0) == ()
        assert list((tmp_path / "runs" / "1" / "arriving").iterdir()) == []
        # The process may try again.
        assert kind(await process.send_graphs(network())) == "nothing"
        assert stage.session().record().message == ""

    on_stage(scene)


def test_a_second_wait_takes_the_place_of_the_first(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        session = await process.attach()
        first = await process.stand()
        second = process.ask()
        assert kind(await first) == "failed"
        await command(session, "continue", steps=1)
        assert kind(await second) == "run step 1"

    on_stage(scene)


def test_the_history_of_executions_is_told(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        session = await process.attach(network(), network("kernel_graph_1", "1"))
        asking = await process.stand()
        await command(session, "continue")
        await asking
        for step, root in ((1, 0), (2, 0), (3, 1), (4, 0)):
            assert await process.told(step, root=root) == "run step 1"
        page = await session.executions(0, offset=1, limit=2)
        assert page.total == 4
        assert [(one.step, one.graph) for one in page.executions] == [(2, "kernel_graph_0"), (3, "kernel_graph_1")]

    on_stage(scene)


def test_hundreds_of_steps_do_not_flood_the_log(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        session = await process.run()
        before = session.events.last
        for step in range(1, 500):
            assert await process.told(step) == "run step 1"
        assert session.events.last - before < 100

    on_stage(scene)


def test_a_new_training_on_the_same_connection_gets_a_session_of_its_own(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        first = await process.attach()
        # Without a graph it is the same training, which had no reply.
        second = await process.attach()
        assert second is not first
        assert first.state is State.LOST
        assert (first.name, second.name) == ("mindspore-0", "mindspore-0")
        await process.announce()
        await process.announce()
        assert len(stage.sessions.all()) == 3

    on_stage(scene)


def test_trainings_on_different_devices_do_not_touch_each_other(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        processes: list[OldProcess] = [stage.process(device=str(device)) for device in range(3)]
        sessions = [await process.attach() for process in processes]
        waiting = [await process.stand() for process in processes]
        await command(sessions[1], "continue", steps=1)
        assert kind(await waiting[1]) == "run step 1"
        assert [session.state for session in sessions] == [State.PAUSED, State.RUNNING, State.PAUSED]
        assert not waiting[0].done()

    on_stage(scene)


def test_two_trainings_on_equal_devices_of_two_machines_have_different_names(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        first = await stage.process(host="10.0.0.1").attach()
        second = await stage.process(host="10.0.0.2").attach()
        assert (first.name, second.name) == ("mindspore-0", "mindspore-0-2")

    on_stage(scene)


def test_graphs_larger_than_accepted_are_refused_in_words(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        await process.announce()
        reply = await process.send_graphs(network())
        assert kind(reply) == "failed"
        assert b"more than 300 bytes" in reply.message
        assert "refused" in stage.session().record().message

    on_stage(scene, most_graph_bytes=300)


def test_graphs_of_more_nodes_than_accepted_are_refused_in_words(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        await process.announce()
        reply = await process.send_graphs(network())
        assert kind(reply) == "failed"
        assert b"more than 4 nodes" in reply.message

    on_stage(scene, most_nodes=4)


def test_graphs_of_more_parts_than_accepted_are_refused_in_words(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        await process.announce()
        graph = network()
        assert kind(await process.send_graphs(graph)) == "nothing"
        # Two bytes each; those of a large node are counted before they are made.
        small = proto(graph) + length_delimited(1, b"\x2a\x00" * 600)
        large = proto(graph) + length_delimited(1, b"\x2a\x00" * 40_000)
        stacks = proto(graph) + length_delimited(1, length_delimited(9, b"\n" * 600))
        for data in (small, large, stacks):
            reply = await process.calls.send_graph(process.caller, stream([pb.Chunk(buffer=data)]), False)
            assert kind(reply) == "failed"
            assert b"more than 600 nodes, inputs" in reply.message

    on_stage(scene, most_nodes=10)


def test_graphs_of_more_nodes_than_accepted_of_a_process_are_refused_in_words(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        await process.attach(network())
        reply = await process.send_graphs(network("kernel_graph_1"))
        assert kind(reply) == "failed"
        assert b"9 nodes of all graphs together" in reply.message
        assert [graph.name for graph in stage.session().graphs(0)] == [GRAPH]

    on_stage(scene, most_nodes_of_a_process=9)


def test_graphs_sent_one_after_the_other_count_together(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        await process.announce()
        assert kind(await process.send_graphs(network())) == "nothing"
        # Sent again it takes no more room than before.
        assert kind(await process.send_graphs(network())) == "nothing"
        assert kind(await process.send_graphs(network("kernel_graph_1"))) == "failed"
        assert [graph.name for graph in stage.session().graphs(0)] == ["kernel_graph_0"]

    on_stage(scene, most_graph_bytes=600)


def test_a_stream_that_ends_within_a_graph_is_refused(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        await process.announce()
        data = proto(network())
        chunks = [pb.Chunk(buffer=data, finished=True), pb.Chunk(buffer=data[:50])]
        reply = await process.calls.send_graph(process.caller, stream(chunks), True)
        assert kind(reply) == "failed"
        assert stage.session().graphs(0) == ()
        # One graph needs no mark at its end.
        reply = await process.calls.send_graph(process.caller, stream([pb.Chunk(buffer=data)]), False)
        assert kind(reply) == "nothing"

    on_stage(scene)


def test_a_process_that_stands_elsewhere_before_its_last_call_has_ended_is_seen_there(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        session = await process.attach()
        before = await process.stand()
        # Somebody has interrupted it, and its next step was faster than the end of the connection.
        asking = process.ask(1)
        await before

        def seen() -> object:
            return [event.data["step"] for event in session.events.after(0).events if event.kind == "state"][-1]

        await until(session, lambda: seen() == 1)
        assert session.state is State.PAUSED
        await command(session, "continue")
        await asking

    on_stage(scene)


def test_a_connection_that_breaks_within_a_graph_leaves_nothing(on_stage: Play, tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        await process.announce()
        begun = asyncio.Event()

        async def breaking() -> AsyncIterator[pb.Chunk]:
            yield pb.Chunk(buffer=bytes(9 * 2**20))
            begun.set()
            await asyncio.Event().wait()

        call = asyncio.create_task(process.calls.send_graph(process.caller, breaking(), False))
        await begun.wait()
        call.cancel()
        await asyncio.wait({call})
        assert call.cancelled()
        assert "connection broke" in stage.session().record().message
        assert stage.session().graphs(0) == ()
        assert list((tmp_path / "runs" / "1" / "arriving").iterdir()) == []

    on_stage(scene)


@pytest.mark.long
def test_all_ranks_can_be_ended_at_once_however_many_they_are(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agents = [stage.agent(rank=rank, world_size=200) for rank in range(200)]
        for agent in agents:
            await agent.announce(graph_num=0)
        session = stage.session()
        waiting = [agent.ask() for agent in agents]
        await until(session, lambda: all(process.connection.is_waiting for process in session.processes.values()))
        await command(session, "terminate")
        assert {kind(await one) for one in waiting} == {"exit"}
        assert session.state is State.TERMINATED

    on_stage(scene)
