"""Outputs that are parameters: operators of optimizers put out what they have just written to their inputs."""

from __future__ import annotations

from tensight.graph.unwritten import WITHOUT_RESULTS

UPDATED_IN_PLACE = frozenset(
    {"ApplyAdadelta", "ApplyAdagrad", "ApplyAdaMax", "ApplyAdamWithAmsgradV2", "ApplyFtrl", "ApplyMomentum"}
    | {"ApplyProximalAdagrad", "SGD"}
)
"""Types of operators whose first output is their first input after the update, whose second is their second …"""

_WRITING = ("Apply", "Assign", "Scatter")


def may_write_inputs(kind: str) -> bool:
    """Return whether operators of a type may write to parameters that they are given."""
    return kind in UPDATED_IN_PLACE or kind in WITHOUT_RESULTS or kind.startswith(_WRITING)
