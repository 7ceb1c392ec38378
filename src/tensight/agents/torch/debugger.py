"""Debugs a PyTorch training: brings together the agent, what is captured, and when a step ends."""

from __future__ import annotations

import functools
import os
import sys
import weakref
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.modules import module as module_hooks

from tensight.agents.agent import Agent
from tensight.agents.notices import say_once
from tensight.agents.reader import Framework
from tensight.agents.torch.arrays import TorchReader
from tensight.agents.torch.discovery import Discovery, live_instances
from tensight.agents.torch.modules import ModuleCapture
from tensight.agents.torch.names import Names, unwrapped
from tensight.agents.torch.parameters import Parameters
from tensight.agents.torch.steps import Steps
from tensight.agents.traced_programs import Programs
from tensight.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from tensight.agents.settings import AgentSettings
    from tensight.agents.torch.capture import Capture

_active: list[weakref.ref[Debugger]] = []


class Debugger:
    """Debugs a training, from `start` or the beginning of a ``with`` block on.

    Parameters
    ----------
    subjects : sequence of Module or Optimizer
        What is debugged, in any order. Without a model every one is that the training calls; the debug server is then
        looked for when the first model with parameters is called. Without an optimizer those that train the models are
        found by themselves.
    settings : AgentSettings
    agent_of : callable, optional
        Makes the agent, from the arguments of `Agent`.

    Raises
    ------
    InputError
        A subject is neither a model nor an optimizer.
    """

    def __init__(
        self, subjects: Sequence[Any], settings: AgentSettings, *, agent_of: Callable[..., Agent] = Agent
    ) -> None:
        self._models = [unwrapped(subject) for subject in subjects if isinstance(subject, nn.Module)]
        self._subjects = [subject for subject in subjects if isinstance(subject, nn.Module)]
        self._optimizers = [subject for subject in subjects if isinstance(subject, torch.optim.Optimizer)]
        for subject in subjects:
            if not isinstance(subject, (nn.Module, torch.optim.Optimizer)):
                raise InputError(
                    f"a training consists of models and optimizers, not of {type(subject).__name__}; give"
                    " torch.nn.Module and torch.optim.Optimizer objects"
                )
        self._settings = settings
        self._agent_of = agent_of
        self._agent: Agent | None = None
        self._capture: Capture | None = None
        self._steps: Steps | None = None
        self._waiting: Any = None
        self._backward: Any = None
        self._ended_by_update = False
        self._ended_by_call = False
        self._is_over = False

    @property
    def agent(self) -> Agent | None:
        """What observes the training; None before it has begun."""
        return self._agent

    # --- what a script uses ---

    def __enter__(self) -> Debugger:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def step(self) -> None:
        """End a step, unless an optimizer has ended one since the last call."""
        if self._ended_by_update:
            self._ended_by_update = False
            return
        self._ended_by_call = True
        self._end_step(False)

    def start(self) -> None:
        """Begin to debug: at once if models are known, else as soon as one is called."""
        if any(other() is not None for other in _active):
            say_once("this training is being debugged already; debugging it a second time is left out")
            self._is_over = True
            return
        _active[:] = [weakref.ref(self)]
        if self._models:
            try:
                self._attach(self._models[0])
            except Exception as error:
                self._give_up(error)
            except BaseException:
                # A person ended the training before its first step, or it was interrupted while it waited.
                self.close()
                raise
        else:
            self._waiting = module_hooks.register_module_forward_pre_hook(self._attach_at)

    def close(self) -> None:
        """End debugging; the training goes on without it."""
        if self._is_over:
            return
        self._is_over = True
        self._detach()
        if self._agent is not None:
            self._agent.close()

    # --- beginning and end ---

    def _attach_at(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        """Begin at the first call of a model with parameters, in the thread that makes it."""
        if self._waiting is None or not any(True for _ in module.parameters()):
            return
        self._waiting.remove()
        self._waiting = None
        try:
            self._attach(module)
            if isinstance(self._capture, ModuleCapture):
                self._capture.enter(module, arguments)
        except Exception as error:
            self._give_up(error)
        except BaseException:
            self.close()
            raise

    def _attach(self, first: nn.Module) -> None:
        names = Names()
        framework = _framework(first)
        settings = _as_one_job(self._settings, framework)
        agent = self._agent = self._agent_of(settings, framework, TorchReader(), script=" ".join(sys.orig_argv))
        discovery = Discovery(names, self._subjects)
        optimizers = self._optimizers
        if id(first) not in names.modules:
            alive: list[object] = live_instances((nn.Module, torch.optim.Optimizer))
            discovery.meet(first, alive)
            optimizers = optimizers or [one for one in alive if issubclass(type(one), torch.optim.Optimizer)]
        self._parameters = Parameters(agent, names)
        self._programs = Programs(self._parameters)
        capture = self._capture = self._new_capture(agent, names, discovery)
        for optimizer in optimizers or live_instances(torch.optim.Optimizer):
            self._parameters.knows(optimizer)
        # From now on models and optimizers live as long as the script wants them to.
        self._models, self._subjects, self._optimizers = [], [], []
        self._steps = Steps(self._parameters, capture, self._update_done, self._loss_scaled)
        agent.running_program = lambda: self._programs.running(capture.preview())
        self._parameters.observe()
        agent.attach(self._programs.preview(capture.preview()))
        self._steps.install()
        self._follow_backward(capture)
        capture.start()
        os.register_at_fork(after_in_child=functools.partial(_leave_child, weakref.ref(self)))

    def _detach(self) -> None:
        """Remove everything from PyTorch."""
        _active[:] = [other for other in _active if other() is not self]
        if self._waiting is not None:
            self._waiting.remove()
            self._waiting = None
        # Attaching may have broken off half-way.
        if self._capture is not None:
            self._capture.stop()
        if self._steps is not None:
            self._steps.remove()
        self._leave_backward()

    def _new_capture(self, agent: Agent, names: Names, discovery: Discovery) -> Capture:
        def passes_over(module: nn.Module) -> bool:
            return self._is_evaluated_beside and discovery.is_evaluation(module)

        on_outermost = self._forward_done if self._settings.step_on == "forward" else None
        if self._settings.capture == "ops":
            from tensight.agents.torch.operators import OperatorCapture

            return OperatorCapture(agent, names, passes_over, on_outermost)
        return ModuleCapture(agent, names, passes_over=passes_over, on_outermost=on_outermost)

    @property
    def _is_evaluated_beside(self) -> bool:
        """Whether evaluations are no part of steps: optimizers end them, and nobody else."""
        return self._settings.step_on == "optimizer" and not self._ended_by_call and bool(self._parameters.optimizers)

    # --- steps ---

    def _update_done(self, skipped: bool) -> None:
        if self._settings.step_on == "optimizer":
            self._ended_by_update = True
            self._end_step(skipped)

    def _loss_scaled(self) -> None:
        if self._agent is not None:
            self._agent.watches.loss_scaled = True

    def _forward_done(self) -> None:
        self._end_step(False)

    def _end_step(self, skipped: bool) -> None:
        if self._agent is None or self._capture is None or self._is_over:
            return
        try:
            trace = self._capture.end_step()
            self._parameters.observe()
            self._agent.step_done(self._programs.program(trace), scaled_skip=skipped)
            self._agent.watches.loss_scaled = False
            self._capture.begin_step()
        except Exception as error:
            self._give_up(error)
        except BaseException:
            # A person ended the training; where no block is around it, nobody else ends debugging.
            self.close()
            raise

    # --- backward passes ---

    def _follow_backward(self, capture: Capture) -> None:
        """Notice from which tensors backward passes begin."""
        if not isinstance(capture, ModuleCapture):
            return
        original = self._backward = torch.autograd.backward

        @functools.wraps(original)
        def backward(tensors: Any, *arguments: Any, **named: Any) -> Any:
            roots = (tensors,) if isinstance(tensors, torch.Tensor) else tensors
            if isinstance(roots, (tuple, list)) and all(isinstance(root, torch.Tensor) for root in roots):
                capture.before_backward(roots)
            return original(tensors, *arguments, **named)

        torch.autograd.backward = backward

    def _leave_backward(self) -> None:
        if self._backward is not None and getattr(torch.autograd.backward, "__wrapped__", None) is self._backward:
            torch.autograd.backward = self._backward
        self._backward = None

    def _give_up(self, error: Exception) -> None:
        """Let the training go on without us."""
        say_once(f"internal error, debugging ends here and the training goes on: {error!r}")
        try:
            self.close()
        except Exception as another:
            say_once(f"debugging could not be ended in an orderly way: {another!r}")


def _leave_child(reference: weakref.ref[Debugger]) -> None:
    """Leave nothing in the child of a fork, which is no training."""
    debugger = reference()
    if debugger is not None and not debugger._is_over:
        debugger._is_over = True
        debugger._detach()


def _framework(model: nn.Module) -> Framework:
    """Return what a model is trained on."""
    rank, world_size = int(os.environ.get("RANK", "0") or 0), int(os.environ.get("WORLD_SIZE", "1") or 1)
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        rank, world_size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    backend = "CPU" if device.type == "cpu" else "GPU"
    return Framework("torch", torch.__version__, backend, device.index or 0, rank, world_size)


def _as_one_job(settings: AgentSettings, framework: Framework) -> AgentSettings:
    """Return settings with a name of the run that all its ranks come to: where they found each other."""
    if settings.job or framework.world_size == 1:
        return settings
    meeting = (os.environ.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT"))
    return replace(settings, job="-".join(("torch", *filter(None, meeting))))
