"""Outputs that operators declare and never write, so that their memory is as it happened to be.

MindSpore dumps them all the same, on CPU and GPU. On Ascend those of optimizers share memory with what was written to,
and those of normalizations are written.
"""

from __future__ import annotations

WITHOUT_RESULTS = frozenset(
    {"Adam", "AdamWeightDecay", "FusedAdam", "FusedAdamWeightDecay", "FusedCastAdamWeightDecay"}
    | {"ApplyRMSProp", "ApplyCenteredRMSProp"}
    | {"FusedSparseAdam", "FusedSparseLazyAdam", "FusedSparseFtrl", "FusedSparseProximalAdagrad"}
)
"""Types of operators that write to parameters, and to none of their outputs."""

_SOME = {"BatchNorm": (1, 2)}
"""Outputs that operators of a type leave alone: the statistics of a batch, which they put out once more as 3 and 4."""


def is_unwritten(kind: str, slot: int) -> bool:
    """Return whether operators of a type never write an output."""
    return kind in WITHOUT_RESULTS or slot in _SOME.get(kind, ())
