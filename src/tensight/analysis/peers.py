"""Columns for checks that involve other tensors of a dump: from earlier iterations, of peers, or on other ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.analysis.statistics_table import KNOWN, STATISTICS, UNREADABLE
from tensight.graph.layers import graph_layers, nodes_of
from tensight.graph.spreading import NonFinite, Spreading
from tensight.tensors import unit_size
from tensight.watchpoints.references import References

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from numpy.typing import NDArray

    from tensight.analysis.statistics_table import StatisticsTable
    from tensight.dumps import Dump, TensorFile
    from tensight.graph import Graph
    from tensight.watchpoints import ConditionCheck, Needs, UnitRule, Watchpoint
    from tensight.watchpoints.columns import ColumnKey

Columns = dict["ColumnKey", "NDArray[Any]"]


def iterations_before(
    watchpoint: Watchpoint, every: Sequence[int], iterations: Collection[int] | None
) -> frozenset[int]:
    """Return the iterations that a watchpoint needs besides the requested ones.

    Parameters
    ----------
    watchpoint : Watchpoint
    every : sequence of int
        The dumped iterations, in increasing order.
    iterations : collection of int or None
        The requested iterations; None for all.
    """
    if iterations is None or not iterations:
        return frozenset()
    steps = watchpoint.persistence - 1
    if watchpoint.check.needs.references:
        steps = len(every)
    positions = [position for position, iteration in enumerate(every) if iteration in iterations]
    before = {every[at] for position in positions for at in range(max(position - steps, 0), position)}
    return frozenset(before.difference(iterations))


def persistent(steps: int, files: Sequence[TensorFile], hit: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return for which tensors a condition was met in several of their iterations in a row.

    Parameters
    ----------
    steps : int
        Number of iterations in a row.
    files : sequence of TensorFile
    hit : ndarray of bool, shape (files,)
        Whether the condition is met.
    """
    if steps == 1:
        return np.ones(len(files), np.bool_)
    persisting = np.zeros(len(files), np.bool_)
    held: dict[object, int] = {}
    for row in sorted(range(len(files)), key=lambda row: files[row].iteration):
        key = _identity(files[row])
        held[key] = held.get(key, 0) + 1 if hit[row] else 0
        persisting[row] = held[key] >= steps
    return persisting


def rows_to_count(
    table: StatisticsTable, chosen: NDArray[np.int64], check: ConditionCheck, rule: UnitRule
) -> NDArray[np.int64]:
    """Return the rows whose units must be counted, because their statistics do not decide the check."""
    states = table.rows["state"][chosen]
    open_rows = np.isnan(table.unit_percentages(rule)[chosen]) & (states != UNREADABLE)
    open_rows &= chosen < table.with_values
    measured = np.flatnonzero(open_rows & (states == KNOWN))
    if measured.size:
        columns: Columns = {name: table.rows[name][chosen[measured]] for name in STATISTICS}
        with np.errstate(all="ignore"):
            for threshold in check.thresholds:
                low, high = threshold.quantity.bounds(columns, check.values)
                open_rows[measured] &= threshold.comparator.compare(high, threshold.value) & (low < high)
    counted: NDArray[np.int64] = chosen[open_rows]
    return counted


def own_columns(dump: Dump, table: StatisticsTable, needs: Needs, rows: NDArray[np.int64]) -> Columns:
    """Return the columns that Tensight's own conditions need in addition to statistics and changes."""
    columns: Columns = {}
    if needs.units:
        columns["unit_size"] = np.array([unit_size(table.shapes[row]) for row in rows.tolist()], np.int64)
        for rule in needs.units:
            columns[rule] = table.unit_percentages(rule)[rows]
    if needs.masks:
        columns["masked"] = np.fromiter((_may_mask(dump, table.files[row]) for row in rows.tolist()), np.bool_)
        columns["left_out"] = _left_out(dump, table, rows)
    if needs.zero_provenance:
        columns["propagated"] = _zero_propagation(dump, table, rows)
    if needs.ranks:
        columns["differs"] = _differing(table, rows)
    for name in needs.references:
        columns["reference", name] = _references(dump, table, name, rows)
    return columns


def _identity(file: TensorFile) -> tuple[object, ...]:
    """Return the identity of a tensor across iterations."""
    return file.rank, file.graph, file.node or file.op_name, file.io, file.slot


def _may_mask(dump: Dump, file: TensorFile) -> bool:
    graph = dump.graph_of(file)
    return graph is not None and file.node in graph_layers(graph).may_mask


