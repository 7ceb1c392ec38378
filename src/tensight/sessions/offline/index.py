"""Lookup of the file of a dump that contains the tensor at an address."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from tensight.analysis.statistics_table import NO_PREVIOUS
from tensight.graph import TensorAddress
from tensight.graph.unwritten import is_unwritten
from tensight.sessions.sources import node_of_use, user_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from tensight.analysis import StatisticsTable
    from tensight.dumps import Dump, TensorFile
    from tensight.graph import Node
    from tensight.sessions.records import Frame

INITIAL = -1
"""The iteration of values from before the first update."""

# Graph, node, io, slot. Graph None: a parameter, in whichever graph. Graph empty: a file that belongs to no node, by
# the name of its operator.
_Key = tuple[str | None, str, Literal["input", "output"], int]

# Iterations whose index by name is kept: the shown one, the previous one, and those of a curve.
_KEPT_ITERATIONS = 8


def address_of(file: TensorFile) -> TensorAddress:
    """Return the address of a tensor; without a node, the graph is empty and the node is its operator's name."""
    return file.address or TensorAddress(file.rank, "", file.op_name, file.slot, file.iteration, file.io)


class TensorIndex:
    """Finds the rows of a dump's statistics table by address.

    A tensor that was not dumped under its own name may have been dumped under another: an operator's input is the
    output of its producer, or a constant, and an operator's output is the input of its readers. A weight before the
    first update is the input of its first reader in iteration 0. The file of a parameter contains its value at the end
    of an iteration, so it is never used for an input. Runs that Tensight recorded may contain separate initial values.

    Parameters
    ----------
    dump : Dump
    table : StatisticsTable
        Table of that dump.
    """

    def __init__(self, dump: Dump, table: StatisticsTable) -> None:
        self._dump = dump
        self._table = table
        self._graphs = {(rank, graph.name): graph for rank in dump.ranks for graph in dump.graphs(rank)}
        self._blocks = _blocks(table.files)
        self._named: dict[tuple[int, int], dict[_Key, int]] = {}
        self._making_room = threading.Lock()
        self._readers: dict[tuple[int, str], dict[tuple[str, int], list[tuple[str, int]]]] = {}
        self._foreign: dict[int, frozenset[str]] = {}
        self._lines: dict[tuple[int, str, str], Frame | None] = {}

    def node(self, rank: int, graph: str, name: str) -> Node | None:
        """Return a node of a rank's graphs; None if there is none."""
        owner = self._graphs.get((rank, graph))
        return None if owner is None else owner.get(name)

    def used(self, rank: int, graph: str, name: str) -> Node | None:
        """Return the operator that uses a parameter, given the parameter, its gradient or its update."""
        owner = self._graphs.get((rank, graph))
        node = None if owner is None else owner.get(name)
        if owner is None or node is None:
            return None
        return node_of_use(owner, node, lambda reader: self._dump.node_position(rank, reader))

    def line(self, rank: int, graph: str, name: str) -> Frame | None:
        """Return the line of user code of a node; cached, because nodes with hits tend to hit again."""
        key = rank, graph, name
        if key not in self._lines:
            self._lines[key] = user_line(self.node(rank, graph, name)) or user_line(self.used(rank, graph, name))
        return self._lines[key]

    def is_foreign(self, rank: int, name: str) -> bool:
        """Return whether files without a node, but no node, have this name."""
        is_known = any(name in graph for (owner, _), graph in self._graphs.items() if owner == rank)
        return not is_known and name in self._foreign_of(rank)

    def has_slot(self, address: TensorAddress) -> bool:
        """Return whether the graph has such an input or output; nodes without declared outputs may have output 0."""
        node = self.node(address.rank, address.graph, address.node)
        if node is None:
            return False
        if address.io == "input":
            return address.slot < len(self.producers(address.rank, address.graph, address.node))
        return address.slot < max(len(node.outputs), 1)

    def is_unwritten(self, address: TensorAddress) -> bool:
        """Return whether a tensor is an output that its operator never writes."""
        graph = self._graphs.get((address.rank, address.graph))
        node = None if graph is None else graph.get(address.node)
        if graph is None or node is None or address.io != "output":
            return False
        return is_unwritten(node.type, address.slot, (graph, node))

    def producers(self, rank: int, graph: str, name: str) -> tuple[tuple[Node, int] | None, ...]:
        """Return the producer of each input of an operator, numbered as in a dump; None for inputs without a value."""
        owner = self._graphs.get((rank, graph))
        node = None if owner is None else owner.get(name)
        return () if owner is None or node is None or not node.is_operator else owner.flat_producers(node)

    def producer(self, address: TensorAddress) -> tuple[Node, int] | None:
        """Return the node and output slot that produce an operator's input; None for an output."""
        producers = self.producers(address.rank, address.graph, address.node) if address.io == "input" else ()
        return producers[address.slot] if address.slot < len(producers) else None

    def rows_at(self, rank: int, iteration: int) -> NDArray[np.int64]:
        """Return the rows of all tensors of a rank in an iteration, in the order of the table."""
        blocks = self._blocks.get((rank, iteration), [])
        return np.concatenate([np.empty(0, np.int64), *(np.arange(block.start, block.stop) for block in blocks)])

    def row(self, address: TensorAddress) -> int | None:
        """Return the row with a tensor's value or statistics; None if the dump has neither."""
        node = self.node(address.rank, address.graph, address.node)
        if node is not None and node.is_constant:
            return self._first(address, self._named_at(address.rank, INITIAL))
        if node is not None and node.is_parameter and address.iteration == INITIAL:
            return self._initial_row(address)
        row = self._first(address, self._named_at(address.rank, address.iteration))
        return self._row_of_constant(address) if row is None else row

    def reads_constant(self, address: TensorAddress) -> bool:
        """Return whether a tensor is a constant input that was not dumped as an input in this iteration."""
        source = self.producer(address)
        if source is None or not source[0].is_constant:
            return False
        return self._first(address, self._named_at(address.rank, address.iteration)) is None

    def previous(self, address: TensorAddress) -> TensorAddress | None:
        """Return the address of the same tensor in the previous run of its graph; None if it was not dumped then."""
        row = self.row(address)
        if row is None:
            return None
        before = int(self._table.previous[row])
        if before != NO_PREVIOUS:
            return replace(address, iteration=self._table.files[before].iteration)
        initial = replace(address, iteration=INITIAL)
        node = self.node(address.rank, address.graph, address.node)
        is_first = address.iteration == 0 and node is not None and node.is_parameter and address.io == "output"
        return initial if is_first and self.row(initial) is not None else None

    def occurrences(self, address: TensorAddress) -> list[tuple[TensorAddress, int]]:
        """Return address and row of a tensor in every iteration that has it, in order."""
        files = self._table.files
        row_at: dict[int, int] = {}
        node = self.node(address.rank, address.graph, address.node)
        if node is not None and node.is_parameter and address.io == "output":
            initial = self._initial_row(replace(address, iteration=INITIAL))
            if initial is not None:
                row_at[INITIAL] = initial
        blocks = [block for (rank, _), blocks in self._blocks.items() if rank == address.rank for block in blocks]
        for graph, name, io, slot in self._keys(address):
            rows = [
                row
                for block in blocks
                for row in range(block.start, block.stop)
                if (file := files[row]).slot == slot and file.io == io and _is_called(file, graph, name)
            ]
            if rows:
                row_at.update((files[row].iteration, row) for row in rows)
                break
        constant = self._row_of_constant(address)
        if not row_at and constant is not None:
            row_at[INITIAL] = constant
        return [(replace(address, iteration=iteration), row_at[iteration]) for iteration in sorted(row_at)]

    def parameter_behind(self, file: TensorFile) -> str | None:
        """Return the parameter that a dumped input of an operator reads; None for other tensors."""
        producer = self.producer(address_of(file))
        return producer[0].name if producer is not None and producer[0].is_parameter else None

    def _row_of_constant(self, address: TensorAddress) -> int | None:
        """Return the row of a constant input; None for any other tensor, or if it was not dumped."""
        source = self.producer(address)
        if source is None or not source[0].is_constant:
            return None
        return self._named_at(address.rank, INITIAL).get((address.graph, source[0].name, "output", source[1]))

    def _initial_row(self, address: TensorAddress) -> int | None:
        kept = self._first(address, self._named_at(address.rank, INITIAL))
        if kept is not None:
            return kept
        named = self._named_at(address.rank, 0)
        graphs = [address.graph, *(graph for rank, graph in self._graphs if rank == address.rank)]
        for graph in dict.fromkeys(graphs):
            for reader, slot in self._readers_of(address.rank, graph).get((address.node, 0), ()):
                row = named.get((graph, reader, "input", slot))
                if row is not None:
                    return row
        return None

    def _foreign_of(self, rank: int) -> frozenset[str]:
        """Return the operator names of the files of a rank that belong to no node."""
        foreign = self._foreign.get(rank)
        if foreign is None:
            blocks = (block for (owner, _), blocks in self._blocks.items() if owner == rank for block in blocks)
            files = (self._table.files[row] for block in blocks for row in block)
            foreign = self._foreign[rank] = frozenset(file.op_name for file in files if file.node is None)
        return foreign

    def _first(self, address: TensorAddress, named: dict[_Key, int]) -> int | None:
        return next((named[key] for key in self._keys(address) if key in named), None)

    def _keys(self, address: TensorAddress) -> Iterator[_Key]:
        """Yield the keys under which a tensor may have been dumped, its own first."""
        yield address.graph, address.node, address.io, address.slot
        node = self.node(address.rank, address.graph, address.node)
        producer = self.producer(address)
        if node is not None and node.is_parameter:
            yield None, address.node, address.io, address.slot
        elif producer is not None and producer[0].is_operator:
            yield address.graph, producer[0].name, "output", producer[1]
        elif node is not None and node.is_operator and address.io == "output":
            readers = self._readers_of(address.rank, address.graph).get((address.node, address.slot), ())
            for reader, slot in readers:
                yield address.graph, reader, "input", slot

    def _readers_of(self, rank: int, graph: str) -> dict[tuple[str, int], list[tuple[str, int]]]:
        """Return the inputs that each output of a graph feeds, in execution order."""
        readers = self._readers.get((rank, graph))
        if readers is None:
            owner = self._graphs.get((rank, graph))
            operators = () if owner is None else owner.operators
            readers = {}
            for node in sorted(operators, key=lambda node: self._dump.node_position(rank, node)):
                for index, producer in enumerate(self.producers(rank, graph, node.name)):
                    if producer is not None:
                        readers.setdefault((producer[0].name, producer[1]), []).append((node.name, index))
            self._readers[rank, graph] = readers
        return readers

    def _named_at(self, rank: int, iteration: int) -> dict[_Key, int]:
        key = (rank, iteration)
        named = self._named.get(key)
        if named is None:
            named = {}
            for row in self.rows_at(rank, iteration).tolist():
                file = self._table.files[row]
                if file.node is None:
                    named["", file.op_name, file.io, file.slot] = row
                else:
                    named[file.graph, file.node, file.io, file.slot] = row
                    if file.op_type == "Parameter":
                        named.setdefault((None, file.node, file.io, file.slot), row)
            with self._making_room:
                self._named[key] = named
                while len(self._named) > _KEPT_ITERATIONS * len(self._dump.ranks):
                    del self._named[next(iter(self._named))]
        return named


def _blocks(files: Sequence[TensorFile]) -> dict[tuple[int, int], list[range]]:
    """Return the ranges of rows with the tensors of each rank and iteration."""
    blocks: dict[tuple[int, int], list[range]] = {}
    start = 0
    for row, file in enumerate(files):
        following = files[row + 1] if row + 1 < len(files) else None
        if following is None or following.iteration != file.iteration or following.rank != file.rank:
            blocks.setdefault((file.rank, file.iteration), []).append(range(start, row + 1))
            start = row + 1
    return blocks


def _is_called(file: TensorFile, graph: str | None, name: str) -> bool:
    if file.node is None:
        return graph == "" and file.op_name == name
    return file.node == name and (graph is None or file.graph == graph)
