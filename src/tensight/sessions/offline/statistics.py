"""The statistics table of a dump as a session tells it: one tensor, a curve over steps, a sorted page of a step."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.analysis.recorded_statistics import NOT_RECORDED
from tensight.analysis.statistics_table import KNOWN, RECORDED
from tensight.sessions.offline.index import address_of
from tensight.sessions.records import Statistics, StatisticsPage, StatisticsRow
from tensight.sessions.statistics_pages import POSITION_COLUMNS, ordered
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
    """Return the position of a tensor's node in its step, from 1; None for constants and what has no node."""
    node = node_of(dump, file)
    return None if node is None else dump.node_number(file.rank, node)


def node_of(dump: Dump, file: TensorFile) -> Node | None:
    """Return the node of a tensor; None of what belongs to none."""
    graph = dump.graph_of(file)
    return None if graph is None or file.node is None else graph.get(file.node)


def statistics_record(table: StatisticsTable, row: int) -> Statistics | None:
    """Return what is known of a tensor; None if nothing is."""
    found = table.rows[row]
    recorded = found["state"] == RECORDED
    if not recorded and found["state"] != KNOWN:
        return None
    counts = {name: int(found[name]) for name in ("size_bytes", *COUNTS)}
    unknown = tuple(name for name in COUNTS if recorded and counts[name] == NOT_RECORDED)
    measures: dict[str, Any] = {
        name: value if math.isfinite(value) else None for name in MEASURES for value in (float(found[name]),)
    }
    return Statistics(
        dtype=table.dtypes[row],
        shape=table.shapes[row],
        **{name: 0 if name in unknown else count for name, count in counts.items()},
        **measures,
        # Of a recorded tensor the hash is one of what was recorded, not of its values.
        content_hash="" if recorded else f"{int(found['content_hash']):016x}",
        partial=bool(recorded),
        unknown=unknown,
    )


def computed_statistics(found: TensorStatistics) -> Statistics:
    """Return statistics that were computed of values."""
    fields = {field.name: getattr(found, field.name) for field in dataclasses.fields(found)}
    return Statistics(**{**fields, "content_hash": f"{found.content_hash:016x}"})


def statistics_row(dump: Dump, table: StatisticsTable, row: int, address: TensorAddress) -> StatisticsRow | None:
    """Return a tensor with its statistics under the address by which it was asked for; None if nothing is known."""
    statistics = statistics_record(table, row)
    if statistics is None:
        return None
    file = table.files[row]
    # A weight at step 0 is read from the input of an operator.
    graph = dump.graph_of(file)
    node = None if graph is None else graph.get(address.node)
    is_of_node = node is not None and (node.is_constant or node.name != file.node)
    return StatisticsRow(
        address=str(address),
        rank=address.rank,
        graph=address.graph,
        node=address.node,
        slot=address.slot,
        io=address.io,
        step=address.step,
        # Files call constants parameters.
        type=node.type if node is not None and is_of_node else file.op_type,
        position=None if node is None else dump.node_number(file.rank, node),
        statistics=statistics,
    )


def ordered_rows(dump: Dump, table: StatisticsTable, rows: NDArray[np.int64], **choice: Any) -> NDArray[np.int64]:
    """Return the rows of tensors of which statistics are known, in an order.

    Parameters
    ----------
    dump : Dump
    table : StatisticsTable
    rows : int64 array, shape (n,)
        The tensors to choose from.
    **choice
        What `statistics_pages.ordered` takes: query, sort, descending.
    """
    known = _DumpedRows(dump, table, rows[np.isin(table.rows["state"][rows], (KNOWN, RECORDED))])
    return known.rows[ordered(known, **choice)]


def statistics_page(
    dump: Dump, table: StatisticsTable, ordered: NDArray[np.int64], offset: int, limit: int
) -> StatisticsPage:
    """Return some of the tensors whose rows are given, in that order."""
    found = (
        statistics_row(dump, table, row, address_of(table.files[row]))
        for row in ordered[offset : offset + limit].tolist()
    )
    return StatisticsPage(total=len(ordered), offset=offset, rows=tuple(row for row in found if row is not None))


class _DumpedRows:
    """Columns of the tensors of an iteration: `StepRows`.

    Attributes
    ----------
    rows : int64 array
        Of the table, as they ran.
    """

    def __init__(self, dump: Dump, table: StatisticsTable, rows: NDArray[np.int64]) -> None:
        self._dump = dump
        self._table = table
        files = [table.files[row] for row in rows.tolist()]
        ranks = np.fromiter((file.rank for file in files), np.int64, len(files))
        positions = np.fromiter(map(dump.execution_position, files), np.int64, len(files))
        is_output = np.fromiter((file.io == "output" for file in files), np.bool_, len(files))
        # Within a node as in the table.
        self.rows = rows[np.lexsort((rows, is_output, positions, ranks))]

    def texts(self, name: str) -> Sequence[str]:
        """Return a column of texts."""
        return [_TEXTS[name](self._table, row) for row in self.rows.tolist()]

    def numbers(self, name: str) -> NDArray[np.float64]:
        """Return a column of numbers; NaN where there is none."""
        table, rows = self._table, self.rows
        if name in POSITION_COLUMNS:
            positions = (self._position(name, table.files[row]) for row in rows.tolist())
            return np.fromiter(
                (math.nan if position is None else position for position in positions), np.float64, len(rows)
            )
        values = table.rows[name][rows].astype(np.float64)
        if name in COUNTS:
            values[(table.rows["state"][rows] == RECORDED) & (values == NOT_RECORDED)] = np.nan
        return values

    def _position(self, name: str, file: TensorFile) -> int | None:
        if name == "position":
            return position_of(self._dump, file)
        return file.rank if name == "rank" else file.slot
