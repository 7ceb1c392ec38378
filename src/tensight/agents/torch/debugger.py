"""Debugs a PyTorch training: connects the agent, the capture, and the detection of steps."""

from __future__ import annotations

import atexit
import contextlib
import os
import shlex
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.modules import module as module_hooks
from torch.utils.checkpoint import CheckpointFunction

from tensight.agents.core.agent import Agent
from tensight.agents.core.connection.rendezvous import as_one_run
from tensight.agents.core.debugging import TrainingDebugger
from tensight.agents.core.finite import SEARCH
from tensight.agents.core.live_instances import live_instances
from tensight.agents.core.notices import log, log_once
from tensight.agents.core.oversights import UPDATES, Oversights
from tensight.agents.core.process.endings import at_end
from tensight.agents.core.reader import Framework
from tensight.agents.core.replacing import Replacements
from tensight.agents.eager.feeding import feeding
from tensight.agents.eager.names import Names, scope_of_tensor, unwrapped
from tensight.agents.eager.traced_programs import Programs, Trace
from tensight.agents.torch.arrays import READ_WHERE_THEY_LIE, TorchReader
from tensight.agents.torch.boundary import Boundary, hide_warning_of_hooks, unseen
from tensight.agents.torch.compiled import is_compiled_in_place
from tensight.agents.torch.device import free_bytes_of
from tensight.agents.torch.discovery import Discovery, is_optimizer, owners_of_weights, weights_of
from tensight.agents.torch.framework import FRAMEWORK
from tensight.agents.torch.inner_modules import weights_in
from tensight.agents.torch.modules import ModuleCapture, is_compiled_somewhere
from tensight.agents.torch.parameters import Parameters
from tensight.agents.torch.steps import Steps
from tensight.agents.torch.threads import threads_of_torch
from tensight.agents.torch.unreached import UnreachedWeights
from tensight.errors import InputError
from tensight.graph import is_after_forward
from tensight.tensors.shared_scan import ALONE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set

    from torch.utils.hooks import RemovableHandle

    from tensight.agents.core.diagnosing import Diagnosing
    from tensight.agents.core.program import Program
    from tensight.agents.core.settings import AgentSettings
    from tensight.agents.torch.capture import Capture
    from tensight.agents.torch.facts.plain_tensors import Leaves
    from tensight.agents.torch.facts.source import FactSource
    from tensight.agents.torch.first_batches import FirstBatches
    from tensight.agents.torch.probes.probing import Probing

_OF_NO_MODULE = (
    "of tensors that belong to no module, and no call of a module with parameters was seen: nothing is debugged yet"
)
_OF_TENSORS = (
    "and no call of a module with parameters and no update by an optimizer was seen: nothing is debugged yet. What"
    " plain tensors compute is seen only beside a model: put the parameters into a torch.nn.Module, and update them by"
    " an optimizer, or end steps with step_on='forward' (TENSIGHT_STEP_ON=forward) or dbg.step()"
)
_GRADIENTS_READ = 4
"""Maximum number of gradients that are read to see whether they were cleared."""

_IN_WORKER = (
    "in a worker of a pool or of a data loader: workers are not debugged, unless they ask for it themselves with"
    " tensight.torch.debug(model, optimizer)"
)


def subjects_among(given: Iterable[object]) -> list[nn.Module | torch.optim.Optimizer]:
    """Return the models and optimizers among the objects that a training library passes; wrappers are left out."""
    return [subject for subject in given if isinstance(subject, (nn.Module, torch.optim.Optimizer))]


