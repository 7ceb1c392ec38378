"""What cells compute in a step, as a tree of calls: steps that run the same come to the same place in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mindspore import Tensor

if TYPE_CHECKING:
    import weakref
    from collections.abc import Callable

    from tensight.agents.places import DeclaredNode
    from tensight.agents.program import Source, StackFrame
    from tensight.agents.traced_programs import Trace
    from tensight.graph import OutputSlot

UNPLACED = -1

MOST_TENSORS = 64
"""Of one call, on either side."""

_DEEPEST = 5


class Slot:
    """An output of an operation, or a tensor that a step gets from outside.

    Attributes
    ----------
    place : int
    source : Source
        The node and output that it is.
    outline : OutputSlot
        dtype and shape when it was first seen.
    reference : weakref of Tensor or None
        The tensor that stood here in the latest step.
    consumer : (Operation, int) or None
        What reads it first in the latest step, and as which input: its gradient is an output of that one's gradient.
    gradient_place : int
        UNPLACED until a gradient has arrived once.
    gradient_outline : OutputSlot or None
    on_gradient : callable or None
        Told the gradient.
    """

    __slots__ = (
        "consumer",
        "gradient_outline",
        "gradient_place",
        "on_gradient",
        "outline",
        "place",
        "reference",
        "source",
    )

    def __init__(self, place: int, source: Source, outline: OutputSlot) -> None:
        self.place = place
        self.source = source
        self.outline = outline
        self.reference: weakref.ref[Any] | None = None
        self.consumer: tuple[Operation, int] | None = None
        self.gradient_place = UNPLACED
        self.gradient_outline: OutputSlot | None = None
        self.on_gradient: Callable[[Any], None] | None = None


class Operation:
    """A node: the n-th call of a leaf, or what a container's own code computes for the n-th time.

    Attributes
    ----------
    node : DeclaredNode
    gradient_name, gradient_type : str
        Of the node of the backward pass that belongs to it.
    outputs : list of Slot
    inputs : dict of int to Slot
        What came from outside, by the number of the input.
    is_compiled : bool
        Whether nothing can be seen of what happens within it.
    """

    __slots__ = ("gradient_name", "gradient_type", "inputs", "is_compiled", "node", "outputs")

    def __init__(self, node: DeclaredNode) -> None:
        scope, _, own = node.name.rpartition("/")
        number = own.rpartition("-op")[2]
        self.node = node
        self.gradient_name = f"Gradients/{scope}/{node.type}Grad-op{number}"
        self.gradient_type = f"{node.type}Grad"
        self.outputs: list[Slot] = []
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


def tensors_in(value: Any) -> list[Any]:
    """Return the tensors in a value, in the order in which it holds them.

    Parameters
    ----------
    value : object
        A tensor, or tuples, lists and dictionaries of them; anything else holds none.
    """
    found: list[Any] = []
    _collect(value, found, 0)
    return found


def _collect(value: Any, found: list[Any], depth: int) -> None:
    if isinstance(value, Tensor):
        found.append(value)
    elif depth >= _DEEPEST or len(found) >= MOST_TENSORS:
        return
    elif isinstance(value, (tuple, list)):
        for element in value:
            if element is not None:
                _collect(element, found, depth + 1)
    elif isinstance(value, dict):
        for element in value.values():
            if element is not None:
                _collect(element, found, depth + 1)
