"""Captures the calls of modules through global hooks, and the gradients of their outputs.

The hooks are PyTorch's global module hooks, so that nothing is stored in the modules themselves: models are copied and
pickled while they train. Gradients are observed by hooks on autograd's functions; full backward hooks of modules would
insert functions of their own. Only calls in the training's thread count, and none in a backward pass, which are
recomputations for activation checkpointing.
"""

from __future__ import annotations

import sys
import threading
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules import module as hooks

from tensight.agents.core.notices import log_once
from tensight.agents.eager.calls import slot_id_of_gradient
from tensight.agents.eager.traced_programs import Trace
from tensight.agents.eager.traces import TraceCount, preview_of, trace_of
from tensight.agents.torch.arrays import outline, version_of
from tensight.agents.torch.between import Begun
from tensight.agents.torch.boundary import hide_warning_of_hooks
from tensight.agents.torch.branches import Branch
from tensight.agents.torch.calls import Call, Record, Slot, executions, tensors_in
from tensight.agents.torch.compiled import report_compiled, report_compiled_in_place
from tensight.agents.torch.scopes import EnteredScopes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tensight.agents.core.agent import Agent
    from tensight.agents.eager.names import ModuleName, Names
    from tensight.agents.torch.boundary import Boundary

MOST_CALLS = 50_000
"""Limit of the calls in the tree."""

_PASSED_OVER = Record(None)
_BACKWARD = Record(None)

_backward_task: Callable[[], int] = torch._C._current_graph_task_id
_functions: Callable[[], int] = torch.autograd._get_sequence_nr
"""Returns how many autograd functions this thread has made so far."""
_thread = threading.get_ident