class Debugger(TrainingDebugger):
    """Debugs a training, from `start` or the beginning of a ``with`` block on.

    Parameters
    ----------
    subjects : sequence of Module or Optimizer
        The models and optimizers to debug, in any order. Without a model, every model that the training calls is
        debugged, and the agent connects to the debug server when the first model with parameters is called. Without an
        optimizer, those that train the models are detected automatically.
    settings : AgentSettings
    agent_of : callable, optional
        Makes the agent, from the arguments of `Agent`.
    is_requested : bool
        Whether the script itself requests the debugger; if not, worker processes are not debugged.

    Raises
    ------
    InputError
        A subject is neither a model nor an optimizer.
    """

    def __init__(
        self,
        subjects: Sequence[Any],
        settings: AgentSettings,
        *,
        agent_of: Callable[..., Agent] = Agent,
        is_requested: bool = True,
    ) -> None:
        super().__init__(settings, agent_of, is_requested=is_requested)
        self._models = [unwrapped(FRAMEWORK, subject) for subject in subjects if isinstance(subject, nn.Module)]
        self._subjects = [subject for subject in subjects if isinstance(subject, nn.Module)]
        self._optimizers = [subject for subject in subjects if isinstance(subject, torch.optim.Optimizer)]
        for subject in subjects:
            if not isinstance(subject, (nn.Module, torch.optim.Optimizer)):
                raise InputError(
                    f"a training consists of models and optimizers, not of {type(subject).__name__}; give"
                    " torch.nn.Module and torch.optim.Optimizer objects"
                )
        # As in a worker of Ray, the thread that imports the framework need not be the one that trains.
        self._trains_in = self._thread
        self._capture: Capture | None = None
        self._steps: Steps | None = None
        self._boundary = Boundary(self._give_up)
        self._waiting: RemovableHandle | None = None
        self._first_batches: FirstBatches | None = None
        self._replaced = Replacements()
        self._seen_trace: Trace | None = None
        self._read: set[str] = set()
        self._feeds: tuple[frozenset[str], frozenset[str]] = frozenset(), frozenset()
        self._has_operators = False
        self._updates_unattached = self._backward_unattached = 0
        self._follows_backward = False
        self._is_worker = False
        self._facts: FactSource | None = None
        self._plain_tensors: torch.nn.Module | None = None
        self._leaves: Leaves | None = None
        self._probing: Probing | None = None

    # --- beginning and end ---

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch(), super()._guarded():
            yield

    def close(self) -> None:
        """End debugging; the training continues without it."""
        unseen(self._close)

    def _close(self) -> None:
        atexit.unregister(self.close_at_exit)
        if self._steps is not None and not self._is_over:
            self._boundary.call(self._steps.note_compiled_update)
        elif self._waiting is not None and self._boundary.compiled_update is not None:
            log_once(
                "nothing of this training was debugged: each of its steps is compiled as a whole. Compile the model"
                " instead, give model and optimizer to tensight.torch.debug, or set TORCH_COMPILE_DISABLE=1"
            )
        super().close()

    def _begin(self) -> None:
        """Attach at once if models are known, otherwise when the first one is called or updated."""
        if self._models:
            with self._guarded():
                self._attach(self._models[0])
            return
        hide_warning_of_hooks()
        self._waiting = module_hooks.register_module_forward_pre_hook(self._boundary.hook(self._attach_at))
        self._boundary.follow_steps(self._attach_before, lambda *_: None)
        self._follow_backward()

    def _attach_at(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        """Attach at the first call of a model with parameters, in the thread that makes it."""
        if self._waiting is None or not any(True for _ in weights_in(module)):
            return
        self._wait_no_more()
        if self.is_left_alone:
            self._is_worker = True
            return
        with self._guarded():
            self._attach(module)
            if self._capture is not None:
                self._capture.enter(module, arguments)
            if self._facts is not None:
                self._facts.is_within_call()

    def _attach_before(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """Attach at the first update of a model whose calls were not seen, as when compiled code calls it."""
        if self._is_worker:
            self._count_unattached(optimizer, _IN_WORKER)
        if self._waiting is None:
            return
        model = next(owners_of_weights(optimizer), None)
        if model is None and self._settings.diagnose:
            model = self._as_module(weights_of(optimizer))
        if model is None:
            self._count_unattached(optimizer, _OF_NO_MODULE)
            return
        self._wait_no_more()
        with self._guarded():
            self._attach(model)

    def _attach_to_tensors(self, roots: Any) -> None:
        """Attach for a diagnosis at a backward pass that reaches the tensors of the one before, and no module."""
        if self._waiting is None or self._backward_unattached > UPDATES or self.is_left_alone:
            return
        if not isinstance(roots, torch.Tensor) or any(map(is_optimizer, live_instances(torch.optim.Optimizer))):
            return
        from tensight.agents.torch.facts.plain_tensors import Leaves

        self._leaves = self._leaves or Leaves()
        tensors = self._leaves.repeated(roots)
        if tensors:
            self._leaves = None
            self._wait_no_more()
            with self._guarded():
                self._attach(self._as_module(tensors))

    def _as_module(self, tensors: Sequence[torch.Tensor]) -> torch.nn.Module:
        """Return a module of tensors that a script trains without one."""
        from tensight.agents.torch.facts.plain_tensors import Tensors

        self._plain_tensors = Tensors(tensors)
        return self._plain_tensors

    def _count_unattached(self, optimizer: torch.optim.Optimizer, why: str) -> None:
        """Report updates before anything is debugged."""
        self._updates_unattached += 1
        if self._updates_unattached == UPDATES:
            log_once(f"{UPDATES} updates by {type(optimizer).__name__} were made, {why}")

    def _count_backward_unattached(self) -> None:
        """Report backward passes before anything is debugged."""
        self._backward_unattached += 1
        is_reported = self._is_worker or self._updates_unattached > 0
        if self._backward_unattached == UPDATES and not (is_reported or self.is_left_alone):
            log_once(f"{UPDATES} backward passes were made, {_OF_TENSORS}")

    def _wait_no_more(self) -> None:
        if self._waiting is not None:
            self._waiting.remove()
            self._waiting = None

    def _attach(self, first: nn.Module) -> None:
        self._trains_in = threading.get_ident()
        names = Names(FRAMEWORK)
        framework = _framework(first)
        settings = as_one_run(self._settings, framework, (("MASTER_ADDR", "MASTER_PORT"),))
        agent = self._agent = self._agent_of(
            settings, framework, TorchReader(), script=settings.command or shlex.join(sys.orig_argv)
        )
        agent.observed.columns.team = team = threads_of_torch()
        SEARCH.team = team or ALONE
        agent.observed.columns.read_where_they_lie(*READ_WHERE_THEY_LIE)
        # A compiled update before the end of the process is a step, to be noted before the agent disconnects.
        atexit.unregister(self.close_at_exit)
        at_end(self.close_at_exit)
        discovery = Discovery(names, self._subjects)
        optimizers = self._optimizers
        if id(first) not in names.modules:
            alive: list[object] = live_instances((nn.Module, torch.optim.Optimizer))
            discovery.meet(first, alive)
            optimizers = optimizers or list(filter(is_optimizer, alive))
        self._names = names
        self._parameters = Parameters(agent, names)
        self._programs = Programs(self._parameters)
        self._discovery = discovery
        oversights = self._oversights = Oversights(agent.report, agent.withdraw, lambda: agent.step)
        capture = self._capture = self._new_capture(agent, settings.capture)
        self._unreached = UnreachedWeights(self._boundary, self._entered_without_gradients)
        for optimizer in optimizers or filter(is_optimizer, live_instances(torch.optim.Optimizer)):
            self._parameters.knows(optimizer)
        # From now on only the script determines the lifetime of models and optimizers.
        self._models, self._subjects, self._optimizers = [], [], []
        self._steps = Steps(
            self._parameters,
            capture,
            self._boundary,
            self._update_done,
            self._loss_scaled,
            discovery=discovery,
            oversights=oversights,
        )
        if agent.diagnosing is not None:
            self._facts = self._steps.facts = self._new_facts(agent.diagnosing)
            if settings.probe and framework.rank == 0:
                self._probing = self._new_probing(agent.diagnosing, self._facts, self._steps)
        agent.running.program = self._running_program
        if isinstance(capture, ModuleCapture):
            agent.offer_operator_capture()
        if settings.perturb:
            self._perturb(first)
        self._parameters.observe()
        if agent.records.are_written:
            self._describe(agent, first)
        try:
            agent.attach(self._programs.preview(capture.preview()))
        finally:
            # Also after an interruption by the user: a notebook continues with its next cell.
            self._steps.install()
            self._follow_backward()
            self._replaced.put(torch.utils, "swap_tensors", self._swap_tensors)
            self._replaced.put(CheckpointFunction, "apply", self._checkpoint)
            capture.start()
            self._capture_operators_if_wanted()
            if self._facts is not None:
                # With a mode above the one that captures operators PyTorch detaches some tensors, which would be seen.
                self._facts.begin(notes_lines=isinstance(self._capture, ModuleCapture))
            self._leave_children()

    def _new_facts(self, diagnosing: Diagnosing) -> FactSource:
        from tensight.agents.torch.facts.source import FactSource

        return FactSource(diagnosing, self._names, self._parameters, self._boundary)

    def _new_probing(self, diagnosing: Diagnosing, facts: FactSource, steps: Steps) -> Probing:
        from tensight.agents.torch.probes.probing import Probing

        return Probing(diagnosing, self._boundary, facts, self._parameters, steps.end_before_call)

    def _perturb(self, first: nn.Module) -> None:
        from tensight.agents.torch.perturbing import perturb

        moved = perturb([*(module for root in self._names.roots if (module := root.module()) is not None), first])
        log(f"--perturb: {moved:,} weights were moved by one unit in the last place before the first step")

    def _describe(self, agent: Agent, first: nn.Module) -> None:
        """Record the setup of the training, and again with each of the first batches."""
        from tensight.agents.setup import describe
        from tensight.agents.torch.first_batches import FirstBatches
        from tensight.agents.torch.setup import describe_torch

        models = [module for root in self._names.roots if (module := root.module()) is not None]
        described = describe(describe_torch(models or first, self._parameters.optimizers))
        agent.records.describe(described)
        self._first_batches = FirstBatches(
            *(first, self._boundary, lambda: agent.step),
            lambda batches: agent.records.describe({**described, "batches": batches}),
        )

    def _detach(self) -> None:
        # All of them, even if one fails.
        with contextlib.ExitStack() as parts:
            parts.callback(self._boundary.leave)
            parts.callback(self._replaced.take_back)
            if self._steps is not None:
                parts.callback(self._steps.remove)
                parts.callback(self._unreached.leave)
            if self._capture is not None:
                parts.callback(self._capture.stop)
            if self._first_batches is not None:
                parts.callback(self._first_batches.stop)
            if self._facts is not None:
                parts.callback(self._facts.stop)
            if self._probing is not None:
                parts.callback(self._probing.stop)
            parts.callback(self._wait_no_more)

    def _new_capture(self, agent: Agent, kind: str) -> Capture:
        def passes_over(module: nn.Module) -> bool:
            is_evaluation = self._discovery.is_evaluation(module)
            if self._steps is not None:
                self._steps.note_compiled_update()
                if not is_evaluation:
                    self._steps.end_before_call(module)
            return is_evaluation and self._is_evaluated_beside

        on_outermost = self._forward_done if self._settings.step_on == "forward" else self._oversights.call
        if kind == "ops":
            from tensight.agents.torch.operators import OperatorCapture

            return OperatorCapture(agent, self._names, self._boundary, passes_over, on_outermost)
        return ModuleCapture(agent, self._names, self._boundary, passes_over=passes_over, on_outermost=on_outermost)

    def _running_program(self) -> Program:
        """Return the part of the step that has run so far."""
        return self._programs.running(Trace() if self._capture is None else self._capture.preview())

    def _capture_operators_if_wanted(self) -> None:
        """Switch to capturing every operator at the beginning of a step, if that has been requested."""
        agent, capture, steps = self._agent, self._capture, self._steps
        if agent is None or steps is None or not agent.wants_operators or not isinstance(capture, ModuleCapture):
            return
        capture.stop()
        self._capture = steps.capture = self._new_capture(agent, "ops")
        self._capture.start()

    @property
    def _is_evaluated_beside(self) -> bool:
        """Whether evaluations do not belong to steps: only if nothing but optimizers ends steps."""
        return self._settings.step_on == "optimizer" and not self._ended_by_call and bool(self._parameters.optimizers)

    # --- steps ---

    def _end_open_step(self) -> None:
        if self._steps is not None:
            self._steps.end_open_step()

    def _update_done(self, skipped: bool) -> None:
        if self._settings.step_on == "optimizer":
            self._end_by_update(skipped)

    def _loss_scaled(self) -> None:
        if self._agent is not None:
            self._agent.checks.scaling.applies = True

    def _forward_done(self, _: nn.Module) -> None:
        self._end_step(False)

    def _report_step(self, agent: Agent, skipped: bool) -> None:
        if self._capture is not None:
            is_capturing = agent.capturing
            trace = self._capture.end_step()
            if is_capturing and trace is not self._seen_trace:
                self._feeds = frozenset(), frozenset()
                self._read = {source[0] for node in trace.operators for source in node.inputs if source is not None}
            unreached = self._unreached
            without_gradients = self._read_by(self._capture.without_gradients)
            checkpointed = self._read_by(unreached.checkpointed_scopes)
            cut_off = {*checkpointed, *unreached.cut_off}
            if agent.records.tracer.is_on and agent.step & (agent.step - 1) == 0:
                # In the first steps, and then ever more rarely: a search costs some 30 ms.
                self._discovery.meet_copies()
            self._parameters.observe(partial(self._feeding, trace), without_gradients, cut_off)
            agent.checks.idle = self._parameters.idle
            if is_capturing:
                self._note_step(trace)
                watches = isinstance(self._capture, ModuleCapture) and agent.checks.watches.any
                follows = watches and not is_compiled_somewhere()
                unreached.end_step(
                    self._parameters, checkpointed, without_gradients, follows=follows, named=self._names.entries
                )
            try:
                if self._facts is not None:
                    # Before the training may stop, so that they are sent with what stops it.
                    self._facts.step_done(agent.step + 1, skipped=skipped)
                if self._probing is not None:
                    self._probing.step_done(agent.step + 1)
                agent.step_done(self._programs.program(trace), scaled_skip=skipped)
            finally:
                agent.checks.scaling.applies = False
                self._capture.begin_step()
                self._capture_operators_if_wanted()
                unreached.begin_step()

    def _feeding(self, trace: Trace, trained: Set[str]) -> frozenset[str]:
        """Return the nodes whose outputs are inputs of layers with trained weights."""
        trained_before, feeds = self._feeds
        if trained_before != trained or not trained_before:
            # What calls of modules do not tell, `UnreachedWeights` finds out.
            feeds = feeding(trace, trained, guesses=not isinstance(self._capture, ModuleCapture))
            self._feeds = frozenset(trained), feeds
        return feeds

    def _read_by(self, scopes: Collection[str]) -> Collection[str]:
        """Return the weights that the step has read of modules with these scopes."""
        return {name for name in self._read if scope_of_tensor(name) in scopes} if scopes else ()

    def _note_step(self, trace: Trace) -> None:
        """Note whether any operator of a captured step was observed."""
        if trace is not self._seen_trace:
            self._seen_trace = trace
            # The root of a backward pass is observed even if what computed it was not.
            self._has_operators = any(
                not is_after_forward(node.name) and node.type != "Loss" for node in trace.operators
            )
        why = "" if self._has_operators else _why_unseen(self._names)
        self._oversights.step_done(has_operators=self._has_operators, why=why)

    def _follow_backward(self) -> None:
        if not self._follows_backward:
            self._follows_backward = True
            self._replaced.put(torch.autograd, "backward", self._backward_begins)

    def _backward_begins(self, original: Callable[..., Any], tensors: Any, *arguments: Any, **named: Any) -> Any:
        """Note the tensors from which a backward pass begins, and its end."""
        self._boundary.call(self._before_backward, tensors)
        result = original(tensors, *arguments, **named)
        self._boundary.call(self._after_backward, tensors)
        return result

    def _after_backward(self, tensors: Any) -> None:
        if self._steps is None or self._is_over or threading.get_ident() != self._trains_in:
            return
        if self._facts is not None:
            roots = (tensors,) if isinstance(tensors, torch.Tensor) else tuple(tensors)
            self._facts.backward_ended(partial(self._steps.scale_of, roots))
        if self._agent is not None and self._agent.observed.scalars.is_wanted:
            scale = self._steps.scale_of((tensors,) if isinstance(tensors, torch.Tensor) else tuple(tensors))
            if scale:
                self._parameters.backward_ended(scale)

    def _before_backward(self, tensors: Any) -> None:
        if self._steps is None and self._settings.diagnose:
            self._attach_to_tensors(tensors)
        if self._steps is None:
            self._count_backward_unattached()
            return
        if not self._is_over and threading.get_ident() == self._trains_in:
            self._oversights.backward_pass(self._adds_up)
        capture, roots = self._capture, (tensors,) if isinstance(tensors, torch.Tensor) else tensors
        are_tensors = isinstance(roots, (tuple, list)) and all(isinstance(root, torch.Tensor) for root in roots)
        if are_tensors and not self._is_over and threading.get_ident() == self._trains_in:
            self._unreached.backward_begins()
        if are_tensors and self._facts is not None and not self._is_over and threading.get_ident() == self._trains_in:
            self._facts.backward_begins(roots, self._steps.unscaled, partial(self._steps.scale_of, roots))
        if are_tensors and self._agent is not None and self._agent.observed.scalars.notes_losses:
            self._tell_loss(roots)
        if are_tensors and isinstance(capture, ModuleCapture):
            capture.before_backward(roots)

    def _adds_up(self) -> bool:
        """Return whether a backward pass that begins adds to gradients of earlier ones: those were not cleared."""
        weights = (entry.tensor() for entry in self._names.entries())
        gradients = [weight.grad for weight in weights if weight is not None and weight.grad is not None]
        values = [TorchReader().host(gradient) for gradient in gradients[:_GRADIENTS_READ]]
        return any(value is None or bool(value.any()) for value in values)

    def _entered_without_gradients(self) -> set[str]:
        return set() if self._capture is None else self._capture.without_gradients

    def _checkpoint(self, original: Callable[..., Any], function: Any, *arguments: Any) -> Any:
        """Run a block under reentrant activation checkpointing."""
        if self._is_over or threading.get_ident() != self._trains_in:
            return original(function, *arguments)
        result = self._unreached.checkpoint(original, function, *arguments)
        if self._facts is not None:
            self._facts.checkpoint_line = self._unreached.checkpoint_line
        return result

    def _tell_loss(self, roots: Sequence[torch.Tensor]) -> None:
        """Report the loss from which a backward pass begins, without the factor of a loss scaler."""
        if self._agent is None or threading.get_ident() != self._trains_in:
            return
        for root in roots:
            loss = self._steps.unscaled(root) if self._steps is not None else root
            if loss is not None and loss.numel() == 1 and type(loss) is torch.Tensor:
                self._agent.observed.scalars.loss(loss)

    def _swap_tensors(self, original: Callable[..., Any], *tensors: Any, **named: Any) -> Any:
        """Let PyTorch swap tensors, which it refuses while there is another reference to one."""
        self._boundary.call(self._before_swap, (*tensors, *named.values()))
        try:
            return original(*tensors, **named)
        finally:
            if self._capture is not None:
                self._boundary.call(self._capture.after_swap)

    def _before_swap(self, given: Sequence[Any]) -> None:
        if self._capture is not None and self._agent is not None:
            self._agent.observed.retention.clear()
            if self._facts is not None:
                self._facts.before_swap()
            self._capture.before_swap([value for value in given if isinstance(value, torch.Tensor)])


def _why_unseen(names: Names) -> str:
    """Return a possible reason why no call of a model was seen."""
    modules = [module for root in names.roots if (module := root.module()) is not None]
    if any(map(is_compiled_in_place, modules)):
        return "it was compiled in place (model.compile()), and PyTorch calls no hooks of what it compiled"
    return (
        "it is called in another thread, its parameters are used without calling it, or something else is called in its"
        " place: a compiled, scripted or exported form, or a copy of it"
    )


def _framework(model: nn.Module) -> Framework:
    """Return the framework, device and rank with which a model is trained."""
    rank, world_size = int(os.environ.get("RANK", "0") or 0), int(os.environ.get("WORLD_SIZE", "1") or 1)
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        rank, world_size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    device = next((parameter.device for parameter in weights_in(model)), torch.device("cpu"))
    backend = "CPU" if device.type == "cpu" else "GPU"
    free = None if device.type == "cpu" else free_bytes_of(device)
    return Framework("torch", torch.__version__, backend, device.index or 0, rank, world_size, free)
