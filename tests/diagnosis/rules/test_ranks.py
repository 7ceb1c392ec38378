"""What is found when the facts of the ranks of a run are put side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tensight.diagnosis.catalogue import diagnose
from tensight.diagnosis.facts import Facts

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS = 8


def found(row: Callable[[int, int], dict[str, Any]]) -> list[tuple[str, str, int]]:
    """Return what is found of two ranks with these facts, by step and rank."""
    runs = []
    for rank in range(2):
        facts = Facts(rank)
        for step in range(1, STEPS + 1):
            facts.add("ranks", step, [{"name": f"rank {rank}", "world": 2, **row(step, rank)}])
        runs.append(facts)
    findings = [explained.finding for explained in diagnose(runs).findings]
    return [(finding.rule, finding.message, finding.step) for finding in findings]


def data_parallel(step: int, rank: int) -> dict[str, Any]:
    return {"weights": step, "batch": 10 * step + rank, "norm_backward": 1.0 / step, "norm": 1.0 / step}


def test_nothing_is_found_where_ranks_average_their_gradients() -> None:
    assert found(data_parallel) == []


def test_replicas_that_begin_alike_and_are_trained_apart() -> None:
    apart = found(lambda step, rank: {**data_parallel(step, rank), "weights": step + (rank if step > 3 else 0)})
    assert apart == [("replicas-differ", "since", 4)]


def test_replicas_that_begin_with_other_weights() -> None:
    assert found(lambda step, rank: {**data_parallel(step, rank), "weights": 2 * step + rank}) == [
        ("replicas-differ", "start", 1)
    ]


def test_ranks_that_meet_again_average_their_weights() -> None:
    assert found(lambda step, rank: {**data_parallel(step, rank), "weights": step + (rank if step % 4 else 0)}) == []


def test_ranks_that_read_the_same_batches() -> None:
    assert found(lambda step, rank: {**data_parallel(step, rank), "batch": step}) == [("ranks-same-data", "same", 1)]


@pytest.mark.parametrize(("factor", "expected"), [(0.5, "twice"), (2.0, "summed_again")])
def test_gradients_that_are_averaged_or_summed_once_more(factor: float, expected: str) -> None:
    again = found(lambda step, rank: {**data_parallel(step, rank), "norm": factor / step})
    assert again == [("ranks-gradients", expected, 1)]


def test_gradients_that_are_summed() -> None:
    """A mean of two gradients is never longer than the mean of their lengths."""
    summed = found(lambda step, rank: {**data_parallel(step, rank), "norm_backward": 1.0 + 0.1 * rank, "norm": 1.9})
    assert summed == [("ranks-gradients", "summed", 1)]
    mean = found(lambda step, rank: {**data_parallel(step, rank), "norm_backward": 1.0 + 0.1 * rank, "norm": 0.95})
    assert mean == []
