"""Grows the tree of calls: determines, once for each call, its slots and the sources of its inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensight.agents.eager.names import ROOT_SCOPE
from tensight.agents.eager.step_tensors import MOST_SOURCES, SCRIPT, StepTensors
from tensight.agents.torch.arrays import outline
from tensight.agents.torch.between import Moment, Numbers, moment, stacks_between
from tensight.agents.torch.calls import NOWHERE, Call, Operation, Slot, tensors_in
from tensight.agents.torch.framework import FRAMEWORK

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import torch

    from tensight.agents.core.slots import SlotTable
    from tensight.agents.eager.names import Names
    from tensight.agents.torch.between import Begun
    from tensight.agents.torch.calls import Record

_NOWHERE = Moment(NOWHERE, (), 0)

_PRODUCTS = ("Mul", "Mm", "Mv", "Bmm", "Dot", "Addmm", "Addmv", "Baddbmm")
"""Prefixes of the names of autograd functions that multiply."""
_OPTIONAL_OPERANDS = ("NllLoss", "CrossEntropy", "Embedding", "Convolution", "Native")
"""Prefixes of autograd functions whose operands without gradient are usually omitted: biases, class weights."""


class Branch:
    """The state of a step that leaves the known tree: the slot of each tensor.

    Parameters
    ----------
    slot_table : SlotTable
    names : Names
    chain : list of Call
        The calls of the step so far.
    """

    def __init__(self, slot_table: SlotTable, names: Names, chain: Sequence[Call]) -> None:
        self._slot_table = slot_table
        self._tensors: StepTensors[Slot] = StepTensors(names)
        self._before: list[Operation] = []
        self._unread: set[Slot] = set()
        self._calls = list(chain)
        self._begun: Sequence[Begun] = ()
        self._now = _NOWHERE
        for call in chain:
            self._remember(call)

    def grow(
        self,
        at: Call,
        record: Record,
        module: torch.nn.Module,
        arguments: Any,
        output: Any,
        begun: Sequence[Begun],
        number: int,
    ) -> Call:
        """Return a new call after another one.

        Parameters
        ----------
        at : Call
            The last call of the step so far.
        record : Record
            Record of the module that was called.
        module : Module
        arguments : object
            Its arguments.
        output : object
            Its return value.
        begun : sequence of Begun
            The containers that are being called, outermost first; the code of the last one made the call.
        number : int
            How many autograd functions had been made when the call of a leaf began, or that of a container ended.
        """
        call = Call(record, at)
        name = record.name
        self._begin_at(moment(number, None if name.is_leaf else module), begun)
        call.site = self._now.site
        given, returned = tensors_in(arguments), tensors_in(output)
        if name.is_leaf:
            operation = self._operation(name.scope, name.type)
            call.inputs = tuple(self._input(operation, tensor, returned) for tensor in given)
            self._read_weights(operation, module)
            call.operation = operation
            outputs: list[tuple[Slot | None, bool]] = [(self._output(operation, tensor), True) for tensor in returned]
        else:
            outputs = [(self._tensors.find(tensor), False) for tensor in returned]
            computed_indices = [
                index
                for index, (slot, _) in enumerate(outputs)
                if slot is None and not any(returned[index] is tensor for tensor in given)
            ]
            if computed_indices and not name.is_plain:
                operation = call.operation = self._operation(name.scope, name.type)
                self._compute(operation, [returned[index] for index in computed_indices])
                for index in computed_indices:
                    outputs[index] = self._output(operation, returned[index]), True
        call.outputs = tuple(outputs)
        call.is_simple = name.is_leaf and _is_one(arguments, given) and output is (returned or [None])[0]
        return self._grown(call)

    def grow_backward(
        self, at: Call, record: Record, roots: Sequence[torch.Tensor], begun: Sequence[Begun], number: int
    ) -> Call:
        """Return a call for the beginning of a backward pass."""
        call = Call(record, at)
        self._begin_at(moment(number), begun)
        call.site = self._now.site
        call.is_backward = True
        operation = self._operation(ROOT_SCOPE, "Loss")
        inputs: list[tuple[Slot | None, bool]] = []
        for tensor in roots:
            slot = self._tensors.find(tensor)
            if slot is not None:
                operation.reads(slot)
            else:
                self._compute(operation, [tensor])
            inputs.append((slot, False))
        call.inputs = tuple(inputs)
        call.outputs = tuple((self._output(operation, tensor, is_known=False), True) for tensor in roots)
        call.operation = operation
        return self._grown(call)

    def _grown(self, call: Call) -> Call:
        """Add a call, and drop what belongs to the moment only: the arguments of the running calls are its tensors."""
        call.before, self._before = self._before, []
        self._calls.append(call)
        self._now, self._begun = _NOWHERE, ()
        return call

    def enter(self, begun: Sequence[Begun], arguments: Any, number: int) -> None:
        """Note what a container's code has computed and now passes to a module."""
        is_here = False
        for tensor in tensors_in(arguments):
            is_computed = tensor.grad_fn is not None and id(tensor) not in self._tensors.weights
            if is_computed and self._tensors.find(tensor) is None:
                if not is_here:
                    self._begin_at(moment(number), begun)
                    is_here = True
                self._computed_between(tensor)
        if is_here:
            self._now, self._begun = _NOWHERE, ()

    def _begin_at(self, now: Moment, begun: Sequence[Begun]) -> None:
        """Note the position of the step."""
        self._now, self._begun = now, begun

    # --- slots ---

    def _input(
        self, operation: Operation, tensor: torch.Tensor, returned: Sequence[torch.Tensor]
    ) -> tuple[Slot | None, bool]:
        """Return the slot of an input of a leaf, and whether this is the first call that observes it."""
        slot = self._tensors.find(tensor, written=any(tensor is other for other in returned))
        if slot is not None:
            operation.reads(slot)
            # What a container has computed between two calls is observed by the first call that reads it.
            is_first = slot in self._unread
            self._unread.discard(slot)
            return slot, is_first
        weight = self._tensors.weights.get(id(tensor))
        if weight is not None:
            operation.reading.reads_weight(weight)
            return None, False
        if tensor.grad_fn is not None:
            slot = self._computed_between(tensor)
            self._unread.discard(slot)
        else:
            slot = self._from_outside(operation, tensor)
        operation.reads(slot)
        return slot, True

    def _output(self, operation: Operation, tensor: torch.Tensor, *, is_known: bool = True) -> Slot:
        number = len(operation.outputs)
        slot = Slot(self._slot_table.slot_id(operation.node, number), (operation.node.name, number), outline(tensor))
        operation.outputs.append(slot)
        if is_known:
            self._tensors.know(slot, tensor)
        return slot

    def _computed_between(self, tensor: torch.Tensor) -> Slot:
        """Return the slot of a tensor that a container's own code, or the script's, computed between two calls."""
        name = self._begun[-1].record.name if self._begun else None
        scope, type_ = (ROOT_SCOPE, SCRIPT) if name is None else (name.scope, name.type)
        operation = self._operation(scope, type_)
        self._compute(operation, [tensor])
        self._before.append(operation)
        slot = self._output(operation, tensor)
        self._unread.add(slot)
        return slot

    def _from_outside(self, operation: Operation, tensor: torch.Tensor) -> Slot:
        """Return the slot of a tensor that was computed outside the program."""
        node = self._slot_table.node(operation.input_name(len(operation.reading.sources)), "Parameter", "input")
        slot = Slot(self._slot_table.slot_id(node, 0), (node.name, 0), outline(tensor))
        self._tensors.know(slot, tensor)
        return slot

    # --- operations ---

    def _operation(self, scope: str, type_: str) -> Operation:
        number = self._tensors.count(scope, type_)
        return Operation(self._slot_table.node(f"{scope}/{type_}-op{number}", type_), self._now.site.stack)

    def _read_weights(self, operation: Operation, module: torch.nn.Module) -> None:
        for tensor in FRAMEWORK.read_by(module)[:MOST_SOURCES]:
            if (name := self._tensors.weights.get(id(tensor))) is not None:
                operation.reading.reads_weight(name, is_trained=tensor.requires_grad)

    def _compute(self, operation: Operation, tensors: Iterable[torch.Tensor]) -> None:
        """Note the sources of tensors that a container's code computed, and its lines."""
        numbers = self._read_through(operation, tensors)
        if numbers is not None:
            operation.stack, operation.wide_stack = stacks_between(self._calls, self._begun, self._now, numbers)
            last = self._calls[-1].ended if self._calls else 0
            operation.is_up_to_call = numbers.last >= last

    def _read_through(self, operation: Operation, tensors: Iterable[torch.Tensor]) -> Numbers | None:
        """Add the sources of tensors as inputs.

        Returns
        -------
        Numbers or None
            Numbers of the autograd functions that computed them.
        """
        passed = self._tensors.read_through(operation.reading, tensors, self._tensors.weights.get)
        operation.consume()
        has_unseen = False
        numbers: list[int] = []
        for edge in passed.edges:
            function = edge.function
            numbers.append(function._sequence_nr())
            if not all(step[0] for step in function.next_functions):
                # An input had no gradient, and cannot be reached. Whether it is a tensor or a number is not checked:
                # reading what autograd saved may recompute it.
                has_unseen |= function.name().startswith(_PRODUCTS)
                operation.may_read_unseen |= not function.name().startswith(_OPTIONAL_OPERANDS)
        if has_unseen:
            operation.reading.reads_unseen()
        return Numbers(min(numbers), max(numbers)) if numbers else None

    def _remember(self, call: Call) -> None:
        """Enter the slots of an earlier call of this step."""
        for operation in (*call.before, *((call.operation,) if call.operation is not None else ())):
            scope = operation.node.name.rpartition("/")[0]
            self._tensors.count(scope, operation.node.type)
            for slot in (*(slot for slot, _ in operation.reading.read), *operation.outputs):
                tensor = None if slot.reference is None else slot.reference()
                if tensor is not None and not call.is_backward:
                    self._tensors.remember(slot, tensor)


def _is_one(arguments: Any, given: Sequence[torch.Tensor]) -> bool:
    """Whether a call had one tensor as its only argument."""
    positional, named = arguments
    return len(positional) == 1 and not named and len(given) == 1 and positional[0] is given[0]
