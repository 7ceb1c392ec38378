"""The graphs of a rank as one program with variants: each node once, whichever of the graphs have it.

A training whose steps compute different things reports several graphs: one of the first step, one of all later ones.
Of graphs of which only one runs in a step, nodes of one name are one entry. Graphs that run in the same step are parts
of it: of their nodes only those that are the same tensor, weights and states of optimizers, are one entry.
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
"""Which graphs of a program have a node: a number with a bit for each, the first graph's the lowest."""


Entry = str | tuple[str, Holders]
"""A node of a program: its name, where it means several nodes with the graphs that have this one."""


class Program:
    """The graphs of a rank.

    Parameters
    ----------
    graphs : sequence of Graph
        In the order in which they came.
    index : callable
        Returns the index of a graph.
    are_parts : callable
        Returns whether two graphs may run in the same step.

    Attributes
    ----------
    graphs : tuple of Graph
    names : tuple of str
        Of the graphs.
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

    # --- which graphs have a node ---

    def entries(self, name: str) -> tuple[Holders, ...]:
        """Return the graphs that have a node of a name: those in which it is the same node together."""
        if len(self.graphs) == 1:
            return (1,) if name in self.graphs[0] else ()
        apart = self._apart.get(name)
        if apart is not None:
            return apart
        holders = self._holders.get(name)
        return () if holders is None else (holders,)

    def entry(self, graph: str, name: str) -> Holders:
        """Return the graphs in which a node is the same as in one of them; 0 if that has none of this name."""
        number = self._numbers.get(graph)
        return 0 if number is None else next((one for one in self.entries(name) if one >> number & 1), 0)

    def entries_of(self, number: int, names: Sequence[str]) -> list[Entry]:
        """Return the entries of some nodes of the graph of a number."""
        apart = self._apart
        if not apart:
            return list(names)
        return [
            next((name, one) for one in apart[name] if one >> number & 1) if name in apart else name for name in names
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
        """Return the first graph in which a node is the same as in one of them: what it is called whatever ran."""
        if len(self.graphs) == 1:
            return graph
        holders = self.entry(graph, name)
        return self.names[_first(holders)] if holders else graph

    def graph_for(self, name: str, ran: Collection[str], graph: str = "") -> str:
        """Return the graph in which a node is looked at: of those that have it one that ran.

        Parameters
        ----------
        name : str
            Of the node.
        ran : collection of str
            The graphs that ran in the step.
        graph : str
            One in which it is; by default any.

        Returns
        -------
        str
            `graph` if none of those that ran has the node; without it the newest that has it; empty if none has.
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
        """Which graphs have a node of a name."""
        return self._found[0]

    @lazily
    def _apart(self) -> dict[str, tuple[Holders, ...]]:
        """Of names that mean several nodes, which graphs have which."""
        return self._found[1]

    @lazily
    def _found(self) -> tuple[dict[str, Holders], dict[str, tuple[Holders, ...]]]:
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
        for name, found in holders.items():
            if found & (found - 1) and (name in unlike or len(self._coloured(found)) > 1):
                pieces = tuple(self._pieces(name, found, is_unlike=name in unlike))
                if len(pieces) > 1:
                    apart[name] = pieces
        return holders, apart

    def _pieces(self, name: str, holders: Holders, *, is_unlike: bool) -> Iterator[Holders]:
        """Yield the graphs in which nodes of a name are the same."""
        if not is_unlike:
            yield from (holders,) if self._is_kept(name, holders) else self._coloured(holders)
            return
        alike: dict[tuple[str, bytes], Holders] = {}
        for number in _bits(holders):
            node = self.graphs[number].node(name)
            key = (node.type, node.raw_value)
            alike[key] = alike.get(key, 0) | 1 << number
        for found in alike.values():
            yield from self._pieces(name, found, is_unlike=False)

    def _is_kept(self, name: str, holders: Holders) -> bool:
        """Whether a node is a weight or a state of an optimizer: one tensor, whichever graphs of a step use it."""
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
        """Return graphs in groups of which no two run in the same step."""
        groups = self._colours.get(holders)
        if groups is None:
            found: list[list[int]] = []
            for number in _bits(holders):
                graph = self.graphs[number]
                for group in found:
                    if not any(self._are_parts(self.graphs[other], graph) for other in group):
                        group.append(number)
                        break
                else:
                    found.append([number])
            groups = self._colours[holders] = tuple(sum(1 << number for number in group) for group in found)
        return groups

    # --- all nodes ---

    def stacks(self) -> Iterator[tuple[tuple[str, ...], ...]]:
        """Yield for each operator with lines of code its stacks, in whichever graphs it is."""
        if len(self.graphs) == 1:
            yield from ((node.stack,) for node in self.graphs[0].operators if node.stack)
            return
        for number, graph in enumerate(self.graphs):
            for node in graph.operators:
                holders = self.entry(graph.name, node.name)
                if _first(holders) == number:
                    nodes = (self.graphs[other].node(node.name) for other in _bits(holders))
                    stacks = tuple(dict.fromkeys(one.stack for one in nodes if one.stack))
                    if stacks:
                        yield stacks

    @lazily
    def indexes(self) -> tuple[GraphIndex, ...]:
        """The indexes of the graphs."""
        return tuple(map(self._index, self.graphs))

    @lazily
    def tree(self) -> GraphIndex | ProgramIndex:
        """All nodes, laid out for quick answers."""
        return self.indexes[0] if len(self.indexes) == 1 else ProgramIndex(self)

    def watching(self, watched: Sequence[WatchedNodes]) -> Watching:
        """Return how far the nodes of the tree are watched, of what is watched of each graph."""
        tree = self.tree
        return tree.watching(watched) if isinstance(tree, ProgramIndex) else watched[0].watching


