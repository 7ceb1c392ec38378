"""Views of a graph: the tree of its scopes, search, and the records of its nodes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Literal

import numpy as np

from tensight.errors import InputError
from tensight.graph import EdgeKind, Node, NodeKind, OutputSlot, parse_frame
from tensight.graph.naming import meant, nearest
from tensight.sessions.errors import NotFoundError
from tensight.sessions.graph_index import CONSTANTS, PARAMETERS, GraphIndex, Stretch, TreeIndex
from tensight.sessions.patterns import matching, require_short
from tensight.sessions.records import (
    FoundNode,
    GraphRecord,
    NodeRecord,
    NodesMeant,
    SearchPage,
    Slot,
    StepSpan,
    TreeEntry,
    TreePage,
)
from tensight.sessions.sources import frame_records
from tensight.sessions.value_texts import attribute_texts, value_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from numpy.typing import NDArray

    from tensight.graph import Graph
    from tensight.sessions.hit_list import HitList
    from tensight.sessions.programs import Program, ProgramIndex
    from tensight.sessions.selection import Watching

MOST_CONSUMERS = 1000
MOST_MEANT = 20
MOST_SIMILAR = 5
"""Nodes with similar names that a message about an unknown node lists."""

MOST_SLOTS = 10_000
"""Inputs, and outputs, that the record of a node lists."""

MOST_SPANS = 100
"""Spans of steps that the record of a graph lists."""

Row = Stretch | int
"""A row of the tree: a scope or group, or the position of a node."""

_GROUP_KINDS: dict[str, Literal["parameters", "constants"]] = {PARAMETERS: "parameters", CONSTANTS: "constants"}


class TreeView(ABC):
    """The rows of a tree of nodes, with watched nodes and hits.

    Attributes
    ----------
    rank : int
    index : TreeIndex
    hits : HitList
    watching : Watching or None
        Nodes watched by the requested watchpoint.
    """

    __slots__ = ()

    rank: int
    index: TreeIndex
    hits: HitList
    watching: Watching | None

    @abstractmethod
    def shown(self, position: int) -> tuple[GraphIndex, Node]:
        """Return the node at a position, and the graph in which it is shown."""

    @abstractmethod
    def graphs_of(self, row: Row) -> tuple[str, ...]:
        """Return the graphs of the program that have a row; empty if all have it."""

    @abstractmethod
    def find(self, query: NodeQuery) -> list[int]:
        """Return the positions of the nodes that match, in the order of the graphs."""

    def stretch(self, scope: str) -> Stretch:
        """Return a scope or group.

        Raises
        ------
        NotFoundError
            No scope has this path.
        """
        stretch = self.index.scopes.get(scope)
        if stretch is None:
            where = f"graph {self.index.name!r}" if self.index.name else f"rank {self.rank}"
            raise NotFoundError(
                f"{where} has no scope {scope[:200]!r}; open the scopes from the root (an empty path) down"
            )
        return stretch

    def rows(self, stretch: Stretch) -> list[Row]:
        """Return the rows directly in a scope: scopes, at the root also the groups, then nodes."""
        groups = self.index.groups if stretch is self.index.root else ()
        own_end = self.index.operators if stretch is self.index.root else stretch.end
        return [*stretch.scopes, *groups, *range(stretch.direct_start, own_end)]

    def row_entry(self, row: Row) -> TreeEntry:
        """Return a row of the tree."""
        return self.node_entry(row) if isinstance(row, int) else self._stretch_entry(row)

    def node_entry(self, position: int) -> TreeEntry:
        """Return the row of a node."""
        index, node = self.shown(position)
        return TreeEntry(
            path=node.name,
            label=node.short_name,
            kind=kind_word(node),
            graph=index.name,
            graphs=self.graphs_of(position),
            apart=self.is_apart(position),
            type=node.type,
            roles=index.roles(node),
            nodes=1,
            dynamic_shape=any(slot.shape is not None and -1 in slot.shape for slot in node.outputs),
            watched=self.watching.of_node(position) if self.watching is not None else None,
            hits=self._hits_of(position, node.name),
        )

    def _stretch_entry(self, stretch: Stretch) -> TreeEntry:
        return TreeEntry(
            path=stretch.path,
            label=stretch.label,
            kind=_GROUP_KINDS.get(stretch.path, "scope"),
            graph=self.index.name,
            graphs=self.graphs_of(stretch),
            children=len(stretch.scopes) + stretch.end - stretch.direct_start,
            nodes=stretch.end - stretch.start,
            watched=self.watching.of_stretch(stretch) if self.watching is not None else None,
            hits=self.hits.count_below(self.rank, self.index.name, stretch.path),
        )

    def is_apart(self, position: int) -> bool:  # noqa: ARG002 - names are unique in a graph
        """Whether other nodes of the tree have the name of this one."""
        return False

    def _hits_of(self, position: int, name: str) -> int:  # noqa: ARG002 - several nodes of one name have their own positions
        return self.hits.count_below(self.rank, self.index.name, name)

    def tree_page(self, scope: str, offset: int, limit: int) -> TreePage:
        """Return the rows directly below a scope or group.

        Raises
        ------
        NotFoundError
            There is no such scope.
        """
        rows = self.rows(self.stretch(scope))
        return TreePage(
            rank=self.rank,
            graph=self.index.name,
            scope=scope,
            total=len(rows),
            offset=offset,
            entries=tuple(map(self.row_entry, rows[offset : offset + limit])),
        )


@dataclass(frozen=True, slots=True)
class GraphView(TreeView):
    """A graph of a rank.

    Attributes
    ----------
    index : GraphIndex
    """

    rank: int
    index: GraphIndex
    hits: HitList
    watching: Watching | None = None

    def shown(self, position: int) -> tuple[GraphIndex, Node]:
        """Return the graph and a node of it."""
        return self.index, self.index.order[position]

    def graphs_of(self, row: Row) -> tuple[str, ...]:  # noqa: ARG002 - there is only one
        """Return that the graph has it."""
        return ()

    def find(self, query: NodeQuery) -> list[int]:
        """Return the positions of the nodes that match, in the order of the graph's file."""
        return sorted(query.mask(self.index).nonzero()[0].tolist(), key=self.index.file_order.__getitem__)

    def node(self, name: str) -> Node:
        """Return a node.

        Raises
        ------
        NotFoundError
            The graph has none of this name.
        """
        try:
            return self.index.graph.node(name)
        except InputError as error:
            raise NotFoundError(str(error), code="node-unknown") from None

    def node_record(
        self, name: str, position: int | None, graphs: tuple[str, ...] = (), *, apart: bool = False
    ) -> NodeRecord:
        """Return the record of a node with everything that the graph knows about it.

        Parameters
        ----------
        name : str
        position : int or None
            Position in execution order.
        graphs : tuple of str
            The graphs of the program that have it.
        apart : bool
            Whether other nodes of the program have its name.

        Raises
        ------
        NotFoundError
            The graph has no such node.
        """
        node = self.node(name)
        consumers = self.index.graph.consumers(node)
        return NodeRecord(
            rank=self.rank,
            graph=self.index.graph.name,
            name=node.name,
            type=node.type,
            kind=kind_word(node),
            scope=node.scope,
            roles=self.index.roles(node),
            inputs=self._inputs(node),
            outputs=output_slots(node),
            consumers=tuple(consumer.name for consumer in consumers[:MOST_CONSUMERS]),
            consumer_count=len(consumers),
            stack=frame_records(node.frames),
            attributes=attribute_texts(node),
            value=value_text(node.value) if node.is_constant else "",
            position=position,
            graphs=graphs or (self.index.graph.name,),
            apart=apart,
        )

    def _inputs(self, node: Node) -> tuple[Slot, ...]:
        """Return the inputs, numbered as in a dump of the operator, each with the node that computes it."""
        slots: list[Slot] = []
        for edge in node.inputs:
            if len(slots) >= MOST_SLOTS:
                break
            # A tuple counts as its elements, so an edge may be several inputs.
            for producer in self.index.graph.flat_producers(Node("", "", inputs=(edge,))):
                number = len(slots)
                if producer is None:
                    dangling = edge.source not in self.index.graph and edge.kind is EdgeKind.DATA
                    slots.append(Slot(slot=number, io="input", peer=edge.source, control=not dangling))
                else:
                    peer, peer_slot = producer
                    output = peer.outputs[peer_slot] if peer_slot < len(peer.outputs) else None
                    slots.append(_slot(number, "input", output, peer=peer.name, peer_slot=peer_slot))
        return tuple(slots[:MOST_SLOTS])