def _left_out(dump: Dump, table: StatisticsTable, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which tensors are not finite without an effect on the other tensors of the same step."""
    is_left_out = np.zeros(len(rows), np.bool_)
    counts = {name: table.rows[name][rows] for name in ("count", "nan_count", "neg_inf_count", "pos_inf_count")}
    infinite = counts["neg_inf_count"] + counts["pos_inf_count"]
    has_statistics = table.rows["state"][rows] == KNOWN
    steps: dict[tuple[object, ...], list[int]] = {}
    for at in np.flatnonzero(has_statistics & (counts["nan_count"] + infinite > 0)).tolist():
        file = table.files[rows[at]]
        if file.node is not None and file.io == "output":
            steps.setdefault((file.iteration, file.rank, file.graph), []).append(at)
    for every in steps.values():
        graph = dump.graph_of(table.files[rows[every[0]]])
        if graph is None:
            continue
        spreading = graph.once(_spreading)
        nodes = [table.files[rows[at]].node or "" for at in every]
        kinds: dict[str, NonFinite] = {}
        for at, node in zip(every, nodes, strict=True):
            kind = NonFinite.NAN if counts["nan_count"][at] else NonFinite.NOTHING
            kinds[node] = kinds.get(node, NonFinite.NOTHING) | kind | (NonFinite.INF if infinite[at] else kind)
        passing = {node for node in nodes if spreading.is_passing(node)}
        spreads = spreading.spreading(passing, kinds)
        for at, node in zip(every, nodes, strict=True):
            # A buffer that is never read counts only if all its elements are infinite, as in an initial value.
            is_first_value = infinite[at] == counts["count"][at] or spreading.is_read(node)
            is_left_out[at] = node in passing and node not in spreads and is_first_value
    return is_left_out


def _spreading(graph: Graph) -> Spreading:
    return Spreading(nodes_of(graph))


def _zero_propagation(dump: Dump, table: StatisticsTable, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which tensors are zero because they propagate the zeros of tensors that they were computed from."""
    counts, zeros = table.rows["count"][rows], table.rows["zero_count"][rows]
    is_zero = (table.rows["state"][rows] == KNOWN) & (counts > 0) & (counts == zeros)
    files = [table.files[row] for row in rows.tolist()]
    zero = {(file.iteration, *_identity(file)): flag for file, flag in zip(files, is_zero.tolist(), strict=True)}
    propagated = np.zeros(len(rows), np.bool_)
    for at in np.flatnonzero(is_zero).tolist():
        file = files[at]
        graph = dump.graph_of(file)
        if graph is None or file.io != "output":
            continue
        provenance = graph_layers(graph).zero_provenances.get(file.node or "")
        if provenance is not None:
            keys = ((file.iteration, file.rank, file.graph, name, "output", slot) for name, slot in provenance.sources)
            propagated[at] = bool(provenance.propagates(zero.get(key) for key in keys))
    return propagated


def _differing(table: StatisticsTable, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return which tensors differ between ranks in the same iteration."""
    hashes: dict[tuple[object, ...], set[int]] = {}
    keys = []
    for row in rows.tolist():
        file = table.files[row]
        keys.append((file.iteration, *_identity(file)[1:]))
        if table.rows["state"][row] == KNOWN:
            hashes.setdefault(keys[-1], set()).add(int(table.rows["content_hash"][row]))
    return np.array([len(hashes.get(key, ())) > 1 for key in keys], np.int64)


def _references(dump: Dump, table: StatisticsTable, name: str, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the references for the norms of some tensors, from a separate history for each rank."""
    references = np.full(len(rows), np.nan)
    numbers: dict[tuple[object, ...], int] = {}
    positions = np.array(
        [numbers.setdefault(_identity(table.files[row]), len(numbers)) for row in rows.tolist()], np.int64
    )
    depths = np.array([_depth(dump, table.files[row]) for row in rows.tolist()], np.float64)
    has_statistics = table.rows["state"][rows] == KNOWN
    finite = has_statistics & (table.bounds("non_finite_count")[1][rows] == 0)
    histories: dict[int, References] = {}
    with np.errstate(all="ignore"):
        for rank, chosen in _steps(table, rows):
            history = histories.setdefault(rank, References(name))
            chosen = chosen[has_statistics[chosen]]
            norms, counts = (table.rows[column][rows[chosen]] for column in ("l2_norm", "count"))
            references[chosen] = history.step(positions[chosen], norms, counts, finite[chosen], depths[chosen])
    return references


def _steps(table: StatisticsTable, rows: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield the rank and the positions in `rows` for each iteration and rank, in order."""
    steps: dict[tuple[int, int], list[int]] = {}
    for at, row in enumerate(rows.tolist()):
        file = table.files[row]
        steps.setdefault((file.iteration, file.rank), []).append(at)
    for (_, rank), chosen in sorted(steps.items()):
        yield rank, np.array(chosen, np.int64)


def _depth(dump: Dump, file: TensorFile) -> float:
    graph = dump.graph_of(file)
    return (
        float("nan") if graph is None or file.node is None else graph_layers(graph).depths.get(file.node, float("nan"))
    )
