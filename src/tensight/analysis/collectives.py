"""Attribution of anomalies that a collective operator received from another rank to that rank."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from typing import TYPE_CHECKING

from tensight.analysis.anomalies import Anomaly
from tensight.graph.operator_facts import is_collective

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tensight.analysis.origins import Origin


def across_ranks(origins: Iterable[Origin]) -> list[Origin]:
    """Return origins of all ranks, with the sending rank in those at or behind collective operators.

    If no other rank shows the anomaly by then, it began at the collective, as when a sum over ranks becomes too large.
    """
    all_origins = list(origins)
    elsewhere = _Earliest(origin for origin in all_origins if not _is_behind_collective(origin))
    return [_from_another(origin, elsewhere) if _is_behind_collective(origin) else origin for origin in all_origins]


def _is_behind_collective(origin: Origin) -> bool:
    """Whether an origin is at a collective operator, or may be at one whose result was not observed.

    PyTorch's collectives return before their output tensor has been filled. All-zero outputs are excluded, because a
    sum is zero only if the contributions of all ranks are.
    """
    if is_collective(origin.op_type):
        return True
    hidden = (_type_in(name) for name in origin.candidates if name != origin.operator)
    return origin.anomaly is not Anomaly.ALL_ZERO and any(map(is_collective, hidden))


def _type_in(name: str) -> str:
    """Return the type of an operator from its name."""
    return name.rpartition("/")[2].rpartition("-op")[0]


class _Earliest:
    """For each anomaly, the lowest ranks that show it up to an iteration.

    Parameters
    ----------
    origins : iterable of Origin
        Origins that did not come through a collective operator.
    """

    def __init__(self, origins: Iterable[Origin]) -> None:
        self._iterations: dict[Anomaly, list[int]] = {}
        self._ranks: dict[Anomaly, list[tuple[int, ...]]] = {}
        for origin in sorted(origins, key=lambda origin: origin.address.iteration):
            ranks = self._ranks.setdefault(origin.anomaly, [])
            lowest = sorted({*(ranks[-1] if ranks else ()), origin.address.rank})[:2]
            ranks.append(tuple(lowest))
            self._iterations.setdefault(origin.anomaly, []).append(origin.address.iteration)

    def other_rank(self, origin: Origin) -> int | None:
        """Return the lowest other rank that shows an anomaly by then; None if there is none."""
        at = origin.address
        earlier = bisect_right(self._iterations.get(origin.anomaly, []), at.iteration)
        ranks = self._ranks[origin.anomaly][earlier - 1] if earlier else ()
        return next((rank for rank in ranks if rank != at.rank), None)


def _from_another(origin: Origin, elsewhere: _Earliest) -> Origin:
    rank = elsewhere.other_rank(origin)
    return origin if rank is None else replace(origin, from_rank=rank, arrived=True, candidates=())