@dataclass(frozen=True, slots=True)
class ProgramView(TreeView):
    """All graphs of a rank as one program.

    Attributes
    ----------
    program : Program
    index : ProgramIndex
    ran : frozenset of str
        The graphs that ran in the shown step; they take precedence as the graph in which a node is shown.
    """

    rank: int
    program: Program
    index: ProgramIndex
    hits: HitList
    watching: Watching | None = None
    ran: frozenset[str] = frozenset()

    def shown(self, position: int) -> tuple[GraphIndex, Node]:
        """Return the graph in which a node is shown, and the node in that graph."""
        return self.index.shown(position, self.ran)

    def graphs_of(self, row: Row) -> tuple[str, ...]:
        """Return the graphs that have a node, or any node of a scope; empty if all do."""
        graphs = self.index.graphs_of(row) if isinstance(row, int) else self.index.graphs_below(row.start, row.end)
        return () if len(graphs) == len(self.program.graphs) else graphs

    def find(self, query: NodeQuery) -> list[int]:
        """Return the positions of the nodes that match in any graph, in the order of the program."""
        mask = self.index.of_graphs(map(query.mask, self.program.indexes))
        return sorted(mask.nonzero()[0].tolist(), key=self.index.file_order.__getitem__)

    def is_apart(self, position: int) -> bool:
        """Whether other nodes of the program have the name of this one."""
        return self.index.is_apart(position)

    def _hits_of(self, position: int, name: str) -> int:
        if not self.is_apart(position):
            return self.hits.count_below(self.rank, "", name)
        return sum(self.hits.count_below(self.rank, graph, name) for graph in self.index.graphs_of(position))


