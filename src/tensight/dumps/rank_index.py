"""The dump of one rank in MindSpore's layout: graphs, execution order and tensors, each read on first use."""

from __future__ import annotations

import re
from contextlib import closing
from functools import cached_property, partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from tensight.dumps import metadata
from tensight.dumps.execution import ExecutionFiles, read_execution_files, usable_history
from tensight.dumps.indexing import STATISTICS, FolderIndex, FolderIndexer
from tensight.dumps.metadata import Device, RunDescription
from tensight.dumps.names import split_name
from tensight.dumps.overflow import find_overflows
from tensight.dumps.programs import Program, shared_graph, shared_program
from tensight.dumps.rank_folders import RankFolder, TensorFolders, may_be_ranks, rank_folders, tensor_folders
from tensight.dumps.reader import Layout, LocatedRank, RankReader
from tensight.dumps.statistic_csv import read_statistics
from tensight.dumps.storage import printable
from tensight.dumps.tensor_file import CONSTANTS
from tensight.errors import DumpError, MissingFileError, Problem
from tensight.graph.given import printed_names
from tensight.graph.run_order import RunOrder

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Mapping

    from tensight.dumps.execution import ExecutionOrder
    from tensight.dumps.matching import MatchReport
    from tensight.dumps.metadata import DumpMetadata
    from tensight.dumps.overflow import OverflowRecord
    from tensight.dumps.statistic_csv import StatisticRow
    from tensight.dumps.storage import Storage
    from tensight.dumps.tensor_file import TensorFile
    from tensight.graph import Graph

_PRINTED_GRAPH = re.compile(rb"^# IR entry: @(\S+)$", re.MULTILINE)
_GRAPH = re.compile(r"ms_output_trace_code_graph_(\d{1,18})\.pb", re.ASCII)

MAX_RECORDED_TENSORS = 1_000_000
"""Maximum number of lines that are used of a statistics file; no network has more tensors."""

#: protobuf's own limit.
_MAX_GRAPH_BYTES = 2**31 - 1

#: Maximum number of names in a problem.
_NAMED = 3


