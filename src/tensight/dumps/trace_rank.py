"""Read the trace of one rank as a dump without values: graphs, steps, a row of exact statistics for each tensor."""

from __future__ import annotations

from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.dumps.execution import UNMATCHED, ExecutionOrder
from tensight.dumps.metadata import Device, DumpMetadata
from tensight.dumps.reader import RankReader
from tensight.dumps.tensor_file import CONSTANTS, TensorFile
from tensight.dumps.trace_files import TRACE_ROW, TracedRow, read_rows, read_trace
from tensight.errors import DumpError, Problem
from tensight.graph import Graph, parse_graph_proto

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from tensight.dumps.storage import Storage
    from tensight.dumps.trace_files import Trace, TracedStep
    from tensight.graph import Node


_WHOLE = MappingProxyType({"common_dump_settings": {"dump_mode": 0}})
"""A trace contains everything that ran."""


class TraceRank(RankReader):
    """The trace of one rank.

    Parameters
    ----------
    storage : Storage
    rank : int
    path : str
        Path of the file, relative to the storage's root.

    Raises
    ------
    DumpError
        It is not a trace.
    """

    def __init__(self, storage: Storage, rank: int, path: str) -> None:
        super().__init__(storage, rank)
        self._path = path
        with storage.open(path) as file:
            self._size_bytes = file.size_bytes
            self._trace: Trace = read_trace(file, storage.full_path(path))
        self._problems.extend(self._trace.problems)
        self._files: dict[int, list[TensorFile]] = {}
        if self._trace.header.rank != rank:
            what = f"was written by rank {self._trace.header.rank}"
            self._problems.append(Problem(path, what, f"it is read as rank {rank}, as in its name"))

    @property
    def trace(self) -> Trace:
        """The file as it was read."""
        return self._trace

    def rows(self, iteration: int) -> NDArray[np.void]:
        """Return the rows of an iteration, in the order of execution; none if it was not traced.

        Raises
        ------
        DumpError
            The file has changed.
        """
        step = self._trace.steps.get(iteration)
        if step is None:
            return np.zeros(0, TRACE_ROW)
        with self._storage.open(self._path) as file:
            return read_rows(file, self._trace, step)

    # --- metadata ---

    @property
    def metadata(self) -> DumpMetadata:
        """How the trace was made."""
        header = self._trace.header
        return DumpMetadata(
            framework=header.framework,
            by_agent=True,
            framework_version=header.framework_version,
            device_target=header.device_target,
            saved_data="statistic",
            config=_WHOLE,
            traces=header.capture,
        )

    @property
    def device(self) -> Device:
        """Where the rank ran."""
        return Device(self._rank, device_id=self._trace.header.device)

    @property
    def setup(self) -> dict[str, Any] | None:
        """The set-up of the training; None if not recorded."""
        return self._trace.setup or None

    # --- what ran ---

    @cached_property
    def graphs(self) -> tuple[Graph, ...]:
        """The graphs that could be parsed, sorted by id."""
        by_name: dict[str, Graph] = {}
        where = self._storage.full_path(self._path)
        for number in sorted(self._trace.graphs):
            message, _ = self._trace.graphs[number]
            try:
                graph = parse_graph_proto(message, where=f"{where}, graph {number}")
            except DumpError as error:
                self._problems.append(Problem(where, str(error), "tensors of this graph stay unmatched"))
                continue
            self._problems.extend(graph.problems)
            if graph.root_id == number and by_name.setdefault(graph.name, graph) is not graph:
                self._problems.append(Problem(where, f"has two graphs called {graph.name!r}", "the first is used"))
        return tuple(sorted(by_name.values(), key=lambda graph: (graph.graph_id, graph.name)))

    @cached_property
    def iterations(self) -> Mapping[int, tuple[int, ...]]:
        """The iterations of each root graph, in increasing order, without the values before the first."""
        by_graph: dict[int, list[int]] = {}
        for step in self._trace.steps.values():
            if step.iteration != CONSTANTS:
                by_graph.setdefault(step.graph, []).append(step.iteration)
        return {graph: tuple(by_graph[graph]) for graph in sorted(by_graph)}

    @property
    def history(self) -> Mapping[int, tuple[int, ...]] | None:
        """The iterations in which each root graph ran: the traced ones."""
        return self.iterations or None

    @cached_property
    def order(self) -> ExecutionOrder:
        """The order in which operators ran."""
        first = {graph: iterations[0] for graph, iterations in self.iterations.items()}
        last = len(self._trace.steps)
        graphs = sorted(self.graphs, key=lambda graph: (first.get(graph.root_id, last), graph.graph_id))
        orders = {graph.graph_id: self._trace.graphs[graph.root_id][1] for graph in graphs}
        return ExecutionOrder(graphs, orders, self.iterations)

    # --- its tensors ---

    def tensors_of(self, graph_id: int, iteration: int) -> Iterable[TensorFile]:  # noqa: ARG002
        """Return the tensors with values: a trace has none."""
        return ()

    def recorded_tensors_of(self, graph_id: int, iteration: int) -> Iterable[TensorFile]:
        """Return the tensors of one iteration of a root graph."""
        step = self._trace.steps.get(iteration)
        return () if step is None or step.graph != graph_id else self._tensors_of(step)

    def _addressed(self, graph_id: int, iteration: int) -> Iterable[TensorFile]:
        """Return the tensors that `find` searches: a trace has exact statistics in place of values."""
        return self.recorded_tensors_of(graph_id, iteration)

    def _chosen(self, requested: Collection[int] | None) -> Iterator[tuple[int, int]]:
        """Yield root graph and iteration of everything traced, also for a run that ended before its first step."""
        for step in sorted(self._trace.steps.values(), key=lambda step: (step.graph, step.iteration)):
            if requested is None or step.iteration in requested:
                yield step.graph, step.iteration

    def _tensors_of(self, step: TracedStep) -> list[TensorFile]:
        files = self._files.get(step.iteration)
        if files is None:
            files = self._files[step.iteration] = self._made(step)
        return files

    def _made(self, step: TracedStep) -> list[TensorFile]:
        trace, path = self._trace, self._storage.full_path(self._path)
        try:
            with self._storage.open(self._path) as file:
                rows = read_rows(file, trace, step)
        except DumpError as error:
            self._problems.append(Problem(path, str(error)))
            return []
        nodes = self._nodes_of(step.graph)
        dtypes, position = trace.header.dtypes, self.order.position
        ordered: list[tuple[tuple[int, str, int], TensorFile]] = []
        columns = (rows[name].tolist() for name in ("tensor", "shape", "dtype"))
        for index, (tensor, shape, dtype) in enumerate(zip(*columns, strict=True)):
            name, type_, io, slot = trace.tensors[tensor]
            graph, node = nodes.get(name, (None, None))
            record = TracedRow(rows, index, dtypes[dtype], trace.shapes[shape])
            file_ = TensorFile(
                self._rank,
                step.graph,
                step.iteration,
                None if node is None else node.name,
                "" if graph is None else graph.name,
                type_,
                name,
                io,
                slot,
                *(0, 0, 0),
                "DefaultFormat",
                record.data_type,
                path,
                0,
                self._mtime_ns,
                recorded=record,
            )
            ordered.append(((UNMATCHED if node is None else position(node), io, slot), file_))
        ordered.sort(key=lambda pair: pair[0])
        return [file_ for _, file_ in ordered]

    def _nodes_of(self, root: int) -> Mapping[str, tuple[Graph, Node]]:
        """Return the nodes of a root graph by their full names."""
        nodes = self._nodes.get(root)
        if nodes is None:
            graphs = [graph for graph in self.graphs if graph.root_id == root]
            every = ((graph, node) for graph in graphs for node in graph.nodes)
            nodes = self._nodes[root] = {node.full_name or node.name: (graph, node) for graph, node in every}
        return nodes

    @cached_property
    def _nodes(self) -> dict[int, Mapping[str, tuple[Graph, Node]]]:
        return {}

    @cached_property
    def _mtime_ns(self) -> int:
        name = self._path.rpartition("/")[2]
        try:
            listing = self._storage.list_folder(self._path.rpartition("/")[0])
        except DumpError:
            return 0
        return next((file.mtime_ns for file in listing.files if file.name == name), 0)

    # --- the whole rank ---

    def fingerprint_parts(
        self,
        *,
        with_statistics: bool,  # noqa: ARG002 - all is in one file
        every_file: bool = False,  # noqa: ARG002
    ) -> Iterator[tuple[str, int, int]]:
        """Yield path, time and size of the file."""
        yield self._path, self._mtime_ns, self._size_bytes

    def summary(self) -> dict[str, Any]:
        """Return an overview that can be written as JSON."""
        return {**super().summary(), "files": 1, "bytes": self._size_bytes}
