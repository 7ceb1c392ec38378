"""All comparisons of runs that a server keeps: one is made at a time, and the newest that are done are kept."""

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
"""Comparisons that are kept; for another one the oldest that is done is forgotten."""

MOST_UNFINISHED = 4
"""Comparisons that are made or wait."""


class Comparisons:
    """The comparisons of a server. Only to be used from the event loop's thread.

    Parameters
    ----------
    choose : callable
        Returns the run of a name: the id of a session, or a name in the list of dumps.
    memory : ValueMemory
    events : EventLog
        Of the server: a ``comparison`` event whenever a comparison changes.
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
        """Return a comparison. NotFoundError if there is none with this id."""
        found = self._comparisons.get(number)
        if found is None:
            raise NotFoundError(f"there is no comparison {number[:80]!r}; list the comparisons to see which there are")
        return found

    async def compare(self, a: str, b: str, options: ComparisonOptions, *, fresh: bool = False) -> Comparison:
        """Begin to compare two runs, or return the comparison of the same runs with the same options.

        Parameters
        ----------
        a, b : str
            Ids of sessions or names of dumps; A is the reference.
        options : ComparisonOptions
        fresh : bool
            Whether they are compared anew, and an earlier comparison of them is forgotten.

        Raises
        ------
        NotFoundError
            There is no such session or dump.
        StateError
            One of them is a training that runs.
        LimitError
            Too many comparisons are being made.
        """
        chosen = await self._choose(a), await self._choose(b)
        comparison = Comparison(
            str(next(self._numbers)), *chosen, options, memory=self._memory, announce=self._announce
        )
        same = next((one for one in self._comparisons.values() if one.key == comparison.key), None)
        if same is not None and not fresh and same.state is not ComparisonState.FAILED:
            return same
        if same is not None:
            self.close(same.id)
        unfinished = [one for one in self._comparisons.values() if one.state.is_unfinished]
        if len(unfinished) >= MOST_UNFINISHED:
            raise LimitError(
                f"{len(unfinished)} comparisons are being made or wait, which is all that are taken; wait for one, or"
                f" cancel one of {', '.join(one.id for one in unfinished)}"
            )
        for done in [one for one in self._comparisons.values() if not one.state.is_unfinished][: 1 - MOST_KEPT]:
            self.close(done.id)
        self._comparisons[comparison.id] = comparison
        self._announce(comparison)
        self._tasks[comparison.id] = asyncio.get_running_loop().create_task(self._make(comparison))
        return comparison

    async def _make(self, comparison: Comparison) -> None:
        async with self._turn:
            await comparison.compare()

    def close(self, number: str) -> None:
        """Cancel or forget a comparison. NotFoundError if there is none with this id."""
        comparison = self.get(number)
        del self._comparisons[number]
        self._tasks.pop(number).cancel()
        comparison.close()

    async def close_all(self) -> None:
        """Cancel and forget all comparisons: the server shuts down."""
        tasks = list(self._tasks.values())
        for number in list(self._comparisons):
            self.close(number)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _announce(self, comparison: Comparison) -> None:
        self._events.append("comparison", **comparison.record().model_dump(mode="json"))
