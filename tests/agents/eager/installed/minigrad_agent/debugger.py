"""Debugs a training on minigrad: reports what happens to the code that all eager frameworks share."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import minigrad

from minigrad_agent.framework import MinigradFramework, MinigradReader
from tensight.agents.core.agent import Agent
from tensight.agents.core.debugging import TrainingDebugger
from tensight.agents.core.live_instances import live_instances
from tensight.agents.core.reader import Framework
from tensight.agents.core.replacing import Replacements
from tensight.agents.eager.capture import EagerCapture
from tensight.agents.eager.names import Names
from tensight.agents.eager.persistent_tensors import PersistentTensors
from tensight.agents.eager.traced_programs import Programs, Trace
from tensight.agents.eager.updates import Updates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tensight.agents.core.settings import AgentSettings


class Parameters(PersistentTensors):
    """Weights, their gradients, and the states of optimizers."""

    def weights_of(self, optimizer: minigrad.SGD) -> list[minigrad.Tensor]:
        return optimizer.parameters

    def _extent(self, optimizer: minigrad.SGD) -> tuple[int, ...]:
        return (id(optimizer),)

    def _states_of(self, optimizer: minigrad.SGD, names: Mapping[int, str]) -> Iterator[tuple[Callable[[], Any], str]]:
        for index, weight in enumerate(optimizer.parameters[: len(optimizer.moments)]):
            yield partial(optimizer.moments.__getitem__, index), f"moment.{names[id(weight)]}"

    def _has_gradient(self, weight: minigrad.Tensor) -> bool:
        return weight.requires_grad


class Discovery:
    """Gives names to modules as they are called, if nobody has named what is debugged."""

    def __init__(self, names: Names, models: list[minigrad.Module]) -> None:
        self.follows_all = not models
        self._names = names
        names.meet = self._meet
        for model in models:
            names.add(model)

    def meet_trained(self, optimizer: minigrad.SGD) -> None:
        """A model is met when it is called."""

    def uncalled(self, knows: Callable[[minigrad.SGD], bool]) -> list[minigrad.SGD]:
        others = [one for one in live_instances(minigrad.SGD) if not knows(one)]
        return others if self.follows_all else []

    def _meet(self, module: minigrad.Module) -> None:
        owner = self._names.owner_of(module)
        if owner is not None or self.follows_all or not module.parameters():
            self._names.add(owner or module)
        else:
            self._names.pass_over(module)


class Debugger(TrainingDebugger):
    """Debugs a training of some models by some optimizers; of all that are called, if none are named."""

    def __init__(self, models: list[Any], optimizers: list[Any], settings: AgentSettings) -> None:
        super().__init__(settings, Agent)
        self._models = models
        self._optimizers = optimizers
        self._replaced = Replacements()

    def _begin(self) -> None:
        framework = MinigradFramework()
        self._names = names = Names(framework)
        discovery = Discovery(names, self._models)
        agent = self._agent = self._agent_of(
            self._settings, Framework("minigrad", minigrad.__version__), MinigradReader(), script="minigrad"
        )
        self._parameters = parameters = Parameters(agent, names)
        for optimizer in self._optimizers:
            parameters.knows(optimizer)
        self._updates = Updates(parameters, discovery, self._end_by_update)
        self._programs = Programs(parameters)
        self._capture = capture = EagerCapture(agent, framework, names, self._give_up)
        parameters.observe()
        agent.attach(self._programs.preview(capture.preview()))
        self._replaced.put(minigrad.Module, "__call__", self._call)
        self._replaced.put(minigrad, "backward", self._backward)
        self._replaced.put(minigrad.SGD, "step", self._update)
        capture.begin_step()

    def _detach(self) -> None:
        self._replaced.take_back()
        self._capture.stop()

    def _end_open_step(self) -> None:
        self._updates.end_open_step()

    def _report_step(self, agent: Agent, skipped: bool) -> None:
        trace = self._capture.end_step()
        self._parameters.observe()
        try:
            agent.step_done(self._programs.program(trace or Trace()), scaled_skip=skipped)
        finally:
            self._capture.begin_step()

    def _call(self, original: Callable[..., Any], module: minigrad.Module, *given: Any) -> Any:
        capture = self._capture
        is_evaluation = capture.is_outermost and not module.training and not minigrad.is_grad_enabled()
        if not is_evaluation and self._updates.may_be_over:
            self._updates.end_before(module.parameters())
        if is_evaluation or not capture.sees:
            return original(module, *given)
        name = self._names.name(module)
        begun = capture.call_begins(name, module, given)
        is_same_step = False
        try:
            output = original(module, *given)
        finally:
            is_same_step = capture.call_is_over(begun)
        if is_same_step and name is not None:
            with self._guarded():
                capture.returned(name, module, given, output)
        return output

    def _backward(self, original: Callable[..., Any], loss: minigrad.Tensor) -> None:
        with self._guarded():
            self._capture.backward_comes(loss)
            self._capture.backward_begins(loss)
        original(loss)

    def _update(self, original: Callable[..., Any], optimizer: minigrad.SGD) -> None:
        knows = False
        with self._guarded():
            knows = self._updates.knows(optimizer)
            if knows:
                self._parameters.note_update(optimizer)
                self._parameters.observe_given(optimizer, [weight.grad for weight in optimizer.parameters])
        original(optimizer)
        if knows:
            self._updates.updated(optimizer)
