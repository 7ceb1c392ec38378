"""Hits as a training process reports them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tensight.wire.errors import WireError
from tensight.wire.protocol import MOST_PARAMETERS
from tensight.wire.tensor_pieces import received_request
from tensight.wire.text import name, text

if TYPE_CHECKING:
    from tensight.wire.debugger_pb2 import WatchpointHit
    from tensight.wire.tensor_pieces import Io

_LONGEST_PARAMETER_NAME = 64
_MOST_DIGITS = 10


class ReceivedParameter(NamedTuple):
    """A parameter of a watchpoint that hit.

    Attributes
    ----------
    name : str
    disabled : bool
        The watchpoint does not use it; the other fields then mean nothing.
    value : float
        What was set.
    hit : bool
    actual : float
        What the tensor has; 0 where the process computes none.
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
        Full name, as the process knows the node.
    slot : int
    io : {"output", "input"}
    graph : str
        Empty from MindSpore's own client, which does not say.
    watchpoint : int
        Its id.
    condition : int
        The condition's number in the protocol.
    error_code : int
        Bits of `ErrorCode`; unknown ones are kept.
    parameters : tuple of ReceivedParameter
        In the order of the message.
    iteration : int or None
        Of its step, if the process did not stop for it: it was reported before, or follows from what was.
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


def received_hit(message: WatchpointHit) -> ReceivedHit:
    """Read a hit.

    Raises
    ------
    WireError
        There can be no such slot or name, or there are far too many parameters.
    """
    parameters = message.watch_condition.params
    if len(parameters) > MOST_PARAMETERS:
        raise WireError(f"a hit has {len(parameters):,} parameters; no condition has more than {MOST_PARAMETERS}")
    tensor = received_request(message.tensor)
    return ReceivedHit(
        node=tensor.node,
        slot=tensor.slot,
        io=tensor.io,
        graph=name(message.graph) or tensor.graph,
        watchpoint=message.id,
        condition=message.watch_condition.condition,
        error_code=message.error_code,
        parameters=tuple(
            ReceivedParameter(text(p.name, _LONGEST_PARAMETER_NAME), p.disabled, p.value, p.hit, p.actual_value)
            for p in parameters
        ),
        iteration=_iteration(message.tensor.iter),
    )


def _iteration(digits: bytes) -> int | None:
    """Return the iteration of a hit; MindSpore's own client names none."""
    if not digits:
        return None
    if not (digits.isdigit() and len(digits) <= _MOST_DIGITS):
        raise WireError(f"{text(digits, _MOST_DIGITS)!r} is no iteration of a hit")
    return int(digits)
