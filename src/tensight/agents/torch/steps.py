"""Follows PyTorch's optimizers, whose updates end steps."""

from __future__ import annotations

import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any

import torch

from tensight.agents.core.oversights import UNKNOWN_PARAMETERS
from tensight.agents.core.replacing import Replacements
from tensight.agents.eager.updates import Updates
from tensight.agents.torch.inner_modules import weights_in

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    from tensight.agents.core.oversights import Oversights
    from tensight.agents.torch.boundary import Boundary
    from tensight.agents.torch.capture import Capture
    from tensight.agents.torch.discovery import Discovery
    from tensight.agents.torch.facts.source import FactSource
    from tensight.agents.torch.parameters import Parameters

_OPTIMIZERS_CALL = 5
"""Frames from a hook to PyTorch's function that calls it, with those of the boundary between them."""


def _nothing() -> None:
    """Return None, in place of a reference to an unknown tensor."""


_UNKNOWN_LOSS = (_nothing, _nothing)
_Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class Steps:
    """Follows the optimizers of a training.

    Parameters
    ----------
    parameters : Parameters
        Knows the optimizers that train the models.
    capture : Capture
    boundary : Boundary
    on_step : callable (skipped) -> None
        Called when a step has ended, with whether a loss scaler has skipped its update.
    on_scaling : callable () -> None
        Called when a loss is scaled: gradients may overflow on purpose until the step ends.
    discovery : Discovery
        Names the models of an optimizer that trains no known model.
    oversights : Oversights
        Receives updates that are not counted.
    """

    def __init__(
        self,
        parameters: Parameters,
        capture: Capture,
        boundary: Boundary,
        on_step: Callable[[bool], None],
        on_scaling: Callable[[], None],
        *,
        discovery: Discovery,
        oversights: Oversights,
    ) -> None:
        self._parameters = parameters
        self._oversights = oversights
        self.capture = capture
        self._boundary = boundary
        self._on_scaling = on_scaling
        self._updates = Updates(parameters, discovery, on_step)
        self._is_active = False
        self._thread, self._thread_name = threading.get_ident(), threading.current_thread().name
        self._is_installed = False
        self._running: list[FrameType] = []
        self._evaluations = 0
        self._scaled: tuple[Callable[[], torch.Tensor | None], Callable[[], torch.Tensor | None]] | None = None
        self._scaled_by: Callable[[], Any] = lambda: None
        self._update_count = 0
        self._scaler = Replacements()
        self.facts: FactSource | None = None
        """Receives updates for a diagnosis."""

    def install(self) -> None:
        """Follow the optimizers from now on, in this thread."""
        self._thread, self._thread_name = threading.get_ident(), threading.current_thread().name
        self._is_active = True
        if not self._is_installed:
            self._is_installed = True
            self._boundary.follow_steps(self._before, self._after)
            self._scaler.put(torch.amp.GradScaler, "step", self._scaler_step)
            self._scaler.put(torch.amp.GradScaler, "scale", self._scaler_scale)

    def remove(self) -> None:
        """Remove everything from PyTorch."""
        self._is_active = False
        self._running.clear()
        self._scaler.take_back()

    # --- optimizers ---

    def _before(
        self, optimizer: torch.optim.Optimizer, arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> _Arguments | None:
        if not self._is_active:
            return None
        if threading.get_ident() != self._thread:
            self._oversights.update_elsewhere(type(optimizer).__name__, self._thread_name)
            self._parameters.update_elsewhere(optimizer)
            return None
        frame = sys._getframe(_OPTIMIZERS_CALL)
        self._running = [other for other in self._running if _is_running(other, frame)]
        is_inner = bool(self._running)
        self._running.append(frame)
        if is_inner:
            return None
        if not self._updates.knows(optimizer):
            self._oversights.strange_update(type(optimizer).__name__, UNKNOWN_PARAMETERS)
            if self.facts is not None:
                self.facts.strange_update(optimizer)
            return None
        self._updates.end_before(self._parameters.weights_of(optimizer))
        self._evaluations = 0
        self._oversights.update_begins()
        self._parameters.note_update(optimizer)
        given_closure = _closure(arguments, named)
        if given_closure is None:
            self._note_gradients(optimizer)
            return None
        closure, replace = given_closure
        return replace(self._followed(optimizer, closure))

    def _after(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if threading.get_ident() != self._thread or not self._is_active:
            return
        if self._running:
            self._running.pop()
        if self._running or not self._updates.knows(optimizer):
            return
        self._update_count += 1
        self._oversights.update_ends()
        if self.facts is not None:
            self.facts.update_ended(optimizer)
        skipped = getattr(optimizer, "found_inf", None)
        self._updates.updated(optimizer, skipped=skipped is not None and bool(skipped))

    def _note_gradients(self, optimizer: torch.optim.Optimizer) -> None:
        """Note that an optimizer is about to read gradients."""
        self._parameters.observe_gradients(optimizer)
        if self.facts is not None:
            self.facts.update_begins(optimizer)

    def note_compiled_update(self) -> None:
        """Note the update if compiled code has run an optimizer's step; called before anything else runs."""
        optimizer, self._boundary.compiled_update = self._boundary.compiled_update, None
        if optimizer is not None and self._is_active and self._updates.knows(optimizer):
            self._updates.end_before(self._parameters.weights_of(optimizer))
            self._update_count += 1
            self._updates.updated(optimizer)

    def end_before_call(self, module: torch.nn.Module) -> None:
        """End the step before a model is called, if the last update was its end."""
        self._updates.end_before(weights_in(module))

    def end_open_step(self) -> None:
        """End the step if the last update may have been its end, because nothing follows."""
        self._updates.end_open_step()

    def _followed(self, optimizer: torch.optim.Optimizer, closure: Callable[[], Any]) -> Callable[[], Any]:
        """Return a closure that does the same, and notes its evaluations as parts of one step."""

        def evaluate() -> Any:
            self._boundary.call(self._begin_evaluation)
            result = closure()
            self._boundary.call(self._note_gradients, optimizer)
            return result

        return evaluate

    def _begin_evaluation(self) -> None:
        if self._evaluations:
            self.capture.begin_evaluation()
        else:
            self.capture.mark_evaluation()
        self._evaluations += 1

    # --- loss scalers ---

    def _scaler_step(self, original: Any, scaler: Any, optimizer: Any, *arguments: Any, **named: Any) -> Any:
        """Detect when a scaler skips an update, which also ends a step."""
        before = self._update_count
        if self.facts is not None:
            self.facts.is_in_scaler = True
        try:
            result = original(scaler, optimizer, *arguments, **named)
        finally:
            if self.facts is not None:
                self.facts.is_in_scaler = False
        if self._update_count == before:
            self._boundary.call(self._after_scaler, optimizer)
        return result

    def _after_scaler(self, optimizer: Any) -> None:
        if not self._is_active or threading.get_ident() != self._thread:
            return
        if isinstance(optimizer, torch.optim.Optimizer) and self._updates.knows(optimizer):
            self._updates.end_before(self._parameters.weights_of(optimizer))
            self._update_count += 1
            self._oversights.update_begins()
            self._note_gradients(optimizer)
            self._oversights.update_ends()
            self._updates.updated(optimizer, skipped=True)

    def _scaler_scale(self, original: Any, scaler: Any, *arguments: Any, **named: Any) -> Any:
        self._boundary.call(self._before_scaling, scaler)
        scaled = original(scaler, *arguments, **named)
        self._boundary.call(self._after_scaling, scaler, arguments, scaled)
        return scaled

    def _after_scaling(self, scaler: Any, arguments: tuple[Any, ...], scaled: Any) -> None:
        if not scaler.is_enabled() or threading.get_ident() != self._thread:
            return
        is_known = len(arguments) == 1 and isinstance(arguments[0], torch.Tensor) and isinstance(scaled, torch.Tensor)
        self._scaled = (weakref.ref(scaled), weakref.ref(arguments[0])) if is_known else _UNKNOWN_LOSS
        self._scaled_by = weakref.ref(scaler)

    def unscaled(self, loss: torch.Tensor) -> torch.Tensor | None:
        """Return a loss before it was scaled; None if that is unknown."""
        if self._scaled is None:
            return loss
        scaled, before = self._scaled
        return before() if scaled() is loss else None

    def scale_of(self, roots: Sequence[torch.Tensor]) -> float | None:
        """Return the factor by which a loss scaler has multiplied the roots of a backward pass; None if unknown."""
        if self._scaled is None:
            return 1.0
        scaler = self._scaled_by() if len(roots) == 1 and self._scaled[0]() is roots[0] else None
        return None if scaler is None else float(scaler.get_scale())

    def _before_scaling(self, scaler: Any) -> None:
        if self._is_active and scaler.is_enabled() and threading.get_ident() == self._thread:
            self._on_scaling()


def _is_running(frame: FrameType, innermost: FrameType) -> bool:
    """Whether a call is still running; one that an exception has ended is not."""
    at: FrameType | None = innermost
    while at is not None:
        if at is frame:
            return True
        at = at.f_back
    return False


def _closure(
    arguments: tuple[Any, ...], named: dict[str, Any]
) -> tuple[Callable[[], Any], Callable[[Callable[[], Any]], _Arguments]] | None:
    """Return the closure that was passed to an optimizer, and a function that replaces it in the arguments."""
    # The first argument is the optimizer itself.
    if len(arguments) > 1 and callable(arguments[1]):
        return arguments[1], lambda other: ((arguments[0], other, *arguments[2:]), named)
    closure = named.get("closure")
    if callable(closure):
        return closure, lambda other: (arguments, {**named, "closure": other})
    return None
