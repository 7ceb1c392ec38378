"""The calls of modules in a step, as a tree: steps that begin alike share their first calls.

A step walks down the tree, one call after the other. Where it leaves the known calls, a new branch grows. The slots,
names and sources of a call are determined once, when its branch grows.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from tensight.agents.eager.call_sites import CallSite
from tensight.agents.eager.calls import Operation as CalledOperation
from tensight.agents.eager.calls import Reading, tensors_in_value
from tensight.agents.eager.calls import Slot as CallSlot
from tensight.agents.eager.names import UNNAMED_MODULE
from tensight.agents.eager.traces import Execution
from tensight.graph.layer_node import READS_UNSEEN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch.utils.hooks import RemovableHandle

    from tensight.agents.core.program import Source, StackFrame
    from tensight.agents.core.slots import DeclaredNode
    from tensight.agents.eager.names import ModuleName
    from tensight.agents.eager.traced_programs import Trace
    from tensight.graph import OutputSlot

NOWHERE = CallSite()

tensors_in = partial(tensors_in_value, torch.Tensor)
"""Returns the tensors in a value, in their order in it."""


class Slot(CallSlot):
    """A tensor that a step computes or receives, at one position in the sequence of its calls.

    Attributes
    ----------
    function_output : int
        Index among the outputs of its autograd function, whose gradients `on_gradient` receives.
    has_gradient : bool
        Whether its tensors require gradients; the same call without gradients is another one.
    hook : RemovableHandle or None
        Handle of the latest hook that observes its gradient.
    """

    __slots__ = ("function_output", "has_gradient", "hook")

    def __init__(self, slot_id: int, source: Source, outline: OutputSlot) -> None:
        super().__init__(slot_id, source, outline)
        self.function_output = 0
        self.has_gradient = False
        self.hook: RemovableHandle | None = None

    def fits(self, tensor: torch.Tensor, *, is_first: bool) -> bool:
        """Whether a tensor matches this slot, which is seen for the first time in this step, or was seen before."""
        if is_first:
            return tensor.requires_grad is self.has_gradient
        return self.reference is not None and self.reference() is tensor


class Operation(CalledOperation[Slot]):
    """A node of a step: a call of a leaf, or what a container's own code computes.

    Attributes
    ----------
    reading : Reading
    stack : tuple of StackFrame
    wide_stack : tuple of StackFrame
        For what a container computes, a stack that holds for every step with the same calls. Empty once it has become
        the stack.
    is_up_to_call : bool
        Whether the stack's range of lines extends to the call that the container computed it for.
    may_read_unseen : bool
        Whether it may read tensors without gradients that are not among the sources, such as the targets of a loss.
    """

    __slots__ = ("is_up_to_call", "may_read_unseen", "reading", "stack", "wide_stack")

    def __init__(self, node: DeclaredNode, stack: tuple[StackFrame, ...]) -> None:
        super().__init__(node)
        self.reading: Reading[Slot] = Reading()
        self.stack = stack
        self.wide_stack: tuple[StackFrame, ...] = ()
        self.is_up_to_call = False
        self.may_read_unseen = False

    def reads(self, slot: Slot) -> None:
        """Add an input that is another operation's output, or an input of the step."""
        self.reading.reads(slot)
        self.consume()

    def consume(self) -> None:
        """Make this operation the consumer of its inputs, except of those that another one has read before."""
        for slot, index in self.reading.read:
            if slot.consumer is None:
                slot.consumer = (self, index)


class Record:
    """A module that has been called: one object for its lifetime.

    Attributes
    ----------
    name : ModuleName
    is_passed_over : bool
        Whether it and everything in it does not belong to the training.
    identity : int
        Identity of the module.
    """

    __slots__ = ("identity", "is_passed_over", "name")

    def __init__(self, name: ModuleName | None, identity: int = 0) -> None:
        self.name = UNNAMED_MODULE if name is None else name
        self.identity = identity
        self.is_passed_over = name is None


class Call:
    """A call of a module at one position of a step, or the beginning of a backward pass.

    Attributes
    ----------
    record : Record
    parent : Call or None
    following : Call or None
        The call that came next when the tree was last walked.
    others : list of Call
        All calls that have come next, in any step.
    inputs : tuple of (Slot or None, bool)
        Each input, and whether this call is the first to observe it; None for weights.
    outputs : tuple of (Slot or None, bool)
        Each output, and whether this call is the first to observe it.
    is_leaf : bool
    is_simple : bool
        Whether it takes one tensor and returns one.
    before : list of Operation
        What containers computed before it.
    operation : Operation or None
        None if it computes nothing of its own.
    is_backward : bool
        Whether it is the beginning of a backward pass.
    trace : Trace or None
        Trace of the steps that end here.
    renewals : int
        How often stacks had been widened when the trace was made.
    site : CallSite
        Position in the user's code.
    began, ended : int
        Numbers of autograd functions made before the call began, and before it ended, in the latest step.
    amount : int
        Number of autograd functions made between the previous call and this one.
    """

    __slots__ = (
        "amount",
        "before",
        "began",
        "ended",
        "following",
        "inputs",
        "is_backward",
        "is_leaf",
        "is_simple",
        "operation",
        "others",
        "outputs",
        "parent",
        "record",
        "renewals",
        "site",
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
        self.is_leaf = record.name.is_leaf
        self.before: list[Operation] = []
        self.operation: Operation | None = None
        self.is_backward = False
        self.trace: Trace | None = None
        self.renewals = 0
        self.site = NOWHERE
        self.began = 0
        self.ended = 0
        self.amount = 0

    def chain(self) -> list[Call]:
        """Return the calls from the first of the step to this one."""
        calls: list[Call] = []
        at: Call | None = self
        while at is not None and at.parent is not None:
            calls.append(at)
            at = at.parent
        calls.reverse()
        return calls


def executions(calls: Iterable[Call]) -> list[Execution]:
    """Return the operations that ran in the calls of a step."""
    result: list[Execution] = []
    for call in calls:
        for operation in (*call.before, *((call.operation,) if call.operation is not None else ())):
            reading = operation.reading
            attributes = {READS_UNSEEN: True} if operation.may_read_unseen else {}
            begins = call.is_backward and operation is call.operation
            result.append(Execution(operation, reading, operation.stack, attributes, reading.read, begins))
    if result:
        # A backward pass that was not observed may have followed it.
        result[-1] = result[-1]._replace(begins_backward=True)
    return result
