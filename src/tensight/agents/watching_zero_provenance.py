"""Which tensors are zero only because what they were computed from was: their zeros originate elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from tensight.agents.columns import StatisticsColumns
    from tensight.agents.slots import SlotTable
    from tensight.graph import Layers


class ObservedProvenance:
    """The zero provenance of the operators of a process, with what was observed.

    Parameters
    ----------
    slot_table : SlotTable
    """

    def __init__(self, slot_table: SlotTable) -> None:
        self._slot_table = slot_table

    def sources(self, layers: Layers, slot_ids: Iterable[int]) -> Iterator[int]:
        """Yield the slots whose statistics tell where the zeros of some slots come from."""
        for slot_id in slot_ids:
            provenance = layers.zero_provenances.get(self._slot_table[slot_id].node.name)
            for name, slot in () if provenance is None else provenance.sources:
                found = self._slot_table.find(name, slot)
                if found is not None:
                    yield found

    def propagated(
        self,
        layers: Layers,
        columns: StatisticsColumns,
        slot_ids: NDArray[np.int64],
        iteration: int,
        if_unknown: NDArray[np.bool_],
    ) -> NDArray[np.bool_]:
        """Tell which of some slots, if they are zero, only propagate zeros that went in.

        Parameters
        ----------
        layers : Layers
        columns : StatisticsColumns
        slot_ids : ndarray of int64
        iteration : int
            The step.
        if_unknown : ndarray of bool
            The answer for each of them where nobody has looked at what went in.
        """
        names = [self._slot_table[slot_id].node.name for slot_id in slot_ids.tolist()]
        provenances = [layers.zero_provenances.get(name) for name in names]
        known_provenances = [provenance for provenance in provenances if provenance is not None]
        sources = {source: -1 for provenance in known_provenances for source in provenance.sources}
        for source in sources:
            slot_id = self._slot_table.find(*source)
            if slot_id is not None:
                sources[source] = slot_id
        zero = _zero(columns, [slot_id for slot_id in sources.values() if slot_id >= 0], iteration)
        found = []
        for provenance, unknown in zip(provenances, if_unknown.tolist(), strict=True):
            known = (zero.get(sources[source]) for source in provenance.sources) if provenance is not None else ()
            answer = None if provenance is None else provenance.propagates(known)
            found.append(unknown if answer is None else answer)
        return np.array(found, np.bool_)


def _zero(columns: StatisticsColumns, slot_ids: list[int], iteration: int) -> dict[int, bool]:
    """Tell of those slots that were seen in a step whether they are all zero."""
    if not slot_ids:
        return {}
    rows = columns.take(slot_ids)
    counts, zeros = rows.counts[:, 0], rows.counts[:, 4]
    zero = (counts == zeros) & (counts > 0)
    every = zip(slot_ids, rows.iterations.tolist(), zero.tolist(), strict=True)
    return {slot_id: is_zero for slot_id, seen, is_zero in every if seen == iteration}
