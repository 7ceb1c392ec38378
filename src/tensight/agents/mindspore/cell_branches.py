"""Finds out what a call of a cell is, and where its inputs come from.

What networks compute between two calls of cells is a node of its own. From which tensors it was computed MindSpore
tells since 2.9, where its functions of the backward pass are linked. Before that the outputs that nobody has read yet
are taken for it, and one more source that is not known.
"""

from __future__ import annotations

import inspect
import linecache
import os
import weakref
from typing import TYPE_CHECKING, Any

from tensight.agents.call_stack import is_user_file, user_stack
from tensight.agents.eager.calls import Slot
from tensight.agents.eager.names import ROOT_SCOPE
from tensight.agents.mindspore.arrays import outline
from tensight.agents.mindspore.cell_calls import Operation, Ran, tensors_in
from tensight.agents.mindspore.cells_between import cell_call_site, lines_between
from tensight.agents.notices import say_once
from tensight.agents.program import StackFrame

if TYPE_CHECKING:
    from collections.abc import Callable

    from mindspore import nn

    from tensight.agents.eager.call_sites import CallSite
    from tensight.agents.eager.names import ModuleName, Names
    from tensight.agents.places import PlaceTable
    from tensight.agents.program import Source

SCRIPT = "Script"
"""Type of what is computed outside of all cells."""

MOST_CALLS = 50_000
"""That the tree remembers."""

_MOST_DECORATORS = 16
_MOST_SOURCES = 64
_MOST_FUNCTIONS = 20_000
_PRODUCTS = ("Mul", "MatMul", "BatchMatMul", "Matmul", "Bmm", "Mm", "Dense")
"""Begins of the names of functions that multiply: a factor without gradient is linked to nothing."""
_FACTORS = 2


Container = tuple["ModuleName", "nn.Cell", Any] | None
"""In whose code something was called, and with what that was called itself."""


