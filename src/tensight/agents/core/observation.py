"""What is observed of a training: its slots, their statistics and values, and what this step has shown so far."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.agents.core.columns import StatisticsColumns
from tensight.agents.core.notices import log_once
from tensight.agents.core.scalars import Scalars
from tensight.agents.core.slots import Need, SlotTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensight.agents.core.reader import TensorReader
    from tensight.agents.core.retention import Retention

_FINITE, _ROW, _VALUE, _HASH = int(Need.FINITE), int(Need.ROW), int(Need.VALUE), int(Need.HASH)


class Observation:
    """The observed tensors of a training.

    Parameters
    ----------
    reader : TensorReader
        Of the framework's tensors.
    retention : Retention
    losses_every_s : float, optional
        See `AgentSettings`.

    Attributes
    ----------
    slot_table : SlotTable
        The slots in which tensors are observed.
    columns : StatisticsColumns
    retention : Retention
    reader : TensorReader
    scalars : Scalars
        Loss, learning rates and gradient norm, as an adapter reports them.
    seen : list of int
        The slot ids of this step, in the order of observation.
    observe : callable (slot_id, tensor, need, same=None)
        Observes a tensor of the framework: ``need`` is the entry of the slot in `slot_table.needs`, ``same`` a slot
        with the same elements in the same order, possibly in another shape.
    unwritten : callable (slot_id) -> tensor or None, or None
        Set by an adapter: returns a weight that has not been written to since the last step was observed.
    """

    def __init__(self, reader: TensorReader, retention: Retention, *, losses_every_s: float | None = None) -> None:
        self.slot_table = SlotTable()
        self.columns = StatisticsColumns()
        self.retention = retention
        self.reader = reader
        self.scalars = Scalars(reader, self.columns, losses_every_s=losses_every_s)
        self.seen: list[int] = []
        self.observe = self.columns.observer(self.seen, self._observe, retention.books)
        self.unwritten: Callable[[int], Any | None] | None = None
        self._anomalies = self._anomalies_before = np.zeros(0, np.bool_)
        self._anomalies_at = -1

    def _observe(self, slot_id: int, tensor: Any, need: int, same: int | None = None) -> None:
        """Observe a tensor that cannot be read in place, is known already, or must be copied; see `observe`."""
        try:
            self.seen.append(slot_id)
            if need & _ROW:
                hashed = need & _HASH != 0
                shape = None if same is None else tuple(tensor.shape)
                same = self.retention.same_as(tensor) if same is None else same
                if same is None or not self.columns.has_row(same) or (hashed and not self.columns.has_hash(same)):
                    self.reader.scan(tensor, self.columns, slot_id, hashed=hashed)
                elif same != slot_id:
                    self.columns.copy_row(same, slot_id, shape=shape)
            elif need & _FINITE and self.reader.has_non_finite(tensor):
                self.reader.scan(tensor, self.columns, slot_id)
            if need & _VALUE:
                self.retention.keep(slot_id, tensor)
        except Exception as error:
            # Its tensors cause an error.
            self.slot_table.needs[slot_id] = 0
            tensor_slot = self.slot_table[slot_id]
            log_once(f"{tensor_slot.node.name}:{tensor_slot.slot} is not observed: {error!r}")

    def observe_once(self, slot_id: int, tensor: Any) -> None:
        """Write the row of a tensor of which only the first value in a step counts."""
        if not self.columns.has_row(slot_id):
            self.observe(slot_id, tensor, _ROW | _HASH)

    @property
    def shows_news(self) -> bool:
        """Whether this step has shown a NaN, an Inf or an explosion so far that the step before did not show."""
        if self._anomalies_at != self.columns.current_iteration:
            self._anomalies_before, self._anomalies_at = self._anomalies, self.columns.current_iteration
        self._anomalies = self.columns.anomalies(len(self.slot_table))
        before = self._anomalies_before
        return bool((self._anomalies[: len(before)] & ~before).any() or self._anomalies[len(before) :].any())
