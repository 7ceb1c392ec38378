"""What is known of the tensors of a run, wherever it comes from: a dump, a recording, a process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tensight.graph import Graph, Node


class ObservedTensor(Protocol):
    """A tensor in one iteration, of which a row of statistics tells; the attributes are those of `TensorFile`."""

    @property
    def rank(self) -> int:
        """The rank."""

    @property
    def graph_id(self) -> int:
        """Number of the root graph that ran."""

    @property
    def iteration(self) -> int:
        """From 0; what was there before the first is at -1."""

    @property
    def node(self) -> str | None:
        """Name of the node; None if no graph has it."""

    @property
    def graph(self) -> str:
        """Name of the graph that has the node."""

    @property
    def op_type(self) -> str:
        """Type of the operator; ``Parameter`` for what is none."""

    @property
    def io(self) -> Literal["input", "output"]:
        """Whether `slot` is an input or an output of the node."""

    @property
    def slot(self) -> int:
        """The slot."""


class Observations(Protocol):
    """Rows of statistics, and the graphs that explain them."""

    @property
    def tensors(self) -> Sequence[ObservedTensor]:
        """What each row is about."""

    @property
    def rows(self) -> NDArray[np.void]:
        """Structured array `ROW`."""

    def bounds(self, name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the smallest and the largest value that a statistic of each row can have."""

    def graph(self, rank: int, name: str) -> Graph | None:
        """Return a graph of a rank."""

    def position(self, rank: int, node: Node) -> int:
        """Return the position of a node in the order of execution; what is no operator is outside of it."""

    def moments(self, row: int) -> tuple[int, int]:
        """Return when the tensor of a row was there first and last in its iteration; zeros if that is not known."""

    def graphs(self, rank: int) -> Sequence[Graph]:
        """Return all graphs of a rank."""

    def printed_names(self, rank: int, graph: str) -> Mapping[str, str]:
        """Return what the framework calls the values of a graph's operators, by the operators' names."""

    @property
    def is_whole(self) -> bool:
        """Whether all operators that ran in an iteration with a row have one."""

    @property
    def is_as_read(self) -> bool:
        """Whether rows of parameters and inputs are of what calls read, and not of what the step left there."""

    def unseen_before(self, rank: int, iteration: int) -> tuple[int, int] | None:
        """Return the first and the last of the iterations that ran directly before one and have no row."""
