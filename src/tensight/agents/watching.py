"""The watchpoints of a training process: which places they watch, and on which of them they hit.

Most steps have no hit. At the end of a step each quantity is therefore computed once for all places, and only places on
which a threshold may be exceeded are evaluated as carefully as anywhere else in Tensight.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.agents.places import Need
from tensight.agents.watching_commands import WatchRule, read_rule
from tensight.agents.watching_hits import AgentHit
from tensight.agents.watching_selection import Selection
from tensight.agents.watching_steps import StepTable
from tensight.agents.watching_values import ValueColumns
from tensight.errors import TensightError
from tensight.watchpoints import evaluate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tensight.agents.columns import StatisticsColumns
    from tensight.agents.places import DeclaredNode, Place, PlaceTable
    from tensight.agents.reader import TensorReader
    from tensight.agents.retention import Retention
    from tensight.watchpoints import ConditionCheck, Evaluation
    from tensight.wire.debugger_pb2 import SetCMD

_NO_PLACES = np.empty(0, np.int64)
_FIRST = np.zeros(1, np.int64)
_PRESENT = np.ones(1, np.bool_)


class Watches:
    """The watchpoints of a process.

    Parameters
    ----------
    places : PlaceTable
        Where tensors are seen; what is needed of each of them is decided here.
    reader : TensorReader
        Reads the values of tensors that statistics alone do not decide.
    check_at_nodes : bool
        Whether the training can stop in the middle of a step: then watchpoints that can be checked there are.
    """

    def __init__(self, places: PlaceTable, reader: TensorReader, *, check_at_nodes: bool = False) -> None:
        self._places = places
        self._check_at_nodes = check_at_nodes
        self._watches: dict[int, _Watch] = {}
        self._base = Need.NOTHING
        self._wanted = bytearray()
        self._table: NDArray[np.int64] | None = None
        self._values = ValueColumns(reader)
        self._at_nodes: dict[int, list[tuple[int, list[_Watch]]]] = {}
        self._reported: set[tuple[int, int]] = set()
        self._reported_in = 0
        places.decide_needs(self._decide)
        self._decide_again()

    # --- what is watched ---

    @property
    def any(self) -> bool:
        """Whether anything is watched."""
        return bool(self._watches)

    def set(self, command: SetCMD) -> str:
        """Add a watchpoint, or replace the one of its number; say why it cannot be used, or nothing."""
        try:
            rule = read_rule(command)
        except TensightError as error:
            return str(error)
        self._watches[rule.id] = _Watch(rule, self._check_at_nodes)
        self._decide_again()
        return ""

    def delete(self, number: int) -> None:
        """Delete a watchpoint, if it is there."""
        if self._watches.pop(number, None) is not None:
            self._decide_again()

    def require(self, need: Need) -> None:
        """Set what is wanted of every place, watched or not; may be called in every step."""
        if need != self._base:
            self._base = need
            self._write_needs()

    @property
    def wants_changes(self) -> NDArray[np.int64]:
        """Places whose values are compared with those of the step before."""
        return np.flatnonzero(np.frombuffer(self._wanted, np.uint8) & int(Need.CHANGE))

    @property
    def wants_now(self) -> bool:
        """Whether any place is checked as soon as its node has run."""
        return bool(self._at_nodes)

    def _decide_again(self) -> None:
        for watch in self._watches.values():
            watch.places.clear()
        self._at_nodes.clear()
        self._wanted.clear()
        for number in range(len(self._places)):
            self._decide(self._places[number])
        self._write_needs()

    def _write_needs(self) -> None:
        # The table's array stays the same object, and nothing may hold a view of it when it grows.
        self._places.needs[:] = (np.frombuffer(self._wanted, np.uint8) | np.uint8(self._base)).tobytes()

    def _decide(self, place: Place) -> Need:
        """Return what is needed of a place, and note who watches it; places come in the order of their numbers."""
        need, at_node = Need.NOTHING, []
        for watch in self._watches.values():
            if watch.selects(place):
                watch.places.append(place.number)
                need |= watch.need
                if watch.at_nodes:
                    at_node.append(watch)
        if at_node:
            self._at_nodes.setdefault(place.node.number, []).append((place.number, at_node))
        self._wanted.append(int(need))
        self._table = None
        return need | self._base

    # --- what hits ---

    def check_initial(self, columns: StatisticsColumns, retention: Retention | None = None) -> list[AgentHit]:
        """Check what looks only at the state before the first step."""
        return self._check(columns, retention, columns.current_iteration, initial=True)

    def check_step(
        self, columns: StatisticsColumns, retention: Retention | None, iteration: int, order: Sequence[int]
    ) -> list[AgentHit]:
        """Check all watchpoints at the end of a step.

        Parameters
        ----------
        columns : StatisticsColumns
        retention : Retention or None
            Values of this and the previous step.
        iteration : int
            That has ended.
        order : sequence of int
            The places that were seen in it, in the order of execution.

        Returns
        -------
        list of AgentHit
            In the order of execution; without those that `check_node` has found in this iteration.
        """
        hits = self._check(columns, retention, iteration, order=order)
        if len(hits) > 1:
            at = {place: position for position, place in enumerate(order)}
            last = len(at)
            hits.sort(key=lambda hit: at.get(hit.place.number, last))
        return hits

    def check_node(
        self, columns: StatisticsColumns, node: DeclaredNode, iteration: int, retention: Retention | None = None
    ) -> list[AgentHit]:
        """Check watchpoints on a node that has just run; those that compare steps, or ask for several, wait."""
        hits: list[AgentHit] = []
        for number, watches in self._at_nodes.get(node.number, ()):
            # Without a row it was only asked about NaN and Inf, and there are none.
            if number < len(columns.iteration) and columns.iteration[number] == iteration:
                place = np.array([number])
                with np.errstate(all="ignore"):
                    table = StepTable(columns.columns(place), _PRESENT)
                    for watch in watches:
                        hits += self._hits(watch, table, place, _FIRST, retention, iteration)
        return hits

    def _check(
        self,
        columns: StatisticsColumns,
        retention: Retention | None,
        iteration: int,
        *,
        order: Sequence[int] = (),
        initial: bool = False,
    ) -> list[AgentHit]:
        checked = [watch for watch in self._watches.values() if watch.initial_only == initial and watch.check]
        rows = self._rows()
        if not len(rows) or not (checked or self._values.compares):
            return []
        columns.reserve(len(self._places))
        present = columns.iteration[rows] == iteration
        taken = columns.take(rows)
        hits: list[AgentHit] = []
        with np.errstate(all="ignore"):
            table = StepTable(taken.columns(), present)
            self._values.compare(table.columns, taken, present)
            for watch in checked:
                hits += self._hits(watch, table, rows, watch.chosen, retention, iteration, order)
        return hits

    def _rows(self) -> NDArray[np.int64]:
        """Return all places that watchpoints look at, in the order of their numbers."""
        if self._table is None:
            lists = [np.array(watch.places, np.int64) for watch in self._watches.values()]
            self._table = np.unique(np.concatenate(lists)) if lists else _NO_PLACES
            for watch, places in zip(self._watches.values(), lists, strict=True):
                watch.arrange(places, self._table, len(self._places))
            comparing = [watch for watch in self._watches.values() if watch.rule.compares_steps]
            self._values.arrange(self._table, [(one.rows, one.check) for one in comparing if one.check is not None])
        return self._table

    def _hits(
        self,
        watch: _Watch,
        table: StepTable,
        rows: NDArray[np.int64],
        chosen: NDArray[np.int64],
        retention: Retention | None,
        iteration: int,
        order: Sequence[int] = (),
    ) -> list[AgentHit]:
        check = watch.check
        if check is None:
            return []
        candidates = chosen[table.may_hit(check, chosen) & table.present[chosen]]
        if not len(candidates) and watch.rule.persistence == 1:
            return []
        places = rows[candidates]
        evaluation = self._evaluate(check, table, candidates, places, retention) if len(candidates) else None
        hit = _NO_PLACES if evaluation is None else np.flatnonzero(evaluation.hit)
        if watch.rule.persistence > 1:
            seen = rows[chosen[table.present[chosen]]] if not watch.rule.only_finite else np.array(order, np.int64)
            hit = hit[watch.persists(seen, places, hit)]
        if evaluation is None or not len(hit):
            return []
        if self._reported_in != iteration:
            self._reported.clear()
            self._reported_in = iteration
        found = []
        for row in hit.tolist():
            key = (watch.rule.id, int(places[row]))
            if key not in self._reported:
                self._reported.add(key)
                found.append(_hit(watch, check, self._places[key[1]], evaluation, row))
        return found

    def _evaluate(
        self,
        check: ConditionCheck,
        table: StepTable,
        candidates: NDArray[np.int64],
        places: NDArray[np.int64],
        retention: Retention | None,
    ) -> Evaluation:
        columns: dict[Any, NDArray[Any]] = {key: values[candidates] for key, values in table.columns.items()}
        evaluation = evaluate(check, columns)
        if evaluation.undecided.any() and retention is not None:
            open_rows = np.flatnonzero(evaluation.undecided)
            if self._values.read(check, columns, places, open_rows, retention):
                evaluation = evaluate(check, columns)
        return evaluation


class _Watch:
    """A watchpoint, the places that it watches, and for how many steps its condition has held on each of them."""

    def __init__(self, rule: WatchRule, check_at_nodes: bool) -> None:
        self.rule = rule
        self.check = rule.check
        self.selects = Selection(rule)
        self.initial_only = rule.check is not None and rule.check.condition.initial_only
        self.at_nodes = check_at_nodes and rule.persistence == 1 and not rule.compares_steps and not self.initial_only
        self.need = _need(rule, at_nodes=self.at_nodes)
        self.places: list[int] = []
        self.rows = _NO_PLACES
        self.chosen = _NO_PLACES
        self._held = np.empty(0, np.int32)

    def arrange(self, places: NDArray[np.int64], table: NDArray[np.int64], all_places: int) -> None:
        """Take note of where its places are in the table of all places that are watched."""
        self.rows = places
        self.chosen = np.searchsorted(table, places)
        if len(self._held) < all_places:
            self._held = np.concatenate([self._held, np.zeros(all_places - len(self._held), np.int32)])

    def persists(self, seen: NDArray[np.int64], places: NDArray[np.int64], hit: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Count the step, and tell on which of the places that hit the condition has held long enough."""
        held = self._held[places[hit]] + 1
        self._held[seen] = 0
        self._held[places[hit]] = held
        long_enough: NDArray[np.bool_] = held >= self.rule.persistence
        return long_enough


def _need(rule: WatchRule, *, at_nodes: bool) -> Need:
    if rule.check is None:
        return Need.NOTHING
    needs = rule.check.needs
    need = Need.FINITE if rule.only_finite else Need.ROW
    if needs.ranges:
        need |= Need.VALUE
    if needs.changes and not rule.is_exact:
        need |= Need.CHANGE
    return need | Need.NOW if at_nodes else need


def _hit(watch: _Watch, check: ConditionCheck, place: Place, evaluation: Evaluation, row: int) -> AgentHit:
    return AgentHit(
        place,
        watch.rule.id,
        watch.rule.wire_number,
        check,
        tuple((name, float(values[row])) for name, values in evaluation.actual.items()),
        tuple(name for name, flags in evaluation.parameter_hit.items() if flags[row]),
        int(evaluation.error_code[row]),
        watch.selects.name_of(place.node),
    )
