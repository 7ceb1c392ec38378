"""The connection of a training process to a debug server: calls that never raise, and never exceed their time limit."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from tensight.agents.core.notices import log_once
from tensight.agents.core.process.forking import ForkGate
from tensight.wire import MAX_MESSAGE_BYTES, PROCESS_KEY_METADATA, TOKEN_METADATA
from tensight.wire.debugger_pb2 import EventReply
from tensight.wire.telemetry_pb2 import PollReply, Receipt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import FrameType

    from google.protobuf.message import Message

    from tensight.agents.core.settings import AgentSettings

_EVENTS, _TELEMETRY = "debugger.EventListener", "tensight.v1.Telemetry"

_SINGLE: dict[str, tuple[str, Any]] = {
    "WaitCMD": (_EVENTS, EventReply),
    "SendMetadata": (_EVENTS, EventReply),
    "SendHeartbeat": (_EVENTS, EventReply),
    "Poll": (_TELEMETRY, PollReply),
}
_STREAMS: dict[str, tuple[str, Any]] = {
    "SendGraph": (_EVENTS, EventReply),
    "SendMultiGraphs": (_EVENTS, EventReply),
    "SendTensors": (_EVENTS, EventReply),
    "SendTensorBase": (_EVENTS, EventReply),
    "SendTensorStats": (_EVENTS, EventReply),
    "SendWatchpointHits": (_EVENTS, EventReply),
    "SendStatistics": (_TELEMETRY, Receipt),
    "SendViews": (_TELEMETRY, Receipt),
}

_SLICE_S = 0.2
_MOST_WORDS = 200
_OTHER_PROTOCOL = ("http1.x server", "Failed parsing HTTP/2")
"""In gRPC's description of a connection to a server that does not speak its protocol."""
_imported_by_us: list[str] = []
"""Contains "grpc" if we were the first to import it, and it therefore has no fork handlers."""
_FORK_VARIABLE = "GRPC_ENABLE_FORK_SUPPORT"


class Outcome(NamedTuple):
    """How a call ended.

    Attributes
    ----------
    reply : Message or None
        None if the call failed.
    code : str
        gRPC's name of the error, such as ``UNAVAILABLE``; empty without an error.
    details : str
    """

    reply: Any
    code: str = ""
    details: str = ""

    @property
    def problem(self) -> str:
        """What went wrong, in a few words; empty if nothing did."""
        if self.code == "DEADLINE_EXCEEDED":
            return "no answer"
        if self.code == "UNAVAILABLE" and any(words in self.details for words in _OTHER_PROTOCOL):
            return "that port serves HTTP, as the page does; `tensight start` prints the port for training processes"
        if self.code == "UNAVAILABLE":
            # For a failed connection gRPC lists everything that it tried; the system's own message comes last.
            return self.details.rpartition(": ")[2].strip(" []") or self.code
        return f"{self.code} {self.details}".strip()[:_MOST_WORDS]

    @property
    def is_refused(self) -> bool:
        """Whether the server requires an access token, or a different one."""
        return self.code == "UNAUTHENTICATED"

    @property
    def is_unknown_call(self) -> bool:
        """Whether the server does not have the call."""
        return self.code == "UNIMPLEMENTED"


_NO_CONNECTION = Outcome(None, "UNAVAILABLE", "there is no connection")