def graph_record(rank: int, graph: Graph, steps: Sequence[tuple[int, int]] = (), *, ran: bool = False) -> GraphRecord:
    """Return the record of a graph.

    Parameters
    ----------
    rank : int
    graph : Graph
    steps : sequence of (int, int)
        Spans (first and last step) in which it is known to have run.
    ran : bool
        Whether it ran in the shown step.
    """
    return GraphRecord(
        rank=rank,
        name=graph.name,
        graph_id=graph.graph_id,
        root_id=graph.root_id,
        nodes=len(graph),
        operators=len(graph.operators),
        parameters=len(graph.parameters),
        problems=tuple(map(str, graph.problems)),
        steps=tuple(StepSpan(first=first, last=last) for first, last in steps[:MOST_SPANS]),
        spans=len(steps),
        ran=ran,
    )


def require_page(offset: int, limit: int) -> None:
    """Validate the bounds of a page.

    Raises
    ------
    InputError
        `offset` is negative or `limit` is less than 1.
    """
    if offset < 0 or limit < 1:
        raise InputError(f"offset {offset} and limit {limit}: offset must be at least 0, limit at least 1")


def kind_word(node: Node) -> Literal["operator", "parameter", "constant"]:
    """Return the kind of a node as a word."""
    return "constant" if node.is_constant else "parameter" if node.is_parameter else "operator"


def output_slots(node: Node) -> tuple[Slot, ...]:
    """Return the outputs of a node."""
    return tuple(_slot(number, "output", slot) for number, slot in enumerate(node.outputs[:MOST_SLOTS]))


def _slot(
    number: int, io: Literal["input", "output"], declared: OutputSlot | None, *, peer: str = "", peer_slot: int = 0
) -> Slot:
    return Slot(
        slot=number,
        io=io,
        dtype=declared.dtype if declared is not None else "",
        shape=declared.shape if declared is not None else None,
        peer=peer,
        peer_slot=peer_slot,
    )


