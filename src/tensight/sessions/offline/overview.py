"""Source of the overview and the timeline of a dump: the statistics of its tensors, as far as they were read."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from tensight.analysis.recorded_statistics import NOT_RECORDED
from tensight.analysis.statistics_table import KNOWN, RECORDED, UNKNOWN
from tensight.graph import TensorAddress
from tensight.sessions.loss import find_loss
from tensight.sessions.offline.index import INITIAL
from tensight.sessions.offline.statistics import position_of
from tensight.sessions.overview import (
    INFINITE,
    NAN,
    ListedTensor,
    StepColumn,
    marks_of,
    needed,
    ordinal,
    percentages,
    statistic_of,
)
from tensight.tensors import COUNTS, MEASURES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from tensight.analysis import Analysis
    from tensight.dumps import Dump, TensorFile
    from tensight.graph import Graph
    from tensight.sessions.offline.index import TensorIndex
    from tensight.sessions.overview import Columns
    from tensight.sessions.records import OverviewStatistic

READ_FOR_S = 1.0
"""Seconds spent reading tensors for a request; clients repeat the request for more."""

_FIRST_READ = 64
"""Tensors in the first batch that is read."""

MOST_LOSSES = 2000
"""Maximum number of files that are read for a loss curve."""


def _is_parameter(index: TensorIndex, file: TensorFile) -> bool:
    node = index.node(file.rank, file.graph, file.node) if file.node is not None else None
    return node is not None and node.is_parameter


class DumpSource:
    """The statistics of a rank of a dump; an `OverviewSource`. Creating it takes long, since it lists all tensors.

    Parameters
    ----------
    dump : Dump
    analysis : Analysis
        Analysis of that dump.
    index : TensorIndex
        Index of that dump.
    rank : int
    first_of : callable
        See `OverviewSource`.
    """

    def __init__(
        self, dump: Dump, analysis: Analysis, index: TensorIndex, rank: int, first_of: Callable[[str, str], str]
    ) -> None:
        self._dump, self._analysis = dump, analysis
        self.rank = rank
        self.first_of = first_of
        self.tensors: list[ListedTensor] = []
        iterations = [INITIAL, *dump.iterations(rank)]
        rows = np.concatenate([index.rows_at(rank, iteration) for iteration in iterations])
        indices: list[int] = []
        listed: list[int] = []
        steps: list[int] = []
        sizes: list[int] = []
        number_by_key: dict[tuple[str, str, str, int], int] = {}
        seen: set[tuple[int, int]] = set()
        files = analysis.statistics_table.files
        for row in rows.tolist():
            file = files[row]
            if file.iteration == INITIAL and not _is_parameter(index, file):
                # A constant is the same in every step.
                continue
            key = (file.node or file.op_name, file.io, file.slot)
            number = number_by_key.setdefault((first_of(file.graph, key[0]), *key), len(self.tensors))
            if number == len(self.tensors):
                self.tensors.append(
                    ListedTensor(*key, file.graph, (file.graph,), file.op_type, position_of(dump, file))
                )
            elif file.graph not in self.tensors[number].graphs:
                graphs = (*self.tensors[number].graphs, file.graph)
                self.tensors[number] = self.tensors[number]._replace(graph=file.graph, graphs=graphs)
            if (number, file.step) in seen:
                # A weight that was dumped with several graphs of a step counts only once, with the first.
                continue
            seen.add((number, file.step))
            indices.append(number)
            listed.append(row)
            steps.append(file.step)
            sizes.append(file.size_bytes)
        self._rows, self._indices = np.array(listed, np.int64), np.array(indices, np.int64)
        self._steps, self._sizes = np.array(steps, np.int64), np.array(sizes, np.int64)
        self._has_value = self._rows < analysis.statistics_table.with_values
        self.steps = np.unique(self._steps)

    def columns(self, statistic: OverviewStatistic) -> Iterator[StepColumn]:
        """Yield the known statistics, step by step."""
        table = self._analysis.statistics_table
        is_known = np.isin(table.rows["state"][self._rows], (KNOWN, RECORDED))
        rows, indices, steps = self._rows[is_known], self._indices[is_known], self._steps[is_known]
        counts = self._counts(rows)
        columns: Columns = {name: table.rows[name][rows] for name in needed(statistic) if name in MEASURES}
        values = statistic_of(statistic, {**columns, **percentages(counts)})
        marks = marks_of(counts)
        starts = np.searchsorted(steps, self.steps)
        ends = np.searchsorted(steps, self.steps, "right")
        for step, start, end in zip(self.steps.tolist(), starts, ends, strict=True):
            if end > start:
                yield StepColumn(step, indices[start:end], values[start:end], marks[start:end], rows[start:end])

    def positions(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """See `OverviewSource`."""
        files = self._analysis.statistics_table.files
        return np.array([ordinal(position_of(self._dump, files[row])) for row in rows.tolist()], np.int64)

    def _counts(self, rows: NDArray[np.int64]) -> Columns:
        """Return the counts of tensors; an unrecorded count is replaced by its lower bound if positive, else by NaN."""
        table = self._analysis.statistics_table
        recorded = table.rows["state"][rows] == RECORDED
        counts: Columns = {}
        for name in COUNTS:
            counts[name] = table.rows[name][rows].astype(np.float64)
            unknown = recorded & (counts[name] == NOT_RECORDED)
            if unknown.any():
                least = table.bounds(name)[0][rows]
                counts[name] = np.where(unknown, np.where(least > 0, least, np.nan), counts[name])
        return counts

    def unread(self) -> tuple[int, int]:
        """Return the number of tensors that have not been read, and their size in bytes."""
        missing = self._missing()
        return int(missing.sum()), int(self._sizes[missing].sum())

    def read_some(self) -> None:
        """Read unread tensors, the first steps first, for about a second."""
        until = time.monotonic() + READ_FOR_S
        rows = self._rows[self._missing()]
        amount = _FIRST_READ
        while rows.size and time.monotonic() < until:
            began = time.monotonic()
            self._analysis.statistics(rows[:amount])
            rows = rows[amount:]
            if time.monotonic() - began < READ_FOR_S / 10:
                amount *= 2

    def _missing(self) -> NDArray[np.bool_]:
        missing: NDArray[np.bool_] = self._analysis.statistics_table.rows["state"][self._rows] == UNKNOWN
        return missing

    def steps_with_values(self) -> list[int]:
        """Return the steps with dumped values."""
        steps: list[int] = np.unique(self._steps[self._has_value]).tolist()
        return steps

    def loss(self, graphs: dict[str, Graph]) -> tuple[str, dict[int, tuple[float | None, int]]] | None:
        """Read and return the loss: its address, and value and marks by step; None if there is none."""
        tensor = find_loss(self.tensors, graphs)
        if tensor is None:
            return None
        positions = np.flatnonzero(self._indices == self.tensors.index(tensor))
        # Sample the steps if there are very many.
        positions = positions[:: len(positions) // MOST_LOSSES + 1]
        rows = self._rows[positions]
        table = self._analysis.statistics(rows)
        is_known = np.isin(table.rows["state"][rows], (KNOWN, RECORDED))
        rows, steps = rows[is_known], self._steps[positions][is_known]
        marks, means = marks_of(self._counts(rows)), table.rows["mean"][rows]
        values = {
            int(step): (float(mean) if np.isfinite(mean) else None, int(mark) & (NAN | INFINITE))
            for step, mean, mark in zip(steps, means, marks, strict=True)
        }
        address = TensorAddress(self.rank, tensor.graph, tensor.node, tensor.slot, 0, tensor.io)
        return str(address).rpartition("@")[0], values