class RankIndex(RankReader):
    """The dump of one rank in MindSpore's layout.

    Parameters
    ----------
    storage : Storage
    folder : RankFolder
    described : RunDescription
        The dump's metadata.
    with_unwritten : bool
        Whether unwritten outputs count as tensors.
    """

    def __init__(
        self, storage: Storage, folder: RankFolder, described: RunDescription, with_unwritten: bool = False
    ) -> None:
        super().__init__(storage, folder.rank)
        self._folder = folder
        self._described = described
        self._with_unwritten = with_unwritten
        self._indexers: dict[int, FolderIndexer] = {}
        self._indexed: dict[tuple[int, int], FolderIndex] = {}
        self._initial: dict[int, FolderIndex] = {}
        self._recorded: dict[tuple[int, int], FolderIndex] = {}
        self._executed: dict[int, tuple[int, ...]] = {}
        self._overflows: dict[int | None, tuple[OverflowRecord, ...]] = {}
        self._statistic_problems: dict[str, list[Problem]] = {}
        self._printed: dict[str, dict[str, str]] | None = None

    @property
    def metadata(self) -> DumpMetadata:
        """How the dump was made, from the folder of its first rank."""
        return self._described.metadata

    @property
    def device(self) -> Device:
        """Where the rank ran, from ``hccl.json`` of the first rank."""
        return self._described.devices.get(self._rank, super().device)

    @property
    def setup(self) -> dict[str, Any] | None:
        """The set-up of the training that an agent wrote into the folder of the first rank."""
        return self._described.setup

    def executed_iterations(self, graph_id: int) -> tuple[int, ...]:
        """Return the iterations in which a root graph ran, in increasing order.

        Dumped iterations are included even if the history lacks them (MindSpore 2.10 with several graphs).
        """
        if graph_id not in self._executed:
            dumped = self.folders.iterations.get(graph_id, ())
            self._executed[graph_id] = tuple(sorted({*dumped, *(self.history or {}).get(graph_id, ())}))
        return self._executed[graph_id]

    @cached_property
    def folders(self) -> TensorFolders:
        """The folders with tensors."""
        return tensor_folders(self._storage, self._folder, self.metadata.net_name, self._problems)

    @property
    def iterations(self) -> Mapping[int, Collection[int]]:
        """The dumped iterations of each root graph, in increasing order."""
        return self.folders.iterations

    @cached_property
    def graphs(self) -> tuple[Graph, ...]:
        """The graphs that could be parsed, sorted by id."""
        graphs: dict[str, Graph] = {}
        for path in self._graph_files:
            try:
                data = self._storage.read_bytes(path, _MAX_GRAPH_BYTES)
                graph = shared_graph(data, where=self._storage.full_path(path))
            except DumpError as error:
                self._problems.append(Problem(path, str(error), "tensors of this graph stay unmatched"))
                continue
            self._problems.extend(graph.problems)
            if graph.name in graphs:
                self._problems.append(Problem(path, f"is a second graph called {graph.name!r}; it is not used"))
            else:
                graphs[graph.name] = graph
        return tuple(sorted(graphs.values(), key=lambda graph: (graph.graph_id, graph.name)))

    @cached_property
    def _graph_files(self) -> list[str]:
        folder = self._folder.child("graphs")
        try:
            listing = self._storage.list_folder(folder)
            names = [file.name for file in listing.files if _GRAPH.fullmatch(file.name)]
            self._problems.extend(listing.no_files(folder, _GRAPH.fullmatch))
        except MissingFileError:
            names = []
        except DumpError as error:
            self._problems.append(Problem(folder, str(error)))
            return []
        if not names:
            self._problems.append(Problem(folder, "no graph file", "tensors can be read but belong to no node"))
        return [f"{folder}/{name}" for name in names]

    @cached_property
    def _files(self) -> ExecutionFiles:
        return read_execution_files(self._storage, self._folder, self._problems)

    @property
    def order(self) -> ExecutionOrder:
        """The order in which operators ran."""
        return self.program.order

    @cached_property
    def program(self) -> Program:
        """What ranks with the same graphs share."""
        by_root: dict[int, list[Graph]] = {}
        for graph in self.graphs:
            by_root.setdefault(graph.root_id, []).append(graph)
        graphs = [graph for root in self._run_order().sorted(sorted(by_root)) for graph in by_root[root]]
        program = shared_program(graphs, self._files.orders, self.history or self.folders.iterations)
        for graph_id, count in program.order.unknown.items():
            where = self._folder.child("execution_order", f"ms_execution_order_graph_{graph_id}.csv")
            total = len(self._files.orders[graph_id])
            what = f"{count} of {total} operators are not in graph {graph_id}"
            self._problems.append(Problem(where, what, "graph and execution order may come from different runs"))
        return program

    def _run_order(self) -> RunOrder:
        """Return the order in which root graphs ran, from the time stamps in the names of their files."""
        order = RunOrder()
        iterations = self.folders.iterations
        if len(iterations) > 1:
            for iteration in sorted({min(by_iteration) for by_iteration in iterations.values() if by_iteration}):
                began = {
                    graph: self._began(by_iteration[iteration])
                    for graph, by_iteration in iterations.items()
                    if iteration in by_iteration
                }
                timed = {graph: moment for graph, moment in began.items() if moment is not None}
                order.learn(sorted(timed, key=lambda graph: (timed[graph], graph)))
        return order

    def _began(self, folder: str) -> int | None:
        """Return the time stamp of the first operator of a folder; None if its files have none."""
        try:
            listing = self._storage.list_folder(folder)
        except DumpError:
            return None
        split = (split_name(file.name) for file in listing.files if not file.name.startswith("Parameter."))
        return min((parts[3] for parts in split if parts is not None), default=None)

    def printed_names(self, graph: str) -> Mapping[str, str]:
        """Return MindSpore's names of values in its printed graph, by the operators' names."""
        if self._printed is None:
            self._printed = {}
            for path in self._graph_files:
                try:
                    text = self._storage.read_bytes(f"{path.removesuffix('.pb')}.ir", _MAX_GRAPH_BYTES)
                except DumpError:
                    continue
                match = _PRINTED_GRAPH.search(text)
                if match is not None:
                    self._printed[match[1].decode("utf-8", "replace")] = printed_names(text.decode("utf-8", "replace"))
        return self._printed.get(graph, {})

    @cached_property
    def history(self) -> Mapping[int, tuple[int, ...]] | None:
        """The executed iterations by root graph id; None if missing or not credible."""
        where = self._folder.child("execution_order")
        dumped = {graph: tuple(iterations) for graph, iterations in self.folders.iterations.items()}
        history, problem = usable_history(self._files.histories, dumped, where)
        if problem is not None:
            self._problems.append(problem)
        return history

    def tensors_of(self, graph_id: int, iteration: int) -> Iterable[TensorFile]:
        """Return the tensors of an iteration of a root graph; `CONSTANTS` includes the values before the first step."""
        yield from self._index(graph_id, iteration).tensors
        if iteration == CONSTANTS and graph_id in self.folders.initial:
            if graph_id not in self._initial:
                folder = self.folders.initial[graph_id]
                self._initial[graph_id] = self._indexer(graph_id).index(folder, CONSTANTS)
            yield from self._initial[graph_id].tensors

    def overflows(self, iteration: int | None) -> tuple[OverflowRecord, ...]:
        """Return the overflow records of an iteration, or of all."""
        records = self._overflows.get(iteration)
        if records is None:
            iterations = None if iteration is None else {iteration}
            records = find_overflows(self._storage, self._folder, self.folders, self._problems, iterations)
            self._overflows[iteration] = records
        return records

    def statistic_rows(self, requested: Collection[int] | None) -> Iterable[StatisticRow]:
        """Yield the statistics that the device wrote in the requested iterations (None: all)."""
        for graph_id, iterations in self.folders.iterations.items():
            for iteration, folder in iterations.items():
                if requested is not None and iteration not in requested:
                    continue
                yield from self._read_statistics(graph_id, iteration, folder)

    def _read_statistics(self, graph_id: int, iteration: int, folder: str) -> Generator[StatisticRow]:
        path = f"{folder}/{STATISTICS}"
        problems = self._statistic_problems[path] = []
        try:
            with self._storage.open_text(path) as file:
                yield from read_statistics(
                    file,
                    where=self._storage.full_path(path),
                    problems=problems,
                    rank=self._folder.rank,
                    graph_id=graph_id,
                    iteration=iteration,
                )
        except MissingFileError:
            return
        except DumpError as error:
            problems.append(Problem(path, str(error)))

    def recorded_tensors_of(self, graph_id: int, iteration: int) -> Iterable[TensorFile]:
        """Return the tensors of an iteration for which only statistics were recorded; constants have none."""
        return () if iteration == CONSTANTS else self._recorded_index(graph_id, iteration).tensors

    def _recorded_index(self, graph_id: int, iteration: int) -> FolderIndex:
        key = (graph_id, iteration)
        index = self._recorded.get(key)
        if index is None:
            folder, files = self._folder_of(graph_id, iteration), self._index(graph_id, iteration)
            index = FolderIndex()
            if folder is not None and files.statistics is not None:
                with closing(self._read_statistics(graph_id, iteration, folder)) as lines:
                    dumped = [*files.tensors, *files.unwritten]
                    index = self._indexer(graph_id).index_recorded(
                        folder, iteration, files.statistics, islice(lines, MAX_RECORDED_TENSORS), dumped
                    )
                    if next(lines, None) is not None:
                        what = f"more than {MAX_RECORDED_TENSORS:,} lines"
                        where = f"{folder}/{STATISTICS}"
                        index.problems.append(Problem(where, what, "the others are not used"))
            self._recorded[key] = index
        return index

    def unwritten_tensors(self, requested: Collection[int] | None) -> Iterable[TensorFile]:
        """Return the unwritten outputs of the requested iterations (None: all)."""
        for graph_id, iterations in self.folders.iterations.items():
            for iteration in iterations:
                if requested is None or iteration in requested:
                    yield from self._index(graph_id, iteration).unwritten
                    yield from self._recorded_index(graph_id, iteration).unwritten

    def _folder_of(self, graph_id: int, iteration: int) -> str | None:
        if iteration == CONSTANTS:
            return self.folders.constants.get(graph_id)
        return self.folders.iterations.get(graph_id, {}).get(iteration)

    def _index(self, graph_id: int, iteration: int) -> FolderIndex:
        key = (graph_id, iteration)
        index = self._indexed.get(key)
        if index is None:
            folder = self._folder_of(graph_id, iteration)
            index = self._indexer(graph_id).index(folder, iteration) if folder else FolderIndex()
            self._indexed[key] = index
        return index

    def _indexer(self, graph_id: int) -> FolderIndexer:
        indexer = self._indexers.get(graph_id)
        if indexer is None:
            if self.graphs and not any(graph_id in (graph.root_id, graph.graph_id) for graph in self.graphs):
                where = f"{self.folders.network}/{graph_id}"
                self._problems.append(Problem(where, "no graph has this number", "its tensors belong to no node"))
            matcher = self.program.matcher(graph_id)
            # On Ascend, unwritten outputs share memory with the tensors that the operator updates.
            are_tensors = self._with_unwritten or self.metadata.device_target == "Ascend"
            plans = self.program.plans(graph_id, with_unwritten=are_tensors)
            indexer = FolderIndexer(
                self._storage, self._folder.rank, graph_id, matcher, with_unwritten=are_tensors, plans=plans
            )
            self._indexers[graph_id] = indexer
        return indexer

    def all_problems(self) -> list[Problem]:
        """Return the problems so far."""
        indexed = [*self._indexed.values(), *self._initial.values(), *self._recorded.values()]
        problems = [*self._problems, *(problem for index in indexed for problem in index.problems)]
        problems.extend(problem for listed in self._statistic_problems.values() for problem in listed)
        for graph_id in self.folders.iterations if self._indexed else ():
            where = f"{self.folders.network}/{graph_id}"
            indexes = [index for (owner, _), index in self._indexed.items() if owner == graph_id]
            problems.extend(_matching_problems(where, [index.report for index in indexes]))
            recorded = [index.report for (owner, _), index in self._recorded.items() if owner == graph_id]
            problems.extend(_matching_problems(where, recorded, "recorded tensors"))
            unread = [name for index in indexes for name in index.unread]
            if unread:
                what = f"{len(unread)} files are not named like tensors: {_some(unread)}"
                problems.append(Problem(where, what, "they are not read"))
        return problems

    def fingerprint_parts(self, *, with_statistics: bool, every_file: bool = False) -> Iterable[tuple[str, int, int]]:
        """Yield path, time and size of all files and folders that change with the dump.

        Statistics files are listed separately, because their growth does not change the time of their folder.
        """
        for name in ("graphs", "execution_order", metadata.FOLDER, ""):
            folder = self._folder.child(name) if name else self._folder.path
            try:
                listing = self._storage.list_folder(folder)
            except DumpError:
                continue
            for file in listing.files:
                yield f"{folder}/{file.name}", file.mtime_ns, file.size_bytes
        for graph_id, iterations in self.folders.iterations.items():
            others = (self.folders.constants.get(graph_id), self.folders.initial.get(graph_id))
            for path in (*iterations.values(), *filter(None, others)):
                digest = self._storage.folder_digest(path) if every_file else 0
                yield path, self._storage.folder_mtime_ns(path), digest
            for path in iterations.values() if with_statistics and not every_file else ():
                yield f"{path}/{STATISTICS}", 0, self._size_of(f"{path}/{STATISTICS}")

    def _size_of(self, path: str) -> int:
        try:
            with self._storage.open(path) as file:
                return file.size_bytes
        except DumpError:
            return -1

    def summary(self) -> dict[str, Any]:
        """Return an overview that can be written as JSON."""
        overview = super().summary()
        reports = [index.report for index in self._indexed.values()]
        return {
            **overview,
            "matched_by_order": sum(report.matched_by_order for report in reports),
            "constants_without_node": sum(report.constants_without_node for report in reports),
        }


