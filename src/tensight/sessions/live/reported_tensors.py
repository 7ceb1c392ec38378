"""What processes report of their tensors: whose statistics they are, and of which step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from tensight.graph import TensorAddress

if TYPE_CHECKING:
    from tensight.wire.statistics import ReceivedStatistics


class TensorKey(NamedTuple):
    """What a tensor is called in every iteration."""

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
        """Return the address in an iteration."""
        return TensorAddress(self.rank, self.graph, self.node, self.slot, iteration, self.io)


@dataclass(frozen=True, slots=True)
class ReportedRow:
    """Statistics that a process told.

    Attributes
    ----------
    key : TensorKey
    iteration : int
    statistics : ReceivedStatistics
    type : str
        Of the operator.
    position : int or None
        Of the node in the order of execution.
    """

    key: TensorKey
    iteration: int
    statistics: ReceivedStatistics
    type: str = ""
    position: int | None = None


class ReportedTensor(NamedTuple):
    """A tensor whose statistics a process tells again and again.

    Attributes
    ----------
    key : TensorKey
    type : str
        Of the operator.
    position : int or None
        Of the node in the order of execution.
    """

    key: TensorKey
    type: str = ""
    position: int | None = None
