"""The watchpoints of a training process: which slots they watch, and on which of them they hit.

Most steps have no hit. At the end of a step each quantity is therefore computed once for all slots, and only slots that
may exceed a threshold are evaluated in full.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.agents.core.slots import NO_SLOT_IDS, Need
from tensight.agents.core.watching.causes import AgentCauses
from tensight.agents.core.watching.rules import AgentHit, StepTable, Watch
from tensight.agents.core.watching.selection import layers_of
from tensight.agents.core.watching.spreading import SpreadingValues
from tensight.agents.core.watching.values import ValueColumns
from tensight.agents.core.watching.zero_provenance import ObservedProvenance
from tensight.errors import TensightError
from tensight.garbage_collection import without_garbage_collection
from tensight.graph import Layers, is_after_forward
from tensight.tensors import unit_size
from tensight.watchpoints import evaluate
from tensight.wire import received_watchpoint
from tensight.wire.debugger_pb2 import ContentHash
from tensight.wire.text import encoded

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set

    from numpy.typing import NDArray

    from tensight.agents.core.columns import StatisticsColumns
    from tensight.agents.core.program import Program
    from tensight.agents.core.reader import TensorReader
    from tensight.agents.core.retention import Retention
    from tensight.agents.core.slots import DeclaredNode, SlotClass, SlotTable, TensorSlot
    from tensight.agents.core.watching.rules import CompiledCheck
    from tensight.watchpoints import Columns, ConditionCheck, Evaluation
    from tensight.wire.debugger_pb2 import SetCMD

MOST_SKIPPED = 20
"""Updates that loss scaling may skip in a row; after that, the causes are hits, because the scale does not settle."""

_FIRST = np.zeros(1, np.int64)
_PRESENT = np.ones(1, np.bool_)


class Watches:
    """The watchpoints of a process.

    Parameters
    ----------
    slot_table : SlotTable
        The slots in which tensors are observed; their needs are decided here.
    reader : TensorReader
        Reads the values of tensors that statistics alone do not decide.
    check_at_nodes : bool
        Whether the training can stop within a step; then watchpoints are checked there, if possible.
    keep_values : bool
        Whether the values of everything that is watched are kept, because no others are.
    stops_for_every : bool
        Whether every hit is a reason to stop, even if it was reported before or results from a reported one.

    Attributes
    ----------
    loss_scaled : bool
        Whether the loss of this step was scaled; its gradients may then overflow, which is known to be intended only
        when the update has been skipped. Set from outside; reset at the end of the step.
    runs_anew : bool
        Whether this step proceeds as no earlier one; what will read its values is then unknown before its end. Set from
        outside.
    spreading : SpreadingValues
        Follows NaN and Inf through the step.
    nothing_is_left : callable () -> bool
        Returns whether nothing is left to learn in this step, so that weights stay as they are. Set from outside.
    idle : collection of str
        Names of weights about which this step says nothing, because no update was to change them. Set from outside, in
        each step.
    """

    def __init__(
        self,
        slot_table: SlotTable,
        reader: TensorReader,
        *,
        check_at_nodes: bool = False,
        keep_values: bool = False,
        stops_for_every: bool = False,
    ) -> None:
        self.loss_scaled = self.runs_anew = False
        self.idle: Collection[str] = ()
        self.nothing_is_left = _unknown
        self._slot_table = slot_table
        self._check_at_nodes = check_at_nodes
        self._keep_values = keep_values
        self._stops_for_every = stops_for_every
        self._watches: dict[int, Watch] = {}
        self._layers = Layers()
        self._layers_of: dict[str, Layers] = {}
        self._weights: set[str] = set()
        self._operators: set[str] = set()
        self._is_stale = False
        self._watched_by: dict[SlotClass, list[tuple[Watch, bool | None]]] = {}
        self._explains = False
        self._base = Need.NOTHING
        self._instead: Mapping[int, Need] = {}
        self._watch_needs = bytearray()
        self._table: NDArray[np.int64] | None = None
        self._masked: NDArray[np.bool_] | None = None
        self._values = ValueColumns(reader)
        self._provenance = ObservedProvenance(slot_table)
        self.spreading = SpreadingValues(slot_table)
        self._at_nodes: dict[int, list[tuple[int, list[Watch]]]] = {}
        self._reported: set[tuple[int, int]] = set()
        self._reported_in = 0
        self._skipped = 0
        self._is_backward = False
        self._initial: tuple[NDArray[np.int64], StepTable] | None = None
        self._waits_for_layers = False
        self._checked: Set[str] | None = None
        self._causes = AgentCauses(slot_table, self._finds_non_finite, self._checked_nodes)
        slot_table.decide_needs(self._decide)
        self._decide_again()

    # --- what is watched ---

    @property
    def any(self) -> bool:
        """Whether anything is watched."""
        return bool(self._watches)

    def set(self, command: SetCMD) -> str:
        """Add a watchpoint, or replace the one with its number; return why it cannot be used, empty if it can."""
        try:
            rule = received_watchpoint(command)
        except TensightError as error:
            return str(error)
        earlier = self._watches.get(rule.id)
        watch = self._watches[rule.id] = Watch(rule, self._layers, check_at_nodes=self._check_at_nodes)
        if earlier is not None:
            watch.go_on_from(earlier)
            if earlier.rule.check != rule.check or earlier.rule.persistence != rule.persistence:
                self._causes.forget(rule.id)
        self._is_stale = True
        return ""

    def begin_node_checks(self) -> None:
        """Check watchpoints as soon as operators have run, from now on; their next hits are new."""
        self._check_at_nodes = True
        for number, earlier in self._watches.items():
            watch = self._watches[number] = Watch(earlier.rule, self._layers, check_at_nodes=True)
            watch.go_on_from(earlier)
        self._causes.forget()
        self._is_stale = True

    def delete(self, number: int) -> None:
        """Delete a watchpoint, if it exists."""
        if self._watches.pop(number, None) is not None:
            self._causes.forget(number)
            self._is_stale = True

    def settle(self) -> None:
        """Decide what each slot needs, if the watchpoints have changed: once for all changes of a stop."""
        if self._is_stale:
            self._decide_again()

    @without_garbage_collection()
    def learn(self, program: Program) -> None:
        """Learn the layers of the network that a program runs; once for each program."""
        operators = {node.name for node in program.nodes if node.role == "operator"}
        forward = {name for name in operators if not is_after_forward(name)}
        if any(source and source[0] in forward for node in program.nodes for source in node.inputs):
            # Before anything has run, an adapter may report operators, but not yet how they are connected.
            self._operators |= operators
        self._layers_of[program.name] = layers_of(program)
        layers = reduce(or_, self._layers_of.values())
        weights = {node.name for node in program.nodes if node.role == "weight"}
        if layers != self._layers or weights != self._weights:
            self._layers, self._weights = layers, weights
            for watch in self._watches.values():
                watch.selects.learn(layers)
            self._is_stale = True
            self.settle()

    def require(self, need: Need, instead: Mapping[int, Need] = MappingProxyType({})) -> None:
        """Set what every slot needs, watched or not; may be called in every step.

        Parameters
        ----------
        need : Need
        instead : mapping of int to Need
            Needs of some slots that replace it.
        """
        self.settle()
        if need != self._base or instead != self._instead:
            self._base, self._instead = need, instead
            self._write_needs()

    @property
    def wants_changes(self) -> NDArray[np.int64]:
        """Slot ids whose values are compared with those of the step before."""
        self.settle()
        return np.flatnonzero(np.frombuffer(self._watch_needs, np.uint8) & int(Need.CHANGE))

    @property
    def wants_now(self) -> bool:
        """Whether any slot is checked as soon as its node has run."""
        return bool(self._at_nodes)

    def _decide_again(self) -> None:
        """Decide which watchpoints watch which slots, and what these need."""
        self._is_stale = False
        self._at_nodes.clear()
        self._watched_by.clear()
        self._table = self._checked = None
        columns = self._slot_table.columns()
        is_backward = columns.of_classes(lambda each: each.is_gradient) | columns.named(self._layers.backward)
        is_operator = columns.named(self._operators)
        needs = np.zeros(len(columns), np.uint8)
        now: dict[int, list[Watch]] = {}
        for watch in self._watches.values():
            is_watched = watch.selects.over(columns, is_backward)
            watch.slot_ids = np.flatnonzero(is_watched).tolist()
            needs[is_watched] |= int(watch.need)
            may_turn_out = watch.selects.may_turn_out(columns) & ~is_operator & ~is_watched
            needs[may_turn_out] |= int(watch.need & ~Need.NOW)
            for slot_id in watch.slot_ids if watch.at_nodes else ():
                now.setdefault(slot_id, []).append(watch)
        if self._keep_values:
            needs[needs != 0] |= int(Need.VALUE)
        self._watch_needs = bytearray(needs.tobytes())
        for slot_id in sorted(now):
            self._at_nodes.setdefault(self._slot_table[slot_id].node.number, []).append((slot_id, now[slot_id]))
        for watch in self._watches.values():
            if watch.needs_zero_provenance:
                self._trace(watch, watch.slot_ids if watch.rule.persistence == 1 else watch.traced)
        self._write_needs()

    def _trace(self, watch: Watch, slot_ids: Iterable[int]) -> None:
        """Observe the inputs of some slots."""
        watch.traced.update(slot_ids)
        for source in self._provenance.sources(self._running_layers(), slot_ids):
            self._watch_needs[source] |= Need.ROW

    def _running_layers(self) -> Layers:
        """Return the layers of the network in the program that runs; names may mean something else in another one."""
        program = self.spreading.program
        return self._layers if program is None else self._layers_of.get(program.name, self._layers)

    def _write_needs(self) -> None:
        # The table's array stays the same object, and no view of it may exist when it grows.
        needs = self._slot_table.needs
        base = self._base | Need.ROW if self._explains else self._base
        needs[:] = (np.frombuffer(self._watch_needs, np.uint8) | np.uint8(base)).tobytes()
        for number, need in self._instead.items():
            needs[number] = self._watch_needs[number] | need

    def _decide(self, tensor_slot: TensorSlot) -> Need:
        """Return the needs of a new slot, and note which watchpoints watch it; called in the order of slot ids."""
        if self._is_stale:
            self._decide_again()
            return Need(self._slot_table.needs[tensor_slot.slot_id])
        need, at_node = Need.NOTHING, []
        slot_class = self._slot_table.class_of(tensor_slot)
        for watch, is_watched in self._of_class(slot_class):
            if is_watched or watch.selects(tensor_slot):
                watch.slot_ids.append(tensor_slot.slot_id)
                need |= watch.need
                if watch.at_nodes:
                    at_node.append(watch)
            elif watch.selects.class_may_turn_out(slot_class) and tensor_slot.node.name not in self._operators:
                # Its row is then available when the step has shown the role of the node, so that this step counts, too.
                need |= watch.need & ~Need.NOW
        if need and self._keep_values:
            need |= Need.VALUE
        if at_node:
            self._at_nodes.setdefault(tensor_slot.node.number, []).append((tensor_slot.slot_id, at_node))
        self._watch_needs.append(int(need))
        self._table = None
        self._checked = None
        return need | self._base

    def _of_class(self, slot_class: SlotClass) -> list[tuple[Watch, bool | None]]:
        """Return the watchpoints that may watch slots of a class, and whether they do; None if their names decide."""
        candidates = self._watched_by.get(slot_class)
        if candidates is None:
            watches = [(watch, watch.selects.of_class(slot_class)) for watch in self._watches.values()]
            candidates = self._watched_by[slot_class] = [entry for entry in watches if entry[1] is not False]
        return candidates

    def _finds_non_finite(self, number: int) -> bool:
        watch = self._watches.get(number)
        return watch is not None and watch.only_finite

    def _checked_nodes(self) -> Set[str]:
        """Return the names of the nodes that a watchpoint checks for NaN or Inf in every step."""
        self.settle()
        if self._checked is None:
            slot_table = self._slot_table
            watches = [watch for watch in self._watches.values() if watch.only_finite and not watch.initial_only]
            self._checked = {slot_table[number].node.name for watch in watches for number in watch.slot_ids}
        return self._checked

    # --- what hits ---

    def check_initial(self, columns: StatisticsColumns, retention: Retention | None = None) -> list[AgentHit]:
        """Check the watchpoints on the state before the first step.

        Watchpoints that depend on the layers of the network wait for the first step, which shows them; they are then
        checked on the initial state.
        """
        weights = [number for number in range(len(self._slot_table)) if self._slot_table[number].node.role == "weight"]
        columns.reserve(len(self._slot_table))
        slot_ids = np.array(weights, np.int64)
        with np.errstate(all="ignore"):
            self._initial = (
                slot_ids,
                StepTable(columns.take(slot_ids), columns.iteration[slot_ids] == columns.current_iteration),
            )
        self._waits_for_layers = not self._operators
        self.spreading.begin(columns)
        return self._check(columns, retention, columns.current_iteration, initial=True)

    def check_step(
        self,
        columns: StatisticsColumns,
        retention: Retention | None,
        iteration: int,
        order: Sequence[int],
        *,
        scaled_skip: bool = False,
        again: bool = False,
    ) -> list[AgentHit]:
        """Check all watchpoints at the end of a step.

        Parameters
        ----------
        columns : StatisticsColumns
        retention : Retention or None
            Values of this and the previous step.
        iteration : int
            The iteration that has ended.
        order : sequence of int
            The slot ids that were observed in it, in the order of execution.
        scaled_skip : bool
            Whether loss scaling has skipped the update, because gradients were not finite.
        again : bool
            Whether the step was checked before: hits are reported again, and the step does not count twice.

        Returns
        -------
        list of AgentHit
            In the order of execution; without those that `check_node` has returned in this iteration.
        """
        self.settle()
        if again:
            self._reported.clear()
        else:
            self._skipped = self._skipped + 1 if scaled_skip else 0
            self.spreading.end_step()
            self.loss_scaled = False
            self._is_backward = False
        hits = self._check_layers_of_initial(columns, iteration, again=again)
        hits += self._check(columns, retention, iteration, order=order, again=again)
        if self._skipped and self._skipped <= MOST_SKIPPED:
            unscaled = set(self._before_gradients(order))
            hits = [hit for hit in hits if hit.tensor_slot.slot_id in unscaled]
        if len(hits) > 1:
            at = {slot_id: position for position, slot_id in enumerate(order)}
            last = len(at)
            hits.sort(key=lambda hit: at.get(hit.tensor_slot.slot_id, last))
        if self._stops_for_every:
            return hits
        if again:
            return self._causes.judge_again(hits)
        hits = self._causes.judge(hits, columns)
        self._causes.end_step(order, was_checked=not scaled_skip)
        return hits

    def runs(self, program: Program) -> None:
        """Note what the step that ends has computed."""
        self._causes.runs(program)

    def check_node(
        self,
        columns: StatisticsColumns,
        node: DeclaredNode,
        iteration: int,
        retention: Retention | None = None,
    ) -> list[AgentHit]:
        """Check watchpoints on a node that has just run, except those that compare steps or require several."""
        hits: list[AgentHit] = []
        for number, watches in self._at_nodes.get(node.number, ()):
            # Without a row, the tensor was only checked for NaN and Inf, and has none.
            if number >= len(columns.iteration) or columns.iteration[number] != iteration:
                continue
            if self.loss_scaled and (self._is_backward or _is_of_gradients(node)):
                self._is_backward = True
                continue
            if not columns.is_non_finite(number):
                watches = [watch for watch in watches if not watch.only_finite]
                if not watches:
                    continue
            slot_ids = np.array([number])
            with np.errstate(all="ignore"):
                table = StepTable(columns.take(slot_ids), _PRESENT)
                # Whether a mask reaches a node is known once its program is; until then, the end of the step decides.
                is_known = node.name in self._operators and not self.runs_anew
                masked = node.name in self._layers.may_mask or not is_known
                table.columns["masked"] = np.array([masked])
                for watch in watches:
                    if watch.needs_masks and watch.compiled_check is not None:
                        if not table.may_hit(watch.compiled_check, _FIRST)[0]:
                            continue
                        if self.spreading.holds_back(node, is_known=is_known):
                            self.spreading.held_back.append((number, watch.rule.id))
                            continue
                    hits += self._hits(watch, table, columns, slot_ids, _FIRST, retention, iteration)
        return hits

    def marked(
        self, hits: list[AgentHit], columns: StatisticsColumns, running: Callable[[], Program] | None = None
    ) -> list[AgentHit]:
        """Return hits of a step that is not over, each marked as a reason to stop or not.

        Parameters
        ----------
        hits : list of AgentHit
        columns : StatisticsColumns
        running : callable, optional
            Returns what has run so far.
        """
        return hits if self._stops_for_every else self._causes.judge(hits, columns, running)

    def with_held_back(
        self, columns: StatisticsColumns, hits: list[AgentHit], iteration: int, retention: Retention | None = None
    ) -> list[AgentHit]:
        """Return hits on a node that has just run, preceded by the held-back hits in which they originate."""
        names = frozenset(hit.tensor_slot.node.name for hit in hits)
        began = self.spreading.reaching(columns, iteration, names)
        held_back_hits: list[AgentHit] = []
        for number, watchpoint in self.spreading.held_back if began else ():
            watch = self._watches.get(watchpoint)
            if watch is not None and self._slot_table[number].node.name in began:
                slot_ids = np.array([number])
                with np.errstate(all="ignore"):
                    table = StepTable(columns.take(slot_ids), _PRESENT)
                    held_back_hits += self._hits(watch, table, columns, slot_ids, _FIRST, retention, iteration)
        return held_back_hits + hits

    def _check_layers_of_initial(self, columns: StatisticsColumns, iteration: int, *, again: bool) -> list[AgentHit]:
        """Check the state before the first step, once the first step has shown the layers of the network."""
        if not again and not self._waits_for_layers:
            self._initial = None
        if self._initial is None or not self._operators:
            return []
        if not again:
            self._waits_for_layers = False
        slot_ids, table = self._initial
        hits: list[AgentHit] = []
        with np.errstate(all="ignore"):
            for watch in self._watches.values():
                if watch.initial_only and watch.selects.depends_on_layers:
                    chosen = np.flatnonzero(np.isin(slot_ids, watch.slot_ids))
                    hits += self._hits(watch, table, columns, slot_ids, chosen, None, iteration)
        return hits

    def _before_gradients(self, order: Sequence[int]) -> Iterator[int]:
        """Yield the slots that were observed before the first gradient; later ones may depend on gradients."""
        for number in order:
            if _is_of_gradients(self._slot_table[number].node):
                return
            yield number

    def hashes(self, columns: StatisticsColumns) -> list[ContentHash]:
        """Return the hashes in which ranks are compared, for the watchpoints that request it."""
        self.settle()
        hashes = []
        for watch in self._watches.values():
            if watch.rule.compares_ranks:
                rows = columns.take(watch.slot_ids)
                for number, written, content in zip(watch.slot_ids, rows.codes >= 0, rows.hashes.tolist(), strict=True):
                    tensor_slot = self._slot_table[number]
                    if written and content:
                        name = encoded(watch.selects.name_of(tensor_slot.node) or tensor_slot.node.name)
                        hashes.append(
                            ContentHash(node=name, slot=tensor_slot.slot, hash=content, watchpoint=watch.rule.id)
                        )
        return hashes

    def _check(
        self,
        columns: StatisticsColumns,
        retention: Retention | None,
        iteration: int,
        *,
        order: Sequence[int] = (),
        initial: bool = False,
        again: bool = False,
    ) -> list[AgentHit]:
        checked = [watch for watch in self._watches.values() if watch.initial_only == initial and watch.compiled_check]
        if self._skipped:
            checked = [watch for watch in checked if not watch.waits_for_update]
        rows = self._rows()
        if not len(rows) or not (checked or self._values.compares or initial):
            return []
        columns.reserve(len(self._slot_table))
        present = columns.iteration[rows] == iteration
        taken = columns.take(rows)
        hits: list[AgentHit] = []
        with np.errstate(all="ignore"):
            table = StepTable(taken, present)
            if self._masked is not None:
                table.columns["masked"] = self._masked
            self._values.compare(table.columns, taken, present, again=again)
            if initial:
                for watch in self._watches.values():
                    watch.begin(table)
            for watch in checked:
                watch.compare_norms(table, again=again)
                chosen = self._without_idle(watch, rows)
                watch.is_near = False
                hits += self._hits(watch, table, columns, rows, chosen, retention, iteration, order, again=again)
        if not (initial or again):
            self._explain(any(watch.is_near for watch in checked))
        return hits

    def _explain(self, is_near: bool) -> None:
        """Observe all that runs before a hit that operators may cause that are not watched, and not otherwise."""
        if is_near != self._explains:
            self._explains = is_near
            self._write_needs()

    def _without_idle(self, watch: Watch, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows of a watchpoint; for one that compares steps, without weights that were not updated."""
        if not self.idle or not watch.rule.compares_steps:
            return watch.chosen
        idle = [slot_id for name in self.idle if (slot_id := self._slot_table.find(name, 0)) is not None]
        return watch.chosen[~np.isin(rows[watch.chosen], idle)]

    def _rows(self) -> NDArray[np.int64]:
        """Return all slots that watchpoints watch, in the order of their slot ids."""
        self.settle()
        if self._table is not None:
            return self._table
        watches = list(self._watches.values())
        lists = [np.array(watch.slot_ids, np.int64) for watch in watches]
        self._table = np.unique(np.concatenate(lists)) if lists else NO_SLOT_IDS
        layers = self._layers
        columns = self._slot_table.columns()
        depths = columns.values(layers.depths)
        for watch, slot_ids in zip(watches, lists, strict=True):
            watch.arrange(slot_ids, self._table, len(self._slot_table), depths)
        comparing = [watch for watch in watches if watch.rule.compares_steps]
        compared = [(watch.rows, watch.compiled_check.check) for watch in comparing if watch.compiled_check]
        self._values.arrange(self._table, compared)
        self._masked = None
        if any(watch.needs_masks for watch in watches):
            self._masked = columns.named(layers.may_mask)[self._table]
        return self._table

    def _hits(
        self,
        watch: Watch,
        table: StepTable,
        columns: StatisticsColumns,
        rows: NDArray[np.int64],
        chosen: NDArray[np.int64],
        retention: Retention | None,
        iteration: int,
        order: Sequence[int] = (),
        *,
        again: bool = False,
    ) -> list[AgentHit]:
        compiled_check = watch.compiled_check
        if compiled_check is None or not len(chosen):
            return []
        candidates = chosen[table.may_hit(compiled_check, chosen) & table.present[chosen]]
        if len(candidates) and watch.needs_zero_provenance:
            candidates = self._without_propagated(watch, table, columns, rows, candidates, iteration)
        if len(candidates) and watch.needs_masks and len(order):
            left_out = self.spreading.left_out(columns, iteration, rows[candidates])
            if self._skipped > MOST_SKIPPED:
                # What is not finite has an effect: the update is skipped.
                slots = (self._slot_table[number] for number in rows[candidates].tolist())
                left_out &= ~np.fromiter((_is_of_gradients(each.node) for each in slots), np.bool_, len(candidates))
            candidates = candidates[~left_out]
        if not len(candidates) and watch.rule.persistence == 1:
            return []
        slot_ids = rows[candidates]
        evaluation = self._evaluate(compiled_check, table, candidates, slot_ids, retention) if len(candidates) else None
        hit = NO_SLOT_IDS if evaluation is None else np.flatnonzero(evaluation.hit)
        if watch.rule.persistence > 1:
            seen = rows[chosen[table.present[chosen]]] if not watch.only_finite else np.array(order, np.int64)
            hit = hit[watch.persists(seen, slot_ids, hit, iteration, again=again)]
            if len(hit) and watch.is_of_still_weights and self.nothing_is_left():
                return []
        if evaluation is None or not len(hit):
            return []
        if self._reported_in != iteration:
            self._reported.clear()
            self._reported_in = iteration
        hits = []
        for row in hit.tolist():
            key = (watch.rule.id, int(slot_ids[row]))
            if key not in self._reported:
                self._reported.add(key)
                hits.append(_hit(watch, compiled_check.check, self._slot_table[key[1]], evaluation, row))
        return hits

    def _without_propagated(
        self,
        watch: Watch,
        table: StepTable,
        columns: StatisticsColumns,
        rows: NDArray[np.int64],
        candidates: NDArray[np.int64],
        iteration: int,
    ) -> NDArray[np.int64]:
        """Return candidates without those that are zero because their inputs were."""
        # Indices, counts and the zero points of quantization are not activations.
        candidates = candidates[~table.rows.holds_integers[candidates]]
        is_zero = table.columns["zero_count"][candidates] == table.columns["count"][candidates]
        zero = rows[candidates[is_zero]]
        # The inputs of a tensor that is zero for the first time were not observed. If it must stay zero for a hit,
        # there is time for that. If they are still unknown later, another graph runs, in which the name means something
        # else.
        is_new = ~np.isin(zero, list(watch.traced)) & (watch.rule.persistence > 1)
        if not watch.traced.issuperset(zero.tolist()):
            self._trace(watch, zero.tolist())
            self._write_needs()
        propagated = np.zeros(len(candidates), np.bool_)
        propagated[is_zero] = self._provenance.propagated(self._running_layers(), columns, zero, iteration, ~is_new)
        return candidates[~propagated]

    def _evaluate(
        self,
        compiled_check: CompiledCheck,
        table: StepTable,
        candidates: NDArray[np.int64],
        slot_ids: NDArray[np.int64],
        retention: Retention | None,
    ) -> Evaluation | None:
        """Evaluate a check on candidates with all available data; None if it certainly hits on none of them."""
        check = compiled_check.check
        columns: dict[Any, NDArray[Any]] = {key: values[candidates] for key, values in table.columns.items()}
        if compiled_check.needs.units:
            shapes = table.rows.shapes
            columns["unit_size"] = np.array([unit_size(shapes[row]) for row in candidates.tolist()])
            # Statistics have left these candidates open, so units are counted at once, without another evaluation.
            if retention is not None:
                self._values.read(compiled_check.needs, columns, slot_ids, np.arange(len(slot_ids)), retention)
            if not _units_hit(compiled_check, columns):
                return None
        evaluation = evaluate(check, columns)
        if evaluation.undecided.any() and retention is not None:
            open_rows = np.flatnonzero(evaluation.undecided)
            if self._values.read(compiled_check.needs, columns, slot_ids, open_rows, retention):
                evaluation = evaluate(check, columns)
        return evaluation


def _units_hit(compiled_check: CompiledCheck, columns: Columns) -> bool:
    """Whether any percentage of units may be a hit, because it is or because it could not be counted."""
    (rule,) = compiled_check.needs.units
    counted = columns.get(rule)
    if counted is None or np.isnan(counted).any():
        return True
    return any(threshold.comparator.compare(counted, threshold.value).any() for threshold in compiled_check.thresholds)


def _unknown() -> bool:
    """Return False, where it is unknown whether anything is left to learn."""
    return False


def _is_of_gradients(node: DeclaredNode) -> bool:
    """Whether a node computes gradients, which carry the scale of the loss, or uses them."""
    return is_after_forward(node.name)


def _hit(watch: Watch, check: ConditionCheck, tensor_slot: TensorSlot, evaluation: Evaluation, row: int) -> AgentHit:
    return AgentHit(
        tensor_slot,
        watch.rule.id,
        watch.rule.wire_number,
        check,
        tuple((name, float(values[row])) for name, values in evaluation.actual.items()),
        tuple(name for name, flags in evaluation.parameter_hit.items() if flags[row]),
        int(evaluation.error_code[row]),
        watch.selects.name_of(tensor_slot.node),
        since=watch.since(tensor_slot.slot_id),
    )
