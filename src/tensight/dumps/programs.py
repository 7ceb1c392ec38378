"""Programs: what ranks that run the same graphs have in common, read once for all of them.

A run of a thousand ranks has a few different programs, each in as many files as it has ranks. Programs are shared as
long as any of their ranks, or anyone else, holds them.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from tensight.dumps.execution import ExecutionOrder
from tensight.dumps.matching import NodeMatcher
from tensight.graph import Graph, parse_graph

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tensight.dumps.indexing import FolderPlans

_graphs: WeakValueDictionary[bytes, Graph] = WeakValueDictionary()
_programs: WeakValueDictionary[object, Program] = WeakValueDictionary()


def shared_graph(data: bytes, *, where: str) -> Graph:
    """Parse a graph file, or return the graph that an equal file gave.

    Parameters
    ----------
    data : bytes
        The file.
    where : str
        The file's name, for messages.

    Raises
    ------
    GraphError
        The data are not a graph, damaged, or too large.
    """
    digest = hashlib.blake2b(data, digest_size=16).digest()
    graph = _graphs.get(digest)
    if graph is None:
        graph = parse_graph(data, where=where)
        if not graph.problems:  # which name the file
            _graphs[digest] = graph
    return graph


class Program:
    """The graphs of a rank, the order in which they run, and how files and whole folders are matched to their nodes.

    Parameters
    ----------
    graphs : sequence of Graph
        In the order of their first runs.
    orders : mapping of int to tuple of str
        Operators by graph id in the order of execution, as listed.
    ran : mapping of int to collection of int
        The iterations of root graphs.

    Attributes
    ----------
    order : ExecutionOrder
    """

    def __init__(
        self, graphs: Sequence[Graph], orders: Mapping[int, tuple[str, ...]], ran: Mapping[int, Collection[int]]
    ) -> None:
        self._graphs = sorted(graphs, key=lambda graph: (graph.graph_id, graph.name))
        self.order = ExecutionOrder(graphs, orders, ran)
        self._matchers: dict[int, NodeMatcher] = {}
        self._plans: dict[tuple[int, bool], FolderPlans] = {}

    def matcher(self, root_id: int) -> NodeMatcher:
        """Return what matches files to the nodes of a root graph and its sub-graphs.

        Parameters
        ----------
        root_id : int
        """
        matcher = self._matchers.get(root_id)
        if matcher is None:
            graphs = [graph for graph in self._graphs if graph.root_id == root_id]
            graphs = graphs or [graph for graph in self._graphs if graph.graph_id == root_id]
            matcher = self._matchers[root_id] = NodeMatcher(graphs, self.order, root_id)
        return matcher

    def plans(self, root_id: int, *, with_unwritten: bool) -> FolderPlans:
        """Return the plans of the folders of a root graph that were indexed with its matcher.

        Parameters
        ----------
        root_id : int
        with_unwritten : bool
            Whether unwritten outputs count as tensors.
        """
        return self._plans.setdefault((root_id, with_unwritten), {})


def shared_program(
    graphs: Sequence[Graph], orders: Mapping[int, tuple[str, ...]], ran: Mapping[int, Collection[int]]
) -> Program:
    """Return the program of a rank, which is that of the ranks with the same graphs, orders and iterations.

    Parameters
    ----------
    graphs, orders, ran
        As for `Program`.
    """
    key = (
        # A program holds its graphs, so their ids are not used again while it exists.
        tuple(map(id, graphs)),
        tuple(sorted(orders.items())),
        tuple(sorted((root, tuple(iterations)) for root, iterations in ran.items())),
    )
    program = _programs.get(key)
    if program is None:
        program = _programs[key] = Program(graphs, orders, ran)
    return program
