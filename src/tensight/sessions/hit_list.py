"""The hits of the current step, grouped by node, in execution order, by page."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Literal

from tensight.errors import InputError
from tensight.graph import TensorAddress, step_of
from tensight.sessions.graph_index import CONSTANTS, PARAMETERS
from tensight.sessions.records import Frame, HitPage, HitParameter, HitRecord, NodeHits, TensorHits
from tensight.watchpoints import ParameterKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tensight.watchpoints import Hit

MOST_HITS = 200_000
"""Hits kept of a step. Users read a few of them, but a broken run can have one for every tensor."""


@dataclass(frozen=True, slots=True)
class SessionHit:
    """A watchpoint that hit on one tensor of a run, or could not be checked on it.

    Attributes
    ----------
    rank, graph, node, slot, iteration, io
        The tensor's address. The node may be missing in the graph.
    hit : HitRecord
        Watchpoint, thresholds, actual values.
    position : int or None
        Position of the node in execution order, None if unknown.
    type : str
        Type of the operator, or ``Parameter``.
    line : Frame or None
        The line of user code that created the node.
    """

    rank: int
    graph: str
    node: str
    slot: int
    iteration: int
    hit: HitRecord
    io: Literal["input", "output"] = "output"
    position: int | None = None
    type: str = ""
    line: Frame | None = None


def hit_record(hit: Hit) -> HitRecord:
    """Return the record of a hit: its watchpoint, and each threshold with the actual value."""
    watchpoint = hit.watchpoint
    check = watchpoint.check
    parameters = tuple(
        HitParameter(name=name, preset=value, actual=hit.actual.get(name), hit=name in hit.parameters_hit)
        for name, value in check.arguments
        if (parameter := check.condition.parameter(name)) is not None and parameter.kind is not ParameterKind.HIDDEN
    )
    return HitRecord(
        watchpoint=watchpoint.id,
        name=watchpoint.name,
        condition=check.condition.id,
        abbreviation=check.condition.abbreviation,
        severity=watchpoint.severity.value,
        hit=hit.hit,
        parameters=parameters,
        error_code=hit.error_code,
        errors=hit.error_words,
    )


class HitList:
    """The hits of a step; the hits of the next step replace them.

    One thread may change it while others read from it.

    Attributes
    ----------
    step : int
        The step that the hits belong to.
    outdated : bool
        Whether the watchpoints changed after the step was checked.
    dropped : int
        Number of hits beyond `MOST_HITS`, which were not kept.
    """

    def __init__(self) -> None:
        self.step = 0
        self.outdated = False
        self.dropped = 0
        self._hits: list[SessionHit] = []
        self._grouped: _Grouped | None = None

    def replace(self, step: int, hits: Iterable[SessionHit]) -> None:
        """Replace the hits by those of a check of all watchpoints at a step, and mark them as up to date."""
        self.clear()
        self.step = step
        self.outdated = False
        self.add(hits)

    def add(self, hits: Iterable[SessionHit]) -> None:
        """Add hits of the same step. A hit replaces an earlier one of the same watchpoint on the same tensor."""
        for hit in hits:
            if len(self._hits) < MOST_HITS:
                self._hits.append(hit)
            else:
                self.dropped += 1

    def clear(self) -> None:
        """Remove all hits."""
        self._hits = []
        self.dropped = 0

    def __len__(self) -> int:
        """Return the number of hits, including reports of checks that could not be made."""
        return len(self._hits)

    def all(self) -> tuple[SessionHit, ...]:
        """Return the hits in the order of their arrival."""
        return tuple(self._hits)

    @property
    def tensors(self) -> int:
        """Number of tensors with a hit; a check that could not be made is not a hit."""
        return self._groups.tensors

    def count_of(self, watchpoint: int) -> int:
        """Return the number of tensors on which a watchpoint hit."""
        return self._groups.by_watchpoint[watchpoint]

    def count_below(self, rank: int, graph: str, scope: str) -> int:
        """Return the number of tensors with a hit at a node, below a scope, or in a group of the root.

        An empty `graph` counts the tensors of all graphs.
        """
        return self._groups.below[rank, graph, scope]

    def abbreviations(self, address: TensorAddress) -> tuple[str, ...]:
        """Return the abbreviations of the conditions that hit on a tensor."""
        return self._groups.abbreviations.get(address, ())

    def page(
        self,
        *,
        rank: int | None = None,
        graph: str = "",
        watchpoint: int | None = None,
        focus: str = "",
        offset: int = 0,
        limit: int = 10,
    ) -> HitPage:
        """Return a page of the nodes with hits, in execution order.

        Parameters
        ----------
        rank, graph, watchpoint
            Only hits of these; all by default.
        focus : str
            Name of a node: return the page that contains it, instead of the one at `offset`, if it has hits.
        offset, limit : int
            Index of the first node, and the maximum number of nodes.

        Raises
        ------
        InputError
            `offset` is negative or `limit` is not positive.
        """
        if offset < 0 or limit < 1:
            raise InputError(f"offset {offset} and limit {limit}: offset must be at least 0, limit at least 1")
        nodes = [
            node
            for node in self._groups.nodes
            if (rank is None or node.rank == rank)
            and (not graph or node.graph == graph)
            and (watchpoint is None or watchpoint in node.watchpoints)
        ]
        if focus:
            index = next((index for index, node in enumerate(nodes) if node.name == focus), None)
            offset = offset if index is None else index // limit * limit
        return HitPage(
            total=len(nodes),
            tensors=sum(node.count(watchpoint) for node in nodes),
            offset=offset,
            nodes=tuple(node.record(watchpoint) for node in nodes[offset : offset + limit]),
            outdated=self.outdated,
            step=self.step,
        )

    @property
    def _groups(self) -> _Grouped:
        # Another thread may be adding hits: the groups are valid for this list object at this length only.
        hits, amount = self._hits, len(self._hits)
        grouped = self._grouped
        if grouped is None or grouped.hits is not hits or grouped.amount != amount:
            grouped = self._grouped = _Grouped(hits, amount)
        return grouped


_Tensor = tuple[bool, int, int]
"""A tensor of a node: whether it is an input, slot, iteration."""


class _Node:
    """A node with its hits by tensor."""

    __slots__ = ("first", "graph", "line", "name", "position", "rank", "tensors", "type", "watchpoints")

    def __init__(self, hit: SessionHit, first: int) -> None:
        self.rank = hit.rank
        self.graph = hit.graph
        self.name = hit.node
        self.type = hit.type
        self.line = hit.line
        self.position = hit.position
        self.first = first
        self.tensors: dict[_Tensor, dict[int, HitRecord]] = {}
        self.watchpoints: set[int] = set()

    def add(self, hit: SessionHit) -> None:
        if self.position is None:
            self.position = hit.position
        watchpoint = hit.hit.watchpoint
        self.watchpoints.add(watchpoint)
        self.tensors.setdefault((hit.io == "input", hit.slot, hit.iteration), {})[watchpoint] = hit.hit

    def address(self, tensor: _Tensor) -> TensorAddress:
        is_input, slot, iteration = tensor
        return TensorAddress(self.rank, self.graph, self.name, slot, iteration, "input" if is_input else "output")

    @property
    def sort_key(self) -> tuple[float, int, int]:
        """The position in execution order, then the rank; nodes without a position come last."""
        return (math.inf if self.position is None else self.position, self.rank, self.first)

    def count(self, watchpoint: int | None = None) -> int:
        """Return the number of tensors with a hit, of one watchpoint or of any."""
        return sum(
            any(hit.hit for number, hit in hits.items() if watchpoint in (None, number))
            for hits in self.tensors.values()
        )

    def record(self, watchpoint: int | None) -> NodeHits:
        tensors = []
        for tensor, hits in sorted(self.tensors.items(), key=itemgetter(0)):
            address = self.address(tensor)
            shown = tuple(hits[number] for number in sorted(hits) if watchpoint in (None, number))
            if shown:
                tensors.append(TensorHits(slot=address.slot, io=address.io, address=str(address), hits=shown))
        return NodeHits(
            rank=self.rank,
            graph=self.graph,
            node=self.name,
            type=self.type,
            step=step_of(next(iter(self.tensors))[2]),
            position=self.position,
            line=self.line,
            tensors=tuple(tensors),
        )


class _Grouped:
    """Hits by node, and counts of them, computed at first access. Immutable."""

    def __init__(self, hits: list[SessionHit], amount: int) -> None:
        self.hits = hits
        self.amount = amount
        nodes: dict[tuple[int, str, str], _Node] = {}
        for hit in islice(hits, amount):
            key = (hit.rank, hit.graph, hit.node)
            if key not in nodes:
                nodes[key] = _Node(hit, len(nodes))
            nodes[key].add(hit)
        self.nodes = sorted(nodes.values(), key=lambda node: node.sort_key)

    @cached_property
    def tensors(self) -> int:
        """Number of tensors with a hit."""
        return sum(node.count() for node in self.nodes)

    @cached_property
    def abbreviations(self) -> Mapping[TensorAddress, tuple[str, ...]]:
        """Abbreviations of the conditions that hit, by tensor."""
        by_tensor = {}
        for node in self.nodes:
            for tensor, hits in node.tensors.items():
                texts = {hit.abbreviation or hit.condition: None for _, hit in sorted(hits.items()) if hit.hit}
                if texts:
                    by_tensor[node.address(tensor)] = tuple(texts)
        return by_tensor

    @cached_property
    def by_watchpoint(self) -> Counter[int]:
        """Number of tensors that each watchpoint hit."""
        return Counter(
            number for node in self.nodes for hits in node.tensors.values() for number, hit in hits.items() if hit.hit
        )

    @cached_property
    def below(self) -> Counter[tuple[int, str, str]]:
        """Number of tensors with a hit in each node, scope and group."""
        counts: Counter[tuple[int, str, str]] = Counter()
        for node in self.nodes:
            if amount := node.count():
                for path in _paths_above(node.name, node.type):
                    for graph in {node.graph, ""}:
                        counts[node.rank, graph, path] += amount
        return counts


def _paths_above(node: str, node_type: str) -> list[str]:
    """Return the name of a node, and the paths of all scopes and groups that contain it."""
    groups = {"Parameter": PARAMETERS, "Const": CONSTANTS}
    if node_type in groups:
        return list(dict.fromkeys(("", groups[node_type], node)))
    paths = [node]
    at = node.rfind("/")
    while at >= 0:
        paths.append(node[:at])
        at = node.rfind("/", 0, at)
    return list(dict.fromkeys(("", *paths)))
