"""Origins of anomalies in an attached training, from what its processes have reported so far."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tensight.analysis.anomalies import shown
from tensight.analysis.consequences import NO_EFFECTS, Effects
from tensight.analysis.origin import KINDS, first_origin, origins_of_rank
from tensight.graph.optimizers import parameter_roles
from tensight.sessions.live.reported_steps import ReportedSteps, reported_steps
from tensight.sessions.origin_records import with_line
from tensight.tensors import EXPLOSION_LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tensight.analysis import Anomaly, Origin
    from tensight.analysis.consequences import Effect
    from tensight.graph import SourceFrame
    from tensight.sessions.live.rank_graphs import RankGraphs
    from tensight.sessions.live.statistics_store import StatisticsStore

MOST_STEPS = 8
"""Steps with an anomaly that are searched for its origin; nearly always the first one has it."""


def live_origins(
    store: StatisticsStore,
    rank: int,
    last: int,
    graphs: RankGraphs,
    hits: Mapping[Anomaly, Sequence[Effect]] | None = None,
) -> list[Origin]:
    """Find the origins of anomalies of a rank; see `tensight.analysis.origins`.

    Parameters
    ----------
    store : StatisticsStore
        The reported statistics.
    rank : int
    last : int
        The last iteration to search. The training may be in the middle of it.
    graphs : RankGraphs
    hits : mapping of Anomaly to sequence of Effect, optional
        Tensors that watchpoints hit; see `tensight.analysis.origins`.

    Raises
    ------
    StorageError
        The statistics cannot be read.
    """
    around = _around(store, rank, graphs)

    def find(anomaly: Anomaly, effects: Effects, begin: int, *, left_out: bool = False) -> Origin | None:
        return _first(anomaly, store, rank, last, around, begin, effects, left_out=left_out)

    origins = origins_of_rank(KINDS, rank, find, lambda _, name: graphs.graph(name), hits=hits)
    return [_with_since(with_line(origin, graphs.used), graphs, hits) for origin in origins]


def _with_since(origin: Origin, graphs: RankGraphs, hits: Mapping[Anomaly, Sequence[Effect]] | None) -> Origin:
    """Return an origin with the step since which the hits that it explains have lasted.

    A watchpoint that requires several steps stops the training in the last of them, of which the values are known.
    """
    at = origin.address
    effects = Effects((hits or {}).get(origin.anomaly, ()), lambda _, name: graphs.graph(name))
    since = effects.since(at.rank, at.graph, origin.operator, at.iteration)
    return origin if since is None or since.iteration > at.iteration else replace(origin, since=since)


def refined_origins(
    origin: Origin, store: StatisticsStore, last: int, graphs: RankGraphs, since: int | None
) -> list[Origin]:
    """Return the origins to show in place of an origin, if every operator has been captured since it was found.

    An origin at an operator within its lines of code replaces it; any other is returned in addition. Values that only
    arrived from elsewhere are not origins.

    Parameters
    ----------
    origin : Origin
    store : StatisticsStore
    last : int
        The last iteration to search.
    graphs : RankGraphs
        Graphs of the origin's rank.
    since : int or None
        The first iteration in which every operator was captured; None if there is none.

    Raises
    ------
    StorageError
        The statistics cannot be read.
    """
    rank = origin.address.rank
    if since is None or origin.address.iteration >= since:
        return [origin]
    refined = _first(origin.anomaly, store, rank, last, _around(store, rank, graphs), since)
    if refined is None or refined.arrived or not refined.certain:
        return [origin]
    refined, frame = with_line(refined, graphs.used), origin.user_frame
    is_within = frame is not None and any(_is_within(other, frame) for other in refined.frames)
    return [refined] if is_within else [origin, refined]


def _around(store: StatisticsStore, rank: int, graphs: RankGraphs) -> Callable[[int], ReportedSteps]:
    """Return a function that returns what was reported of an iteration, and of parameters after the previous one."""
    tables: dict[int, ReportedSteps] = {}

    def around(iteration: int) -> ReportedSteps:
        if iteration not in tables:
            # From the previous step, only its final parameters matter.
            before = store.reported(rank, iteration - 1, only_parameters=True)
            iterations = store.iterations_of(rank)
            is_first = iteration > 0 and not np.any((iterations >= 0) & (iterations < iteration))
            unseen = (0, iteration - 1) if is_first else None
            tables[iteration] = reported_steps(before + store.reported(rank, iteration), rank, graphs, unseen)
        return tables[iteration]

    return around


def _is_within(frame: SourceFrame, lines: SourceFrame) -> bool:
    """Return whether a line is among the lines of a frame."""
    if frame.file != lines.file or frame.line is None or lines.line is None:
        return False
    return lines.line <= frame.line <= (lines.end_line or lines.line)


def lost_weights(store: StatisticsStore, rank: int, iteration: int, graphs: RankGraphs) -> tuple[str, ...]:
    """Return the names of weights that contain NaN or Inf after an iteration.

    Parameters
    ----------
    store : StatisticsStore
    rank : int
    iteration : int
    graphs : RankGraphs
        Graphs of the rank.

    Raises
    ------
    StorageError
        The statistics cannot be read.
    """
    steps = reported_steps(store.reported(rank, iteration, only_parameters=True), rank, graphs)
    amounts, _ = steps.bounds("non_finite_count")
    weights = {name for graph in graphs.graphs for name in parameter_roles(graph).trainable}
    names = (tensor.node for tensor, amount in zip(steps.tensors, amounts.tolist(), strict=True) if amount)
    return tuple(sorted({name for name in names if name in weights}))


def _first(
    anomaly: Anomaly,
    store: StatisticsStore,
    rank: int,
    last: int,
    around: Callable[[int], ReportedSteps],
    begin: int = 0,
    effects: Effects = NO_EFFECTS,
    *,
    left_out: bool = False,
) -> Origin | None:
    """Return the origin in the first iteration in which a node is the root cause of the anomaly.

    If every step has the anomaly without consequences, such as NaN for missing data, the first steps have no origin.
    Then one of the last steps may have it, and since anomalies mostly persist, bisection finds the first such step.
    """

    def first_between(after: int, most: int, end: int) -> tuple[int, Origin | None]:
        """Return the iteration searched last, and the first origin after an iteration and before an end."""
        for _ in range(most):
            following = store.first_with(anomaly.value, rank, after)
            if following is None or following >= end:
                return end, None
            after = following
            table = around(after)
            if after < last and not table.has_operators(after) and around(after + 1).has_operators(after + 1):
                # When it stops, a process reports only the parameters after this step.
                continue
            shows = shown(anomaly, table, EXPLOSION_LIMIT)
            origin = first_origin(table, shows, rank, effects, after, left_out=left_out)
            if origin is not None:
                return after, origin
        return after, None

    low, origin = first_between(begin - 1, MOST_STEPS, last + 1)
    if origin is not None or low >= last:
        return origin
    high, origin = first_between(max(low, last - MOST_STEPS), MOST_STEPS, last + 1)
    while origin is not None and high - low > 1:
        middle = (low + high) // 2
        at, earlier = first_between(middle - 1, 1, high)
        if earlier is not None:
            high, origin = middle, earlier
        elif at == high:
            high = middle
        else:
            low = at
    return origin
