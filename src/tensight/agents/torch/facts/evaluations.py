"""Notes the losses and the shares of right answers that a script computes while gradients are switched off."""

from __future__ import annotations

import itertools
import sys
import time
from typing import TYPE_CHECKING, Any

import torch

from tensight.agents.core.call_stack import MOST_FRAMES, is_user_code, line_of_user
from tensight.agents.facts.samples import shape_text
from tensight.agents.torch.facts.lines import LOSSES
from tensight.agents.torch.facts.reading import part_of, plain, readable_tensors, storage_key, weak_storage
from tensight.agents.torch.operator_mode import BottomMode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import CodeType, FrameType

    from torch.multiprocessing.reductions import StorageWeakRef

MOST_CALLS = 64
"""Number of calls of models between two steps after which losses are noted: of a long evaluation, the first ones."""

MOST_EVALUATIONS = 16
"""Number of evaluations, such as of data sets of their own, that are told apart."""

_MOST_STORAGES = 64

_DISTANCES = {"abs": "l1_loss", "pow": "mse_loss", "square": "mse_loss"}
"""Operators after which a mean is that loss."""

_CHOICES = ("argmax", "max", "topk")
"""Operators that choose a class."""

ACCURACY = "accuracy"


class _Evaluation:
    """A loss, or a share, that is computed by one call after another from the same place of a script."""

    def __init__(self, name: str, function: str, line: str) -> None:
        self.name, self.function, self.line = name, function, line
        self.values: list[torch.Tensor] = []
        self.shape = ""
        self.inputs: list[torch.Tensor] = []


