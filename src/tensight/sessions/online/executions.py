"""Which root graph ran in which iteration of a rank, as far as the process told."""

from __future__ import annotations

from bisect import bisect_right
from itertools import islice
from typing import TYPE_CHECKING

from tensight.graph.steps import step_of
from tensight.sessions.records import Execution, ExecutionPage

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence

    from tensight.sessions.online.rank_graphs import RankGraphs

MOST_STRETCHES = 100_000
"""Times that the graph changed; what ran after that is not told."""

Stretch = tuple[int, int, "int | None"]
"""The first iteration, the one after the last, and the number of the root graph that ran."""


class Executions:
    """The iterations of one rank, in stretches during which one graph ran."""

    def __init__(self) -> None:
        self._stretches: list[Stretch] = []
        self._unrecorded: list[Stretch] = []

    def add(self, first: int, end: int, root_id: int | None) -> None:
        """Note that a root graph ran from one iteration to before another; what was noted from there on is void."""
        if end <= first:
            return
        while self._stretches and self._stretches[-1][0] >= first:
            self._stretches.pop()
        _append(self._stretches, (first, end, root_id))
        _append(self._unrecorded, (first, end, root_id))

    def __len__(self) -> int:
        return sum(end - first for first, end, _ in self._stretches)

    def page(self, offset: int, limit: int) -> list[tuple[int, int | None]]:
        """Return some of the iterations, each with the root graph that ran."""
        return list(islice(self._from(offset), limit))

    def at(self, iterations: Sequence[int]) -> list[int | None]:
        """Return the root graph that ran in each of some iterations; None where that was not told."""
        firsts = [first for first, _, _ in self._stretches]
        found: list[int | None] = []
        for iteration in iterations:
            place = bisect_right(firsts, iteration) - 1
            is_in = place >= 0 and iteration < self._stretches[place][1]
            found.append(self._stretches[place][2] if is_in else None)
        return found

    def _from(self, offset: int) -> Iterator[tuple[int, int | None]]:
        for first, end, root_id in self._stretches:
            for iteration in range(first + min(offset, end - first), end):
                yield iteration, root_id
            offset = max(offset - (end - first), 0)

    def unrecorded(self) -> list[Stretch]:
        """Return what was added since this was asked last."""
        stretches, self._unrecorded = self._unrecorded, []
        return stretches


def execution_page(
    executions: Executions, graphs: RankGraphs, with_data: Container[int], offset: int, limit: int
) -> ExecutionPage:
    """Return what a session tells about some of the iterations of a rank.

    Parameters
    ----------
    executions : Executions
    graphs : RankGraphs
        Of the rank.
    with_data : container of int
        The iterations of which values were kept.
    offset, limit : int
    """
    found = []
    for iteration, root_id in executions.page(max(offset, 0), limit):
        root = graphs.graph_of_root(root_id)
        family = [graph.name for graph in graphs.graphs if root is not None and graph.root_id == root.root_id]
        found.append(
            Execution(
                step=step_of(iteration),
                graph=root.name if root else "",
                graphs=tuple(family),
                has_data=iteration in with_data,
            )
        )
    return ExecutionPage(total=len(executions), offset=offset, executions=tuple(found))


def _append(stretches: list[Stretch], stretch: Stretch) -> None:
    last = stretches[-1] if stretches else None
    if last is not None and last[1:] == (stretch[0], stretch[2]):
        stretches[-1] = (last[0], stretch[1], stretch[2])
    elif len(stretches) < MOST_STRETCHES:
        stretches.append(stretch)
