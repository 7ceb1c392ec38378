"""The gRPC services that training processes call: MindSpore's `debugger.EventListener`, and our `Telemetry`.

Messages arrive as bytes and are parsed here, so that invalid messages get a proper error and cannot break the call.
Pieces of tensors stay bytes, because parsing them would copy them.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, NoReturn, Protocol, TypeVar
from urllib.parse import unquote

import grpc
from google.protobuf.message import DecodeError, Message

from tensight.errors import TensightError
from tensight.server.tls import Tls
from tensight.sessions.live import Attachments, Caller
from tensight.wire import MAX_MESSAGE_BYTES, PROCESS_KEY_METADATA, TOKEN_METADATA
from tensight.wire.debugger_pb2 import Chunk, Heartbeat, Metadata, TensorBase, TensorSummary, WatchpointHit
from tensight.wire.telemetry_pb2 import PollRequest, StatisticsRows, ViewPiece

MOST_CALLS = 4096
"""Concurrent calls of all processes together; a process needs three or four."""
MOST_CALLS_OF_A_CONNECTION = 100
PING_EVERY_S = 10
PING_ANSWER_WITHIN_S = 10
"""MindSpore's client, while it computes without an open call, checks its connection only every five seconds."""
LONGEST_PROCESS_KEY = 200

AnyMessage = TypeVar("AnyMessage", bound=Message)
Parse = Callable[[bytes], Any]

logger = logging.getLogger(__name__)


class Call(Protocol):
    """The part of a call's context that is used here; gRPC's own types are not typed."""

    def invocation_metadata(self) -> Sequence[tuple[str, str | bytes]] | None: ...
    def peer(self) -> str: ...
    async def abort(self, code: grpc.StatusCode, details: str) -> NoReturn: ...


class UnparsableError(TensightError):
    """What a process sent is not a message of the protocol."""


def grpc_server(attachments: Attachments, token: str | None) -> grpc.aio.Server:
    """Return a gRPC server for training processes, without a port.

    Parameters
    ----------
    attachments : Attachments
        Handles the processes.
    token : str or None
        Token that each call must send as the metadata ``authorization: Bearer TOKEN``; None for no token.
    """
    service = DebuggerService(attachments, token)
    return grpc.aio.server(
        handlers=[
            grpc.method_handlers_generic_handler("debugger.EventListener", service.event_listener()),
            grpc.method_handlers_generic_handler("tensight.v1.Telemetry", service.telemetry()),
        ],
        options=[
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_concurrent_streams", MOST_CALLS_OF_A_CONNECTION),
            # Otherwise two servers could share a port unnoticed.
            ("grpc.so_reuseport", 0),
            # A machine that lost its network sends nothing; without pings its calls would wait forever.
            ("grpc.keepalive_time_ms", PING_EVERY_S * 1000),
            ("grpc.keepalive_timeout_ms", PING_ANSWER_WITHIN_S * 1000),
            # Newer releases wait for this timeout instead, a minute by default.
            ("grpc.http2.ping_timeout_ms", PING_ANSWER_WITHIN_S * 1000),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
        ],
        maximum_concurrent_rpcs=MOST_CALLS,
    )


def listen(server: grpc.aio.Server, address: str, tls: Tls | None) -> int | None:
    """Open a port for a server; return its number, or None on failure."""
    try:
        port: int = server.add_insecure_port(address) if tls is None else server.add_secure_port(address, tls.grpc)
    except RuntimeError:
        return None
    return port or None


