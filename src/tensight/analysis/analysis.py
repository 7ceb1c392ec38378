"""Analysis of all tensors of a dump, from the statistics table and with as few reads as possible."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight import watchpoints
from tensight.analysis import store
from tensight.analysis.engine import Engine, Progress, ThreadEngine
from tensight.analysis.peers import own_columns, rows_to_count
from tensight.analysis.recorded_statistics import BOUNDED
from tensight.analysis.statistics_table import (
    DEFAULT_ATOL,
    KNOWN,
    NO_PREVIOUS,
    STATISTICS,
    UNKNOWN,
    UNREADABLE,
    Range,
    StatisticsTable,
    Visit,
    file_key,
    to_arrow,
)
from tensight.cache import cache_for
from tensight.errors import InputError, Problem
from tensight.tensors import KINDS

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from tensight.dumps import Dump, TensorFile
    from tensight.watchpoints import Columns, ConditionCheck, Evaluation, Needs, UnitRule
    from tensight.watchpoints.columns import ColumnKey
    from tensight.watchpoints.evaluation import NonFinite

CERTAIN_RTOL = 1.0
"""A comparison may stop at a relative change of this size, or above the requested threshold if that is larger:
the threshold that a user tries next is very likely smaller, and if it is not, the tensor is read again."""


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """A condition to check on some tensors.

    Attributes
    ----------
    check : ConditionCheck
        The condition with its parameters.
    files : sequence of TensorFile
        The tensors, all of the analysed dump.
    rows : int64 array, shape (n,), optional
        Their rows in the statistics table, if they are known.
    """

    check: ConditionCheck
    files: Sequence[TensorFile]
    rows: NDArray[np.int64] | None = None


class Analysis:
    """A dump and the statistics of its tensors, computed on demand.

    Parameters
    ----------
    dump : Dump
        The dump. Nothing is written into it.
    cache_dir : path, optional
        Folder of the cached statistics table; by default ``TENSIGHT_CACHE_DIR`` or the platform's user cache.
    threads : int, optional
        Number of threads that read tensors; by default the number of cores available to this process.
    progress : callable, optional
        Called while tensors are read, with the number of bytes visited so far and the total number.
    engine : Engine, optional
        The engine that reads tensors; by default threads of this process.
    is_part : bool
        Whether the dump is one rank of a run. Whether its tensors differ from those of other ranks is then compared
        later, by their hashes: all of them are assumed to.
    """

    def __init__(
        self,
        dump: Dump,
        *,
        cache_dir: str | os.PathLike[str] | None = None,
        threads: int | None = None,
        progress: Progress | None = None,
        engine: Engine | None = None,
        is_part: bool = False,
    ) -> None:
        self.dump = dump
        self._is_part = is_part
        self.progress = progress
        self._engine = engine or ThreadEngine(threads)
        self._cache = cache_for(dump.path, cache_dir)
        self._table: StatisticsTable | None = None
        self._overflowed: NDArray[np.bool_] | None = None

    @property
    def statistics_table(self) -> StatisticsTable:
        """The statistics table, as far as it has been filled so far."""
        if self._table is None:
            self._table = StatisticsTable.empty(self.dump)
            store.load(self._table, self._cache)
        return self._table

    def rows_of(self, files: Iterable[TensorFile]) -> NDArray[np.int64]:
        """Return the rows of tensors in the table.

        Parameters
        ----------
        files : iterable of TensorFile
            Tensors of this dump, each by its newest file.

        Returns
        -------
        int64 array, shape (n,)
        """
        index = self.statistics_table.index
        return np.fromiter((index[file_key(file)] for file in files), np.int64)

    def statistics(self, rows: NDArray[np.int64] | None = None) -> StatisticsTable:
        """Return the table, after computing the missing statistics of all tensors or of some rows.

        Parameters
        ----------
        rows : int64 array, shape (n,), optional
            The rows that are needed; all by default.
        """
        table = self.statistics_table
        requested = np.arange(len(table.files)) if rows is None else np.unique(rows)
        missing = requested[table.rows["state"][requested] == UNKNOWN]
        self._visit([Visit(int(row)) for row in missing])
        return table

    def table(self) -> pa.Table:
        """Return the complete statistics table as Arrow, one row for each tensor."""
        return to_arrow(self.statistics())

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Problems of the dump, tensors that could not be read so far, and unusable recorded statistics."""
        table = self.statistics_table
        unreadable = (
            self.dump.unreadable(file, error)
            for file, error in zip(table.files[: table.with_values], table.errors, strict=False)
            if error
        )
        return (*self.dump.problems, *unreadable, *self.unusable_records())

    def unusable_records(self) -> tuple[Problem, ...]:
        """Return why recorded statistics of tensors without values cannot be used, one problem for each reason."""
        table = self.statistics_table
        rows: dict[str, list[int]] = {}
        for row, reason in enumerate(table.recorded.errors, table.with_values):
            if reason:
                rows.setdefault(reason, []).append(row)
        problems = []
        for reason, unusable_rows in rows.items():
            first = table.files[unusable_rows[0]]
            some = f"{len(unusable_rows):,} of {len(table.recorded):,} tensors"
            what = f"of {some} {reason}, such as {first.address or first.op_name}"
            problems.append(replace(self.dump.unreadable(first, what), advice="nothing is known of these tensors"))
        return tuple(problems)

    def evaluate(self, requests: Sequence[CheckRequest], *, non_finite: NonFinite = "evaluate") -> list[Evaluation]:
        """Check conditions on tensors; each tensor is read at most once, and only if its statistics do not suffice.

        Parameters
        ----------
        requests : sequence of CheckRequest
            The conditions and their tensors.
        non_finite : {"evaluate", "report"}
            How to treat tensors with NaN or infinite elements: evaluate thresholds on their finite elements, or only
            report them, as MindSpore Insight did.

        Returns
        -------
        list of Evaluation
            One for each request, with arrays aligned with the tensors of the request.
        """
        table = self.statistics_table
        rows = [self.rows_of(request.files) if request.rows is None else request.rows for request in requests]
        self._visit(_plan(table, requests, rows))
        return [
            watchpoints.evaluate(request.check, self._columns(request.check, chosen), non_finite=non_finite)
            for request, chosen in zip(requests, rows, strict=True)
        ]

    def _visit(self, visits: Sequence[Visit]) -> None:
        """Read tensors and store the results, even if the user interrupts the read."""
        if not visits:
            return
        table = self.statistics_table
        table.prepare(visits)
        table.changed.update({table.files[visit.index].rank for visit in visits})

        def weight(group: Sequence[Visit]) -> int:
            return sum(table.files[visit.index].size_bytes for visit in group)

        try:
            self._engine.run(table.together(visits), table.fill, weight=weight, progress=self.progress)
        finally:
            store.save_later(table, self._cache)

    def _columns(self, check: ConditionCheck, rows: NDArray[np.int64]) -> Columns:
        table, needs = self.statistics_table, check.needs
        columns: dict[ColumnKey, NDArray[Any]] = {
            name: table.rows[name][rows] for name in STATISTICS if name != "content_hash"
        }
        columns.update(own_columns(self.dump, table, needs, rows))
        if needs.ranks and self._is_part:
            columns["differs"] = np.ones(len(rows), np.int64)
        for key in needs.ranges:
            columns["in_range", key[0], key[1]] = _range_counts(table, key)[rows]
        if needs.changes:
            changes = table.change_rows(_atol(needs))[rows]
            columns["has_previous"] = table.previous[rows] != NO_PREVIOUS
            columns["changes_comparable"] = changes["state"] == KNOWN
            for name in ("mean_abs_change", "mean_abs_previous", "required_rtol", "complete"):
                columns[name] = changes[name]
        if needs.overflow:
            columns["overflowed"] = self.overflowed()[rows]
        recorded = (rows >= table.with_values) & (table.rows["state"][rows] != UNREADABLE)
        if recorded.any():
            columns["recorded"] = recorded
            columns["exact"] = recorded & (table.rows["state"][rows] == KNOWN)
            for name in BOUNDED:
                low, high = table.bounds(name)
                columns["low", name], columns["high", name] = low[rows], high[rows]
                if name in KINDS:
                    # Counts are their lower bounds; the upper bounds are in the columns "high".
                    columns[name] = np.where(recorded, low[rows], columns[name]).astype(np.int64)
        return columns

    def overflowed(self) -> NDArray[np.bool_]:
        """Return for each row whether the device reported an overflow of the operator execution it belongs to."""
        if self._overflowed is None:
            reported = {
                (record.rank, record.iteration, task, stream)
                for record in self.dump.overflows()
                for task, stream in record.executions
            }
            files = self.statistics_table.files
            hits = ((f.rank, f.iteration, f.task_id, f.stream_id) in reported for f in files)
            self._overflowed = np.fromiter(hits, np.bool_, len(files))
        return self._overflowed


