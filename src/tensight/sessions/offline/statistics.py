"""Records from the statistics table of a dump: of a tensor, and sorted pages of a step."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.analysis.recorded_statistics import NOT_RECORDED
from tensight.analysis.statistics_table import KNOWN, RECORDED
from tensight.sessions.offline.index import address_of
from tensight.sessions.records import Statistics, StatisticsPage, StatisticsRow
from tensight.sessions.records.tensors import address_fields
from tensight.sessions.statistics_pages import ordered
from tensight.tensors import COUNTS, MEASURES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from tensight.analysis import StatisticsTable
    from tensight.dumps import Dump, TensorFile
    from tensight.graph import Node, TensorAddress
    from tensight.tensors import TensorStatistics

_TEXTS: dict[str, Callable[[StatisticsTable, int], str]] = {
    "node": lambda table, row: table.files[row].node or table.files[row].op_name,
    "graph": lambda table, row: table.files[row].graph,
    "type": lambda table, row: table.files[row].op_type,
    "io": lambda table, row: table.files[row].io,
    "dtype": lambda table, row: table.dtypes[row],
}


def position_of(dump: Dump, file: TensorFile) -> int | None:
    """Return the position of a tensor's node in its step, from 1; None for constants and tensors without a node."""
    node = node_of(dump, file)
    return None if node is None else dump.node_number(file.rank, node)


def node_of(dump: Dump, file: TensorFile) -> Node | None:
    """Return the node of a tensor; None if it belongs to no node."""
    graph = dump.graph_of(file)
    return None if graph is None or file.node is None else graph.get(file.node)


def statistics_record(table: StatisticsTable, row: int) -> Statistics | None:
    """Return the statistics of a tensor; None if unknown."""
    stored = table.rows[row]
    recorded = stored["state"] == RECORDED
    if not recorded and stored["state"] != KNOWN:
        return None
    counts = {name: int(stored[name]) for name in ("size_bytes", *COUNTS)}
    unknown = tuple(name for name in COUNTS if recorded and counts[name] == NOT_RECORDED)
    measures: dict[str, Any] = {
        name: value if math.isfinite(value) else None for name in MEASURES for value in (float(stored[name]),)
    }
    return Statistics(
        dtype=table.dtypes[row],
        shape=table.shapes[row],
        **{name: 0 if name in unknown else count for name, count in counts.items()},
        **measures,
        # The hash of a recorded tensor is of the recorded statistics, not of its values.
        content_hash="" if recorded else f"{int(stored['content_hash']):016x}",
        partial=bool(recorded),
        unknown=unknown,
    )


def computed_statistics(statistics: TensorStatistics) -> Statistics:
    """Return the record of statistics computed from values."""
    fields = {field.name: getattr(statistics, field.name) for field in dataclasses.fields(statistics)}
    return Statistics(**{**fields, "content_hash": f"{statistics.content_hash:016x}"})


def statistics_row(dump: Dump, table: StatisticsTable, row: int, address: TensorAddress) -> StatisticsRow | None:
    """Return a tensor with its statistics, under the requested address; None if they are unknown."""
    statistics = statistics_record(table, row)
    if statistics is None:
        return None
    file = table.files[row]
    # The row of a weight at step 0 may be that of an operator's input.
    graph = dump.graph_of(file)
    node = None if graph is None else graph.get(address.node)
    is_of_node = node is not None and (node.is_constant or node.name != file.node)
    return StatisticsRow(
        **address_fields(address),
        # Files call constants parameters.
        type=node.type if node is not None and is_of_node else file.op_type,
        position=None if node is None else dump.node_number(file.rank, node),
        statistics=statistics,
    )


def ordered_rows(dump: Dump, table: StatisticsTable, rows: NDArray[np.int64], **choice: Any) -> NDArray[np.int64]:
    """Return the rows of tensors with known statistics, filtered and sorted.

    Parameters
    ----------
    dump : Dump
    table : StatisticsTable
    rows : int64 array, shape (n,)
        Candidate rows.
    **choice
        Arguments of `statistics_pages.ordered`: query, sort, descending.
    """
    dumped_rows = _DumpedRows(dump, table, rows[np.isin(table.rows["state"][rows], (KNOWN, RECORDED))])
    return dumped_rows.rows[ordered(dumped_rows, **choice)]


def statistics_page(
    dump: Dump, table: StatisticsTable, ordered: NDArray[np.int64], offset: int, limit: int
) -> StatisticsPage:
    """Return a page of the tensors with the given rows, in that order."""
    page_rows = (
        statistics_row(dump, table, row, address_of(table.files[row]))
        for row in ordered[offset : offset + limit].tolist()
    )
    return StatisticsPage(total=len(ordered), offset=offset, rows=tuple(row for row in page_rows if row is not None))


class _DumpedRows:
    """Columns of the tensors of an iteration; implements `StepRows`.

    Attributes
    ----------
    rows : int64 array
        Rows of the table, in execution order.
    """

    def __init__(self, dump: Dump, table: StatisticsTable, rows: NDArray[np.int64]) -> None:
        self._dump = dump
        self._table = table
        files = [table.files[row] for row in rows.tolist()]
        ranks = np.fromiter((file.rank for file in files), np.int64, len(files))
        positions = np.fromiter(map(dump.execution_position, files), np.int64, len(files))
        is_output = np.fromiter((file.io == "output" for file in files), np.bool_, len(files))
        # Within a node, keep the order of the table.
        order = np.lexsort((rows, is_output, positions, ranks))
        self.rows = rows[order]
        self._positions, self._ranks = positions[order], ranks[order]

    def texts(self, name: str) -> Sequence[str]:
        """Return a column of texts."""
        return [_TEXTS[name](self._table, row) for row in self.rows.tolist()]

    def numbers(self, name: str) -> NDArray[np.float64]:
        """Return a column of numbers; NaN where unknown."""
        table, rows = self._table, self.rows
        if name == "rank":
            return self._ranks.astype(np.float64)
        if name == "slot":
            return np.fromiter((table.files[row].slot for row in rows.tolist()), np.float64, len(rows))
        if name == "position":
            return self._numbers_of_nodes()
        values = table.rows[name][rows].astype(np.float64)
        if name in COUNTS:
            values[(table.rows["state"][rows] == RECORDED) & (values == NOT_RECORDED)] = np.nan
        return values

    def _numbers_of_nodes(self) -> NDArray[np.float64]:
        numbers = np.full(len(self.rows), np.nan)
        for rank in np.unique(self._ranks).tolist():
            by_position = np.array(self._dump.node_numbers(rank), np.float64)
            has_number = (self._ranks == rank) & (self._positions >= 0) & (self._positions < len(by_position))
            numbers[has_number] = by_position[self._positions[has_number]]
        return numbers
