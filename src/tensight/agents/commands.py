"""What the server commands while the training is stopped."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from tensight.agents.introduction import ANSWER_WITHIN_S
from tensight.agents.notices import log_once, report
from tensight.wire import MOST_NAME, text
from tensight.wire.debugger_pb2 import EventReply, ViewCMD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tensight.agents.connection import Connection, Outcome
    from tensight.agents.responses import TensorResponses
    from tensight.agents.watching import Watches
    from tensight.agents.watching_rules import AgentHit
    from tensight.wire.debugger_pb2 import Metadata, RunCMD, SetCMD, WatchpointHit

ANSWERED_WITHIN_S = 600.0
"""For values that were asked for: gigabytes over a slow network take their time."""

_MOST_FAILURES = 5
_RETRY_S = 0.5


class Terminated(SystemExit):
    """A person has ended the training."""


class Order(NamedTuple):
    """How far the training is to go.

    Attributes
    ----------
    steps : int or None
        Until so many steps are done; None without end.
    at_nodes : bool
        To the next operator, or to the one that `node` names.
    node : str
    goes_on : bool
        Further steps follow at once, which nobody looks at.
    back : bool
        Back to the operator before, or to the one that `node` names, in the step that has just been done.
    """

    steps: int | None
    at_nodes: bool = False
    node: str = ""
    goes_on: bool = False
    back: bool = False


ON = Order(None)
"""On, without end."""


class LostError(Exception):
    """The server is gone."""


class RefusedError(LostError):
    """The server is there, and does not want to know the process."""


class CommandLoop:
    """Asks the server what to do and does it, until it is told to go on.

    Parameters
    ----------
    connection : Connection
    watches : Watches
    responses : TensorResponses
    check_again : callable
        Checks all watchpoints on the values of the step at which the training is stopped, and returns the hits.
    capture_operators : callable
        Has every operator captured from the next step on.
    announce : callable
        Tells the server once more who the process is; returns why that failed, empty if it did not.
    hit_messages : callable
        Returns hits as messages.

    Attributes
    ----------
    is_ours : bool
        Whether the server understands what Tensight added to the protocol.
    """

    def __init__(
        self,
        connection: Connection,
        watches: Watches,
        responses: TensorResponses,
        *,
        check_again: Callable[[], list[AgentHit]],
        capture_operators: Callable[[], None],
        announce: Callable[[], str],
        hit_messages: Callable[[Iterable[AgentHit]], list[WatchpointHit]],
    ) -> None:
        self._connection = connection
        self._watches = watches
        self._responses = responses
        self._check_again = check_again
        self._capture_operators = capture_operators
        self._announce = announce
        self._hit_messages = hit_messages
        self._watchpoints: set[int] = set()
        self.is_ours = True

    def forget_watchpoints(self) -> None:
        """Watch nothing any more: a server that is told who the process is tells it everything anew."""
        for number in self._watchpoints:
            self._watches.delete(number)
        self._watchpoints.clear()

    def obey(self, where: Callable[[], Metadata]) -> Order:
        """Obey until the server says to go on.

        Parameters
        ----------
        where : callable
            Returns where the training is stopped.

        Raises
        ------
        Terminated
            A person ends the training.
        LostError
            There is no server any more.
        """
        failures = 0
        while True:
            outcome = self._connection.call("WaitCMD", where(), timeout_s=None)
            reply = outcome.reply
            if reply is None:
                raise LostError(outcome.problem)
            if reply.status != EventReply.OK:
                failures += 1
                self._after_failure(failures, reply)
                continue
            failures = 0
            order = self._obey(reply)
            if order is not None:
                return order

    def send_hits(self, hits: Iterable[AgentHit]) -> None:
        """Tell the server of hits."""
        messages = self._hit_messages(hits)
        if messages:
            _complain(self._connection.stream("SendWatchpointHits", messages, timeout_s=ANSWER_WITHIN_S), "the hits")

    def _after_failure(self, failures: int, reply: EventReply) -> None:
        why = text(reply.message)
        if failures > _MOST_FAILURES:
            raise RefusedError(why or "the server refuses to give commands")
        time.sleep((failures - 1) * _RETRY_S)
        if failures > 1:
            problem = self._announce()
            if problem:
                raise RefusedError(problem)

    def _obey(self, reply: EventReply) -> Order | None:
        kind = reply.WhichOneof("cmd")
        if kind == "exit":
            if reply.message or not self.is_ours:
                _report_lines(text(reply.message) or "terminated from the debug server")
            raise Terminated(0)
        if reply.message:
            _report_lines(text(reply.message))
        if kind == "set_cmd":
            self._set_watchpoint(reply.set_cmd)
        elif kind == "view_cmd":
            self._show(reply.view_cmd)
        elif kind == "run_cmd":
            return self._run(reply.run_cmd)
        return None

    def _run(self, command: RunCMD) -> Order | None:
        if command.run_level == b"recheck":
            self.send_hits(replace(hit, is_new=True) for hit in self._check_again())
            return None
        if command.run_level == b"closer":
            self._capture_operators()
            return None
        if command.run_level == b"node":
            return Order(None, at_nodes=True, node=text(command.node_name, MOST_NAME), back=command.back)
        steps = command.run_steps
        return Order(None if steps < 0 else max(steps, 1), goes_on=command.more)

    def _set_watchpoint(self, command: SetCMD) -> None:
        if command.delete:
            self._watchpoints.discard(command.id)
            self._watches.delete(command.id)
            return
        self._watchpoints.add(command.id)
        problem = self._watches.set(command)
        if problem:
            log_once(f"watchpoint {command.id} cannot be used: {problem}")

    def _show(self, command: ViewCMD) -> None:
        responses, level = self._responses, command.level
        if command.views:
            outcome = self._connection.stream("SendViews", responses.views(command.views), timeout_s=ANSWERED_WITHIN_S)
        elif level == ViewCMD.statistics:
            rows = responses.summaries(command.tensors, complete=self.is_ours)
            outcome = self._connection.stream("SendTensorStats", rows, timeout_s=ANSWERED_WITHIN_S)
        elif level == ViewCMD.base:
            bases = responses.bases(command.tensors)
            outcome = self._connection.stream("SendTensorBase", bases, timeout_s=ANSWERED_WITHIN_S)
        else:
            values = responses.values(command.tensors)
            outcome = self._connection.stream("SendTensors", values, timeout_s=ANSWERED_WITHIN_S)
        _complain(outcome, "an answer")


def _report_lines(message: str) -> None:
    for line in message.split("\n"):
        report(line)


def _complain(outcome: Outcome, what: str) -> None:
    """Log that a server refused something; that it is gone shows anyway with the next request."""
    reply = outcome.reply
    if isinstance(reply, EventReply) and reply.status != EventReply.OK:
        log_once(f"the debug server refused {what}: {text(reply.message)}")
