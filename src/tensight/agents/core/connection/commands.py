"""Executes the server's commands while the training is stopped."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from tensight.agents.core.connection.introduction import ANSWER_WITHIN_S
from tensight.agents.core.notices import log_once, report
from tensight.wire import MOST_NAME, text
from tensight.wire.debugger_pb2 import EventReply, ViewCMD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tensight.agents.core.connection.connection import Connection, Outcome
    from tensight.agents.core.connection.responses import TensorResponses
    from tensight.agents.core.watching.rules import AgentHit
    from tensight.agents.core.watching.watches import Watches
    from tensight.wire.debugger_pb2 import Metadata, RunCMD, SetCMD, WatchpointHit

ANSWERED_WITHIN_S = 600.0
"""For requested values, because gigabytes over a slow network take a while."""

_MOST_FAILURES = 5
_RETRY_S = 0.5


class Terminated(SystemExit):
    """The user has ended the training."""


class Order(NamedTuple):
    """How far the training is to run.

    Attributes
    ----------
    steps : int or None
        Until so many steps are done; None to run without end.
    at_nodes : bool
        To the next operator, or to the one that `node` names.
    node : str
    goes_on : bool
        Whether further steps follow at once, without inspection.
    back : bool
        Back to the operator before, or to the one that `node` names, in the step that has just been done.
    """

    steps: int | None
    at_nodes: bool = False
    node: str = ""
    goes_on: bool = False
    back: bool = False


ON = Order(None)
"""Run without end."""


class LostError(Exception):
    """The server was lost."""


class RefusedError(LostError):
    """The server is available, but refuses the process."""


class CommandLoop:
    """Requests commands from the server and executes them, until the training may go on.

    Parameters
    ----------
    connection : Connection
    watches : Watches
    responses : TensorResponses
    check_again : callable
        Checks all watchpoints on the values of the step at which the training is stopped, and returns the hits.
    capture_operators : callable
        Captures every operator from the next step on.
    announce : callable
        Introduces the process to the server again; returns why that failed, empty if it did not.
    hit_messages : callable
        Returns hits as messages.

    Attributes
    ----------
    is_ours : bool
        Whether the server understands Tensight's additions to the protocol.
    is_held : bool
        Whether the training is stopped for a user or a hit, and not only to ask for commands: as it knows itself, or as
        the server has said. Only such a stop outlives the server.
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
        self.is_held = False

    def forget_watchpoints(self) -> None:
        """Remove all watchpoints: after an introduction, a server sends its watchpoints again."""
        for number in self._watchpoints:
            self._watches.delete(number)
        self._watchpoints.clear()

    def obey(self, where: Callable[[], Metadata]) -> Order:
        """Execute commands until the server lets the training go on.

        Parameters
        ----------
        where : callable
            Returns where the training is stopped.

        Raises
        ------
        Terminated
            The user ends the training.
        LostError
            The server was lost.
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
        """Send hits to the server."""
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
        elif not reply.message:
            self.is_held = True
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
    """Log that a server refused something; if it was lost, the next request will show that."""
    reply = outcome.reply
    if isinstance(reply, EventReply) and reply.status != EventReply.OK:
        log_once(f"the debug server refused {what}: {text(reply.message)}")
