"""Sources of the overview, the timeline and the curves of a training: the reports of its processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.graph import TensorAddress, step_of
from tensight.graph.node import CONSTANT
from tensight.sessions.curves import curves
from tensight.sessions.live.reported_tensors import TensorKey
from tensight.sessions.loss import find_loss, with_reported_loss
from tensight.sessions.overview import INFINITE, NAN, ListedTensor, StepColumn, ordinal, own_graph
from tensight.sessions.timeline import KnownSteps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from tensight.sessions.hit_list import SessionHit
    from tensight.sessions.live.process import TrainingProcess
    from tensight.sessions.live.rank_graphs import RankGraphs
    from tensight.sessions.live.statistics_store import StatisticsStore
    from tensight.sessions.records import Curves, OverviewStatistic, StatisticsRow

NOT_LISTED = -1
"""Index of a tensor that is not listed."""

MOST_LOSSES = 20_000
"""Steps of a loss curve; a longer training shows the newest."""


class ReportedSource:
    """The statistics that a rank reported; an `OverviewSource`.

    Parameters
    ----------
    store : StatisticsStore
    rank : int
    offset : int
        Steps that other ranks had completed before the process of this rank attached.
    first_of : callable, optional
        See `OverviewSource`.
    """

    def __init__(
        self, store: StatisticsStore, rank: int, offset: int = 0, first_of: Callable[[str, str], str] = own_graph
    ) -> None:
        self._store = store
        self._first_step = offset + step_of(0)
        self.rank = rank
        self.first_of = first_of
        rows = store.tensors_of(rank)
        self._index_of_id = np.full(max((row[0] for row in rows), default=0) + 1, NOT_LISTED, np.int64)
        self._positions = np.full_like(self._index_of_id, ordinal(None))
        index_by_key: dict[tuple[str, str, str, int], int] = {}
        self.tensors: list[ListedTensor] = []
        for number, graph, node, io, slot, kind, position in rows:
            if kind == CONSTANT:
                # A constant is the same in every step.
                continue
            index = index_by_key.setdefault((first_of(graph, node), node, io, slot), len(self.tensors))
            if index == len(self.tensors):
                self.tensors.append(ListedTensor(node, io, slot, graph, (graph,), kind, position))
            else:
                graphs = (*self.tensors[index].graphs, graph)
                self.tensors[index] = ListedTensor(node, io, slot, graph, graphs, kind, position)
            self._index_of_id[number] = index
            self._positions[number] = ordinal(position)
        self.steps = store.iterations_of(rank) + self._first_step

    def columns(self, statistic: OverviewStatistic) -> Iterator[StepColumn]:
        """Yield the reported statistics, step by step."""
        for iteration, ids, values, marks in self._store.columns(self.rank, statistic):
            # Tensors first reported after this source was created are not listed.
            listed = ids < len(self._index_of_id)
            listed[listed] = self._index_of_id[ids[listed]] != NOT_LISTED
            indices = self._index_of_id[ids[listed]]
            yield StepColumn(iteration + self._first_step, indices, values[listed], marks[listed], ids[listed])

    def positions(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """See `OverviewSource`."""
        return self._positions[rows]


def known_steps(
    process: TrainingProcess,
    store: StatisticsStore,
    source: ReportedSource,
    kept: set[int],
    hits: Mapping[int, Sequence[SessionHit]],
    present: int,
) -> KnownSteps:
    """Return the known steps of a process; reads the store.

    Parameters
    ----------
    process : TrainingProcess
    store : StatisticsStore
    source : ReportedSource
        Source of the process.
    kept : set of int
        Iterations with values on disk.
    hits : mapping of int to sequence of SessionHit
        Hits by step.
    present : int
        The current step of the run.
    """
    progress = process.progress
    first_step = progress.offset + step_of(0)
    at_source: set[int] = set()
    if process.is_live:
        oldest = progress.iteration if progress.oldest is None else progress.oldest
        at_source = set(range(min(oldest, progress.iteration), progress.iteration + 1))
    graphs, executions = process.graphs, progress.executions

    def graphs_at(steps: Sequence[int]) -> list[str]:
        roots = executions.at([step - first_step for step in steps])
        names = {root: _name(graphs, root) for root in set(roots)}
        return [names[root] for root in roots]

    return KnownSteps(
        rank=process.rank,
        last=present,
        present=present,
        statistics=source.steps.tolist(),
        values=[iteration + first_step for iteration in kept | at_source],
        hits=hits,
        graphs_at=graphs_at,
        loss=with_reported_loss(
            _loss(source, store, graphs, progress.offset), reported_scalars(store, process.rank, progress.offset)
        ),
    )


def _name(graphs: RankGraphs, root_id: int | None) -> str:
    root = graphs.graph_that_ran(root_id)
    return root.name if root else ""


def _loss(
    source: ReportedSource, store: StatisticsStore, graphs: RankGraphs, offset: int
) -> tuple[str, dict[int, tuple[float | None, int]]] | None:
    tensor = find_loss(source.tensors, {graph.name: graph for graph in graphs.graphs})
    if tensor is None:
        return None
    rows: list[StatisticsRow] = []
    for graph in tensor.graphs:
        rows += store.history(TensorKey(source.rank, graph, tensor.node, tensor.io, tensor.slot))[-MOST_LOSSES:]
    address = TensorAddress(source.rank, tensor.graph, tensor.node, tensor.slot, 0, tensor.io)
    return str(address).rpartition("@")[0], {row.step + offset: value_of(row.statistics) for row in rows}


def value_of(statistics: Any) -> tuple[float | None, int]:
    """Return the value of a tensor with a single element, from its statistics, and its marks."""
    infinite = INFINITE if statistics.pos_inf_count or statistics.neg_inf_count else 0
    return statistics.mean, (NAN if statistics.nan_count else 0) | infinite


def live_curves(process: TrainingProcess, store: StatisticsStore, present: int, points: int) -> Curves:
    """Return the curves of a process; reads the store.

    Parameters
    ----------
    process : TrainingProcess
    store : StatisticsStore
    present : int
        The current step of the run.
    points : int
        Maximum number of points of a curve.
    """
    offset = process.progress.offset
    reported = reported_scalars(store, process.rank, offset)
    source = ReportedSource(store, process.rank, offset)
    loss = None if ("loss", 0) in reported else _loss(source, store, process.graphs, offset)
    return curves(process.rank, present, reported, loss, points)


def reported_scalars(
    store: StatisticsStore, rank: int, offset: int = 0
) -> dict[tuple[str, int], list[tuple[int, float]]]:
    """Return the scalars that a rank reported, by name and slot: step and value, in order."""
    first_step = offset + step_of(0)
    return {
        key: [(iteration + first_step, value) for iteration, value in scalars]
        for key, scalars in store.scalars(rank).items()
    }
