"""Numbers that a process claims: work, memory and files follow from what it sends, not from how large they are."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from tensight.analysis import Analysis, Anomaly, origins
from tensight.dumps import open_dump
from tensight.errors import TensightError
from tensight.sessions.live.executions import MOST_LISTED, Executions
from tensight.sessions.records import State
from tensight.wire import debugger_pb2 as pb
from tensight.wire import telemetry_pb2
from tests.dumps.dump_writer import DumpWriter, GraphWriter
from tests.sessions.live_stage import WEIGHT, Play, Stage, command, stream, until

LARGEST = 2**31 - 1


def test_a_training_that_claims_30_million_steps_leaves_a_small_recording(on_stage: Play, tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        agent = stage.agent(run_at_start=True)
        session = await agent.attach()
        await stage.attachments.poll(agent.caller, telemetry_pb2.PollRequest(step=3))
        tensor = pb.TensorProto(
            node_name=WEIGHT.encode(), slot=b"0", dims=[1], data_type=11, finished=True, tensor_content=bytes(4)
        )
        await stage.attachments.send_tensors(agent.caller, stream([tensor.SerializeToString()]))
        done = agent.metadata(30_000_000, training_done=True)
        await stage.attachments.send_metadata(agent.caller, done)
        await until(session, State.FINISHED)
        folder = session.recording.folder
        await session.detach()
        assert session.step == 30_000_000
        assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 2**20
        # Which steps ran is unknown; that only three did would be false.
        dump = open_dump(folder / "dump")
        assert dump.history(0) is None
        assert not dump.problems

    on_stage(scene)


def test_steps_that_a_process_reports_are_listed_however_many_they_are() -> None:
    ran = Executions()
    for end in range(500, 900_000, 500):
        ran.advance(end - 500, end)
    assert ran.are_listed
    ran.advance(ran.unrecorded()[1].stop, MOST_LISTED + 1)
    assert not ran.are_listed


def test_a_list_of_steps_that_was_given_up_does_not_begin_again() -> None:
    ran = Executions()
    ran.advance(0, 200_000)
    for end in range(200_001, 200_500):
        ran.advance(end - 1, end)
    assert not ran.are_listed


def test_steps_before_the_first_one_are_counted_when_a_process_begins_again() -> None:
    ran = Executions()
    ran.advance(LARGEST - 1, LARGEST)
    ran.advance(0, 1)
    assert len(ran) == 1
    ran.advance(1, LARGEST)
    assert len(ran) == LARGEST
    assert not ran.are_listed


def test_values_that_a_process_claims_to_have_are_not_counted_one_by_one(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent = stage.agent(abilities=("history",))
        session = await agent.attach()
        asking = await agent.stand(LARGEST - 5, oldest_iteration=-1)
        timeline = await session.timeline(0)
        assert timeline.last_step == LARGEST - 5
        assert timeline.steps[-1].values
        assert not timeline.steps[0].values
        await command(session, "step_back")
        assert session.step == LARGEST - 6
        asking.cancel()

    on_stage(scene)


def test_steps_that_another_process_claims_are_not_counted_one_by_one(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        first = stage.agent(rank=0, world_size=2)
        other = stage.agent(rank=1, world_size=2, abilities=("history",))
        session = await first.attach()
        assert await other.attach() is session
        waiting = [await first.stand(2_000_000), await other.stand(3, oldest_iteration=0)]
        tracemalloc.start()
        try:
            with pytest.raises(TensightError, match="nothing is known of step 2000"):
                await command(session, "go_to_step", steps=2000)
            assert tracemalloc.get_traced_memory()[1] < 10 * 2**20
        finally:
            tracemalloc.stop()
        for asking in waiting:
            asking.cancel()

    on_stage(scene)


def test_the_origin_in_a_step_with_a_large_number_is_found_at_once(tmp_path: Path) -> None:
    writer, graph = DumpWriter(tmp_path), GraphWriter()
    graph.parameter("x").operator("Default/Add-op1", inputs=("x",))
    writer.graph(graph)
    for iteration, value in ((0, 1), (10**15, np.nan)):
        writer.tensor(iteration, "Add.Add-op1", np.array([value, 1], np.float32))
    (origin,) = origins(Analysis(open_dump(tmp_path)), (Anomaly.NAN,))
    assert origin.unseen == (1, 10**15 - 1)
