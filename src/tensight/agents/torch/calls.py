"""The calls of modules in a step, as a tree: steps that begin alike share their first calls.

A step walks down the tree, one call after the other. Where it leaves what is known a new branch grows; what a call
needs (places, names, where its inputs come from) is found out once, when its branch grows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from tensight.agents.torch.names import NOBODY

if TYPE_CHECKING:
    import weakref
    from collections.abc import Callable

    from tensight.agents.places import DeclaredNode
    from tensight.agents.program import Source, StackFrame
    from tensight.agents.torch.names import ModuleName
    from tensight.agents.traced_programs import Trace
    from tensight.graph import OutputSlot

UNPLACED = -1

MOST_TENSORS = 64
"""Of one call, on either side."""

_DEEPEST = 5


class Slot:
    """A tensor that a step computes or gets, at one position in the sequence of its calls.

    Attributes
    ----------
    place : int
    source : Source
        The node and output that it is.
    outline : OutputSlot
        dtype and shape when it was traced.
    reference : weakref of Tensor or None
        The tensor that stood here in the latest step.
    version : int
        Of that tensor when it was seen.
    consumer : (Operation, int) or None
        What reads it first, and as which input: its gradient is an output of that operation's gradient.
    gradient_place : int
        UNPLACED until a gradient has arrived once.
    gradient_outline : OutputSlot or None
    function_output : int
        Which output it is of its autograd function.
    on_gradient : callable or None
        Told the gradients of its autograd function.
    had_gradient : bool
        Whether the tensor of the latest step takes part in the backward pass.
    """

    __slots__ = (
        "consumer",
        "function_output",
        "gradient_outline",
        "gradient_place",
        "had_gradient",
        "on_gradient",
        "outline",
        "place",
        "reference",
        "source",
        "version",
    )

    def __init__(self, place: int, source: Source, outline: OutputSlot) -> None:
        self.place = place
        self.source = source
        self.outline = outline
        self.reference: weakref.ref[torch.Tensor] | None = None
        self.version = 0
        self.consumer: tuple[Operation, int] | None = None
        self.gradient_place = UNPLACED
        self.gradient_outline: OutputSlot | None = None
        self.function_output = 0
        self.on_gradient: Callable[..., None] | None = None
        self.had_gradient = False


class Operation:
    """A node of a step: a call of a leaf, or what a container's own code computes.

    Attributes
    ----------
    node : DeclaredNode
    gradient_name, gradient_type : str
        Of the node of the backward pass that belongs to it.
    sources : list of Source or None
    read : list of (Slot, int)
        The slots that it reads, each with its index among the sources.
    outputs : list of Slot
    parameters : list of str
        Names of weights among the sources.
    stack : tuple of StackFrame
    """

    __slots__ = ("gradient_name", "gradient_type", "node", "outputs", "parameters", "read", "sources", "stack")

    def __init__(self, node: DeclaredNode, gradient_name: str, stack: tuple[StackFrame, ...]) -> None:
        self.node = node
        self.gradient_name = gradient_name
        self.gradient_type = f"{node.type}Grad"
        self.sources: list[Source | None] = []
        self.read: list[tuple[Slot, int]] = []
        self.outputs: list[Slot] = []
        self.parameters: list[str] = []
        self.stack = stack

    def reads(self, slot: Slot) -> None:
        """Add an input that is another operation's output, or an input of the step."""
        index = len(self.sources)
        self.sources.append(slot.source)
        self.read.append((slot, index))
        if slot.consumer is None:
            slot.consumer = (self, index)


class Record:
    """A module that is known: one object for its whole life.

    Attributes
    ----------
    name : ModuleName
    is_passed_over : bool
        Whether it is no part of the training, with everything in it.
    """

    __slots__ = ("is_passed_over", "name")

    def __init__(self, name: ModuleName | None) -> None:
        self.name = NOBODY if name is None else name
        self.is_passed_over = name is None


class Call:
    """A call of a module at one position of a step, or the beginning of a backward pass.

    Attributes
    ----------
    record : Record
    parent : Call or None
    following : Call or None
        What came next when the tree was last walked.
    others : list of Call
        What else came next at some time.
    inputs : tuple of (Slot or None, bool)
        Each input, and whether it is first seen here; None for weights.
    outputs : tuple of (Slot or None, bool)
        Each output, and whether it is first seen here.
    is_simple : bool
        Whether it takes one tensor and returns one.
    before : list of Operation
        What containers computed before it.
    operation : Operation or None
        None if it only passes on what is known.
    is_backward : bool
    trace : Trace or None
        Of steps that end here.
    """

    __slots__ = (
        "before",
        "following",
        "inputs",
        "is_backward",
        "is_simple",
        "operation",
        "others",
        "outputs",
        "parent",
        "record",
        "trace",
    )

    def __init__(self, record: Record, parent: Call | None) -> None:
        self.record = record
        self.parent = parent
        self.following: Call | None = None
        self.others: list[Call] = []
        self.inputs: tuple[tuple[Slot | None, bool], ...] = ()
        self.outputs: tuple[tuple[Slot | None, bool], ...] = ()
        self.is_simple = False
        self.before: list[Operation] = []
        self.operation: Operation | None = None
        self.is_backward = False
        self.trace: Trace | None = None

    def chain(self) -> list[Call]:
        """Return the calls from the first of the step to this one."""
        calls: list[Call] = []
        at: Call | None = self
        while at is not None and at.parent is not None:
            calls.append(at)
            at = at.parent
        calls.reverse()
        return calls


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Return the tensors in a value, in the order in which it holds them.

    Parameters
    ----------
    value : object
        A tensor, or tuples, lists, dictionaries and dataclasses of them; anything else holds none.
    """
    found: list[torch.Tensor] = []
    _collect(value, found, 0)
    return found


def _collect(value: Any, found: list[torch.Tensor], depth: int) -> None:
    if isinstance(value, torch.Tensor):
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
    elif hasattr(type(value), "__dataclass_fields__"):
        for name in type(value).__dataclass_fields__:
            _collect(getattr(value, name, None), found, depth + 1)
