"""The next order of each rank of a run, decided from where the ranks are stopped alone, for all of them at once.

Ranks stay together: no rank advances until all ranks have reached its step and know what they must know there. The
`RunController` carries out what is decided here.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Literal, NamedTuple

from tensight.sessions.records import State

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from collections.abc import Set as AbstractSet


class Order(Enum):
    """What a rank is told, or what is done for it."""

    NOTHING = "it runs, or waits for others, or is where it should be"
    EXIT = "end"
    LINE = "write a line to the terminal, and ask again"
    QUEUED = "take in what was queued for it, and ask again"
    PREPARE = "nothing yet: what it must watch is worked out first"
    CHECK = "compute something of the step at which it is stopped"
    CHECK_INITIAL = "check the values before the first step, which nobody has checked"
    GO = "train on"


class StopState(NamedTuple):
    """Where a rank is stopped, and what there is to tell it.

    Attributes
    ----------
    global_step : int
        How far it is, in steps as all ranks count them together.
    step : int
        The same as it counts itself.
    state : State
    released : int or None
        The global step from which it was last let go.
    is_waiting : bool
        Whether it asks what to do.
    wants_exit : bool
        Whether it is to end.
    has_lines, has_queue : bool
        Whether something is there for its terminal, and for itself.
    version : int or None
        Of what is watched, as it knows it.
    has_unchecked : bool
        Whether it was told of watchpoints that were not checked on the values before the first step.
    wanted : {"train", "check", ""}
        What the plan of the run wants of it: go on, or compute something where it is stopped; empty if it is where it
        should be.
    """

    global_step: int
    step: int = 0
    state: State = State.PAUSED
    released: int | None = None
    is_waiting: bool = True
    wants_exit: bool = False
    has_lines: bool = False
    has_queue: bool = False
    version: int | None = 0
    has_unchecked: bool = False
    wanted: Literal["train", "check", ""] = "train"


def next_orders(ranks: Sequence[StopState], version: int, *, is_complete: bool = True) -> list[Order]:
    """Return what each rank is told next.

    Parameters
    ----------
    ranks : sequence of StopState
        All that may still say something.
    version : int
        Of what is watched.
    is_complete : bool
        Whether all ranks of the job are there, or are waited for no more.
    """
    last = min((one.global_step for one in ranks), default=0)
    may_leave = is_complete and all(_is_settled(one, version) for one in ranks if one.global_step == last)
    return [_order(one, version, may_leave=may_leave and one.global_step == last) for one in ranks]


def left_steps(ranks: Iterable[StopState]) -> set[int]:
    """Return the global steps from which a rank has gone on without having reached the next one yet."""
    return {one.global_step for one in ranks if one.state is State.RUNNING and one.released == one.global_step}


def owes_step(rank: StopState, left: AbstractSet[int]) -> bool:
    """Whether a rank has to do a step although nobody may go on.

    If others have left a global step before it came there, they may wait for it within the next one.
    """
    return rank.released != rank.global_step and rank.global_step in left


def _is_settled(one: StopState, version: int) -> bool:
    """Whether nothing is left to do for a rank where it is stopped, as far as the others are concerned."""
    is_ready = one.is_waiting and not one.has_queue and one.version == version
    return is_ready or one.released == one.global_step or one.state is State.MISMATCH


def _order(one: StopState, version: int, *, may_leave: bool) -> Order:
    if not one.is_waiting:
        return Order.NOTHING
    if one.wants_exit:
        return Order.EXIT
    if one.has_lines:
        return Order.LINE
    if one.has_queue:
        return Order.QUEUED
    if not one.wanted:
        return Order.NOTHING
    if one.version != version:
        return Order.PREPARE
    if one.wanted == "check":
        return Order.CHECK
    if one.has_unchecked and one.step == 0:
        # Some conditions are only checked on the initial values, and only when everything is checked again.
        return Order.CHECK_INITIAL
    return Order.GO if may_leave else Order.NOTHING
