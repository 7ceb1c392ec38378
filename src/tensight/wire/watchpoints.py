"""Messages for watchpoints that are sent to a training process, and for hits that it reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tensight.errors import InputError
from tensight.watchpoints import MOST_PERSISTENCE, ConditionCheck, Selector, Source, conditions_by_wire_number
from tensight.watchpoints.causes import ONLY_NON_FINITE
from tensight.wire.debugger_pb2 import EventReply, SetCMD, WatchCondition, WatchNode
from tensight.wire.errors import WireError
from tensight.wire.protocol import MOST_COMMAND_BYTES, MOST_PARAMETERS
from tensight.wire.tensor_pieces import received_request
from tensight.wire.text import encoded, name, text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tensight.graph import Node
    from tensight.watchpoints import Condition, Quantity, Watchpoint
    from tensight.wire.debugger_pb2 import WatchpointHit
    from tensight.wire.tensor_pieces import Io

MOST_NAMES = 1_000_000
_LONGEST_SELECTION = 1000
_LONGEST_PARAMETER_NAME = 64
_MOST_DIGITS = 10
_MOST_STEP = 2**31 - 1
_SINCE = "since"
"""Name of a parameter of hits that is none of their condition: since when it has held."""


# --- the server's side: commands ---


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
        The watched nodes; constants are left out, because they cannot be watched.
    rank : int
        Rank of the process.
    selection : str
        A selector in place of the nodes, for agents whose nodes appear as they run.
    most_bytes : int
        Maximum size of a command that the process accepts.

    Raises
    ------
    WireError
        The condition has no number in the protocol, or the command has more than `most_bytes`.
    """
    command = SetCMD(id=watchpoint.id, watch_condition=_condition_message(watchpoint), selection=encoded(selection))
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


def _condition_message(watchpoint: Watchpoint) -> WatchCondition:
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
            message.value = float(value)  # the last one that is set: the only one that MindSpore 1.0 used
    return message


# --- the training's side: watchpoints ---


@dataclass(frozen=True, slots=True)
class ReceivedWatchpoint:
    """A watchpoint as received: its check and its nodes, before any node is known.

    Attributes
    ----------
    id : int
        Its number.
    wire_number : int
        The condition's number in the protocol.
    check : ConditionCheck or None
        None if no threshold is set: such a watchpoint never hits.
    selector : Selector or None
        The rule in place of names.
    names : frozenset of str
        Full names of nodes.
    tails : dict of str to str
        The names by the part after the last slash: parameters may be named with a scope before it.
    persistence : int
        Steps in a row.
    """

    id: int
    wire_number: int
    check: ConditionCheck | None
    selector: Selector | None
    names: frozenset[str]
    tails: dict[str, str]
    persistence: int = 1

    @property
    def flag(self) -> Quantity | None:
        """The quantity that hits if greater than 0, for a condition without thresholds."""
        return None if self.check is None else self.check.condition.flag

    @property
    def only_finite(self) -> bool:
        """Whether a tensor without NaN and Inf can never hit."""
        return self.flag is not None and self.flag.name in ONLY_NON_FINITE

    @property
    def compares_ranks(self) -> bool:
        """Whether the server compares hashes, so that the process checks nothing."""
        return self.check is not None and self.check.needs.ranks

    @property
    def compares_steps(self) -> bool:
        """Whether it compares a tensor with its previous value."""
        return self.check is not None and any(q.source is Source.CHANGE for q in self.check.quantities)

    @property
    def is_exact(self) -> bool:
        """Whether it only checks bit equality, for which the hash suffices."""
        if self.check is None or not self.compares_steps:
            return False
        values = self.check.values
        only_tolerance = all(quantity.name == "required_rtol" for quantity in self.check.quantities)
        return only_tolerance and not values.get("rtol") and not values.get("atol")


def received_watchpoint(command: SetCMD) -> ReceivedWatchpoint:
    """Parse the command that sets a watchpoint.

    Raises
    ------
    InputError, WireError
        The condition, a parameter, the selection, a name or the persistence is invalid.
    """
    selection = text(command.selection, _LONGEST_SELECTION).strip()
    if len(command.watch_nodes) > MOST_NAMES:
        raise InputError(f"a watchpoint watches at most {MOST_NAMES:,} nodes; got {len(command.watch_nodes):,}")
    names = frozenset(name(node.node_name) for node in command.watch_nodes)
    persistence = command.persistence or 1
    if not 1 <= persistence <= MOST_PERSISTENCE:
        raise InputError(f"the persistence of a watchpoint is from 1 to {MOST_PERSISTENCE:,} steps; got {persistence}")
    return ReceivedWatchpoint(
        id=command.id,
        wire_number=command.watch_condition.condition,
        check=_read_check(command.watch_condition),
        selector=Selector.parse(selection) if selection else None,
        names=names,
        tails={full_name.rpartition("/")[2]: full_name for full_name in names},
        persistence=persistence,
    )


