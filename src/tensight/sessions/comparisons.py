"""The comparisons of runs in a server: one is computed at a time, and the newest finished ones are kept."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

from tensight.sessions.comparison import Comparison
from tensight.sessions.errors import LimitError, NotFoundError
from tensight.sessions.records import ComparisonState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tensight.sessions.comparison import ChosenRun
    from tensight.sessions.events import EventLog
    from tensight.sessions.offline.value_memory import ValueMemory
    from tensight.sessions.records import ComparisonOptions

MOST_KEPT = 8
"""Comparisons that are kept; a further one replaces the oldest finished one."""

MOST_UNFINISHED = 4
"""Comparisons that run or wait."""


class Comparisons:
    """The comparisons of a server. Not thread-safe: use it from the event loop's thread only.

    Parameters
    ----------
    choose : callable
        Returns the run with a name: a session id, or a name in the list of dumps.
    memory : ValueMemory
    events : EventLog
        Events of the server; a changed comparison appends a ``comparison`` event.
    """

    def __init__(self, choose: Callable[[str], Awaitable[ChosenRun]], memory: ValueMemory, events: EventLog) -> None:
        self._choose, self._memory, self._events = choose, memory, events
        self._comparisons: dict[str, Comparison] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._numbers = itertools.count(1)
        self._turn = asyncio.Lock()

    def all(self) -> list[Comparison]:
        """Return the comparisons, oldest first."""
        return list(self._comparisons.values())

    def get(self, number: str) -> Comparison:
        """Return a comparison. NotFoundError if the id is unknown."""
        comparison = self._comparisons.get(number)
        if comparison is None:
            raise NotFoundError(f"there is no comparison {number[:80]!r}; list the comparisons to see which there are")
        return comparison

    async def compare(self, a: str, b: str, options: ComparisonOptions, *, fresh: bool = False) -> Comparison:
        """Start to compare two runs, or return the existing comparison of the same runs with the same options.

        Parameters
        ----------
        a, b : str
            Ids of sessions or names of dumps; A is the reference.
        options : ComparisonOptions
        fresh : bool
            Compare again and discard an earlier comparison of the same runs.

        Raises
        ------
        NotFoundError
            There is no such session or dump.
        StateError
            One of them is a running training.
        LimitError
            Too many comparisons run or wait.
        """
        chosen = await self._choose(a), await self._choose(b)
        comparison = Comparison(
            str(next(self._numbers)), *chosen, options, memory=self._memory, announce=self._announce
        )
        same = next((other for other in self._comparisons.values() if other.key == comparison.key), None)
        if same is not None and not fresh and same.state is not ComparisonState.FAILED:
            return same
        if same is not None:
            self.close(same.id)
        unfinished = [other for other in self._comparisons.values() if other.state.is_unfinished]
        if len(unfinished) >= MOST_UNFINISHED:
            raise LimitError(
                f"{len(unfinished)} comparisons are running or waiting, which is the maximum; wait for one, or"
                f" cancel one of {', '.join(other.id for other in unfinished)}"
            )
        for done in [other for other in self._comparisons.values() if not other.state.is_unfinished][: 1 - MOST_KEPT]:
            self.close(done.id)
        self._comparisons[comparison.id] = comparison
        self._announce(comparison)
        self._tasks[comparison.id] = asyncio.get_running_loop().create_task(self._make(comparison))
        return comparison

    async def _make(self, comparison: Comparison) -> None:
        async with self._turn:
            await comparison.compare()

    def close(self, number: str) -> None:
        """Cancel or discard a comparison. NotFoundError if the id is unknown."""
        comparison = self.get(number)
        del self._comparisons[number]
        self._tasks.pop(number).cancel()
        comparison.close()

    async def close_all(self) -> None:
        """Cancel and discard all comparisons, at shutdown of the server."""
        tasks = list(self._tasks.values())
        for number in list(self._comparisons):
            self.close(number)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _announce(self, comparison: Comparison) -> None:
        self._events.append("comparison", **comparison.record().model_dump(mode="json"))
