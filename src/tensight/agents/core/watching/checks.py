"""Checks the watchpoints of a training process: on which of the slots that they watch they hit.

Most steps have no hit. At the end of a step each quantity is therefore computed once for all slots, and only slots that
may exceed a threshold are evaluated in full.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.agents.core.slots import NO_SLOT_IDS
from tensight.agents.core.watching.rules import AgentHit, StepTable
from tensight.agents.core.watching.spreading import SpreadingValues
from tensight.agents.core.watching.values import ValueColumns
from tensight.graph import is_after_forward
from tensight.tensors import unit_size
from tensight.watchpoints import evaluate

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from numpy.typing import ArrayLike, NDArray

    from tensight.agents.core.observation import Observation
    from tensight.agents.core.program import Program
    from tensight.agents.core.slots import DeclaredNode, TensorSlot
    from tensight.agents.core.watching.rules import CompiledCheck, Watch
    from tensight.agents.core.watching.watches import WatchedTable, Watches
    from tensight.watchpoints import Columns, ConditionCheck, Evaluation

MOST_SKIPPED = 20
"""Updates that loss scaling may skip in a row; after that, the causes are hits, because the scale does not settle."""

_FIRST = np.zeros(1, np.int64)


class LossScaling:
    """What is known of the scaling of the loss: gradients may then overflow as intended.

    Attributes
    ----------
    applies : bool
        Whether the loss of this step was scaled; that an overflow was intended is known only when the update has been
        skipped. Set from outside; reset at the end of the step.
    skipped : int
        Number of updates in a row that were skipped.
    """

    def __init__(self) -> None:
        self.applies = False
        self.skipped = 0
        self._is_backward = False

    def end_step(self, *, is_skipped: bool) -> None:
        """Note that a step has ended, and whether its update was skipped."""
        self.skipped = self.skipped + 1 if is_skipped else 0
        self.applies = self._is_backward = False

    def concerns(self, node: DeclaredNode) -> bool:
        """Whether the result of a node that has just run carries the scale of the loss, or depends on it."""
        if not self.applies:
            return False
        self._is_backward = self._is_backward or _is_of_gradients(node)
        return self._is_backward


class StepChecks:
    """The checks of the watchpoints of a process, at operators and at the end of steps.

    Parameters
    ----------
    watches : Watches
    observed : Observation
        Statistics of this step, and values of it and the previous one, which are read if statistics do not decide.
    stops_for_every : bool
        Whether every hit is a reason to stop, even if it was reported before or results from a reported one.

    Attributes
    ----------
    watches : Watches
    scaling : LossScaling
    spreading : SpreadingValues
        Follows NaN and Inf through the step.
    runs_anew : bool
        Whether this step proceeds as no earlier one; what will read its values is then unknown before its end. Set from
        outside.
    idle : collection of str
        Names of weights about which this step says nothing, because no update was to change them. Set from outside, in
        each step.
    """

    def __init__(
        self,
        watches: Watches,
        observed: Observation,
        *,
        stops_for_every: bool = False,
    ) -> None:
        self.scaling = LossScaling()
        self.spreading = SpreadingValues(watches.slot_table, watches.network, observed.columns)
        self.runs_anew = False
        self.idle: Collection[str] = ()
        self.watches = watches
        self._slot_table = watches.slot_table
        self._observed = observed
        self._columns = observed.columns
        self._stops_for_every = stops_for_every
        self._values = ValueColumns(observed.reader)
        self._arranged: WatchedTable | None = None
        self._reported: set[tuple[int, int]] = set()
        self._reported_in = 0
        self._initial: StepTable | None = None
        self._waits_for_layers = False

    # --- what is checked when ---

    @np.errstate(all="ignore")
    def check_initial(self) -> list[AgentHit]:
        """Check the watchpoints on the state before the first step.

        Watchpoints that depend on the layers of the network wait for the first step, which shows them; they are then
        checked on the initial state.
        """
        slot_table = self._slot_table
        weights = [number for number in range(len(slot_table)) if slot_table[number].node.role == "weight"]
        self._initial = self._table_of(weights)
        self._waits_for_layers = not self.watches.network.operators
        self.spreading.begin()
        return self._check(initial=True)

    @np.errstate(all="ignore")
    def check_step(self, order: Sequence[int], *, scaled_skip: bool = False, again: bool = False) -> list[AgentHit]:
        """Check all watchpoints at the end of a step.

        Parameters
        ----------
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
        self.watches.settle()
        if again:
            self._reported.clear()
        else:
            self.scaling.end_step(is_skipped=scaled_skip)
            self.spreading.end_step()
        hits = self._check_layers_of_initial(again=again)
        hits += self._check(order=order, again=again)
        if 0 < self.scaling.skipped <= MOST_SKIPPED:
            unscaled = set(self._before_gradients(order))
            hits = [hit for hit in hits if hit.tensor_slot.slot_id in unscaled]
        if len(hits) > 1:
            at = {slot_id: position for position, slot_id in enumerate(order)}
            last = len(at)
            hits.sort(key=lambda hit: at.get(hit.tensor_slot.slot_id, last))
        if self._stops_for_every:
            return hits
        causes = self.watches.causes
        if again:
            return causes.judge_again(hits)
        hits = causes.judge(hits, self._columns)
        causes.end_step(order, was_checked=not scaled_skip)
        return hits

    def check_node(self, node: DeclaredNode) -> list[AgentHit]:
        """Check watchpoints on a node that has just run, except those that compare steps or require several."""
        hits: list[AgentHit] = []
        columns, network = self._columns, self.watches.network
        for number, watches in self.watches.at_nodes.get(node.number, ()):
            # Without a row, the tensor was only checked for NaN and Inf, and has none.
            if not columns.has_row(number) or self.scaling.concerns(node):
                continue
            if not columns.is_non_finite(number):
                watches = [watch for watch in watches if not watch.only_finite]
                if not watches:
                    continue
            with np.errstate(all="ignore"):
                table = self._table_of([number])
                # Whether a mask reaches a node is known once its program is; until then, the end of the step decides.
                is_known = node.name in network.operators and not self.runs_anew
                table.columns["masked"] = np.array([node.name in network.layers.may_mask or not is_known])
                for watch in watches:
                    if watch.needs_masks and watch.compiled_check is not None:
                        if not table.may_hit(watch.compiled_check, _FIRST)[0]:
                            continue
                        if self.spreading.holds_back(node, is_known=is_known):
                            self.spreading.held_back.append((number, watch.rule.id))
                            continue
                    hits += self._hits(watch, table, _FIRST)
        return hits

    def marked(self, hits: list[AgentHit], running: Callable[[], Program] | None = None) -> list[AgentHit]:
        """Return hits of a step that is not over, each marked as a reason to stop or not.

        Parameters
        ----------
        hits : list of AgentHit
        running : callable, optional
            Returns what has run so far.
        """
        return hits if self._stops_for_every else self.watches.causes.judge(hits, self._columns, running)

    @np.errstate(all="ignore")
    def with_held_back(self, hits: list[AgentHit]) -> list[AgentHit]:
        """Return hits on a node that has just run, preceded by the held-back hits in which they originate."""
        began = self.spreading.reaching(frozenset(hit.tensor_slot.node.name for hit in hits))
        held_back_hits: list[AgentHit] = []
        for number, watchpoint in self.spreading.held_back if began else ():
            watch = self.watches.get(watchpoint)
            if watch is not None and self._slot_table[number].node.name in began:
                held_back_hits += self._hits(watch, self._table_of([number]), _FIRST)
        return held_back_hits + hits

    def _check_layers_of_initial(self, *, again: bool) -> list[AgentHit]:
        """Check the state before the first step, once the first step has shown the layers of the network."""
        if not again and not self._waits_for_layers:
            self._initial = None
        if self._initial is None or not self.watches.network.operators:
            return []
        if not again:
            self._waits_for_layers = False
        hits: list[AgentHit] = []
        for watch in self.watches:
            if watch.initial_only and watch.selects.depends_on_layers:
                chosen = np.flatnonzero(np.isin(self._initial.rows.slot_ids, watch.slot_ids))
                hits += self._hits(watch, self._initial, chosen)
        return hits

    def _before_gradients(self, order: Sequence[int]) -> Iterator[int]:
        """Yield the slots that were observed before the first gradient; later ones may depend on gradients."""
        for number in order:
            if _is_of_gradients(self._slot_table[number].node):
                return
            yield number

    # --- what hits ---

    def _check(self, *, order: Sequence[int] = (), initial: bool = False, again: bool = False) -> list[AgentHit]:
        checked = [watch for watch in self.watches if watch.initial_only == initial and watch.compiled_check]
        if self.scaling.skipped:
            checked = [watch for watch in checked if not watch.waits_for_update]
        watched = self._arrange()
        if not len(watched.slot_ids) or not (checked or self._values.compares or initial):
            return []
        table = self._table_of(watched.slot_ids)
        if watched.may_mask is not None:
            table.columns["masked"] = watched.may_mask
        self._values.compare(table.columns, table.rows, table.present, again=again)
        if initial:
            for watch in self.watches:
                watch.begin(table)
        hits: list[AgentHit] = []
        for watch in checked:
            watch.compare_norms(table, again=again)
            watch.is_near = False
            hits += self._hits(watch, table, self._without_idle(watch), order, again=again)
        if not (initial or again):
            self.watches.needs.explain(is_near=any(watch.is_near for watch in checked))
        return hits

    def _arrange(self) -> WatchedTable:
        """Return all slots that are watched, having noted which of them are compared with the step before."""
        watched = self.watches.table()
        if watched is not self._arranged:
            self._arranged = watched
            comparing = [watch for watch in self.watches if watch.rule.compares_steps]
            compared = [(watch.rows, watch.compiled_check.check) for watch in comparing if watch.compiled_check]
            self._values.arrange(watched.slot_ids, compared)
        return watched

    def _table_of(self, slot_ids: ArrayLike) -> StepTable:
        """Return the statistics of some slots in this step."""
        return StepTable(self._columns.take(slot_ids), self._columns.current_iteration)

    def _without_idle(self, watch: Watch) -> NDArray[np.int64]:
        """Return the rows of a watchpoint; for one that compares steps, without weights that were not updated."""
        if not self.idle or not watch.rule.compares_steps:
            return watch.chosen
        idle = [slot_id for name in self.idle if (slot_id := self._slot_table.find(name, 0)) is not None]
        return watch.chosen[~np.isin(watch.rows, idle)]

    def _hits(
        self,
        watch: Watch,
        table: StepTable,
        chosen: NDArray[np.int64],
        order: Sequence[int] = (),
        *,
        again: bool = False,
    ) -> list[AgentHit]:
        """Return the hits of a watchpoint on some rows of a table.

        Parameters
        ----------
        watch : Watch
        table : StepTable
        chosen : ndarray of int64
            Positions of the slots that it watches.
        order : sequence of int
            The slot ids that were observed in the step, if that has ended.
        again : bool
            Whether the step was checked before.
        """
        compiled_check = watch.compiled_check
        if compiled_check is None or not len(chosen):
            return []
        rows, iteration = table.rows.slot_ids, self._columns.current_iteration
        candidates = chosen[table.may_hit(compiled_check, chosen) & table.present[chosen]]
        if len(candidates) and watch.needs_zero_provenance:
            candidates = self._without_propagated(watch, table, candidates)
        if len(candidates) and watch.needs_masks and len(order):
            left_out = self.spreading.left_out(rows[candidates])
            if self.scaling.skipped > MOST_SKIPPED:
                # What is not finite has an effect: the update is skipped.
                slots = (self._slot_table[number] for number in rows[candidates].tolist())
                left_out &= ~np.fromiter((_is_of_gradients(each.node) for each in slots), np.bool_, len(candidates))
            candidates = candidates[~left_out]
        if not len(candidates) and watch.rule.persistence == 1:
            return []
        slot_ids = rows[candidates]
        evaluation = self._evaluate(compiled_check, table, candidates) if len(candidates) else None
        hit = NO_SLOT_IDS if evaluation is None else np.flatnonzero(evaluation.hit)
        if watch.rule.persistence > 1:
            seen = rows[chosen[table.present[chosen]]] if not watch.only_finite else np.array(order, np.int64)
            hit = hit[watch.persists(seen, slot_ids, hit, iteration, again=again)]
            if len(hit) and watch.is_of_still_weights and self._observed.scalars.have_fallen_to_zero():
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

    def _without_propagated(self, watch: Watch, table: StepTable, candidates: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return candidates without those that are zero because their inputs were."""
        # Indices, counts and the zero points of quantization are not activations.
        candidates = candidates[~table.rows.holds_integers[candidates]]
        is_zero = table.columns["zero_count"][candidates] == table.columns["count"][candidates]
        zero = table.rows.slot_ids[candidates[is_zero]]
        # The inputs of a tensor that is zero for the first time were not observed. If it must stay zero for a hit,
        # there is time for that. If they are still unknown later, another graph runs, in which the name means something
        # else.
        is_new = ~np.isin(zero, list(watch.traced)) & (watch.rule.persistence > 1)
        if not watch.traced.issuperset(zero.tolist()):
            self.watches.trace(watch, zero.tolist())
        propagated = np.zeros(len(candidates), np.bool_)
        propagated[is_zero] = self.watches.provenance.propagated(self._columns, zero, ~is_new)
        return candidates[~propagated]

    def _evaluate(
        self, compiled_check: CompiledCheck, table: StepTable, candidates: NDArray[np.int64]
    ) -> Evaluation | None:
        """Evaluate a check on candidates with all available data; None if it certainly hits on none of them."""
        check, slot_ids = compiled_check.check, table.rows.slot_ids[candidates]
        # The values before the first step are gone when that has shown the layers.
        retention = None if table is self._initial else self._observed.retention
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
