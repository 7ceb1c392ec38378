"""Observes calls of cells in PyNative mode, the gradients of their outputs, and the optimizers' updates.

``nn.Cell.__call__`` is replaced meanwhile, because hooks of cells would insert functions into the backward pass.
Gradients are observed by hooks of the tensors that cells return. Only calls in the training's thread count, and none in
a backward pass, which only repeat earlier calls.
"""

from __future__ import annotations

import threading
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

import mindspore
from mindspore import nn

from tensight.agents.core.notices import log_once
from tensight.agents.core.oversights import UNKNOWN_PARAMETERS
from tensight.agents.core.process.termination import is_of_handler
from tensight.agents.core.replacing import Replacements
from tensight.agents.eager.capture import EagerCapture
from tensight.agents.eager.names import ROOT_SCOPE, UNNAMED_MODULE, ModuleName, Names
from tensight.agents.eager.traced_programs import Programs, Trace
from tensight.agents.eager.updates import Updates
from tensight.agents.mindspore.cell_discovery import CellDiscovery
from tensight.agents.mindspore.cell_parameters import CellParameters
from tensight.agents.mindspore.compiled_calls import CallsOfStep
from tensight.agents.mindspore.executors import executor_classes, pynative_executor
from tensight.agents.mindspore.framework import PyNativeFramework, tensors_in, wraps

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tensight.agents.core.agent import Agent
    from tensight.agents.core.oversights import Oversights
    from tensight.agents.core.program import Program
    from tensight.agents.mindspore.compiled_calls import CompiledCall
    from tensight.agents.mindspore.facts.cells import CellFacts
    from tensight.agents.mindspore.graph_programs import DumpedProgram

_thread = threading.get_ident


