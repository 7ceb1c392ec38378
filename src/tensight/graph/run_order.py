"""The execution order of a process's graphs, which their numbers do not show for the graphs of branches."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class RunOrder:
    """Orders graphs by their execution order in several steps."""

    def __init__(self) -> None:
        self._order: list[int] = []

    def learn(self, ran: Sequence[int]) -> None:
        """Add the order of a step; a new graph is inserted before the graph that ran after it.

        Parameters
        ----------
        ran : sequence of int
            Numbers of the graphs that ran, ordered by their start.
        """
        positions = {number: index for index, number in enumerate(self._order)}
        following = len(self._order)
        for number in reversed(ran):
            if number in positions:
                following = positions[number]
            else:
                self._order.insert(following, number)
                positions = {other: index for index, other in enumerate(self._order)}

    def sorted(self, numbers: Iterable[int]) -> list[int]:
        """Return graphs in execution order; unknown graphs come last, in the given order.

        Parameters
        ----------
        numbers : iterable of int
            Numbers of graphs.
        """
        positions = {number: index for index, number in enumerate(self._order)}
        return sorted(numbers, key=lambda number: positions.get(number, len(positions)))
