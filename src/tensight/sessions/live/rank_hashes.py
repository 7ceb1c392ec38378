"""Comparison of tensors that should be equal on all ranks, by their hashes, when all ranks are at the same step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensight import wire
from tensight.sessions.live.watching import session_hits
from tensight.watchpoints import condition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensight.sessions.hit_list import SessionHit
    from tensight.sessions.live.process import TrainingProcess
    from tensight.sessions.live.progress import ComparedTensor
    from tensight.sessions.watchpoint_list import SessionWatchpoint


def differing_tensors(
    processes: Sequence[TrainingProcess], watchpoints: Sequence[SessionWatchpoint]
) -> list[SessionHit]:
    """Compare ranks at the same step; return hits, one on each rank for each tensor that differs.

    Parameters
    ----------
    processes : sequence of TrainingProcess
    watchpoints : sequence of SessionWatchpoint
        Watchpoints of the session.
    """
    hashes: dict[ComparedTensor, set[int]] = {}
    for process in processes:
        for tensor, content_hash in process.progress.hashes.items():
            hashes.setdefault(tensor, set()).add(content_hash)
    different = {tensor for tensor, values in hashes.items() if len(values) > 1}
    hits: list[SessionHit] = []
    for process in processes if different else ():
        rank_hits = [_hit(tensor) for tensor in process.progress.hashes if tensor in different]
        graphs, identity, progress = process.graphs, process.identity, process.progress
        hits += session_hits(rank_hits, watchpoints, graphs, identity, progress.iteration, progress.root_id)
    return hits


def _hit(tensor: ComparedTensor) -> wire.ReceivedHit:
    number = condition("weights_differ").wire_number or 0
    return wire.ReceivedHit(tensor.node, tensor.slot, "output", "", tensor.watchpoint, number, 0, ())
