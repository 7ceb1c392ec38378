"""A training process gets from our server the replies that the original's gave (recorded by record_protocol.py)."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import grpc
from protocol_conversation import Conversation, TensightControl, as_dictionary

from tensight.wire import debugger_pb2
from tests.server.running import running_server

HERE = Path(__file__).parent
GOLDEN = json.loads(gzip.decompress((HERE / "golden" / "protocol.json.gz").read_bytes()))
UNARY = ("WaitCMD", "SendMetadata", "SendHeartbeat")


class RecordedProcess:
    """Sends the bytes that the original's stubs made."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel

    def call(self, rpc: str, what: str, times: int = 1) -> dict[str, Any]:
        sent = [base64.b64decode(one) for one in GOLDEN["requests"][what]] * times
        path = f"/debugger.EventListener/{rpc}"
        if rpc in UNARY:
            reply = self._channel.unary_unary(path)(sent[0], timeout=60)
        else:
            reply = self._channel.stream_unary(path)(iter(sent), timeout=60)
        return as_dictionary(debugger_pb2.EventReply.FromString(reply))


def test_the_replies_are_those_of_the_original(tmp_path: Path) -> None:
    with running_server(tmp_path / "workspace") as server, grpc.insecure_channel(server.debugger) as channel:
        control = TensightControl(server.url)
        said = Conversation(RecordedProcess(channel), control, GOLDEN["facts"]).run()
    assert said == GOLDEN["said"]