class Programs:
    """The programs of a session and the indexes of its graphs, each made when it is first asked for.

    Parameters
    ----------
    position : callable, optional
        Returns for a graph where its operators stand in the order of execution; None if that is not known.
    are_parts : callable, optional
        Returns whether two graphs of a rank may run in the same step; without it any two may.
    """

    def __init__(
        self,
        position: Callable[[Graph], Callable[[Node], int] | None] | None = None,
        are_parts: Callable[[Graph, Graph], bool] | None = None,
    ) -> None:
        self._position = position
        self._are_parts = are_parts or (lambda graph, other: True)  # noqa: ARG005 - nothing is known of them
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
        """Forget everything of all other graphs.

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
        Of each entry the node of the first graph that has it.
    holders : tuple of int
        Of each entry the graphs that have it.
    positions : tuple of ndarray of int32
        For each graph, the position here of each position of its own index.
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
        """Return the graph in which an entry is shown, one that ran if it can be, and the node that it has."""
        holders, names = self.holders[position], self.program.names
        numbers = list(_bits(holders))
        number = next((one for one in numbers if names[one] in ran), numbers[-1])
        index = self.program.indexes[number]
        return index, index.graph.node(self.order[position].name)

    def graphs_of(self, position: int) -> tuple[str, ...]:
        """Return the graphs that have an entry."""
        return self.program.names_of(self.holders[position])

    def graphs_below(self, start: int, end: int) -> tuple[str, ...]:
        """Return the graphs that have any of some entries."""
        below = 0
        for holders in set(self.holders[start:end]):
            below |= holders
        return self.program.names_of(below)

    def is_apart(self, position: int) -> bool:
        """Whether other nodes have the name of this one."""
        return len(self.program.entries(self.order[position].name)) > 1

    def of_graphs(self, found: Iterable[NDArray[np.bool_]]) -> NDArray[np.bool_]:
        """Return which entries are among some nodes of the graphs.

        Parameters
        ----------
        found : iterable of ndarray of bool
            For each graph, which of its nodes, in the order of its index.
        """
        mask = np.zeros(len(self.order), bool)
        for positions, own in zip(self.positions, found, strict=True):
            mask[positions[own]] = True
        return mask

    def of_kind(self, kind: NodeKind) -> NDArray[np.bool_]:
        """Return which entries are of a kind in any of their graphs; shape (entries,)."""
        return self.of_graphs(index.of_kind(kind) for index in self.program.indexes)

    def watching(self, watched: Sequence[WatchedNodes]) -> Watching:
        """Return how far the entries are watched, of what is watched of each graph."""
        amounts, possible = (np.zeros(len(self.order), np.int64) for _ in range(2))
        for positions, index, one in zip(self.positions, self.program.indexes, watched, strict=True):
            np.add.at(amounts, positions, one.mask)
            np.add.at(possible, positions, index.watchable)
        return Watching(amounts, possible)


def _merged(program: Program) -> dict[Entry, Node]:
    """Return all entries in one order: what a later graph adds stands behind what runs before it there."""
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
    """Yield the numbers of graphs."""
    while holders:
        lowest = holders & -holders
        yield lowest.bit_length() - 1
        holders ^= lowest


def _first(holders: Holders) -> int:
    return (holders & -holders).bit_length() - 1