class StepBuilder:
    """What has run in a step so far, and which tensor is which slot.

    Parameters
    ----------
    places : PlaceTable
    names : Names
    seen : callable (slot, tensor) -> None
        Told each tensor when it is there.

    Attributes
    ----------
    at : Ran
        Where the step stands.
    """

    def __init__(self, places: PlaceTable, names: Names, seen: Callable[[Slot, Any], None]) -> None:
        self._places = places
        self._names = names
        self._seen = seen
        self._operations: dict[str, Operation] = {}
        self._first = Ran(None, None)
        self._calls = 0
        self._weights: dict[int, str] = {}
        self._weights_generation = -1
        self.at = self._first
        self.begin()

    def begin(self) -> None:
        """Begin a step."""
        self.at = self._first
        self._counts: dict[tuple[str, str], int] = {}
        self._slots: dict[int, Slot] = {}
        self._functions: dict[tuple[Any, int], Slot] = {}
        self._unread: dict[Slot, None] = {}
        self._ends: dict[Any, str] = {}
        self._ran: dict[str, Ran] = {}

    @property
    def idle(self) -> bool:
        """Whether nothing ran since the step began."""
        return self.at is self._first

    # --- calls ---

    def leaf(
        self, name: ModuleName, cell: nn.Cell | None, given: Any, output: Any, within: Container, *, opaque: bool
    ) -> None:
        """Note a call of a cell that has none of its own, or within which nothing can be seen."""
        tensors, returned = tensors_in(given), tensors_in(output)
        reading = _Reading()
        for tensor in tensors:
            self._input(reading, tensor, within)
        if cell is not None:
            own = cell.get_parameters() if opaque else cell._params.values()
            for parameter in own:
                self._parameter(reading, parameter)
        operation = self._next(name.scope, name.type)
        operation.is_compiled = opaque
        for index, tensor in reading.outside:
            reading.reads(self._from_outside(operation, index, tensor), index)
        self._add(operation, reading, cell=cell, is_call=True)
        for index, tensor in reading.outside:
            self._know(operation.inputs[index], tensor)
            self._seen(operation.inputs[index], tensor)
        for index, tensor in enumerate(returned):
            if not any(tensor is one for one in tensors):
                self._output(operation, index, tensor)

    def container(self, name: ModuleName, cell: nn.Cell, output: Any) -> None:
        """Note that a call of a cell has ended that called others: its own code may have computed what it returns."""
        for tensor in tensors_in(output):
            if not name.is_plain and self._slot(tensor) is None and id(tensor) not in self._known_weights():
                if not has_gradient(tensor) and not self._unread:
                    continue
                self._between(tensor, (name, cell, None), ends=True)

    def script(self, tensor: Any) -> None:
        """Note a tensor from which a backward pass will begin; it may be no output of a cell."""
        if self._slot(tensor) is None and has_gradient(tensor):
            self._between(tensor, None)

    def backward(self, tensor: Any) -> None:
        """Note that a backward pass begins from a tensor."""
        reading = _Reading()
        slot = self._slot(tensor)
        if slot is not None:
            reading.reads(slot)
        operation = self._next(ROOT_SCOPE, "Loss")
        self._add(operation, reading, begins_backward=True)
        self._output(operation, 0, tensor, knows=False)

    # --- tensors ---

    def _slot(self, tensor: Any) -> Slot | None:
        slot = self._slots.get(id(tensor))
        return slot if slot is not None and slot.reference is not None and slot.reference() is tensor else None

    def _input(self, reading: _Reading, tensor: Any, within: Container) -> None:
        slot = self._slot(tensor)
        if slot is None:
            if self._parameter(reading, tensor):
                return
            is_given = within is None or any(tensor is one for one in tensors_in(within[2]))
            if is_given and not has_gradient(tensor):
                reading.outside.append((len(reading.sources), tensor))
                reading.sources.append(None)
                return
            slot = self._between(tensor, within)
        reading.reads(slot)
        self._unread.pop(slot, None)

    def _parameter(self, reading: _Reading, tensor: Any) -> bool:
        name = self._known_weights().get(id(tensor))
        if name is not None:
            if len(reading.sources) < _MOST_SOURCES:
                reading.sources.append((name, 0))
                if tensor.requires_grad:
                    reading.parameters.append(name)
            return True
        return False

    def _between(self, tensor: Any, within: Container, *, ends: bool = False) -> Slot:
        """Return the slot of a tensor that a container's own code, or the script's, has computed until now.

        A container whose call `ends` has returned it.
        """
        scope, type_ = (ROOT_SCOPE, SCRIPT) if within is None else (within[0].scope, within[0].type)
        reading = _Reading()
        if not has_gradient(tensor):
            # A constant, or what no gradient is to pass: nobody can say from what it was computed.
            reading.sources.append(None)
        else:
            if not self._walk(reading, tensor):
                for slot in list(self._unread)[-_MOST_SOURCES:]:
                    reading.reads(slot)
                reading.sources.append(None)
                own = () if within is None else within[1]._params.values()
                for parameter in own:
                    self._parameter(reading, parameter)
            self._unread.clear()
        operation = self._next(scope, type_)
        ran = self._add(operation, reading)
        if not ran.stack:
            now = cell_call_site()
            ran.since = self._since(reading)
            ran.stack = lines_between(ran.since, now, None if within is None else within[1], ends=ends)
        return self._output(operation, 0, tensor)

    def _since(self, reading: _Reading) -> CallSite | None:
        """Return the first of the calls whose results something was computed from, if it was from nothing else."""
        if None in reading.sources or len(reading.slots) < len(reading.sources):
            return None
        read = [self._ran.get(slot.source[0]) for slot, _ in reading.slots]
        ran = next((one for one in self._ran.values() if one in read), None)
        return None if None in read or ran is None else ran.since

    def _from_outside(self, operation: Operation, index: int, tensor: Any) -> Slot:
        """Return the slot of a tensor that nothing in the program computed."""
        slot = operation.inputs.get(index)
        if slot is None:
            node = self._places.node(operation.input_name(index), "Parameter", "input")
            slot = operation.inputs[index] = Slot(self._places.place(node, 0), (node.name, 0), outline(tensor))
        slot.consumer = None
        return slot

    def _output(self, operation: Operation, index: int, tensor: Any, *, knows: bool = True) -> Slot:
        while len(operation.outputs) <= index:
            number = len(operation.outputs)
            place = self._places.place(operation.node, number)
            operation.outputs.append(Slot(place, (operation.node.name, number), outline(tensor)))
        slot = operation.outputs[index]
        slot.consumer = None
        if knows:
            self._know(slot, tensor)
            self._unread[slot] = None
        self._seen(slot, tensor)
        return slot

    def _know(self, slot: Slot, tensor: Any) -> None:
        slot.reference = weakref.ref(tensor)
        self._slots[id(tensor)] = slot
        function = _function_of(tensor)
        if function is not None:
            self._functions[function._unique_id(), tensor._output_index] = slot

    def _walk(self, reading: _Reading, tensor: Any) -> bool:
        """Find what a tensor was computed from through the functions of the backward pass; False if there are none."""
        function = _function_of(tensor)
        if function is None:
            return False
        waiting = [(function, tensor._output_index)]
        seen = {(function._unique_id(), tensor._output_index)}
        found: dict[Slot | str, None] = {}
        is_whole = True
        for one, number in waiting:
            slot = self._functions.get((one._unique_id(), number))
            if slot is not None:
                found[slot] = None
                continue
            if one.is_leaf():
                weight = self._weight_of(one)
                if weight:
                    found[weight] = None
                else:
                    is_whole = False
                continue
            ahead = [step for step in one.next_functions if step[0] is not None]
            if one.name().startswith(_PRODUCTS) and len(ahead) < _FACTORS:
                is_whole = False
            for following, output in ahead:
                key = following._unique_id(), output
                if key not in seen:
                    seen.add(key)
                    waiting.append((following, output))
            if len(seen) > _MOST_FUNCTIONS or len(found) >= _MOST_SOURCES:
                break
        # The backward pass is walked backwards; people read forwards.
        for source in reversed(found):
            if isinstance(source, str):
                reading.sources.append((source, 0))
                reading.parameters.append(source)
            else:
                reading.reads(source)
        if not is_whole:
            reading.sources.append(None)
        return True

    def _weight_of(self, function: Any) -> str:
        """Return the name of the parameter at which the backward pass ends; empty if it is none that is known."""
        if not self._ends:
            for entry in self._names.entries():
                end = getattr(entry.tensor(), "_grad_node", None)
                if end is not None:
                    self._ends[end._unique_id()] = entry.name
        return self._ends.get(function._unique_id(), "")

    # --- operations ---

    def _next(self, scope: str, type_: str) -> Operation:
        number = self._counts.get((scope, type_), 0)
        self._counts[scope, type_] = number + 1
        name = f"{scope}/{type_}-op{number}"
        known = self._operations.get(name)
        if known is None:
            known = self._operations[name] = Operation(self._places.node(name, type_))
        return known

    def _add(
        self,
        operation: Operation,
        reading: _Reading,
        *,
        begins_backward: bool = False,
        cell: nn.Cell | None = None,
        is_call: bool = False,
    ) -> Ran:
        """Go on to an operation that runs next, and return it; where it ran is told of calls."""
        key = operation, begins_backward, tuple(reading.sources)
        ran = self.at.following.get(key)
        if ran is None:
            ran = Ran(self.at, operation)
            ran.begins_backward = begins_backward
            if is_call:
                ran.stack, ran.since = (*own_code(cell), *user_stack()), cell_call_site()
            elif begins_backward:
                ran.stack = user_stack()
            ran.parameters = tuple(reading.parameters)
            self._calls += 1
            if self._calls <= MOST_CALLS:
                self.at.following[key] = ran
            else:
                say_once(f"the steps call cells in more than {MOST_CALLS:,} different places; not all are remembered")
        for slot, index in reading.slots:
            if slot.consumer is None:
                slot.consumer = (operation, index)
        ran.sources, ran.read = tuple(reading.sources), tuple(reading.slots)
        self.at = self._ran[operation.node.name] = ran
        return ran

    def _known_weights(self) -> dict[int, str]:
        if self._weights_generation != self._names.generation:
            self._weights_generation = self._names.generation
            self._weights = self._names.tensor_names()
        return self._weights


