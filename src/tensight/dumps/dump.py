"""Open and query dumps."""

from __future__ import annotations

import hashlib
import json
import os
from bisect import bisect_left
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from tensight.dumps.execution import UNMATCHED
from tensight.dumps.finding import find_tensor
from tensight.dumps.layouts import LocatedDump, find_dump
from tensight.dumps.reader import identity_of
from tensight.errors import InputError, Problem, TensorFileError
from tensight.garbage_collection import without_garbage_collection
from tensight.graph import TensorAddress

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tensight.dumps.metadata import Device, DumpMetadata
    from tensight.dumps.overflow import OverflowRecord
    from tensight.dumps.reader import LocatedRank, RankReader
    from tensight.dumps.statistic_csv import StatisticRow
    from tensight.dumps.tensor_file import TensorFile
    from tensight.graph import Graph, Node


MOST_OPENED = 5_000
"""Number of files that `Dump.damaged` opens: 0.1 s if they are npy files, and 2 s if they are zip archives."""


def open_dump(path: str | os.PathLike[str], *, with_unwritten: bool = False) -> Dump:
    """Open a dump.

    Only the names in a few folders are read; graphs are parsed and tensors listed on first use.

    Parameters
    ----------
    path : str or path-like
        The dump's folder (which contains ``rank_0``, …), the folder of one rank, or a folder with exactly one dump up
        to two levels below; a local path or an fsspec URL.
    with_unwritten : bool
        Whether unwritten outputs count as tensors, as in MindSpore Insight; see `Dump.unwritten_tensors`.

    Returns
    -------
    Dump

    Raises
    ------
    DumpError
        If there is no dump, more than one, or one of a layout that cannot be read.
    """
    return Dump(find_dump(path), with_unwritten=with_unwritten)


