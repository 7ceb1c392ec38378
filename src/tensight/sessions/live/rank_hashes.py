"""Comparison of tensors that should be equal on all ranks, by their hashes, when all ranks are at the same step."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tensight import wire
from tensight.sessions.live.watching import session_hits
from tensight.watchpoints import condition

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tensight.sessions.hit_list import SessionHit
    from tensight.sessions.live.identity import Identity
    from tensight.sessions.live.rank_graphs import RankGraphs
    from tensight.sessions.watchpoint_list import SessionWatchpoint
    from tensight.wire.debugger_pb2 import ContentHash

MOST_HASHES = 200_000
"""Hashes of a process at a step that are compared; further ones are ignored."""


class ComparedTensor(NamedTuple):
    """A tensor whose hashes ranks report.

    Attributes
    ----------
    node : str
        Full name.
    slot : int
    watchpoint : int
        Number of the requesting watchpoint in the process.
    """

    node: str
    slot: int
    watchpoint: int


class ComparedProcess(Protocol):
    """A process whose hashes are compared with those of others; see `TrainingProcess`."""

    identity: Identity
    graphs: RankGraphs
    hashes: dict[ComparedTensor, int]
    root_id: int | None

    @property
    def iteration(self) -> int:
        """The iteration whose values it has."""


def received_hashes(messages: Iterable[ContentHash]) -> dict[ComparedTensor, int]:
    """Read the hashes in a message of a process.

    Raises
    ------
    WireError
        A name is invalid.
    """
    return {
        ComparedTensor(wire.name(message.node), max(message.slot, 0), message.watchpoint): message.hash
        for message in islice(messages, MOST_HASHES)
    }


def differing_tensors(
    processes: Sequence[ComparedProcess], watchpoints: Sequence[SessionWatchpoint]
) -> list[SessionHit]:
    """Compare ranks at the same step; return hits, one on each rank for each tensor that differs.

    Parameters
    ----------
    processes : sequence of ComparedProcess
    watchpoints : sequence of SessionWatchpoint
        Watchpoints of the session.
    """
    hashes: dict[ComparedTensor, set[int]] = {}
    for process in processes:
        for tensor, content_hash in process.hashes.items():
            hashes.setdefault(tensor, set()).add(content_hash)
    different = {tensor for tensor, values in hashes.items() if len(values) > 1}
    hits: list[SessionHit] = []
    for process in processes if different else ():
        rank_hits = [_hit(tensor) for tensor in process.hashes if tensor in different]
        hits += session_hits(
            rank_hits, watchpoints, process.graphs, process.identity, process.iteration, process.root_id
        )
    return hits


def _hit(tensor: ComparedTensor) -> wire.ReceivedHit:
    number = condition("weights_differ").wire_number or 0
    return wire.ReceivedHit(tensor.node, tensor.slot, "output", "", tensor.watchpoint, number, 0, ())
