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
from tensight.sessions.statistics_pages import DERIVED, natural
from tensight.tensors import COUNTS, MEASURES

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tensight.analysis import StatisticsTable
    from tensight.dumps import Dump, TensorFile
    from tensight.graph import Node, TensorAddress
    from tensight.tensors import TensorStatistics

_TEXT_COLUMNS: dict[str, Callable[[StatisticsTable, int], str]] = {
    "node": lambda table, row: natural(table.files[row].node or table.files[row].op_name),
    "graph": lambda table, row: table.files[row].graph,
    "type": lambda table, row: table.files[row].op_type,
    "io": lambda table, row: table.files[row].io,
    "dtype": lambda table, row: table.dtypes[row],
}


def position_of(dump: Dump, file: TensorFile) -> int | None:
    """Return the place of a tensor's node in its step, from 1; None for constants and what has no node."""
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
    node = node_of(dump, file)
    return StatisticsRow(
        address=str(address),
        rank=address.rank,
        graph=address.graph,
        node=address.node,
        slot=address.slot,
        io=address.io,
        step=address.step,
        # Files call constants parameters.
        type=node.type if node is not None and node.is_constant else file.op_type,
        position=None if node is None else dump.node_number(file.rank, node),
        statistics=statistics,
    )


def ordered_rows(
    dump: Dump,
    table: StatisticsTable,
    rows: NDArray[np.int64],
    *,
    query: str = "",
    sort: str = "position",
    descending: bool = False,
) -> NDArray[np.int64]:
    """Return the rows of tensors of which statistics are known, sorted.

    Parameters
    ----------
    dump : Dump
    table : StatisticsTable
    rows : int64 array, shape (n,)
        The tensors to choose from.
    query : str
        Words, parts of the node's name or the operator's type in any case; all must be there.
    sort : str
        One of `statistics_pages.SORT_COLUMNS`. Tensors that have no such number come last either way.
    descending : bool
    """
    known = rows[np.isin(table.rows["state"][rows], (KNOWN, RECORDED))]
    words = query.lower().split()
    if words:
        known = known[[_matches(table.files[row], words) for row in known.tolist()]]
    return _sorted(dump, table, known, sort, descending=descending)


def statistics_page(
    dump: Dump, table: StatisticsTable, ordered: NDArray[np.int64], offset: int, limit: int
) -> StatisticsPage:
    """Return some of the tensors whose rows are given, in that order."""
    found = (
        statistics_row(dump, table, row, address_of(table.files[row]))
        for row in ordered[offset : offset + limit].tolist()
    )
    return StatisticsPage(total=len(ordered), offset=offset, rows=tuple(row for row in found if row is not None))


def _matches(file: TensorFile, words: list[str]) -> bool:
    text = f"{file.node or file.op_name} {file.op_type}".lower()
    return all(word in text for word in words)


def _sorted(
    dump: Dump, table: StatisticsTable, rows: NDArray[np.int64], sort: str, *, descending: bool
) -> NDArray[np.int64]:
    files = [table.files[row] for row in rows.tolist()]
    positions = np.fromiter(map(dump.execution_position, files), np.int64, len(files))
    # Within equal keys as they ran, rank by rank; inputs before outputs as in the table.
    inputs_first = np.fromiter((file.io == "output" for file in files), np.int64, len(files))
    ties = np.lexsort((rows, inputs_first, positions, np.fromiter((file.rank for file in files), np.int64, len(files))))
    rows = rows[ties]
    keys = _positions(dump, table, rows) if sort == "position" else _keys(table, rows, sort)
    missing = np.isnan(keys) if keys.dtype.kind == "f" else np.zeros(len(keys), np.bool_)
    there, absent = rows[~missing], rows[missing]
    keys = keys[~missing]
    order = np.argsort(keys, kind="stable")
    if descending and sort == "position":
        order = order[::-1]
    elif descending:
        # Reversed twice, so that equal ones stay in the order of execution.
        order = len(keys) - 1 - np.argsort(keys[::-1], kind="stable")[::-1]
    return np.concatenate([there[order], absent])


def _positions(dump: Dump, table: StatisticsTable, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the places of tensors in their step; NaN where there is none."""
    places = (position_of(dump, table.files[row]) for row in rows.tolist())
    return np.fromiter((math.nan if place is None else place for place in places), np.float64, len(rows))


def _keys(table: StatisticsTable, rows: NDArray[np.int64], sort: str) -> NDArray[Any]:
    if sort in _TEXT_COLUMNS:
        return np.array([_TEXT_COLUMNS[sort](table, row) for row in rows.tolist()], np.str_)
    if sort in ("rank", "slot"):
        return np.fromiter((getattr(table.files[row], sort) for row in rows.tolist()), np.int64, len(rows))
    if sort in DERIVED:
        return _derived(table, rows, sort)
    values = table.rows[sort][rows].astype(np.float64)
    if sort in COUNTS:
        values[(table.rows["state"][rows] == RECORDED) & (values == NOT_RECORDED)] = np.nan
    return values


def _derived(table: StatisticsTable, rows: NDArray[np.int64], sort: str) -> NDArray[np.float64]:
    """Return what follows from several columns; NaN where one of them is not known."""
    if sort == "abs_max":
        largest: NDArray[np.float64] = np.maximum(np.abs(_keys(table, rows, "min")), np.abs(_keys(table, rows, "max")))
        return largest
    if sort == "zero_percent":
        with np.errstate(all="ignore"):
            share: NDArray[np.float64] = 100 * _keys(table, rows, "zero_count") / _keys(table, rows, "count")
        return share
    counts = (_keys(table, rows, name) for name in ("nan_count", "neg_inf_count", "pos_inf_count"))
    return sum(counts, np.zeros(len(rows)))
