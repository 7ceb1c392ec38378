"""A watchpoint at work: the places that it watches, and for how many steps its condition has held on each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tensight.agents.places import Need
from tensight.agents.watching_selection import Selection
from tensight.agents.watching_steps import Judged
from tensight.watchpoints.references import PREVIOUS, References

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tensight.agents.watching_commands import WatchRule
    from tensight.agents.watching_steps import StepTable
    from tensight.graph import Layers

NO_PLACES = np.empty(0, np.int64)
_NOTHING = np.empty(0)


class Watch:
    """A watchpoint of a process.

    Attributes
    ----------
    places : list of int
        That it watches.
    rows : ndarray of int64
        The same, once all are known.
    chosen : ndarray of int64
        Where they are in the table of all places that any watchpoint watches.
    traced : set of int
        Places of which it must be known what went in: all of them, or those that were zero lately and may hit when
        they stay so.
    """

    def __init__(self, rule: WatchRule, layers: Layers, *, check_at_nodes: bool) -> None:
        self.rule = rule
        self.judged = Judged(rule.check) if rule.check is not None and not rule.compares_ranks else None
        self.selects = Selection(rule, layers)
        self.initial_only = rule.check is not None and rule.check.condition.initial_only
        needs = None if rule.check is None else rule.check.needs
        self.needs_masks = needs is not None and needs.masks
        self.needs_inflow = needs is not None and needs.inflow
        self.traced: set[int] = set()
        self._references = [References(name) for name in needs.references] if needs is not None else []
        # A step in which loss scaling skipped the update says nothing about updates.
        self.waits_for_update = rule.compares_steps or bool(self._references)
        waits = self.waits_for_update or self.initial_only or self.needs_inflow
        in_one_step = rule.persistence == 1 and not waits
        self.at_nodes = check_at_nodes and in_one_step and self.judged is not None
        self.need = self._need()
        self.places: list[int] = []
        self.rows = NO_PLACES
        self.chosen = NO_PLACES
        self._held = np.empty(0, np.int32)
        self._last: dict[str, NDArray[np.float64]] = {}
        self._depths = np.empty(0)

    def arrange(
        self, places: NDArray[np.int64], table: NDArray[np.int64], all_places: int, depths: NDArray[np.float64]
    ) -> None:
        """Take note of where its places are in the table of all places that are watched."""
        self.rows = places
        self.chosen = np.searchsorted(table, places)
        self._depths = depths[places]
        if len(self._held) < all_places:
            self._held = np.concatenate([self._held, np.zeros(all_places - len(self._held), np.int32)])

    def go_on_from(self, earlier: Watch) -> None:
        """Take over what an earlier form of this watchpoint has seen, if it looked for the same."""
        if earlier.rule.check == self.rule.check and earlier.rule.persistence == self.rule.persistence:
            self._held, self._references, self._last = earlier._held, earlier._references, earlier._last
            self.traced = earlier.traced

    def begin(self, table: StepTable) -> None:
        """Take note of the norms before the first step."""
        if any(references.name == PREVIOUS for references in self._references):
            self.compare_norms(table)

    def compare_norms(self, table: StepTable, *, again: bool = False) -> None:
        """Add what norms are compared with to the columns of a step; `again` if it is the same as the last time."""
        for references in self._references:
            if again:
                last = self._last.get(references.name, _NOTHING)
                places = table.rows.places
                known = places < len(last)
                column = np.full(len(places), np.nan)
                column[known] = last[places[known]]
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
        self, seen: NDArray[np.int64], places: NDArray[np.int64], hit: NDArray[np.int64], *, again: bool = False
    ) -> NDArray[np.bool_]:
        """Count the step, unless it was counted before; tell on which places the condition has held long enough."""
        held = self._held[places[hit]]
        if not again:
            held = held + np.int32(1)
            self._held[seen] = 0
            self._held[places[hit]] = held
        long_enough: NDArray[np.bool_] = held >= self.rule.persistence
        return long_enough

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
