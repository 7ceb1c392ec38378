"""Follows what happens to each parameter of a training in some steps, for `tensight doctor`."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules import module as module_hooks
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode

from tensight.agents.torch.framework import is_compiled
from tensight.agents.torch.inner_modules import held_tensors, inner_modules, weights_in
from tensight.agents.torch.trial import outermost_modules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


class TrainedParameters:
    """Follows the parameters of all models that are called, from the first call on.

    Parameters
    ----------
    report : callable (list)
        Called after every step of the first optimizer, with a dictionary for each parameter that requires gradients:

        - ``name``;
        - ``is_matrix``: whether it has two or more dimensions. The gradient of a vector may be 0, or missing, by
          construction, as that of a bias before a normalization;
        - ``is_used``: whether a function of PyTorch has read it while a model was called;
        - ``gradient``: "none", "zero" or "some", of all backward passes so far;
        - ``is_updated``: whether an optimizer has had a gradient for it;
        - ``is_owned``: whether it belongs to an optimizer;
        - ``is_waiting``: whether that has not updated yet;
        - ``has_siblings_owned``: whether another parameter of its model does;
        - ``has_moved``: whether its values have changed;
        - ``has_rate``: whether its learning rate was not 0 in one of the steps.
    """

    def __init__(self, report: Callable[[list[dict[str, Any]]], None]) -> None:
        self._report = report
        self._parameters: dict[int, _Parameter] = {}
        self._optimizers: list[Any] = []
        self._depth = 0
        self._reads = _Reads(self._parameters)
        module_hooks.register_module_forward_pre_hook(self._enter)
        module_hooks.register_module_forward_hook(self._leave, always_call=True)
        register_optimizer_step_pre_hook(self._updating)
        register_optimizer_step_post_hook(self._updated)

    def _enter(self, module: torch.nn.Module, _: Any) -> None:
        self._depth += 1
        if self._depth > 1:
            return
        self._follow(weights_in(module))
        if _is_compiled(module):
            for parameter in weights_in(module):
                self._parameters[id(parameter)].is_used = True
        elif torch.is_grad_enabled():
            self._reads.__enter__()

    def _leave(self, *_: Any) -> None:
        self._depth -= 1
        if not self._depth and self._reads.is_entered:
            self._reads.__exit__(None, None, None)

    def _follow(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        for parameter in parameters:
            if id(parameter) not in self._parameters:
                self._parameters[id(parameter)] = _Parameter(parameter)

    def _updating(self, optimizer: Any, *_: Any) -> None:
        if not any(optimizer is other for other in self._optimizers):
            self._optimizers.append(optimizer)
        self._note_gradients(optimizer)

    def _updated(self, optimizer: Any, *_: Any) -> None:
        # Gradients that a closure has computed.
        self._note_gradients(optimizer)
        if optimizer is self._optimizers[0]:
            self._report(self._described())

    def _note_gradients(self, optimizer: Any) -> None:
        """Note the gradients that an optimizer has for its parameters, and their learning rates."""
        for group in optimizer.param_groups:
            self._follow(group["params"])
            for tensor in group["params"]:
                parameter = self._parameters[id(tensor)]
                parameter.is_waiting = False
                parameter.is_updated |= tensor.grad is not None
                parameter.has_rate |= bool(group.get("lr", 1) != 0)
                parameter.note_gradient()

    def _described(self) -> list[dict[str, Any]]:
        owned = {
            id(parameter)
            for instance in gc.get_objects()
            if issubclass(type(instance), torch.optim.Optimizer)
            for group in instance.param_groups
            for parameter in group["params"]
        }
        described = []
        for name, tensor, siblings in _named_parameters():
            parameter = self._parameters.get(id(tensor))
            if parameter is None or not tensor.requires_grad:
                continue
            parameter.note_gradient()
            described.append(
                {
                    "name": name,
                    "is_matrix": tensor.dim() > 1,
                    "is_used": parameter.is_used,
                    "gradient": parameter.gradient,
                    "is_updated": parameter.is_updated,
                    "is_owned": id(tensor) in owned,
                    "is_waiting": parameter.is_waiting,
                    "has_siblings_owned": not owned.isdisjoint(siblings),
                    "has_moved": parameter.has_moved,
                    "has_rate": parameter.has_rate,
                }
            )
        return described


class _Parameter:
    """What has happened to a parameter so far."""

    def __init__(self, tensor: torch.nn.Parameter) -> None:
        self.is_used = self.is_updated = self.has_rate = False
        self.is_waiting = True
        self.gradient = "none"
        self._tensor = tensor
        self._first = tensor.detach().clone()
        if tensor.requires_grad and tensor.is_leaf:
            # The script may clear the gradient before any update.
            tensor.register_post_accumulate_grad_hook(self.note_gradient)

    def note_gradient(self, *_: Any) -> None:
        """Note the current gradient."""
        gradient = self._tensor.grad
        if gradient is not None and self.gradient != "some":
            values = gradient.coalesce().values() if gradient.is_sparse else gradient
            self.gradient = "some" if bool(torch.any(values != 0)) else "zero"

    @property
    def has_moved(self) -> bool:
        """Whether the values differ from the first ones."""
        now = self._tensor.detach()
        return now.shape != self._first.shape or not torch.equal(torch.nan_to_num(now), torch.nan_to_num(self._first))


class _Reads(TorchFunctionMode):
    """Notes which parameters functions of PyTorch read."""

    def __init__(self, parameters: dict[int, _Parameter]) -> None:
        super().__init__()
        self.is_entered = False
        self._parameters = parameters

    def __enter__(self) -> Any:
        self.is_entered = True
        return super().__enter__()

    def __exit__(self, *given: Any) -> None:
        self.is_entered = False
        super().__exit__(*given)

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        named = named or {}
        # Attributes such as `requires_grad` are no use of the values.
        if getattr(function, "__name__", "") != "__get__":
            for value in _flat((*arguments, *named.values())):
                parameter = self._parameters.get(id(value))
                if parameter is not None:
                    parameter.is_used = True
        return function(*arguments, **named)


def _flat(values: Iterable[Any], depth: int = 0) -> Iterator[Any]:
    for value in values:
        if isinstance(value, (list, tuple)) and depth < 3:
            yield from _flat(value, depth + 1)
        else:
            yield value


def _is_compiled(module: torch.nn.Module) -> bool:
    return any(
        is_compiled(submodule) or submodule._compiled_call_impl is not None for _, submodule in inner_modules(module)
    )


def _named_parameters() -> Iterator[tuple[str, torch.nn.Parameter, set[int]]]:
    """Yield each parameter of a model, with a unique name and the identities of all parameters of its model."""
    models = [module for module in outermost_modules() if any(True for _ in weights_in(module))]
    counts: dict[str, int] = {}
    seen: set[int] = set()
    for model in models:
        kind = type(model).__name__
        counts[kind] = number = counts.get(kind, 0) + 1
        prefix = "" if len(models) == 1 else f"{kind}." if number == 1 else f"{kind} ({number})."
        siblings = {id(parameter) for parameter in weights_in(model)}
        for name, parameter in held_tensors(model, "_parameters"):
            if id(parameter) not in seen:
                seen.add(id(parameter))
                yield f"{prefix}{name}", parameter, siblings