class DebuggerService:
    """The calls: authenticates callers, and parses what they send.

    Parameters
    ----------
    attachments : Attachments
    token : str or None
    """

    def __init__(self, attachments: Attachments, token: str | None) -> None:
        self._attachments = attachments
        self._expected = None if token is None else f"Bearer {token}".encode()
        self._hints: set[asyncio.Task[None]] = set()

    def event_listener(self) -> dict[str, grpc.RpcMethodHandler]:
        """Return the calls of MindSpore's protocol."""
        to = self._attachments
        return {
            "WaitCMD": self._one(_parser(Metadata), to.wait_cmd),
            "SendMetadata": self._one(_parser(Metadata), to.send_metadata),
            "SendHeartbeat": self._one(_parser(Heartbeat), to.send_heartbeat),
            "SendGraph": self._many(_parser(Chunk), lambda caller, chunks: to.send_graph(caller, chunks, False)),
            "SendMultiGraphs": self._many(_parser(Chunk), lambda caller, chunks: to.send_graph(caller, chunks, True)),
            "SendTensors": self._many(bytes, to.send_tensors),
            "SendTensorBase": self._many(_parser(TensorBase), to.send_tensor_base),
            "SendTensorStats": self._many(_parser(TensorSummary), to.send_tensor_stats),
            "SendWatchpointHits": self._many(_parser(WatchpointHit), to.send_watchpoint_hits),
        }

    def telemetry(self) -> dict[str, grpc.RpcMethodHandler]:
        """Return the calls that only our agents make."""
        to = self._attachments
        return {
            "SendStatistics": self._many(_parser(StatisticsRows), to.send_statistics),
            "SendViews": self._many(_parser(ViewPiece), to.send_views),
            "Poll": self._one(_parser(PollRequest), to.poll),
        }

    def _one(self, parse: Parse, answer: Callable[[Caller, Any], Awaitable[Message]]) -> grpc.RpcMethodHandler:
        async def call(request: bytes, context: Call) -> Message:
            caller = await self._admit(context)
            try:
                message = parse(request)
            except UnparsableError as error:
                await _refuse(context, error)
            return await self._answered(caller, context, answer(caller, message))

        return grpc.unary_unary_rpc_method_handler(call, response_serializer=_serialized)

    def _many(
        self, parse: Parse, answer: Callable[[Caller, AsyncIterator[Any]], Awaitable[Message]]
    ) -> grpc.RpcMethodHandler:
        async def call(requests: AsyncIterator[bytes], context: Call) -> Message:
            caller = await self._admit(context)
            messages = _Messages(requests, parse)
            reply = await self._answered(caller, context, answer(caller, messages))
            if messages.error is not None:
                await _refuse(context, messages.error)
            return reply

        return grpc.stream_unary_rpc_method_handler(call, response_serializer=_serialized)

    async def _admit(self, context: Call) -> Caller:
        """Return the caller; abort the call if it does not present the token."""
        metadata = {str(key): value for key, value in context.invocation_metadata() or ()}
        peer = unquote(str(context.peer()))
        if self._expected is not None:
            shown = metadata.get(TOKEN_METADATA, "")
            if not hmac.compare_digest(shown.encode() if isinstance(shown, str) else shown, self._expected):
                which = "with a wrong access token" if shown else "without the access token"
                logger.warning("a call %s was refused", which, extra={"peer": peer})
                problem = (
                    "the access token is not that of this server"
                    if shown
                    else f"this server needs its access token, as the call's metadata {TOKEN_METADATA}: Bearer TOKEN"
                )
                await context.abort(grpc.StatusCode.UNAUTHENTICATED, problem)
        key = metadata.get(PROCESS_KEY_METADATA, "")
        return Caller(peer=peer, process_key=key[:LONGEST_PROCESS_KEY] if isinstance(key, str) else "")

    async def _answered(self, caller: Caller, context: Call, answer: Awaitable[Message]) -> Message:
        try:
            return await answer
        except asyncio.CancelledError:
            # The connection broke, or the process gave up; it may never call again.
            hint = asyncio.ensure_future(self._attachments.disconnected(caller))
            self._hints.add(hint)
            hint.add_done_callback(self._hints.discard)
            raise
        except UnparsableError as error:
            await _refuse(context, error)
        except Exception:
            logger.exception("a call failed", extra={"peer": caller.peer})
            await context.abort(grpc.StatusCode.INTERNAL, "the debug server failed; see its log for the reason")


class _Messages:
    """The messages of a stream; remembers an invalid one, because the reader may not pass the error on."""

    def __init__(self, requests: AsyncIterator[bytes], parse: Parse) -> None:
        self._requests = requests.__aiter__()
        self._parse = parse
        self.error: UnparsableError | None = None

    def __aiter__(self) -> _Messages:
        return self

    async def __anext__(self) -> Any:
        request = await self._requests.__anext__()
        try:
            return self._parse(request)
        except UnparsableError as error:
            self.error = error
            raise


def _parser(kind: type[AnyMessage]) -> Callable[[bytes], AnyMessage]:
    def parse(request: bytes) -> AnyMessage:
        try:
            return kind.FromString(request)
        except DecodeError:
            raise UnparsableError(f"{len(request)} bytes that are not a message {kind.DESCRIPTOR.full_name}") from None

    return parse


def _serialized(reply: Message) -> bytes:
    return reply.SerializeToString()


async def _refuse(context: Call, error: UnparsableError) -> NoReturn:
    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
    raise AssertionError("abort always raises")


__all__: Sequence[str] = ("DebuggerService", "UnparsableError", "grpc_server", "listen")