def _plan(table: StatisticsTable, requests: Sequence[CheckRequest], rows: Sequence[NDArray[np.int64]]) -> list[Visit]:
    """Return the reads that all requests need, at most one for each tensor."""
    ranges: dict[int, set[Range]] = {}
    atols: dict[int, set[float]] = {}
    units: dict[int, set[UnitRule]] = {}
    to_scan: set[int] = set()
    stop_above = CERTAIN_RTOL
    for request, chosen in zip(requests, rows, strict=True):
        needs = request.check.needs
        unread = chosen[table.rows["state"][chosen] == UNKNOWN]
        if needs.statistics or needs.ranges or needs.changes or needs.ranks:
            to_scan.update(unread.tolist())
        for key in needs.ranges:
            readable = (table.rows["state"][chosen] != UNREADABLE) & (chosen < table.with_values)
            missing = chosen[readable & (_range_counts(table, key)[chosen] < 0)]
            for row in missing.tolist():
                ranges.setdefault(row, set()).add(key)
        for rule in needs.units:
            for row in rows_to_count(table, chosen, request.check, rule).tolist():
                units.setdefault(row, set()).add(rule)
        if needs.changes:
            stop_above = max(stop_above, needs.rtol) if needs.rtol is not None else np.inf
            for row in _rows_to_compare(table, chosen, _atol(needs), needs.rtol).tolist():
                atols.setdefault(row, set()).add(_atol(needs))
    others = ranges.keys() | atols.keys() | units.keys()
    visits = [Visit(row) for row in to_scan - others]
    for row in others:
        counted = tuple(sorted(ranges.get(row, ())))
        compared = tuple(sorted(atols.get(row, ())))
        visits.append(Visit(row, counted, compared, stop_above, tuple(sorted(units.get(row, ())))))
    return sorted(visits, key=lambda visit: visit.index)


