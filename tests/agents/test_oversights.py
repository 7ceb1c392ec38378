"""What does not become a step is counted and reported at little cost."""

from __future__ import annotations

from tensight.agents.core.oversights import ACCUMULATED, BACKWARD_PASSES, Oversights


def test_gradients_of_an_accumulation_are_read_a_few_times_and_too_many_passes_are_reported() -> None:
    reports: list[str] = []
    oversights = Oversights(reports.append, lambda _: None, lambda: 0)
    asked: list[int] = []
    for number in range(1, ACCUMULATED + 2):
        assert not reports, number
        oversights.backward_pass(lambda number=number: asked.append(number) is None)  # type: ignore[misc]
    assert len(reports) == 1
    assert asked[0] == BACKWARD_PASSES + 1
    assert len(asked) <= 4


def test_passes_that_accumulate_nothing_are_reported_at_once() -> None:
    reports: list[str] = []
    oversights = Oversights(reports.append, lambda _: None, lambda: 0)
    for _ in range(BACKWARD_PASSES + 1):
        oversights.backward_pass()
    assert len(reports) == 1