class Evaluations(BottomMode):
    """What is computed between a model's call with gradients switched off and the next call with gradients.

    The script computes losses outside of modules, too, so operators are observed.

    Parameters
    ----------
    call : callable (function, arguments ...) -> object
        Calls a function of the debugger, whose errors must not reach the training.

    Attributes
    ----------
    cost_s : float
        What noting has taken, in seconds.
    """

    def __init__(self, call: Callable[..., Any]) -> None:
        super().__init__()
        self._call = call
        self._calls = 0
        self._evaluations: dict[tuple[object, ...], _Evaluation] = {}
        self._chosen: dict[int, StorageWeakRef] = {}
        self._distances: dict[int, tuple[StorageWeakRef, str]] = {}
        self._given: tuple[str, torch.Tensor] | None = None
        self.cost_s = 0.0

    def begins(self, arguments: tuple[Any, ...], result: object) -> None:
        """Note what follows the call of a model with gradients switched off.

        Parameters
        ----------
        arguments : tuple
            What the model was given.
        result : object
            What the model has put out, of which a scalar is a loss that it has computed itself.
        """
        if self._calls >= MOST_CALLS:
            self.ends()
            return
        self._calls += 1
        given = next(readable_tensors(arguments[:1]), None)
        is_number = given is not None and given.is_floating_point() and given.numel()
        self._given = (shape_text(given.shape), _mean_and_deviation(given)) if given is not None and is_number else None
        for value in readable_tensors((result,)):
            if value.dim() == 0 and value.is_floating_point():
                self._add("loss", value)
        if not self.is_entered:
            self.enter()

    def ends(self) -> None:
        """Observe no more operators."""
        if self.is_entered:
            self.leave()
            self._chosen.clear()
            self._distances.clear()

    def take(self) -> list[dict[str, Any]]:
        """Return the rows of ``evaluations`` since the step before."""
        rows = []
        for evaluation in self._evaluations.values():
            if evaluation.values:
                mean = float(torch.stack([value.double().cpu() for value in evaluation.values]).mean())
                kind = {"is_skill": True} if evaluation.function == ACCURACY else {"is_loss": True}
                row = {"name": evaluation.name, "function": evaluation.function, "line": evaluation.line, **kind}
                row |= {"value": mean, "batches": len(evaluation.values)}
                if len(evaluation.inputs) == len(evaluation.values):
                    given, deviation = torch.stack(evaluation.inputs).cpu().mean(0).tolist()
                    row |= {"input_shape": evaluation.shape, "input_mean": given, "input_deviation": deviation}
                rows.append(row)
                evaluation.values, evaluation.inputs = [], []
        self._calls, self.cost_s = 0, 0.0
        return rows

    def __torch_dispatch__(
        self, func: Any, types: tuple[type, ...], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operator."""
        result = func(*args, **(kwargs or {}))
        if not torch.is_grad_enabled():
            began = time.perf_counter()
            self._call(self._ran, func, args, kwargs or {}, result)
            self.cost_s += time.perf_counter() - began
        return result

    def _ran(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> None:
        name = func._schema.name.rpartition("::")[2]
        if name in LOSSES:
            names = (argument.name for argument in func._schema.arguments)
            arguments = {**dict(zip(names, args, strict=False)), **kwargs}
            loss = LOSSES[name]
            self._add("cross_entropy" if loss == "nll_loss" else loss, _mean_of(result, arguments))
        elif name in _CHOICES:
            for each in readable_tensors((result,)):
                if each.dtype == torch.int64:
                    self._keep(self._chosen, each, weak_storage(each))
        elif name in _DISTANCES:
            self._keep(self._distances, result, (weak_storage(result), _DISTANCES[name]))
        elif name == "mean" and result.dim() == 0:
            kept = self._distances.get(storage_key(args[0]))
            if kept is not None and not kept[0].expired():
                self._add(kept[1], result)
        elif name == "eq" and isinstance(result, torch.Tensor) and result.numel():
            compared = [each for each in args if isinstance(each, torch.Tensor) and each.dtype == torch.int64]
            kept_of = [self._chosen.get(storage_key(each)) for each in compared]
            if len(compared) == 2 and any(each is not None and not each.expired() for each in kept_of):
                self._add(ACCURACY, result.float().mean())

    def _keep(self, kept: dict[int, Any], tensor: torch.Tensor, value: object) -> None:
        if len(kept) >= _MOST_STORAGES:
            kept.clear()
        kept[storage_key(tensor)] = value

    def _add(self, function: str, value: torch.Tensor) -> None:
        key = (function, *_calls_of_user())
        evaluation = self._evaluations.get(key)
        if evaluation is None:
            if len(self._evaluations) >= MOST_EVALUATIONS:
                return
            count = 1 + sum(each.function == function for each in self._evaluations.values())
            name = function if count == 1 else f"{function} {count}"
            evaluation = self._evaluations[key] = _Evaluation(name, function, line_of_user())
        if len(evaluation.values) < MOST_CALLS:
            # A script may add to it in place.
            evaluation.values.append(plain(value).clone())
            if self._given is not None:
                evaluation.shape = self._given[0]
                evaluation.inputs.append(self._given[1])


def _calls_of_user() -> Iterator[tuple[CodeType, int]]:
    """Yield the calls of the user's code that are running: those of one line are told apart."""
    frame: FrameType | None = sys._getframe(1)
    for _ in itertools.repeat(None, 10 * MOST_FRAMES):
        if frame is None:
            return
        if is_user_code(frame.f_code):
            yield frame.f_code, frame.f_lasti
        frame = frame.f_back


def _mean_and_deviation(tensor: torch.Tensor) -> torch.Tensor:
    """Return both without waiting for a device: shape (2,)."""
    deviation, mean = torch.std_mean(part_of(tensor).float(), correction=0)
    return torch.stack([mean, deviation])


def _mean_of(result: Any, arguments: Mapping[str, Any]) -> torch.Tensor:
    """Return the mean of a loss function over its targets."""
    value, weight = result if isinstance(result, tuple) else (result, None)
    if value.dim():
        return value.mean()
    if arguments.get("reduction") == 2:
        return value / (max(arguments["self"].numel(), 1) if weight is None else weight)
    return value
