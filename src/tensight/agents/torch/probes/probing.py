"""When probes run: between two steps of a training, on what its models were called with in the first of these."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any

import torch

from tensight.agents.core.notices import report
from tensight.agents.core.replacing import Replacements
from tensight.agents.eager.names import unwrapped
from tensight.agents.torch.boundary import is_transforming
from tensight.agents.torch.facts.loaders import batches_of, longest_loader
from tensight.agents.torch.facts.reading import is_ordinary
from tensight.agents.torch.framework import FRAMEWORK, is_scripted, tensors_in
from tensight.agents.torch.inner_modules import inner_modules, weights_in
from tensight.agents.torch.modules import is_compiled_somewhere
from tensight.agents.torch.probes.batch import Batch
from tensight.agents.torch.probes.forks import Clock, GoingOn, in_child, positions_kept
from tensight.agents.torch.probes.loss import LossProbes
from tensight.agents.torch.probes.model_calls import ModelProbes
from tensight.agents.torch.probes.rates import RateProbe
from tensight.agents.torch.probes.resuming import Beginnings, ResumeProbe
from tensight.agents.torch.probes.states import State

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from tensight.agents.core.diagnosing import Diagnosing
    from tensight.agents.torch.boundary import Boundary
    from tensight.agents.torch.facts.source import FactSource
    from tensight.agents.torch.parameters import Parameters
    from tensight.agents.torch.probes.loss import Call
    from tensight.agents.torch.probes.states import Rows

STEP = 3
"""The step whose calls are kept: by then all parts of a model have been made, and zero weights have moved."""

_MOST_MODELS = 4
_LEAST_S = 10.0
"""Time in seconds that probes may take at most where twenty steps are shorter."""

_SHARE_OF_CALLS = 0.4
"""Share of that for probes of calls."""

_SHARE_OF_RESUMING = 0.5
"""Share of what these leave for the probe of resuming."""

ANNOUNCES = "experiments with the batch"
"""How the line begins that tells before the probes how long they take."""

MOST_STEPS = 20
"""Number of steps whose time probes may take at most."""


class Probing:
    """Keeps what models are called with in a step, and runs the probes before the next one begins.

    Parameters
    ----------
    diagnosing : Diagnosing
        Receives the results.
    boundary : Boundary
    facts : FactSource
    parameters : Parameters
    ends_step : callable (module)
        Ends the step before a module is called, if the last update was its end.
    """

    def __init__(
        self,
        diagnosing: Diagnosing,
        boundary: Boundary,
        facts: FactSource,
        parameters: Parameters,
        ends_step: Callable[[nn.Module], None],
    ) -> None:
        self._diagnosing = diagnosing
        self._boundary = boundary
        self._facts = facts
        self._parameters = parameters
        self._ends_step = ends_step
        self._thread = threading.get_ident()
        self._is_called = False
        self._step, self._step_s, self._began_s = 0, 0.0, time.monotonic()
        self._kept: dict[int, tuple[nn.Module, Batch | str]] = {}
        self._calls = 0
        self._beginnings = Beginnings(boundary)
        self._replaced = Replacements()
        self._replaced.put(torch.nn.Module, "__call__", self._call)

    def step_done(self, step: int) -> None:
        """Note that a step has ended."""
        now = time.monotonic()
        self._step, self._step_s, self._began_s = step, now - self._began_s, now
        if step > STEP + 1:
            self.stop()
            self._beginnings.forget()

    def stop(self) -> None:
        """Stop following calls."""
        self._replaced.take_back()
        self._beginnings.stop()
        self._kept.clear()

    def _call(self, original: Any, module: nn.Module, *arguments: Any, **named: Any) -> Any:
        if self._is_called or not self._is_training_call(module):
            return original(module, *arguments, **named)
        self._is_called = True
        try:
            self._boundary.call(self._ends_step, module)
            if self._step == STEP and self._kept:
                arguments, named = self._run(module, (arguments, named))
            elif self._step == STEP - 1:
                self._keep(module, arguments, named)
            return original(module, *arguments, **named)
        finally:
            self._is_called = False

    def _is_training_call(self, module: nn.Module) -> bool:
        return (
            torch.is_grad_enabled()
            and threading.get_ident() == self._thread
            and torch._C._current_graph_task_id() == -1
            and not is_transforming()
            and any(weight.requires_grad for weight in weights_in(module))
        )

    def _keep(self, module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        self._calls += 1
        if id(module) in self._kept or len(self._kept) >= _MOST_MODELS:
            return
        model = unwrapped(FRAMEWORK, module)
        batch: Batch | str
        if is_compiled_somewhere() or any(is_scripted(inner) for _, inner in inner_modules(model)):
            batch = "it is compiled"
        elif any(weight.device.type not in ("cpu", "cuda") for weight in weights_in(model)):
            batch = "it is neither on a CPU nor on a GPU of CUDA or ROCm"
        elif not all(map(is_ordinary, weights_in(model))):
            batch = "its weights are of classes of their own, such as shards"
        else:
            try:
                batch = Batch(model, arguments, named)
            except Exception as error:
                batch = f"what it is called with cannot be copied: {type(error).__name__}"
        self._kept[id(module)] = model, batch

    def _run(self, module: nn.Module, call: Call) -> Call:
        """Run all probes before a call, hand over their results, and return what to call the model with."""
        kept, self._kept = list(self._kept.values()), {}
        self._replaced.take_back()
        clock = Clock(max(MOST_STEPS * self._step_s, _LEAST_S))
        report(f"{ANNOUNCES} of step {STEP} take at most {clock.left_s:,.0f} s")
        of_loss = self._loss_probes(module, call, clock)
        try:
            with positions_kept():
                rows = self._rows(kept, clock)
                rows += self._goes_on(module, kept, of_loss, clock)
        except GoingOn:
            return of_loss.call
        except Exception as error:
            self._boundary.failed(error)
            return call
        self._beginnings.forget()
        names: dict[str, int] = {}
        for row in rows:
            names[row["name"]] = number = names.get(row["name"], 0) + 1
            row["name"] += f" {number}" if number > 1 else ""
        self._diagnosing.add("probes", STEP, rows)
        return call

    def _loss_probes(self, module: nn.Module, call: Call, clock: Clock) -> LossProbes:
        has_targets = self._facts.has_targets and self._calls == 1
        return LossProbes(
            self._parameters.optimizers, call, clock, model=type(module).__name__, has_targets=has_targets
        )

    def _goes_on(
        self, module: nn.Module, kept: list[tuple[nn.Module, Batch | str]], loss: LossProbes, clock: Clock
    ) -> Rows:
        """Run the probes in which copies of this process go on with the training."""
        why = next((why for _, why in kept if isinstance(why, str)), "")
        if uses_accelerator():
            why = "what an accelerator computes is not copied with a process: try it with CUDA_VISIBLE_DEVICES="
        elif torch.distributed.is_available() and torch.distributed.is_initialized():
            why = "other ranks would wait"
        elif any(weight.is_shared() for weight in weights_in(module)):
            why = "its weights are shared with other processes"
        of_resume = Clock(_SHARE_OF_RESUMING * clock.left_s)
        first = next(iter(tensors_in(loss.call)), None)
        samples = len(first) if first is not None and first.dim() else -1
        resume = ResumeProbe(self._beginnings, of_resume, model=loss.model, samples=samples)
        rates = RateProbe(
            self._beginnings,
            samples,
            self._parameters.optimizers,
            loss.call,
            clock,
            model=loss.model,
            has_targets=False,
        )
        rows: Rows = []
        for name, probe, share in (
            ("resume", resume.rows, of_resume),
            ("loss", loss.rows, clock),
            ("rates", rates.rows, clock),
        ):
            results = why or in_child(probe, share)
            if isinstance(results, str):
                results = [{"name": name, "probe": name, "model": loss.model, "outcome": "untried", "why": results}]
            rows += results
        return rows

    def _rows(self, kept: list[tuple[nn.Module, Batch | str]], clock: Clock) -> Rows:
        batch_size = batches_of(longest_loader())[1]
        # The rest is for the loss, and for a call that takes longer than others.
        of_calls = Clock(_SHARE_OF_CALLS * clock.left_s)
        predicts_next = self._facts.predicts_next

        def experiments() -> Rows:
            rows: Rows = []
            for number, (model, batch) in enumerate(kept):
                share = Clock(of_calls.left_s / (len(kept) - number))
                if isinstance(batch, Batch):
                    state = State(model)
                    probes = ModelProbes(model, batch, state, share, batch_size=batch_size, predicts_next=predicts_next)
                    rows += probes.rows()
            return rows

        untried = [_untried(model, batch) for model, batch in kept if isinstance(batch, str)]
        if len(untried) == len(kept):
            return untried
        if uses_accelerator():
            # What an accelerator computes is not copied with a process.
            with self._boundary.paused():
                return [*untried, *experiments()]
        results = in_child(experiments, clock)
        if isinstance(results, str):
            return [_untried(model, results if isinstance(batch, Batch) else batch) for model, batch in kept]
        return [*untried, *results]


def uses_accelerator() -> bool:
    """Whether this process computes on an accelerator, or cannot be copied for another reason."""
    return bool(torch.cuda.is_initialized()) or not hasattr(os, "fork")


def _untried(model: nn.Module, why: str) -> dict[str, Any]:
    return {"name": "all", "probe": "all", "model": type(model).__name__, "outcome": "untried", "why": why}
