"""What ranks should have in common: hashes of the same tensors are compared when all stand at the same step."""

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
"""Of one process at one step that are looked at."""


class ComparedTensor(NamedTuple):
    """A tensor of which ranks tell hashes.

    Attributes
    ----------
    node : str
        Full name.
    slot : int
    watchpoint : int
        Number under which the process knows what asks for it.
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
        """The iteration whose values it holds."""


def received_hashes(messages: Iterable[ContentHash]) -> dict[ComparedTensor, int]:
    """Read what a process tells.

    Raises
    ------
    WireError
        There can be no such name.
    """
    return {
        ComparedTensor(wire.name(one.node), max(one.slot, 0), one.watchpoint): one.hash
        for one in islice(messages, MOST_HASHES)
    }


def differing_tensors(
    processes: Sequence[ComparedProcess], watchpoints: Sequence[SessionWatchpoint]
) -> list[SessionHit]:
    """Compare ranks that stand at one step; return a hit on each rank's tensor where not all are the same.

    Parameters
    ----------
    processes : sequence of ComparedProcess
    watchpoints : sequence of SessionWatchpoint
        Of the session.
    """
    hashes: dict[ComparedTensor, set[int]] = {}
    for process in processes:
        for tensor, content_hash in process.hashes.items():
            hashes.setdefault(tensor, set()).add(content_hash)
    different = {tensor for tensor, found in hashes.items() if len(found) > 1}
    hits: list[SessionHit] = []
    for process in processes if different else ():
        own = [_hit(tensor) for tensor in process.hashes if tensor in different]
        hits += session_hits(own, watchpoints, process.graphs, process.identity, process.iteration, process.root_id)
    return hits


def _hit(tensor: ComparedTensor) -> wire.ReceivedHit:
    number = condition("weights_differ").wire_number or 0
    return wire.ReceivedHit(tensor.node, tensor.slot, "output", "", tensor.watchpoint, number, 0, ())
