"""Names the operators of a step while they run, and traces the sources of their inputs."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils._pytree import tree_iter

from tensight.agents.core.call_stack import user_stack
from tensight.agents.core.program import TracedNode
from tensight.agents.torch.arrays import outline
from tensight.agents.torch.compiled import is_from_compiled_code
from tensight.agents.torch.framework_frames import gathers_weights
from tensight.agents.torch.known_tensors import KnownTensors
from tensight.agents.torch.operator_mode import identities
from tensight.agents.torch.operator_schemas import (
    ACCUMULATING,
    argument_name,
    declaration,
    gate,
    results_in,
    settings,
    tensors_in,
)
from tensight.agents.torch.operator_steps import FROM_OUTSIDE, Content, External, Link, Operator, Output
from tensight.agents.torch.pairing import AutogradPairs, Forward
from tensight.agents.torch.scopes import ROOT_SCOPE
from tensight.agents.torch.tensor_sources import TensorSources, storage_of
from tensight.graph import OutputSlot
from tensight.graph.layer_node import FROM_COMPILED_CODE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tensight.agents.core.program import Source, StackFrame
    from tensight.agents.core.slots import SlotTable
    from tensight.agents.eager.names import Names
    from tensight.agents.torch.operator_schemas import Declaration
    from tensight.agents.torch.operator_steps import OperatorStep, Path

_OPTIMIZER = "Optimizer"
_NO_EVALUATION = (-1, 0)
_FRESH = ("lift_fresh", "lift_fresh_copy")
_NO_TENSOR = OutputSlot.of_tensor(0, None)


class _Origin(NamedTuple):
    """Which part of a step an operator belongs to."""

    scope: str
    stack: tuple[StackFrame, ...]
    owner: str = ""
    forward: str = ""
    is_forward: bool = False


class _Input(NamedTuple):
    """A tensor that an operator reads."""

    path: Path
    tensor: torch.Tensor
    source: Source
    is_new: bool


class _Result(NamedTuple):
    """A value that an operator returned, or an argument that it wrote to."""

    path: Path
    value: Any
    argument: _Input | None


class Started(NamedTuple):
    """An operator that is about to run.

    `is_room` marks a view of memory that may still be uninitialized.
    """

    func: Any
    running_scope: str
    declared: Declaration
    origin: _Origin
    inputs: list[_Input]
    externals: tuple[External, ...]
    sequence: tuple[int, int]
    is_room: bool


class StepTracer:
    """Traces a step whose operators are new.

    Parameters
    ----------
    names : Names
        Names of modules and weights.
    slot_table : SlotTable
        Table in which nodes and their outputs are declared.
    """

    def __init__(self, names: Names, slot_table: SlotTable) -> None:
        self.operators: list[Operator] = []
        self.gradient_sources: dict[str, tuple[Source | None, ...]] = {}
        self.evaluation = _NO_EVALUATION
        self._evaluates = False
        self._slot_table = slot_table
        self._known = KnownTensors(names)
        self._sources = TensorSources()
        self._pairs = AutogradPairs()
        self._counts: defaultdict[str, int] = defaultdict(int)
        self._inputs = 0
        self._outside: set[str] = set()
        self._optimizer: torch.optim.Optimizer | None = None
        self._owners: dict[str, str] = {}
        self._gradients: dict[int, str] = {}
        self._contents: dict[Source, int] = {}
        self._roots: dict[Source, int] = {}
        self._showing: defaultdict[int, list[int]] = defaultdict(list)
        self._uncertain: set[int] = set()
        self._earlier: dict[int, Source] = {}
        self._made: dict[str, tuple[int, Any]] = {}
        self._added: dict[str, tuple[Source, ...]] = {}

    # --- parts of a step ---

    def begin_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Note that an optimizer runs: operators outside modules and closures belong to its update."""
        self._optimizer = optimizer
        self._known.add_optimizer(optimizer)
        for name, weight in self._known.weights_of(optimizer):
            if weight.grad is not None:
                path = name.replace(".", "/")
                self._gradients[id(weight.grad)] = path
                # Identities of the results of known operators may have been reused for other tensors.
                is_known = name in self.gradient_sources
                source = self._sources.find(weight.grad) if is_known else self._find(weight.grad)
                if source is not None and source not in self.gradient_sources.get(name, ()):
                    self.gradient_sources[name] = (source,)
                gradient = f"Gradients/{ROOT_SCOPE}/{path}/AccumulateGrad-op0", 0
                self._sources.put(weight.grad, gradient, written=True)
                # An update may overwrite the gradients that it reads.
                slot_id = self._slot_id(self._roots, gradient)
                if slot_id >= 0:
                    self._showing[slot_id].append(slot_id)

    def end_optimizer(self) -> None:
        """Note that the optimizer is done."""
        self.end_evaluation()
        self._optimizer = None

    def begin_evaluation(self, start: int) -> None:
        """Note the first operator of a closure's evaluation, which ends when the optimizer's own operators run."""
        self.evaluation = (start, 0)
        self._evaluates = True

    def end_evaluation(self) -> None:
        """Note that the closure has returned, if it was evaluated."""
        if self._evaluates:
            self.evaluation = (self.evaluation[0], len(self.operators))
            self._evaluates = False

    def note_repeated(self, seen: Mapping[int, Source]) -> None:
        """Note that known operators ran again, and the sources of their results, by identity."""
        self._earlier.update(seen)
        self._pairs.taken()

    def same(self, tensor: torch.Tensor, other: torch.Tensor) -> None:
        """Note that a tensor is equivalent to another one, as another object."""
        source = self._find(other)
        if source is not None:
            self._sources.put(tensor, source)

    def forget(self, tensor: torch.Tensor) -> None:
        """Drop all references to a tensor, whose elements will be replaced."""
        self._sources.forget(tensor)

    def accumulate(self, weight: torch.Tensor, gradient: torch.Tensor) -> None:
        """Note the tensor that is accumulated into the gradient of a weight."""
        known_tensor = self._known.find(weight)
        source = self._find(gradient)
        if known_tensor is not None and source is not None:
            added = self._added[known_tensor.name] = (*self._added.get(known_tensor.name, ()), source)
            self.gradient_sources[known_tensor.name] = added

    def go_on_after(
        self,
        operators: Sequence[Operator],
        made: Sequence[Any],
        seen: Mapping[int, Source],
        first_sequence: int,
        step: OperatorStep,
    ) -> None:
        """Continue a step whose first operators are known, and have run.

        Parameters
        ----------
        operators : sequence of Operator
            The first operators.
        made : sequence
            Identities of their results.
        seen : mapping of int to Source
            Sources of the tensors that they made or read, by identity.
        first_sequence : int
            Sequence number of the first autograd node of the step.
        step : OperatorStep
            The known step that they belong to.
        """
        self.operators = list(operators)
        self.gradient_sources = dict(step.gradient_sources)
        self.evaluation = step.evaluation if step.evaluation[1] <= len(operators) else _NO_EVALUATION
        self._earlier = dict(seen)
        for position, operator in enumerate(operators):
            traced = operator.traced
            self._inputs += len(operator.externals)
            if traced is None:
                continue
            if all(output.content is not Content.VIEW for output in operator.outputs):
                self._made[traced.name] = position, made[position]
            self._counts[f"{traced.scope}/{traced.type}"] += 1
            self._owners[traced.name] = operator.owner
            self._pairs.put(operator.sequence, Forward(traced.name, traced.scope, traced.stack))
            for external in operator.externals:
                self._show(external.output, (external.node.name, 0))
            self._mark_uncertain(declaration(operator.declared), traced.inputs)
            for output in operator.outputs:
                self._show(output, (traced.name, self._slot_table[output.slot_id].slot))
        self._pairs.go_on_after(first_sequence, operators[-1].sequence[1] if operators else 0)

    # --- one operator ---

    def start(self, func: Any, scope: str, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> Started:
        """Record the inputs of an operator before it runs, because it may overwrite them."""
        declared = declaration(func)
        sequence = self._pairs.taken()
        if declared.type in _FRESH:
            # A number of the script becomes a tensor; an earlier tensor may have had the same identity.
            for _, tensor in tensors_in(args, kwargs):
                self._earlier.pop(id(tensor), None)
        inputs = [self._input(path, tensor) for path, tensor in tensors_in(args, kwargs)]
        is_room = declared.is_view and gathers_weights()
        externals = self._externals(declared, inputs, is_room=is_room)
        origin = self._origin(scope, inputs)
        return Started(func, scope, declared, origin, inputs, externals, sequence, is_room)

    def finish(
        self, started: Started, result: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None
    ) -> Operator | None:
        """Add an operator that has run; return None if it neither made nor wrote a tensor."""
        declared, origin = started.declared, started.origin
        if not declared.is_trusted:
            # Collective operators fill their arguments without declaring it.
            for given in tree_iter((args, kwargs)):
                if isinstance(given, torch.Tensor):
                    self._sources.may_be_set(given)
        outputs = self._written(started, result)
        if not any(isinstance(output.value, torch.Tensor) for output in outputs):
            return None
        for external, read in zip(started.externals, (read for read in started.inputs if read.is_new), strict=True):
            is_room = started.is_room
            self._sources.put(read.tensor, (external.node.name, 0), written=is_room, unset=is_room)
            self._show(external.output, (external.node.name, 0))
            self._outside.add(external.node.name)
            self._inputs += 1
        self._mark_uncertain(declared, (read.source for read in started.inputs))
        counter = f"{origin.scope}/{declared.type}"
        name = f"{counter}-op{self._counts[counter]}"
        self._counts[counter] += 1
        attributes = {} if origin.owner else settings(declared, args, kwargs)
        if origin.forward:
            attributes["forward"] = origin.forward
        traced = TracedNode(
            name=name,
            type=declared.type,
            inputs=tuple(read.source for read in started.inputs),
            outputs=tuple(_outline(output.value) for output in outputs),
            stack=origin.stack,
            attributes=attributes,
        )
        operator = Operator(
            started.func,
            started.running_scope,
            self._slot_table.node(name, declared.type),
            traced,
            self._outputs(traced, outputs, started),
            started.externals,
            started.sequence,
            origin.owner,
            tuple(self._links(started.inputs)) if origin.is_forward else (),
        )
        self._made[name] = len(self.operators), identities(result)
        if started.func in ACCUMULATING and self.operators and self.operators[-1].is_gradient:
            # While it is expected, autograd may use the same operator to accumulate a gradient.
            operator.func = None
        self.operators.append(operator)
        self._owners[name] = origin.owner
        self._pairs.put(started.sequence, Forward(name, origin.scope, origin.stack))
        return operator

    # --- scope and owner ---

    def _origin(self, scope: str, inputs: list[_Input]) -> _Origin:
        backward = self._pairs.backward()
        if backward is not None:
            if backward.weight is None:
                return _Origin(backward.scope, backward.stack, forward=backward.forward)
            known_tensor = self._known.find(backward.weight)
            inner = ROOT_SCOPE if known_tensor is None else f"{ROOT_SCOPE}/{known_tensor.path}"
            return _Origin(f"Gradients/{inner}", backward.stack)
        stack = user_stack()
        if self._optimizer is not None and scope is ROOT_SCOPE and not torch.is_grad_enabled():
            self.end_evaluation()
            owner = self._owner(inputs)
            return _Origin(f"{_OPTIMIZER}/{owner}", stack, owner)
        return _Origin(scope, stack, is_forward=True)

    def _owner(self, inputs: list[_Input]) -> str:
        """Return the weight that an optimizer updates; if it updates several at once, the optimizer's class."""
        owners = {}
        for read in inputs:
            known_tensor = self._known.find(read.tensor)
            path = known_tensor.path if known_tensor is not None else self._gradients.get(id(read.tensor), "")
            path = path or self._owners.get(read.source[0], "")
            if path:
                owners[path] = True
        together = type(self._optimizer).__name__
        return next(iter(owners)) if len(owners) == 1 else together

    # --- inputs ---

    def _input(self, path: Path, tensor: torch.Tensor) -> _Input:
        source = self._find(tensor)
        return _Input(path, tensor, source or ("", 0), source is None)

    def _find(self, tensor: torch.Tensor) -> Source | None:
        """Return the source of a tensor: this step, a persistent tensor, or the known first part of the step."""
        known_tensor = self._known.find(tensor)
        if known_tensor is not None and not self._sources.is_written(tensor):
            return known_tensor.name, 0
        source = self._sources.find(tensor)
        if source is not None:
            return source
        # An identity may have been reused for another tensor; the memory of a weight is certain.
        known_tensor = known_tensor or self._known.find_alias(tensor)
        return self._earlier.get(id(tensor)) if known_tensor is None else (known_tensor.name, 0)

    def _externals(self, declared: Declaration, inputs: list[_Input], *, is_room: bool) -> tuple[External, ...]:
        """Declare the tensors from outside the step, and enter them as the sources of the inputs."""
        read_from = {
            id(each.tensor) for each in inputs if argument_name(declared, each.path) not in declared.overwritten
        }
        externals: dict[int, External] = {}
        for index, read in enumerate(inputs):
            if not read.is_new:
                continue
            external = externals.get(id(read.tensor))
            if external is None:
                kind = FROM_COMPILED_CODE if is_from_compiled_code(read.tensor) else "input"
                name = f"{kind}{self._inputs + len(externals)}"
                node = self._slot_table.node(name, "Parameter", "input")
                slot_id = self._slot_table.slot_id(node, 0)
                traced = TracedNode(name, "Parameter", "input", outputs=(outline(read.tensor),))
                external = externals[id(read.tensor)] = External(
                    Output(read.path, slot_id, Content.FRESH, read.tensor.dtype, gate(read.tensor), root=slot_id),
                    traced,
                    id(read.tensor) in read_from and not is_room,
                )
                inputs[index] = read._replace(source=(name, 0))
            else:
                inputs[index] = read._replace(source=(external.node.name, 0), is_new=False)
        return tuple(externals.values())

    def _links(self, inputs: list[_Input]) -> Iterator[Link]:
        """Yield the arguments of an operator that must be the same tensors when it runs again."""
        for read in inputs:
            name, slot = read.source
            if len(read.path) != 2 or read.path[0] != "args" or not isinstance(read.path[1], int) or read.is_new:
                continue
            known_tensor = self._known.find(read.tensor)
            if known_tensor is not None and known_tensor.name == name:
                yield Link(read.path[1], 0, id(read.tensor), read.source)
            elif name in self._made and self._is_result(read):
                position, made = self._made[name]
                number = slot if isinstance(made, list) else -1
                yield Link(read.path[1], len(self.operators) - position, number, read.source)
            elif name in self._outside and self._sources.is_object(read.tensor, read.source):
                yield Link(read.path[1], FROM_OUTSIDE, 0, read.source)

    def _is_result(self, read: _Input) -> bool:
        """Whether a tensor is the same object that an operator returned; autograd may wrap views in new ones."""
        name, slot = read.source
        made = self._made[name][1]
        results = made if isinstance(made, list) else [made]
        is_alive = (
            self._sources.is_object(read.tensor, read.source) or self._earlier.get(id(read.tensor)) == read.source
        )
        return is_alive and slot < len(results) and results[slot] == id(read.tensor)

    # --- outputs ---

    @staticmethod
    def _written(started: Started, result: Any) -> list[_Result]:
        """Return the values that an operator returned, and the other tensors that it wrote to."""
        declared = started.declared
        written = {
            id(read.tensor): read for read in started.inputs if argument_name(declared, read.path) in declared.written
        }
        results = [_Result(path, tensor, written.pop(id(tensor), None)) for path, tensor in results_in(result)]
        return results + [_Result(read.path, read.tensor, read) for read in written.values()]

    def _outputs(self, traced: TracedNode, results: list[_Result], started: Started) -> tuple[Output, ...]:
        outputs = []
        memories = None
        for slot, (path, tensor, argument) in enumerate(results):
            if not isinstance(tensor, torch.Tensor):
                continue
            memories = _memories(started.inputs) if memories is None else memories
            storage = storage_of(tensor)
            lies_in = None if storage is None or argument is not None else memories.get(storage._cdata)
            source = (traced.name, slot)
            is_unset = started.declared.is_unset and lies_in is None
            unset = is_unset and (argument is None or self._sources.is_unset(tensor))
            self._sources.put(tensor, source, written=lies_in is None, unset=unset)
            # Buckets of gradients are split into views before they are filled.
            if is_unset or started.is_room or started.declared.is_pending or self._sources.is_unset(tensor):
                continue
            slot_id = self._slot_table.slot_id(self._slot_table.node(traced.name, traced.type), slot)
            if argument is not None:
                root = self._slot_id(self._roots, argument.source)
                stale = tuple(self._showing[root]) if root >= 0 else ()
                output = Output(path, slot_id, Content.WRITTEN, tensor.dtype, gate(tensor), -1, root, stale)
            elif lies_in is not None:
                base, root = (self._slot_id(slot_ids, lies_in.source) for slot_ids in (self._contents, self._roots))
                output = Output(
                    path,
                    slot_id,
                    Content.VIEW,
                    tensor.dtype,
                    gate(tensor),
                    base,
                    root,
                    is_certain=root not in self._uncertain,
                )
            else:
                output = Output(path, slot_id, Content.FRESH, tensor.dtype, gate(tensor), root=slot_id)
            self._show(output, source)
            outputs.append(output)
        return tuple(outputs)

    def _mark_uncertain(self, declared: Declaration, sources: Iterable[Source | None]) -> None:
        """Note that an operator that does not declare its writes may have written to its inputs."""
        if not declared.is_trusted:
            self._uncertain.update(self._slot_id(self._roots, source) for source in sources if source is not None)

    def _show(self, output: Output, source: Source) -> None:
        """Note which elements, and which memory, an output shows."""
        self._contents[source] = output.base if output.content is Content.VIEW else output.slot_id
        self._roots[source] = output.root
        if output.root >= 0:
            self._showing[output.root].append(output.slot_id)

    def _slot_id(self, slot_ids: dict[Source, int], source: Source) -> int:
        """Return the slot id for a source; of a persistent tensor its own, -1 if there is none."""
        slot_id = slot_ids.get(source)
        if slot_id is None:
            declared = self._slot_table.find(*source)
            slot_id = slot_ids[source] = -1 if declared is None else declared
        return slot_id


def _outline(value: Any) -> OutputSlot:
    return outline(value) if isinstance(value, torch.Tensor) else _NO_TENSOR


def _memories(inputs: list[_Input]) -> dict[int, _Input]:
    """Return the first input in each storage, by the address of the storage."""
    inputs_by_storage: dict[int, _Input] = {}
    for read in inputs:
        storage = storage_of(read.tensor)
        if storage is not None:
            inputs_by_storage.setdefault(storage._cdata, read)
    return inputs_by_storage
