"""Reported statistics of iterations with the graphs of a rank, as input of the search for origins."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from tensight.analysis.statistics_table import KNOWN, ROW, UNKNOWN
from tensight.dumps.execution import UNMATCHED
from tensight.tensors import MEASURES, NUMBERS
from tensight.tensors.schema import NON_FINITE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from tensight.graph import Graph, Node
    from tensight.sessions.live.rank_graphs import RankGraphs

REPORTED_COLUMNS = ("iteration", "graph", "node", "io", "slot", "dtype", "hash", "partial")
"""First columns of a row that the store returns; `NUMBERS` follow."""


class ReportedTensor(NamedTuple):
    """A tensor that a process reported; the attributes are those of `ObservedTensor`."""

    rank: int
    graph_id: int
    iteration: int
    node: str | None
    graph: str
    op_type: str
    io: Literal["input", "output"]
    slot: int


@dataclass(frozen=True, slots=True)
class ReportedSteps:
    """Rows of some iterations of a rank; implements `Observations`, and what `shown` needs of a table.

    Attributes
    ----------
    tensors : list of ReportedTensor
    rows : structured array `ROW`, shape (n,)
    dtypes : list of str
    unseen : tuple of (int, int) or None
        First and last of the preceding iterations, if none of them was reported.
    """

    tensors: list[ReportedTensor]
    rows: NDArray[np.void]
    dtypes: list[str]
    unseen: tuple[int, int] | None
    _graphs: RankGraphs

    def bounds(self, name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return a count or measure of each row as lower and upper bound, which are equal: agents report exactly."""
        names = NON_FINITE if name == "non_finite_count" else (name,)
        exact = np.sum([self.rows[column].astype(np.float64) for column in names], axis=0)
        return exact, exact

    def graph(self, rank: int, name: str) -> Graph | None:  # noqa: ARG002 - there is only one
        """Return a graph of the rank."""
        return self._graphs.graph(name)

    def position(self, rank: int, node: Node) -> int:  # noqa: ARG002 - there is only one
        """Return the position of a node in execution order; nodes without one come last."""
        position = self._graphs.position(node)
        return UNMATCHED if position is None else position

    def moments(self, row: int) -> tuple[int, int]:  # noqa: ARG002 - a process reports a step as a whole
        """Return the first and the last moment of a tensor in its iteration: 0, since they are unknown."""
        return 0, 0

    def graphs(self, rank: int) -> Sequence[Graph]:  # noqa: ARG002 - there is only one
        """Return the graphs of the rank."""
        return self._graphs.graphs

    def printed_names(self, rank: int, graph: str) -> Mapping[str, str]:  # noqa: ARG002 - the process knows them
        """Return the names that the framework prints for values of operators: none, the process resolves them."""
        return {}

    def has_operators(self, iteration: int) -> bool:
        """Return whether operators of an iteration were reported, not only its final parameters."""
        return any(tensor.iteration == iteration and tensor.op_type not in ("", "Parameter") for tensor in self.tensors)

    @property
    def is_whole(self) -> bool:
        """Whether everything that ran was reported. False: unwatched operators were not."""
        return False

    @property
    def is_as_read(self) -> bool:
        """Whether parameters are reported as the step read them. False: they are reported after its update."""
        return False

    def unseen_before(self, rank: int, iteration: int) -> tuple[int, int] | None:  # noqa: ARG002 - there is only one
        """Return the preceding iterations if none of them was reported; a running training reports only some steps."""
        return self.unseen


def reported_steps(
    reported: Sequence[tuple[Any, ...]], rank: int, graphs: RankGraphs, unseen: tuple[int, int] | None = None
) -> ReportedSteps:
    """Convert rows of the store for the search.

    Parameters
    ----------
    reported : sequence of tuple
        Rows with the columns `REPORTED_COLUMNS` and `NUMBERS`.
    rank : int
    graphs : RankGraphs
        Graphs of the rank.
    unseen : tuple of (int, int), optional
        First and last of the preceding iterations, if none of them was reported.
    """
    rows = np.zeros(len(reported), ROW)
    if reported:
        columns = list(zip(*reported, strict=True))
        numbers = np.array(columns[len(REPORTED_COLUMNS) :], np.float64)
        for name, column in zip(NUMBERS, numbers, strict=True):
            rows[name] = column if name in MEASURES else np.nan_to_num(column)
        rows["content_hash"] = [int(text, 16) if text else 0 for text in columns[REPORTED_COLUMNS.index("hash")]]
        rows["state"] = np.where(np.array(columns[REPORTED_COLUMNS.index("partial")], np.bool_), UNKNOWN, KNOWN)
    ran = _graphs_that_ran(reported, graphs)
    tensors = [_tensor(row, rank, graphs, ran.get(row[0])) for row in reported]
    return ReportedSteps(tensors, rows, [row[5] for row in reported], unseen, graphs)


def _graphs_that_ran(reported: Iterable[tuple[Any, ...]], graphs: RankGraphs) -> dict[int, Graph]:
    """Return the graph that ran in each iteration: the one with the most of the reported operators.

    Ties are decided by the number of operators that the process reported for the graph, then for the smallest graph,
    then for the newest.
    """
    newest = graphs.graphs[::-1]
    operators: dict[int, dict[str, str]] = {}
    for iteration, name, node_name, *_ in reported:
        graph = graphs.graph(name)
        node = graph.get(node_name) if graph is not None else None
        if node is not None and node.is_operator:
            operators.setdefault(iteration, {})[node_name] = name
    return {iteration: _that_fits(named, newest) for iteration, named in operators.items()}


def _that_fits(named: Mapping[str, str], graphs: Iterable[Graph]) -> Graph:
    """Return the graph with the most of some operators, given the graph that each was reported for."""
    after = Counter(named.values())
    return max(graphs, key=lambda graph: (sum(name in graph for name in named), after[graph.name], -len(graph.nodes)))


def _tensor(row: tuple[Any, ...], rank: int, graphs: RankGraphs, ran: Graph | None) -> ReportedTensor:
    """Return the tensor of a row: in the graph that ran if it has the node, else in the reported graph."""
    iteration, graph_name, name, io, slot = row[:5]
    graph = ran if ran is not None and name in ran else graphs.graph(graph_name)
    node = graph.get(name) if graph is not None else None
    if graph is None or node is None:
        return ReportedTensor(rank, 0, iteration, None, "", "", io, slot)
    kind = node.type if node.is_operator else "Parameter"
    # Values from before the first step belong to the graph that ran first.
    return ReportedTensor(rank, ran.root_id if ran else graph.root_id, iteration, name, graph.name, kind, io, slot)
