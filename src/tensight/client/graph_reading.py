"""The graphs of a session: nodes, scopes, neighbours, and the code behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensight.client.formatting import EXECUTIONS, FOUND, SOURCES, TREE
from tensight.client.part import SessionPart
from tensight.graph.naming import unclear
from tensight.sessions.errors import NotFoundError
from tensight.sessions.records import (
    Execution,
    ExecutionPage,
    FoundNode,
    GraphLevel,
    GraphRecord,
    NodeRecord,
    NodesMeant,
    RelationGraph,
    SearchPage,
    SourceFile,
    SourcePage,
    TreeEntry,
    TreePage,
)

if TYPE_CHECKING:
    from tensight.client.rows import Rows


class GraphReading(SessionPart):
    """Queries on the graphs of the run."""

    def graphs(self, rank: int | None = None) -> list[GraphRecord]:
        """Return the graphs of a rank, or of all.

        Parameters
        ----------
        rank : int, optional
            Rank of the process; by default all.

        Examples
        --------
        >>> [graph.name for graph in session.graphs()]
        ['kernel_graph0']
        """
        return self._get(list[GraphRecord], "graphs", rank=rank)

    def nodes(
        self,
        name: str = "",
        *,
        type: str = "",  # noqa: A002 - the usual name
        kind: str = "",
        stack: str = "",
        rank: int | None = None,
        graph: str = "",
        regex: bool = False,
        case_sensitive: bool = False,
        watchpoint: int | None = None,
    ) -> Rows[FoundNode]:
        """Find nodes that match all criteria.

        Parameters
        ----------
        name : str
            A part of the full name.
        type : str
            A part of the operator's type, such as ``Conv2D``, case-insensitive.
        kind : str
            ``operator``, ``parameter``, ``constant``, or a role of tensors: ``weight``, ``gradient``, ``activation``.
        stack : str
            A part of ``file:line code`` of any line of code behind a node.
        rank, graph
            Search only these.
        regex : bool
            Whether `name` is a regular expression.
        case_sensitive : bool
            Whether to match `name` case-sensitively.
        watchpoint : int, optional
            Return for each node whether this watchpoint watches it.

        Returns
        -------
        Rows of FoundNode
            In graph order.

        Examples
        --------
        >>> [found.entry.type for found in session.nodes(stack="sick_network.py:31")]
        ['Log']
        """
        parameters = {
            "name": name or None,
            "type": type or None,
            "kind": kind or None,
            "stack": stack or None,
            "rank": rank,
            "graph": graph or None,
            "regex": regex,
            "case_sensitive": case_sensitive,
            "watchpoint": watchpoint,
        }
        return self._rows("nodes", parameters, SearchPage, lambda page: (page.total, page.nodes), FOUND)

    def node(self, name: str, *, rank: int = 0, graph: str = "") -> NodeRecord:
        """Return everything that the graph contains about a node.

        Parameters
        ----------
        name : str
            Its name, or the end of it: a weight takes precedence over its optimizer states.
        rank : int
            Rank of the process, from 0.
        graph : str
            By default the one that ran in the current step if that has the node, else the newest that has it.

        Raises
        ------
        NotFoundError
            There is no such node, or several; the message names them, or similar ones.

        Examples
        --------
        >>> conv = session.node("Default/network-Loss/network-SickNetwork/conv-Conv2d/Conv2D-op0")
        >>> [slot.peer for slot in conv.inputs]
        ['inputs0', 'network.conv.weight']
        """
        graph, name = self._node_meant(name, rank, graph)
        return self._get(NodeRecord, "node", rank=rank, graph=graph, name=name)

    def tree(
        self, scope: str = "", *, rank: int = 0, graph: str = "", watchpoint: int | None = None
    ) -> Rows[TreeEntry]:
        """Return the entries directly below a scope; at the root also the groups of parameters and constants.

        Without a graph, all graphs of the rank are treated as one program, which has each node once.

        Parameters
        ----------
        scope : str
            Path of the scope, or ``@parameters`` or ``@constants`` for these groups; empty for the root.
        rank : int
            Rank of the process, from 0.
        graph : str
            Name of a graph; empty for all graphs of the rank as one program.
        watchpoint : int, optional
            Number of a watchpoint; each entry then has the number of its watched nodes.

        Examples
        --------
        >>> [entry.label for entry in session.tree()]
        ['Default', 'Expand', 'Gradients', 'parameters', 'constants']
        """
        parameters = {"scope": scope, "rank": rank, "graph": graph or None, "watchpoint": watchpoint}
        return self._rows("tree", parameters, TreePage, lambda page: (page.total, page.entries), TREE)

    def level(self, scope: str = "", *, rank: int = 0, graph: str = "", limit: int = 1500) -> GraphLevel:
        """Return a scope with the edges between its entries, as the page draws it.

        Parameters
        ----------
        scope : str
            Path of the scope, or ``@parameters`` or ``@constants`` for these groups; empty for the root.
        rank : int
            Rank of the process, from 0.
        graph : str
            By default the one that ran in the current step.
        limit : int
            Maximum number of entries.

        Examples
        --------
        >>> level = session.level("Default/network-Loss")
        >>> len(level.entries) > 1, len(level.edges) > 1
        (True, True)
        """
        return self._get(GraphLevel, "level", rank=rank, graph=graph or None, scope=scope, limit=limit)

    def relations(self, address: object, *, hops: int = 1, limit: int = 200) -> RelationGraph:
        """Return the node of a tensor with its producers and the consumers of the tensor.

        Parameters
        ----------
        address : str, or anything with an address
            Address of the tensor.
        hops : int
            Distance from the node in edges.
        limit : int
            Maximum number of nodes.

        Examples
        --------
        >>> relations = session.relations(tensor)
        >>> sorted({node.distance for node in relations.nodes})
        [0, 1]
        """
        return self._get(RelationGraph, "relations", address=address_of(address), hops=hops, limit=limit)

    def sources(self, query: str = "") -> Rows[SourceFile]:
        """Return the lines of code that created nodes, the user's files first.

        Parameters
        ----------
        query : str
            A part of ``path:line code``, case-insensitive.

        Examples
        --------
        >>> [(line.line, line.nodes) for line in session.sources("self.log(")[0].lines]
        [(31, 1)]
        """
        return self._rows(
            "sources", {"query": query or None}, SourcePage, lambda page: (page.total, page.files), SOURCES
        )

    def source_text(self, file: str) -> str:
        """Return the text of a source file that the training process sent. NotFoundError if it sent none.

        Parameters
        ----------
        file : str
            Its path, as in stack frames.

        Examples
        --------
        >>> session.source_text("/home/me/train.py")  # doctest: +SKIP
        'import torch…'
        """
        return self._connection.answer(self._path("source"), file=file).text

    def executions(self, rank: int = 0) -> Rows[Execution]:
        """Return the graphs that ran in each step.

        Parameters
        ----------
        rank : int
            Rank of the process, from 0.

        Examples
        --------
        >>> session.executions()[0].graph
        'kernel_graph0'
        """
        parameters = {"rank": rank}
        return self._rows(
            "executions", parameters, ExecutionPage, lambda page: (page.total, page.executions), EXECUTIONS
        )

    def _node_meant(self, typed: str, rank: int, graph: str = "", step: int | None = None) -> tuple[str, str]:
        """Return graph and name of the intended node; of several graphs, the one that ran in the step.

        Raises
        ------
        NotFoundError
            There is no such node, or several.
        """
        matches = self._get(NodesMeant, "nodes/meant", name=typed, rank=rank, graph=graph or None, step=step)
        if matches.total != 1:
            where = f"rank {rank} of session {self.id} ({self.name})"
            raise NotFoundError(f"{where}: {unclear(typed, matches.names, matches.similar)}", code="node-unknown")
        return matches.graphs[0], matches.names[0]


def address_of(what: object) -> str:
    """Return the address of a tensor, given as text or as a record that has one."""
    return str(getattr(what, "address", what))
