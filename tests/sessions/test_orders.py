"""What ranks are told next, as a table: from where they stand alone."""

from __future__ import annotations

import pytest

from tensight.sessions.live.orders import Order, StopState, left_steps, next_orders, owes_step
from tensight.sessions.records import State

VERSION = 3


def at(global_step: int, **stop_state: object) -> StopState:
    """Return a rank that waits and knows what to watch, if nothing else is said."""
    return StopState(global_step, **{"step": global_step, "version": VERSION, **stop_state})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("stop_state", "order"),
    [
        (at(2), Order.GO),
        (at(2, task=""), Order.NOTHING),
        (at(2, is_waiting=False), Order.NOTHING),
        (at(2, is_waiting=False, wants_exit=True), Order.NOTHING),
        (at(2, wants_exit=True, has_lines=True, has_queue=True), Order.EXIT),
        (at(2, has_lines=True, has_queue=True), Order.LINE),
        (at(2, has_queue=True), Order.QUEUED),
        (at(2, has_queue=True, task=""), Order.QUEUED),
        (at(2, version=None), Order.PREPARE),
        (at(2, version=2), Order.PREPARE),
        (at(2, version=2, task="check"), Order.PREPARE),
        (at(2, version=2, task=""), Order.NOTHING),
        (at(2, task="check"), Order.CHECK),
        (at(0, has_unchecked=True), Order.CHECK_INITIAL),
        (at(0, has_unchecked=True, task="check"), Order.CHECK),
        (at(2, has_unchecked=True), Order.GO),
    ],
)
def test_a_single_rank(stop_state: StopState, order: Order) -> None:
    assert next_orders([stop_state], VERSION) == [order]


@pytest.mark.parametrize(
    ("ranks", "orders"),
    [
        ([at(2), at(2)], [Order.GO, Order.GO]),
        # Nobody leaves a place before all have reached it,
        ([at(2), at(1)], [Order.NOTHING, Order.GO]),
        ([at(2), at(1, is_waiting=False, released=1, state=State.RUNNING)], [Order.NOTHING, Order.NOTHING]),
        # and have been told what they must know there;
        ([at(2), at(2, has_queue=True)], [Order.NOTHING, Order.QUEUED]),
        ([at(2), at(2, version=2)], [Order.NOTHING, Order.PREPARE]),
        ([at(2), at(2, is_waiting=False)], [Order.NOTHING, Order.NOTHING]),
        # who has been let go there is not waited for, and neither is one that does not understand the protocol.
        ([at(2), at(2, is_waiting=False, released=2)], [Order.GO, Order.NOTHING]),
        ([at(2), at(2, is_waiting=False, state=State.MISMATCH)], [Order.GO, Order.NOTHING]),
        # A check is of the place where a rank stands.
        ([at(2, task="check"), at(1)], [Order.CHECK, Order.GO]),
        ([], []),
    ],
)
def test_ranks_stay_together(ranks: list[StopState], orders: list[Order]) -> None:
    assert next_orders(ranks, VERSION) == orders


def test_none_begins_before_the_job_is_complete() -> None:
    ranks = [at(0), at(0, version=2), at(0, has_unchecked=True)]
    assert next_orders(ranks, VERSION, is_complete=False) == [Order.NOTHING, Order.PREPARE, Order.CHECK_INITIAL]


def test_a_rank_owes_the_step_that_others_have_begun() -> None:
    gone = at(4, is_waiting=False, released=4, state=State.RUNNING)
    here, let_go = at(4), at(4, released=4)
    left = left_steps([gone, here, let_go])
    assert left == {4}
    assert owes_step(here, left)
    assert not owes_step(let_go, left)
    assert not owes_step(at(5), left)
    assert left_steps([here, let_go]) == set()
