"""The reader contract: what a layout of dumps must answer to be opened, analysed and shown like any other.

A layout is declared once, as a `Layout`: how a folder of it is recognised, and which ranks there are. A rank is read by
a `RankReader`. `tensight.dumps.layouts` lists the layouts, and `tests/dumps/test_reader_contract.py` checks what is
promised here on real dumps of each of them.

What every reader promises:

- Nothing is written, and nothing outside the storage's root is opened: every file goes through `Storage`.
- What cannot be used is a `Problem`, and the rest is read. Only `LocatedRank.open` may raise, a `DumpError`, where
  nothing of the rank can be read.
- A question is answered when it is asked: opening a rank lists and parses as little as possible. Asked again, it has
  the same answer.
- Sizes are bounded, and nothing is unpickled or run: files may come from anywhere.
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

#: What a tensor is called apart from its iteration: graph (empty: any), node or name of the operator, io, slot.
Identity = tuple[str, str, str, int]


def identity_of(tensor: TensorFile) -> Identity:
    """Return what a tensor is called in every iteration."""
    if tensor.node is None:
        return f"\0{tensor.op_type}", tensor.op_name, tensor.io, tensor.slot
    return tensor.graph, tensor.node, tensor.io, tensor.slot


@dataclass(frozen=True, slots=True)
class LocatedRank:
    """A rank that was found in a folder and is not opened yet.

    Attributes
    ----------
    rank : int
    path : str
        Its file, its folder, or the folder of its first step, relative to the storage's root; empty for the root.
    open : callable
        Return its reader. Takes whether outputs that nobody wrote are tensors like others (see
        `Dump.unwritten_tensors`), and raises `DumpError` if nothing of the rank can be read.
    """

    rank: int
    path: str
    open: Callable[[bool], RankReader]


@dataclass(frozen=True, slots=True)
class Layout:
    """A way in which dumps lie on a disk.

    Attributes
    ----------
    name : str
        What wrote it, as people call it.
    may_match : callable
        Tell from the names of a folder's sub-folders and of its files whether a dump may be in it. Nothing is opened:
        many folders are checked.
    find : callable
        Return the ranks at a storage's root, or the one rank that the root itself is; none if there is no dump of this
        layout. Of two with one number the first is read. Takes the storage, and a list to which it, and the readers of
        its ranks, add the problems that belong to no rank. Raises `DumpError` if the root cannot be listed.
    """

    name: str
    may_match: Callable[[Sequence[str], Sequence[str]], bool]
    find: Callable[[Storage, list[Problem]], tuple[LocatedRank, ...]]


class RankReader(ABC):
    """What one rank dumped.

    A reader answers what is abstract here; the rest follows from that, or is what most layouts have nothing to say of.

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

    # --- what it says about itself ---

    @property
    @abstractmethod
    def metadata(self) -> DumpMetadata:
        """How the dump was made, as far as that is known; that of the first rank is taken for the whole dump."""

    @property
    def device(self) -> Device:
        """Where the rank ran; if that is not known, on the device of its own number."""
        return Device(self._rank, device_id=self._rank)

    @property
    def setup(self) -> dict[str, Any] | None:
        """The set-up of the training as JSON: versions, seeds, optimizers; None if that was not recorded."""
        return None

    # --- what ran ---

    @property
    @abstractmethod
    def graphs(self) -> tuple[Graph, ...]:
        """The graphs that could be parsed, sorted by id; each has a name of its own."""

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
        """The executed iterations by id of the root graph, dumped or not; None if that is not known."""
        return None

    @cached_property
    def order(self) -> ExecutionOrder:
        """The order in which operators ran; by default that of the graphs."""
        return ExecutionOrder(self.graphs, {}, self.iterations)

    def executed_iterations(self, graph_id: int) -> Sequence[int]:
        """Return when a root graph ran, in increasing order, as far as that is known; at least the dumped iterations.

        Parameters
        ----------
        graph_id : int
            Id of the root graph.
        """
        return tuple(self.iterations.get(graph_id, ()))

    def printed_names(self, graph: str) -> Mapping[str, str]:  # noqa: ARG002
        """Return what MindSpore calls values where it prints a graph, by the operators' names; by default nothing.

        Parameters
        ----------
        graph : str
            Its name.
        """
        return {}

    # --- its tensors ---

    @abstractmethod
    def tensors_of(self, graph_id: int, iteration: int) -> Iterable[TensorFile]:
        """Return the tensors with values of one iteration of a root graph.

        A tensor names a node that its graph has, or none; a node, io and slot is there once, with earlier values of
        the same iteration in `TensorFile.older`.

        Parameters
        ----------
        graph_id : int
            Id of the root graph.
        iteration : int
            `CONSTANTS` for what belongs to no iteration.

        Returns
        -------
        iterable of TensorFile
            Sorted by the order of execution, inputs before outputs, slot; those without a node come last.
        """

    def recorded_tensors_of(self, graph_id: int, iteration: int) -> Iterable[TensorFile]:  # noqa: ARG002
        """Return the tensors of which only statistics were recorded; sorted as `tensors_of`, and by default none.

        Parameters
        ----------
        graph_id : int
            Id of the root graph.
        iteration : int
            `CONSTANTS` for what belongs to no iteration.

        Returns
        -------
        iterable of TensorFile
            Each with its `TensorFile.recorded`.
        """
        return ()

    def tensors(self, wanted: Collection[int] | None) -> Iterator[TensorFile]:
        """Yield the tensors with values, by graph, iteration, and as `tensors_of` sorts them.

        Parameters
        ----------
        wanted : collection of int or None
            Iterations; None for all, with constants.
        """
        for graph_id, iteration in self._chosen(wanted):
            yield from self.tensors_of(graph_id, iteration)

    def recorded_tensors(self, wanted: Collection[int] | None) -> Iterator[TensorFile]:
        """Yield the tensors of which only statistics were recorded, sorted as `tensors`.

        Parameters
        ----------
        wanted : collection of int or None
            Iterations; None for all, with constants.
        """
        for graph_id, iteration in self._chosen(wanted):
            yield from self.recorded_tensors_of(graph_id, iteration)

    def unwritten_tensors(self, wanted: Collection[int] | None) -> Iterable[TensorFile]:  # noqa: ARG002
        """Return what holds outputs that nobody wrote and is not among `tensors`; by default nothing.

        Parameters
        ----------
        wanted : collection of int or None
            Iterations; None for all.
        """
        return ()

    def find(self, graph_id: int, iteration: int, identity: Identity) -> TensorFile | None:
        """Return the tensor that is called so in an iteration of a root graph; None if it was not dumped.

        Parameters
        ----------
        graph_id : int
            Id of the root graph.
        iteration : int
            `CONSTANTS` for what belongs to no iteration.
        identity : Identity
            As `identity_of` returns it, or with an empty name of the graph for any graph of the root.
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

    def statistic_rows(self, wanted: Collection[int] | None) -> Iterable[StatisticRow]:  # noqa: ARG002
        """Return the statistics that a device or a tool computed; by default none.

        Parameters
        ----------
        wanted : collection of int or None
            Iterations; None for all.
        """
        return ()

    def overflows(self, iteration: int | None) -> tuple[OverflowRecord, ...]:  # noqa: ARG002
        """Return what devices reported as overflows, by iteration and time; by default nothing.

        Parameters
        ----------
        iteration : int or None
            None for all.
        """
        return ()

    def _addressed(self, graph_id: int, iteration: int) -> Iterable[TensorFile]:
        """Return the tensors that `find` finds: those with values."""
        return self.tensors_of(graph_id, iteration)

    def _chosen(self, wanted: Collection[int] | None) -> Iterator[tuple[int, int]]:
        """Yield root graph and iteration of all that was dumped, sorted, constants first."""
        for graph_id, iterations in self.iterations.items():
            for iteration in (CONSTANTS, *iterations):
                if wanted is None or iteration in wanted:
                    yield graph_id, iteration

    # --- the whole ---

    def all_problems(self) -> list[Problem]:
        """Return what could not be used so far; more may come as more is read."""
        return list(self._problems)

    @abstractmethod
    def fingerprint_parts(self, *, with_statistics: bool) -> Iterable[tuple[str, int, int]]:
        """Return path, time and size of everything that a change of the dump would change.

        Parameters
        ----------
        with_statistics : bool
            Whether files of statistics may grow beside the tensors.
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
