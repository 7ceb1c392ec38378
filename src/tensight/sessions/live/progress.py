"""How far a training process has come: its step, where it is stopped, and which graphs ran."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from tensight import wire
from tensight.graph.steps import iteration_of
from tensight.sessions.live.executions import Executions
from tensight.sessions.live.identity import root_graph_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tensight.wire.debugger_pb2 import ContentHash, Metadata

_MOST_KEPT = 100_000
"""Iterations before the current one of which a process may keep values."""


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


class Progress:
    """The steps of a process.

    Attributes
    ----------
    step : int
        Number of completed steps.
    offset : int
        Steps that the other ranks of its run had completed when it joined them.
    node : str
        Full name of the operator at which it is stopped, if it stops at operators.
    root_id : int or None
        Number of the root graph in which it is stopped.
    released : int or None
        The global step from which it last continued.
    hashes : dict of ComparedTensor to int
        Hashes, at the current stop, of tensors that are compared between ranks.
    lost_weights : tuple of str
        Weights that are NaN or Inf at the current stop.
    executions : Executions
        The graphs that ran in its iterations.
    """

    def __init__(self) -> None:
        self.step = 0
        self.offset = 0
        self.node = ""
        self.root_id: int | None = None
        self.released: int | None = None
        self.hashes: dict[ComparedTensor, int] = {}
        self.lost_weights: tuple[str, ...] = ()
        self.executions = Executions()
        self._oldest: int | None = None

    @classmethod
    def from_json(cls, data: Any) -> Progress:
        """Return what an earlier server noted with `as_json`; KeyError, TypeError and ValueError if it is damaged."""
        progress = cls()
        progress.step, progress.offset, progress.node = int(data["step"]), int(data["offset"]), str(data["node"])
        progress.root_id = None if data["root_id"] is None else int(data["root_id"])
        return progress

    def as_json(self) -> dict[str, Any]:
        """Return what is noted for a restart of the server."""
        return {"step": self.step, "offset": self.offset, "node": self.node, "root_id": self.root_id}

    @property
    def global_step(self) -> int:
        """Its step as counted by all ranks of the run together."""
        return self.step + self.offset

    @property
    def iteration(self) -> int:
        """The iteration whose values it has; -1 before the first."""
        return iteration_of(self.step)

    @property
    def oldest(self) -> int | None:
        """The oldest iteration of which it keeps values, if it keeps any; it may claim more than it can have."""
        return None if self._oldest is None else max(self._oldest, self.iteration - _MOST_KEPT)

    def move(self, step: int) -> None:
        """Note that the process has completed steps."""
        if step != self.step:
            self.executions.advance(self.step if self.step < step else max(step - 1, 0), step)
            self.step = step

    def arrive(self, message: Metadata, *, has_history: bool) -> bool:
        """Note where the process is stopped; return whether that is another step or operator than before.

        Parameters
        ----------
        message : Metadata
        has_history : bool
            Whether it says which values it keeps.

        Raises
        ------
        WireError
            A name in the message is invalid.
        """
        step, root_id, before = max(message.cur_step, 0), root_graph_of(message), (self.step, self.node)
        self.root_id = self.root_id if root_id is None else root_id
        if has_history:
            self._oldest = max(message.oldest_iteration, -1)
        self.hashes = _received_hashes(message.hashes)
        self.node = wire.text(message.cur_node, wire.MOST_NAME)
        self.move(step)
        if root_id is not None:
            self.executions.note(self.iteration, root_id)
        return (step, self.node) != before


def _received_hashes(messages: Iterable[ContentHash]) -> dict[ComparedTensor, int]:
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
