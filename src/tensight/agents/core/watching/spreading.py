"""Decides which tensors with NaN or Inf are hits: those whose NaN or Inf the step continues with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tensight.agents.core.watching.selection import layer_nodes
from tensight.graph import is_after_forward
from tensight.graph.spreading import NonFinite, Spreading

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

    from tensight.agents.core.columns import StatisticsColumns
    from tensight.agents.core.program import Program
    from tensight.agents.core.slots import DeclaredNode, SlotTable
    from tensight.agents.core.watching.network import KnownNetwork

_MOST_PROGRAMS = 16
_KINDS = ("nan_count", "neg_inf_count", "pos_inf_count", "count")


class SpreadingValues:
    """Follows NaN and Inf through the operators of a step.

    Parameters
    ----------
    slot_table : SlotTable
    network : KnownNetwork
    columns : StatisticsColumns
        Statistics of this step.

    Attributes
    ----------
    held_back : list of (int, int)
        Slots that were not finite when their operators had run, in this step, and the numbers of the watchpoints that
        hit there: whether the NaN or Inf spreads is not known yet.
    """

    def __init__(self, slot_table: SlotTable, network: KnownNetwork, columns: StatisticsColumns) -> None:
        self.held_back: list[tuple[int, int]] = []
        self._slot_table = slot_table
        self._network = network
        self._columns = columns
        self._spreadings: dict[int, tuple[Program, Spreading]] = {}
        self._from_start: set[str] = set()
        # Of this step: the nodes whose origins were returned, and what the origins of gradients were determined from.
        self._followed: set[str] = set()
        self._followed_to_end: tuple[int, int] | None = None

    def end_step(self) -> None:
        """Forget what was held back in the step that ends."""
        self.held_back.clear()
        self._followed.clear()
        self._followed_to_end = None

    def begin(self) -> None:
        """Note the tensors that are not finite before the first step, as initial values."""
        self._from_start = set(self._kinds())

    def holds_back(self, node: DeclaredNode, *, is_known: bool) -> bool:
        """Whether later operators may leave out the output of an operator that has just run."""
        if is_after_forward(node.name):
            return False
        if not is_known:
            return True
        spreading = self._of_program()
        return spreading is not None and node.name in spreading and spreading.may_be_left_out(node.name)

    def reaching(self, hits: Collection[str]) -> frozenset[str]:
        """Return the held-back nodes in which the NaN or Inf of some hits originates, except those returned before.

        One NaN makes every later operator hit, so that all of them are followed only once: a hit whose inputs were
        followed has no other origins.
        """
        spreading = self._of_program()
        if spreading is None or not self.held_back:
            return frozenset()
        if any(is_after_forward(name) for name in hits):
            reached = self._reaching_end(spreading)
        else:
            reached = self._reaching_nodes(spreading, hits)
        self._followed.update(reached, hits)
        return frozenset(name for name in reached if reached.isdisjoint(spreading.inputs(name)))

    def _reaching_end(self, spreading: Spreading) -> frozenset[str]:
        """Return the held-back nodes whose NaN or Inf spreads to the end of the forward pass."""
        to_end = id(self._network.program), len(self.held_back)
        if to_end == self._followed_to_end:
            return frozenset()
        self._followed_to_end = to_end
        return spreading.spreading(self._held_back_names(), self._kinds())

    def _reaching_nodes(self, spreading: Spreading, names: Collection[str]) -> frozenset[str]:
        """Return the held-back nodes whose NaN or Inf spreads to some operators of the forward pass."""
        sources = {name: self._sources(spreading, name) for name in names}
        if not any(sources.values()):
            return frozenset()
        kinds = self._kinds()
        for name, sources_of_name in sources.items():
            # An Inf may come from some of its sources only.
            if kinds.get(name, NonFinite.NOTHING) & NonFinite.NAN:
                self._followed.update(sources_of_name)
        return spreading.spreading(self._held_back_names(), kinds, names)

    def _sources(self, spreading: Spreading, name: str) -> set[str]:
        """Return the nodes with NaN or Inf that an operator reads, directly or as views, and that were not followed."""
        waiting, visited = list(spreading.inputs(name)), {name}
        sources: set[str] = set()
        while waiting:
            at = waiting.pop()
            if at in self._followed or at in visited:
                continue
            visited.add(at)
            if any(map(self._columns.is_non_finite, self._slot_table.outputs(at))):
                sources.add(at)
            elif spreading.is_view(at):
                # It is checked with its base, and shows nothing itself.
                waiting += spreading.inputs(at)
        return sources

    def _held_back_names(self) -> set[str]:
        return {self._slot_table[slot_id].node.name for slot_id, _ in self.held_back}

    def left_out(self, slot_ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of some slots with NaN or Inf the step, which has ended, has not continued with."""
        left = np.zeros(len(slot_ids), np.bool_)
        spreading = self._of_program()
        nodes = [self._slot_table[slot_id].node for slot_id in slot_ids.tolist()]
        passing = {node.name for node in nodes if node.role in _PASSING and not is_after_forward(node.name)}
        if spreading is None or not passing:
            return left
        spreads = spreading.spreading(passing, self._kinds())
        for at, node in enumerate(nodes):
            if node.name in passing and node.name not in spreads:
                left[at] = node.role != "buffer" or self._is_first_value(int(slot_ids[at]))
        return left

    def _is_first_value(self, slot_id: int) -> bool:
        """Whether a buffer still has a non-finite initial value: that from the start, or all infinite."""
        row = self._columns.take([slot_id]).columns()
        nan, negative, positive, count = (int(row[name][0]) for name in _KINDS)
        return self._slot_table[slot_id].node.name in self._from_start or (not nan and count in (negative, positive))

    def _of_program(self) -> Spreading | None:
        program = self._network.program
        if program is None:
            return None
        entry = self._spreadings.get(id(program))
        if entry is None or entry[0] is not program:
            while len(self._spreadings) >= _MOST_PROGRAMS:
                self._spreadings.pop(next(iter(self._spreadings)))
            entry = self._spreadings[id(program)] = program, Spreading(layer_nodes(program))
        return entry[1]

    def _kinds(self) -> dict[str, NonFinite]:
        """Return whether the nodes of this step have NaN, Inf or both, for those that have any."""
        columns = self._columns
        slot_count = min(len(columns.iteration), len(self._slot_table))
        slot_ids = np.flatnonzero(columns.iteration[:slot_count] == columns.current_iteration)
        statistics = columns.take(slot_ids).columns()
        nan, negative, positive = (statistics[name] for name in _KINDS[:3])
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