class CellCapture:
    """Observes what a training computes in PyNative mode, and passes its tensors to the agent.

    Parameters
    ----------
    agent : Agent
    cells : sequence of Cell
        Cells to debug, with or without the cells that wrap them.
    optimizers : sequence of Optimizer
        Others that train the networks are detected when they are first called.
    step_on : str
        As in the settings: ``optimizer``, ``forward``, ``call``.
    on_step : callable (skipped) -> None
        Called when a step has ended, with whether a loss scaler has skipped its update.
    oversights : Oversights
        Receives updates and backward passes that do not become a step.
    follows_all : bool
        Whether all other networks that are called are debugged, too.

    Attributes
    ----------
    facts : CellFacts or None
        Receives what is seen, too, if the training is diagnosed; set from outside.
    """

    def __init__(
        self,
        agent: Agent,
        cells: Sequence[nn.Cell] = (),
        optimizers: Sequence[nn.Optimizer] = (),
        *,
        step_on: str = "optimizer",
        on_step: Callable[[bool], None],
        oversights: Oversights,
        follows_all: bool = False,
    ) -> None:
        self._agent = agent
        self._step_on = step_on
        self._on_step = on_step
        self._oversights = oversights
        self._thread_name = threading.current_thread().name
        self._framework = PyNativeFramework()
        self._names = Names(self._framework)
        self._discovery = CellDiscovery(self._names, cells, follows_all=follows_all or not cells)
        self._parameters = CellParameters(agent, self._names)
        for optimizer in optimizers:
            self._parameters.knows(optimizer)
        self._programs = Programs(self._parameters)
        self._calls = EagerCapture(agent, self._framework, self._names, self._give_up, "cells")
        self._updates = Updates(self._parameters, self._discovery, self._step_ended)
        self._update_count = 0
        self._replaced = Replacements()
        self._thread = _thread()
        self._compiled: set[int] = set()
        self._compiled_calls = CallsOfStep()
        self._calls_of: dict[Trace, tuple[CompiledCall, ...]] = {}
        self._is_quiet = False
        self._steps = 0
        self._last: Trace | None = None
        self._root: weakref.ref[Any] | None = None
        self._scaled: tuple[weakref.ref[Any] | None, Any] = (None, None)
        self.facts: CellFacts | None = None

    # --- for the debugger ---

    def preview(self) -> Program:
        """Return what is known before anything has run, and observe the parameters."""
        self._parameters.observe()
        return self._programs.preview(self._calls.preview())

    def start(self) -> None:
        """Observe what runs in this thread from now on."""
        self._thread, self._thread_name = _thread(), threading.current_thread().name
        self.begin_step()
        put = self._replaced.put
        put(nn.Cell, "__call__", self._call)
        jit, pynative = executor_classes()
        put(jit, "__call__", self._call_compiled)
        put(pynative, "end_graph", self._end_graph)
        for name in ("grad", "grad_aux"):
            if hasattr(pynative, name):
                put(pynative, name, self._grad)
        put(mindspore.amp.DynamicLossScaler, "adjust", self._adjust)
        put(mindspore.amp.DynamicLossScaler, "scale", self._scale)
        put(mindspore.amp.StaticLossScaler, "scale", self._scale_by_constant)

    def stop(self) -> None:
        """Remove everything from MindSpore; idempotent."""
        self._replaced.take_back()
        self._calls.stop()

    def begin_step(self) -> None:
        """Begin a step; its tensors are observed only if something needs them."""
        self._steps += 1
        self._updates.begin_step()
        self._scaled = None, None
        self._is_quiet = False
        self._agent.checks.scaling.applies = False
        self._compiled_calls.begin()
        self._calls.begin_step()

    def end_step(self) -> Program:
        """Observe persistent tensors, and return what ran: the same program object if that ran before."""
        self._last = self._calls.end_step()
        trace = self._calls.at.trace
        if self._calls.sees and trace is not None:
            self._calls_of[trace] = self._compiled_calls.calls()
        self._parameters.observe()
        return self._programs.program(self._last or Trace())

    def dumped(self, graphs: Mapping[int, DumpedProgram]) -> None:
        """Set the graphs, by number, of the compiled function that is about to return."""
        self._compiled_calls.graphs = graphs

    def compiled_calls(self) -> tuple[CompiledCall, ...]:
        """Return the calls of compiled functions in the last step that ended."""
        return () if self._last is None else self._calls_of.get(self._last, ())

    @property
    def has_seen_calls(self) -> bool:
        """Whether any call of a cell or a compiled function was seen in this step."""
        return self._calls.has_seen_calls

    def has_run(self, graph: Program) -> bool:
        """Whether any operator of a graph was ever observed; some graphs are compiled but never run."""
        slot_table = self._agent.slot_table
        return any(node.role == "operator" and slot_table.find_node(node.name) is not None for node in graph.nodes)

    # --- calls of cells ---

    def _call(self, original: Callable[..., Any], cell: nn.Cell, *given: Any, **named: Any) -> Any:
        facts = self.facts
        if facts is None or _thread() != self._thread or self._is_quiet or isinstance(cell, nn.Optimizer):
            return self._observe_call(original, cell, *given, **named)
        is_outermost = bool(self._guarded(facts.call_begins, cell))
        try:
            output = self._observe_call(original, cell, *given, **named)
            self._guarded(partial(facts.call_ended, cell, (given, named), output, is_outermost=is_outermost))
        finally:
            if is_outermost:
                facts.outermost_ended()
        return output

    def _observe_call(self, original: Callable[..., Any], cell: nn.Cell, *given: Any, **named: Any) -> Any:
        if _thread() != self._thread or self._is_quiet:
            if _thread() != self._thread and isinstance(cell, nn.Optimizer):
                self._guarded(self._oversights.update_elsewhere, type(cell).__name__, self._thread_name)
            return original(cell, *given, **named)
        if not self._calls.depth and mindspore.get_context("mode") != mindspore.PYNATIVE_MODE:
            return original(cell, *given, **named)
        if isinstance(cell, nn.Optimizer):
            return self._update(original, cell, given, named)
        if self._updates.may_be_over:
            self._guarded(self._end_open_step, cell)
        if not self._calls.sees and self._step_on != "forward" and not wraps(cell):
            return original(cell, *given, **named)
        if isinstance(cell, nn.TrainOneStepWithLossScaleCell):
            self._agent.checks.scaling.applies = True
        name, is_passed = self._name(cell)
        if is_passed:
            return self._quietly(original, cell, *given, **named)
        updates = self._update_count
        begun = self._calls.call_begins(name, cell, (given, named))
        try:
            output = original(cell, *given, **named)
        finally:
            is_same_step = self._calls.call_is_over(begun)
        if is_same_step:
            if name is not None:
                self._guarded(self._left, cell, name, (given, named), output)
                if self._calls.is_outermost and self._step_on == "forward":
                    self._on_step(False)
            elif wraps(cell) and updates == self._update_count and isinstance(cell, nn.TrainOneStepWithLossScaleCell):
                self._step_ended(True)
        return output

    def _name(self, cell: nn.Cell) -> tuple[ModuleName | None, bool]:
        """Return the name of a cell that is called, and whether the call is not part of the training."""
        try:
            is_outermost = self._calls.is_outermost
            name = self._discovery.name(cell, is_outermost=is_outermost)
            if name is None:
                return None, not self._discovery.is_transparent(cell)
            return name, is_outermost and self._is_evaluation(cell)
        except Exception as error:
            self._give_up(error)
            return None, True

    def _is_evaluation(self, cell: nn.Cell) -> bool:
        """Whether a call of an outermost cell looks like an evaluation, which is not part of a training step."""
        is_ended_by_update = self._step_on == "optimizer" and bool(self._parameters.optimizers)
        return is_ended_by_update and not cell.training and not pynative_executor().requires_grad()

    def _left(self, cell: nn.Cell, name: ModuleName, given: Any, output: Any) -> None:
        is_opaque = id(cell) in self._compiled
        self._calls.returned(name, cell, given, output, is_opaque=is_opaque)
        if is_opaque and self._calls.sees:
            self._compiled_calls.note(self._calls.at, len(tensors_in(given)))

    def _call_compiled(self, original: Callable[..., Any], executor: Any, *given: Any, **named: Any) -> Any:
        """Run a compiled function; its inner values are known at most from a dump."""
        if _thread() != self._thread or self._is_quiet or not self._calls.sees:
            return original(executor, *given, **named)
        function = getattr(executor, "fn", None)
        cell = getattr(executor, "obj", None)
        step = self._steps
        tensors = tensors_in((given, named))
        self._compiled_calls.graphs = {}
        # Hooks of the arguments would be compiled into the function.
        taken = self._calls.hooks.take_off(tensors)
        try:
            output = self._quietly(original, executor, *given, **named)
        finally:
            self._calls.hooks.put_back(taken)
        if step == self._steps:
            self._guarded(self._left_compiled, function, cell, tensors, output)
        return output

    def _left_compiled(self, function: Any, cell: Any, tensors: list[Any], output: Any) -> None:
        function_name = getattr(function, "__name__", "function")
        if not getattr(function, "__module__", "").startswith("mindspore."):
            if not self._compiled_calls.graphs:
                qualified = getattr(function, "__qualname__", function_name)
                log_once(f"{qualified} is compiled (jit): only its inputs and outputs are observed")
        elif not any(map(self._framework.has_gradient, tensors_in(output))):
            # A function of MindSpore; outside of forward passes, it runs nothing that users have written.
            return
        if isinstance(cell, nn.Cell) and function_name == "construct":
            # The call of the cell itself records the rest.
            if id(cell) not in self._compiled:
                self._compiled.add(id(cell))
                weakref.finalize(cell, self._compiled.discard, id(cell)).atexit = False
            return
        within = self._calls.within
        scope = ROOT_SCOPE if within is None else within[0].scope
        name = UNNAMED_MODULE._replace(scope=scope, type=function_name, is_leaf=True)
        self._calls.returned(name, None, tensors, output, is_opaque=True)
        self._compiled_calls.note(self._calls.at, len(tensors))

    # --- backward passes ---

    def _end_graph(
        self, original: Callable[..., Any], executor: Any, cell: Any, output: Any, *more: Any, **named: Any
    ) -> Any:
        """Note the tensor from which a backward pass will begin; it need not be the output of a cell."""
        notes = self._calls.sees or self._agent.observed.scalars.notes_losses or self.facts is not None
        if _thread() == self._thread and notes and not self._is_quiet:
            root = next(iter(tensors_in(output)), None)
            self._root = None if root is None else weakref.ref(root)
            if root is not None:
                self._guarded(self._calls.backward_comes, root)
        return original(executor, cell, output, *more, **named)

    def _grad(self, original: Callable[..., Any], executor: Any, *given: Any, **named: Any) -> Any:
        if _thread() != self._thread or self._is_quiet:
            return original(executor, *given, **named)
        self._guarded(self._oversights.backward_pass)
        root = None if self._root is None else self._root()
        self._root = None
        if root is not None and self._agent.observed.scalars.notes_losses:
            self._guarded(self._tell_loss, root)
        if root is not None:
            self._guarded(self._calls.backward_begins, root)
        if root is not None and self.facts is not None:
            scaled, before = self._scaled
            is_scaled = scaled is not None and scaled() is root
            self._guarded(self.facts.backward_begins, root, before if is_scaled else None)
        result = self._quietly(original, executor, *given, **named)
        if self.facts is not None:
            self._guarded(self.facts.backward_ended, result)
        return result

    def _tell_loss(self, root: Any) -> None:
        """Report the loss from which a backward pass begins; if it is scaled, its value before that."""
        scaled, before = self._scaled
        loss = root if scaled is None else before if scaled() is root else None
        if loss is not None and loss.size == 1 and loss.is_floating_point():
            self._agent.observed.scalars.loss(loss)

    # --- the end of a step ---

    def _update(self, original: Callable[..., Any], optimizer: nn.Optimizer, given: Any, named: dict[str, Any]) -> Any:
        """Run an optimizer's update, which ends a step."""
        knows = self._guarded(self._updates.knows, optimizer)
        if not knows:
            self._guarded(self._oversights.strange_update, type(optimizer).__name__, UNKNOWN_PARAMETERS)
        else:
            self._oversights.update_begins()
            gradients = given[0] if given else next(iter(named.values()), ())
            self._guarded(self._parameters.observe_gradients, optimizer, gradients)
        if self.facts is not None:
            self._guarded(self.facts.update_begins, optimizer, given[0] if given else next(iter(named.values()), ()))
        result = self._quietly(original, optimizer, *given, **named)
        if self.facts is not None:
            self._guarded(partial(self.facts.update_ended, optimizer, is_strange=not knows))
        self._oversights.update_ends()
        self._update_count += 1
        if knows:
            self._guarded(self._updates.updated, optimizer)
        return result

    def _end_open_step(self, cell: nn.Cell) -> None:
        """End the step before a cell is called, if the last update completed it."""
        is_evaluation = not cell.training and not pynative_executor().requires_grad()
        if not is_evaluation:
            self._updates.end_before(cell.get_parameters())

    def end_open_step(self) -> None:
        """End the step if the last update may have completed it: nothing more is called."""
        self._updates.end_open_step()

    def _adjust(self, original: Callable[..., Any], scaler: Any, grads_finite: Any, *more: Any, **named: Any) -> Any:
        """Notice when a loss scaler finds gradients outside the range of their dtype."""
        result = original(scaler, grads_finite, *more, **named)
        is_within_step = not self._calls.idle or self.facts is not None
        if _thread() == self._thread and not self._is_quiet and is_within_step and not bool(grads_finite):
            self._step_ended(True)
        return result

    def _scale(self, original: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """Note that gradients may overflow on purpose until the step ends."""
        if _thread() == self._thread:
            self._agent.checks.scaling.applies = True
        return self._scale_by_constant(original, *given, **named)

    def _scale_by_constant(self, original: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """Note the value of a loss before it is scaled."""
        result = original(*given, **named)
        if _thread() == self._thread and (self._agent.observed.scalars.is_wanted or self.facts is not None):
            self._guarded(self._note_scaled, given, named, result)
        if _thread() == self._thread and self.facts is not None and given:
            self._guarded(self.facts.scaled_by, given[0])
        return result

    def _note_scaled(self, given: Any, named: dict[str, Any], result: Any) -> None:
        before, scaled = tensors_in((given[1:], named)), tensors_in(result)
        if len(before) == len(scaled) == 1:
            self._scaled = weakref.ref(scaled[0]), before[0]

    def _step_ended(self, skipped: bool) -> None:
        if self._step_on == "optimizer":
            self._on_step(skipped)

    # --- care ---

    def _quietly(self, call: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """Call a function without observing anything in it."""
        step = self._steps
        self._is_quiet = True
        try:
            return call(*given, **named)
        finally:
            if step == self._steps:
                self._is_quiet = False

    def _guarded(self, call: Callable[..., Any], *given: Any) -> Any:
        """Call a function of ours; its errors must not disturb the training."""
        try:
            return call(*given)
        except Exception as error:
            self._give_up(error)
            return None

    def _give_up(self, error: Exception) -> None:
        if is_of_handler(error):
            raise error
        self.stop()
        log_once(f"cells are no longer watched, because of an error in the debugger: {type(error).__name__}: {error}")
