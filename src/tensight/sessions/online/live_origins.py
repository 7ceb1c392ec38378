"""Where anomalies of a training that goes on were born, by what its processes have told so far."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tensight.analysis.anomalies import shown
from tensight.analysis.origin import KINDS, in_causal_order, origins_among
from tensight.sessions.online.told_steps import ToldSteps, told_steps
from tensight.tensors import EXPLOSION_LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensight.analysis import Anomaly, Origin
    from tensight.sessions.online.rank_graphs import RankGraphs
    from tensight.sessions.online.statistics_store import StatisticsStore

MOST_STEPS = 8
"""Steps that show an anomaly and are looked at for where it began; nearly always the first one tells."""


def live_origins(store: StatisticsStore, rank: int, last: int, graphs: RankGraphs) -> list[Origin]:
    """Find where anomalies of a rank began; see `tensight.analysis.origins`.

    Parameters
    ----------
    store : StatisticsStore
        What the rank told.
    rank : int
    last : int
        The last iteration that counts. The training may be in the middle of it.
    graphs : RankGraphs

    Raises
    ------
    StorageError
        The statistics cannot be read.
    """
    tables: dict[int, ToldSteps] = {}

    def around(iteration: int) -> ToldSteps:
        if iteration not in tables:
            # Of the step before only counts what it left in parameters.
            before = store.told(rank, iteration - 1, only_parameters=True)
            tables[iteration] = told_steps(before + store.told(rank, iteration), rank, graphs)
        return tables[iteration]

    found = (_first(anomaly, store, rank, last, around) for anomaly in KINDS)
    with_lines = (_with_line(origin, graphs) for origin in found if origin is not None)
    return in_causal_order(with_lines, lambda _, name: graphs.graph(name))


def _with_line(origin: Origin, graphs: RankGraphs) -> Origin:
    """Return an origin with the stack of where it is used, if it has none of its own."""
    if origin.user_frame is not None:
        return origin
    used = graphs.used(origin.address.graph, origin.operator)
    return origin if used is None else replace(origin, frames=used.frames)


def _first(
    anomaly: Anomaly, store: StatisticsStore, rank: int, last: int, around: Callable[[int], ToldSteps]
) -> Origin | None:
    """Return the origin in the first iteration in which a node brings the anomaly into the world.

    Where data is missing in every step, and nothing comes of it, the first steps tell nothing. Then one of the last
    ones does, and since what is wrong mostly stays wrong, the first like it is found by halving.
    """

    def look(after: int, most: int, end: int) -> tuple[int, Origin | None]:
        """Return the first origin after an iteration and before an end, and the iteration that was looked at last."""
        for _ in range(most):
            following = store.first_with(anomaly.value, rank, after)
            if following is None or following >= end:
                return end, None
            after = following
            table = around(after)
            for origin in origins_among(table, {anomaly: shown(anomaly, table, EXPLOSION_LIMIT)}, (rank,), since=after):
                return after, origin
        return after, None

    low, origin = look(-1, MOST_STEPS, last + 1)
    if origin is not None or low >= last:
        return origin
    high, origin = look(max(low, last - MOST_STEPS), MOST_STEPS, last + 1)
    while origin is not None and high - low > 1:
        middle = (low + high) // 2
        at, earlier = look(middle - 1, 1, high)
        if earlier is not None:
            high, origin = middle, earlier
        elif at == high:
            high = middle
        else:
            low = at
    return origin
