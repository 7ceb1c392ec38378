"""The interface to the observed tensors of a run, from a dump, a recording or a process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tensight.graph import Graph, Node


class ObservedTensor(Protocol):
    """A tensor in an iteration, described by a row of statistics; the attributes are those of `TensorFile`."""

    @property
    def rank(self) -> int:
        """The rank."""

    @property
    def graph_id(self) -> int:
        """Number of the root graph that ran."""

    @property
    def iteration(self) -> int:
        """The iteration, from 0; values from before the first are at -1."""

    @property
    def node(self) -> str | None:
        """Name of the node; None if it is in no graph."""

    @property
    def graph(self) -> str:
        """Name of the graph that contains the node."""

    @property
    def op_type(self) -> str:
        """Type of the operator; ``Parameter`` for nodes that are not operators."""

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
        """The tensor of each row."""

    @property
    def rows(self) -> NDArray[np.void]:
        """Structured array `ROW`."""

    def bounds(self, name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the smallest and the largest value that a statistic of each row can have."""

    def graph(self, rank: int, name: str) -> Graph | None:
        """Return a graph of a rank."""

    def position(self, rank: int, node: Node) -> int:
        """Return the position of an operator in the order of execution; other nodes have none in it."""

    def moments(self, row: int) -> tuple[int, int]:
        """Return when the tensor of a row was first and last observed in its iteration; zeros if unknown."""

    def graphs(self, rank: int) -> Sequence[Graph]:
        """Return all graphs of a rank."""

    def printed_names(self, rank: int, graph: str) -> Mapping[str, str]:
        """Return the framework's names for the values of a graph's operators, by operator name."""

    @property
    def is_whole(self) -> bool:
        """Whether an iteration with any row has rows for all operators that ran."""

    @property
    def is_as_read(self) -> bool:
        """Whether rows of parameters and inputs show the values that calls read, not those at the end of the step."""

    def unseen_before(self, rank: int, iteration: int) -> tuple[int, int] | None:
        """Return the first and last of the unobserved iterations that ran directly before an iteration, if any."""
