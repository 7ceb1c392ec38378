"""Requests for the tensors of a process: sent one batch at a time, while the process is stopped.

A process responds to a batch in the order of its requests and then asks for its next command; so when that comes,
a request without a response will never have one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from tensight import wire
from tensight.sessions.errors import UnavailableError

if TYPE_CHECKING:
    from tensight.errors import TensightError
    from tensight.graph import Graph, Node
    from tensight.sessions.live.reported_tensors import TensorKey
    from tensight.tensors.views import View, Which
    from tensight.wire import TensorRequest
    from tensight.wire.debugger_pb2 import EventReply, TensorProto

MOST_AT_ONCE = 256
"""Requests of one command; the next ones wait for their turn."""


class RequestKind(Enum):
    """What is requested of a tensor."""

    VALUE = "value"
    STATISTICS = "statistics"
    VIEW = "view"


@dataclass(slots=True, eq=False)
class PendingRequest:
    """A request for one tensor, with its response.

    Attributes
    ----------
    kind : RequestKind
    graph : Graph
    node : Node
    key : TensorKey
        Of the tensor, with the iteration beside it.
    iteration : int
    previous : bool
        That is the iteration before the one at which the process is stopped.
    is_earlier : bool
        The process has it among the steps that it keeps for looking back.
    view, which
        For `RequestKind.VIEW`.
    response : Future
        Becomes the value's `KeptValue`, its `ReceivedStatistics` (None if there is no such tensor), or its
        `ViewResult`.
    """

    kind: RequestKind
    graph: Graph
    node: Node
    key: TensorKey
    iteration: int
    previous: bool = False
    is_earlier: bool = False
    view: View | None = None
    which: Which = "current"
    response: asyncio.Future[Any] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def __post_init__(self) -> None:
        """Let the response be forgotten: whoever waited for it may have gone."""
        self.response.add_done_callback(lambda response: response.cancelled() or response.exception())

    @property
    def message(self) -> TensorProto:
        """The tensor as a message."""
        return wire.tensor_request(
            self.node, self.key.slot, previous=self.previous, graph=self.graph.name, io=self.key.io
        )

    @property
    def name(self) -> tuple[object, ...]:
        """What makes two requests the same."""
        return (self.kind, self.key, self.iteration, self.previous, self.view, self.which)

    def resolve(self, response: object) -> None:
        """Set the response, unless that was done or nobody waits."""
        if not self.response.done():
            self.response.set_result(response)

    def fail(self, error: TensightError) -> None:
        """Note that there is no response. What the process got wrong is no fault of whoever waits."""
        if isinstance(error, wire.WireError):
            error = UnavailableError(str(error))
        if not self.response.done():
            self.response.set_exception(error)


class PendingRequests:
    """The requests to one process that have no response yet.

    Parameters
    ----------
    knows_graphs : bool
        Whether the process tells nodes of one name in several graphs apart; MindSpore's own client does not.
    """

    def __init__(self, *, knows_graphs: bool) -> None:
        self._knows_graphs = knows_graphs
        self._waiting: deque[PendingRequest] = deque()
        self._known: dict[tuple[object, ...], PendingRequest] = {}
        self._out: list[PendingRequest] = []
        self._by_request: dict[tuple[object, ...], list[PendingRequest]] = {}
        self.assembler: wire.ViewAssembler | None = None

    def add(self, request: PendingRequest) -> PendingRequest:
        """Add a request to the others; return the one that is the same already, if there is one."""
        known = self._known.get(request.name)
        if known is not None and not known.response.done():
            return known
        self._known[request.name] = request
        self._waiting.append(request)
        return request

    def command(self) -> EventReply | None:
        """Return the command with the next requests, all of one kind; None if there are none."""
        while self._waiting and self._waiting[0].response.done():
            self._forget(self._waiting.popleft())
        if not self._waiting:
            return None
        kind = self._waiting[0].kind
        batch: list[PendingRequest] = []
        later: deque[PendingRequest] = deque()
        for request in self._waiting:
            (batch if request.kind is kind and len(batch) < MOST_AT_ONCE else later).append(request)
        self._waiting = later
        self._out = batch
        if kind is RequestKind.VIEW:
            return self._request_views(batch)
        messages: dict[tuple[object, ...], TensorProto] = {}
        for request in batch:
            message = request.message
            name = self._name(wire.received_request(message))
            messages.setdefault(name, message)
            self._by_request.setdefault(name, []).append(request)
        return wire.view_command(messages.values(), kind.value)

    def _request_views(self, batch: list[PendingRequest]) -> EventReply:
        views = [request.view for request in batch if request.view is not None]
        self.assembler = wire.ViewAssembler(views)
        return wire.views_command(
            wire.view_request(
                request.message,
                request.view,
                request.which,
                request.iteration if request.is_earlier else None,
            )
            for request in batch
            if request.view is not None
        )

    @property
    def out(self) -> list[PendingRequest]:
        """The requests that the process has, in their order."""
        return self._out

    @property
    def out_in_groups(self) -> list[list[PendingRequest]]:
        """The same, with those that share a response together."""
        return list(self._by_request.values())

    def matching(self, request: TensorRequest) -> list[PendingRequest]:
        """Return the requests to which a tensor from the process is the response."""
        found = self._by_request.get(self._name(request))
        if found is None and not request.graph:
            # The process did not repeat the name of the graph.
            short = (request.node, request.slot, request.previous)
            found = next((group for name, group in self._by_request.items() if name[:3] == short), None)
        return found or []

    def _name(self, request: TensorRequest) -> tuple[object, ...]:
        known_everywhere = (request.node, request.slot, request.previous)
        return (*known_everywhere, request.graph, request.io) if self._knows_graphs else known_everywhere

    def close(self, error: TensightError) -> None:
        """Take the requests that the process has as done; those without a response fail."""
        for request in self._out:
            request.fail(error)
            self._forget(request)
        self._out = []
        self._by_request = {}
        self.assembler = None

    def refuse(self, error: TensightError) -> None:
        """Fail the requests that the process does not have yet."""
        while self._waiting:
            request = self._waiting.popleft()
            request.fail(error)
            self._forget(request)

    def _forget(self, request: PendingRequest) -> None:
        if self._known.get(request.name) is request:
            del self._known[request.name]