def _find_ranks(storage: Storage, problems: list[Problem]) -> tuple[LocatedRank, ...]:
    """Return the ranks of a dump in MindSpore's layout; see `Layout.find`."""
    folders = rank_folders(storage, problems)
    if not folders:
        return ()
    described = RunDescription(storage, folders[0].path, problems)
    return tuple(
        LocatedRank(folder.rank, folder.path, partial(RankIndex, storage, folder, described)) for folder in folders
    )


MINDSPORE = Layout("MindSpore", may_be_ranks, _find_ranks)


def _matching_problems(where: str, reports: list[MatchReport], things: str = "files") -> list[Problem]:
    total = sum(report.files for report in reports)
    unmatched = _counted(report.unmatched for report in reports)
    mistyped = _counted(report.mistyped for report in reports)
    problems = []
    if unmatched:
        what = f"{sum(unmatched.values())} of {total} {things} match no node of the graph: {_some(unmatched)}"
        problems.append(Problem(where, what, "the graph may come from another run"))
    if mistyped:
        what = f"{sum(mistyped.values())} of {total} {things} are named like a node of another type: {_some(mistyped)}"
        problems.append(Problem(where, what, "the graph may come from another run, or files were renamed"))
    ambiguous = {head: names for report in reports for head, names in report.ambiguous.items()}
    if ambiguous:
        count = sum(report.ambiguous_files for report in reports)
        examples = "; ".join(
            f"{printable(head)} may be {_some(names)}" for head, names in list(ambiguous.items())[:_NAMED]
        )
        what = f"ambiguous: {count} of {total} {things} fit several nodes: {examples}"
        problems.append(Problem(where, what, "they are shown under their file name, without a node"))
    return problems


def _counted(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for mapping in counts:
        for head, count in mapping.items():
            total[head] = total.get(head, 0) + count
    return total


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(map(printable, listed[:_NAMED])) + (
        f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
    )
