"""The graphs of a rank as one program with variants, in which each node occurs once for all graphs that have it.

A training whose steps differ reports several graphs, such as one for the first step and one for all later steps. Such
graphs never run in the same step; their nodes with the same name form one entry. Graphs that run in the same step are
parts of it: only nodes that are the same tensor in all of them, weights and optimizer states, form one entry.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np

from tensight.graph.lazily import lazily
from tensight.graph.optimizers import parameter_roles
from tensight.sessions.graph_index import GraphIndex, TreeIndex
from tensight.sessions.selection import Watching

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from tensight.graph import Graph, Node, NodeKind
    from tensight.sessions.selection import WatchedNodes

Holders = int
"""The graphs of a program that have a node, as a bit mask; the first graph has the lowest bit."""


Entry = str | tuple[str, Holders]
"""A node of a program: its name; if several nodes have this name, a tuple with the graphs that have this one."""


class Program:
    """The graphs of a rank.

    Parameters
    ----------
    graphs : sequence of Graph
        In the order of their arrival.
    index : callable
        Returns the index of a graph.
    are_parts : callable
        Returns whether two graphs may run in the same step.

    Attributes
    ----------
    graphs : tuple of Graph
    names : tuple of str
        Names of the graphs.
    """

    def __init__(
        self, graphs: Sequence[Graph], index: Callable[[Graph], GraphIndex], are_parts: Callable[[Graph, Graph], bool]
    ) -> None:
        self.graphs = tuple(graphs)
        self.names = tuple(graph.name for graph in graphs)
        self._numbers = {name: number for number, name in enumerate(self.names)}
        self._index = index
        self._are_parts = are_parts
        self._colours: dict[Holders, tuple[Holders, ...]] = {}
        self._names_of: dict[Holders, tuple[str, ...]] = {}

    # --- graphs that have a node ---

    def entries(self, name: str) -> tuple[Holders, ...]:
        """Return the graphs that have a node with a name, grouped by those in which it is the same node."""
        if len(self.graphs) == 1:
            return (1,) if name in self.graphs[0] else ()
        apart = self._apart.get(name)
        if apart is not None:
            return apart
        holders = self._holders.get(name)
        return () if holders is None else (holders,)

    def entry(self, graph: str, name: str) -> Holders:
        """Return the graphs in which a node is the same as in `graph`; 0 if `graph` has no such node."""
        number = self._numbers.get(graph)
        return 0 if number is None else next((holders for holders in self.entries(name) if holders >> number & 1), 0)

    def entries_of(self, number: int, names: Sequence[str]) -> list[Entry]:
        """Return the entries of nodes of the graph with an index, by their names."""
        apart = self._apart
        if not apart:
            return list(names)
        return [
            next((name, holders) for holders in apart[name] if holders >> number & 1) if name in apart else name
            for name in names
        ]

    def holders(self, entry: Entry) -> Holders:
        """Return the graphs that have an entry."""
        return self._holders[entry] if isinstance(entry, str) else entry[1]

    def names_of(self, holders: Holders) -> tuple[str, ...]:
        """Return the names of graphs."""
        names = self._names_of.get(holders)
        if names is None:
            names = self._names_of[holders] = tuple(self.names[number] for number in _bits(holders))
        return names

    def first_of(self, graph: str, name: str) -> str:
        """Return the first graph in which a node is the same as in `graph`: its identity, whatever graph ran."""
        if len(self.graphs) == 1:
            return graph
        holders = self.entry(graph, name)
        return self.names[_first(holders)] if holders else graph

    def graph_for(self, name: str, ran: Collection[str], graph: str = "") -> str:
        """Return the graph in which to show a node, preferably one that ran.

        Parameters
        ----------
        name : str
            Name of the node.
        ran : collection of str
            The graphs that ran in the step.
        graph : str
            A graph that has the node; by default any.

        Returns
        -------
        str
            If no graph that ran has the node: `graph`, or else the newest graph with the node; empty if there is none.
        """
        if graph in ran:
            return graph
        entries = (self.entry(graph, name),) if graph else self.entries(name)
        for holders in entries:
            for number in _bits(holders):
                if self.names[number] in ran:
                    return self.names[number]
        if graph or not entries:
            return graph
        return self.names[entries[-1].bit_length() - 1]

    @lazily
    def _holders(self) -> dict[str, Holders]:
        """The graphs that have a node with a name."""
        return self._holders_and_apart[0]

    @lazily
    def _apart(self) -> dict[str, tuple[Holders, ...]]:
        """For names that several nodes have: the graphs that have each of these nodes."""
        return self._holders_and_apart[1]

    @lazily
    def _holders_and_apart(self) -> tuple[dict[str, Holders], dict[str, tuple[Holders, ...]]]:
        holders: dict[str, Holders] = {}
        first: dict[str, Node] = {}
        unlike: set[str] = set()
        for number, graph in enumerate(self.graphs):
            bit = 1 << number
            for node in graph.nodes:
                before = first.setdefault(node.name, node)
                if before is node:
                    holders[node.name] = bit
                    continue
                holders[node.name] |= bit
                if before.type != node.type or before.raw_value != node.raw_value:
                    unlike.add(node.name)
        apart = {}
        for name, mask in holders.items():
            if mask & (mask - 1) and (name in unlike or len(self._coloured(mask)) > 1):
                pieces = tuple(self._pieces(name, mask, is_unlike=name in unlike))
                if len(pieces) > 1:
                    apart[name] = pieces
        return holders, apart

    def _pieces(self, name: str, holders: Holders, *, is_unlike: bool) -> Iterator[Holders]:
        """Yield groups of the graphs in which the nodes with a name are the same."""
        if not is_unlike:
            yield from (holders,) if self._is_kept(name, holders) else self._coloured(holders)
            return
        masks: dict[tuple[str, bytes], Holders] = {}
        for number in _bits(holders):
            node = self.graphs[number].node(name)
            key = (node.type, node.raw_value)
            masks[key] = masks.get(key, 0) | 1 << number
        for mask in masks.values():
            yield from self._pieces(name, mask, is_unlike=False)

    def _is_kept(self, name: str, holders: Holders) -> bool:
        """Whether a node is a weight or an optimizer state: the same tensor in all graphs of a step."""
        graphs = [self.graphs[number] for number in _bits(holders)]
        if not graphs[0].node(name).is_parameter:
            return False
        return any(
            name in names
            for graph in graphs
            for roles in (parameter_roles(graph),)
            for names in (roles.trainable, roles.frozen, roles.states)
        )

    def _coloured(self, holders: Holders) -> tuple[Holders, ...]:
        """Split graphs into groups in which no two run in the same step."""
        groups = self._colours.get(holders)
        if groups is None:
            number_groups: list[list[int]] = []
            for number in _bits(holders):
                graph = self.graphs[number]
                for group in number_groups:
                    if not any(self._are_parts(self.graphs[other], graph) for other in group):
                        group.append(number)
                        break
                else:
                    number_groups.append([number])
            groups = self._colours[holders] = tuple(sum(1 << number for number in group) for group in number_groups)
        return groups

    # --- all nodes ---

    def stacks(self) -> Iterator[tuple[tuple[str, ...], ...]]:
        """Yield the stacks of each operator that has any, of all its graphs."""
        if len(self.graphs) == 1:
            yield from ((node.stack,) for node in self.graphs[0].operators if node.stack)
            return
        for number, graph in enumerate(self.graphs):
            for node in graph.operators:
                holders = self.entry(graph.name, node.name)
                if _first(holders) == number:
                    nodes = (self.graphs[other].node(node.name) for other in _bits(holders))
                    stacks = tuple(dict.fromkeys(variant.stack for variant in nodes if variant.stack))
                    if stacks:
                        yield stacks

    @lazily
    def indexes(self) -> tuple[GraphIndex, ...]:
        """The indexes of the graphs."""
        return tuple(map(self._index, self.graphs))

    @lazily
    def tree(self) -> GraphIndex | ProgramIndex:
        """Index of all nodes."""
        return self.indexes[0] if len(self.indexes) == 1 else ProgramIndex(self)

    def watching(self, watched: Sequence[WatchedNodes]) -> Watching:
        """Return how far the nodes of the tree are watched, given the watched nodes of each graph."""
        tree = self.tree
        return tree.watching(watched) if isinstance(tree, ProgramIndex) else watched[0].watching


class Programs:
    """The programs of a session and the indexes of its graphs, created at first access.

    Parameters
    ----------
    position : callable, optional
        Returns for a graph a function that returns the position of an operator in execution order; None if unknown.
    are_parts : callable, optional
        Returns whether two graphs of a rank may run in the same step; by default any two may.
    """

    def __init__(
        self,
        position: Callable[[Graph], Callable[[Node], int] | None] | None = None,
        are_parts: Callable[[Graph, Graph], bool] | None = None,
    ) -> None:
        self._position = position
        self._are_parts = are_parts or (lambda graph, other: True)  # noqa: ARG005 - nothing is known about them
        self._indexes: dict[Graph, GraphIndex] = {}
        self._programs: dict[tuple[Graph, ...], Program] = {}
        self._lock = threading.Lock()

    def index(self, graph: Graph) -> GraphIndex:
        """Return the index of a graph."""
        index = self._indexes.get(graph)
        if index is None:
            with self._lock:
                index = self._indexes.get(graph)
                if index is None:
                    position = self._position(graph) if self._position is not None else None
                    index = self._indexes[graph] = GraphIndex(graph, position)
        return index

    def of(self, graphs: tuple[Graph, ...]) -> Program:
        """Return the program of the graphs of a rank."""
        program = self._programs.get(graphs)
        if program is None:
            program = self._programs.setdefault(graphs, Program(graphs, self.index, self._are_parts))
        return program

    def keep_only(self, ranks: Iterable[tuple[Graph, ...]]) -> None:
        """Drop programs and indexes of all other graphs.

        Parameters
        ----------
        ranks : iterable of tuple of Graph
            The graphs of each rank.
        """
        programs = set(ranks)
        graphs = {graph for rank in programs for graph in rank}
        with self._lock:
            self._indexes = {graph: index for graph, index in self._indexes.items() if graph in graphs}
            self._programs = {graphs: program for graphs, program in self._programs.items() if graphs in programs}


class ProgramIndex(TreeIndex):
    """The entries of a program of several graphs, each with its position.

    Attributes
    ----------
    program : Program
    order : tuple of Node
        For each entry, the node of the first graph that has it.
    holders : tuple of int
        For each entry, the graphs that have it.
    positions : tuple of ndarray of int32
        For each graph, maps positions in its index to positions in this one.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        entries = _merged(program)
        nodes = list(entries.values())
        operators = [node for node in nodes if node.is_operator]
        parameters = [node for node in nodes if node.is_parameter]
        constants = [node for node in nodes if node.is_constant]
        super().__init__("", operators, parameters, constants)
        position_of_node = {node: position for position, node in enumerate(self.order)}
        position_of = {entry: position_of_node[node] for entry, node in entries.items()}
        holders = np.empty(len(self.order), object)
        for entry, position in position_of.items():
            holders[position] = program.holders(entry)
        self.holders: tuple[Holders, ...] = tuple(holders)
        self.positions = tuple(
            np.fromiter((position_of[entry] for entry in program.entries_of(number, index.names)), np.int32, len(index))
            for number, index in enumerate(program.indexes)
        )
        file_order = np.empty(len(self.order), np.int64)
        file_order[np.fromiter(position_of.values(), np.int64, len(position_of))] = np.arange(len(position_of))
        self.file_order: tuple[int, ...] = tuple(file_order.tolist())

    def shown(self, position: int, ran: Collection[str]) -> tuple[GraphIndex, Node]:
        """Return the graph in which an entry is shown, preferably one that ran, and the node of that graph."""
        holders, names = self.holders[position], self.program.names
        numbers = list(_bits(holders))
        number = next((candidate for candidate in numbers if names[candidate] in ran), numbers[-1])
        index = self.program.indexes[number]
        return index, index.graph.node(self.order[position].name)

    def graphs_of(self, position: int) -> tuple[str, ...]:
        """Return the graphs that have an entry."""
        return self.program.names_of(self.holders[position])

    def graphs_below(self, start: int, end: int) -> tuple[str, ...]:
        """Return the graphs that have any entry from `start` to `end`."""
        below = 0
        for holders in set(self.holders[start:end]):
            below |= holders
        return self.program.names_of(below)

    def is_apart(self, position: int) -> bool:
        """Whether other nodes have the name of this one."""
        return len(self.program.entries(self.order[position].name)) > 1

    def of_graphs(self, masks: Iterable[NDArray[np.bool_]]) -> NDArray[np.bool_]:
        """Combine masks of the nodes of each graph into a mask of the entries.

        Parameters
        ----------
        masks : iterable of ndarray of bool
            A mask for each graph, in the order of its index.
        """
        mask = np.zeros(len(self.order), bool)
        for positions, graph_mask in zip(self.positions, masks, strict=True):
            mask[positions[graph_mask]] = True
        return mask

    def of_kind(self, kind: NodeKind) -> NDArray[np.bool_]:
        """Return a mask of the entries that are of a kind in any of their graphs; shape (entries,)."""
        return self.of_graphs(index.of_kind(kind) for index in self.program.indexes)

    def watching(self, watched: Sequence[WatchedNodes]) -> Watching:
        """Return how far the entries are watched, given the watched nodes of each graph."""
        amounts, possible = (np.zeros(len(self.order), np.int64) for _ in range(2))
        for positions, index, watched_nodes in zip(self.positions, self.program.indexes, watched, strict=True):
            np.add.at(amounts, positions, watched_nodes.mask)
            np.add.at(possible, positions, index.watchable)
        return Watching(amounts, possible)


