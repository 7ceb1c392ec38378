"""A debug server that speaks MindSpore's protocol and nothing else, as the original does: it has no `Telemetry`.

It obeys a script: replies to WaitCMD one after the other, and notes every call. Messages are parsed without the fields
that only Tensight knows, as the original would.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import grpc

from tensight.wire.debugger_pb2 import EventReply
from tests.standin.mindspore_messages import CALLS, messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from google.protobuf.message import Message


class OldServer:
    """A server on a free port.

    Parameters
    ----------
    version : str
        Of itself; before 2.0 a process must have the same major and minor version, since then it may be newer.
    """

    def __init__(self, version: str = "2.0.0") -> None:
        self.version = tuple(map(int, version.split(".")[:2]))
        self.calls: list[tuple[str, list[Any]]] = []
        self.unknown_fields: list[str] = []
        self._commands: list[EventReply] = []
        self._changed = threading.Condition()
        self._server = grpc.server(ThreadPoolExecutor(10), options=[("grpc.so_reuseport", 0)])
        handlers = {name: self._handler(name, *CALLS[name]) for name in CALLS}
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("debugger.EventListener", handlers),)
        )
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    def __enter__(self) -> OldServer:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._commands.append(EventReply(status=EventReply.FAILED))
            self._changed.notify_all()
        self._server.stop(0).wait()

    def command(self, *replies: EventReply) -> None:
        """Reply so to the next requests for a command."""
        with self._changed:
            self._commands += replies
            self._changed.notify_all()

    def wait_for(self, name: str, count: int = 1, timeout_s: float = 30) -> list[Any]:
        """Wait until there were so many calls of a name, and return the messages of the last."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.named(name)) >= count, timeout_s), (name, self.names)
            return self.named(name)[-1]

    def named(self, name: str) -> list[list[Any]]:
        return [sent for called, sent in self.calls if called == name]

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.calls]

    def _handler(self, name: str, request: str, streams: bool) -> grpc.RpcMethodHandler:
        kind: Callable[[bytes], Message] = getattr(messages, request).FromString
        make = grpc.stream_unary_rpc_method_handler if streams else grpc.unary_unary_rpc_method_handler

        def answer(received: Any, _context: Any) -> EventReply:
            sent = list(received) if streams else [received]
            for message in sent:
                if message.ByteSize() != (message.DiscardUnknownFields(), message.ByteSize())[1]:
                    self.unknown_fields.append(name)
            with self._changed:
                self.calls.append((name, sent))
                self._changed.notify_all()
            return getattr(self, f"_{name}", self._ok)(sent)

        handler: grpc.RpcMethodHandler = make(
            answer, request_deserializer=kind, response_serializer=EventReply.SerializeToString
        )
        return handler

    def _ok(self, _: list[Any]) -> EventReply:
        return EventReply()

    def _SendMetadata(self, sent: list[Any]) -> EventReply:  # noqa: N802 - the call's name
        if sent[0].training_done:
            return EventReply()
        theirs = tuple(map(int, sent[0].ms_version.split(".")[:2]))
        newer = self.version[0] >= 2 and theirs[0] == self.version[0] and theirs > self.version
        return EventReply(version_matched=theirs == self.version or newer)

    def _WaitCMD(self, _: list[Any]) -> EventReply:  # noqa: N802 - the call's name
        with self._changed:
            self._changed.wait_for(lambda: self._commands)
            return self._commands.pop(0)

    def told(self) -> Iterator[str]:
        """Yield the calls without heartbeats."""
        return (name for name in self.names if name != "SendHeartbeat")
