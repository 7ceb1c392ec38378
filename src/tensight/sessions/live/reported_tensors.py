"""Keys and rows of the tensors whose statistics processes report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from tensight.graph import TensorAddress

if TYPE_CHECKING:
    from tensight.wire.statistics import ReceivedStatistics


class TensorKey(NamedTuple):
    """Identity of a tensor across iterations."""

    rank: int
    graph: str
    node: str
    io: Literal["input", "output"]
    slot: int

    @classmethod
    def of(cls, address: TensorAddress) -> TensorKey:
        """Return the key of an address."""
        return cls(address.rank, address.graph, address.node, address.io, address.slot)

    def at(self, iteration: int) -> TensorAddress:
        """Return the address of the tensor in an iteration."""
        return TensorAddress(self.rank, self.graph, self.node, self.slot, iteration, self.io)


@dataclass(frozen=True, slots=True)
class ReportedRow:
    """Statistics that a process reported.

    Attributes
    ----------
    key : TensorKey
    iteration : int
    statistics : ReceivedStatistics
    type : str
        Type of the operator.
    position : int or None
        Position of the node in execution order.
    """

    key: TensorKey
    iteration: int
    statistics: ReceivedStatistics
    type: str = ""
    position: int | None = None


class ReportedTensor(NamedTuple):
    """A tensor whose statistics a process reports repeatedly.

    Attributes
    ----------
    key : TensorKey
    type : str
        Type of the operator.
    position : int or None
        Position of the node in execution order.
    """

    key: TensorKey
    type: str = ""
    position: int | None = None
