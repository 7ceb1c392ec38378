"""Which root graph ran in which iteration of a rank, as far as the process told."""

from __future__ import annotations

import threading
from bisect import bisect_right
from typing import TYPE_CHECKING

from tensight.graph.steps import step_of
from tensight.sessions.records import Execution, ExecutionPage

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence

    from tensight.sessions.live.rank_graphs import RankGraphs

MOST_STRETCHES = 100_000
"""Times that the graph changed, as far as it is known; what ran after that is not told."""

Stretch = tuple[int, int, int]
"""The first iteration, the one after the last, and the number of the root graph that ran."""


class Executions:
    """The iterations that a rank has done, and the root graphs that are known to have run in them.

    A running process says only now and then which graph it runs: what ran between is not known. Methods may be called
    in any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begin = self._end = 0
        self._known: list[Stretch] = []
        self._unrecorded: list[Stretch] = []
        self._unrecorded_from = 0

    def advance(self, first: int, end: int) -> None:
        """Note that the iterations from one to before another were done; what was known from there on is void."""
        if end <= first:
            return
        with self._lock:
            if self._begin == self._end:
                self._begin = self._unrecorded_from = first
            elif first < self._end:
                self._known = list(_before(self._known, first))
                self._unrecorded = list(_before(self._unrecorded, first))
                self._unrecorded_from = min(self._unrecorded_from, first)
            self._end = end

    def note(self, iteration: int, root_id: int) -> None:
        """Note that a root graph ran in an iteration, which may not be over."""
        with self._lock:
            if iteration >= 0 and self._at([iteration]) != [root_id]:
                _put(self._known, iteration, root_id)
                _put(self._unrecorded, iteration, root_id)

    def __len__(self) -> int:
        return self._end - self._begin

    def page(self, offset: int, limit: int) -> list[tuple[int, int | None]]:
        """Return some of the iterations that were done, each with the root graph that ran; None if it is not known."""
        first = self._begin + offset
        iterations = range(first, min(first + limit, self._end))
        return list(zip(iterations, self.at(iterations), strict=True))

    def at(self, iterations: Sequence[int]) -> list[int | None]:
        """Return the root graph that ran in each of some iterations; None where it is not known."""
        with self._lock:
            return self._at(iterations)

    def known(self) -> list[Stretch]:
        """Return in which iterations graphs are known to have run, in order."""
        with self._lock:
            return list(self._known)

    def nearest(self, iteration: int) -> int | None:
        """Return the root graph that ran in an iteration; where that is not known, last before it, else after it."""
        with self._lock:
            index = bisect_right(self._known, iteration, key=_first) - 1
            return self._known[max(index, 0)][2] if self._known else None

    def unrecorded(self) -> tuple[list[Stretch], range]:
        """Return what became known since this was asked last, and the iterations that were done since then."""
        with self._lock:
            stretches, self._unrecorded = self._unrecorded, []
            done, self._unrecorded_from = range(self._unrecorded_from, self._end), self._end
            return stretches, done

    def _at(self, iterations: Sequence[int]) -> list[int | None]:
        found: list[int | None] = []
        for iteration in iterations:
            index = bisect_right(self._known, iteration, key=_first) - 1
            is_in = index >= 0 and iteration < self._known[index][1]
            found.append(self._known[index][2] if is_in else None)
        return found


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
        root = graphs.graph_that_ran(root_id)
        found.append(
            Execution(
                step=step_of(iteration),
                graph=root.name if root else "",
                graphs=graphs.family(root.root_id) if root else (),
                has_data=iteration in with_data,
            )
        )
    return ExecutionPage(total=len(executions), offset=offset, executions=tuple(found))


def _first(stretch: Stretch) -> int:
    return stretch[0]


def _before(stretches: Sequence[Stretch], end: int) -> Iterator[Stretch]:
    """Yield what stretches say of the iterations before one."""
    return ((first, min(last, end), root_id) for first, last, root_id in stretches if first < end)


def _put(stretches: list[Stretch], iteration: int, root_id: int) -> None:
    """Have stretches say what ran in an iteration."""
    if len(stretches) >= MOST_STRETCHES:
        return
    index = bisect_right(stretches, iteration, key=_first)
    begin, end = iteration, iteration + 1
    if index and stretches[index - 1][1] > iteration:
        # Another graph was known to have run: the stretch is cut in two.
        first, last, other = stretches[index - 1]
        pieces = [piece for piece in ((first, begin, other), (end, last, other)) if piece[0] < piece[1]]
        stretches[index - 1 : index] = pieces
        index = bisect_right(stretches, iteration, key=_first)
    if index and stretches[index - 1][1:] == (begin, root_id):
        begin = stretches[index - 1][0]
        index -= 1
        del stretches[index]
    if index < len(stretches) and stretches[index][0] == end and stretches[index][2] == root_id:
        end = stretches.pop(index)[1]
    stretches.insert(index, (begin, end, root_id))
