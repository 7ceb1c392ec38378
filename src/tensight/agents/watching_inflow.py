"""Which tensors are zero only because what they were computed from was: their zeros were born elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from tensight.agents.columns import StatisticsColumns
    from tensight.agents.places import PlaceTable
    from tensight.graph import Layers


class Inflows:
    """What went into the operators of a process.

    Parameters
    ----------
    places : PlaceTable
    """

    def __init__(self, places: PlaceTable) -> None:
        self._places = places

    def sources(self, layers: Layers, places: Iterable[int]) -> Iterator[int]:
        """Yield the places whose statistics tell where the zeros of some places come from."""
        for number in places:
            inflow = layers.inflows.get(self._places[number].node.name)
            for name, slot in () if inflow is None else inflow.sources:
                found = self._places.find(name, slot)
                if found is not None:
                    yield found

    def handed_on(
        self,
        layers: Layers,
        columns: StatisticsColumns,
        places: NDArray[np.int64],
        iteration: int,
        if_unknown: NDArray[np.bool_],
    ) -> NDArray[np.bool_]:
        """Tell which of some places, if they are zero, only hand on zeros that went in.

        Parameters
        ----------
        layers : Layers
        columns : StatisticsColumns
        places : ndarray of int64
        iteration : int
            The step.
        if_unknown : ndarray of bool
            The answer for each of them where nobody has looked at what went in.
        """
        inflows = [layers.inflows.get(self._places[number].node.name) for number in places.tolist()]
        sources = {source: -1 for inflow in inflows if inflow is not None for source in inflow.sources}
        for source in sources:
            place = self._places.find(*source)
            if place is not None:
                sources[source] = place
        zero = _zero(columns, [place for place in sources.values() if place >= 0], iteration)
        found = []
        for inflow, unknown in zip(inflows, if_unknown.tolist(), strict=True):
            known = (zero.get(sources[source]) for source in inflow.sources) if inflow is not None else ()
            answer = None if inflow is None else inflow.hands_on(known)
            found.append(unknown if answer is None else answer)
        return np.array(found, np.bool_)


def _zero(columns: StatisticsColumns, places: list[int], iteration: int) -> dict[int, bool]:
    """Tell of those places that were seen in a step whether they are all zero."""
    if not places:
        return {}
    rows = columns.take(places)
    counts, zeros = rows.counts[:, 0], rows.counts[:, 4]
    zero = (counts == zeros) & (counts > 0)
    every = zip(places, rows.iterations.tolist(), zero.tolist(), strict=True)
    return {place: is_zero for place, seen, is_zero in every if seen == iteration}
