"""The reader contract: what a dump layout must implement to be opened, analysed and shown like any other.

A layout is declared once, as a `Layout`: how its folders are recognised, and which ranks they contain. A `RankReader`
reads a rank. `tensight.dumps.layouts` lists the layouts, and `tests/dumps/test_reader_contract.py` checks this contract
on real dumps of each of them.

Every reader guarantees:

- Nothing is written, and nothing outside the storage's root is opened: all files are accessed through `Storage`.
- Unusable parts become a `Problem`, and the rest is read. Only `LocatedRank.open` may raise, a `DumpError`, if nothing
  of the rank can be read.
- Reading is lazy: opening a rank lists and parses as little as possible. Repeated calls return the same result.
- Sizes are bounded, and nothing is unpickled or executed: files are untrusted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tensight.dumps.execution import ExecutionOrder
from tensight.dumps.metadata import Device, DumpMetadata
from tensight.dumps.tensor_file import CONSTANTS
from tensight.graph import step_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from tensight.dumps.overflow import OverflowRecord
    from tensight.dumps.statistic_csv import StatisticRow
    from tensight.dumps.storage import Storage
    from tensight.dumps.tensor_file import TensorFile
    from tensight.errors import Problem
    from tensight.graph import Graph

#: What identifies a tensor within an iteration: graph (empty: any), node or name of the operator, io, slot.
Identity = tuple[str, str, str, int]


def identity_of(tensor: TensorFile) -> Identity:
    """Return what identifies a tensor in every iteration."""
    if tensor.node is None:
        return f"\0{tensor.op_type}", tensor.op_name, tensor.io, tensor.slot
    return tensor.graph, tensor.node, tensor.io, tensor.slot


@dataclass(frozen=True, slots=True)
class LocatedRank:
    """A rank that was found in a folder but not opened yet.

    Attributes
    ----------
    rank : int
    path : str
        Its file, its folder, or the folder of its first step, relative to the storage's root; empty for the root.
    open : callable
        Return its reader. Takes whether unwritten outputs count as tensors (see `Dump.unwritten_tensors`), and raises
        `DumpError` if nothing of the rank can be read.
    """

    rank: int
    path: str
    open: Callable[[bool], RankReader]


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of dumps on disk.

    Attributes
    ----------
    name : str
        Display name of the tool that writes it.
    may_match : callable
        Return whether a folder may contain a dump, from the names of its sub-folders and of its files. Opens nothing,
        because many folders are checked.
    find : callable
        Return the ranks at a storage's root, or the single rank whose folder is the root; empty if there is no dump of
        this layout. Of two ranks with the same number, the first is read. Takes the storage, and a list to which it and
        the readers of its ranks append problems that belong to no rank. Raises `DumpError` if the root cannot be
        listed.
    """

    name: str
    may_match: Callable[[Sequence[str], Sequence[str]], bool]
    find: Callable[[Storage, list[Problem]], tuple[LocatedRank, ...]]


