"""Differences that a rank received from another rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensight.compare.runs.result import Finding
from tensight.graph.operator_facts import is_collective

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensight.compare.runs.result import RunComparison

_ORDER = (
    Finding.INITIAL_WEIGHTS,
    Finding.BETWEEN_STEPS,
    Finding.DATA,
    Finding.FORWARD,
    Finding.BACKWARD,
    Finding.UPDATE,
    Finding.LOSSES,
)
"""Findings in the order in which they occur in a step."""


def across_ranks(results: Sequence[RunComparison]) -> None:
    """Attribute the difference of a collective operator to the rank that differed first.

    The inputs of the collective on its own rank agree, so it seems to be the first operator that differs. If no other
    rank differs before, it is: the collective itself may combine the ranks differently.

    Parameters
    ----------
    results : sequence of RunComparison
        Results of the ranks of the same two runs; modified in place.
    """
    candidates = [result for result in results if result.finding in _ORDER and not _is_put_together(result)]
    for result in results:
        if not _is_put_together(result):
            continue
        earlier = [
            candidate for candidate in candidates if candidate.rank != result.rank and _when(candidate) <= _when(result)
        ]
        if earlier:
            origin = min(earlier, key=_when)
            result.verdict, result.finding, result.from_rank = origin.verdict, Finding.ANOTHER_RANK, origin.rank


def first_of_all(results: Sequence[RunComparison]) -> RunComparison:
    """Return the result to read first: the one with the worst verdict; of several, the earliest."""
    return min(
        results,
        key=lambda result: (
            result.verdict.severity,
            result.finding is Finding.ANOTHER_RANK,
            _when(result),
            result.rank,
        ),
    )


def _is_put_together(result: RunComparison) -> bool:
    return result.first is not None and is_collective(result.first.pair.a.type)


def _when(result: RunComparison) -> tuple[int, int]:
    """Return the step of a finding, and the order of the finding within the step."""
    index = _ORDER.index(result.finding) if result.finding in _ORDER else len(_ORDER)
    return result.step or 0, index
