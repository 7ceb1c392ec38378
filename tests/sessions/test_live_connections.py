"""Connections that break, processes that come back, heartbeats that stop, and the end of the server."""

from __future__ import annotations

import asyncio

import pytest

from tensight import wire
from tensight.graph import TensorAddress
from tensight.sessions.errors import StateError, UnavailableError
from tensight.sessions.live import Caller
from tensight.sessions.records import State
from tensight.wire import debugger_pb2 as pb
from tests.sessions.live_stage import CONV, GRAPH, OldProcess, Play, Stage, command, kind, network, until, watch


async def broken(process: OldProcess, asking: asyncio.Task[pb.EventReply]) -> None:
    """Let the call in which the process waits break off."""
    asking.cancel()
    await asyncio.wait({asking})


def test_a_process_that_comes_back_in_time_goes_on_where_it_was(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        session = await process.attach()
        await broken(process, await process.stand(2))
        assert "connection broke" in session.record().message
        assert session.state is State.PAUSED
        process.breaks()
        asking = process.ask(2)
        await until(session, lambda: not session.record().message)
        assert process.session is session
        await command(session, "continue")
        assert kind(await asking) == "run step 1"

    on_stage(scene)


def test_a_command_given_in_the_meantime_is_obeyed_when_the_process_is_back(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        session = await process.attach()
        await watch(session) if session.state is State.PAUSED else None
        await broken(process, await process.stand(2))
        await watch(session)
        assert (await command(session, "continue", steps=1)).state is State.SENDING
        process.breaks()
        assert await process.told(2) == "set 1"
        assert await process.told(2) == "run step 1"

    on_stage(scene)


def test_a_process_that_does_not_come_back_is_lost_and_its_session_stays_readable(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        session = await process.run(2)
        await process.report((CONV, 1))
        await broken(process, await process.stand(3))
        await until(session, State.LOST)
        record = session.record()
        assert "did not come back" in record.message
        assert not record.capabilities.can_step
        assert record.capabilities.can_terminate
        assert (await session.hits()).total == 1
        assert (await session.node(0, GRAPH, CONV)).name == CONV
        with pytest.raises(UnavailableError, match="ended"):
            await session.value(TensorAddress(0, GRAPH, CONV, 0, 2))
        with pytest.raises(StateError):
            await command(session, "continue")

    on_stage(scene, lost_after_s=0.05)


def test_a_lost_process_that_comes_back_all_the_same_is_taken_in_again(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        session = await process.attach()
        await broken(process, await process.stand(2))
        await until(session, State.LOST)
        process.breaks()
        asking = process.ask(2)
        await until(session, State.PAUSED)
        assert session.record().message == ""
        await command(session, "continue")
        assert kind(await asking) == "run step 1"

    on_stage(scene, lost_after_s=0.05)


@pytest.mark.parametrize(
    ("end", "device"),
    [
        ("killed while it waited", "0"),
        ("killed while it waited", "1"),
        # Without a call that breaks off nothing tells it from another one of its device.
        ("killed while it ran", "1"),
        ("finished", "0"),
        ("finished", "1"),
    ],
)
def test_a_process_that_comes_back_from_the_port_of_another_that_is_gone_is_not_taken_for_it(
    on_stage: Play, end: str, device: str
) -> None:
    async def scene(stage: Stage) -> None:
        gone = stage.process()
        session_of_gone = await gone.attach()
        asking = await gone.stand(1)
        if end == "killed while it waited":
            await broken(gone, asking)
        else:
            await command(session_of_gone, "continue")
            await asking
        if end == "finished":
            await gone.done()
        process = stage.process(device=device)
        session = await process.attach()
        await broken(process, await process.stand(1))
        before = session_of_gone.record()
        process.caller = gone.caller
        assert kind(await beat(process, 5)) == "nothing"
        asking = process.ask(1)
        await until(session, lambda: not session.record().message)
        assert process.session is session
        await command(session, "continue")
        assert kind(await asking) == "run step 1"
        after = session_of_gone.record()
        assert (after.state, after.step, after.message) == (before.state, before.step, before.message)

    on_stage(scene)


def test_a_process_that_has_trained_may_train_once_more(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        session = await process.run(3)
        await process.done()
        await until(session, State.FINISHED)
        assert await process.told(0) == "run step 1"
        assert session.state is State.RUNNING

    on_stage(scene)


def test_a_free_run_survives_a_connection_that_breaks(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        session = await process.run()
        process.breaks()
        assert await process.told(1) == "run step 1"
        await stage.attachments.disconnected(process.caller)
        await until(session, State.LOST)
        process.breaks()
        assert await process.told(2) == "run step 1"

    on_stage(scene, lost_after_s=0.05)


def test_a_call_that_is_given_up_when_the_next_one_has_come_breaks_no_connection(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        session = await process.attach()
        replaced = await process.stand(2)
        (training,) = session.processes.values()
        first = asyncio.create_task(training.wait_cmd(process.metadata(2)))
        await replaced
        while not training.connection.is_waiting:
            await asyncio.sleep(0)
        second = asyncio.create_task(training.wait_cmd(process.metadata(2)))
        while training.connection.is_waiting:
            await asyncio.sleep(0)
        await broken(process, first)
        assert training.connection.is_open
        second.cancel()

    on_stage(scene)


def test_hits_that_come_over_a_new_connection_before_anything_else_are_not_lost(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        session = await process.run()
        process.breaks()
        assert kind(await process.report((CONV, 1))) == "nothing"
        await process.stand(1)
        assert (await session.hits()).total == 1

    on_stage(scene)


def test_a_terminated_process_that_was_gone_is_told_to_end_when_it_comes_back(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        session = await process.attach()
        await broken(process, await process.stand(2))
        await until(session, State.LOST)
        assert (await command(session, "terminate")).state is State.TERMINATED
        assert await process.told(2) == "exit"

    on_stage(scene, lost_after_s=0.05)


def test_a_new_training_on_the_device_of_a_broken_one_takes_its_place(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        first = stage.process()
        session = await first.attach()
        await broken(first, await first.stand(2))
        second = stage.process()
        other = await second.attach()
        assert session.state is State.LOST
        assert "took its place" in session.record().message
        assert other.name == session.name

    on_stage(scene)


def test_three_missing_heartbeats_mean_that_a_process_is_lost(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        # MindSpore's first heartbeat comes before anything else.
        assert kind(await beat(process, 5)) == "nothing"
        session = await process.attach()
        asking = process.ask(1)
        await until(session, State.LOST)
        assert "heartbeats" in session.record().message
        assert kind(await asking) == "failed"
        # Only the heartbeats had stopped.
        asking = process.ask(1)
        await until(session, State.PAUSED)
        await command(session, "continue")
        assert kind(await asking) == "run step 1"

    on_stage(scene, heartbeat_second_s=0.004)


def test_heartbeats_keep_a_process_alive(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        session = await process.attach()
        await process.stand(1)
        for _ in range(20):
            await beat(process, 5)
            await session.events.wait_after(session.events.last, 0.02)
        assert session.state is State.PAUSED

    on_stage(scene, heartbeat_second_s=0.02)


@pytest.mark.parametrize(("over", "at_end"), [(b"slow", "no step"), (b"no step", "slow")])
def test_what_a_process_tells_a_person_stays_until_it_is_over(on_stage: Play, over: bytes, at_end: str) -> None:
    async def scene(stage: Stage) -> None:
        agent = stage.agent()
        await agent.attach()
        for message in (wire.NOTICE + b"no step", wire.NOTICE + b"slow", wire.OVER + over, wire.OVER + b"never said"):
            await agent.calls.send_heartbeat(agent.caller, pb.Heartbeat(message=message, period=30))
        await agent.done()
        assert stage.session().record().message == at_end

    on_stage(scene)


@pytest.mark.parametrize("period_s", [-1, 0, 4, 3601])
def test_a_heartbeat_of_a_period_that_makes_no_sense_is_refused(on_stage: Play, period_s: int) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        await process.attach()
        assert kind(await beat(process, period_s)) == "failed"

    on_stage(scene)


async def beat(process: OldProcess, period_s: int) -> pb.EventReply:
    return await process.calls.send_heartbeat(process.caller, pb.Heartbeat(message=b"alive", period=period_s))


def test_waiting_processes_are_told_that_the_server_shuts_down_but_not_to_end(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        session = await process.attach()
        asking = await process.stand(2)
        value = asyncio.create_task(session.value(TensorAddress(0, GRAPH, CONV, 0, 1)))
        assert kind(await asking) == "view value"
        asking = process.ask(2)
        with pytest.raises(UnavailableError):
            await value
        await stage.attachments.close("")
        reply = await asking
        assert (kind(reply), reply.message) == ("failed", b"the debug server is shutting down")
        for answer in (await process.ask(2), await process.announce(), await process.send_graphs(network())):
            assert kind(answer) == "failed"
        await stage.sessions.close_all("the end")
        assert session.events.after(0).events[-1].kind == "closed"

    on_stage(scene)


def test_a_session_with_a_training_cannot_be_closed_but_one_that_has_ended_can(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        session = await process.attach()
        await process.stand()
        with pytest.raises(StateError, match="terminate it first"):
            await stage.sessions.close(session.id)
        await process.done()
        await stage.sessions.close(session.id)
        assert stage.sessions.all() == []
        # The process is not known any more.
        assert kind(await process.ask()) == "failed"

    on_stage(scene)


def test_only_so_many_ended_sessions_stay_listed(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        for _ in range(5):
            process = stage.process()
            await process.attach()
            await process.done()
        assert [session.id for session in stage.sessions.all()] == ["3", "4", "5"]

    on_stage(scene, most_ended=2)


def test_the_other_sessions_are_unharmed_when_one_process_dies(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        first, second = stage.process(device="0"), stage.process(device="1")
        one, other = await first.attach(), await second.attach()
        dying, asking = await first.stand(), await second.stand()
        await broken(first, dying)
        await until(one, State.LOST)
        assert other.state is State.PAUSED
        await command(other, "continue", steps=1)
        assert kind(await asking) == "run step 1"

    on_stage(scene, lost_after_s=0.05)


def test_calls_of_strangers_do_no_harm(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        await stage.attachments.disconnected(Caller("ipv6:[::1]:77"))
        for number in range(600):
            stranger = OldProcess(stage, 50_000 + number)
            await stranger.report((CONV, 1))
            await beat(stranger, 30)
        assert len(stage.attachments._early_hits) <= 256
        assert stage.sessions.all() == []

    on_stage(scene)


def test_a_process_that_dies_while_it_attaches_is_lost_and_does_no_harm(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        call = asyncio.create_task(process.announce())
        await until_begun(stage)
        call.cancel()
        await asyncio.wait({call})
        session = stage.session()
        await until(session, State.LOST)
        other = await stage.process().attach()
        assert other.name == session.name

    on_stage(scene, lost_after_s=0.01)


async def until_begun(stage: Stage) -> None:
    """Wait until the server is busy with a process that announces itself."""
    while not stage.attachments._joining.locked():
        await asyncio.sleep(0)
