"""What the gRPC service does with calls before they mean anything: who may call, what is a message, what is too big."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
import httpx
import pytest

from tensight.wire import MAX_MESSAGE_BYTES
from tensight.wire.debugger_pb2 import Chunk, EventReply, Heartbeat, Metadata, TensorProto
from tensight.wire.telemetry_pb2 import PollReply, Receipt
from tests.server.calling import SINGLE, STREAMED, Caller, calling, refused
from tests.server.running import RunningServer, running_server

NO_MESSAGE = b"\xff" * 20


@pytest.fixture
def caller(debug_server: RunningServer) -> Iterator[Caller]:
    assert debug_server.debugger
    with calling(debug_server.debugger) as caller:
        yield caller


def metadata(device: str, **fields: object) -> bytes:
    return Metadata(device_name=device.encode(), ms_version=b"2.0.0", graph_num=1, **fields).SerializeToString()


def test_every_call_of_the_protocol_is_there(caller: Caller) -> None:
    for call in SINGLE:
        if call != "WaitCMD":
            assert isinstance(caller.one(call, metadata("90:0")), EventReply)
    for call in STREAMED:
        assert isinstance(EventReply.FromString(caller.many(call, [])), EventReply)
    for call in ("SendStatistics", "SendViews"):
        assert isinstance(Receipt.FromString(caller.many(call, [], "tensight.v1.Telemetry")), Receipt)
    assert isinstance(caller.poll(), PollReply)


def test_who_asks_and_was_never_heard_of_is_told_so(debug_server: RunningServer) -> None:
    with calling(debug_server.debugger) as stranger:
        assert stranger.poll() == PollReply(unknown=True)


def test_another_call_is_not_implemented(caller: Caller) -> None:
    assert refused(caller.one, "SendLove", b"").code() == grpc.StatusCode.UNIMPLEMENTED
    assert refused(caller.one, "WaitCMD", b"", "debugger.Other").code() == grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("call", SINGLE)
def test_bytes_that_are_no_message_are_refused(caller: Caller, call: str) -> None:
    error = refused(caller.one, call, NO_MESSAGE)
    kind = "Heartbeat" if call == "SendHeartbeat" else "Metadata"
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert error.details() == f"20 bytes that are not a message debugger.{kind}"


@pytest.mark.parametrize("call", [call for call in STREAMED if call != "SendTensors"])
def test_bytes_that_are_no_message_end_a_stream(caller: Caller, call: str) -> None:
    caller.one("SendMetadata", metadata("91:0"))
    error = refused(caller.many, call, [b"", NO_MESSAGE, b""])
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "20 bytes that are not a message debugger." in error.details()


def test_a_piece_of_a_tensor_that_is_none_is_answered_as_failed(caller: Caller) -> None:
    caller.one("SendMetadata", metadata("92:0"))
    assert EventReply.FromString(caller.many("SendTensors", [NO_MESSAGE])).status == EventReply.FAILED


def test_a_message_that_is_too_large_is_refused_and_the_connection_lives_on(caller: Caller) -> None:
    large = Chunk(buffer=b"x" * MAX_MESSAGE_BYTES).SerializeToString()
    error = refused(caller.many, "SendGraph", [large])
    assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert caller.one("SendHeartbeat", Heartbeat(period=30).SerializeToString())


def test_a_process_that_calls_without_end_takes_no_place_from_others(debug_server: RunningServer) -> None:
    assert debug_server.debugger
    with calling(debug_server.debugger) as greedy, calling(debug_server.debugger) as other:
        greedy.one("SendMetadata", metadata("93:0"))
        waiting = [greedy.wait_for_command("93:0") for _ in range(300)]
        assert other.one("SendMetadata", metadata("94:0")).version_matched
        for call in waiting:
            call.cancel()


def test_a_stream_that_breaks_off_leaves_the_server_answering(debug_server: RunningServer) -> None:
    assert debug_server.debugger
    begun, go_on = threading.Event(), threading.Event()

    def pieces() -> Iterator[bytes]:
        yield TensorProto(node_name=b"n", slot=b"0", dims=[1000], data_type=11).SerializeToString()
        begun.set()
        go_on.wait(30)

    with calling(debug_server.debugger) as caller:
        caller.one("SendMetadata", metadata("95:0"))
        sender = threading.Thread(target=lambda: refused(caller.many, "SendTensors", pieces()))
        sender.start()
        assert begun.wait(30)
    go_on.set()
    sender.join(30)
    with calling(debug_server.debugger) as caller:
        assert caller.one("SendMetadata", metadata("95:0")).version_matched


def test_without_the_token_no_call_is_answered(tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    with running_server(tmp_path / "w", "--token-file", str(token_file)) as server:
        assert server.debugger
        token = token_file.read_text().strip()
        for wrong in (None, "", token[:-1], f"{token}x"):
            with calling(server.debugger, token=wrong) as caller:
                for call in SINGLE:
                    assert refused(caller.one, call, b"").code() == grpc.StatusCode.UNAUTHENTICATED
                for call in STREAMED:
                    assert refused(caller.many, call, [b""] * 3).code() == grpc.StatusCode.UNAUTHENTICATED
                error = refused(caller.one, "Poll", b"", "tensight.v1.Telemetry")
                assert error.code() == grpc.StatusCode.UNAUTHENTICATED
                problem = "needs its access token" if wrong is None else "is not that of this server"
                assert problem in error.details()
        with calling(server.debugger, token=token) as caller:
            assert caller.one("SendMetadata", metadata("0:0")).version_matched
        assert httpx.get(f"{server.url}/api/v1/sessions").status_code == 401
        known = httpx.get(f"{server.url}/api/v1/sessions", headers={"Authorization": f"Bearer {token}"})
        assert len(known.json()) == 1
        assert "a call without the access token was refused" in server.errors
        assert "a call with a wrong access token was refused" in server.errors
        assert token not in server.errors
