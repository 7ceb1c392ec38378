"""A tensor as the drop-in API names it: an output of a node in an iteration, whether or not it was dumped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tensight.debugger.node import Node


class DebuggerTensor:
    """One output of a node in one iteration.

    Obtain them from `DumpAnalyzer.select_tensors`, `Node.get_output_tensors` or `Node.get_input_tensors`. Two objects
    that name the same tensor are equal.

    Parameters
    ----------
    node : Node
        The node whose output it is.
    slot : int
        Which output, from 0.
    iteration : int or None
        The iteration, from 0.
    """

    __slots__ = ("_iteration", "_node", "_slot")

    def __init__(self, node: Node, slot: int, iteration: int | None) -> None:
        self._node = node
        self._slot = slot
        self._iteration = iteration

    @property
    def node(self) -> Node:
        """The node whose output this is."""
        return self._node

    @property
    def slot(self) -> int:
        """Which output of the node, from 0."""
        return self._slot

    @property
    def iteration(self) -> int | None:
        """The iteration, from 0."""
        return self._iteration

    @property
    def rank(self) -> int:
        """The rank of the process that computed it."""
        return self._node.rank

    def value(self) -> NDArray[Any] | None:
        """Return the elements.

        Returns
        -------
        ndarray or None
            Read-only. None when the tensor was not dumped, is empty, or there is no iteration. Constants have one
            value, from the dump or from the graph, in every iteration.

        Raises
        ------
        TensorFileError
            The file is damaged.
        """
        if self._iteration is None:
            return None
        return self._node.owner.value(self._node, self._slot, self._iteration)

    def __eq__(self, other: object) -> bool:
        """Tell whether both name the same tensor."""
        if not isinstance(other, DebuggerTensor):
            return NotImplemented
        return (self._node, self._slot, self._iteration) == (other._node, other._slot, other._iteration)

    def __hash__(self) -> int:
        return hash((self._node, self._slot, self._iteration))

    def __str__(self) -> str:
        """Return rank, graph, node, slot and iteration, a line each."""
        return f"{self._node}\nslot: {self._slot}\niteration: {self._iteration}"
