"""Which nodes everything that comes after them has to pass."""

from __future__ import annotations

from hypothesis import given, strategies

from tensight.graph.dominators import passed_by_all


@strategies.composite
def graphs(draw: strategies.DrawFn) -> list[list[int]]:
    count = draw(strategies.integers(1, 12))
    return [draw(strategies.lists(strategies.integers(-1, node - 1), max_size=3)) for node in range(count)]


def is_passed(read: list[list[int]], node: int) -> bool:
    """Say the same by the definition: nothing after the node reads what has not come from it."""
    after: set[int] = set()
    for later in range(node + 1, len(read)):
        if not after.union({node}).isdisjoint(read[later]):
            after.add(later)
    return bool(after) and all(after.union({node}).issuperset(read[later]) for later in after)


@given(graphs())
def test_a_node_is_passed_by_all_if_nothing_goes_round_it(read: list[list[int]]) -> None:
    assert passed_by_all(read) == [is_passed(read, node) for node in range(len(read))]


def test_what_does_not_come_before_a_node_is_from_outside() -> None:
    assert passed_by_all([[], [0, 2], [1]]) == [False, True, False]
