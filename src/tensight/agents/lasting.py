"""What outlives a step: weights, buffers and the optimizer's states. The training writes to them in every step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tensight.agents.places import PlaceTable
    from tensight.agents.retention import Retention

_MADE_IN_THE_STEP = ("operator", "input")
_WEIGHTS = ("weight", "frozen_weight")


class LastingPlaces:
    """The places of weights, buffers and states.

    Parameters
    ----------
    places : PlaceTable
    retention : Retention

    Attributes
    ----------
    numbers : ndarray of int64
        All of them.
    weights, states : list of int
    """

    def __init__(self, places: PlaceTable, retention: Retention) -> None:
        self._places = places
        self._retention = retention
        self._known = 0
        self._copied: set[int] = set()
        self.numbers: NDArray[np.int64] = np.empty(0, np.int64)
        self.weights: list[int] = []
        self.states: list[int] = []

    def look(self) -> None:
        """Take note of places that are new."""
        if self._known != len(self._places):
            every = (self._places[number] for number in range(self._known, len(self._places)))
            new = [place for place in every if place.io == "output"]
            self._known = len(self._places)
            lasting = [place.number for place in new if place.node.role not in _MADE_IN_THE_STEP]
            self.numbers = np.concatenate([self.numbers, np.array(lasting, np.int64)])
            self.weights += [place.number for place in new if place.node.role in _WEIGHTS]
            self.states += [place.number for place in new if place.node.role == "state"]

    def choose_copies(self, wants: Callable[[int], bool]) -> None:
        """Have those copied that somebody will look at; the values that they have now, too."""
        for number in self.numbers.tolist():
            wanted = wants(number)
            self._retention.copy_values(number, wanted)
            if wanted and number not in self._copied:
                self._copied.add(number)
                tensor = self._retention.current(number)
                if tensor is not None:
                    self._retention.keep(number, tensor)
            elif not wanted:
                self._copied.discard(number)

    def forget_uncopied(self) -> None:
        """Let go of those that are not copied, as a step begins: not every optimizer counts that it writes to them."""
        for number in self.numbers.tolist():
            if number not in self._copied:
                self._retention.forget(number)
