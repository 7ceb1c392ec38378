"""The slots of persistent tensors: weights, buffers and optimizer states, which the training updates in every step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tensight.garbage_collection import without_garbage_collection

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tensight.agents.core.retention import Retention
    from tensight.agents.core.slots import SlotTable

_MADE_IN_THE_STEP = ("operator", "input")
_WEIGHTS = ("weight", "frozen_weight")


class PersistentSlots:
    """The slots of weights, buffers and states.

    Parameters
    ----------
    slot_table : SlotTable
    retention : Retention

    Attributes
    ----------
    slot_ids : ndarray of int64
        All of them.
    weights, states : list of int
    """

    def __init__(self, slot_table: SlotTable, retention: Retention) -> None:
        self._slot_table = slot_table
        self._retention = retention
        self._slot_count = 0
        self._copied: set[int] = set()
        self.slot_ids: NDArray[np.int64] = np.empty(0, np.int64)
        self.weights: list[int] = []
        self.states: list[int] = []

    def add_new(self) -> None:
        """Add new slots."""
        if self._slot_count != len(self._slot_table):
            every = (self._slot_table[slot_id] for slot_id in range(self._slot_count, len(self._slot_table)))
            new = [tensor_slot for tensor_slot in every if tensor_slot.io == "output"]
            self._slot_count = len(self._slot_table)
            persistent = [tensor_slot.slot_id for tensor_slot in new if tensor_slot.node.role not in _MADE_IN_THE_STEP]
            self.slot_ids = np.concatenate([self.slot_ids, np.array(persistent, np.int64)])
            self.weights += [tensor_slot.slot_id for tensor_slot in new if tensor_slot.node.role in _WEIGHTS]
            self.states += [tensor_slot.slot_id for tensor_slot in new if tensor_slot.node.role == "state"]

    @without_garbage_collection()
    def choose_copies(self, wants: Callable[[int], bool]) -> None:
        """Copy the values of slots that will be inspected, including their current values."""
        for slot_id in self.slot_ids.tolist():
            is_wanted = wants(slot_id)
            self._retention.copy_values(slot_id, is_wanted)
            if is_wanted and slot_id not in self._copied:
                self._copied.add(slot_id)
                tensor = self._retention.current(slot_id)
                if tensor is not None:
                    self._retention.keep(slot_id, tensor)
            elif not is_wanted:
                self._copied.discard(slot_id)

    def forget_uncopied(self) -> None:
        """Release values that are not copied as a step begins: not every optimizer counts its writes as versions."""
        for slot_id in self.slot_ids.tolist():
            if slot_id not in self._copied:
                self._retention.forget(slot_id)