class _Reading:
    """What an operation reads."""

    __slots__ = ("outside", "parameters", "slots", "sources")

    def __init__(self) -> None:
        self.sources: list[Source | None] = []
        self.slots: list[tuple[Slot, int]] = []
        self.parameters: list[str] = []
        self.outside: list[tuple[int, Any]] = []

    def reads(self, slot: Slot, index: int = -1) -> None:
        if index < 0:
            index = len(self.sources)
            self.sources.append(slot.source)
        else:
            self.sources[index] = slot.source
        self.slots.append((slot, index))


def own_code(cell: nn.Cell | None) -> tuple[StackFrame, ...]:
    """Return where the code of a cell begins, if it is the user's: nobody can say which of its lines did what."""
    if cell is None:
        return ()
    code = getattr(inspect.unwrap(type(cell).construct), "__code__", None)
    if code is None or not is_user_file(code.co_filename):
        return ()
    # Decorators stand before it.
    lines = range(code.co_firstlineno, code.co_firstlineno + _MOST_DECORATORS)
    texts = ((line, linecache.getline(code.co_filename, line).strip()) for line in lines)
    line, text = next((one for one in texts if one[1].startswith("def ")), (code.co_firstlineno, ""))
    return (StackFrame(os.path.abspath(code.co_filename), line, code.co_name, text),)


def has_gradient(tensor: Any) -> bool:
    """Whether a tensor was computed, and takes part in a backward pass that may come."""
    # Before 2.9 the second is not told.
    return bool(tensor._has_auto_grad()) and getattr(tensor, "_requires_grad", None) is not False


def _function_of(tensor: Any) -> Any:
    """Return the function of the backward pass that belongs to a tensor; None if there is none, or no telling."""
    function = getattr(tensor, "_grad_node", None)
    return function if hasattr(function, "next_functions") else None
