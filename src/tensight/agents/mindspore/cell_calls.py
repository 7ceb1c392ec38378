"""What cells compute in a step, as a tree of calls: steps that run the same come to the same place in it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from mindspore import Tensor

from tensight.agents.eager.calls import Operation as CalledOperation
from tensight.agents.eager.calls import Slot, tensors_in_value

if TYPE_CHECKING:
    from tensight.agents.eager.call_sites import CallSite
    from tensight.agents.eager.traced_programs import Trace
    from tensight.agents.places import DeclaredNode
    from tensight.agents.program import Source, StackFrame

tensors_in = partial(tensors_in_value, Tensor)
"""Returns the tensors in a value, in the order in which it holds them."""


class Operation(CalledOperation[Slot]):
    """A node: the n-th call of a leaf, or what a container's own code computes for the n-th time.

    Attributes
    ----------
    inputs : dict of int to Slot
        What came from outside, by the number of the input.
    is_compiled : bool
        Whether nothing can be seen of what happens within it.
    """

    __slots__ = ("inputs", "is_compiled")

    def __init__(self, node: DeclaredNode) -> None:
        super().__init__(node)
        self.inputs: dict[int, Slot] = {}
        self.is_compiled = False


class Ran:
    """That an operation ran at one position of a step, and what it read.

    Attributes
    ----------
    parent : Ran or None
    operation : Operation or None
        None for the first of all, where steps begin.
    sources : tuple of Source or None
    read : tuple of (Slot, int)
        The slots that it reads, each with its index among the sources.
    parameters : tuple of str
        Names of parameters among the sources.
    stack : tuple of StackFrame
    since : CallSite or None
        Of a call after which what it returns was computed; None if no such call is known.
    begins_backward : bool
    following : dict
        What came next at some time.
    trace : Trace or None
        Of steps that end here.
    """

    __slots__ = (
        "begins_backward",
        "following",
        "operation",
        "parameters",
        "parent",
        "read",
        "since",
        "sources",
        "stack",
        "trace",
    )

    def __init__(self, parent: Ran | None, operation: Operation | None) -> None:
        self.parent = parent
        self.operation = operation
        self.sources: tuple[Source | None, ...] = ()
        self.read: tuple[tuple[Slot, int], ...] = ()
        self.parameters: tuple[str, ...] = ()
        self.stack: tuple[StackFrame, ...] = ()
        self.since: CallSite | None = None
        self.begins_backward = False
        self.following: dict[tuple[Any, ...], Ran] = {}
        self.trace: Trace | None = None

    def chain(self) -> list[tuple[Ran, Operation]]:
        """Return what ran from the begin of the step to here."""
        found: list[tuple[Ran, Operation]] = []
        at: Ran | None = self
        while at is not None and at.operation is not None:
            found.append((at, at.operation))
            at = at.parent
        found.reverse()
        return found
