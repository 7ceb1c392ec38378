"""``capture="ops"``: every operator of the forward pass, of the backward pass and of the optimizer.

In a step that runs like an earlier one, each operator is only compared with the one expected at its position. The first
unexpected operator starts a search for a known step that continues with it. If there is none, the rest of the step is
traced, and the step becomes another graph of the run.
"""

from __future__ import annotations

from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from tensight.agents.core.notices import log_once
from tensight.agents.torch.boundary import unseen
from tensight.agents.torch.compiled import OBSERVED_OPERATORS, report_compiled_in_place
from tensight.agents.torch.framework_frames import loads_data
from tensight.agents.torch.known_tensors import KnownTensors
from tensight.agents.torch.observing import OperatorObserver
from tensight.agents.torch.operator_mode import OperatorMode, is_made_of_others
from tensight.agents.torch.operator_schemas import ACCUMULATING, DETACH, NEW_EMPTY, declaration
from tensight.agents.torch.operator_steps import END, OperatorStep, tensor_at
from tensight.agents.torch.operator_tracing import StepTracer
from tensight.agents.torch.pairing import accumulated_weight
from tensight.agents.torch.scopes import ROOT_SCOPE, ModuleScopes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import nn

    from tensight.agents.core.agent import Agent
    from tensight.agents.core.program import Source
    from tensight.agents.eager.names import Names
    from tensight.agents.eager.traced_programs import Trace
    from tensight.agents.torch.boundary import Boundary
    from tensight.agents.torch.operator_steps import External, Operator
    from tensight.agents.torch.operator_tracing import Started

_TRACED_AT_FIRST = 2
"""Steps that are captured even if nothing is watched. An optimizer's first step differs from the later ones."""

_MOST_STEPS = 64

MOST_OPERATORS, MOST_UNWATCHED = 200_000, 20_000
"""Limits of the operators traced in a step that is watched, and in one that is not. Each takes memory, and a script may
never end a step."""

_NOTHING = [END]
_LOADING = "enumerate(DataLoader)"
_NO_VALUES = (FakeTensor, FunctionalTensor, UninitializedParameter, UninitializedBuffer)


