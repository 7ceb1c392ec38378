"""The graphs of one rank, and which of their nodes a process means."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from tensight.dumps.execution import UNMATCHED
from tensight.sessions.sources import node_of_use, user_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensight.dumps.execution import ExecutionOrder
    from tensight.graph import Graph, Node
    from tensight.sessions.records import Frame


_VERSIONS = itertools.count(1)


class RankGraphs:
    """The graphs of a rank as they are at one moment; other graphs make another object.

    Parameters
    ----------
    graphs : tuple of Graph
    order : ExecutionOrder or None
        Of their nodes.

    Attributes
    ----------
    version : int
        No other object has the same.
    """

    def __init__(self, graphs: tuple[Graph, ...] = (), order: ExecutionOrder | None = None) -> None:
        self.graphs = graphs
        self.version = next(_VERSIONS)
        self._order = order
        self._lines: dict[Node, Frame | None] = {}
        self._by_name = {graph.name: graph for graph in graphs}
        # A process knows nodes by the name in the file, which the graph makes unique where it is not.
        self._nodes: dict[str, list[tuple[Graph, Node]]] = {}
        for graph in graphs:
            for node in graph.nodes:
                self._nodes.setdefault(node.full_name or node.name, []).append((graph, node))

    def graph(self, name: str) -> Graph | None:
        """Return the graph of a name."""
        return self._by_name.get(name)

    def node(self, graph: str, name: str) -> tuple[Graph, Node] | None:
        """Return the node of a name in a graph, or in any if the graph's name is empty."""
        for found in [self._by_name.get(graph)] if graph else self.graphs:
            node = found.get(name) if found is not None else None
            if found is not None and node is not None:
                return found, node
        return None

    def meant(self, name: str, graph: str = "", root_id: int | None = None) -> tuple[Graph, Node] | None:
        """Return the node that a process calls so.

        Parameters
        ----------
        name : str
            Full name. Of a parameter, whatever stands before the last slash may be a scope.
        graph : str
            Name of its graph, if the process told.
        root_id : int, optional
            The root graph in which the process stands: of several graphs with such a node, one of this is meant.
        """
        found = self._nodes.get(name) or [
            (owner, node) for owner, node in self._nodes.get(name.rpartition("/")[2], ()) if not node.is_operator
        ]
        if not found:
            return self.node(graph, name)
        named = [one for one in found if one[0].name == graph]
        rooted = [one for one in found if one[0].root_id == root_id]
        return (named or rooted or found)[0]

    def graphs_with(self, name: str) -> Iterator[Graph]:
        """Yield the graphs that have a node which a process calls so."""
        return (graph for graph, _ in self._nodes.get(name, ()))

    def position(self, node: Node) -> int | None:
        """Return where a node stands in the order of execution; None for constants and unknown nodes."""
        if self._order is None:
            return None
        position = self._order.position(node)
        return position if 0 <= position < UNMATCHED else None

    def number(self, node: Node) -> int | None:
        """Return the place of a node in the order of execution of its step, from 1; None for constants."""
        return None if self._order is None else self._order.number(node)

    def line(self, node: Node) -> Frame | None:
        """Return the person's line of code behind a node; kept, for nodes that hit once hit again.

        A parameter has none of its own, nor has its gradient: there a person looks where it is used first.
        """
        try:
            return self._lines[node]
        except KeyError:
            owner = next((graph for graph in self.graphs if graph.get(node.name) is node), None)
            used = None if owner is None else self.used(owner.name, node.name)
            return self._lines.setdefault(node, user_line(node) or user_line(used))

    def used(self, graph: str, name: str) -> Node | None:
        """Return the operator in whose line a person looks for a parameter, its gradient or its update."""
        found = self.node(graph, name)
        return None if found is None else node_of_use(*found, self.sort_position)

    def sort_position(self, node: Node) -> int:
        """Return the position of a node in the order of execution; one without, such as a pass-through, comes last."""
        position = self.position(node)
        return UNMATCHED if position is None else position

    def graph_of_root(self, root_id: int | None) -> Graph | None:
        """Return the root graph of a number, or any graph that belongs to it."""
        own = [graph for graph in self.graphs if graph.root_id == root_id]
        return next((graph for graph in own if graph.graph_id == root_id), own[0] if own else None)

    def graph_that_ran(self, root_id: int | None) -> Graph | None:
        """Return the root graph of a number; of an unknown one the only root graph, if there is only one."""
        if root_id is None and len(self.root_ids) == 1:
            root_id = self.root_ids[0]
        return None if root_id is None else self.graph_of_root(root_id)

    def family(self, root_id: int | None) -> tuple[str, ...]:
        """Return the names of a root graph and of the graphs that belong to it."""
        return tuple(graph.name for graph in self.graphs if graph.root_id == root_id)

    @property
    def root_ids(self) -> tuple[int, ...]:
        """Numbers of the root graphs, in order."""
        return tuple(sorted({graph.root_id for graph in self.graphs}))