class Connection:
    """Calls the two services of a debug server.

    Parameters
    ----------
    settings : AgentSettings
        Address of the server, certificates and access token.
    key : str
        Unique for the life of the process; empty to act as one of MindSpore's own clients.
    """

    def __init__(self, settings: AgentSettings, key: str) -> None:
        self.address = _address(settings)
        self._channel = _channel(settings, self.address) if settings.connects else None
        self._gate = ForkGate(is_needed=not _imported_by_us)
        self._epoch = 0
        self._holds = True
        self._calls: dict[str, Any] = {}
        metadata = [(PROCESS_KEY_METADATA, key)] if key else []
        if settings.token:
            metadata.append((TOKEN_METADATA, f"Bearer {settings.token}"))
        self._metadata = tuple(metadata)
        if self._channel is None:
            return
        for names, make in ((_SINGLE, self._channel.unary_unary), (_STREAMS, self._channel.stream_unary)):
            for name, (service, reply) in names.items():
                self._calls[name] = make(
                    f"/{service}/{name}", request_serializer=_serialized, response_deserializer=reply.FromString
                )

    @property
    def is_usable(self) -> bool:
        """Whether a connection is possible at all."""
        return self._channel is not None

    def call(self, name: str, request: Message, *, timeout_s: float | None, wait_for_ready: bool = False) -> Outcome:
        """Send a message and wait for the reply.

        Parameters
        ----------
        name : str
        request : Message
        timeout_s : float or None
            None waits until there is a reply, or `abandon` is called.
        wait_for_ready : bool
            Whether to wait for a server that is not available yet.
        """
        return self._finish(name, lambda make: make(request, **self._options(timeout_s, wait_for_ready)), timeout_s)

    def ask(self, name: str, request: Message, *, timeout_s: float) -> Outcome:
        """Do the same as `call` at less cost, in a thread that receives no signals."""
        make = self._calls.get(name)
        if make is None:
            return _NO_CONNECTION
        try:
            with self._gate.call():
                return Outcome(make(request, timeout=timeout_s, metadata=self._metadata))
        except Exception as error:
            return _failure(error)

    def stream(self, name: str, requests: Iterable[Message], *, timeout_s: float | None) -> Outcome:
        """Send messages one after the other and wait for the reply to all of them."""
        return self._finish(name, lambda make: make(iter(requests), **self._options(timeout_s, False)), timeout_s)

    def start_stream(self, name: str, requests: Iterator[Message]) -> Any:
        """Send messages as they come, without waiting; return the call for `result`, None if it cannot start."""
        make = self._calls.get(name)
        with _uninterrupted():
            try:
                return self._started(lambda: make.future(requests, metadata=self._metadata)) if make else None
            except Exception:
                return None

    def result(self, call: Any, timeout_s: float) -> Outcome:
        """Wait for the reply of a call that was started, and cancel it after a time."""
        return self._settled(call, timeout_s)

    def has_ended(self, call: Any) -> bool:
        """Return whether a call that was started is over."""
        with _uninterrupted():
            return bool(call.done())

    def cancel(self, call: Any) -> None:
        """Cancel a call that was started."""
        with _uninterrupted():
            call.cancel()

    def abandon(self) -> None:
        """Cancel the calls that wait at this moment, because the server was lost."""
        self._epoch += 1

    def hold_no_more(self) -> None:
        """Cancel calls without a time limit, now and from now on; may be called by a signal handler."""
        self._holds = False

    def close(self) -> None:
        """Close the connection; calls are no longer possible."""
        self._calls = {}
        channel, self._channel = self._channel, None
        if channel is not None:
            with _uninterrupted():
                channel.close()

    def _options(self, timeout_s: float | None, wait_for_ready: bool) -> dict[str, Any]:
        return {"timeout": timeout_s, "metadata": self._metadata, "wait_for_ready": wait_for_ready}

    def _finish(self, name: str, start: Callable[[Any], Any], timeout_s: float | None) -> Outcome:
        make = self._calls.get(name)
        if make is None:
            return _NO_CONNECTION
        with _uninterrupted():
            try:
                call = self._started(lambda: start(make.future))
            except Exception as error:
                return _failure(error)
        # gRPC's own deadline comes first; ours is for a machine that is too busy to notice it.
        return self._settled(call, None if timeout_s is None else timeout_s + 1.0)

    def _started(self, start: Callable[[], Any]) -> Any:
        """Start a call; until it ends, forks wait for it, unless it takes too long."""
        self._gate.enter()
        try:
            call = start()
            call.add_done_callback(lambda _: self._gate.leave())
        except BaseException:
            self._gate.leave()
            raise
        return call

    def _settled(self, call: Any, timeout_s: float | None) -> Outcome:
        """Wait for a call in slices, so that Ctrl-C ends the wait at once."""
        epoch, end_s = self._epoch, None if timeout_s is None else time.monotonic() + timeout_s
        # A plain lock, which an interrupt leaves as it is.
        ended = threading.Lock()
        ended.acquire()
        try:
            with _uninterrupted():
                call.add_done_callback(lambda _: ended.release())
            while not ended.acquire(timeout=_SLICE_S):
                is_late = not self._holds if end_s is None else time.monotonic() >= end_s
                if is_late or epoch != self._epoch:
                    self.cancel(call)
                    return Outcome(None, "CANCELLED", "no answer came in time")
            with _uninterrupted():
                return _outcome(call)
        except BaseException:
            self.cancel(call)
            raise


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Defer SIGINT, and SIGTERM if it is handled in Python, until the block ends.

    An exception in the middle of gRPC's code would leave its locks locked, and the next thread that needs them would
    wait for ever.
    """
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: handler for number in numbers if callable(handler := signal.getsignal(number))}
    if threading.current_thread() is not threading.main_thread() or not before:
        yield
        return
    put_off: dict[int, FrameType | None] = {}
    for number in before:
        signal.signal(number, put_off.__setitem__)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in before.keys() & put_off.keys():
            before[number](number, put_off[number])


def _outcome(call: Any) -> Outcome:
    """Return the outcome of a call that has ended."""
    import grpc

    try:
        return Outcome(call.result())
    except grpc.FutureCancelledError:
        return Outcome(None, "CANCELLED", "the call was given up")
    except Exception as error:
        return _failure(error)


def _failure(error: Exception) -> Outcome:
    """Return the outcome of a call that raised an error."""
    import grpc

    if isinstance(error, grpc.RpcError):
        return Outcome(None, error.code().name, error.details() or "")
    return Outcome(None, "INTERNAL", str(error))


def _serialized(message: Message) -> bytes:
    return message.SerializeToString()


def _address(settings: AgentSettings) -> str:
    host = settings.host
    return f"[{host}]:{settings.port}" if ":" in host and not host.startswith("[") else f"{host}:{settings.port}"


def _channel(settings: AgentSettings, address: str) -> Any:
    """Return a channel to the server; log why, and return None, if there can be none."""
    try:
        with _without_fork_handlers():
            import grpc
        options = [
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            ("grpc.max_send_message_length", -1),
            ("grpc.initial_reconnect_backoff_ms", 200),
            ("grpc.min_reconnect_backoff_ms", 200),
            ("grpc.max_reconnect_backoff_ms", 2_000),
            # A proxy for the web does not forward to a debug server.
            ("grpc.enable_http_proxy", 0),
            ("grpc.use_local_subchannel_pool", 1),
        ]
        if not settings.certificates:
            return grpc.insecure_channel(address, options=options)
        with open(settings.certificates, "rb") as file:
            trusted = file.read()
        return grpc.secure_channel(address, grpc.ssl_channel_credentials(trusted), options=options)
    except Exception as error:
        log_once(f"no connection to a debug server is possible: {error}; the training goes on without")
        return None


@contextmanager
def _without_fork_handlers() -> Iterator[None]:
    """Import gRPC without its handlers for `fork`.

    With its handlers a forked child (a worker of a data loader) hangs whenever one of our calls is active; and if the
    handlers cannot run, gRPC writes a line for each fork. Without them the child just must not touch gRPC, which
    `forking` ensures. gRPC reads the variable when it is imported; the training's own processes get their environment
    unchanged. If the training has imported gRPC before, a `ForkGate` ensures that no call of ours is active while it
    forks.
    """
    if "grpc" in sys.modules:
        yield
        return
    before = os.environ.get(_FORK_VARIABLE)
    os.environ[_FORK_VARIABLE] = "0"
    try:
        yield
        _imported_by_us.append("grpc")
    finally:
        if before is None:
            del os.environ[_FORK_VARIABLE]
        else:
            os.environ[_FORK_VARIABLE] = before
