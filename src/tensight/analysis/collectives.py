"""Attribution of anomalies that a collective operator received from another rank to that rank."""

from __future__ import annotations

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
    elsewhere = [origin for origin in all_origins if not _is_behind_collective(origin)]
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


def _from_another(origin: Origin, elsewhere: list[Origin]) -> Origin:
    at = origin.address
    ranks = [
        other.address.rank
        for other in elsewhere
        if other.anomaly is origin.anomaly and other.address.rank != at.rank and other.address.iteration <= at.iteration
    ]
    return replace(origin, from_rank=min(ranks), arrived=True, candidates=()) if ranks else origin
