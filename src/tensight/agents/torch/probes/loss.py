"""Probes of the loss: how far it falls on one batch, and whether it depends on which sample has which target.

The loss is whatever the script computes between the call of its model and the backward pass. So each try is a fork of
the process that goes on with the training, from the call of the model with other weights to the backward pass, and
ends there. Nothing needs to be known of the loss, nor of the targets.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from tensight.agents.core.call_stack import is_user_code
from tensight.agents.torch.discovery import weights_of
from tensight.agents.torch.facts.autograd_functions import kind_of
from tensight.agents.torch.facts.composed_losses import is_weighed_probability
from tensight.agents.torch.framework import tensors_in
from tensight.agents.torch.probes.batch import LATE, UntriedError, copied_with
from tensight.agents.torch.probes.forks import GoingOn, end_at_effects, fork, wait_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensight.agents.torch.probes.forks import Clock
    from tensight.agents.torch.probes.states import Rows

TRIES = 12
"""Number of steps on the batch."""

_FIRST_STEP, _LARGEST_STEP, _LEAST_STEP = 0.03, 0.3, 1e-5
"""Sizes of steps, in root mean squares of each weight."""

_LEAST_SIZE = 0.02
"""Root mean square that is assumed of smaller weights, as of those that begin with 0."""

_SMALL_STEP = 0.003
_VISIBLE = 1e-4
"""Share of the loss by which it changes visibly."""

_INVARIANT = 2e-6
MOST_WEIGHTS = 1 << 28
_MOST_FUNCTIONS = 100_000
_HEAD = 2
Call = tuple[tuple[Any, ...], dict[str, Any]]


_UNTRUSTED = (
    "",
    "it has a backward function of the script's own, which may be another one on purpose",
    "logarithms of probabilities are multiplied by an advantage, which other weights may change",
)


class LossProbes:
    """Tries weights on one batch.

    Parameters
    ----------
    optimizers : sequence of Optimizer
        Their weights are those that are trained.
    call : (tuple, dict)
        The arguments of the call of the model that the training is about to make.
    clock : Clock
    model : str
        Its name.
    has_targets : bool
        Whether a loss function compares one call of the model with a target.

    Attributes
    ----------
    model : str
    call : (tuple, dict)
        In a process that goes on with the training: the arguments to call the model with.
    """

    def __init__(self, optimizers: Sequence[Any], call: Call, clock: Clock, *, model: str, has_targets: bool) -> None:
        self._optimizers = optimizers
        weights = [weight for optimizer in optimizers for weight in weights_of(optimizer)]
        self._weights = [weight for weight in weights if weight.requires_grad and weight.numel()]
        self._clock = clock
        self.model = model
        self._has_targets = has_targets
        self._reason = 0
        self._longest_s = 0.0
        self.call = call

    def rows(self) -> Rows:
        """Run the probes; return a row for each.

        Raises
        ------
        GoingOn
            In a process that is to go on with the training.
        """
        loss: dict[str, Any] = {"name": "loss", "probe": "loss", "model": self.model}
        pairs: dict[str, Any] = {"name": "pairs", "probe": "pairs", "model": self.model}
        try:
            first, gradients = self._first()
            if self._tried()[0] != first:
                raise UntriedError("the loss is another one with the same weights and random numbers")
            best = self._fall(first, gradients)
            loss |= self._verdict(first, *best)
            pairs |= self._pairs(best[0])
        except UntriedError as reason:
            for row in (loss, pairs):
                row.setdefault("outcome", "untried")
                row.setdefault("why", str(reason))
        return [loss, pairs]

    def _first(self) -> tuple[float, list[torch.Tensor]]:
        """Return the loss, which must be finite, and its gradients."""
        count = sum(weight.numel() for weight in self._weights)
        if not count or count > MOST_WEIGHTS:
            raise UntriedError("no weight is trained" if not count else "the model is too large")
        self._shared = torch.frombuffer(mmap.mmap(-1, 4 * (count + 2 * _HEAD)), dtype=torch.float32)
        first, gradients = self._tried()
        if not math.isfinite(first):
            raise UntriedError(f"the loss is {first}")
        return first, gradients

    def _fall(self, first: float, gradients: list[torch.Tensor]) -> tuple[float, int, float, float]:
        """Go down; return the lowest loss, its step, and the change of a small step: the expected and the real one."""
        lowest, steps, size = first, 0, _FIRST_STEP
        expected = real = 0.0
        directions = [torch.zeros_like(weight) for weight in self._weights]
        for _ in range(TRIES):
            if not self._has_time:
                break
            before = [weight.detach().clone() for weight in self._weights]
            slope = 0.0
            with torch.no_grad():
                for weight, gradient, direction in zip(self._weights, gradients, directions, strict=True):
                    norm = gradient.square().mean().sqrt()
                    if norm > 0:
                        direction.mul_(0.5).add_(gradient / norm)
                    scale = size * max(float(weight.square().mean().sqrt()), _LEAST_SIZE)
                    slope += scale * float((gradient.double() * direction.double()).sum())
                    weight.sub_(scale * direction)
            loss, found_gradients = self._tried()
            if size <= _SMALL_STEP and slope > expected:
                expected, real = slope, first - loss
            if loss < lowest:
                lowest, gradients, steps = loss, found_gradients, steps + 1
                size = min(1.5 * size, _LARGEST_STEP)
                continue
            self._set(before)
            size /= 4
            directions = [torch.zeros_like(weight) for weight in self._weights]
            if size < _LEAST_STEP:
                break
        return lowest, steps, expected, real

    def _verdict(self, first: float, lowest: float, steps: int, expected: float, real: float) -> dict[str, Any]:
        numbers = {"scale": first, "change": lowest, "count": steps}
        course = f"from {first:.4g} to {lowest:.4g} in {steps} steps"
        if steps:
            falls = lowest <= 0.5 * first if first > 0 else lowest < first
            return {"outcome": "pass" if falls else "warn", "why": course, **numbers}
        if self._reason:
            raise UntriedError(_UNTRUSTED[self._reason])
        if not self._has_time:
            raise UntriedError(LATE)
        if expected < _VISIBLE * max(abs(first), 1e-12):
            raise UntriedError("its gradient is 0, or nearly so")
        return {"outcome": "fail", "scale": expected, "change": -real, "count": TRIES}

    def _pairs(self, lowest: float) -> dict[str, Any]:
        """Call the model with the inputs of other samples, with the weights of the lowest loss."""
        if not self._has_targets:
            raise UntriedError("no loss function compares a single call of the model with targets")
        if not self._has_time:
            raise UntriedError(LATE)
        given = next((each for each in tensors_in(self.call) if each.dim()), None)
        if given is None or torch.equal(rolled := given.roll(1, 0), given):
            raise UntriedError("all samples are alike")
        kept = self.call
        self.call = copied_with(self.call, {id(given): rolled})
        loss, _ = self._tried()
        self.call = kept
        numbers = {"scale": lowest, "change": loss}
        if abs(loss - lowest) > _INVARIANT * max(abs(loss), abs(lowest)):
            return {"outcome": "pass", **numbers}
        return {"outcome": "warn", "why": "the inputs of other samples do not change it", **numbers}

    def _set(self, values: Sequence[torch.Tensor]) -> None:
        with torch.no_grad():
            for weight, value in zip(self._weights, values, strict=True):
                weight.copy_(value)

    @property
    def _has_time(self) -> bool:
        """Whether a further try, and what comes after it, fits into the time that is left."""
        return self._clock.left_s > 3 * self._longest_s

    def _tried(self) -> tuple[float, list[torch.Tensor]]:
        """Return the loss with the weights as they are, and its gradients.

        Raises
        ------
        GoingOn
            In the process that computes them.
        """
        began_s = self._clock.left_s
        self._shared.zero_()
        child, pipe = fork()
        if not child:
            self._end_at_backward(pipe)
            raise GoingOn
        content = wait_for(child, pipe, self._clock)
        if content != b"done\n":
            raise UntriedError(content.decode(errors="replace").strip() or "the training did not reach a backward pass")
        self._longest_s = max(self._longest_s, began_s - self._clock.left_s)
        self._reason = self._reason or int(self._shared[_HEAD])
        loss = float(self._shared[:_HEAD].view(torch.float64))
        gradients, at = [], 2 * _HEAD
        for weight in self._weights:
            gradients.append(self._shared[at : at + weight.numel()].reshape(weight.shape).to(weight.dtype, copy=True))
            at += weight.numel()
        return loss, gradients

    def _end_at_backward(self, pipe: int) -> None:
        """Let this process, which goes on with the training, end at the next backward pass, with its results."""

        def end(text: str) -> None:
            with contextlib.suppress(OSError):
                os.write(pipe, text.encode() + b"\n")
            os._exit(0)

        def backward(tensors: Any, *_: Any, **__: Any) -> None:
            try:
                roots = tensors if isinstance(tensors, (tuple, list)) else (tensors,)
                if len(roots) != 1 or roots[0].numel() != 1:
                    end("the backward pass does not begin from a single number")
                self._write_results(roots[0])
            except BaseException as error:
                end(f"{type(error).__name__}: {error}"[:200].replace("\n", " "))
            end("done")

        end_at_effects(end, reads_data=False)
        torch.autograd.backward = backward
        register_optimizer_step_pre_hook(lambda *_: end("the optimizer updates without a backward pass"))

    def _write_results(self, root: torch.Tensor) -> None:
        gradients = torch.autograd.grad(root, self._weights, allow_unused=True)
        at = 2 * _HEAD
        for weight, gradient in zip(self._weights, gradients, strict=True):
            if gradient is not None:
                dense = gradient.to_dense() if gradient.layout != torch.strided else gradient
                self._shared[at : at + weight.numel()].copy_(dense.reshape(-1))
            at += weight.numel()
        self._shared[_HEAD] = float(_untrusted_because(root))
        self._shared[:_HEAD].view(torch.float64).copy_(root.detach().double().reshape(1))


def _untrusted_because(root: torch.Tensor) -> int:
    """Return why the gradient of a loss need not be the one that it has; 0 if nothing speaks for that."""
    waiting: list[Any] = [root.grad_fn]
    seen: set[Any] = set()
    while waiting and len(seen) < _MOST_FUNCTIONS:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        forward = getattr(getattr(node, "_forward_cls", None), "forward", None)
        code = getattr(forward, "__code__", None)
        if code is not None and is_user_code(code):
            return 1
        if kind_of(node) == "Mul" and is_weighed_probability(node):
            return 2
        waiting += [before for before, _ in node.next_functions]
    return 0
