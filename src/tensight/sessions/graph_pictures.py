"""Graphs to draw: an opened scope with the edges between its rows, or the neighbourhood of a tensor."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING

import numpy as np

from tensight.errors import InputError
from tensight.graph import EdgeKind, TensorAddress
from tensight.sessions.errors import NotFoundError, StateError
from tensight.sessions.graph_index import CONSTANTS, PARAMETERS, Stretch
from tensight.sessions.graph_views import Row, output_slots
from tensight.sessions.records import GraphEdge, GraphLevel, OpenedScope, RelatedNode, RelationGraph

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from numpy.typing import NDArray

    from tensight.graph import Graph, Node
    from tensight.sessions.graph_index import GraphIndex
    from tensight.sessions.graph_views import GraphView

MOST_EDGES = 20_000
"""Edges of a picture; more cannot be distinguished."""

MOST_ROWS = 10_000
"""Once a picture has this many rows, no further scope in it is opened."""

MOST_DRAWN_ONE_BY_ONE = 50
"""Parameters (or constants) outside of a scope; more are drawn as one group."""

MOST_HOPS = 10
_MOST_SLOTS = 64


def graph_level(
    view: GraphView, scope: str, limit: int, most_nodes: int, *, opened: Collection[str] = (), beside: bool = False
) -> GraphLevel:
    """Return an opened scope: its rows, the rows outside of it that they are connected with, and the edges.

    Parameters
    ----------
    view : GraphView
        The graph.
    scope : str
        Path of a scope or group; empty for the root.
    limit : int
        Maximum number of rows of each scope, and of proxies of nodes outside.
    most_nodes : int
        Larger graphs are not drawn.
    opened : collection of str
        Paths of scopes and groups inside that are opened, too. Unknown paths, and paths in a closed scope, are
        ignored: a new graph may have arrived while the client showed the old one.
    beside : bool
        Draw each parameter and constant that an operator of the picture reads as a separate proxy.

    Raises
    ------
    NotFoundError
        There is no such scope.
    StateError
        The graph is too large.
    """
    if len(view.index) > most_nodes:
        raise StateError(
            f"graph {view.index.graph.name!r} has {len(view.index):,} nodes; graphs of up to {most_nodes:,} are drawn"
            " (--max-graph-node-size). It can still be listed and searched",
            code="graph-too-large",
        )
    stretch = view.stretch(scope)
    rows = view.rows(stretch)
    picture = _Picture(view.index)
    picture.add(rows[:limit])
    scope_row_count = len(picture.rows)
    inside = picture.open(view, rows[:limit], frozenset(opened), limit)
    inner_count = len(picture.rows)
    picture.add_outside(stretch, limit)
    if beside:
        picture.add_beside(inner_count, limit)
    edges, all_edges = picture.edges(inner_count)
    return GraphLevel(
        rank=view.rank,
        graph=view.index.graph.name,
        scope=scope,
        entries=tuple(map(view.row_entry, picture.rows[:scope_row_count])),
        opened=inside,
        outside=tuple(map(view.row_entry, picture.rows[inner_count:])),
        edges=edges,
        truncated=len(rows) > limit or not picture.complete or not all_edges,
    )


class _Picture:
    """Rows to draw; `_owner` contains for each node the index of the row that represents it, -1 if none does."""

    def __init__(self, index: GraphIndex) -> None:
        self.rows: list[Row] = []
        self.complete = True
        self._index = index
        self._owner = np.full(len(index), -1, np.int32)

    def add(self, rows: list[Row]) -> None:
        for row in rows:
            if isinstance(row, Stretch):
                self._owner[row.start : row.end] = len(self.rows)
            else:
                self._owner[row] = len(self.rows)
            self.rows.append(row)

    def open(self, view: GraphView, rows: list[Row], opened: Collection[str], limit: int) -> tuple[OpenedScope, ...]:
        """Add the rows of the opened scopes among `rows` and, recursively, in them; outer scopes come first."""
        scopes = []
        waiting = deque(row for row in rows if isinstance(row, Stretch) and row.path in opened)
        while waiting and len(self.rows) < MOST_ROWS:
            stretch = waiting.popleft()
            inner = view.rows(stretch)
            self.add(inner[:limit])
            entries = tuple(map(view.row_entry, inner[:limit]))
            scopes.append(OpenedScope(scope=stretch.path, entries=entries, truncated=len(inner) > limit))
            waiting.extend(row for row in inner[:limit] if isinstance(row, Stretch) and row.path in opened)
        self.complete = self.complete and not waiting
        return tuple(scopes)

    def add_beside(self, inner: int, limit: int) -> None:
        """Add the parameters and constants read by operators of the first `inner` rows, unless they have a row."""
        edges = self._index.edges
        # The last element is for nodes without a row, whose owner is -1.
        is_alone = np.array([*(isinstance(row, int) for row in self.rows), False])
        reader = self._owner[edges.target]
        read = (edges.source >= self._index.operators) & is_alone[reader] & (reader < inner)
        positions = np.unique(edges.source[read & ~is_alone[self._owner[edges.source]]]).tolist()
        self.complete = self.complete and len(positions) <= limit
        self.add(positions[:limit])

    def add_outside(self, stretch: Stretch, limit: int) -> None:
        """Add the neighbours of the drawn nodes, each as the largest scope around it without `stretch` in it."""
        edges = self._index.edges
        positions = np.concatenate(
            [
                edges.target[self._owner[edges.source] >= 0],
                edges.source[self._owner[edges.target] >= 0],
            ]
        )
        outside = np.unique(positions[(positions < stretch.start) | (positions >= stretch.end)])
        neighbours: dict[Row, None] = dict.fromkeys(self._groups(outside, stretch))
        neighbours.update(dict.fromkeys(self._scopes(outside[outside < self._index.operators], stretch)))
        rows = list(neighbours)
        self.complete = self.complete and len(rows) <= limit
        self.add(rows[:limit])

    def _groups(self, outside: NDArray[np.int32], stretch: Stretch) -> list[Row]:
        """Return the parameters and constants: each as a row if they are few, else as groups."""
        rows: list[Row] = []
        for path in (PARAMETERS, CONSTANTS):
            group = self._index.scopes.get(path)
            if group is None or group is stretch:
                continue
            members = outside[(outside >= group.start) & (outside < group.end)]
            rows += [group] if len(members) > MOST_DRAWN_ONE_BY_ONE else members.tolist()
        return rows

    def _scopes(self, positions: NDArray[np.int32], stretch: Stretch) -> list[Row]:
        """Return the rows of operators: in each scope around `stretch`, those beside the path down to it."""
        rows: list[Row] = []
        around: Stretch | None = self._index.root
        while around is not None and len(positions):
            inner = next(
                (scope for scope in around.scopes if scope.start <= stretch.start < stretch.end <= scope.end), None
            )
            starts = np.array([scope.start for scope in around.scopes], np.int64)
            direct = positions >= around.direct_start
            rows += positions[direct & (positions < around.end)].tolist()
            numbers = np.searchsorted(starts, positions[~direct], side="right") - 1
            siblings = [around.scopes[number] for number in np.unique(numbers).tolist()]
            rows += [scope for scope in siblings if scope is not inner]
            if inner is None or inner is stretch:
                break
            positions = positions[(positions >= inner.start) & (positions < inner.end)]
            around = inner
        return rows

    def edges(self, inner: int) -> tuple[tuple[GraphEdge, ...], bool]:
        """Return the edges with an end among the first `inner` rows, and whether these are all of them."""
        edges = self._index.edges
        source, target = self._owner[edges.source].astype(np.int64), self._owner[edges.target].astype(np.int64)
        drawn = (source >= 0) & (target >= 0) & (source != target) & ((source < inner) | (target < inner))
        keys = ((source * len(self.rows) + target) * 2 + edges.control)[drawn]
        first_of = drawn.nonzero()[0]
        unique_keys, firsts, amounts = np.unique(keys, return_index=True, return_counts=True)
        graph_edges = []
        for key, first, amount in zip(
            unique_keys[:MOST_EDGES].tolist(), firsts.tolist(), amounts.tolist(), strict=False
        ):
            ends, control = divmod(key, 2)
            at, to = divmod(ends, len(self.rows))
            producer = self._index.order[int(edges.source[first_of[first]])]
            graph_edges.append(
                GraphEdge(
                    source=self._path(self.rows[at]),
                    target=self._path(self.rows[to]),
                    count=amount,
                    control=bool(control),
                    label=edge_label(producer) if amount == 1 and not control else "",
                )
            )
        return tuple(graph_edges), len(unique_keys) <= MOST_EDGES

    def _path(self, row: Row) -> str:
        return row.path if isinstance(row, Stretch) else self._index.order[row].name


def edge_label(producer: Node) -> str:
    """Return the label of a data edge from a node: ``float32[32,6,28,28]``; empty if the graph has no type."""
    if len(producer.outputs) != 1:
        return f"{len(producer.outputs)} tensors" if producer.outputs else ""
    slot = producer.outputs[0]
    if slot.shape is None:
        return slot.dtype
    return f"{slot.dtype}[{','.join('?' if size < 0 else str(size) for size in slot.shape)}]"


def relation_graph(view: GraphView, address: TensorAddress, hops: int, limit: int) -> RelationGraph:
    """Return the node of a tensor with its producers and with the consumers of the tensor.

    Parameters
    ----------
    view : GraphView
        The graph.
    address : TensorAddress
        For an input, the consumers of all outputs of its node are included.
    hops : int
        Maximum distance in edges, 1 to 10.
    limit : int
        Maximum number of nodes.

    Raises
    ------
    InputError
        `hops` or `limit` is out of its range.
    NotFoundError
        The graph has no such node, or the node no such output.
    """
    if not 1 <= hops <= MOST_HOPS or limit < 1:
        raise InputError(f"hops {hops} and limit {limit}: give 1 to {MOST_HOPS} hops, and a limit of at least 1")
    centre = view.node(address.node)
    if address.io == "output" and centre.outputs and address.slot >= len(centre.outputs):
        raise NotFoundError(f"{centre.name} has {len(centre.outputs)} outputs; there is no slot {address.slot}")
    around = _Neighbourhood(view.index.graph, centre, limit)
    around.expand(hops, address.slot if address.io == "output" else None)
    nodes = sorted(around.distances, key=lambda node: (around.distances[node], view.index.positions[node.name]))
    return RelationGraph(
        rank=view.rank,
        graph=view.index.graph.name,
        centre=centre.name,
        nodes=tuple(_related(view, node, around.distances[node], address) for node in nodes),
        edges=_edges_among(nodes),
        truncated=around.truncated,
    )


class _Neighbourhood:
    """Nodes around a centre with their distances, up to a limit."""

    def __init__(self, graph: Graph, centre: Node, limit: int) -> None:
        self.distances = {centre: 0}
        self.truncated = False
        self._graph = graph
        self._limit = limit

    def expand(self, hops: int, slot: int | None) -> None:
        """Add nodes up to `hops` edges up and down, the nearest first; each node keeps its first distance."""
        inputs, consumers = self._graph.inputs, self._graph.consumers
        centre = next(iter(self.distances))
        above = self._take(inputs(centre), -1)
        below = self._take(consumers(centre, slot), 1)
        for distance in range(2, hops + 1):
            above = self._take((further for node in above for further in inputs(node)), -distance)
            below = self._take((further for node in below for further in consumers(node)), distance)

    def _take(self, nodes: Iterable[Node], distance: int) -> list[Node]:
        taken = []
        for node in nodes:
            if node in self.distances:
                continue
            if len(self.distances) >= self._limit:
                self.truncated = True
                break
            self.distances[node] = distance
            taken.append(node)
        return taken


def _related(view: GraphView, node: Node, distance: int, address: TensorAddress) -> RelatedNode:
    abbreviations = {}
    for slot in range(min(len(node.outputs), _MOST_SLOTS) or 1):
        tensor = TensorAddress(view.rank, view.index.graph.name, node.name, slot, address.iteration)
        if texts := view.hits.abbreviations(tensor):
            abbreviations[slot] = texts
    return RelatedNode(
        name=node.name,
        type=node.type,
        distance=distance,
        slots=output_slots(node)[:_MOST_SLOTS],
        abbreviations=abbreviations,
    )


def _edges_among(nodes: list[Node]) -> tuple[GraphEdge, ...]:
    nodes_by_name = {node.name: node for node in nodes}
    counts: Counter[tuple[str, str, bool]] = Counter()
    for node in nodes:
        for edge in node.inputs:
            if edge.source in nodes_by_name:
                counts[edge.source, node.name, edge.kind is EdgeKind.CONTROL] += 1
    return tuple(
        GraphEdge(
            source=source,
            target=target,
            count=amount,
            control=control,
            label=edge_label(nodes_by_name[source]) if amount == 1 and not control else "",
        )
        for (source, target, control), amount in counts.items()
    )