def _merged(program: Program) -> dict[Entry, Node]:
    """Return all entries in one order; entries added by a later graph follow their predecessors in that graph."""
    head: Entry | None = None
    last: Entry | None = None
    following: dict[Entry, Entry | None] = {}
    nodes: dict[Entry, Node] = {}
    for number, index in enumerate(program.indexes):
        entries = program.entries_of(number, [node.name for node in index.sequence])
        operators = len(index.sequence) - index.operators
        is_new = not any(entry in nodes for entry in entries[operators:])
        before: Entry | None = None
        for position, (entry, node) in enumerate(zip(entries, index.sequence, strict=True)):
            if is_new and position == operators:
                before = last
            if entry not in nodes:
                nodes[entry] = node
                if before is None:
                    following[entry], head = head, entry
                else:
                    following[entry], following[before] = following[before], entry
                if following[entry] is None:
                    last = entry
            before = entry
    ordered = {}
    while head is not None:
        ordered[head] = nodes[head]
        head = following[head]
    return ordered


def _bits(holders: Holders) -> Iterator[int]:
    """Yield the indices of the graphs in a bit mask."""
    while holders:
        lowest = holders & -holders
        yield lowest.bit_length() - 1
        holders ^= lowest


def _first(holders: Holders) -> int:
    return (holders & -holders).bit_length() - 1
