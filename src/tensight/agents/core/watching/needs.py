"""What slots need: what watchpoints need of each, and what everything else needs of all."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from tensight.agents.core.slots import Need

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from tensight.agents.core.slots import SlotTable

_NONE: Mapping[int, Need] = MappingProxyType({})


class SlotNeeds:
    """The needs of all slots: those of watchpoints and those of everything else, which are changed separately.

    Parameters
    ----------
    slot_table : SlotTable
        Its needs are written here.
    """

    def __init__(self, slot_table: SlotTable) -> None:
        self._slot_table = slot_table
        self._of_watches = bytearray()
        self._base = Need.NOTHING
        self._instead = _NONE
        self._explains = False

    def require(self, need: Need, instead: Mapping[int, Need] = _NONE) -> None:
        """Set what every slot needs, watched or not; may be called in every step.

        Parameters
        ----------
        need : Need
        instead : mapping of int to Need
            Needs of some slots that replace it.
        """
        if need != self._base or instead != self._instead:
            self._base, self._instead = need, instead
            self._write()

    def explain(self, *, is_near: bool) -> None:
        """Observe all that runs before a hit that operators may cause that are not watched, and not otherwise."""
        if is_near != self._explains:
            self._explains = is_near
            self._write()

    def watch(self, needs: NDArray[np.uint8]) -> None:
        """Set what watchpoints need of every slot."""
        self._of_watches = bytearray(needs.tobytes())
        self._write()

    def trace(self, slot_ids: Iterable[int]) -> None:
        """Observe some slots, because they explain others that are watched."""
        for slot_id in slot_ids:
            self._of_watches[slot_id] |= Need.ROW
        self._write()

    def add(self, need: Need) -> Need:
        """Set what watchpoints need of the next new slot; return what it needs."""
        self._of_watches.append(int(need))
        return need | self._base

    def _write(self) -> None:
        # The table's array stays the same object, and no view of it may exist when it grows.
        needs = self._slot_table.needs
        base = self._base | Need.ROW if self._explains else self._base
        needs[:] = (np.frombuffer(self._of_watches, np.uint8) | np.uint8(base)).tobytes()
        for number, need in self._instead.items():
            needs[number] = self._of_watches[number] | need
