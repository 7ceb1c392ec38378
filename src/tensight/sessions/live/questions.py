"""What people want to see of a process's tensors: asked one batch at a time, while the process stands still.

A process answers a batch in the order of its questions and then asks for its next command; so when that comes, whatever
has no answer will never have one.
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
"""Questions of one command; the next ones wait for their turn."""


class Asked(Enum):
    """What is asked of a tensor."""

    VALUE = "value"
    STATISTICS = "statistics"
    VIEW = "view"


@dataclass(slots=True, eq=False)
class Question:
    """One tensor that somebody wants to see.

    Attributes
    ----------
    asked : Asked
    graph : Graph
    node : Node
    key : TensorKey
        Of the tensor, with the iteration beside it.
    iteration : int
    previous : bool
        That is the iteration before the one at which the process stands.
    is_earlier : bool
        The process has it among the steps that it keeps for looking back.
    view, which
        For `Asked.VIEW`.
    answer : Future
        Becomes the value's `KeptValue`, its `ReceivedStatistics` (None if there is no such tensor), or its
        `ViewResult`.
    """

    asked: Asked
    graph: Graph
    node: Node
    key: TensorKey
    iteration: int
    previous: bool = False
    is_earlier: bool = False
    view: View | None = None
    which: Which = "current"
    answer: asyncio.Future[Any] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def __post_init__(self) -> None:
        """Let the answer be forgotten: whoever asked may have gone."""
        self.answer.add_done_callback(lambda answer: answer.cancelled() or answer.exception())

    @property
    def request(self) -> TensorProto:
        """The tensor as a message."""
        return wire.tensor_request(
            self.node, self.key.slot, previous=self.previous, graph=self.graph.name, io=self.key.io
        )

    @property
    def name(self) -> tuple[object, ...]:
        """What makes two questions the same."""
        return (self.asked, self.key, self.iteration, self.previous, self.view, self.which)

    def resolve(self, answer: object) -> None:
        """Answer, unless that was done or nobody waits."""
        if not self.answer.done():
            self.answer.set_result(answer)

    def fail(self, error: TensightError) -> None:
        """Answer that there is no answer. What the process got wrong is no fault of whoever asked."""
        if isinstance(error, wire.WireError):
            error = UnavailableError(str(error))
        if not self.answer.done():
            self.answer.set_exception(error)


class Questions:
    """The questions to one process.

    Parameters
    ----------
    knows_graphs : bool
        Whether the process tells nodes of one name in several graphs apart; MindSpore's own client does not.
    """

    def __init__(self, *, knows_graphs: bool) -> None:
        self._knows_graphs = knows_graphs
        self._waiting: deque[Question] = deque()
        self._known: dict[tuple[object, ...], Question] = {}
        self._out: list[Question] = []
        self._by_request: dict[tuple[object, ...], list[Question]] = {}
        self.assembler: wire.ViewAssembler | None = None

    def ask(self, question: Question) -> Question:
        """Put a question to the others; return the one that is the same already, if there is one."""
        known = self._known.get(question.name)
        if known is not None and not known.answer.done():
            return known
        self._known[question.name] = question
        self._waiting.append(question)
        return question

    def command(self) -> EventReply | None:
        """Return the command that asks the next questions, all of one kind; None if there are none."""
        while self._waiting and self._waiting[0].answer.done():
            self._forget(self._waiting.popleft())
        if not self._waiting:
            return None
        asked = self._waiting[0].asked
        batch: list[Question] = []
        later: deque[Question] = deque()
        for question in self._waiting:
            (batch if question.asked is asked and len(batch) < MOST_AT_ONCE else later).append(question)
        self._waiting = later
        self._out = batch
        if asked is Asked.VIEW:
            return self._ask_for_views(batch)
        requests: dict[tuple[object, ...], TensorProto] = {}
        for question in batch:
            message = question.request
            name = self._name(wire.received_request(message))
            requests.setdefault(name, message)
            self._by_request.setdefault(name, []).append(question)
        return wire.view_command(requests.values(), asked.value)

    def _ask_for_views(self, batch: list[Question]) -> EventReply:
        views = [question.view for question in batch if question.view is not None]
        self.assembler = wire.ViewAssembler(views)
        return wire.views_command(
            wire.view_request(
                question.request,
                question.view,
                question.which,
                question.iteration if question.is_earlier else None,
            )
            for question in batch
            if question.view is not None
        )

    @property
    def out(self) -> list[Question]:
        """The questions that the process has, in their order."""
        return self._out

    @property
    def out_in_groups(self) -> list[list[Question]]:
        """The same, with those that one answer is for together."""
        return list(self._by_request.values())

    def of_request(self, request: TensorRequest) -> list[Question]:
        """Return the questions that a tensor from the process answers."""
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
        """Take the questions that the process has as done; those without an answer fail."""
        for question in self._out:
            question.fail(error)
            self._forget(question)
        self._out = []
        self._by_request = {}
        self.assembler = None

    def refuse(self, error: TensightError) -> None:
        """Fail the questions that the process does not have yet."""
        while self._waiting:
            question = self._waiting.popleft()
            question.fail(error)
            self._forget(question)

    def _forget(self, question: Question) -> None:
        if self._known.get(question.name) is question:
            del self._known[question.name]
