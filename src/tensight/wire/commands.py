"""What the server tells a training process: replies and commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensight.wire.debugger_pb2 import EventReply, RunCMD, SetCMD, TensorProto, ViewCMD, WatchCondition, WatchNode
from tensight.wire.errors import WireError
from tensight.wire.protocol import MOST_COMMAND_BYTES, MOST_TEXT
from tensight.wire.text import encoded

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal

    from tensight.graph import Node
    from tensight.watchpoints import Watchpoint
    from tensight.wire.debugger_pb2 import ViewRequest

    Level = Literal["value", "statistics", "base"]


def ok(message: str = "") -> EventReply:
    """Return the reply that a message arrived; from `WaitCMD`, that there is nothing to do and to ask again."""
    return EventReply(status=EventReply.OK, message=_shortened(message))


def failed(message: str) -> EventReply:
    """Return the reply that a message could not be used, and why."""
    return EventReply(status=EventReply.FAILED, message=_shortened(message))


def _shortened(message: str) -> bytes:
    return encoded(message[:MOST_TEXT])


def version_reply(matched: bool, message: str = "") -> EventReply:
    """Return the reply to `SendMetadata`: whether the process is understood."""
    return EventReply(status=EventReply.OK, version_matched=matched, message=_shortened(message))


def run_step(steps: int = 1, *, more: bool = False) -> EventReply:
    """Return the command to run; only agents that count steps themselves are told of more than one.

    Parameters
    ----------
    steps : int
        -1 for no end.
    more : bool
        Further steps follow at once, so that nobody looks at the values of these.
    """
    return EventReply(status=EventReply.OK, run_cmd=RunCMD(run_level=b"step", run_steps=steps, more=more))


def run_node(node: str = "") -> EventReply:
    """Return the command to run to the next operator, or (agents with that ability) to the one of that full name."""
    return EventReply(status=EventReply.OK, run_cmd=RunCMD(run_level=b"node", node_name=encoded(node)))


def run_back(node: str = "") -> EventReply:
    """Return the command to go back to the operator before, or to the one of that full name; see `Abilities.back`."""
    return EventReply(status=EventReply.OK, run_cmd=RunCMD(run_level=b"node", node_name=encoded(node), back=True))


def recheck() -> EventReply:
    """Return the command to check all watchpoints again on the values of this step."""
    return EventReply(status=EventReply.OK, run_cmd=RunCMD(run_level=b"recheck"))


def look_closer() -> EventReply:
    """Return the command to capture every operator from the next step on; see `Abilities.closer`."""
    return EventReply(status=EventReply.OK, run_cmd=RunCMD(run_level=b"closer"))


def exit_command(message: str = "") -> EventReply:
    """Return the command to end the training."""
    return EventReply(status=EventReply.OK, exit=True, message=_shortened(message))


def view_command(tensors: Iterable[TensorProto], level: Level = "value") -> EventReply:
    """Return the command to send tensors, their statistics, or only their shapes; see `tensor_request`."""
    return EventReply(status=EventReply.OK, view_cmd=ViewCMD(tensors=tensors, level=level))


def views_command(views: Iterable[ViewRequest]) -> EventReply:
    """Return the command to compute views where the tensors live; see `view_request`."""
    return EventReply(status=EventReply.OK, view_cmd=ViewCMD(views=views))


def set_reply(command: SetCMD) -> EventReply:
    """Return the command to add, replace or delete a watchpoint; see `set_command` and `delete_command`."""
    return EventReply(status=EventReply.OK, set_cmd=command)


def delete_command(watchpoint_id: int) -> SetCMD:
    """Return the command to delete a watchpoint."""
    return SetCMD(id=watchpoint_id, delete=True)


def set_command(
    watchpoint: Watchpoint,
    nodes: Iterable[tuple[str, Node]],
    rank: int = 0,
    *,
    selection: str = "",
    most_bytes: int = MOST_COMMAND_BYTES,
) -> SetCMD:
    """Return the command to set a watchpoint; one with the same id is replaced.

    Parameters
    ----------
    watchpoint : Watchpoint
    nodes : iterable of (graph name, Node)
        What is watched; constants are left out, they cannot be.
    rank : int
        Of the process.
    selection : str
        A selector that stands for the nodes, for agents whose nodes appear as they run.
    most_bytes : int
        Size of the command that the process accepts.

    Raises
    ------
    WireError
        The condition has no number in the protocol, or the command has more than `most_bytes`.
    """
    command = SetCMD(id=watchpoint.id, watch_condition=_watch_condition(watchpoint), selection=encoded(selection))
    if watchpoint.persistence > 1:
        command.persistence = watchpoint.persistence
    command.watch_nodes.extend(
        WatchNode(
            node_name=encoded(node.full_name or node.name),
            node_type=encoded(node.type),
            graph_name=encoded(graph),
            rank_id=rank,
        )
        for graph, node in nodes
        if not node.is_constant
    )
    if command.ByteSize() > most_bytes:
        raise WireError(
            f"watchpoint {watchpoint} watches {len(command.watch_nodes):,} nodes, which need {command.ByteSize():,} "
            f"bytes in one command; the process accepts {most_bytes:,}: watch fewer"
        )
    return command


def _watch_condition(watchpoint: Watchpoint) -> WatchCondition:
    condition = watchpoint.check.condition
    if condition.wire_number is None:
        raise WireError(f"{condition.id} has no number in the protocol; only its own process can check it")
    message = WatchCondition(condition=condition.wire_number)
    values = watchpoint.check.values
    for parameter in condition.parameters:  # hidden ones have their defaults among the values
        value = values.get(parameter.name)
        if value is None:
            message.params.add(name=parameter.name.encode(), disabled=True)
        else:
            message.params.add(name=parameter.name.encode(), value=float(value))
            message.value = float(value)  # of the last one that is set: all that MindSpore 1.0 looked at
    return message