class OperatorCapture:
    """A `Capture` of every operator.

    Parameters
    ----------
    agent : Agent
    names : Names
        Names of the models' modules and tensors.
    boundary : Boundary
    passes_over : callable (module) -> bool, optional
        Whether a call of an outermost module does not belong to a step, such as an evaluation.
    on_outermost : callable, optional
        Called when an outermost module that belongs to a step has run.
    """

    def __init__(
        self,
        agent: Agent,
        names: Names,
        boundary: Boundary,
        passes_over: Callable[[nn.Module], bool] | None = None,
        on_outermost: Callable[[nn.Module], None] | None = None,
    ) -> None:
        self._agent = agent
        self._names = names
        self._boundary = boundary
        self._passes_over = passes_over
        self._on_outermost = on_outermost
        self._observer = OperatorObserver(agent)
        self._mode = OperatorMode(
            agent.slot_table.needs,
            partial(unseen, self._unexpected),
            partial(unseen, self._observer.ran),
            partial(unseen, self._reads),
            self._lose_step,
            self._observer.waiting,
            partial(unseen, self._observer.keep),
        )
        self._scopes = ModuleScopes(names.scope, self._enter_scope, self._outermost, boundary)
        self._follows_optimizers = False
        self._step = OperatorStep((), {})
        self._steps = [self._step]
        self._tracer: StepTracer | None = None
        self._optimizer: torch.optim.Optimizer | None = None
        self._externals: dict[int, Source] = {}
        self._aliases: dict[int, int] = {}
        self._first_sequence = 0
        self._home = 0
        self._autograd_thread = 0
        self._loading = 0
        self._passed_over = False
        self._kept: tuple[list[Operator], int, list[Any]] = (_NOTHING, 0, [None])
        self._mark: int | None = None
        self._repeats = False
        self._repeating: set[type] = {torch.optim.LBFGS}
        self._captured_steps = 0
        self._is_started = False
        self._is_captured = False
        self._is_lost = False

    # --- the protocol of captures ---

    def start(self) -> None:
        """Capture the step that begins now, and those that follow."""
        self._is_started = True
        report_compiled_in_place(self._names, f"inside them, {OBSERVED_OPERATORS}")
        if not self._follows_optimizers:
            self._follows_optimizers = True
            self._boundary.follow_steps(self._begin_optimizer, self._end_optimizer)
        self.begin_step()

    def stop(self) -> None:
        """Remove everything from PyTorch."""
        self._is_started = self._is_captured = False
        self._leave()

    def begin_step(self) -> None:
        """Expect the operators of the previous step; capture nothing if nothing needs it."""
        is_needed = self._agent.capturing or self._captured_steps < _TRACED_AT_FIRST
        self._is_captured = self._is_started and is_needed
        if not self._is_captured:
            self._leave()
            return
        self._tracer = None
        self._externals.clear()
        self._mode.outside.clear()
        self._aliases.clear()
        self._first_sequence = torch.autograd._get_sequence_nr()
        self._loading, self._mark = 0, None
        self._repeats = self._is_lost = self._passed_over = False
        self._scopes.begin_step()
        self._observer.forget_contents()
        self._enter()

    def end_step(self) -> Trace:
        """Return what ran."""
        if not self._is_captured:
            return self._step.trace
        self._is_captured = False
        self._captured_steps += 1
        self._observer.keep()
        mode = self._mode
        mode.thread = 0
        if self._repeats or self._loading:
            self._put_back()
        tracer, self._tracer = self._tracer, None
        if tracer is not None:
            self._step = self._add(OperatorStep(tracer.operators, tracer.gradient_sources, tracer.evaluation))
        elif not self._is_lost and mode.expected[mode.position] is not END:
            self._step = self._shortened(mode.position)
        mode.expect(_NOTHING)
        return self._step.trace

    def preview(self) -> Trace:
        """Return the part of the step that has run so far; before the first step it is empty."""
        tracer = self._tracer
        if tracer is not None:
            return OperatorStep(tracer.operators, tracer.gradient_sources).trace
        return self._step.trace

    def enter(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        """Note that a module's forward has begun before the hooks were installed."""
        self._scopes.enter(module, arguments)

    def mark_evaluation(self) -> None:
        """Remember the position in the step before a closure is evaluated for the first time."""
        tracer = self._tracer
        self._mark = self._mode.position if tracer is None else len(tracer.operators)
        if tracer is not None:
            tracer.begin_evaluation(self._mark)

    def begin_evaluation(self) -> None:
        """Note that a closure is evaluated again, so that its operators repeat."""
        tracer = self._tracer
        if self._repeats:
            self._put_back()
            self._repeats = False
        if self._optimizer is not None:
            self._repeating.add(type(self._optimizer))
        if tracer is not None:
            tracer.end_evaluation()
        start, end = self._step.evaluation if tracer is None else tracer.evaluation
        if start != self._mark or end <= start or not self._is_captured:
            return
        operators = self._step.operators if tracer is None else tracer.operators
        self._put_aside([*operators[start:end], END])
        self._repeats = True

    def before_swap(self, tensors: Sequence[torch.Tensor]) -> None:
        """Drop all references to some tensors, and capture nothing until the swap is done."""
        if get_ident() == self._mode.thread:
            self._observer.keep()
            self._mode.thread = 0
        self._observer.waiting.clear()
        self._observer.forget_contents()
        if self._tracer is not None:
            for tensor in tensors:
                self._tracer.forget(tensor)

    def after_swap(self) -> None:
        """Capture operators again."""
        if self._is_captured and get_ident() == self._home:
            self._mode.thread = self._home

    @property
    def without_gradients(self) -> set[str]:
        """Scopes of the modules that this step has called only with gradients switched off."""
        return self._scopes.without_gradients

    @property
    def idle(self) -> bool:
        """Whether nothing has run since the step began."""
        return self._mode.position == 0 and self._tracer is None and not self._is_lost

    # --- entering and leaving ---

    def _enter(self) -> None:
        mode = self._mode
        mode.expect(self._step.operators)
        mode.stops = self._agent.stops_at_nodes
        self._home = mode.thread = get_ident()
        if not mode.is_entered:
            mode.enter()
        self._scopes.install()

    def _leave(self) -> None:
        self._mode.thread = 0
        if self._mode.is_entered:
            self._mode.leave()
        self._scopes.remove()

    def _enter_scope(self, scope: str) -> None:
        self._mode.scope = scope

    def _outermost(self, module: nn.Module, begins: bool) -> None:
        if begins:
            if (
                self._passes_over is not None
                and torch._C._current_autograd_node() is None
                and self._passes_over(module)
            ):
                self._pass_over(begins=True)
        elif self._passed_over:
            self._pass_over(begins=False)
        elif self._on_outermost is not None:
            self._on_outermost(module)

    def _pass_over(self, *, begins: bool) -> None:
        if begins and not self._loading and not self._repeats:
            self._put_aside(_NOTHING)
            self._loading, self._passed_over = 1, True
        elif not begins:
            self._loading, self._passed_over = 0, False
            self._put_back()

    def _begin_optimizer(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if get_ident() != self._home or not self._is_started:
            return
        self._optimizer = optimizer
        if self._tracer is not None:
            self._tracer.begin_optimizer(optimizer)

    def _end_optimizer(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if optimizer is self._optimizer:
            self._optimizer = None
            if self._tracer is not None:
                self._tracer.end_optimizer()

    # --- operators ---

    def _unexpected(
        self, func: Any, types: tuple[type, ...], args: tuple[Any, ...], kwargs: Mapping[str, Any] | None
    ) -> Operator | Callable[[Any], None] | None:
        """Identify an operator that differs from the expected one: the `unexpected` callback of `OperatorMode`."""
        if types and any(is_made_of_others(type_) for type_ in types):
            # Operators of a tensor that wraps others run on those, and are captured there. Some wrap no values.
            return None if any(issubclass(type_, _NO_VALUES) for type_ in types) else NotImplemented
        is_ours = self._is_ours() and not self._concerns_no_tensor(func, args) and not self._belongs_to_search()
        if not is_ours or self._loading or self._is_lost:
            return None
        if func in ACCUMULATING and self._is_unseen(func, types):
            return partial(unseen, self._follow_unseen, func, args)
        if not self._goes_on(func, args):
            return None
        if self._tracer is None or self._repeats:
            # `_goes_on` has found the step in which this operator is the expected one.
            return self._mode.expected[self._mode.position]
        self._observer.keep()
        started = self._tracer.start(func, self._mode.scope, args, kwargs)
        self._observer.reads(started.externals, args, kwargs)
        return partial(unseen, self._traced, self._tracer, started, args, kwargs)

    @staticmethod
    def _is_unseen(func: Any, types: tuple[type, ...]) -> bool:
        """Whether autograd runs an operator for itself: to save a tensor, or to accumulate the gradient of a weight."""
        return (func is DETACH and bool(types)) or accumulated_weight() is not None

    def _follow_unseen(self, func: Any, args: tuple[Any, ...], result: Any) -> None:
        """Remember the origin of a tensor that autograd has made for itself."""
        if func is NEW_EMPTY:
            return
        # The tensor that is copied or added to a gradient is the second argument.
        origin = args[1] if len(args) > 1 and isinstance(args[1], torch.Tensor) else args[0]
        self._aliases[id(result)] = id(origin)
        self._observer.became(origin, result)
        if self._tracer is not None:
            weight = accumulated_weight()
            if weight is not None:
                self._tracer.accumulate(weight, origin)
            self._tracer.same(result, origin)

    def _traced(
        self, tracer: StepTracer, started: Started, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None, result: Any
    ) -> None:
        """Add an operator that has run to the step that is traced."""
        operator = tracer.finish(started, result, args, kwargs)
        if operator is not None:
            self._observer.ran(operator, result, args, kwargs)

    def _is_ours(self) -> bool:
        """Whether this is the training thread, or the thread that runs its backward pass."""
        thread = get_ident()
        if thread != self._home:
            if torch._C._current_autograd_node() is None or self._autograd_thread not in (0, thread):
                log_once(_OTHER_THREADS)
                return False
            self._autograd_thread = thread
        self._mode.thread = self._scopes.thread = thread
        return True

    def _concerns_no_tensor(self, func: Any, args: tuple[Any, ...]) -> bool:
        """Whether an operator does not belong to a step.

        The profiler's operators do not. They also mark the loading of data, which does not either.
        """
        if getattr(func, "namespace", "") != "profiler":
            declared = declaration(func)
            if not declared.is_trusted:
                self._observer.forget_contents()
            return not declared.makes_tensors
        if declaration(func).type.endswith("_exit"):
            if self._loading:
                self._loading -= 1
                if not self._loading:
                    self._put_back()
        elif self._loading:
            self._loading += 1
        elif args and isinstance(args[0], str) and args[0].startswith(_LOADING) and not self._repeats:
            self._put_aside(_NOTHING)
            self._loading = 1
        return True

    def _belongs_to_search(self) -> bool:
        """Whether an optimizer that evaluates closures is searching for its update: the search differs in each step."""
        return (
            self._optimizer is not None
            and type(self._optimizer) in self._repeating
            and not torch.is_grad_enabled()
            and self._scopes.scope is ROOT_SCOPE
            and torch._C._current_autograd_node() is None
        )

    def _goes_on(self, func: Any, args: tuple[Any, ...]) -> bool:
        """Find a known step that continues with an operator, or begin tracing; False if the step is given up."""
        mode = self._mode
        if self._repeats:
            if mode.expected[mode.position].is_run_by(func, mode.scope):
                return True
            self._put_back()
            self._repeats = False
        if self._is_lost or loads_data():
            return False
        if self._tracer is not None:
            return self._has_room(self._tracer)
        position = mode.position
        if self._runs(mode.expected[position], func, args):
            return True
        for step in self._steps:
            if step.begins_like(mode.expected, position) and self._runs(step.operators[position], func, args):
                self._step = step
                mode.expected = step.operators
                mode.seen += [None] * (len(step.operators) - len(mode.seen))
                self._agent.diverges(is_known=True)
                return True
        if len(self._steps) >= _MOST_STEPS:
            log_once(_TOO_MANY)
            self._is_lost = True
            mode.expect(_NOTHING)
            return False
        self._begin_tracing()
        return True

    def _runs(self, operator: Operator, func: Any, args: tuple[Any, ...]) -> bool:
        """Whether an operator that is about to run is one of a known step: in the same scope, with the same inputs."""
        mode = self._mode
        if not operator.is_run_by(func, mode.scope):
            return False
        strange = [link for link in operator.links if mode.is_given_others((link,), args)]
        if not strange:
            return True
        known_tensors, seen = KnownTensors(self._names), self._seen(mode.expected[: mode.position])
        for link in strange:
            tensor = args[link.argument] if link.argument < len(args) else None
            if isinstance(tensor, torch.Tensor):
                kept = known_tensors.find(tensor)
                source = seen.get(id(tensor)) if kept is None else (kept.name, 0)
                if source not in (None, link.source):
                    return False
        # The objects differ, but nothing shows that the tensors do.
        operator.links = tuple(link for link in operator.links if link not in strange)
        return True

    def _has_room(self, tracer: StepTracer) -> bool:
        """Whether another operator may be traced; if not, the rest of the step is given up."""
        is_watched = self._agent.capturing
        if len(tracer.operators) < (MOST_OPERATORS if is_watched else MOST_UNWATCHED):
            return True
        if is_watched:
            log_once(_TOO_LONG)
        self._follow_no_more()
        return False

    def _begin_tracing(self) -> None:
        """Trace the rest of the step, after the operators that ran as expected."""
        mode = self._mode
        tracer = StepTracer(self._names, self._agent.slot_table)
        begin = mode.expected[: mode.position]
        tracer.go_on_after(begin, mode.seen, self._seen(begin), self._first_sequence, self._step)
        if self._mark is not None and tracer.evaluation[0] != self._mark:
            tracer.begin_evaluation(self._mark)
        if self._optimizer is not None:
            tracer.begin_optimizer(self._optimizer)
        mode.expect(_NOTHING)
        self._tracer = tracer
        self._agent.diverges(is_known=False)

    def _seen(self, operators: list[Operator]) -> dict[int, Source]:
        """Return the sources of the tensors that some operators of this step have made or read, by identity."""
        seen = dict(self._externals)
        for operator, made in zip(operators, self._mode.seen, strict=False):
            if operator.traced is None:
                continue
            numbers = made if isinstance(made, list) else [made]
            for slot, number in enumerate(numbers):
                seen[number] = (operator.traced.name, slot)
        for alias, number in self._aliases.items():
            if number in seen:
                seen.setdefault(alias, seen[number])
        return seen

    def _reads(self, externals: tuple[External, ...], args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> None:
        for output, node, _ in externals:
            identity = id(tensor_at(output.path, None, args, kwargs))
            self._externals[identity] = (node.name, 0)
            self._mode.outside[node.name] = identity
        self._observer.reads(externals, args, kwargs)

    # --- steps ---

    def _put_aside(self, expected: list[Operator]) -> None:
        """Expect other operators temporarily."""
        mode = self._mode
        self._kept = (mode.expected, mode.position, mode.seen)
        mode.expect(expected)

    def _put_back(self) -> None:
        """Continue at the position at which `_put_aside` was called."""
        mode = self._mode
        if self._repeats and self._tracer is not None:
            self._tracer.note_repeated(self._seen(mode.expected))
        mode.expected, mode.position, mode.seen = self._kept

    def _add(self, step: OperatorStep) -> OperatorStep:
        for other in self._steps:
            if other.runs_like(step):
                return other
        self._steps.append(step)
        return step

    def _shortened(self, length: int) -> OperatorStep:
        """Return the known step with only the first operators of this one; add it if there is none."""
        operators = self._mode.expected[:length]
        for step in self._steps:
            if len(step.operators) == length + 1 and step.begins_like(operators, length):
                return step
        return self._add(OperatorStep(operators, self._step.gradient_sources, self._step.evaluation))

    def _lose_step(self, error: Exception) -> None:
        """Give up the rest of the step after an error in the debugger; the next step is captured again."""
        log_once(f"operators cannot be followed to the end of this step: {error!r}")
        self._follow_no_more()

    def _follow_no_more(self) -> None:
        self._tracer = None
        self._is_lost = True
        self._mode.expect(_NOTHING)


_OTHER_THREADS = (
    "operators in other threads of the training are not observed (DataParallel on several devices: use a process for"
    " each device instead)"
)
_TOO_LONG = (
    f"more than {MOST_OPERATORS:,} operators have run since the last step ended: further ones are not observed until a"
    " step ends (an optimizer's update ends a step, or dbg.step(), or with step_on='forward' each call of the model)"
)
_TOO_MANY = (
    f"more than {_MOST_STEPS} steps had different operators: in further ones only the operators before the first"
    ' difference are observed (capture="modules" does not depend on operators)'
)
