"""The graphs of a rank, and lookup of the nodes to which a process refers."""

from __future__ import annotations

import itertools
from types import MappingProxyType
from typing import TYPE_CHECKING

from tensight.dumps.execution import UNMATCHED
from tensight.sessions.sources import node_of_use, user_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tensight.dumps.execution import ExecutionOrder
    from tensight.graph import Graph, Node
    from tensight.sessions.records import Frame


_VERSIONS = itertools.count(1)


class RankGraphs:
    """The graphs of a rank. Immutable; when graphs arrive, a new object is created.

    Parameters
    ----------
    graphs : tuple of Graph
    order : ExecutionOrder or None
        Execution order of their nodes.
    size_bytes : mapping of str to int
        Sizes of the graphs as they were sent, by name.

    Attributes
    ----------
    version : int
        Unique for each object.
    """

    def __init__(
        self,
        graphs: tuple[Graph, ...] = (),
        order: ExecutionOrder | None = None,
        size_bytes: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self.graphs = graphs
        self.size_bytes = size_bytes
        self.version = next(_VERSIONS)
        self._order = order
        self._lines: dict[Node, Frame | None] = {}
        self._by_name = {graph.name: graph for graph in graphs}
        # A process uses names as in the file, which are not always unique; the graph makes them unique.
        self._nodes: dict[str, list[tuple[Graph, Node]]] = {}
        for graph in graphs:
            for node in graph.nodes:
                self._nodes.setdefault(node.full_name or node.name, []).append((graph, node))

    def graph(self, name: str) -> Graph | None:
        """Return the graph with a name; None if there is none."""
        return self._by_name.get(name)

    def node(self, graph: str, name: str) -> tuple[Graph, Node] | None:
        """Return the node with a name in a graph, or in any graph if its name is empty."""
        for owner in [self._by_name.get(graph)] if graph else self.graphs:
            node = owner.get(name) if owner is not None else None
            if owner is not None and node is not None:
                return owner, node
        return None

    def meant(self, name: str, graph: str = "", root_id: int | None = None) -> tuple[Graph, Node] | None:
        """Return the node to which a process refers by a name.

        Parameters
        ----------
        name : str
            Full name. For a parameter, everything before the last slash may be a scope.
        graph : str
            Name of its graph, if reported.
        root_id : int, optional
            The root graph in which the process is stopped; preferred if several graphs have such a node.
        """
        candidates = self._nodes.get(name) or [
            (owner, node) for owner, node in self._nodes.get(name.rpartition("/")[2], ()) if not node.is_operator
        ]
        if not candidates:
            return self.node(graph, name)
        named = [candidate for candidate in candidates if candidate[0].name == graph]
        rooted = [candidate for candidate in candidates if candidate[0].root_id == root_id]
        return (named or rooted or candidates)[0]

    def position(self, node: Node) -> int | None:
        """Return the position of a node in execution order; None for constants and unknown nodes."""
        if self._order is None:
            return None
        position = self._order.position(node)
        return position if 0 <= position < UNMATCHED else None

    def number(self, node: Node) -> int | None:
        """Return the position of a node in the execution order of its step, from 1; None for constants."""
        return None if self._order is None else self._order.number(node)

    def line(self, node: Node) -> Frame | None:
        """Return the line of user code of a node; cached, because nodes with hits tend to hit again.

        For a parameter and its gradient, which have no line, it is the line of the first use of the parameter.
        """
        try:
            return self._lines[node]
        except KeyError:
            owner = next((graph for graph in self.graphs if graph.get(node.name) is node), None)
            used = None if owner is None else self.used(owner.name, node.name)
            return self._lines.setdefault(node, user_line(node) or user_line(used))

    def used(self, graph: str, name: str) -> Node | None:
        """Return the operator that uses a parameter, given the parameter, its gradient or its update."""
        graph_and_node = self.node(graph, name)
        return None if graph_and_node is None else node_of_use(*graph_and_node, self.sort_position)

    def sort_position(self, node: Node) -> int:
        """Return the position of a node in execution order; nodes without one, such as pass-throughs, come last."""
        position = self.position(node)
        return UNMATCHED if position is None else position

    def graph_of_root(self, root_id: int | None) -> Graph | None:
        """Return the root graph with a number, or else any graph that belongs to it."""
        graphs = [graph for graph in self.graphs if graph.root_id == root_id]
        return next((graph for graph in graphs if graph.graph_id == root_id), graphs[0] if graphs else None)

    def graph_that_ran(self, root_id: int | None) -> Graph | None:
        """Return the root graph with a number; for None, the only root graph if there is only one."""
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
