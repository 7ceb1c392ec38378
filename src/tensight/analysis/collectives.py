"""What a collective operator brought from another rank began on that rank, and not at the operator."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tensight.analysis.anomalies import Anomaly
from tensight.graph.operator_facts import is_collective

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tensight.analysis.origins import Origin


def across_ranks(origins: Iterable[Origin]) -> list[Origin]:
    """Return origins of all ranks, of which those behind collective operators say from which rank the anomaly came.

    Where no rank shows the anomaly before, it began at the collective, as when a sum over ranks becomes too large.
    """
    found = list(origins)
    elsewhere = [one for one in found if not _is_behind_collective(one)]
    return [_from_another(one, elsewhere) if _is_behind_collective(one) else one for one in found]


def _is_behind_collective(origin: Origin) -> bool:
    """Whether an origin is at a collective operator, or where one was seen first whose result nobody has seen.

    PyTorch's operators return before the tensor that they were given has been filled. A sum is zero only if what all
    ranks brought is.
    """
    if is_collective(origin.op_type):
        return True
    hidden = (_type_in(name) for name in origin.candidates if name != origin.operator)
    return origin.anomaly is not Anomaly.ALL_ZERO and any(map(is_collective, hidden))


def _type_in(name: str) -> str:
    """Return the type of an operator, as its name has it."""
    return name.rpartition("/")[2].rpartition("-op")[0]


def _from_another(origin: Origin, elsewhere: list[Origin]) -> Origin:
    at = origin.address
    ranks = [
        one.address.rank
        for one in elsewhere
        if one.anomaly is origin.anomaly and one.address.rank != at.rank and one.address.iteration <= at.iteration
    ]
    return replace(origin, from_rank=min(ranks), arrived=True, candidates=()) if ranks else origin
