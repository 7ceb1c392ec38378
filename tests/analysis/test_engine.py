from __future__ import annotations

import threading

import pytest

from tensight.analysis import ThreadEngine


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_every_item_is_visited_exactly_once_and_progress_reaches_the_total(threads: int) -> None:
    visited: list[int] = []
    steps: list[tuple[int, int]] = []
    ThreadEngine(threads).run(
        range(100), visited.append, weight=lambda item: item, progress=lambda done, total: steps.append((done, total))
    )
    assert sorted(visited) == list(range(100))
    assert steps[-1] == (4950, 4950)
    assert steps == sorted(steps)


def test_nothing_to_do_is_done_at_once() -> None:
    ThreadEngine(4).run([], lambda item: None, weight=lambda item: 1, progress=None)


def test_the_first_failure_reaches_the_caller_and_stops_the_rest() -> None:
    visited: list[int] = []

    def work(item: int) -> None:
        if item == 9:
            raise KeyError(item)
        visited.append(item)

    with pytest.raises(KeyError):
        ThreadEngine(1).run(range(10), work, weight=lambda item: item, progress=None)
    assert visited == []


def test_two_threads_work_at_the_same_time() -> None:
    meeting = threading.Barrier(2, timeout=30)
    ThreadEngine(2).run([1, 2], lambda item: meeting.wait() and None, weight=lambda item: 1, progress=None)
