"""The calls of an old MindSpore process: synchronous, each message written to the timeline."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import grpc

from tests.standin.mindspore_checks import statistics
from tests.standin.mindspore_messages import CALLS, CHUNK_BYTES, LEVEL_NAME, SERVICE, STATUS, messages
from tests.standin.mindspore_network import Array, BigTensor, data_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tests.standin.mindspore_checks import Outcome, Watchpoint
    from tests.standin.mindspore_timeline import Timeline

# How often gRPC tries to connect anew is none of the protocol's business; soon, so that tests need not wait.
RECONNECT = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 500)]


def failed_reply() -> Any:
    return messages.EventReply(status=STATUS["FAILED"])


def describe(reply: Any) -> tuple[str, dict[str, Any]]:
    """Return a reply in a few words, and its details."""
    if reply.status != STATUS["OK"]:
        return next(name for name, number in STATUS.items() if number == reply.status), {}
    kind = reply.WhichOneof("cmd")
    if kind is None:
        return "OK", {}
    command = getattr(reply, kind)
    if kind in ("exit", "version_matched"):
        return f"{kind} {str(command).lower()}", {}
    if kind == "run_cmd":
        return " ".join(["run_cmd", command.run_level, str(command.run_steps or command.node_name)]).strip(), {}
    if kind == "view_cmd":
        asked = [f"{each.node_name}:{each.slot}" + (f":{each.iter}" if each.iter else "") for each in command.tensors]
        return f"view_cmd {LEVEL_NAME[command.level]}", {"tensors": asked}
    if command.delete:
        return f"set_cmd delete {command.id}", {}
    condition = command.watch_condition
    return f"set_cmd {command.id}", {
        "condition": condition.condition,
        "value": condition.value,
        "parameters": [[each.name, each.disabled, each.value] for each in condition.params],
        "nodes": [each.node_name for each in command.watch_nodes],
        "types": [each.node_type for each in command.watch_nodes],
    }


class Link:
    """One channel to the debug server."""

    def __init__(
        self,
        address: str,
        timeline: Timeline,
        *,
        key: str = "",
        encode: Callable[[Any], bytes] = lambda message: message.SerializeToString(),
    ) -> None:
        self._timeline = timeline
        self._channel = grpc.insecure_channel(address, options=RECONNECT)
        self.has_key = bool(key)
        self._metadata = (("tensight-process", key),) if key else ()
        self._calls = {}
        for name, (_, streams) in CALLS.items():
            make = self._channel.stream_unary if streams else self._channel.unary_unary
            self._calls[name] = make(
                f"/{SERVICE}/{name}",
                request_serializer=encode if name == "SendMetadata" else lambda message: message.SerializeToString(),
                response_deserializer=messages.EventReply.FromString,
            )

    def call(self, name: str, request: Any, *, note: str = "", **details: Any) -> Any:
        """Send a message, or several as a stream, and return the reply; a broken call counts as FAILED."""
        self._timeline.place(f"before {name}")
        self._timeline.add(f"> {name} {note}".strip(), **details)
        try:
            reply = self._calls[name](request, metadata=self._metadata)
        except grpc.RpcError as error:
            self._timeline.add(f"< {name} broken", code=error.code().name, details=error.details())
            return failed_reply()
        words, more = describe(reply)
        self._timeline.add(f"< {name} {words}", **more)
        self._timeline.place(f"after {name}")
        return reply

    def stream(self, name: str, pieces: Iterable[Any], **options: Any) -> Any:
        return self.call(name, self._held(name, pieces), **options)

    def _held(self, name: str, pieces: Iterable[Any]) -> Iterator[Any]:
        for piece in pieces:
            yield piece
            self._timeline.place(f"in {name}")

    def close(self) -> None:
        self._channel.close()


def in_chunks(data: bytes) -> Iterator[bytes]:
    for start in range(0, max(len(data), 1), CHUNK_BYTES):
        yield data[start : start + CHUNK_BYTES]


def graph_chunks(graphs: Sequence[bytes], *, mark_last: bool) -> Iterator[Any]:
    """Cut graphs into chunks of 3 MiB; `mark_last` marks the last chunk of each, as for several graphs."""
    for graph in graphs:
        pieces = list(in_chunks(graph))
        for number, piece in enumerate(pieces, 1):
            yield messages.Chunk(buffer=piece, finished=mark_last and number == len(pieces))


def piece_of(asked: Any, *, echo_all: bool, **content: Any) -> Any:
    """Return a piece of an answer; only newer processes repeat fields of the question that are unknown to them."""
    piece = messages.TensorProto(**content)
    piece.MergeFrom(asked)
    if not echo_all:
        piece.DiscardUnknownFields()
    return piece


def value_pieces(asked: Any, value: Array | BigTensor | None, *, echo_all: bool = False) -> Iterator[Any]:
    """Answer for one tensor: pieces of at most 3 MiB, or one empty piece if there is no such tensor."""
    if value is None:
        yield piece_of(asked, echo_all=echo_all, finished=True)
        return
    contents = value.pieces() if isinstance(value, BigTensor) else in_chunks(value.tobytes())
    sent = 0
    for content in contents:
        sent += len(content)
        yield piece_of(
            asked,
            echo_all=echo_all,
            tensor_content=content,
            dims=value.shape,
            data_type=data_type(value),
            finished=sent == value.nbytes,
        )


def tensor_base(value: Array | BigTensor | None) -> Any:
    if value is None:
        return messages.TensorBase(data_type=0, shape=[0], data_size=0)
    return messages.TensorBase(data_type=data_type(value), shape=value.shape, data_size=value.nbytes)


def tensor_summary(value: Array | BigTensor | None) -> Any:
    summary = messages.TensorSummary(tensor_base=tensor_base(value))
    if value is None:
        # The lowest double, cast to float, is minus infinity.
        summary.statistics.max_value, summary.statistics.min_value = float("-inf"), float("inf")
        return summary
    assert not isinstance(value, BigTensor)
    for name, number in statistics(value).items():
        setattr(summary.statistics, name, number)
    summary.statistics.is_bool = value.dtype == bool
    return summary


def watchpoint_hit(watchpoint: Watchpoint, node: str, slot: str, outcome: Outcome) -> Any:
    hit = messages.WatchpointHit(id=watchpoint.id, error_code=outcome.error_code)
    hit.tensor.node_name, hit.tensor.slot, hit.tensor.finished = node, slot, True
    hit.watch_condition.condition = watchpoint.condition
    for each in outcome.parameters:
        hit.watch_condition.params.add(
            name=each.name, disabled=each.disabled, value=each.value, hit=each.hit, actual_value=each.actual
        )
    return hit


class Heartbeats(threading.Thread):
    """Says "Debugger is alive" every `period` seconds; five failures in a row end it."""

    def __init__(self, link: Link, *, period: int) -> None:
        super().__init__(daemon=True)
        self._link = link
        self._period = period
        self._over = threading.Event()

    def run(self) -> None:
        failures = 0
        while failures < 5 and not self._over.is_set():
            beat = messages.Heartbeat(message="Debugger is alive", period=self._period)
            reply = self._link.call("SendHeartbeat", beat, note=str(self._period))
            failures = failures + 1 if reply.status != STATUS["OK"] else 0
            self._over.wait(0.5 if failures else self._period)

    def stop(self) -> None:
        self._over.set()
