"""Messages from the server to a training process: replies and commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensight.wire.debugger_pb2 import EventReply, RunCMD, TensorProto, ViewCMD
from tensight.wire.protocol import MOST_TEXT
from tensight.wire.text import encoded

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal

    from tensight.wire.debugger_pb2 import ViewRequest

    Level = Literal["value", "statistics", "base"]

_MOST_STEPS = 2**31 - 1


def ok(message: str = "") -> EventReply:
    """Return the reply that a message has arrived; from `WaitCMD`, that there is nothing to do and to ask again."""
    return EventReply(status=EventReply.OK, message=_shortened(message))


def held() -> EventReply:
    """Return the reply to `WaitCMD` that a user or a hit keeps the process stopped; it asks again, and then waits."""
    return ok()


def failed(message: str) -> EventReply:
    """Return the reply that a message could not be used, with the reason."""
    return EventReply(status=EventReply.FAILED, message=_shortened(message))


def _shortened(message: str) -> bytes:
    return encoded(message[:MOST_TEXT])


def version_reply(matched: bool, message: str = "") -> EventReply:
    """Return the reply to `SendMetadata`: whether the server supports the process."""
    return EventReply(status=EventReply.OK, version_matched=matched, message=_shortened(message))


def run_step(steps: int = 1, *, more: bool = False) -> EventReply:
    """Return the command to run; more than one step is only for agents that count steps themselves.

    Parameters
    ----------
    steps : int
        -1 for no limit. More than a message can hold are cut; the process asks again after these.
    more : bool
        Further steps follow at once, so the values of these are not inspected.
    """
    run = RunCMD(run_level=b"step", run_steps=min(steps, _MOST_STEPS), more=more)
    return EventReply(status=EventReply.OK, run_cmd=run)


def run_node(node: str = "") -> EventReply:
    """Return the command to run to the next operator, or (for agents with that ability) to the one with a full name."""
    return EventReply(status=EventReply.OK, run_cmd=RunCMD(run_level=b"node", node_name=encoded(node)))


def run_back(node: str = "") -> EventReply:
    """Return the command to go back to the previous operator, or to the one with a full name; see `Abilities.back`."""
    return EventReply(status=EventReply.OK, run_cmd=RunCMD(run_level=b"node", node_name=encoded(node), back=True))


def recheck() -> EventReply:
    """Return the command to check all watchpoints again on the values of this step."""
    return EventReply(status=EventReply.OK, run_cmd=RunCMD(run_level=b"recheck"))


def capture_operators() -> EventReply:
    """Return the command to capture every operator from the next step on; see `Abilities.closer`."""
    return EventReply(status=EventReply.OK, run_cmd=RunCMD(run_level=b"closer"))


def exit_command(message: str = "") -> EventReply:
    """Return the command to end the training."""
    return EventReply(status=EventReply.OK, exit=True, message=_shortened(message))


def view_command(tensors: Iterable[TensorProto], level: Level = "value") -> EventReply:
    """Return the command to send tensors, their statistics, or only their shapes; see `tensor_request`."""
    return EventReply(status=EventReply.OK, view_cmd=ViewCMD(tensors=tensors, level=level))


def views_command(views: Iterable[ViewRequest]) -> EventReply:
    """Return the command to compute views in the training process; see `view_request`."""
    return EventReply(status=EventReply.OK, view_cmd=ViewCMD(views=views))
