"""Values of attached processes: asked for while they stand still, kept on disk, looked at ever after."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tensight import wire
from tensight.graph import TensorAddress
from tensight.sessions.errors import LimitError, NotFoundError, StateError, StorageError, UnavailableError
from tensight.sessions.live.session import LiveSession
from tensight.sessions.records import State
from tensight.tensors import View, statistics
from tensight.wire import debugger_pb2 as pb
from tests.sessions.live_stage import (
    CONV,
    GRAPH,
    RELU,
    WEIGHT,
    OldProcess,
    Play,
    Stage,
    command,
    kind,
    network,
    stream,
    value_pieces,
)

VALUE = np.array([[1.5, -2, np.nan, 4]], np.float32)


def at(node: str, iteration: int, slot: int = 0, **more: Any) -> TensorAddress:
    return TensorAddress(0, GRAPH, node, slot, iteration, **more)


async def paused(stage: Stage, step: int = 3, **options: Any) -> tuple[OldProcess, LiveSession, asyncio.Task[Any]]:
    process = stage.process(**options)
    session = await process.attach()
    return process, session, await process.stand(step)


async def fetched(
    process: OldProcess, session: LiveSession, asking: asyncio.Task[Any], address: TensorAddress, array: Any
) -> tuple[np.ndarray[Any, Any], asyncio.Task[Any]]:
    """Ask for a value, let the process send it, and let it wait again."""
    step = session.step
    value = asyncio.create_task(session.value(address))
    node = address.node + (":prev" if address.iteration == step - 2 else "")
    await process.answer(await asking, {node: array})
    return await value, await process.stand(step)


@pytest.mark.parametrize(
    "array",
    [
        VALUE,
        np.array(7, np.int64),
        np.zeros((0, 3), np.float16),
        np.array([True, False]),
        np.array([1.5, -3], ml_dtypes.bfloat16),
        np.array([1.5, -3], ml_dtypes.float8_e4m3fn),
        np.array([1.5, -3], ml_dtypes.float8_e5m2),
        np.arange(24, dtype=np.uint8).reshape(2, 3, 4),
    ],
    ids=lambda array: f"{array.dtype} {array.shape}",
)
def test_a_value_arrives_bit_by_bit_as_it_was_sent(on_stage: Play, array: np.ndarray[Any, Any]) -> None:
    async def scene(stage: Stage) -> None:
        process, session, asking = await paused(stage)
        value, _ = await fetched(process, session, asking, at(CONV, 2), array)
        assert (value.dtype, value.shape, value.tobytes()) == (array.dtype, array.shape, array.tobytes())
        assert not value.flags.writeable
        assert session.state is State.PAUSED
        # From now on it is here.
        again = await session.value(at(CONV, 2))
        assert again.tobytes() == array.tobytes()

    on_stage(scene)


def test_a_tensor_is_asked_for_by_the_name_that_the_process_knows(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process, session, asking = await paused(stage)
        everything = {WEIGHT: VALUE, f"{WEIGHT}:prev": VALUE + 1, CONV: VALUE, "Default--data-3": np.ones(2)}
        expected = {
            at(WEIGHT, 2): ((WEIGHT, "0", "", True), VALUE),
            at(WEIGHT, 1): ((WEIGHT, "0", "prev", True), VALUE + 1),
            at(CONV, 2): ((CONV, "0", "", False), VALUE),
            at("Default--data-3", 2): (("Default--data-3", "0", "", True), np.ones(2)),
        }
        for address, (name, array) in expected.items():
            value = asyncio.create_task(session.value(address))
            reply = await asking
            (asked,) = reply.view_cmd.tensors
            assert (asked.node_name.decode(), asked.slot.decode(), asked.iter.decode(), asked.truncate) == name
            await process.answer(reply, everything)
            np.testing.assert_array_equal(await value, array)
            asking = await process.stand(3)

    on_stage(scene)


def test_statistics_are_no_answer_to_a_request_for_a_value(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process, session, asking = await paused(stage)
        value = asyncio.create_task(session.value(at(CONV, 2)))
        reply = await asking
        summary = wire.summary_of(statistics(VALUE))
        await stage.attachments.send_tensor_stats(process.caller, stream([summary]))
        await stage.attachments.send_tensor_base(process.caller, stream([summary.tensor_base]))
        await process.answer(reply, {CONV: VALUE})
        np.testing.assert_array_equal(await value, VALUE)

    on_stage(scene)


def test_questions_of_many_people_travel_together_and_equal_ones_once(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process, session, asking = await paused(stage)
        first = asyncio.create_task(session.value(at(CONV, 2)))
        reply = await asking
        others = [asyncio.create_task(session.value(at(node, 2))) for node in (RELU, WEIGHT, RELU, CONV, RELU)]
        await process.answer(reply, {CONV: VALUE})
        await first
        reply = await process.ask(3)
        assert [one.node_name.decode() for one in reply.view_cmd.tensors] == [RELU, WEIGHT]
        await process.answer(reply, {RELU: VALUE, WEIGHT: VALUE})
        assert [value.shape for value in await asyncio.gather(*others)] == [(1, 4)] * 5

    on_stage(scene)


def test_a_value_that_the_process_does_not_have_is_not_kept(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process, session, asking = await paused(stage)
        value = asyncio.create_task(session.value(at(CONV, 2)))
        await process.answer(await asking, {})
        with pytest.raises(UnavailableError, match="no value"):
            await value
        assert session.events.after(0).events[-1].data["status"] == "not_kept"
        await process.stand(3)

    on_stage(scene)


def test_values_can_only_be_asked_for_while_the_training_stands_still(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process, session, asking = await paused(stage)
        with pytest.raises(UnavailableError, match="not kept"):
            await session.value(at(CONV, 0))
        with pytest.raises(UnavailableError, match="not kept"):
            await session.value(at(CONV, 1))
        with pytest.raises(UnavailableError, match="not kept"):
            await session.value(at(CONV, 9))
        await command(session, "continue")
        await asking
        with pytest.raises(StateError, match="running"):
            await session.value(at(CONV, 2))
        await process.done()
        with pytest.raises(UnavailableError, match="ended"):
            await session.value(at(CONV, 2))

    on_stage(scene)


def test_tensors_that_do_not_exist_are_not_found(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        _, session, _ = await paused(stage)
        for wrong in (
            at("no/node", 2),
            at(CONV, 2, slot=5),
            at(CONV, 2, slot=5, io="input"),
            TensorAddress(7, GRAPH, CONV, 0, 2),
            TensorAddress(0, "no_graph", CONV, 0, 2),
        ):
            with pytest.raises(NotFoundError):
                await session.value(wrong)
            assert wrong.rank == 7 or session.previous(wrong) is None

    on_stage(scene)


def test_previous_values_are_those_of_parameters(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process, session, asking = await paused(stage, step=1)
        assert session.previous(at(WEIGHT, 0)) == at(WEIGHT, -1)
        assert session.previous(at(CONV, 0)) is None
        assert session.previous(at(WEIGHT, -1)) is None
        assert session.previous(at("Default--data-3", 0)) is None
        value, asking = await fetched(process, session, asking, at(WEIGHT, -1), VALUE)
        assert value.tobytes() == VALUE.tobytes()
        _, asking = await fetched(process, session, asking, at(CONV, 0), VALUE)
        await command(session, "continue", steps=1)
        assert kind(await asking) == "run step 1"
        asking = await process.stand(2)
        # What was looked at in the step before is still here, so that both can be compared.
        assert session.previous(at(CONV, 1)) == at(CONV, 0)
        comparing = asyncio.create_task(session.view(at(CONV, 1), View("values"), "difference"))
        await process.answer(await asking, {CONV: VALUE + 1})
        result = await comparing
        assert result.array is not None
        np.testing.assert_array_equal(result.array, [[1, 1, np.nan, 1]])

    on_stage(scene)


def test_a_command_before_the_answer_fails_the_question(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process, session, asking = await paused(stage)
        value = asyncio.create_task(session.value(at(CONV, 2)))
        assert kind(await asking) == "view value"
        asking = process.ask(3)
        with pytest.raises(UnavailableError, match="without an answer"):
            await value
        # It can be asked again.
        again = asyncio.create_task(session.value(at(CONV, 2)))
        await process.answer(await asking, {CONV: VALUE})
        assert (await again).shape == (1, 4)

    on_stage(scene)


def test_a_command_does_not_wait_for_questions(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process, session, asking = await paused(stage)
        first = asyncio.create_task(session.value(at(CONV, 2)))
        reply = await asking
        second = asyncio.create_task(session.value(at(RELU, 2)))
        await asyncio.sleep(0)
        assert (await command(session, "continue")).state is State.SENDING
        with pytest.raises(StateError, match="goes on"):
            await second
        await process.answer(reply, {CONV: VALUE})
        assert (await first).shape == (1, 4)
        assert await process.told(3) == "run step 1"

    on_stage(scene)


def test_a_silent_process_fails_the_question_but_a_late_answer_is_kept(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process, session, asking = await paused(stage)
        value = asyncio.create_task(session.value(at(CONV, 2)))
        reply = await asking
        with pytest.raises(UnavailableError, match="did not answer in"):
            await value
        await process.answer(reply, {CONV: VALUE})
        assert (await session.value(at(CONV, 2))).tobytes() == VALUE.tobytes()

    on_stage(scene, answer_within_s=0.05)


def test_a_stream_that_breaks_off_leaves_nothing(on_stage: Play, tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        process, session, asking = await paused(stage)
        value = asyncio.create_task(session.value(at(CONV, 2)))
        reply = await asking
        pieces = value_pieces(reply.view_cmd.tensors[0], VALUE, 4)
        begun = asyncio.Event()

        async def breaking() -> Any:
            yield pieces[0]
            begun.set()
            await asyncio.Event().wait()

        call = asyncio.create_task(process.calls.send_tensors(process.caller, breaking()))
        await begun.wait()
        call.cancel()
        with pytest.raises(UnavailableError):
            await value
        asking = await process.stand(3)
        value = asyncio.create_task(session.value(at(CONV, 2)))
        await process.answer(await asking, {CONV: VALUE})
        await value
        await stage.close()
        assert list((tmp_path / "runs" / "1" / "arriving").iterdir()) == []

    on_stage(scene)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda pieces: pieces[:1] + [pieces[0]] * 9, "more bytes"),
        (lambda pieces: [*pieces[:1], pieces[-1]], "before its end"),
        (lambda pieces: [pieces[0], b"\xff\xff"], "not a piece of a tensor"),
        (lambda pieces: [pieces[0], _with(pieces[1], dims=[2, 2])], "different types or shapes"),
        (lambda pieces: [pieces[0], _with(pieces[1], node_name=b"another")], "another tensor follows"),
        (lambda pieces: [_with(pieces[0], dims=[-4])], "negative"),
        (lambda pieces: [_with(pieces[0], data_type=13)], "not shown"),
        (lambda pieces: [_with(pieces[0], dims=[1] * 33)], "33 dimensions"),
    ],
)
def test_tensors_that_make_no_sense_are_refused_in_words(on_stage: Play, spoil: Any, message: str) -> None:
    async def scene(stage: Stage) -> None:
        process, session, asking = await paused(stage)
        value = asyncio.create_task(session.value(at(CONV, 2)))
        reply = await asking
        pieces = spoil(value_pieces(reply.view_cmd.tensors[0], VALUE, 4))
        answer = await process.calls.send_tensors(process.caller, stream(pieces))
        assert kind(answer) == "failed"
        assert message.encode() in answer.message
        await process.stand(3)
        with pytest.raises((UnavailableError, wire.WireError)):
            await value
        # The session lives on.
        asking = process.ask(3)
        value = asyncio.create_task(session.value(at(CONV, 2)))
        await process.answer(await asking, {CONV: VALUE})
        assert (await value).shape == (1, 4)

    on_stage(scene)


def _with(raw: bytes, **changed: Any) -> bytes:
    message = pb.TensorProto.FromString(raw)
    for name, field in changed.items():
        if name == "dims":
            del message.dims[:]
            message.dims.extend(field)
        else:
            setattr(message, name, field)
    return message.SerializeToString()


def test_only_so_many_bytes_are_kept_and_the_oldest_go_first(on_stage: Play, tmp_path: Path) -> None:
    async def scene(stage: Stage) -> None:
        process, session, asking = await paused(stage)
        array = np.arange(250, dtype=np.float32)
        opened = []
        for node in (CONV, RELU, WEIGHT):
            value, asking = await fetched(process, session, asking, at(node, 2), array)
            opened.append(value)
        # A map of a file that is gone can still be read.
        assert all(value.tobytes() == array.tobytes() for value in opened)
        files = list((tmp_path / "runs" / "1" / "dump").rglob("*.npy"))
        assert len(files) == 2
        record = next(one for one in await _tensors(process, session, RELU) if one.io == "output")
        assert record.status == "available"
        with pytest.raises(LimitError, match="may keep"):
            await fetched(process, session, process.ask(3), at("inputs0", 2), np.zeros(1000, np.float32))

    async def _tensors(process: OldProcess, session: LiveSession, node: str) -> Any:
        asking = asyncio.create_task(session.tensors_of(0, GRAPH, node))
        reply = await process.ask(3)
        await process.answer(reply, {})
        return await asking

    on_stage(scene, kept_bytes=2500)


def test_a_disk_without_space_fails_the_request_and_nothing_else(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process, session, asking = await paused(stage)
        value = asyncio.create_task(session.value(at(CONV, 2)))
        huge = pb.TensorProto.FromString(value_pieces((await asking).view_cmd.tensors[0], VALUE)[0])
        del huge.dims[:]
        huge.dims.extend([2**47, 4])
        pieces = [huge.SerializeToString()] * 3
        answer = await process.calls.send_tensors(process.caller, stream(pieces))
        assert kind(answer) == "failed"
        with pytest.raises(StorageError, match="space"):
            await value
        await process.stand(3)

    on_stage(scene, kept_bytes=2**60)


def test_inputs_and_outputs_of_a_node_are_told_with_statistics(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process, session, asking = await paused(stage)
        records = asyncio.create_task(session.tensors_of(0, GRAPH, CONV))
        reply = await asking
        assert kind(reply) == "view statistics"
        asked = [one.node_name.decode() for one in reply.view_cmd.tensors]
        assert asked == ["inputs0", WEIGHT, CONV]
        await process.answer(reply, {WEIGHT: VALUE, CONV: np.array(2.5, np.float32)})
        first, second, output = await records
        assert (first.io, first.address, first.status) == ("input", str(at(CONV, 2, io="input")), "not_kept")
        assert (second.type, second.status, second.shape) == ("Parameter", "at_source", (1, 4))
        assert second.has_previous
        assert second.statistics is not None
        assert (second.statistics.nan_count, second.statistics.max, second.statistics.partial) == (1, 4, True)
        assert (output.scalar, output.dtype, output.has_previous) == ("2.5", "float32", False)
        # What is known is not asked again, and stays known.
        process.ask(3)
        assert (await session.tensors_of(0, GRAPH, CONV))[2].statistics == output.statistics
        history = await session.statistics_over_steps(at(CONV, 2))
        assert [(row.step, row.statistics.max) for row in history] == [(3, 2.5)]
        page = await session.statistics_table(sort="max", descending=True)
        assert [row.node for row in page.rows] == [WEIGHT, CONV]
        assert session.capabilities().has_statistics_table

    on_stage(scene)


def test_statistics_of_a_value_that_is_here_are_complete(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process, session, asking = await paused(stage)
        _, asking = await fetched(process, session, asking, at(RELU, 2), VALUE)
        records = asyncio.create_task(session.tensors_of(0, GRAPH, RELU))
        await process.answer(await asking, {})
        _, output = await records
        assert output.status == "available"
        assert output.statistics is not None
        assert not output.statistics.partial
        assert output.statistics.abs_mean == 2.5
        assert output.statistics.content_hash

    on_stage(scene)


def test_the_oldest_clients_answer_with_values_whatever_they_are_asked(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process, session, asking = await paused(stage)
        records = asyncio.create_task(session.tensors_of(0, GRAPH, RELU))
        reply = await asking
        pieces = [piece for one in reply.view_cmd.tensors for piece in value_pieces(one, VALUE)]
        await process.calls.send_tensors(process.caller, stream(pieces))
        assert [record.statistics.count for record in await records if record.statistics] == [4, 4]
        # They are not asked for statistics again.
        await process.stand(3)
        records = asyncio.create_task(session.tensors_of(0, GRAPH, CONV))
        assert [record.status for record in await records] == ["at_source", "at_source", "available"]

    on_stage(scene)


def test_a_base_is_enough_to_know_type_and_shape(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process, session, asking = await paused(stage)
        records = asyncio.create_task(session.tensors_of(0, GRAPH, WEIGHT))
        await asking
        base = pb.TensorBase(data_type=11, shape=[2, 3], data_size=24)
        assert kind(await process.calls.send_tensor_base(process.caller, stream([base, base]))) == "nothing"
        (record,) = await records
        assert (record.dtype, record.shape, record.size_bytes, record.status) == ("float32", (2, 3), 24, "at_source")

    on_stage(scene)


def test_tensors_that_nobody_asked_for_are_kept_if_their_node_is_known(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process, session, _ = await paused(stage)
        pieces = [
            piece
            for node in (RELU, "no/such/node")
            for piece in value_pieces(pb.TensorProto(node_name=node.encode(), slot=b"0"), VALUE)
        ]
        assert kind(await process.calls.send_tensors(process.caller, stream(pieces))) == "nothing"
        assert (await session.value(at(RELU, 2))).tobytes() == VALUE.tobytes()

    on_stage(scene)


def test_parameters_of_one_name_in_several_graphs_are_asked_for_once(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        session = await process.attach(network(), network("kernel_graph_1", "1"))
        asking = await process.stand(3)
        values = [
            asyncio.create_task(session.value(TensorAddress(0, graph, WEIGHT, 0, 2)))
            for graph in ("kernel_graph_0", "kernel_graph_1")
        ]
        reply = await asking
        assert len(reply.view_cmd.tensors) == 1
        await process.answer(reply, {WEIGHT: VALUE})
        assert [value.tobytes() for value in await asyncio.gather(*values)] == [VALUE.tobytes()] * 2

    on_stage(scene)


def test_large_tensors_pass_through_without_staying_in_memory(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process, session, asking = await paused(stage)
        value = asyncio.create_task(session.value(at(CONV, 2)))
        asked = (await asking).view_cmd.tensors[0]
        piece = np.random.default_rng(0).bytes(3 * 2**20)
        count = 40

        async def pieces() -> Any:
            for number in range(count):
                yield pb.TensorProto(
                    node_name=asked.node_name,
                    slot=asked.slot,
                    dims=[count, 3, 2**18],
                    data_type=11,
                    tensor_content=piece,
                    finished=number == count - 1,
                ).SerializeToString()

        before = _resident_bytes()
        assert kind(await process.calls.send_tensors(process.caller, pieces())) == "nothing"
        assert _resident_bytes() - before < 80 * 2**20
        array = await value
        assert array.shape == (count, 3, 2**18)
        assert array[17].tobytes() == piece

    on_stage(scene)


def _resident_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) * 1024
