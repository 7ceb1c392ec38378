"""The next order of each rank of a run, decided for all ranks at once, from their stop states only.

Ranks stay together: no rank advances until all ranks have reached its step and have received their watchpoints. The
`RunController` carries out the orders.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Literal, NamedTuple

from tensight.sessions.records import State

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from collections.abc import Set as AbstractSet


class Order(Enum):
    """The next command for a rank, or the next action on its behalf."""

    NOTHING = "no command: it runs, waits for other ranks, or is at its target"
    EXIT = "end the training"
    LINE = "write a line to the terminal, then ask again"
    QUEUED = "execute a queued command, then ask again"
    PREPARE = "no command yet: determine the changes of its watchpoints first"
    CHECK = "compute something for the step at which it is stopped"
    CHECK_INITIAL = "check the values before the first step, which have not been checked"
    GO = "continue training"


class StopState(NamedTuple):
    """Where a rank is stopped, and what is pending for it.

    Attributes
    ----------
    global_step : int
        Its step as counted by all ranks together.
    step : int
        Its step as it counts itself.
    state : State
    released : int or None
        The global step from which it last continued.
    is_waiting : bool
        Whether it waits for a command.
    wants_exit : bool
        Whether it shall end.
    has_lines, has_queue : bool
        Whether lines for its terminal, and commands, are queued.
    version : int or None
        Version of the watchpoints that it has.
    has_unchecked : bool
        Whether it received watchpoints that were not checked on the values before the first step.
    task : {"train", "check", ""}
        Its task in the plan of the run: continue, or compute something where it is stopped; empty if it is at its
        target.
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
    task: Literal["train", "check", ""] = "train"


def next_orders(ranks: Sequence[StopState], version: int, *, is_complete: bool = True) -> list[Order]:
    """Return the next order of each rank.

    Parameters
    ----------
    ranks : sequence of StopState
        All live ranks.
    version : int
        Version of the watchpoints that they should have.
    is_complete : bool
        Whether all ranks of the job have attached, or the wait for them is over.
    """
    last = min((rank.global_step for rank in ranks), default=0)
    may_leave = is_complete and all(_is_settled(rank, version) for rank in ranks if rank.global_step == last)
    return [_order(rank, version, may_leave=may_leave and rank.global_step == last) for rank in ranks]


def left_steps(ranks: Iterable[StopState]) -> set[int]:
    """Return the global steps that a rank has left without having reached the next one."""
    return {rank.global_step for rank in ranks if rank.state is State.RUNNING and rank.released == rank.global_step}


def owes_step(rank: StopState, left: AbstractSet[int]) -> bool:
    """Return whether a rank must do a step although the run is stopped.

    If others left a global step before it arrived there, they may wait for it within the next step.
    """
    return rank.released != rank.global_step and rank.global_step in left


def _is_settled(rank: StopState, version: int) -> bool:
    """Return whether other ranks need not wait for a rank at its step."""
    is_ready = rank.is_waiting and not rank.has_queue and rank.version == version
    return is_ready or rank.released == rank.global_step or rank.state is State.MISMATCH


def _order(rank: StopState, version: int, *, may_leave: bool) -> Order:
    if not rank.is_waiting:
        return Order.NOTHING
    if rank.wants_exit:
        return Order.EXIT
    if rank.has_lines:
        return Order.LINE
    if rank.has_queue:
        return Order.QUEUED
    if not rank.task:
        return Order.NOTHING
    if rank.version != version:
        return Order.PREPARE
    if rank.task == "check":
        return Order.CHECK
    if rank.has_unchecked and rank.step == 0:
        # Some conditions are checked on initial values only, and only by a check of all watchpoints.
        return Order.CHECK_INITIAL
    return Order.GO if may_leave else Order.NOTHING
