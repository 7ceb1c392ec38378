"""The order in which graphs of a process run: MindSpore numbers the graphs of branches after those that run later."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class RunOrder:
    """Puts graphs into one order, from the graphs that ran in each of several steps."""

    def __init__(self) -> None:
        self._order: list[int] = []

    def learn(self, ran: Sequence[int]) -> None:
        """Take note of a step; a graph that is new stands before the one that ran after it.

        Parameters
        ----------
        ran : sequence of int
            Numbers of the graphs that ran, in the order in which they began.
        """
        known = {number: index for index, number in enumerate(self._order)}
        following = len(self._order)
        for number in reversed(ran):
            if number in known:
                following = known[number]
            else:
                self._order.insert(following, number)
                known = {other: index for index, other in enumerate(self._order)}

    def sorted(self, numbers: Iterable[int]) -> list[int]:
        """Return graphs in the order in which they run; those of which nothing is known come last, as they are given.

        Parameters
        ----------
        numbers : iterable of int
        """
        positions = {number: index for index, number in enumerate(self._order)}
        return sorted(numbers, key=lambda number: positions.get(number, len(positions)))
