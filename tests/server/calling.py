"""Calls to the gRPC services, message by message, with our own messages: for tests of the service itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from tensight.graph.ms_graph_pb2 import GraphProto, NodeProto
from tensight.wire.debugger_pb2 import Chunk, EventReply, Metadata
from tensight.wire.telemetry_pb2 import PollReply

WITHIN_S = 30
STREAMED = ("SendGraph", "SendMultiGraphs", "SendTensors", "SendTensorBase", "SendTensorStats", "SendWatchpointHits")
SINGLE = ("WaitCMD", "SendMetadata", "SendHeartbeat")


class Caller:
    """Sends bytes, and returns replies.

    Parameters
    ----------
    channel : grpc.Channel
    metadata : tuple of pairs
        Sent with each call.
    """

    def __init__(self, channel: grpc.Channel, metadata: tuple[tuple[str, str], ...] = ()) -> None:
        self._channel = channel
        self._metadata = metadata

    def one(self, call: str, request: bytes, service: str = "debugger.EventListener") -> EventReply:
        """Make a call with one request."""
        return EventReply.FromString(
            self._channel.unary_unary(f"/{service}/{call}")(request, timeout=WITHIN_S, metadata=self._metadata)
        )

    def many(self, call: str, requests: Iterable[bytes], service: str = "debugger.EventListener") -> Any:
        """Make a call with a stream of requests; returns the reply's bytes."""
        streamed = self._channel.stream_unary(f"/{service}/{call}")
        return streamed(iter(requests), timeout=WITHIN_S, metadata=self._metadata)

    def poll(self) -> PollReply:
        """Ask as a process does that runs."""
        call = self._channel.unary_unary("/tensight.v1.Telemetry/Poll")
        return PollReply.FromString(call(b"", timeout=WITHIN_S, metadata=self._metadata))

    def attach(self, device: str) -> None:
        """Announce a process and send its graph, of one operator, so that it may ask for commands."""
        hello = Metadata(device_name=device.encode(), ms_version=b"2.0.0", backend=b"GPU", graph_num=1)
        assert self.one("SendMetadata", hello.SerializeToString()).version_matched
        node = NodeProto(name=b"1", op_type=b"ReLU", scope=b"Default", full_name=b"Default/ReLU-op1")
        graph = GraphProto(name=b"kernel_graph_0", root_name=b"0", node=[node]).SerializeToString()
        reply = self.many("SendGraph", [Chunk(buffer=graph, finished=True).SerializeToString()])
        assert EventReply.FromString(reply).status == EventReply.OK

    def wait_for_command(self, device: str) -> Any:
        """Begin a WaitCMD that stays open; returns the future."""
        request = Metadata(device_name=device.encode(), backend=b"GPU").SerializeToString()
        return self._channel.unary_unary("/debugger.EventListener/WaitCMD").future(
            request, timeout=WITHIN_S, metadata=self._metadata
        )


@contextmanager
def calling(
    address: str, *, token: str | None = None, credentials: grpc.ChannelCredentials | None = None, **options: Any
) -> Iterator[Caller]:
    """Connect to a server; the connection is this caller's own."""
    arguments = [("grpc.use_local_subchannel_pool", 1), *options.items()]
    if credentials is None:
        channel = grpc.insecure_channel(address, options=arguments)
    else:
        channel = grpc.secure_channel(address, credentials, options=arguments)
    with channel:
        yield Caller(channel, () if token is None else (("authorization", f"Bearer {token}"),))


def refused(call: Any, *arguments: Any, **named: Any) -> grpc.RpcError:
    """Return how a call was refused."""
    try:
        call(*arguments, **named)
    except grpc.RpcError as error:
        return error
    raise AssertionError("the call was answered")