def _atol(needs: Needs) -> float:
    """Return the absolute tolerance for comparisons; the mean changes do not depend on it."""
    if needs.atol is None:
        return DEFAULT_ATOL
    if not needs.atol >= 0:
        # Raised before any tensor is read, because it is not an error of the tensors.
        raise InputError(f"atol is {needs.atol}; give a number of at least 0")
    return needs.atol


def _range_counts(table: StatisticsTable, key: Range) -> NDArray[np.int64]:
    """Return the numbers of elements in a range, derived from the statistics if possible; -1 if unknown."""
    counts = table.range_counts(key)
    open_rows = np.flatnonzero((counts < 0) & (table.rows["state"] == KNOWN))
    if open_rows.size:
        columns = {name: table.rows[name][open_rows] for name in STATISTICS}
        derived_counts, decided = watchpoints.range_count_from_statistics(columns, *key)
        counts[open_rows[decided]] = derived_counts[decided]
    return counts


def _rows_to_compare(
    table: StatisticsTable, chosen: NDArray[np.int64], atol: float, rtol: float | None
) -> NDArray[np.int64]:
    """Return the rows that must be compared with the previous iteration, or compared further."""
    changes = table.change_rows(atol)
    chosen = chosen[table.previous[chosen] != NO_PREVIOUS]
    _take_equal_hashes(table, changes, chosen)
    state, complete = changes["state"][chosen], changes["complete"][chosen]
    enough = complete if rtol is None else complete | (changes["required_rtol"][chosen] > rtol)
    is_open = (state == UNKNOWN) | ((state == KNOWN) & ~enough)
    open_rows: NDArray[np.int64] = chosen[is_open & (chosen < table.with_values)]
    return open_rows


def _take_equal_hashes(table: StatisticsTable, changes: NDArray[np.void], chosen: NDArray[np.int64]) -> None:
    """Mark finite tensors with the same content hash as their previous iteration as unchanged, without reading."""
    open_rows = chosen[changes["state"][chosen] == UNKNOWN]
    rows, before = table.rows[open_rows], table.rows[table.previous[open_rows]]
    finite = rows["nan_count"] + rows["neg_inf_count"] + rows["pos_inf_count"] == 0
    same = (rows["state"] == KNOWN) & (before["state"] == KNOWN) & finite & (rows["count"] > 0)
    # A device's trace may lack hashes.
    same &= rows["content_hash"] != 0
    same &= (rows["content_hash"] == before["content_hash"]) & (rows["size_bytes"] == before["size_bytes"])
    equal = open_rows[same]
    changes["state"][equal], changes["complete"][equal] = KNOWN, True
    for name in ("mean_abs_change", "max_abs_change", "l2_change", "required_rtol"):
        changes[name][equal] = 0.0
    changes["mean_abs_previous"][equal] = table.rows["abs_mean"][equal]
