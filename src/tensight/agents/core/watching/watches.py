"""The watchpoints of a training process: which slots they watch, and what these need."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tensight.agents.core.slots import NO_SLOT_IDS, Need
from tensight.agents.core.watching.causes import AgentCauses
from tensight.agents.core.watching.needs import SlotNeeds
from tensight.agents.core.watching.network import KnownNetwork
from tensight.agents.core.watching.rules import Watch
from tensight.agents.core.watching.zero_provenance import ObservedProvenance
from tensight.errors import TensightError
from tensight.garbage_collection import without_garbage_collection
from tensight.wire import received_watchpoint
from tensight.wire.debugger_pb2 import ContentHash
from tensight.wire.text import encoded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Set

    from numpy.typing import NDArray

    from tensight.agents.core.columns import StatisticsColumns
    from tensight.agents.core.program import Program
    from tensight.agents.core.slots import SlotClass, SlotTable, TensorSlot
    from tensight.wire.debugger_pb2 import SetCMD


class WatchedTable(NamedTuple):
    """All slots that any watchpoint watches.

    Attributes
    ----------
    slot_ids : ndarray of int64
        In ascending order.
    may_mask : ndarray of bool or None
        Which of them may contain -Inf on purpose; None if no watchpoint asks for that.
    """

    slot_ids: NDArray[np.int64]
    may_mask: NDArray[np.bool_] | None


class Watches:
    """The watchpoints of a process.

    Parameters
    ----------
    slot_table : SlotTable
        The slots in which tensors are observed; their needs are decided here.
    check_at_nodes : bool
        Whether the training can stop within a step; then watchpoints are checked there, if possible.
    keep_values : bool
        Whether the values of everything that is watched are kept, because no others are.

    Attributes
    ----------
    slot_table : SlotTable
    network : KnownNetwork
        The network in which watchpoints select their slots.
    needs : SlotNeeds
    at_nodes : dict of int to list of (int, list of Watch)
        For each node, by number, its slots that are checked as soon as it has run, and the watchpoints that do so.
    provenance : ObservedProvenance
    causes : AgentCauses
        Tells new hits from others; forgets the hits of watchpoints that change.
    """

    def __init__(self, slot_table: SlotTable, *, check_at_nodes: bool = False, keep_values: bool = False) -> None:
        self.slot_table = slot_table
        self.network = KnownNetwork()
        self.needs = SlotNeeds(slot_table)
        self.provenance = ObservedProvenance(slot_table, self.network)
        self.causes = AgentCauses(slot_table, self.finds_non_finite, self._checked_nodes)
        self._check_at_nodes = check_at_nodes
        self._keep_values = keep_values
        self._watches: dict[int, Watch] = {}
        self._is_stale = False
        # What follows from the watchpoints and the slots.
        self._watched_by: dict[SlotClass, list[tuple[Watch, bool | None]]] = {}
        self.at_nodes: dict[int, list[tuple[int, list[Watch]]]] = {}
        self._table: WatchedTable | None = None
        self._checked: Set[str] | None = None
        slot_table.decide_needs(self._decide)
        self._decide_again()

    def __iter__(self) -> Iterator[Watch]:
        return iter(self._watches.values())

    @property
    def any(self) -> bool:
        """Whether anything is watched."""
        return bool(self._watches)

    def get(self, number: int) -> Watch | None:
        """Return the watchpoint with a number, if it exists."""
        return self._watches.get(number)

    # --- changes ---

    def set(self, command: SetCMD) -> str:
        """Add a watchpoint, or replace the one with its number; return why it cannot be used, empty if it can."""
        try:
            rule = received_watchpoint(command)
        except TensightError as error:
            return str(error)
        earlier = self._watches.get(rule.id)
        watch = self._watches[rule.id] = Watch(rule, self.network.layers, check_at_nodes=self._check_at_nodes)
        if earlier is not None:
            watch.go_on_from(earlier)
            if earlier.rule.check != rule.check or earlier.rule.persistence != rule.persistence:
                self.causes.forget(rule.id)
        self._is_stale = True
        return ""

    def begin_node_checks(self) -> None:
        """Check watchpoints as soon as operators have run, from now on; their next hits are new."""
        self._check_at_nodes = True
        for number, earlier in self._watches.items():
            watch = self._watches[number] = Watch(earlier.rule, self.network.layers, check_at_nodes=True)
            watch.go_on_from(earlier)
        self.causes.forget()
        self._is_stale = True

    def delete(self, number: int) -> None:
        """Delete a watchpoint, if it exists."""
        if self._watches.pop(number, None) is not None:
            self.causes.forget(number)
            self._is_stale = True

    @without_garbage_collection()
    def learn(self, program: Program) -> None:
        """Learn the layers of the network that a program runs; once for each program."""
        if self.network.learn(program):
            for watch in self:
                watch.selects.learn(self.network.layers)
            self._decide_again()

    def settle(self) -> None:
        """Decide what each slot needs, if the watchpoints have changed: once for all changes of a stop."""
        if self._is_stale:
            self._decide_again()

    def require(self, need: Need, instead: Mapping[int, Need] = MappingProxyType({})) -> None:
        """Set what every slot needs, watched or not; see `SlotNeeds.require`."""
        self.settle()
        self.needs.require(need, instead)

    def trace(self, watch: Watch, slot_ids: Iterable[int]) -> None:
        """Observe what shows where the zeros of some slots of a watchpoint come from."""
        watch.traced.update(slot_ids)
        self.needs.trace(self.provenance.sources(slot_ids))

    # --- which slots are watched ---

    def table(self) -> WatchedTable:
        """Return all slots that watchpoints watch; they know their positions in it."""
        self.settle()
        if self._table is not None:
            return self._table
        lists = [np.array(watch.slot_ids, np.int64) for watch in self]
        slot_ids = np.unique(np.concatenate(lists)) if lists else NO_SLOT_IDS
        columns, layers = self.slot_table.columns(), self.network.layers
        depths = columns.values(layers.depths)
        for watch, watched in zip(self, lists, strict=True):
            watch.arrange(watched, slot_ids, len(self.slot_table), depths)
        needs_masks = any(watch.needs_masks for watch in self)
        self._table = WatchedTable(slot_ids, columns.named(layers.may_mask)[slot_ids] if needs_masks else None)
        return self._table

    def hashes(self, columns: StatisticsColumns) -> list[ContentHash]:
        """Return the hashes in which ranks are compared, for the watchpoints that request it."""
        self.settle()
        hashes = []
        for watch in self:
            if watch.rule.compares_ranks:
                rows = columns.take(watch.slot_ids)
                for number, written, content in zip(watch.slot_ids, rows.codes >= 0, rows.hashes.tolist(), strict=True):
                    tensor_slot = self.slot_table[number]
                    if written and content:
                        name = encoded(watch.selects.name_of(tensor_slot.node) or tensor_slot.node.name)
                        hashes.append(
                            ContentHash(node=name, slot=tensor_slot.slot, hash=content, watchpoint=watch.rule.id)
                        )
        return hashes

    def _decide_again(self) -> None:
        """Decide which watchpoints watch which slots, and what these need."""
        self._is_stale = False
        self.at_nodes.clear()
        self._watched_by.clear()
        self._table = self._checked = None
        columns = self.slot_table.columns()
        is_backward = columns.of_classes(lambda each: each.is_gradient) | columns.named(self.network.layers.backward)
        is_operator = columns.named(self.network.operators)
        needs = np.zeros(len(columns), np.uint8)
        now: dict[int, list[Watch]] = {}
        for watch in self:
            is_watched = watch.selects.over(columns, is_backward)
            watch.slot_ids = np.flatnonzero(is_watched).tolist()
            needs[is_watched] |= int(watch.need)
            may_turn_out = watch.selects.may_turn_out(columns) & ~is_operator & ~is_watched
            needs[may_turn_out] |= int(watch.need & ~Need.NOW)
            for slot_id in watch.slot_ids if watch.at_nodes else ():
                now.setdefault(slot_id, []).append(watch)
        if self._keep_values:
            needs[needs != 0] |= int(Need.VALUE)
        for slot_id in sorted(now):
            self.at_nodes.setdefault(self.slot_table[slot_id].node.number, []).append((slot_id, now[slot_id]))
        self.needs.watch(needs)
        for watch in self:
            if watch.needs_zero_provenance:
                self.trace(watch, watch.slot_ids if watch.rule.persistence == 1 else watch.traced)

    def _decide(self, tensor_slot: TensorSlot) -> Need:
        """Return the needs of a new slot, and note which watchpoints watch it; called in the order of slot ids."""
        if self._is_stale:
            self._decide_again()
            return Need(self.slot_table.needs[tensor_slot.slot_id])
        need, at_node = Need.NOTHING, []
        slot_class = self.slot_table.class_of(tensor_slot)
        for watch, is_watched in self._of_class(slot_class):
            if is_watched or watch.selects(tensor_slot):
                watch.slot_ids.append(tensor_slot.slot_id)
                need |= watch.need
                if watch.at_nodes:
                    at_node.append(watch)
            elif watch.selects.class_may_turn_out(slot_class) and tensor_slot.node.name not in self.network.operators:
                # Its row is then available when the step has shown the role of the node, so that this step counts, too.
                need |= watch.need & ~Need.NOW
        if need and self._keep_values:
            need |= Need.VALUE
        if at_node:
            self.at_nodes.setdefault(tensor_slot.node.number, []).append((tensor_slot.slot_id, at_node))
        self._table = self._checked = None
        return self.needs.add(need)

    def _of_class(self, slot_class: SlotClass) -> list[tuple[Watch, bool | None]]:
        """Return the watchpoints that may watch slots of a class, and whether they do; None if their names decide."""
        candidates = self._watched_by.get(slot_class)
        if candidates is None:
            watches = [(watch, watch.selects.of_class(slot_class)) for watch in self]
            candidates = self._watched_by[slot_class] = [entry for entry in watches if entry[1] is not False]
        return candidates

    def finds_non_finite(self, number: int) -> bool:
        """Whether a watchpoint hits on NaN and Inf only."""
        watch = self._watches.get(number)
        return watch is not None and watch.only_finite

    def _checked_nodes(self) -> Set[str]:
        """Return the names of the nodes that a watchpoint checks for NaN or Inf in every step."""
        self.settle()
        if self._checked is None:
            watches = [watch for watch in self if watch.only_finite and not watch.initial_only]
            self._checked = {self.slot_table[number].node.name for watch in watches for number in watch.slot_ids}
        return self._checked