class RankReader(ABC):
    """The dump of one rank.

    A reader implements the abstract members; the others are derived from these, or have defaults for layouts that do
    not record the information.

    Parameters
    ----------
    storage : Storage
        Its root is the dump's folder.
    rank : int
    """

    def __init__(self, storage: Storage, rank: int) -> None:
        self._storage = storage
        self._rank = rank
        self._problems: list[Problem] = []
        self._tables: dict[tuple[int, int], dict[Identity, TensorFile]] = {}

    # --- metadata ---

    @property
    @abstractmethod
    def metadata(self) -> DumpMetadata:
        """How the dump was made, as far as known; the first rank's is used for the whole dump."""

    @property
    def device(self) -> Device:
        """Where the rank ran; if unknown, the device with the rank's number."""
        return Device(self._rank, device_id=self._rank)

    @property
    def setup(self) -> dict[str, Any] | None:
        """The set-up of the training as JSON: versions, seeds, optimizers; None if not recorded."""
        return None

    # --- what ran ---

    @property
    @abstractmethod
    def graphs(self) -> tuple[Graph, ...]:
        """The graphs that could be parsed, sorted by id; names are unique."""

    @cached_property
    def graphs_by_name(self) -> Mapping[str, Graph]:
        """The graphs by name."""
        return {graph.name: graph for graph in self.graphs}

    @property
    @abstractmethod
    def iterations(self) -> Mapping[int, Collection[int]]:
        """The dumped iterations by id of the root graph, in increasing order, from 0."""

    @property
    def history(self) -> Mapping[int, tuple[int, ...]] | None:
        """The executed iterations by id of the root graph, dumped or not; None if unknown."""
        return None

    @cached_property
    def _order(self) -> ExecutionOrder:
        return ExecutionOrder(self.graphs, {}, self.iterations)

    @property
    def order(self) -> ExecutionOrder:
        """The order in which operators ran; by default that of the graphs."""
        return self._order

    @property
    def program(self) -> object:
        """What equal ranks share as long as anyone holds it; by default nothing."""
        return None

    def executed_iterations(self, graph_id: int) -> Sequence[int]:
        """Return the iterations in which a root graph ran, in increasing order; at least the dumped ones.

        Parameters
        ----------
        graph_id : int
            Id of the root graph.
        """
        return tuple(self.iterations.get(graph_id, ()))

    def printed_names(self, graph: str) -> Mapping[str, str]:  # noqa: ARG002
        """Return MindSpore's names of values in its printed graphs, by the operators' names; empty by default.

        Parameters
        ----------
        graph : str
            Name of the graph.
        """
        return {}

    # --- its tensors ---

    @abstractmethod
    def tensors_of(self, graph_id: int, iteration: int) -> Iterable[TensorFile]:
        """Return the tensors with values of one iteration of a root graph.

        The node of a tensor exists in its graph, or is None. Each node, io and slot occurs once; earlier values of the
        same iteration are in `TensorFile.older`.

        Parameters
        ----------
        graph_id : int
            Id of the root graph.
        iteration : int
            `CONSTANTS` for tensors that belong to no iteration.

        Returns
        -------
        iterable of TensorFile
            Sorted by the order of execution, inputs before outputs, slot; tensors without a node come last.
        """

    def recorded_tensors_of(self, graph_id: int, iteration: int) -> Iterable[TensorFile]:  # noqa: ARG002
        """Return the tensors for which only statistics were recorded; sorted as `tensors_of`, empty by default.

        Parameters
        ----------
        graph_id : int
            Id of the root graph.
        iteration : int
            `CONSTANTS` for tensors that belong to no iteration.

        Returns
        -------
        iterable of TensorFile
            Each with its `TensorFile.recorded`.
        """
        return ()

    def tensors(self, requested: Collection[int] | None) -> Iterator[TensorFile]:
        """Yield the tensors with values, sorted by graph, iteration, and then as `tensors_of`.

        Parameters
        ----------
        requested : collection of int or None
            Iterations; None for all, with constants.
        """
        for graph_id, iteration in self._chosen(requested):
            yield from self.tensors_of(graph_id, iteration)

    def recorded_tensors(self, requested: Collection[int] | None) -> Iterator[TensorFile]:
        """Yield the tensors for which only statistics were recorded, sorted as `tensors`.

        Parameters
        ----------
        requested : collection of int or None
            Iterations; None for all, with constants.
        """
        for graph_id, iteration in self._chosen(requested):
            yield from self.recorded_tensors_of(graph_id, iteration)

    def unwritten_tensors(self, requested: Collection[int] | None) -> Iterable[TensorFile]:  # noqa: ARG002
        """Return the unwritten outputs, which are not among `tensors`; empty by default.

        Parameters
        ----------
        requested : collection of int or None
            Iterations; None for all.
        """
        return ()

    def find(self, graph_id: int, iteration: int, identity: Identity) -> TensorFile | None:
        """Return the tensor with an identity in an iteration of a root graph; None if it was not dumped.

        Parameters
        ----------
        graph_id : int
            Id of the root graph.
        iteration : int
            `CONSTANTS` for tensors that belong to no iteration.
        identity : Identity
            From `identity_of`, or with an empty graph name for any graph of the root.
        """
        table = self._tables.get((graph_id, iteration))
        if table is None:
            if iteration != CONSTANTS and iteration not in self.iterations.get(graph_id, ()):
                return None
            table = self._tables[graph_id, iteration] = {}
            for tensor in self._addressed(graph_id, iteration):
                graph, node, io, slot = identity_of(tensor)
                table[graph, node, io, slot] = tensor
                table.setdefault(("", node, io, slot), tensor)
        return table.get(identity)

    def statistic_rows(self, requested: Collection[int] | None) -> Iterable[StatisticRow]:  # noqa: ARG002
        """Return the statistics that a device or a tool computed; empty by default.

        Parameters
        ----------
        requested : collection of int or None
            Iterations; None for all.
        """
        return ()

    def overflows(self, iteration: int | None) -> tuple[OverflowRecord, ...]:  # noqa: ARG002
        """Return the overflows that devices reported, by iteration and time; empty by default.

        Parameters
        ----------
        iteration : int or None
            None for all.
        """
        return ()

    def _addressed(self, graph_id: int, iteration: int) -> Iterable[TensorFile]:
        """Return the tensors that `find` searches: those with values."""
        return self.tensors_of(graph_id, iteration)

    def _chosen(self, requested: Collection[int] | None) -> Iterator[tuple[int, int]]:
        """Yield root graph and iteration of everything dumped, sorted, constants first."""
        for graph_id, iterations in self.iterations.items():
            for iteration in (CONSTANTS, *iterations):
                if requested is None or iteration in requested:
                    yield graph_id, iteration

    # --- the whole rank ---

    def all_problems(self) -> list[Problem]:
        """Return the problems so far; reading more may add more."""
        return list(self._problems)

    @abstractmethod
    def fingerprint_parts(self, *, with_statistics: bool, every_file: bool = False) -> Iterable[tuple[str, int, int]]:
        """Return path, time and size of all files and folders that change with the dump.

        Parameters
        ----------
        with_statistics : bool
            Whether statistics files may grow beside the tensors.
        every_file : bool
            Whether files that are overwritten in place must change it; otherwise the times of folders suffice.
        """

    def summary(self) -> dict[str, Any]:
        """Return an overview that can be written as JSON."""
        files = list(self.tensors(None))
        recorded = list(self.recorded_tensors(None))
        history = self.history
        matched = sum(1 + len(file.older) for file in files if file.node is not None)
        total = sum(1 + len(file.older) for file in files)
        return {
            "rank": self._rank,
            "graphs": [_graph_summary(graph) for graph in self.graphs],
            "steps": _steps_of_graphs(self.iterations),
            "executed_steps": None if history is None else _steps_of_graphs(history),
            "tensors": len(files),
            "files": total,
            "bytes": sum(file.size_bytes + sum(old.size_bytes for old in file.older) for file in files),
            "recorded": len(recorded),
            "unwritten": sum(1 for _ in self.unwritten_tensors(None)),
            "recorded_unmatched": sum(tensor.node is None for tensor in recorded),
            "matched": matched,
            "unmatched": total - matched,
            "matched_by_order": 0,
            "constants_without_node": 0,
        }


def _graph_summary(graph: Graph) -> dict[str, Any]:
    return {
        "name": graph.name,
        "graph_id": graph.graph_id,
        "root_id": graph.root_id,
        "operators": len(graph.operators),
        "parameters": len(graph.parameters),
        "constants": len(graph.constants),
    }


def _steps_of_graphs(iterations: Mapping[int, Iterable[int]]) -> dict[str, list[int]]:
    return {str(graph): [step_of(iteration) for iteration in of_graph] for graph, of_graph in iterations.items()}
