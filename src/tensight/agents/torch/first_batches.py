"""Records the inputs of a model in the first steps, as a part of the training's setup."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules import module as module_hooks

from tensight.agents.torch.setup import describe_inputs

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from tensight.agents.torch.boundary import Boundary

MOST_BATCHES = 3


class FirstBatches:
    """Reports the inputs of the first call with gradients in each of the first steps.

    Parameters
    ----------
    model : Module
    boundary : Boundary
    step : callable
        Returns the number of steps that have ended.
    report : callable (list)
        Called with the inputs of all steps so far, after each of the first steps' calls.
    """

    def __init__(
        self, model: nn.Module, boundary: Boundary, step: Callable[[], int], report: Callable[[list[object]], None]
    ) -> None:
        self._model = weakref.ref(model)
        self._step = step
        self._report = report
        self._batches: list[object] = []
        self._last = -1
        self._hook = module_hooks.register_module_forward_hook(boundary.hook(self._called), with_kwargs=True)

    def stop(self) -> None:
        """Stop following calls."""
        self._hook.remove()

    def _called(self, module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any], _: Any) -> None:
        if module is not self._model() or not torch.is_grad_enabled() or self._step() == self._last:
            return
        self._last = self._step()
        self._batches.append(describe_inputs(arguments, named))
        self._report(self._batches)
        if len(self._batches) == MOST_BATCHES:
            self.stop()
