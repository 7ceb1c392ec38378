"""An opened dump, and queries on its tensors. Everything here may take long."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.analysis import Analysis, origins
from tensight.errors import InputError
from tensight.graph.steps import iteration_of, step_of
from tensight.sessions.curves import curves
from tensight.sessions.errors import NotFoundError, UnavailableError
from tensight.sessions.graph_steps import GraphSteps
from tensight.sessions.loss import with_reported_loss
from tensight.sessions.offline.index import TensorIndex
from tensight.sessions.offline.overview import DumpSource
from tensight.sessions.offline.replay import Replay
from tensight.sessions.offline.statistics import ordered_rows, statistics_page, statistics_row
from tensight.sessions.offline.tensors import tensor_records
from tensight.sessions.origin_records import effects_of, origin_records, with_line
from tensight.sessions.overview import overview
from tensight.sessions.records import Execution, ExecutionPage
from tensight.sessions.statistics_pages import MOST_ORDERS, require_page
from tensight.sessions.timeline import KnownSteps, timeline

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from tensight.analysis import Progress, StatisticsTable
    from tensight.dumps import Device, Dump
    from tensight.graph import Graph, TensorAddress
    from tensight.sessions.hit_list import SessionHit
    from tensight.sessions.offline.tensors import Abbreviations
    from tensight.sessions.offline.value_memory import ValueMemory
    from tensight.sessions.overview import OverviewChoice
    from tensight.sessions.records import (
        Curves,
        OriginRecord,
        Overview,
        StatisticsPage,
        StatisticsRow,
        TensorRecord,
        Timeline,
    )


class OpenedDump:
    """A dump whose graphs are parsed and whose tensors are listed.

    Only a single thread at a time may call methods that read tensors.

    Parameters
    ----------
    dump : Dump
    report : callable
        Called with a description of the work, the amount done, and the total.
    progress : callable
        Called, from any thread, with the bytes read and the total while tensors are read; it may raise to stop reading.
    first_of : callable
        Returns the function `OverviewSource.first_of` of a rank.
    cache_dir : path, optional
        Cache for statistics; by default that of the command line.

    Attributes
    ----------
    dump : Dump
    analysis : Analysis
    index : TensorIndex
    graphs : dict of int to tuple of Graph
        Graphs by rank.
    devices : dict of int to Device
        Devices by rank.
    steps : tuple of int
        Dumped steps, in order; from 1.
    steps_of : dict of int to frozenset of int
        Dumped steps by rank.
    has_history : bool
        Whether it records in which iterations graphs ran.
    replay : Replay
    problems : tuple of Problem
        Problems with parts that could not be used.
    """

    def __init__(
        self,
        dump: Dump,
        *,
        report: Callable[[str, int, int], None],
        progress: Progress,
        first_of: Callable[[int], Callable[[str, str], str]],
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        self.dump = dump
        self._first_of = first_of
        self.graphs: dict[int, tuple[Graph, ...]] = {}
        self.has_history = False
        total = len(dump.ranks)
        for done, rank in enumerate(dump.ranks):
            report("reading graphs", done, total)
            self.graphs[rank] = dump.graphs(rank)
            # Read now, because it is needed in the event loop later.
            dump.execution_order(rank)
            self.has_history |= dump.history(rank) is not None
        self.devices: dict[int, Device] = {device.rank: device for device in dump.devices()}
        self.steps = tuple(step_of(iteration) for iteration in dump.iterations())
        self.steps_of = {
            rank: frozenset(step_of(iteration) for iteration in dump.iterations(rank)) for rank in dump.ranks
        }
        report("listing tensors", 0, 1)
        self.analysis = Analysis(dump, progress=progress, cache_dir=cache_dir)
        self.index = TensorIndex(dump, self.table)
        self.replay = Replay(dump)
        self.problems = (*dump.problems, *self.analysis.unusable_records())
        self._executions: dict[int, Sequence[Execution]] = {}
        self._graph_steps: dict[int, GraphSteps] = {}
        self._sources: dict[int, DumpSource] = {}
        self._orders: dict[tuple[object, ...], NDArray[np.int64]] = {}

    @property
    def table(self) -> StatisticsTable:
        """The statistics of all tensors, as far as known."""
        return self.analysis.statistics_table

    def position(self, rank: int, graph: str, node: str) -> int | None:
        """Return the position of a node in its step, from 1; None for constants and unknown nodes."""
        graph_node = self.index.node(rank, graph, node)
        return None if graph_node is None else self.dump.node_number(rank, graph_node)

    def hints(self, step: int, most_drawn_nodes: int) -> list[str]:
        """Return hints for users why nothing of a step, or less of the dump than expected, is shown."""
        hints = []
        if not self.steps:
            hints.append("the dump has no steps")
        elif step == 0:
            hints.append("before the first update; continue to check step by step, or go to a step to look at it")
        elif step not in self.steps:
            hints.append("nothing was recorded of this step")
        large = {graph.name: len(graph) for graphs in self.graphs.values() for graph in graphs}
        hints += [
            f"{name} has {nodes:,} nodes, more than the {most_drawn_nodes:,} that are drawn; it can be listed and "
            "searched, or start the server with a larger --max-graph-node-size"
            for name, nodes in large.items()
            if nodes > most_drawn_nodes
        ]
        if self.problems:
            more = f" ({len(self.problems) - 1:,} more)" if len(self.problems) > 1 else ""
            hints.append(f"not all of the dump can be used: {self.problems[0]}{more}")
        return hints

    def tensors(self, at: TensorAddress, abbreviations: Abbreviations) -> tuple[TensorRecord, ...]:
        """Return the inputs and outputs of a node; see `tensor_records`."""
        return tensor_records(self.analysis, self.index, at, abbreviations)

    def value(self, address: TensorAddress, memory: ValueMemory, owner: Hashable) -> NDArray[Any]:
        """Return the values of a tensor, read-only; needs no statistics, so it may be called in any thread.

        Raises
        ------
        NotFoundError
            There is no such node, or it has no such input or output.
        UnavailableError
            It was not dumped in this iteration, or only its statistics were.
        """
        row = self.index.row(address)
        if row is None:
            self._require_slot(address)
            node = self.index.node(address.rank, address.graph, address.node)
            if node is not None and self.index.is_unwritten(address):
                raise UnavailableError(
                    f"{address} was never written: operators {node.type} leave this output uninitialized"
                )
            raise UnavailableError(f"{address} was not recorded in step {address.step}")
        file = self.table.files[row]
        if file.recorded is not None:
            raise UnavailableError(f"{address} has no values: only statistics were recorded", code="statistics-only")
        return memory.read(owner, file)

    def _require_slot(self, address: TensorAddress) -> None:
        """Raise NotFoundError if an address has a graph, but no such node, or the node has no such slot."""
        node = self.index.node(address.rank, address.graph, address.node)
        if node is None and address.graph:
            raise NotFoundError(
                f"there is no node {address.node[:200]!r} in graph {address.graph[:200]!r}", code="node-unknown"
            )
        if node is not None and not self.index.has_slot(address):
            raise NotFoundError(
                f"{node.name} has no {address.io} {address.slot}; look at its record to see which it has"
            )

    def over_steps(self, address: TensorAddress, graphs: Sequence[str]) -> tuple[StatisticsRow, ...]:
        """Return the statistics of a tensor in all steps that have it; reads only its files.

        The node is the same in all the graphs; for a step that several have, the first counts.
        """
        by_iteration: dict[int, tuple[TensorAddress, int]] = {}
        for graph in graphs:
            for occurrence in self.index.occurrences(replace(address, graph=graph)):
                by_iteration.setdefault(occurrence[0].iteration, occurrence)
        occurrences = [by_iteration[iteration] for iteration in sorted(by_iteration)]
        if not occurrences:
            self._require_slot(address)
        self.analysis.statistics(np.fromiter((row for _, row in occurrences), np.int64, len(occurrences)))
        rows = (statistics_row(self.dump, self.table, row, occurrence) for occurrence, row in occurrences)
        return tuple(row for row in rows if row is not None)

    def statistics(
        self, ranks: Sequence[int], iteration: int, *, sort: str, offset: int, limit: int, **choice: Any
    ) -> StatisticsPage:
        """Return a page of the statistics of all tensors of an iteration; reads tensors without statistics.

        `choice` are the further arguments of `statistics_pages.ordered`.

        Raises
        ------
        InputError
            There is no such column, or `offset` or `limit` is negative.
        """
        require_page(sort, offset, limit)
        key = (tuple(ranks), iteration, sort, *sorted(choice.items()))
        ordered = self._orders.get(key)
        if ordered is None:
            rows = np.concatenate([self._rows_at(rank, iteration) for rank in ranks])
            self.analysis.statistics(rows)
            ordered = self._orders[key] = ordered_rows(self.dump, self.table, rows, sort=sort, **choice)
            while len(self._orders) > MOST_ORDERS:
                del self._orders[next(iter(self._orders))]
        return statistics_page(self.dump, self.table, ordered, offset, limit)

    def _rows_at(self, rank: int, iteration: int) -> NDArray[np.int64]:
        """Return the rows of an iteration; of a weight that was dumped with several graphs, only the first."""
        rows = self.index.rows_at(rank, iteration)
        if len(self.graphs[rank]) == 1:
            return rows
        first_of, files, order = self._first_of(rank), self.table.files, [graph.name for graph in self.graphs[rank]]
        chosen: dict[tuple[object, ...], int] = {}
        for row in rows.tolist():
            file = files[row]
            if file.node is None:
                chosen[row,] = row
                continue
            key = (first_of(file.graph, file.node), file.node, file.io, file.slot)
            other = chosen.setdefault(key, row)
            if order.index(file.graph) < order.index(files[other].graph):
                chosen[key] = row
        return np.array(sorted(chosen.values()), np.int64)

    def overview(
        self, rank: int, hits: Mapping[int, Sequence[SessionHit]], choice: OverviewChoice, *, read: bool
    ) -> Overview:
        """Return the overview of a rank, from known statistics; `read`: first read missing ones for a second."""
        source = self._source(rank)
        if read:
            source.read_some()
        unread, unread_bytes = source.unread()
        return overview(source, hits, choice, unread=unread, unread_bytes=unread_bytes)

    def timeline(
        self,
        rank: int,
        hits: Mapping[int, Sequence[SessionHit]],
        present: int,
        columns: int,
        unchecked: Collection[int],
        reported: Mapping[tuple[str, int], Sequence[tuple[int, float]]],
    ) -> Timeline:
        """Return the timeline of a rank; reads its loss. `reported` are the reported scalars; see `curves`."""
        source = self._source(rank)
        ran = {execution.step: execution.graph for execution in reversed(self._executed(rank))}
        known_steps = KnownSteps(
            rank=rank,
            last=max(self.steps, default=0),
            present=present,
            statistics=source.steps.tolist(),
            values=source.steps_with_values(),
            hits=hits,
            unchecked=unchecked,
            graphs_at=lambda steps: [ran.get(step, "") for step in steps],
            loss=with_reported_loss(source.loss({graph.name: graph for graph in self.graphs[rank]}), reported),
        )
        return timeline(known_steps, columns)

    def curves(self, rank: int, reported: Mapping[tuple[str, int], Sequence[tuple[int, float]]], points: int) -> Curves:
        """Return the curves of a rank: the reported scalars and, if they include no loss, the loss tensor (read)."""
        loss = None
        if ("loss", 0) not in reported:
            loss = self._source(rank).loss({graph.name: graph for graph in self.graphs[rank]})
        return curves(rank, max(self.steps, default=0), reported, loss, points)

    def _source(self, rank: int) -> DumpSource:
        if rank not in self._sources:
            self._sources[rank] = DumpSource(self.dump, self.analysis, self.index, rank, self._first_of(rank))
        return self._sources[rank]

    def executions(self, rank: int, offset: int, limit: int) -> ExecutionPage:
        """Return the graphs of a rank that ran in each step, from its history and its dumped tensors.

        Raises
        ------
        InputError
            `offset` or `limit` is negative.
        """
        if offset < 0 or limit < 0:
            raise InputError(f"offset {offset} and limit {limit} must not be negative")
        executed = self._executed(rank)
        return ExecutionPage(total=len(executed), offset=offset, executions=tuple(executed[offset : offset + limit]))

    def _executed(self, rank: int) -> Sequence[Execution]:
        if rank not in self._executions:
            self._executions[rank] = self._executions_of(rank)
        return self._executions[rank]

    def _executions_of(self, rank: int) -> Sequence[Execution]:
        history = self.dump.history(rank) or {}
        ran: list[tuple[int, int, bool]] = []
        for root in sorted({*history, *self.dump.graph_ids(rank)}):
            dumped = set(self.dump.iterations(rank, root))
            ran += [(iteration, root, iteration in dumped) for iteration in {*dumped, *history.get(root, ())}]
        names = {root: self._names_below(rank, root) for root in {root for _, root, _ in ran}}
        return [
            Execution(step=step_of(iteration), graph=names[root][0], graphs=names[root], has_data=has_data)
            for iteration, root, has_data in sorted(ran)
        ]

    def graph_steps(self, rank: int) -> GraphSteps:
        """Return the graphs of a rank that ran in each step."""
        if rank not in self._graph_steps:
            ran: dict[int, set[str]] = {}
            for execution in self._executed(rank):
                ran.setdefault(iteration_of(execution.step), set()).update(execution.graphs)
            stretches = ((iteration, iteration + 1, frozenset(ran[iteration])) for iteration in sorted(ran))
            self._graph_steps[rank] = GraphSteps(stretches)
        return self._graph_steps[rank]

    def are_parts(self, rank: int, graph: Graph, other: Graph) -> bool:
        """Return whether two graphs of a rank may run in the same step: they do, or one of them is not known to run."""
        steps = self.graph_steps(rank)
        return graph.root_id == other.root_id or not steps.are_apart(graph.name, other.name)

    def _names_below(self, rank: int, root: int) -> tuple[str, ...]:
        """Return the name of a root graph, then those of its sub-graphs; its number if it has no graph file."""
        graphs = [graph for graph in self.graphs[rank] if root in (graph.root_id, graph.graph_id)]
        graphs.sort(key=lambda graph: graph.graph_id != root)
        return tuple(graph.name for graph in graphs) or (f"graph {root}",)

    def origins(self, texts: Mapping[str, str], hits: Iterable[SessionHit]) -> tuple[OriginRecord, ...]:
        """Return the origins of anomalies in the whole dump; reads every tensor without statistics."""
        dump_origins = origins(self.analysis, hits=effects_of(hits))
        return origin_records(
            (with_line(origin, partial(self.index.used, origin.address.rank)) for origin in dump_origins), texts
        )
