"""What is kept of a run: it opens like a dump, and goes on after a restart of the server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensight import wire
from tensight.dumps import open_dump, read_tensor
from tensight.graph import TensorAddress
from tensight.sessions.errors import StorageError, UnavailableError
from tensight.sessions.hit_history import MOST_HITS, HitHistory
from tensight.sessions.hit_list import SessionHit
from tensight.sessions.live.recording import HitsEncoder, hits_from_json
from tensight.sessions.live.session import LiveSession
from tensight.sessions.records import HitRecord, State
from tensight.tensors import statistics
from tensight.wire import telemetry_pb2 as telemetry
from tests.sessions.live_stage import (
    CONV,
    GRAPH,
    RELU,
    WEIGHT,
    Agent,
    OldProcess,
    Play,
    Stage,
    command,
    kind,
    network,
    stream,
    until,
    watch,
)

VALUE = np.arange(4, dtype=np.float32)


async def recorded(process: OldProcess) -> LiveSession:
    """A run of three steps with a value, statistics and hits in the second; the process then runs."""
    session = await process.attach(network(), network("kernel_graph_1", "1"))
    asking = await process.stand()
    await watch(session)
    await command(session, "continue", steps=2)
    assert kind(await asking) == "set 1"
    assert await process.told(0) == "run recheck"
    assert await process.told(0) == "run step 1"
    assert await process.told(1) == "run step 1"
    await process.report((CONV, 1))
    asking = await process.stand(2)
    value = asyncio.create_task(session.value(TensorAddress(0, GRAPH, WEIGHT, 0, 1)))
    await process.answer(await asking, {WEIGHT: VALUE})
    await value
    records = asyncio.create_task(session.tensors_of(0, GRAPH, RELU))
    await process.answer(await process.ask(2), {CONV: VALUE, RELU: VALUE * 2})
    await records
    asking = await process.stand(2)
    await command(session, "continue")
    assert kind(await asking) == "run step 1"
    return session


def test_a_run_that_has_ended_opens_like_a_dump(on_stage: Play, tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        session = await recorded(process)
        assert session.record().dump == "runs/1"
        await process.ask(3, training_done=True)
        assert session.record().total_steps == 2
        await stage.close()
        dump = open_dump(tmp_path / "runs" / "1")
        assert [graph.name for graph in dump.graphs(0)] == ["kernel_graph_0", "kernel_graph_1"]
        assert (dump.metadata.framework_version, dump.metadata.device_target) == ("2.0.0", "Ascend")
        (tensor,) = dump.tensors()
        assert tensor.address == TensorAddress(0, GRAPH, WEIGHT, 0, 1)
        np.testing.assert_array_equal(read_tensor(tensor), VALUE)
        told = {one.node: one.recorded for one in dump.recorded_tensors(iterations=[1])}
        assert set(told) == {CONV, RELU}
        assert told[RELU] is not None
        assert told[RELU].values["max"] == 6
        assert dump.history(0) == {0: (0, 1)}
        assert dump.problems == []

    on_stage(scene)


def test_an_ended_session_keeps_everything_readable(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        session = await recorded(process)
        await process.done()
        assert session.state is State.FINISHED
        assert (await session.value(TensorAddress(0, GRAPH, WEIGHT, 0, 1))).tolist() == VALUE.tolist()
        with pytest.raises(UnavailableError):
            await session.value(TensorAddress(0, GRAPH, RELU, 0, 1))
        records = await session.tensors_of(0, GRAPH, RELU)
        assert [record.status for record in records] == ["statistics_only"] * 2
        assert (await session.hits()).total == 1
        assert (await session.statistics_table()).total >= 2
        assert (await session.tree(0, GRAPH)).total
        assert (await session.executions(0)).executions[1].has_data
        assert await session.origins() == ()

    on_stage(scene)


def test_a_recorded_run_is_found_and_opened_by_its_name(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        session = await recorded(process)
        # While it runs, its own session is the one that has it open.
        assert await stage.sessions.open_dump("runs/1") is session
        await process.done()
        opened = await stage.sessions.open_dump("runs/1")
        assert opened is not session
        assert [dump.name for dump in await stage.sessions.dumps(refresh=True)] == ["runs/1"]

    on_stage(scene)


def test_a_training_goes_on_after_a_restart_of_the_server(on_stage: Play, tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        session = await recorded(process)
        await stage.close()
        assert session.events.after(0).events[-1].kind == "closed"

        again = Stage(tmp_path)
        process.stage, process.calls = again, again.attachments
        process.breaks()
        await process.report((RELU, 1))
        asking = process.ask(3)
        await until_listed(again)
        restored = again.session()
        await until(restored, State.PAUSED)
        assert (restored.id, restored.name, restored.step) == (session.id, session.name, 3)
        assert restored.created == session.created
        assert [graph.name for graph in restored.graphs(0)] == ["kernel_graph_0", "kernel_graph_1"]
        assert [point.text for point in restored.watchpoints()] == ["tensor_too_large(max_gt=3)"]
        assert [node.node for node in (await restored.hits()).nodes] == [RELU]
        kept = await restored.value(TensorAddress(0, GRAPH, WEIGHT, 0, 1))
        assert kept.tolist() == VALUE.tolist()
        assert (await restored.statistics_table(step=2)).total >= 2
        await command(restored, "continue")
        # The process may have its watchpoints, or not: they are sent again.
        assert kind(await asking) == "set 1"
        assert await process.told(3) == "run step 1"
        await again.close()

    on_stage(scene)


async def until_listed(stage: Stage) -> None:
    last = 0
    while not stage.sessions.all():
        last = (await stage.sessions.events.wait_after(last, 20)).last


def test_a_watchpoint_deleted_while_the_server_was_away_is_taken_back(on_stage: Play, tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        await recorded(process)
        await stage.close()
        for file in (tmp_path / "watchpoints").glob("*.json"):
            file.unlink()
        again = Stage(tmp_path)
        process.stage, process.calls = again, again.attachments
        asking = process.ask(3)
        await until_listed(again)
        restored = again.session()
        await until(restored, State.PAUSED)
        await command(restored, "continue")
        assert kind(await asking) == "delete 1"
        assert await process.told(3) == "run step 1"
        await again.close()

    on_stage(scene)


@pytest.mark.parametrize("told", [True, False])
def test_after_a_restart_it_is_known_since_when_a_process_captures_every_operator(
    on_stage: Play, tmp_path: Path, told: bool
) -> None:
    async def scene(stage: Stage) -> None:
        agent = stage.agent(abilities=("closer",))
        await agent.attach()
        asking = agent.ask(5)
        await until(stage.session(), State.PAUSED)
        await command(stage.session(), "look_closer", steps=1)
        assert kind(await asking) == "run closer"
        assert not stage.session().record().capabilities.can_look_closer
        since = stage.session().processes[0].closer_since
        await stage.close()
        again = Stage(tmp_path)
        after = again.agent(key=agent.key, abilities=() if told else ("closer",))
        await after.announce(step=5)
        after.ask(5)
        await until_listed(again)
        await until(again.session(), State.PAUSED)
        assert (again.session().processes[0].closer_since, since) == (since if told else None, 5)
        assert again.session().record().capabilities.can_look_closer != told
        await again.close()

    on_stage(scene)


def test_all_ranks_of_a_job_come_back_to_one_session(on_stage: Play, tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        agents: list[Agent] = [stage.agent(rank=rank, world_size=2) for rank in range(2)]
        for agent in agents:
            await agent.attach()
        session = stage.session()
        for agent in agents:
            agent.ask(5)
        await until(session, lambda: all(rank.state is State.PAUSED for rank in session.record().ranks))
        await stage.close()
        again = Stage(tmp_path)
        for agent in agents:
            agent.stage, agent.calls = again, again.attachments
        waiting = [agent.ask(5) for agent in agents]
        await until_listed(again)
        restored = again.session()
        await until(restored, lambda: all(rank.state is State.PAUSED for rank in restored.record().ranks))
        assert len(again.sessions.all()) == 1
        await command(restored, "continue", steps=1)
        assert [kind(await one) for one in waiting] == ["run step 1", "run step 1"]
        await again.close()

    on_stage(scene)


@pytest.mark.parametrize("ending", ["finished", "another device", "an earlier step"])
def test_what_is_no_part_of_a_recorded_run_does_not_go_on_with_it(on_stage: Play, tmp_path: Path, ending: str) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        await recorded(process)
        if ending == "finished":
            await process.done()
        if ending == "another device":
            process.device = "7"
        await stage.close()
        again = Stage(tmp_path)
        process.stage, process.calls = again, again.attachments
        assert kind(await process.ask(1 if ending == "an earlier step" else 3)) == "failed"
        assert again.sessions.all() == []
        await again.close()

    on_stage(scene)


def test_damaged_notes_of_a_run_are_no_harm(on_stage: Play, tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        await recorded(process)
        await stage.close()
        folder = tmp_path / "runs" / "1"
        (folder / "hits.json").write_text('{"steps": [{"step": 2, "hits": [7]}]}')
        (folder / "dump" / "rank_0" / "graphs" / "ms_output_trace_code_graph_1.pb").write_bytes(b"\xff")
        for number, text in ((2, "{"), (3, "[]"), (4, '{"is_live": true}')):
            (tmp_path / "runs" / str(number)).mkdir()
            (tmp_path / "runs" / str(number) / "session.json").write_text(text)
        again = Stage(tmp_path)
        process.stage, process.calls = again, again.attachments
        process.ask(3)
        await until_listed(again)
        restored = again.session()
        await until(restored, State.PAUSED)
        assert [graph.name for graph in restored.graphs(0)] == ["kernel_graph_0"]
        texts = [event.data["text"] for event in restored.events.after(0).events if event.kind == "message"]
        assert any("hits.json" in text for text in texts)
        assert any("graph_1.pb" in text for text in texts)
        await again.close()

    on_stage(scene)


def test_a_workspace_that_cannot_be_written_refuses_processes_in_words(on_stage: Play, tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        (tmp_path / "runs" / "1").write_text("in the way")
        reply = await stage.process().announce()
        assert kind(reply) == "failed"
        assert b"cannot be" in reply.message
        # The next run has another folder.
        assert kind(await stage.process().announce()) == "version_matched"

    on_stage(scene)


def test_statistics_of_many_steps_are_kept_up_to_a_bound(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent = stage.agent()
        session = await agent.attach()
        batches = [
            telemetry.StatisticsRows(
                iteration=iteration,
                rows=[
                    telemetry.StatisticsRow(
                        graph=GRAPH.encode(), node=node.encode(), summary=wire.summary_of(statistics(VALUE))
                    )
                    for node in (CONV, RELU)
                ],
            )
            for iteration in range(20)
        ]
        await agent.calls.send_statistics(agent.caller, stream(batches))
        curve = await session.statistics_over_steps(TensorAddress(0, GRAPH, CONV, 0, 19))
        assert [row.step for row in curve] == list(range(16, 21))

    on_stage(scene, kept_rows=10)


def _hit(number: int) -> SessionHit:
    record = HitRecord(watchpoint=1, condition="tensor_too_large", abbreviation="TL")
    return SessionHit(0, GRAPH, f"node{number}", 0, 3, record, position=number, type="Conv2D")


def test_hits_survive_their_file() -> None:
    steps: dict[int, tuple[SessionHit, ...]] = {4: (_hit(1), _hit(2)), 2: (_hit(3),)}
    encode = HitsEncoder()
    assert hits_from_json(json.loads(encode(steps))) == steps
    more = {**steps, 7: (_hit(4),)}
    assert hits_from_json(json.loads(encode(more))) == more
    wrong: list[Any] = [None, [], {"steps": 7}, {"steps": [{}]}, {"steps": [{"step": 1, "hits": [{"rank": "x"}]}]}]
    for data in wrong:
        with pytest.raises(StorageError):
            hits_from_json(data)


def test_hits_of_the_oldest_steps_make_room() -> None:
    history = HitHistory()
    many = tuple(_hit(number) for number in range(MOST_HITS // 2))
    for step in range(5):
        history.set(step, many)
    assert sorted(history.snapshot()) == [3, 4]
    history.set(4, ())
    assert history.of(4) == ()
    history.set(9, many * 3)
    assert len(history.of(9)) == MOST_HITS


def test_a_run_of_which_nothing_arrived_leaves_no_folder(on_stage: Play, tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        await process.announce()
        await process.done()
        kept = stage.process(device="1")
        await kept.attach()
        await kept.done()
        for session in stage.sessions.all():
            await stage.sessions.close(session.id)
        assert [path.name for path in (tmp_path / "runs").iterdir()] == ["2"]

    on_stage(scene)


def test_hits_of_a_process_that_died_before_it_stood_still_are_kept(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        session = await process.run()
        await process.report((CONV, 1))
        await process.done()
        await until(session, lambda: len(session.hit_list) == 1)
        (node,) = (await session.hits()).nodes
        assert (node.node, node.step, session.step) == (CONV, 1, 1)

    on_stage(scene)


def test_a_session_that_there_is_no_room_for_is_refused_and_leaves_nothing(on_stage: Play, tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        stage.sessions._max_sessions = 1
        await stage.process(device="0").attach()
        reply = await stage.process(device="1").announce()
        assert kind(reply) == "failed"
        assert b"sessions already" in reply.message
        assert [path.name for path in (tmp_path / "runs").iterdir()] == ["1"]

    on_stage(scene)
