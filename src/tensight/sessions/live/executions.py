"""The root graphs that ran in the iterations of a rank, as far as the process reported them."""

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
"""Maximum number of known changes of the graph; later ones are not recorded."""

MOST_LISTED = 1_000_000
"""Maximum number of recorded iterations of a rank; a longer training has no list, because it would be too large."""

_LISTED_AT_FIRST = 100_000
_LISTED_PER_REPORT = 1_000
"""Iterations that each report of a process adds to those that may be recorded: it may claim any number of them."""

Stretch = tuple[int, int, int]
"""First iteration, end (exclusive), and number of the root graph that ran."""


class Executions:
    """The completed iterations of a rank, and the root graphs that are known to have run in them.

    A running process reports its graph only occasionally; what ran in between is unknown. Thread-safe.

    Attributes
    ----------
    are_listed : bool
        Whether the iterations are few enough to be recorded one by one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.are_listed = True
        self._begin = self._end = self._reports = 0
        self._stretches: list[Stretch] = []
        self._unrecorded: list[Stretch] = []
        self._unrecorded_from = 0

    def advance(self, first: int, end: int) -> None:
        """Note that iterations `first` to `end` (exclusive) were completed; discard what was known from `first` on."""
        if end <= first:
            return
        with self._lock:
            if self._begin == self._end:
                self._begin = self._unrecorded_from = first
            elif first < self._end:
                self._stretches = list(_before(self._stretches, first))
                self._unrecorded = list(_before(self._unrecorded, first))
                self._unrecorded_from = min(self._unrecorded_from, first)
                self._begin = min(self._begin, first)
            self._end = end
            self._reports += 1
            most = min(_LISTED_AT_FIRST + _LISTED_PER_REPORT * self._reports, MOST_LISTED)
            self.are_listed = self.are_listed and self._end - self._begin <= most

    def note(self, iteration: int, root_id: int) -> None:
        """Note that a root graph ran in an iteration, which may still be running."""
        with self._lock:
            if iteration >= 0 and self._at([iteration]) != [root_id]:
                _put(self._stretches, iteration, root_id)
                _put(self._unrecorded, iteration, root_id)

    def __len__(self) -> int:
        return self._end - self._begin

    def page(self, offset: int, limit: int) -> list[tuple[int, int | None]]:
        """Return a page of completed iterations, each with the root graph that ran; None if unknown."""
        first = self._begin + offset
        iterations = range(first, min(first + limit, self._end))
        return list(zip(iterations, self.at(iterations), strict=True))

    def at(self, iterations: Sequence[int]) -> list[int | None]:
        """Return the root graph that ran in each iteration; None if unknown."""
        with self._lock:
            return self._at(iterations)

    def stretches(self) -> list[Stretch]:
        """Return the known stretches, in order."""
        with self._lock:
            return list(self._stretches)

    def nearest(self, iteration: int) -> int | None:
        """Return the root graph that ran in an iteration; if unknown, the last before it, else the first after it."""
        with self._lock:
            index = bisect_right(self._stretches, iteration, key=_first) - 1
            return self._stretches[max(index, 0)][2] if self._stretches else None

    def unrecorded(self) -> tuple[list[Stretch], range]:
        """Return the stretches that became known, and the iterations completed, since the last call."""
        with self._lock:
            stretches, self._unrecorded = self._unrecorded, []
            done, self._unrecorded_from = range(self._unrecorded_from, self._end), self._end
            return stretches, done

    def _at(self, iterations: Sequence[int]) -> list[int | None]:
        root_ids: list[int | None] = []
        for iteration in iterations:
            index = bisect_right(self._stretches, iteration, key=_first) - 1
            is_in = index >= 0 and iteration < self._stretches[index][1]
            root_ids.append(self._stretches[index][2] if is_in else None)
        return root_ids


def execution_page(
    executions: Executions, graphs: RankGraphs, with_data: Container[int], offset: int, limit: int
) -> ExecutionPage:
    """Return a page of the iterations of a rank.

    Parameters
    ----------
    executions : Executions
    graphs : RankGraphs
        Graphs of the rank.
    with_data : container of int
        Iterations with kept values.
    offset, limit : int
    """
    records = []
    for iteration, root_id in executions.page(max(offset, 0), limit):
        root = graphs.graph_that_ran(root_id)
        records.append(
            Execution(
                step=step_of(iteration),
                graph=root.name if root else "",
                graphs=graphs.family(root.root_id) if root else (),
                has_data=iteration in with_data,
            )
        )
    return ExecutionPage(total=len(executions), offset=offset, executions=tuple(records))


def _first(stretch: Stretch) -> int:
    return stretch[0]


def _before(stretches: Sequence[Stretch], end: int) -> Iterator[Stretch]:
    """Yield stretches, cut off before an iteration."""
    return ((first, min(last, end), root_id) for first, last, root_id in stretches if first < end)


def _put(stretches: list[Stretch], iteration: int, root_id: int) -> None:
    """Record in stretches that a root graph ran in an iteration."""
    if len(stretches) >= MOST_STRETCHES:
        return
    index = bisect_right(stretches, iteration, key=_first)
    begin, end = iteration, iteration + 1
    if index and stretches[index - 1][1] > iteration:
        # A stretch of another graph contains the iteration: split it.
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