def _read_check(message: WatchCondition) -> ConditionCheck | None:
    conditions = conditions_by_wire_number(message.condition)
    if not conditions:
        raise InputError(
            f"condition {message.condition} is not known to this agent; install the version of tensight that the server"
            " has",
            code="condition-unknown",
        )
    condition = conditions[0]
    given = {text(parameter.name, _LONGEST_PARAMETER_NAME): parameter for parameter in message.params}
    values = {
        key: _value(condition, key, parameter.value) for key, parameter in given.items() if not parameter.disabled
    }
    if condition.checks and not any(parameter.name in values for parameter in condition.checks):
        return None
    # The original's Python API sets values outside of the ranges, too.
    return ConditionCheck(condition, values, strict=False)


def _value(condition: Condition, parameter: str, value: float) -> float | bool:
    declared = condition.parameter(parameter)
    return bool(value) if declared is not None and declared.values.is_boolean else value


# --- hits ---


class ReceivedParameter(NamedTuple):
    """A parameter of a watchpoint that hit.

    Attributes
    ----------
    name : str
    disabled : bool
        The watchpoint does not use it; the other fields are then meaningless.
    value : float
        The threshold.
    hit : bool
    actual : float
        The value of the tensor; 0 if the process computes none.
    """

    name: str
    disabled: bool
    value: float
    hit: bool
    actual: float


@dataclass(frozen=True, slots=True)
class ReceivedHit:
    """A watchpoint that hit on a tensor, or could not be checked on it.

    Attributes
    ----------
    node : str
        Full name of the node in its process.
    slot : int
    io : {"output", "input"}
    graph : str
        Empty from MindSpore's own client, which does not send it.
    watchpoint : int
        Its id.
    condition : int
        The condition's number in the protocol.
    error_code : int
        Bits of `ErrorCode`; unknown bits are kept.
    parameters : tuple of ReceivedParameter
        In the order of the message.
    iteration : int or None
        Iteration of its step, if the process did not stop for it, because the hit is not new.
    since : int or None
        Step, from 1, since which the condition has held in a row, if it must hold for several steps.
    may_be_older : bool
        Whether the condition may have held before `since`, when it was not checked.
    """

    node: str
    slot: int
    io: Io
    graph: str
    watchpoint: int
    condition: int
    error_code: int
    parameters: tuple[ReceivedParameter, ...]
    iteration: int | None = None
    since: int | None = None
    may_be_older: bool = False


def add_since(message: WatchCondition, step: int, *, may_be_older: bool) -> None:
    """Add to the condition of a hit since when it has held; servers that do not know it ignore it.

    Parameters
    ----------
    message : WatchCondition
    step : int
        The step, from 1.
    may_be_older : bool
        Whether it may have held before, when it was not checked.
    """
    message.params.add(name=_SINCE.encode(), value=step, disabled=may_be_older)


def received_hit(message: WatchpointHit) -> ReceivedHit:
    """Parse a hit.

    Raises
    ------
    WireError
        There cannot be such a slot or name, or there are far too many parameters.
    """
    parameters = message.watch_condition.params
    if len(parameters) > MOST_PARAMETERS:
        raise WireError(f"a hit has {len(parameters):,} parameters; no condition has more than {MOST_PARAMETERS}")
    tensor = received_request(message.tensor)
    received = [
        ReceivedParameter(text(p.name, _LONGEST_PARAMETER_NAME), p.disabled, p.value, p.hit, p.actual_value)
        for p in parameters
    ]
    since = next((parameter for parameter in received if parameter.name == _SINCE), None)
    return ReceivedHit(
        node=tensor.node,
        slot=tensor.slot,
        io=tensor.io,
        graph=name(message.graph) or tensor.graph,
        watchpoint=message.id,
        condition=message.watch_condition.condition,
        error_code=message.error_code,
        parameters=tuple(parameter for parameter in received if parameter is not since),
        iteration=_iteration(message.tensor.iter),
        since=int(since.value) if since is not None and 1 <= since.value <= _MOST_STEP else None,
        may_be_older=since is not None and since.disabled,
    )


def _iteration(digits: bytes) -> int | None:
    """Return the iteration of a hit; MindSpore's own client sends none."""
    if not digits:
        return None
    if not (digits.isdigit() and len(digits) <= _MOST_DIGITS):
        raise WireError(f"{text(digits, _MOST_DIGITS)!r} is not the iteration of a hit")
    return int(digits)
