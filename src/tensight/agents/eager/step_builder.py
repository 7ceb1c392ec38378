"""Builds steps from the calls that an adapter reports: determines the slots and sources of each call.

What models compute between two calls of modules is a node of its own. The links of the backward pass tell its sources.
If a framework has none, the sources are assumed to be the outputs that have not been read yet, and an unknown one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensight.agents.core.call_stack import user_stack
from tensight.agents.core.notices import log_once
from tensight.agents.eager.call_sites import beginning_of, stack_between
from tensight.agents.eager.calls import Operation, Reading, Slot, tensors_in_value
from tensight.agents.eager.names import ROOT_SCOPE
from tensight.agents.eager.step_tensors import MOST_SOURCES, SCRIPT, StepTensors
from tensight.agents.eager.traces import Execution

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from tensight.agents.core.program import StackFrame
    from tensight.agents.core.slots import DeclaredNode, SlotTable
    from tensight.agents.eager.adapter import ReportedFramework
    from tensight.agents.eager.call_sites import CallSite
    from tensight.agents.eager.names import ModuleName, Names
    from tensight.agents.eager.traced_programs import Trace

MOST_CALLS = 50_000
"""Limit of the calls in the tree."""

Container = tuple["ModuleName", Any, Any] | None
"""The name, module and arguments of the call in whose code something was called; None for the script."""


class RepeatedOperation(Operation[Slot]):
    """A node: the n-th call of a leaf, or the n-th computation of a container's own code, in any step.

    Attributes
    ----------
    inputs : dict of int to Slot
        Inputs from outside the step, by the number of the input.
    is_compiled : bool
        Whether nothing inside it can be observed.
    """

    __slots__ = ("inputs", "is_compiled")

    def __init__(self, node: DeclaredNode) -> None:
        super().__init__(node)
        self.inputs: dict[int, Slot] = {}
        self.is_compiled = False


class Position:
    """A position in the tree of steps, with the operation that ran there and its inputs.

    Attributes
    ----------
    parent : Position or None
    operation : RepeatedOperation or None
        None for the root, where steps begin.
    reading : Reading
    stack : tuple of StackFrame
    since : CallSite or None
        A call after which its results were computed; None if no such call is known.
    begins_backward : bool
    following : dict
        All positions that have come next, in any step.
    trace : Trace or None
        Trace of the steps that end here.
    """

    __slots__ = ("begins_backward", "following", "operation", "parent", "reading", "since", "stack", "trace")

    def __init__(self, parent: Position | None, operation: RepeatedOperation | None) -> None:
        self.parent = parent
        self.operation = operation
        self.reading: Reading[Slot] = Reading()
        self.stack: tuple[StackFrame, ...] = ()
        self.since: CallSite | None = None
        self.begins_backward = False
        self.following: dict[tuple[Any, ...], Position] = {}
        self.trace: Trace | None = None

    def executions(self) -> list[Execution]:
        """Return the operations that ran from the beginning of the step to here."""
        executions: list[Execution] = []
        at: Position | None = self
        while at is not None and at.operation is not None:
            executions.append(at._execution(at.operation))
            at = at.parent
        executions.reverse()
        return executions

    def _execution(self, operation: RepeatedOperation) -> Execution:
        attributes = {"compiled": True} if operation.is_compiled else {}
        gradients = [(slot, index) for slot, index in self.reading.read if slot.consumer == (operation, index)]
        return Execution(operation, self.reading, self.stack, attributes, gradients, self.begins_backward)


class StepBuilder:
    """Builds a step while it runs: the operations so far, and the slots of their tensors.

    Parameters
    ----------
    framework : ReportedFramework
    slot_table : SlotTable
    names : Names
    seen : callable (slot, tensor) -> None
        Called with each tensor and its slot.

    Attributes
    ----------
    at : Position
        The position of the step.
    """

    def __init__(
        self,
        framework: ReportedFramework,
        slot_table: SlotTable,
        names: Names,
        seen: Callable[[Slot, Any], None],
    ) -> None:
        self._framework = framework
        self._slot_table = slot_table
        self._names = names
        self._seen = seen
        self._operations: dict[str, RepeatedOperation] = {}
        self._first = Position(None, None)
        self._calls = 0
        self._tensors: StepTensors[Slot] = StepTensors(names)
        self._unread: dict[Slot, None] = {}
        self._ends: dict[Hashable, str] = {}
        self._ran: dict[str, Position] = {}
        self.at = self._first

    def begin(self) -> None:
        """Begin a step."""
        self.at = self._first
        self._tensors.clear()
        self._unread.clear()
        self._ends.clear()
        self._ran.clear()

    @property
    def idle(self) -> bool:
        """Whether nothing has run since the step began."""
        return self.at is self._first

    # --- calls ---

    def leaf(
        self, name: ModuleName, module: Any | None, given: Any, output: Any, within: Container, *, opaque: bool
    ) -> None:
        """Note a call of a module without inner modules, or inside which nothing can be observed.

        Parameters
        ----------
        name : ModuleName
        module : object or None
            None for a function.
        given, output : object
            Its arguments and its return value.
        within : Container
            The call in whose code it was called.
        opaque : bool
            Whether nothing inside it can be observed.
        """
        tensors, returned = self._tensors_in(given), self._tensors_in(output)
        reading: Reading[Slot] = Reading()
        outside: list[tuple[int, Any]] = []
        for tensor in tensors:
            self._input(reading, outside, tensor, within)
        if module is not None:
            self._read_weights(reading, module, is_opaque=opaque)
        operation = self._next(name.scope, name.type)
        operation.is_compiled = opaque
        for index, tensor in outside:
            slot = self._from_outside(operation, index, tensor)
            reading.sources[index] = slot.source
            reading.read.append((slot, index))
        self._add(operation, reading, module=module, is_call=True)
        for index, tensor in outside:
            self._tensors.know(operation.inputs[index], tensor)
            self._seen(operation.inputs[index], tensor)
        for index, tensor in enumerate(returned):
            if self._tensors.is_written(tensor) or not any(tensor is other for other in tensors):
                self._output(operation, index, tensor)

    def container(self, name: ModuleName, module: Any, output: Any) -> None:
        """Note the end of a call of a module that called others; its own code may have computed the output."""
        for tensor in self._tensors_in(output):
            if name.is_plain or self._tensors.find(tensor) is not None or id(tensor) in self._tensors.weights:
                continue
            if self._framework.has_gradient(tensor) or self._unread:
                self._between(tensor, (name, module, None), ends=True)

    def script(self, tensor: Any) -> None:
        """Note a tensor from which a backward pass will begin; it need not be the output of a module."""
        if self._tensors.find(tensor) is None and self._framework.has_gradient(tensor):
            self._between(tensor, None)

    def backward(self, tensor: Any) -> None:
        """Note that a backward pass begins from a tensor."""
        reading: Reading[Slot] = Reading()
        slot = self._tensors.find(tensor)
        if slot is not None:
            reading.reads(slot)
        operation = self._next(ROOT_SCOPE, "Loss")
        self._add(operation, reading, begins_backward=True)
        self._output(operation, 0, tensor, knows=False)
        self._tensors.release()

    # --- tensors ---

    def _tensors_in(self, value: Any) -> list[Any]:
        return tensors_in_value(self._framework.tensor_type, value)

    def _input(self, reading: Reading[Slot], outside: list[tuple[int, Any]], tensor: Any, within: Container) -> None:
        """Add an input of a leaf; one from outside the step is appended to `outside`, with its number."""
        slot = self._tensors.find(tensor)
        if slot is None:
            if self._read_weight(reading, tensor):
                return
            is_given = within is None or any(tensor is other for other in self._tensors_in(within[2]))
            if is_given and not self._framework.has_gradient(tensor):
                outside.append((len(reading.sources), tensor))
                reading.reads_unseen()
                return
            slot = self._between(tensor, within)
        reading.reads(slot)
        self._unread.pop(slot, None)

    def _read_weights(self, reading: Reading[Slot], module: Any, *, is_opaque: bool = False) -> None:
        for tensor in self._framework.read_by(module, is_opaque=is_opaque):
            self._read_weight(reading, tensor)

    def _read_weight(self, reading: Reading[Slot], tensor: Any) -> bool:
        """Add an input that may be a weight; return whether it is one."""
        name = self._tensors.weights.get(id(tensor))
        if name is None:
            return False
        if len(reading.sources) < MOST_SOURCES:
            reading.reads_weight(name, is_trained=self._framework.requires_gradient(tensor))
        return True

    def _between(self, tensor: Any, within: Container, *, ends: bool = False) -> Slot:
        """Return the slot of a tensor that a container's own code, or the script's, has computed.

        If `ends`, the call of the container has returned it.
        """
        scope, type_ = (ROOT_SCOPE, SCRIPT) if within is None else (within[0].scope, within[0].type)
        reading: Reading[Slot] = Reading()
        if not self._framework.has_gradient(tensor):
            # A constant, or a tensor without gradient, whose sources are unknown.
            reading.reads_unseen()
        else:
            if not self._read_through(reading, tensor):
                for slot in list(self._unread)[-MOST_SOURCES:]:
                    reading.reads(slot)
                reading.reads_unseen()
                if within is not None:
                    self._read_weights(reading, within[1])
            self._unread.clear()
        operation = self._next(scope, type_)
        position = self._add(operation, reading)
        if not position.stack:
            container = None if within is None else within[1]
            forward = None if container is None else self._framework.forward(container)
            position.since = self._since(reading)
            position.stack = stack_between(position.since, self._framework.call_site(), container, forward, ends=ends)
        return self._output(operation, 0, tensor)

    def _since(self, reading: Reading[Slot]) -> CallSite | None:
        """Return the site of the first call among the sources, if all sources are known operations of this step."""
        if None in reading.sources or len(reading.read) < len(reading.sources):
            return None
        read = [self._ran.get(slot.source[0]) for slot, _ in reading.read]
        first = next((position for position in self._ran.values() if position in read), None)
        return None if None in read or first is None else first.since

    def _from_outside(self, operation: RepeatedOperation, index: int, tensor: Any) -> Slot:
        """Return the slot of a tensor that was computed outside the program."""
        slot = operation.inputs.get(index)
        if slot is None:
            node = self._slot_table.node(operation.input_name(index), "Parameter", "input")
            outline = self._framework.outline(tensor)
            slot = operation.inputs[index] = Slot(self._slot_table.slot_id(node, 0), (node.name, 0), outline)
        slot.consumer = None
        return slot

    def _output(self, operation: RepeatedOperation, index: int, tensor: Any, *, knows: bool = True) -> Slot:
        while len(operation.outputs) <= index:
            number = len(operation.outputs)
            slot_id = self._slot_table.slot_id(operation.node, number)
            operation.outputs.append(Slot(slot_id, (operation.node.name, number), self._framework.outline(tensor)))
        slot = operation.outputs[index]
        slot.consumer = None
        if knows:
            self._tensors.know(slot, tensor)
            self._unread[slot] = None
        self._seen(slot, tensor)
        return slot

    def _read_through(self, reading: Reading[Slot], tensor: Any) -> bool:
        """Add the sources of a tensor by the links of the backward pass; return False if there are none."""
        framework = self._framework
        if framework.edge(tensor) is None:
            return False
        passed = self._tensors.read_through(reading, [tensor], self._weight_at_end)
        if passed.has_unknown_end or any(framework.has_unlinked_input(edge) for edge in passed.edges):
            reading.reads_unseen()
        return True

    def _weight_at_end(self, end: Hashable) -> str | None:
        """Return the name of the weight at which a backward pass ends; None if it is unknown."""
        if not self._ends:
            for entry in self._names.entries():
                weight_end = self._framework.end_of(entry.tensor())
                if weight_end is not None:
                    self._ends[weight_end] = entry.name
        return self._ends.get(end)

    # --- operations ---

    def _next(self, scope: str, type_: str) -> RepeatedOperation:
        name = f"{scope}/{type_}-op{self._tensors.count(scope, type_)}"
        operation = self._operations.get(name)
        if operation is None:
            operation = self._operations[name] = RepeatedOperation(self._slot_table.node(name, type_))
        return operation

    def _add(
        self,
        operation: RepeatedOperation,
        reading: Reading[Slot],
        *,
        begins_backward: bool = False,
        module: Any | None = None,
        is_call: bool = False,
    ) -> Position:
        """Advance to the operation that runs next, and return its position; that of a call has its stack and site."""
        key = operation, begins_backward, tuple(reading.sources)
        position = self.at.following.get(key)
        if position is None:
            position = Position(self.at, operation)
            position.begins_backward = begins_backward
            if is_call:
                beginning = () if module is None else beginning_of(self._framework.forward(module))
                position.stack, position.since = (*beginning, *user_stack()), self._framework.call_site()
            elif begins_backward:
                position.stack = user_stack()
            self._calls += 1
            if self._calls <= MOST_CALLS:
                self.at.following[key] = position
            else:
                log_once(f"the steps call modules in more than {MOST_CALLS:,} different places; not all are remembered")
        for slot, index in reading.read:
            if slot.consumer is None:
                slot.consumer = (operation, index)
        position.reading = reading
        self.at = self._ran[operation.node.name] = position
        return position
