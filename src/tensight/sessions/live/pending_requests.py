"""Requests for the tensors of a process, sent in batches while the process is stopped.

A process responds to a batch in the order of its requests, then asks for its next command. A request that has no
response by then will not get one.
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
"""Requests in a command; further requests wait for the next command."""


class RequestKind(Enum):
    """The kind of data requested of a tensor."""

    VALUE = "value"
    STATISTICS = "statistics"
    VIEW = "view"


@dataclass(slots=True, eq=False)
class PendingRequest:
    """A request for a tensor, with its response.

    Attributes
    ----------
    kind : RequestKind
    graph : Graph
    node : Node
    key : TensorKey
    iteration : int
    previous : bool
        Whether it is the iteration before the one at which the process is stopped.
    is_earlier : bool
        Whether it is an older iteration, from which the process keeps values.
    view, which
        For `RequestKind.VIEW`.
    response : Future
        Its result is a `KeptValue`, a `ReceivedStatistics` (None if there is no such tensor), or a `ViewResult`.
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
        """Retrieve an exception of the response, so that asyncio does not log it if the requester is gone."""
        self.response.add_done_callback(lambda response: response.cancelled() or response.exception())

    @property
    def message(self) -> TensorProto:
        """The tensor as a message."""
        return wire.tensor_request(
            self.node, self.key.slot, previous=self.previous, graph=self.graph.name, io=self.key.io
        )

    @property
    def name(self) -> tuple[object, ...]:
        """Identity of the request: requests with equal names share a response."""
        return (self.kind, self.key, self.iteration, self.previous, self.view, self.which)

    def resolve(self, response: object) -> None:
        """Set the response, unless it is set or cancelled."""
        if not self.response.done():
            self.response.set_result(response)

    def fail(self, error: TensightError) -> None:
        """Fail the request. A protocol error of the process is reported as UnavailableError."""
        if isinstance(error, wire.WireError):
            error = UnavailableError(str(error))
        if not self.response.done():
            self.response.set_exception(error)


class PendingRequests:
    """The requests to a process that have no response yet.

    Parameters
    ----------
    knows_graphs : bool
        Whether the process distinguishes nodes with the same name in several graphs; MindSpore's own client does not.
    """

    def __init__(self, *, knows_graphs: bool) -> None:
        self._knows_graphs = knows_graphs
        self._waiting: deque[PendingRequest] = deque()
        self._by_name: dict[tuple[object, ...], PendingRequest] = {}
        self._out: list[PendingRequest] = []
        self._by_request: dict[tuple[object, ...], list[PendingRequest]] = {}
        self.assembler: wire.ViewAssembler | None = None

    def add(self, request: PendingRequest) -> PendingRequest:
        """Add a request; return an equal pending request instead, if there is one."""
        pending = self._by_name.get(request.name)
        if pending is not None and not pending.response.done():
            return pending
        self._by_name[request.name] = request
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
        """The requests sent to the process, in order."""
        return self._out

    @property
    def out_in_groups(self) -> list[list[PendingRequest]]:
        """The requests for statistics sent to the process, grouped by shared response; values answer the others."""
        return [requests for requests in self._by_request.values() if requests[0].kind is RequestKind.STATISTICS]

    def matching(self, request: TensorRequest) -> list[PendingRequest]:
        """Return the requests to which a tensor from the process is the response."""
        requests = self._by_request.get(self._name(request))
        if requests is None and not request.graph:
            # The process did not send the name of the graph back.
            short = (request.node, request.slot, request.previous)
            requests = next((group for name, group in self._by_request.items() if name[:3] == short), None)
        return requests or []

    def _name(self, request: TensorRequest) -> tuple[object, ...]:
        known_everywhere = (request.node, request.slot, request.previous)
        return (*known_everywhere, request.graph, request.io) if self._knows_graphs else known_everywhere

    def close(self, error: TensightError) -> None:
        """Finish the requests sent to the process; those without a response fail."""
        for request in self._out:
            request.fail(error)
            self._forget(request)
        self._out = []
        self._by_request = {}
        self.assembler = None

    def refuse(self, error: TensightError) -> None:
        """Fail the requests that were not sent yet."""
        while self._waiting:
            request = self._waiting.popleft()
            request.fail(error)
            self._forget(request)

    def _forget(self, request: PendingRequest) -> None:
        if self._by_name.get(request.name) is request:
            del self._by_name[request.name]
