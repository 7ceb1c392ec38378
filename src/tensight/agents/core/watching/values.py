"""What watchpoints need beyond the statistics of a step: changes of tensors, and properties of their elements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.agents.core.slots import NO_SLOT_IDS
from tensight.tensors import layout, scan_changes, scan_segment, unit_percentage
from tensight.tensors.statistics_row import segments_of
from tensight.watchpoints.quantities import DEFAULT_ATOL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tensight.agents.core.reader import TensorReader
    from tensight.agents.core.retention import Retention
    from tensight.agents.core.rows import Rows
    from tensight.tensors import ChangeStatistics
    from tensight.watchpoints import ConditionCheck, Needs

Table = dict[Any, "NDArray[Any]"]

_BEFORE = np.dtype([("known", np.bool_), ("hash", np.int64), ("count", np.int64), ("abs_mean", np.float64)])
_ROUNDING = 1e-9
"""Relative error that a mean of float64 sums may have."""


class ValueColumns:
    """Columns of watched slots that the statistics of one step do not provide.

    A tensor with the hash of the step before is unchanged, and one with another mean absolute value has changed by at
    least that much. Everything else needs the values, which are read only for rows that nothing cheaper decides.

    Parameters
    ----------
    reader : TensorReader
    """

    def __init__(self, reader: TensorReader) -> None:
        self._reader = reader
        self._compared = NO_SLOT_IDS
        self._slot_ids = NO_SLOT_IDS
        self._largest_atol = DEFAULT_ATOL
        self._before = np.zeros(0, _BEFORE)
        self._seen: tuple[NDArray[np.int64], NDArray[np.void]] | None = None

    def arrange(self, table: NDArray[np.int64], compared: Sequence[tuple[NDArray[np.int64], ConditionCheck]]) -> None:
        """Set which slots of a table are compared with the step before, and by which checks."""
        self._slot_ids = np.unique(np.concatenate([slot_ids for slot_ids, _ in compared])) if compared else NO_SLOT_IDS
        self._compared = np.searchsorted(table, self._slot_ids)
        self._largest_atol = max((check.needs.atol for _, check in compared), default=DEFAULT_ATOL)

    @property
    def compares(self) -> bool:
        """Whether anything is compared with the step before."""
        return len(self._compared) > 0

    def compare(self, columns: Table, rows: Rows, present: NDArray[np.bool_], *, again: bool = False) -> None:
        """Add the columns of changes, as far as statistics determine them, and keep this step for the next one.

        Parameters
        ----------
        columns : dict
            Statistics of all watched slots; receives columns.
        rows : Rows
            The rows that they are computed from.
        present : ndarray of bool
            Which of the slots were observed in this step.
        again : bool
            Whether it is the same step as the last time.
        """
        if self._seen is not None and not again:
            seen_before, remembered = self._seen
            self._before[seen_before] = remembered
            self._seen = None
        if not self.compares:
            return
        chosen = self._compared
        self._make_room(int(self._slot_ids[-1]) + 1)
        before = self._before[self._slot_ids]
        now = np.zeros(len(chosen), _BEFORE)
        now["hash"], now["abs_mean"] = rows.raw_counts[chosen, layout.HASH], columns["abs_mean"][chosen]
        now["count"] = columns["count"][chosen]
        finite = columns["nan_count"] + columns["neg_inf_count"] + columns["pos_inf_count"] == 0
        now["known"] = finite[chosen] & (now["hash"] != 0)
        seen = present[chosen]
        # With NaN and Inf, statistics cannot be compared; then the elements decide.
        usable = before["known"] & now["known"]
        comparable = before["count"] == now["count"]
        same = usable & comparable & (before["hash"] == now["hash"])
        moved = np.abs(now["abs_mean"] - before["abs_mean"]) - self._largest_atol
        least_rtol = np.maximum(moved / before["abs_mean"] - _ROUNDING, 0.0)
        length = len(rows)
        for name, values in (
            ("has_previous", before["count"] > 0),
            ("changes_comparable", comparable),
            ("complete", same),
            ("mean_abs_change", np.where(same, 0.0, np.nan)),
            ("mean_abs_previous", before["abs_mean"]),
            ("required_rtol", np.where(same, 0.0, np.where(usable, least_rtol, np.nan))),
        ):
            columns[name] = np.zeros(length, values.dtype)
            columns[name][chosen] = values
        if not again:
            self._seen = self._slot_ids[seen], now[seen]

    def read(
        self,
        needs: Needs,
        columns: Table,
        slot_ids: NDArray[np.int64],
        open_rows: NDArray[np.int64],
        retention: Retention,
    ) -> bool:
        """Add what the elements of some rows determine; return False if none of their values is kept.

        Parameters
        ----------
        needs : Needs
            Of the check.
        columns : dict
            Of the rows under evaluation; receives columns.
        slot_ids : ndarray of int64
            The slot id of each row.
        open_rows : ndarray of int64
            Those that statistics leave open.
        retention : Retention
            Source of the values.
        """
        any_read = False
        for row in open_rows.tolist():
            current = self._host(retention.current(int(slot_ids[row])))
            if current is None:
                continue
            for key in needs.ranges:
                counted = columns.setdefault(("in_range", *key), np.full(len(slot_ids), -1, np.int64))
                counted[row] = _count_in_range(current, key)
                any_read = True
            for rule in needs.units:
                units = columns.setdefault(rule, np.full(len(slot_ids), np.nan))
                units[row] = unit_percentage(
                    current, rule.start, rule.end, outside=rule.outside, percentage=rule.percentage
                )
                any_read = True
            if needs.changes:
                previous = self._host(retention.previous(int(slot_ids[row])))
                if previous is not None and previous.size == current.size:
                    _fill_changes(columns, row, _changes(current, previous, needs.atol, needs.rtol))
                    any_read = True
        return any_read

    def _host(self, tensor: Any) -> NDArray[Any] | None:
        return None if tensor is None else self._reader.host(tensor)

    def _make_room(self, slot_count: int) -> None:
        missing = slot_count - len(self._before)
        if missing > 0:
            self._before = np.concatenate([self._before, np.zeros(missing, _BEFORE)])


def _count_in_range(array: NDArray[Any], key: tuple[float, float]) -> int:
    parts = (scan_segment(segment, index, (key,)) for index, segment in enumerate(segments_of(array)))
    return sum(part.in_ranges[0] for part in parts)


def _changes(current: NDArray[Any], previous: NDArray[Any], atol: float, rtol: float | None) -> ChangeStatistics:
    return scan_changes(zip(segments_of(current), segments_of(previous), strict=True), atol=atol, stop_above=rtol)


def _fill_changes(columns: Table, row: int, changes: ChangeStatistics) -> None:
    for name in ("complete", "mean_abs_change", "required_rtol"):
        columns[name][row] = getattr(changes, name)
    columns["mean_abs_previous"][row] = changes.mean_abs_previous
