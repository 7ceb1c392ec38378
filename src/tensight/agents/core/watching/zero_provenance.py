"""Finds tensors that are zero only because their inputs were: their zeros originate elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from tensight.agents.core.columns import StatisticsColumns
    from tensight.agents.core.slots import SlotTable
    from tensight.agents.core.watching.network import KnownNetwork


class ObservedProvenance:
    """The zero provenance of the operators of a process, with what was observed.

    Parameters
    ----------
    slot_table : SlotTable
    network : KnownNetwork
    """

    def __init__(self, slot_table: SlotTable, network: KnownNetwork) -> None:
        self._slot_table = slot_table
        self._network = network

    def sources(self, slot_ids: Iterable[int]) -> Iterator[int]:
        """Yield the slots whose statistics show where the zeros of some slots come from."""
        layers = self._network.running_layers
        for slot_id in slot_ids:
            provenance = layers.zero_provenances.get(self._slot_table[slot_id].node.name)
            for name, slot in () if provenance is None else provenance.sources:
                source_id = self._slot_table.find(name, slot)
                if source_id is not None:
                    yield source_id

    def propagated(
        self,
        columns: StatisticsColumns,
        slot_ids: NDArray[np.int64],
        if_unknown: NDArray[np.bool_],
    ) -> NDArray[np.bool_]:
        """Return which of some slots, if they are zero, only propagate zeros of their inputs.

        Parameters
        ----------
        columns : StatisticsColumns
        slot_ids : ndarray of int64
        if_unknown : ndarray of bool
            The result for each of them if its inputs were not observed.
        """
        layers = self._network.running_layers
        names = [self._slot_table[slot_id].node.name for slot_id in slot_ids.tolist()]
        provenances = [layers.zero_provenances.get(name) for name in names]
        known_provenances = [provenance for provenance in provenances if provenance is not None]
        sources = {source: -1 for provenance in known_provenances for source in provenance.sources}
        for source in sources:
            slot_id = self._slot_table.find(*source)
            if slot_id is not None:
                sources[source] = slot_id
        zero = _zero(columns, [slot_id for slot_id in sources.values() if slot_id >= 0])
        result = []
        for provenance, unknown in zip(provenances, if_unknown.tolist(), strict=True):
            source_zeros = (
                (zero.get(sources[source]) for source in provenance.sources) if provenance is not None else ()
            )
            answer = None if provenance is None else provenance.propagates(source_zeros)
            result.append(unknown if answer is None else answer)
        return np.array(result, np.bool_)


def _zero(columns: StatisticsColumns, slot_ids: list[int]) -> dict[int, bool]:
    """Return whether all elements are zero, for each of these slots that was observed in this step."""
    if not slot_ids:
        return {}
    rows = columns.take(slot_ids)
    counts, zeros = rows.counts[:, 0], rows.counts[:, 4]
    zero = (counts == zeros) & (counts > 0)
    every = zip(slot_ids, rows.iterations.tolist(), zero.tolist(), strict=True)
    return {slot_id: is_zero for slot_id, seen, is_zero in every if seen == columns.current_iteration}