class Dump:
    """A dump, recording or trace of a run: graphs, iterations and tensors of every rank. See `open_dump`.

    Parameters
    ----------
    located : LocatedDump
        The folder, and the ranks in it.
    with_unwritten : bool
        Whether outputs that operators of optimizers never write count as tensors.

    Attributes
    ----------
    path : str
        The dump's folder.
    ranks : tuple of int
    """

    def __init__(self, located: LocatedDump, *, with_unwritten: bool = False) -> None:
        self._storage = located.storage
        self._located = {rank.rank: rank for rank in located.ranks}
        self._found = located.problems
        self._with_unwritten = with_unwritten
        self._readers: dict[int, RankReader] = {}
        self.path = located.storage.root
        self.ranks = tuple(self._located)

    def __repr__(self) -> str:
        return f"Dump({self.path!r}, ranks={list(self.ranks)})"

    @cached_property
    def metadata(self) -> DumpMetadata:
        """How the dump was made; taken from the first rank."""
        return self._rank(self.ranks[0]).metadata

    @property
    def problems(self) -> list[Problem]:
        """The problems so far; reading more of the dump may add more."""
        return [*self._found, *(problem for reader in self._readers.values() for problem in reader.all_problems())]

    @property
    def setup(self) -> dict[str, Any] | None:
        """The set-up of the training, as its agent described it; None if not recorded.

        Taken from the first rank: versions, environment, seeds, optimizers and first batches, as JSON.
        """
        return self._rank(self.ranks[0]).setup

    def devices(self) -> tuple[Device, ...]:
        """Return the device of each rank; in MindSpore's layout from ``hccl.json`` of the first rank."""
        return tuple(self._rank(rank).device for rank in self.ranks)

    def graphs(self, rank: int) -> tuple[Graph, ...]:
        """Return the graphs of a rank, sorted by id. A file that cannot be parsed is a problem, not an error.

        Parameters
        ----------
        rank : int
            Rank of the process, from 0.
        """
        with without_garbage_collection():
            return self._rank(rank).graphs

    def graph_of(self, tensor: TensorFile) -> Graph | None:
        """Return the graph of a tensor's node; None if the tensor is unmatched.

        Parameters
        ----------
        tensor : TensorFile
            A tensor of this dump.
        """
        return self._rank(tensor.rank).graphs_by_name.get(tensor.graph)

    def graph_ids(self, rank: int) -> tuple[int, ...]:
        """Return the ids of the root graphs for which a rank has iterations.

        Parameters
        ----------
        rank : int
            Rank of the process, from 0.
        """
        return tuple(self._rank(rank).iterations)

    def iterations(self, rank: int | None = None, graph_id: int | None = None) -> tuple[int, ...]:
        """Return the dumped iterations of a rank and a root graph, or of all, in increasing order.

        Parameters
        ----------
        rank : int, optional
            By default all.
        graph_id : int, optional
            Of the root graph; by default all.
        """
        ranks = self.ranks if rank is None else (rank,)
        folders = (self._rank(rank_number).iterations for rank_number in ranks)
        graphs = (graph for by_graph in folders for number, graph in by_graph.items() if graph_id in (None, number))
        return tuple(sorted({iteration for graph in graphs for iteration in graph}))

    def history(self, rank: int) -> Mapping[int, tuple[int, ...]] | None:
        """Return the executed iterations by root graph id; None if the dump has no usable history.

        Parameters
        ----------
        rank : int
            Rank of the process, from 0.
        """
        return self._rank(rank).history

    def execution_order(self, rank: int) -> tuple[str, ...]:
        """Return the full names of the operators of a rank in the order in which they ran.

        Graphs are in the order of their first runs. Topological order is used for a graph without a recorded order.

        Parameters
        ----------
        rank : int
            Rank of the process, from 0.
        """
        return self._rank(rank).order.names

    def execution_position(self, tensor: TensorFile) -> int:
        """Return the position of a tensor's node in the order of execution.

        Constants have negative positions and operators count from 0; parameters follow, because their files contain the
        values at the end of an iteration; unmatched tensors come last.

        Parameters
        ----------
        tensor : TensorFile
            A tensor of this dump.
        """
        graph = self.graph_of(tensor)
        node = graph.get(tensor.node) if graph is not None and tensor.node is not None else None
        return UNMATCHED if node is None else self.node_position(tensor.rank, node)

    def node_position(self, rank: int, node: Node) -> int:
        """Return the position of a node of a rank's graphs in the order of execution; see `execution_position`.

        Parameters
        ----------
        rank : int
            Rank of the process, from 0.
        node : Node
            A node of one of its graphs.
        """
        return self._rank(rank).order.position(node)

    def printed_names(self, rank: int, graph: str) -> Mapping[str, str]:
        """Return MindSpore's names of values in its printed graph, by the operators' names.

        Parameters
        ----------
        rank : int
            Rank of the process, from 0.
        graph : str
            Name of the graph.
        """
        return self._rank(rank).printed_names(graph)

    def node_number(self, rank: int, node: Node) -> int | None:
        """Return the number of a node in the order of execution of its step, from 1; None for constants.

        Parameters
        ----------
        rank : int
            Rank of the process, from 0.
        node : Node
            A node of one of its graphs.
        """
        return self._rank(rank).order.number(node)

    def node_numbers(self, rank: int) -> Sequence[float]:
        """Return the number of the node (see `node_number`) at each position from 0 on; NaN where there is none.

        Parameters
        ----------
        rank : int
            Rank of the process, from 0.
        """
        return self._rank(rank).order.numbers_by_position

    def tensors(
        self, *, ranks: Iterable[int] | None = None, iterations: Iterable[int] | None = None
    ) -> Sequence[TensorFile]:
        """Return the dumped tensors.

        Parameters
        ----------
        ranks, iterations : iterable of int, optional
            Restrict to these. Constants belong to iteration -1.

        Returns
        -------
        sequence of TensorFile
            Sorted by rank, graph, iteration, execution order, inputs before outputs, slot.
        """
        requested = None if iterations is None else set(iterations)
        chosen = self.ranks if ranks is None else sorted(set(ranks))
        with without_garbage_collection():
            return [tensor for rank in chosen for tensor in self._rank(rank).tensors(requested)]

    def recorded_tensors(
        self, *, ranks: Iterable[int] | None = None, iterations: Iterable[int] | None = None
    ) -> Sequence[TensorFile]:
        """Return the tensors for which the device recorded statistics (``statistic.csv``), but no values.

        MindSpore writes such dumps with ``saved_data`` "statistic"; with "full" it also writes values, and `tensors`
        returns them.

        Parameters
        ----------
        ranks, iterations : iterable of int, optional
            Restrict to these.

        Returns
        -------
        sequence of TensorFile
            Sorted as `tensors`; each with its `TensorFile.recorded`.
        """
        requested = None if iterations is None else set(iterations)
        chosen = self.ranks if ranks is None else sorted(set(ranks))
        with without_garbage_collection():
            return [tensor for rank in chosen for tensor in self._rank(rank).recorded_tensors(requested)]

    def unwritten_tensors(
        self, *, ranks: Iterable[int] | None = None, iterations: Iterable[int] | None = None
    ) -> Sequence[TensorFile]:
        """Return the outputs that were dumped although no operator wrote them: the files contain stale memory.

        Some operators never write outputs that they declare (`tensight.graph.unwritten`; Adam, for example, writes only
        to parameters), and MindSpore dumps them nevertheless. `tensors` excludes them, except on Ascend devices.

        Parameters
        ----------
        ranks, iterations : iterable of int, optional
            Restrict to these.
        """
        requested = None if iterations is None else set(iterations)
        chosen = self.ranks if ranks is None else sorted(set(ranks))
        with without_garbage_collection():
            return [tensor for rank in chosen for tensor in self._rank(rank).unwritten_tensors(requested)]

    def find(self, what: str, rank: int | None = None) -> TensorFile:
        """Return the tensor with a name that the user typed, as `tensight show` does.

        Parameters
        ----------
        what : str
            The name of a node or the end of one, optionally with slot and step: ``conv1.weight``, ``conv1.weight@3``,
            ``Conv2D-op61:0@2``, ``Conv2D-op61:input.1@2``; or an address. The default slot is output 0, the default
            step the last one. A weight takes precedence over the optimizer's states of it.
        rank : int, optional
            By default the rank of the address, or the first that has the tensor.

        Returns
        -------
        TensorFile

        Raises
        ------
        InputError
            No node, or more than one, has this name (the message lists similar names); or the node has no such slot or
            step; or no operator wrote the tensor.
        """
        return find_tensor(self, what, rank)

    def at(
        self, rank: int, graph_id: int, iteration: int, node: str, slot: int, io: Literal["input", "output"] = "output"
    ) -> TensorFile | None:
        """Return one tensor by its node and slot; None if it was not dumped.

        Parameters
        ----------
        rank : int
            Rank of the process, from 0.
        graph_id : int
            Id of the root graph.
        iteration : int
            From 0; -1 for constants and values before the first step.
        node : str
            Name of the node.
        slot : int
            Number of the output or input of the node, from 0.
        io : {"output", "input"}
            Whether `slot` counts outputs or inputs.
        """
        return self._rank(rank).find(graph_id, iteration, ("", node, io, slot))

    def tensor(self, address: TensorAddress | str) -> TensorFile | None:
        """Return the tensor at an address; None if it was not dumped.

        Parameters
        ----------
        address : TensorAddress or str
            As shown in hits, origins and the page: ``0/kernel_graph_0/Default/Conv2D-op3:0@2``, where 2 is the step.

        Raises
        ------
        InputError
            The text is not an address, or the dump has no such rank.
        """
        where = TensorAddress.parse(address) if isinstance(address, str) else address
        rank = self._rank(where.rank)
        graph = rank.graphs_by_name.get(where.graph)
        if graph is None:
            return None
        return rank.find(graph.root_id, where.iteration, (where.graph, where.node, where.io, where.slot))

    def previous(self, tensor: TensorFile) -> TensorFile | None:
        """Return the same tensor in the previous iteration of its root graph; None if it was not dumped.

        Without a history this is the previous dumped iteration.

        Parameters
        ----------
        tensor : TensorFile
            A tensor of this dump.
        """
        rank = self._rank(tensor.rank)
        ran = rank.executed_iterations(tensor.graph_id)
        before = bisect_left(ran, tensor.iteration)
        return rank.find(tensor.graph_id, ran[before - 1], identity_of(tensor)) if before else None

    def overflows(self, rank: int | None = None, iteration: int | None = None) -> tuple[OverflowRecord, ...]:
        """Return the overflow records of a rank (None: all) and iteration (None: all), by rank, iteration, time.

        Parameters
        ----------
        rank : int, optional
            By default all.
        iteration : int, optional
            From 0; by default all.
        """
        ranks = self.ranks if rank is None else (rank,)
        return tuple(record for rank_number in ranks for record in self._rank(rank_number).overflows(iteration))

    def statistic_rows(
        self, ranks: Iterable[int] | None = None, iterations: Iterable[int] | None = None
    ) -> Iterator[StatisticRow]:
        """Yield the statistics that devices wrote (``statistic.csv``), by rank, graph and iteration.

        Lines and files that cannot be used become problems.

        Parameters
        ----------
        ranks : iterable of int, optional
            By default all.
        iterations : iterable of int, optional
            From 0; by default all.
        """
        requested = None if iterations is None else set(iterations)
        for rank in self.ranks if ranks is None else sorted(set(ranks)):
            yield from self._rank(rank).statistic_rows(requested)

    def of_rank(self, rank: int) -> Dump:
        """Return the part of one rank as a dump, which reads nothing of the others but what all share.

        Parameters
        ----------
        rank : int
            Rank of the process, from 0.

        Raises
        ------
        InputError
            There is no such rank.
        """
        located = LocatedDump(self._storage, (self._located_rank(rank),), self._found)
        return Dump(located, with_unwritten=self._with_unwritten)

    def program(self, rank: int) -> object:
        """Return what a rank shares with others that run the same program, as long as anyone holds it.

        Parameters
        ----------
        rank : int
            Rank of the process, from 0.
        """
        return self._rank(rank).program

    def fingerprint(self, *, every_file: bool = False) -> str:
        """Return a digest that changes when files are added to, removed from, or renamed in any folder of the dump.

        Parameters
        ----------
        every_file : bool
            Whether names, sizes and times of all files count. Otherwise only folders, graphs and metadata are examined;
            if the storage knows the times of folders, overwriting a tensor file in place is then not detected.
        """
        parts: list[tuple[str, int, int]] = []
        with_statistics = self.metadata.saved_data in ("statistic", "full")
        for rank in self.ranks:
            parts.extend(self._rank(rank).fingerprint_parts(with_statistics=with_statistics, every_file=every_file))
        return hashlib.sha256(json.dumps(parts).encode("utf-8", "surrogateescape")).hexdigest()

    def unreadable(self, file: TensorFile, error: str) -> Problem:
        """Return the problem that a tensor cannot be read.

        Parameters
        ----------
        file : TensorFile
            The tensor.
        error : str
            Why.
        """
        where = os.path.relpath(file.path, self.path) if "://" not in file.path else file.path
        return Problem(where, error.removeprefix(f"{file.path}: "))

    def damaged(self, most: int = MOST_OPENED) -> tuple[int, list[Problem]]:
        """Open the files of tensors, and return how many were opened, and which cannot be read.

        Only headers are read, and of very many files only those of the last steps, where a full disk or a killed
        process shows. Files of a remote dump are not opened.

        Parameters
        ----------
        most : int
            Maximum number of files to open.
        """
        if "://" in self.path:
            return 0, []
        from tensight.dumps.reading import tensor_header

        files = self.tensors()[-most:]
        problems = []
        for file in files:
            try:
                tensor_header(file)
            except TensorFileError as error:  # noqa: PERF203 - each file is a problem of its own
                problems.append(self.unreadable(file, str(error)))
        return len(files), problems

    def summary(self, most_opened: int = MOST_OPENED) -> dict[str, Any]:
        """Return an overview of the dump that can be written as JSON.

        Parameters
        ----------
        most_opened : int
            Maximum number of files that are opened to see whether they can be read.
        """
        meta = self.metadata
        ranks = [self._rank(rank).summary() for rank in self.ranks]
        opened, damaged = self.damaged(most_opened)
        empty = [str(rank["rank"]) for rank in ranks if not (rank["tensors"] or rank["recorded"])]
        damaged += [Problem(f"rank {rank}", "no tensor was dumped", "nothing of it can be checked") for rank in empty]
        return {
            "path": self.path,
            "framework": meta.framework,
            "by_agent": meta.by_agent,
            "framework_version": meta.framework_version,
            "device_target": meta.device_target,
            "net_name": meta.net_name,
            "synchronous": meta.synchronous,
            "file_format": meta.file_format,
            "input_output": meta.input_output,
            "saved_data": meta.saved_data,
            "tool": meta.tool,
            "traces": meta.traces,
            "ranks": ranks,
            "opened": opened,
            "problems": [
                {"where": problem.where, "what": problem.what, "advice": problem.advice}
                for problem in (*self.problems, *damaged)
            ],
        }

    def _rank(self, rank: int) -> RankReader:
        reader = self._readers.get(rank)
        if reader is None:
            reader = self._readers[rank] = self._located_rank(rank).open(self._with_unwritten)
        return reader

    def _located_rank(self, rank: int) -> LocatedRank:
        located = self._located.get(rank)
        if located is None:
            raise InputError(f"the dump has no rank {rank}; it has {', '.join(map(str, self.ranks))}.")
        return located
