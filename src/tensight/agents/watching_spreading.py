"""Which tensors that are not finite are hits: those whose NaN or Inf the step goes on with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tensight.agents.watching_selection import layer_nodes
from tensight.graph import is_after_forward
from tensight.graph.spreading import NonFinite, Spreading

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

    from tensight.agents.columns import StatisticsColumns
    from tensight.agents.program import Program
    from tensight.agents.slots import DeclaredNode, SlotTable

_MOST_PROGRAMS = 16
_KINDS = ("nan_count", "neg_inf_count", "pos_inf_count", "count")


class SpreadingValues:
    """Follows NaN and Inf through the operators of a step.

    Parameters
    ----------
    slot_table : SlotTable

    Attributes
    ----------
    program : Program or None
        What runs, or what ran at last.
    held_back : list of (int, int)
        Slots that were not finite when their operators ran, in this step, and the numbers of the watchpoints that
        hit there: whether that comes to anything is not known yet.
    """

    def __init__(self, slot_table: SlotTable) -> None:
        self.program: Program | None = None
        self.held_back: list[tuple[int, int]] = []
        self._slot_table = slot_table
        self._known: dict[int, tuple[Program, Spreading]] = {}
        self._from_start: set[str] = set()

    def begin(self, columns: StatisticsColumns) -> None:
        """Take note of what is not finite before the first step: somebody's first value."""
        self._from_start = set(self._kinds(columns, columns.current_iteration))

    def holds_back(self, node: DeclaredNode, *, is_known: bool) -> bool:
        """Whether later operators may leave out what one that has just run has put out."""
        if is_after_forward(node.name):
            return False
        if not is_known:
            return True
        spreading = self._of_program()
        return spreading is not None and node.name in spreading and spreading.may_be_left_out(node.name)

    def reaching(
        self,
        columns: StatisticsColumns,
        iteration: int,
        hits: Collection[str],
    ) -> frozenset[str]:
        """Return the nodes that were held back and in which that began which hits at some nodes now."""
        spreading = self._of_program()
        names = {self._slot_table[slot_id].node.name for slot_id, _ in self.held_back}
        if spreading is None or not names:
            return frozenset()
        kinds = self._kinds(columns, iteration)
        is_over = any(is_after_forward(name) for name in hits)
        found = spreading.spreading(names, kinds, None if is_over else hits)
        return frozenset(name for name in found if found.isdisjoint(spreading.inputs(name)))

    def left_out(
        self,
        columns: StatisticsColumns,
        iteration: int,
        slot_ids: NDArray[np.int64],
    ) -> NDArray[np.bool_]:
        """Tell which of some slots that are not finite the step has not gone on with.

        Parameters
        ----------
        columns : StatisticsColumns
        iteration : int
            That has ended.
        slot_ids : ndarray of int64
        """
        left = np.zeros(len(slot_ids), np.bool_)
        spreading = self._of_program()
        nodes = [self._slot_table[slot_id].node for slot_id in slot_ids.tolist()]
        passing = {node.name for node in nodes if node.role in _PASSING and not is_after_forward(node.name)}
        if spreading is None or not passing:
            return left
        spreads = spreading.spreading(passing, self._kinds(columns, iteration))
        for at, node in enumerate(nodes):
            if node.name in passing and node.name not in spreads:
                left[at] = node.role != "buffer" or self._is_first_value(columns, int(slot_ids[at]))
        return left

    def _is_first_value(self, columns: StatisticsColumns, slot_id: int) -> bool:
        """Whether a buffer is not finite because nothing better has come yet: from the start, or all of it."""
        found = columns.take(np.array([slot_id])).columns()
        nan, negative, positive, count = (int(found[name][0]) for name in _KINDS)
        return self._slot_table[slot_id].node.name in self._from_start or (not nan and count in (negative, positive))

    def _of_program(self) -> Spreading | None:
        program = self.program
        if program is None:
            return None
        known = self._known.get(id(program))
        if known is None or known[0] is not program:
            while len(self._known) >= _MOST_PROGRAMS:
                self._known.pop(next(iter(self._known)))
            known = self._known[id(program)] = program, Spreading(layer_nodes(program))
        return known[1]

    def _kinds(self, columns: StatisticsColumns, iteration: int) -> dict[str, NonFinite]:
        """Return what each node of a step has besides numbers."""
        known = min(len(columns.iteration), len(self._slot_table))
        slot_ids = np.flatnonzero(columns.iteration[:known] == iteration)
        found = columns.take(slot_ids).columns()
        nan, negative, positive = (found[name] for name in _KINDS[:3])
        kinds: dict[str, NonFinite] = {}
        for at in np.flatnonzero(nan + negative + positive > 0).tolist():
            tensor_slot = self._slot_table[int(slot_ids[at])]
            if tensor_slot.io != "output":
                continue
            name = tensor_slot.node.name
            kind = NonFinite.NAN if nan[at] else NonFinite.NOTHING
            if positive[at] or negative[at]:
                kind |= NonFinite.INF
            kinds[name] = kinds.get(name, NonFinite.NOTHING) | kind
        return kinds


_PASSING = ("operator", "input", "buffer")