@dataclass(frozen=True, slots=True)
class NodeQuery:
    """Criteria of a search; a node must match all that are given.

    Attributes
    ----------
    name, op_type, stack : str
        Substrings of the name, the type, a line of the stack (``# - /p/net.py:16  x = self.relu(x)``); or regular
        expressions.
    kind : str
        ``operator``, or the value of a `NodeKind`; ``parameter`` for all parameters.
    regex, case_sensitive : bool
        How to match the texts.

    Raises
    ------
    InputError
        A text is too long, or the kind is unknown.
    """

    name: str = ""
    op_type: str = ""
    kind: str = ""
    stack: str = ""
    regex: bool = False
    case_sensitive: bool = False

    def __post_init__(self) -> None:
        """Refuse texts that are too long and unknown kinds."""
        for text, what in ((self.name, "the name"), (self.op_type, "the type"), (self.stack, "the text of the stack")):
            require_short(text, what)
        kinds = ["operator", "parameter", *(kind.value for kind in NodeKind)]
        if self.kind and self.kind not in kinds:
            raise InputError(f"{self.kind[:80]!r} is not a kind of node; there are {', '.join(kinds)}")

    def mask(self, index: GraphIndex) -> NDArray[np.bool_]:
        """Return a mask of the matching nodes of a graph, in the order of its index."""
        mask = np.ones(len(index), bool)
        if self.kind:
            mask &= _of_kind(index, self.kind)
        if self.name:
            texts = index.names if self.case_sensitive or self.regex else index.lower_names
            mask &= self._find(self.name, texts, lowered=texts is index.lower_names)
        if self.op_type:
            types = sorted({node.type for node in index.order})
            matched = {name for name, is_in in zip(types, self._find(self.op_type, types), strict=True) if is_in}
            mask &= np.fromiter((node.type in matched for node in index.order), bool, len(index))
        if self.stack:
            mask &= self._by_stack(index)
        return mask

    def _by_stack(self, index: GraphIndex) -> NDArray[np.bool_]:
        """Search the distinct lines: each occurs in many stacks, and each stack at many nodes."""
        stacks = {node.stack for node in index.order}
        lines = sorted({line for stack in stacks for line in stack if line.strip()})
        matches = self._find(self.stack, [parse_frame(line).text for line in lines])
        matched = {line for line, is_in in zip(lines, matches.tolist(), strict=True) if is_in}
        matched_stacks = {stack for stack in stacks if not matched.isdisjoint(stack)}
        return np.fromiter((node.stack in matched_stacks for node in index.order), bool, len(index))

    def _find(self, query: str, texts: Sequence[str], *, lowered: bool = False) -> NDArray[np.bool_]:
        if self.regex:
            return matching(texts, query, case_sensitive=self.case_sensitive)
        if self.case_sensitive:
            return np.fromiter((query in text for text in texts), bool, len(texts))
        query = query.lower()
        if lowered:
            return np.fromiter((query in text for text in texts), bool, len(texts))
        return np.fromiter((query in text.lower() for text in texts), bool, len(texts))


def _of_kind(index: GraphIndex, word: str) -> NDArray[np.bool_]:
    if word in ("operator", "parameter"):
        return np.fromiter((kind_word(node) == word for node in index.order), bool, len(index))
    return index.of_kind(NodeKind(word))


def search_page(views: Iterable[TreeView], query: NodeQuery, offset: int, limit: int) -> SearchPage:
    """Return some of the nodes that match a query, in the order of the graphs."""
    total = 0
    nodes: list[FoundNode] = []
    for view in views:
        positions = view.find(query)
        # `total` nodes of the trees before this one match.
        first = max(offset - total, 0)
        entries = map(view.node_entry, positions[first : max(offset + limit - total, 0)])
        nodes.extend(FoundNode(rank=view.rank, graph=entry.graph, entry=entry) for entry in entries)
        total += len(positions)
    return SearchPage(total=total, offset=offset, nodes=tuple(nodes))


def names_like(graphs: Sequence[Graph], name: str) -> str:
    """Return the end of a message about an unknown node: nodes whose names contain the text, or what to search for.

    Parameters
    ----------
    graphs : sequence of Graph
        The nodes of later ones come first.
    name : str
        As a user typed it; case is ignored.
    """
    nodes = (node.name for graph in reversed(graphs) for node in graph.nodes)
    names = dict.fromkeys(islice((other for other in nodes if name.lower() in other.lower()), MOST_SIMILAR))
    return f"; some that contain it: {', '.join(names)}" if names else "; search for a part of its name"


def nodes_meant(graphs: Sequence[Graph], typed: str, ran: Collection[str]) -> NodesMeant:
    """Return the nodes that a typed name may mean.

    Parameters
    ----------
    graphs : sequence of Graph
        Of one rank.
    typed : str
        As for `tensight.graph.naming.meant`.
    ran : collection of str
        The graphs that ran in the step. Of the graphs with the node they come first, then the newest.
    """
    if any(typed in graph for graph in graphs):
        names = [typed]
    else:
        all_names = {node.name for graph in graphs for node in graph.nodes}
        names = meant(all_names, typed)
    owners = [graph.name for graph in reversed(graphs) if len(names) == 1 and names[0] in graph]
    owners.sort(key=lambda graph: graph not in ran)
    similar = () if names else tuple(nearest(all_names, typed))
    return NodesMeant(names=tuple(names[:MOST_MEANT]), total=len(names), graphs=tuple(owners), similar=similar)
