"""Origins of anomalies over all ranks of a run: the result of each rank, and which came from another rank."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tensight.analysis.anomalies import Anomaly
from tensight.analysis.check import require
from tensight.analysis.collectives import across_ranks
from tensight.analysis.origin import KINDS, in_causal_order, in_nodes, origins_by_rank, require_positive, unplaced
from tensight.analysis.origins import Origin
from tensight.analysis.shown_values import shown_values
from tensight.runs.coverage import merged_coverage
from tensight.runs.programs import program, programs
from tensight.runs.rank import PartialResult
from tensight.tensors import EXPLOSION_LIMIT

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from pydantic import TypeAdapter

    from tensight.analysis import Analysis
    from tensight.runs.run import Run

ROWS = pa.schema([("rank", pa.int32())])
"""An compute has no rows: a rank has a few origins at most."""


@dataclass(frozen=True, slots=True)
class OriginQuery:
    """Where anomalies began.

    Attributes
    ----------
    anomalies : tuple of Anomaly or None
        The kinds to search for; None for the default ones, and overflows on ranks whose device reported some.
    explosion_limit : float
        Finite values whose magnitude is above this count as an explosion.
    """

    anomalies: tuple[Anomaly, ...] | None = None
    explosion_limit: float = EXPLOSION_LIMIT

    @property
    def key(self) -> str:
        """Everything on which a result depends besides the rank."""
        names = None if self.anomalies is None else [anomaly.value for anomaly in self.anomalies]
        return repr(("origins", names, float(self.explosion_limit).hex()))

    def compute(self, analysis: Analysis) -> PartialResult:
        """Return the origins on a rank, before any is attributed to another rank.

        Parameters
        ----------
        analysis : Analysis
            The rank's part of the dump.
        """
        kinds = self.anomalies
        if kinds is None:
            kinds = (*KINDS, *((Anomaly.OVERFLOW,) if analysis.dump.overflows() else ()))
        origins = origins_by_rank(analysis, kinds, explosion_limit=self.explosion_limit)
        others = unplaced(analysis, kinds, explosion_limit=self.explosion_limit)
        rows = sorted({row for origin in origins for row in _rows(origin)})
        shown = shown_values(analysis.statistics_table, np.array(rows, np.int64))
        about: dict[str, Any] = {
            "program": program(analysis.dump),
            "kinds": [kind.value for kind in kinds],
            "origins": _adapter().dump_python(origins, mode="json"),
            "values": {
                str(row): {name: column[at].item() for name, column in shown.items()} for at, row in enumerate(rows)
            },
            "undecided": {anomaly.value: amount for anomaly, amount in others.undecided.items()},
            "unlocated": {anomaly.value: amount for anomaly, amount in others.unlocated.items()},
            "inspected": asdict(in_nodes(analysis)),
            "problems": [asdict(problem) for problem in analysis.problems],
        }
        return PartialResult(about, ROWS.empty_table())


@dataclass(frozen=True, slots=True)
class OriginGroup:
    """The same origin on some ranks.

    Attributes
    ----------
    origin : Origin
        On the first of the ranks.
    values : mapping of int to mapping
        The values that are shown of its rows; see `shown_values`.
    ranks : tuple of int
        The ranks, in increasing order.
    """

    origin: Origin
    values: Mapping[int, Mapping[str, Any]]
    ranks: tuple[int, ...]


class RunOrigins:
    """Where anomalies began in a run.

    Parameters
    ----------
    run : Run
    anomalies : sequence of Anomaly, optional
        The kinds to search for.
    ranks : collection of int, optional
        The ranks whose origins are returned; all by default. All are searched, because an anomaly that was received
        from another rank is recognized only if that rank is searched, too.
    explosion_limit : float
        Finite values whose magnitude is above this count as an explosion.

    Attributes
    ----------
    run : Run
    kinds : tuple of Anomaly
        What was searched for.
    origins : list of Origin
        As `tensight.analysis.origins` returns.
    groups : list of OriginGroup
        The same, equal ones of several ranks once.
    undecided, unlocated : dict of Anomaly to int
        See `tensight.analysis.origin.Unplaced`.
    inspected : Coverage
    problems : list of Problem

    Raises
    ------
    InputError
        A rank is not in the dump, or the limit is not a positive number.
    """

    def __init__(
        self,
        run: Run,
        anomalies: Sequence[Anomaly] | None = None,
        *,
        ranks: Collection[int] | None = None,
        explosion_limit: float = EXPLOSION_LIMIT,
    ) -> None:
        require(ranks, run.ranks, "rank")
        require_positive(explosion_limit)
        (results,) = run.query(OriginQuery(None if anomalies is None else tuple(anomalies), explosion_limit))
        chosen = {rank: results.about[rank] for rank in sorted(results.about) if ranks is None or rank in ranks}
        self.run = run
        self.ranks = tuple(chosen)
        every = [origin for rank in sorted(results.about) for origin in _origins(results.about[rank])]
        self.origins = [origin for origin in in_causal_order(across_ranks(every)) if origin.address.rank in chosen]
        kinds = {kind for about in chosen.values() for kind in about["kinds"]}
        self.kinds = tuple(anomaly for anomaly in Anomaly if anomaly.value in kinds)
        self.undecided = _summed(about["undecided"] for about in chosen.values())
        self.unlocated = _summed(about["unlocated"] for about in chosen.values())
        self.inspected = merged_coverage([about["inspected"] for about in chosen.values()])
        self.problems = run.problems_with(chosen.values())
        self.groups = _grouped(self.origins, {rank: about["values"] for rank, about in chosen.items()})
        self._programs = programs(chosen)

    def ranks_with(self, origin: Origin) -> tuple[int, ...]:
        """Return the ranks of which the program has the operator of an origin.

        Parameters
        ----------
        origin : Origin
        """
        return self.run.ranks_with(self._programs, origin.address.graph, origin.operator)


def _grouped(origins: Iterable[Origin], values: Mapping[int, Mapping[str, Any]]) -> list[OriginGroup]:
    """Return origins that read alike on several ranks once, in the order of the first."""
    groups: dict[object, list[Origin]] = {}
    for origin in origins:
        key = origin.sentence, origin.address.graph, origin.user_frame, origin.candidates, origin.also
        groups.setdefault(key, []).append(origin)
    return [
        OriginGroup(
            alike[0],
            {int(row): shown for row, shown in values[alike[0].address.rank].items()},
            tuple(sorted(origin.address.rank for origin in alike)),
        )
        for alike in groups.values()
    ]


def _rows(origin: Origin) -> list[int]:
    """Return the rows of the statistics table that are shown of an origin."""
    return [row for row in (origin.row, *(entry.row for entry in origin.inputs)) if row >= 0]


def _origins(about: Mapping[str, Any]) -> list[Origin]:
    return _adapter().validate_python(about["origins"])


def _summed(amounts: Iterable[Mapping[str, int]]) -> dict[Anomaly, int]:
    total: Counter[str] = Counter()
    for each in amounts:
        total.update(each)
    return {anomaly: total[anomaly.value] for anomaly in Anomaly if total[anomaly.value]}


@lru_cache(maxsize=1)
def _adapter() -> TypeAdapter[list[Origin]]:
    """Return what writes origins as JSON and reads them."""
    from pydantic import TypeAdapter

    return TypeAdapter(list[Origin])
