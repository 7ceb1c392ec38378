"""The graphs of a rank that ran in each step, as far as known."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from tensight.graph.steps import step_of

if TYPE_CHECKING:
    from collections.abc import Iterable


class GraphSteps:
    """Ranges of iterations in which the same graphs are known to have run.

    Parameters
    ----------
    stretches : iterable of (int, int, frozenset of str)
        First iteration, end (exclusive), and the graphs that ran in all of them; in order.
    """

    def __init__(self, stretches: Iterable[tuple[int, int, frozenset[str]]]) -> None:
        self._stretches = list(stretches)
        self._firsts = [first for first, _, _ in self._stretches]

    def at(self, iteration: int) -> frozenset[str]:
        """Return the graphs that ran in an iteration; if unknown, the last before it, else the first after it."""
        if not self._stretches:
            return frozenset()
        return self._stretches[max(bisect_right(self._firsts, iteration) - 1, 0)][2]

    def of(self, graph: str) -> list[tuple[int, int]]:
        """Return the spans (first and last step) in which a graph ran; a known range without it separates spans."""
        spans: list[tuple[int, int]] = []
        ran_before = False
        for first, end, graphs in self._stretches:
            if graph in graphs:
                span = step_of(first), step_of(end - 1)
                if ran_before:
                    spans[-1] = spans[-1][0], span[1]
                else:
                    spans.append(span)
            ran_before = graph in graphs
        return spans

    def are_apart(self, graph: str, other: str) -> bool:
        """Return whether both graphs are known to have run, but never in the same step."""
        ran: set[str] = set()
        for _, _, graphs in self._stretches:
            ran.update(graphs & {graph, other})
            if {graph, other} <= graphs:
                return False
        return len(ran) > 1
