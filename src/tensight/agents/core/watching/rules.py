"""The state of a watchpoint: the slots it watches, where it may hit, how long its condition has held, and its hits.

The statistics of a step are columns here: every quantity is computed once, for all slots together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.agents.core.slots import NO_SLOT_IDS, Need
from tensight.agents.core.watching.selection import Selection
from tensight.watchpoints import Source
from tensight.watchpoints.causes import Since
from tensight.watchpoints.references import PREVIOUS, References
from tensight.wire.debugger_pb2 import TensorProto, WatchCondition, WatchpointHit
from tensight.wire.text import encoded
from tensight.wire.watchpoints import add_since

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tensight.agents.core.rows import Rows
    from tensight.agents.core.slots import TensorSlot
    from tensight.graph import Layers
    from tensight.watchpoints import ConditionCheck, Quantity, Threshold
    from tensight.watchpoints.columns import Bounds
    from tensight.wire import ReceivedWatchpoint

_NOTHING = np.empty(0)

_MAY_COME_OF_ZEROS = ("weight_not_changed", "gradient_imbalance")
"""Conditions whose cause may be an operator that makes zeros."""

_EXPLAINED = 2
"""Steps before a hit in which everything is observed, so that its cause can be found."""

Table = dict[Any, "NDArray[Any]"]


class Watch:
    """A watchpoint of a process.

    Attributes
    ----------
    slot_ids : list of int
        Those that it watches.
    only_finite : bool
        Whether a tensor without NaN and Inf can never hit.
    rows : ndarray of int64
        The same as an array, once all are known.
    chosen : ndarray of int64
        Their positions in the table of all slots that any watchpoint watches.
    traced : set of int
        Slots whose inputs must be observed: all of them, or those that were zero recently and may hit if they stay
        zero.
    is_near : bool
        Whether it will soon hit, if its condition holds on, and operators that make zeros may be the cause.
    """

    def __init__(self, rule: ReceivedWatchpoint, layers: Layers, *, check_at_nodes: bool) -> None:
        self.rule = rule
        self.compiled_check = CompiledCheck(rule.check) if rule.check is not None and not rule.compares_ranks else None
        self.selects = Selection(rule, layers)
        self.only_finite = rule.only_finite
        condition = "" if rule.check is None else rule.check.condition.id
        self.is_of_still_weights = condition == "weight_not_changed"
        self.may_come_of_zeros = condition in _MAY_COME_OF_ZEROS
        self.is_near = False
        self.initial_only = rule.check is not None and rule.check.condition.initial_only
        needs = None if rule.check is None else rule.check.needs
        self.needs_masks = needs is not None and needs.masks
        self.needs_zero_provenance = needs is not None and needs.zero_provenance
        self.traced: set[int] = set()
        self._references = [References(name) for name in needs.references] if needs is not None else []
        # A step in which loss scaling skipped the update says nothing about updates.
        self.waits_for_update = rule.compares_steps or bool(self._references)
        waits = self.waits_for_update or self.initial_only or self.needs_zero_provenance
        in_one_step = rule.persistence == 1 and not waits
        self.at_nodes = check_at_nodes and in_one_step and self.compiled_check is not None
        self.need = self._need()
        self.slot_ids: list[int] = []
        self.rows = NO_SLOT_IDS
        self.chosen = NO_SLOT_IDS
        self._held = np.empty(0, np.int32)
        self._since = np.empty(0, np.int64)
        self._was_clear = np.empty(0, np.bool_)
        self._last: dict[str, NDArray[np.float64]] = {}
        self._depths = np.empty(0)

    def arrange(
        self, slot_ids: NDArray[np.int64], table: NDArray[np.int64], slot_count: int, depths: NDArray[np.float64]
    ) -> None:
        """Set the positions of its slots in the table of all watched slots."""
        self.rows = slot_ids
        self.chosen = np.searchsorted(table, slot_ids)
        self._depths = depths[slot_ids]
        if len(self._held) < slot_count:
            more = slot_count - len(self._held)
            self._held = np.concatenate([self._held, np.zeros(more, np.int32)])
            self._since = np.concatenate([self._since, np.zeros(more, np.int64)])
            self._was_clear = np.concatenate([self._was_clear, np.zeros(more, np.bool_)])

    def go_on_from(self, earlier: Watch) -> None:
        """Take over the state of an earlier version of this watchpoint, if it checked the same."""
        if earlier.rule.check == self.rule.check and earlier.rule.persistence == self.rule.persistence:
            self._held, self._references, self._last = earlier._held, earlier._references, earlier._last
            self._since, self._was_clear = earlier._since, earlier._was_clear
            self.traced = earlier.traced

    def begin(self, table: StepTable) -> None:
        """Note the norms before the first step."""
        if any(references.name == PREVIOUS for references in self._references):
            self.compare_norms(table)

    def compare_norms(self, table: StepTable, *, again: bool = False) -> None:
        """Add the references of norms to the columns of a step; `again` if it is the same step as the last time."""
        for references in self._references:
            if again:
                last = self._last.get(references.name, _NOTHING)
                slot_ids = table.rows.slot_ids
                is_known = slot_ids < len(last)
                column = np.full(len(slot_ids), np.nan)
                column[is_known] = last[slot_ids[is_known]]
                table.columns["reference", references.name] = column
                continue
            seen = table.present[self.chosen]
            chosen = self.chosen[seen]
            columns = table.columns
            finite = (columns["nan_count"] + columns["neg_inf_count"] + columns["pos_inf_count"] == 0)[chosen]
            norms, counts = columns["l2_norm"][chosen], columns["count"][chosen]
            column = np.full(len(table.present), np.nan)
            column[chosen] = references.step(self.rows[seen], norms, counts, finite, self._depths[seen])
            columns["reference", references.name] = column
            last = self._last[references.name] = np.full(len(self._held), np.nan)
            last[self.rows[seen]] = column[chosen]

    def persists(
        self,
        seen: NDArray[np.int64],
        slot_ids: NDArray[np.int64],
        hit: NDArray[np.int64],
        iteration: int,
        *,
        again: bool = False,
    ) -> NDArray[np.bool_]:
        """Count the step, unless it was counted before; return on which slots the condition has held long enough."""
        held = self._held[slot_ids[hit]]
        if not again:
            self._since[slot_ids[hit[held == 0]]] = iteration
            held = held + np.int32(1)
            self._held[seen] = 0
            self._held[slot_ids[hit]] = held
            self._was_clear[seen[self._held[seen] == 0]] = True
        needed = self.rule.persistence
        self.is_near = self.may_come_of_zeros and bool(((held >= needed - _EXPLAINED) & (held <= needed)).any())
        long_enough: NDArray[np.bool_] = held >= needed
        return long_enough

    def since(self, slot_id: int) -> Since | None:
        """Return since when the condition has held on a slot; None if one step suffices for a hit."""
        if self.rule.persistence == 1:
            return None
        first = int(self._since[slot_id])
        return Since(first, may_be_older=first > 0 and not self._was_clear[slot_id])

    def _need(self) -> Need:
        rule = self.rule
        if rule.check is None:
            return Need.NOTHING
        needs = rule.check.needs
        need = Need.FINITE if rule.only_finite else Need.ROW
        if needs.ranges or needs.units:
            need |= Need.VALUE
        if rule.compares_steps or rule.compares_ranks:
            need |= Need.HASH
        if needs.changes and not rule.is_exact:
            need |= Need.CHANGE
        return need | Need.NOW if self.at_nodes else need


class CompiledCheck:
    """A check with its parts, looked up once."""

    def __init__(self, check: ConditionCheck) -> None:
        self.check = check
        self.flag = check.condition.flag
        self.thresholds = check.thresholds
        self.needs = check.needs
        self.values = check.values


class StepTable:
    """Columns of all watched slots, in one step.

    Parameters
    ----------
    rows : Rows
        Statistics of each slot.
    iteration : int
        That of the step.

    Attributes
    ----------
    columns : dict
        Statistics and whatever else checks need of each slot.
    present : ndarray of bool
        Which slots were observed in this step.
    """

    def __init__(self, rows: Rows, iteration: int) -> None:
        self.columns: Table = rows.columns()
        self.rows = rows
        self.present = rows.iterations == iteration
        self._bounds: dict[object, Bounds] = {}

    def may_hit(self, compiled_check: CompiledCheck, chosen: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return on which of some slots a check may hit, according to their statistics.

        Changes, ranges and units that have not been counted yet leave this open; the check may then hit.
        """
        if compiled_check.flag is not None:
            return self.bounds(compiled_check.flag, compiled_check)[1][chosen] > 0
        possible = np.zeros(len(chosen), np.bool_)
        for threshold in compiled_check.thresholds:
            if threshold.quantity.source is Source.UNITS:
                possible |= self._units_may_hit(compiled_check, threshold, chosen)
                continue
            low, high = self.bounds(threshold.quantity, compiled_check)
            nearest = high if threshold.comparator.grows else low
            possible |= threshold.comparator.compare(nearest[chosen], threshold.value)
        return possible

    def _units_may_hit(
        self, compiled_check: CompiledCheck, threshold: Threshold, chosen: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Do the same for a percentage of units; the extremes of a tensor, or its zeros, exclude most hits."""
        (rule,) = compiled_check.needs.units
        columns = self.columns
        if rule.outside:
            possible = (columns["max"][chosen] > rule.end) | (columns["min"][chosen] < rule.start)
        else:
            # If this many units are zero, at least so many elements are.
            least = threshold.value * rule.percentage / 1e4
            return columns["zero_count"][chosen] >= least * columns["count"][chosen]
        some = np.flatnonzero(possible)
        if some.size:
            rows = chosen[some]
            few: Table = {name: columns[name][rows] for name in threshold.quantity.columns}
            low, high = threshold.quantity.bounds(few, compiled_check.values)
            possible[some] = threshold.comparator.compare(high if threshold.comparator.grows else low, threshold.value)
        return possible

    def bounds(self, quantity: Quantity, compiled_check: CompiledCheck) -> Bounds:
        """Return the smallest and the largest value that a quantity can have, for every slot."""
        # Each watchpoint has references of its own for norms.
        if quantity.source is Source.REFERENCE:
            return quantity.bounds(self.columns, compiled_check.values)
        key = quantity.name if quantity.source is Source.STATISTICS else (quantity.name, compiled_check.check.arguments)
        bounds = self._bounds.get(key)
        if bounds is None:
            bounds = self._bounds[key] = quantity.bounds(self.columns, compiled_check.values)
        return bounds


@dataclass(frozen=True, slots=True)
class AgentHit:
    """A tensor on which a watchpoint hit.

    Attributes
    ----------
    tensor_slot : TensorSlot
        The slot in which the tensor was observed.
    watchpoint : int
        The number of the watchpoint.
    wire_number : int
        The condition's number in the protocol.
    check : ConditionCheck
        The condition with its thresholds.
    actual : mapping of str to float
        The tensor's value for each active threshold.
    parameters_hit : tuple of str
        The thresholds that hit.
    error_code : int
        ``ErrorCode`` bits, set if the tensor also has NaN or Inf.
    called : str
        The server's name of the node; empty if it is the name here.
    is_new : bool
        Whether it is a reason to stop: it was not reported before, and does not result from a reported hit.
    since : Since or None
        Since when the condition has held, if it must hold for several steps.
    """

    tensor_slot: TensorSlot
    watchpoint: int
    wire_number: int
    check: ConditionCheck
    actual: tuple[tuple[str, float], ...] = ()
    parameters_hit: tuple[str, ...] = ()
    error_code: int = 0
    called: str = ""
    is_new: bool = True
    since: Since | None = None

    def message(self, graph: str = "", iteration: int | None = None) -> WatchpointHit:
        """Return the hit as a message for the server, with every parameter of the condition in the declared order.

        Parameters
        ----------
        graph : str
            Name of the graph that contains the node.
        iteration : int, optional
            Of its step, for a hit that is not a reason to stop there.
        """
        node = self.tensor_slot.node
        name, slot = encoded(self.called or node.name), str(self.tensor_slot.slot).encode()
        tensor = TensorProto(node_name=name, slot=slot, finished=True)
        if graph:
            tensor.graph = encoded(graph)
        if iteration is not None:
            tensor.iter = str(iteration).encode()
        if self.tensor_slot.io == "input":
            tensor.io = b"input"
        condition = WatchCondition(condition=self.wire_number)
        values, actual = self.check.values, dict(self.actual)
        for parameter in self.check.condition.parameters:
            value = values.get(parameter.name)
            condition.params.add(
                name=parameter.name.encode(),
                disabled=value is None,
                value=0.0 if value is None else float(value),
                hit=parameter.name in self.parameters_hit,
                actual_value=actual.get(parameter.name, 0.0),
            )
        if self.since is not None:
            add_since(condition, self.since.iteration + 1, may_be_older=self.since.may_be_older)
        return WatchpointHit(
            tensor=tensor,
            watch_condition=condition,
            id=self.watchpoint,
            error_code=self.error_code,
            graph=encoded(graph),
        )