class ModuleCapture:
    """A `Capture` of the calls of modules.

    Parameters
    ----------
    agent : Agent
    names : Names
    boundary : Boundary
    passes_over : callable (module) -> bool
        Whether a call of an outermost module does not belong to a step, such as an evaluation.
    on_outermost : callable (Module) -> None
        Called when a call of an outermost module has ended.
    """

    def __init__(
        self,
        agent: Agent,
        names: Names,
        boundary: Boundary,
        *,
        passes_over: Callable[[torch.nn.Module], bool],
        on_outermost: Callable[[torch.nn.Module], None] | None = None,
    ) -> None:
        self._agent = agent
        self._observe = agent.observe
        self._slot_table = agent.slot_table
        self._needs = agent.slot_table.needs
        self._names = names
        self._boundary = boundary
        self._on_gradient = boundary.hook(self._see_gradient)
        self._passes_over = passes_over
        self._on_outermost = on_outermost
        self._thread = _thread()
        self._records: dict[int, Record] = {}
        self._passing_names: dict[str, Record] = {}
        self._first = Call(_PASSED_OVER, None)
        self._at = self._first
        self._mark = self._first
        self._stack: list[Record] = []
        self._begun: list[tuple[Record, int, Call]] = []
        self._ended: tuple[Record, int, Call] = (_PASSED_OVER, 0, self._first)
        self._number = 0
        self._is_other = False
        self._renewals = 0
        self._passing: Record | None = None
        self._entered_scopes = EnteredScopes()
        self._branch: Branch | None = None
        self._calls = 0
        self._traces = TraceCount("modules")
        self._last = Trace()
        self._handles: list[Any] = []
        self._is_started = False
        self._again: dict[Record, list[Call]] | None = None
        names.on_gone = self._models_gone

    # --- Capture ---

    @property
    def idle(self) -> bool:
        """Whether nothing has run since the step began."""
        return self._at is self._first

    @property
    def without_gradients(self) -> set[str]:
        """Scopes of the modules that this step has called only with gradients switched off."""
        return self._entered_scopes.without_gradients

    def start(self) -> None:
        """Install the hooks."""
        self._thread = _thread()
        report_compiled_in_place(self._names, "they cannot be seen, only their weights and their gradients")
        self._is_started = True
        self.begin_step()

    def stop(self) -> None:
        """Remove everything from PyTorch."""
        self._is_started = False
        self._remove()
        self._remove_from_tensors()

    def begin_step(self) -> None:
        """Return to the first call of the tree; the hooks are installed only if the step is captured."""
        self._at = self._mark = self._first
        self._stack.clear()
        self._begun.clear()
        self._number = _functions()
        self._is_other = False
        self._passing = self._branch = self._again = None
        self._entered_scopes.clear()
        if self._agent.capturing or self._first.following is None or is_compiled_somewhere():
            self._install()
        else:
            self._remove()

    def end_step(self) -> Trace:
        """Return what ran.

        This is the same object as for an earlier step that ran the same calls, or as for the last captured step if this
        one was not captured.
        """
        at = self._at
        if at is self._first:
            return self._last
        if at.trace is not None and at.renewals != self._renewals:
            at.trace, at.renewals = trace_of(executions(at.chain())), self._renewals
        if at.trace is None:
            if not self._traces.may_add():
                return self._last
            at.trace, at.renewals = trace_of(executions(at.chain())), self._renewals
        self._last = at.trace
        return at.trace

    def preview(self) -> Trace:
        """Return the leaves of the models with their weights, as far as they are known before the first step."""
        return preview_of(self._names)

    def mark_evaluation(self) -> None:
        """Remember the position in the step."""
        self._mark = self._at

    def begin_evaluation(self) -> None:
        """Go back to the mark."""
        self._at = self._mark
        self._number = _functions()
        self._branch = self._again = None

    def before_swap(self, tensors: Sequence[torch.Tensor]) -> None:
        """Drop all references to some tensors."""
        held = [tensor for tensor in tensors if weakref.getweakrefs(tensor)]
        for slot in self._slots() if held else ():
            if slot.reference is not None and any(slot.reference() is tensor for tensor in held):
                slot.reference = None

    def after_swap(self) -> None:
        """Do nothing: calls are captured as before."""

    def _slots(self) -> Iterator[Slot]:
        """Yield the slots of all calls in the tree."""
        waiting = [self._first]
        while waiting:
            call = waiting.pop()
            waiting += call.others
            for slot, _ in (*call.inputs, *call.outputs):
                if slot is not None:
                    yield slot

    # --- what PyTorch calls ---

    def enter(self, module: torch.nn.Module, arguments: tuple[Any, ...]) -> None:
        """Note that a module's forward has begun before the hooks were installed."""
        self._before_forward(module, arguments)

    def _before_forward(self, module: torch.nn.Module, arguments: tuple[Any, ...]) -> None:
        if _thread() != self._thread or _backward_task() != -1:
            return
        record = self._records.get(id(module))
        if record is None:
            record = self._record(module)
        if self._passing is not None and self._passing is not record:
            return
        stack = self._stack
        if record in stack:
            self._left(record)
        if record.is_passed_over or (not stack and self._passes_over(module)):
            self._passing = record
            return
        self._passing = None
        self._entered_scopes.add(record.name.scope)
        number = _functions()
        if self._branch is not None:
            self._branch.enter(self._containers(), arguments, number)
        stack.append(record)
        self._begun.append((record, number, self._at))
        if record.name.is_compiled:
            self._hide(module)

    def _after_forward(
        self, module: torch.nn.Module, arguments: tuple[Any, ...], named: dict[str, Any], output: Any
    ) -> None:
        if _thread() != self._thread:
            return
        if _backward_task() != -1:
            self._see_again(module, output)
            return
        record = self._records.get(id(module))
        if self._passing is not None:
            if record is self._passing:
                self._passing = None
            return
        stack = self._stack
        if record is None or not self._left(record):
            return
        call = self._at.following
        if call is None or call.record is not record or not self._walk(call, arguments, named, output):
            self._leave(record, module, arguments, named, output)
        if not stack and self._on_outermost is not None:
            self._on_outermost(module)

    def before_backward(self, roots: Sequence[torch.Tensor]) -> None:
        """Note that a backward pass begins."""
        if not self._handles or _thread() != self._thread or _backward_task() != -1 or self._passing is not None:
            return
        call = self._at.following
        if call is None or not call.is_backward or not self._fits_backward(call, roots):
            call = next(
                (
                    candidate
                    for candidate in self._at.others
                    if candidate.is_backward and self._fits_backward(candidate, roots)
                ),
                None,
            )
        number = _functions()
        if call is None:
            call = self._branch_here().grow_backward(self._at, _BACKWARD, roots, self._containers(), number)
            call.amount = number - self._number
            self._append(call)
        self._count(call, number, number)
        self._at.following = call
        self._at = call
        for (slot, _), tensor in zip(call.outputs, roots, strict=True):
            if slot is not None and (need := self._needs[slot.slot_id]):
                self._observe(slot.slot_id, tensor, need)
        self._finished(call)

    # --- calls in the tree ---

    def _walk(self, call: Call, arguments: tuple[Any, ...], named: dict[str, Any], output: Any) -> bool:
        """Advance to a call of the tree and observe its tensors; return False if this call does not match it."""
        given: Sequence[Any]
        returned: Sequence[Any]
        if call.is_simple:
            if len(arguments) != 1 or named or not isinstance(output, torch.Tensor):
                return False
            given, returned = arguments, (output,)
        else:
            given, returned = tensors_in((arguments, named)), tensors_in(output)
            if len(returned) != len(call.outputs) or (call.inputs and len(given) != len(call.inputs)):
                return False
        for (slot, is_first), tensor in zip(call.inputs, given, strict=False):
            if slot is None:
                continue
            if not slot.fits(tensor, is_first=is_first):
                return False
            is_written = not is_first and slot.version != version_of(tensor)
            if is_written and not any(tensor is other for other in returned):
                return False
        for (slot, is_first), tensor in zip(call.outputs, returned, strict=True):
            if slot is not None and not slot.fits(tensor, is_first=is_first):
                return False
        self._at = call
        self._count(call, self._ended[1], _functions())
        for (slot, is_first), tensor in zip(call.inputs, given, strict=False):
            if is_first and slot is not None:
                self._see(slot, tensor)
        for (slot, is_first), tensor in zip(call.outputs, returned, strict=True):
            if is_first and slot is not None:
                self._see(slot, tensor)
        if self._agent.stops_at_nodes:
            self._finished(call)
        return True

    def _count(self, call: Call, began: int, ended: int) -> None:
        """Note how many autograd functions had been made before and after a call.

        If their number before the call differs from that of its first time, containers have computed something else,
        and the calls between which they computed a tensor are no longer known.
        """
        amount = (began if call.is_leaf else ended) - self._number
        call.began = began
        call.ended = self._number = ended
        if amount != call.amount or self._is_other:
            self._widen(call)

    def _widen(self, call: Call) -> None:
        """Widen the stacks of what containers computed before a call to all lines that may have run."""
        for operation in (*call.before, *((call.operation,) if call.operation is not None else ())):
            if operation.wide_stack and (self._is_other or not operation.is_up_to_call):
                operation.stack, operation.wide_stack = operation.wide_stack, ()
                self._renewals += 1
        self._is_other = True

    def _containers(self) -> list[Begun]:
        """Return the calls that have begun and not ended, outermost first."""
        return [Begun(*entry) for entry in self._begun]

    def _see(self, slot: Slot, tensor: torch.Tensor) -> None:
        slot.reference = weakref.ref(tensor)
        slot.version = version_of(tensor)
        slot_id = slot.slot_id
        need = self._needs[slot_id]
        if need:
            self._observe(slot_id, tensor, need)
        slot.has_gradient = tensor.requires_grad
        if slot.has_gradient:
            gradient_slot_id = slot.gradient_slot_id
            if gradient_slot_id < 0 or self._needs[gradient_slot_id]:
                self._await_gradient(slot, tensor)

    def _fits_backward(self, call: Call, roots: Sequence[torch.Tensor]) -> bool:
        return len(call.inputs) == len(roots) and all(
            slot is None or (slot.reference is not None and slot.reference() is tensor)
            for (slot, _), tensor in zip(call.inputs, roots, strict=True)
        )

    def _finished(self, call: Call) -> None:
        """Notify the agent that nodes have run, if it may stop at one."""
        if self._agent.stops_at_nodes:
            for operation in call.before:
                self._agent.node_done(operation.node)
            if call.operation is not None:
                self._agent.node_done(call.operation.node)

    # --- calls outside the tree ---

    def _leave(
        self, record: Record, module: torch.nn.Module, arguments: tuple[Any, ...], named: dict[str, Any], output: Any
    ) -> None:
        """Advance to a call that did not come next the last time: one that came here earlier, or a new one."""
        at, number, began = self._at, _functions(), self._ended[1]
        for call in at.others:
            if call.record is record and self._walk(call, arguments, named, output):
                at.following = call
                return
        if self._calls >= MOST_CALLS:
            log_once(
                f"modules were called in more than {MOST_CALLS:,} different orders and positions: further ones are not"
                " observed, until a step runs like an earlier one (an optimizer's update ends a step, or dbg.step())"
            )
            return
        containers = self._containers()
        if not record.name.is_leaf:
            containers.append(Begun(*self._ended))
        here = began if record.name.is_leaf else number
        call = self._branch_here().grow(at, record, module, (arguments, named), output, containers, here)
        call.amount = here - self._number
        self._count(call, began, number)
        self._append(call)
        self._at = call
        for pairs, tensors in ((call.inputs, tensors_in((arguments, named))), (call.outputs, tensors_in(output))):
            for (slot, is_first), tensor in zip(pairs, tensors, strict=False):
                if is_first and slot is not None:
                    self._see(slot, tensor)
        self._finished(call)

    def _append(self, call: Call) -> None:
        self._at.others.append(call)
        self._at.following = call
        self._calls += 1

    def _branch_here(self) -> Branch:
        if self._branch is None:
            self._branch = Branch(self._slot_table, self._names, self._at.chain())
        return self._branch

    def _record(self, module: torch.nn.Module) -> Record:
        """Return a record for a module's first call: that of a freed module whose name it has taken, or a new one."""
        name = self._names.name(module)
        earlier = None if name is None else self._passing_names.get(name.scope)
        if name is not None and earlier is not None and self._can_take(earlier, name):
            record = earlier
            record.name, record.identity = name, id(module)
        else:
            record = Record(name, id(module))
            if name is not None and name.is_leaf and not module._parameters:
                self._passing_names[name.scope] = record
        self._records[id(module)] = record
        weakref.finalize(module, self._records.pop, id(module), None).atexit = False
        return record

    def _can_take(self, record: Record, name: ModuleName) -> bool:
        """Whether the module of a record has been freed, and a module with this name is of the same kind."""
        is_alike = (record.name.type, record.name.is_leaf) == (name.type, name.is_leaf)
        return is_alike and self._records.get(record.identity) is not record

    def _left(self, record: Record) -> bool:
        """Take a call that ends from the stack; return False if its beginning was not seen."""
        stack = self._stack
        if stack and stack[-1] is record:
            stack.pop()
            self._ended = self._begun.pop()
            return True
        if record not in stack:
            return False
        # The script has caught an exception, which left calls on the stack.
        index = stack.index(record)
        self._ended = self._begun[index]
        del stack[index:], self._begun[index:]
        return True

    def _models_gone(self) -> None:
        """Forget modules when a model is freed; Python would print an exception in the training's terminal."""
        try:
            self._forget_modules()
        except Exception as error:
            self._boundary.failed(error)

    def _forget_modules(self) -> None:
        self._remove_from_tensors()
        self._records.clear()
        self._passing_names.clear()
        self._first = Call(_PASSED_OVER, None)
        self._calls = 0
        self.begin_step()

    # --- gradients ---

    def _await_gradient(self, slot: Slot, tensor: torch.Tensor) -> None:
        """Observe the whole gradient of a tensor when the backward pass has computed it."""
        if slot.on_gradient is None:
            slot.on_gradient = partial(self._on_gradient, slot)
        function, before = tensor.grad_fn, slot.hook
        if function is None:
            hook = slot.hook = tensor.register_hook(slot.on_gradient)
        else:
            slot.function_output = tensor.output_nr
            hook = slot.hook = function.register_prehook(slot.on_gradient)
        if before is not None and before.hooks_dict_ref is hook.hooks_dict_ref:
            # The tensor is that of an earlier step, and still has that step's hook.
            before.remove()

    def _see_gradient(self, slot: Slot, gradients: Any) -> None:
        gradient = gradients[slot.function_output] if type(gradients) is tuple else gradients
        if gradient is None or not self._is_started:
            return
        slot_id = slot.gradient_slot_id
        if slot_id < 0:
            slot_id = self._declare_gradient(slot, gradient)
        need = self._needs[slot_id]
        if need:
            self._observe(slot_id, gradient, need)
        if self._agent.stops_at_nodes:
            self._agent.node_done(self._slot_table[slot_id].node)

    def _declare_gradient(self, slot: Slot, gradient: torch.Tensor) -> int:
        slot_id = slot.gradient_slot_id = slot_id_of_gradient(slot, self._slot_table)
        slot.gradient_outline = outline(gradient)
        return slot_id

    def _see_again(self, module: torch.nn.Module, output: Any) -> None:
        """Observe gradients of outputs recomputed for activation checkpointing that needed none in the forward pass."""
        record = self._records.get(id(module))
        if record is None or self._passing is not None:
            return
        if self._again is None:
            self._again = {}
            for call in self._at.chain():
                self._again.setdefault(call.record, []).append(call)
        calls = self._again.get(record)
        if not calls:
            return
        # The last of several calls is recomputed first.
        call = calls.pop()
        for (slot, is_first), tensor in zip(call.outputs, tensors_in(output), strict=False):
            if slot is not None and is_first and tensor.requires_grad and not slot.has_gradient:
                slot.reference = weakref.ref(tensor)
                if slot.gradient_slot_id < 0 or self._needs[slot.gradient_slot_id]:
                    self._await_gradient(slot, tensor)

    # --- installation ---

    def _install(self) -> None:
        if self._is_started and not self._handles:
            hide_warning_of_hooks()
            self._handles = [
                hooks.register_module_forward_pre_hook(self._boundary.hook(self._before_forward)),
                hooks.register_module_forward_hook(self._boundary.hook(self._after_forward), with_kwargs=True),
            ]

    def _remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _remove_from_tensors(self) -> None:
        """Remove the hooks from tensors that outlive the step."""
        for slot in self._slots():
            if slot.hook is not None:
                slot.hook.remove()
                slot.hook = None

    def _hide(self, module: torch.nn.Module) -> None:
        """Remove the hooks while compiled code runs; otherwise it would be recompiled with them."""
        report_compiled(
            module,
            "only its inputs and outputs, its weights and their gradients can be observed, not what happens inside it",
        )
        self._remove()

        def reveal(_: torch.nn.Module, arguments: tuple[Any, ...], named: dict[str, Any], output: Any) -> None:
            handle.remove()
            self._install()
            # There is no output if an exception was raised.
            if output is not None:
                self._after_forward(module, arguments, named, output)

        handle = module.register_forward_hook(self._boundary.hook(reveal), with_kwargs=True, always_call=True)


def is_compiled_somewhere() -> bool:
    """Whether anything was compiled in this process: compiled code depends on the installed hooks."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return dynamo is not None and bool(dynamo.counters["frames"])
