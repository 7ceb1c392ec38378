"""Resumes a training within its process, for `tensight doctor`: everything that it needs should be in `state_dict`.

Halfway through the steps the state of models, optimizers, schedulers and loss scalers is saved. Then they are reset to
their state before the first step, and the saved state is loaded as data. Whatever `state_dict` lacks then has its
initial value, as it would in a new process.
"""

from __future__ import annotations

import gc
import io
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from tensight.agents.torch.inner_modules import held_tensors, inner_modules, weights_in
from tensight.agents.torch.kept_states import Generators, copied, is_equal
from tensight.agents.torch.trial import owners_of, versions_kept

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.Tensor)
_OF_MODULES = frozenset(vars(torch.nn.Module()))
_OF_OPTIMIZERS = frozenset({"state", "param_groups", "defaults"})
_OF_SCHEDULERS = frozenset({"optimizer"})
_MOST_ITEMS = 10_000
_MOST_NAMES = 50


class Resuming:
    """Resumes the training at the end of a step of the first optimizer, and reports what `state_dict` lacks.

    Parameters
    ----------
    step : int
    report : callable (dict)
        Called with ``lacking``, the names of the values that differ afterwards; ``generators``, the names of those that
        steps draw from; and the numbers of ``schedulers`` and ``scalers``. Or with an ``error``.
    """

    def __init__(self, step: int, report: Callable[[dict[str, Any]], None]) -> None:
        self._step = step
        self._report = report
        self._steps = 0
        self._parts: dict[int, _Part] = {}
        self._optimizers: list[Any] = []
        self._generators: Generators | None = None
        self._found: dict[str, Any] | None = None
        self._modules: dict[int, _Module] = {}
        register_module_forward_pre_hook(self._called)
        register_optimizer_step_pre_hook(self._before)
        register_optimizer_step_post_hook(self._after)

    def _called(self, module: Any, _: Any) -> None:
        """Remember the state of a part of a model before its first call."""
        if self._steps < self._step and id(module) not in self._modules:
            self._modules[id(module)] = _Module(module)

    def _before(self, optimizer: Any, *_: Any) -> None:
        """Remember the state of all parts before the first step."""
        if any(optimizer is other for other in self._optimizers):
            return
        self._optimizers.append(optimizer)
        self._generators = self._generators or Generators()
        models = (_Model(owner, self._modules) for owner in owners_of([optimizer]))
        for part in (*models, _Optimizer(optimizer), *_others(optimizer)):
            self._parts.setdefault(id(part.subject), part)

    def _after(self, optimizer: Any, *_: Any) -> None:
        if optimizer is not self._optimizers[0]:
            return
        self._steps += 1
        if self._steps == self._step:
            try:
                self._found = self._resume()
            except Exception as error:
                self._found = {"error": f"{type(error).__name__}: {error}"}
        if self._found is not None:
            drawn = [] if self._generators is None else self._generators.drawn()
            self._report({**self._found, "generators": drawn})

    def _resume(self) -> dict[str, Any]:
        # Models first: optimizers know their parameters.
        parts = sorted(self._parts.values(), key=lambda part: part.order)
        before = {name: value for part in parts for name, value in part.named_state()}
        buffer = io.BytesIO()
        torch.save([part.subject.state_dict() for part in parts], buffer)
        buffer.seek(0)
        states = torch.load(buffer, weights_only=True)
        with versions_kept([part.subject for part in parts if isinstance(part, _Model)]):
            for part in parts:
                part.reset()
            for part, state in zip(parts, states, strict=True):
                part.subject.load_state_dict(state)
        after = {name: value for part in parts for name, value in part.named_state()}
        lacking = [name for name, value in before.items() if name not in after or not is_equal(value, after[name])]
        counts = {kind: sum(isinstance(part, type_) for part in parts) for kind, type_ in _COUNTED.items()}
        return {"lacking": lacking[:_MOST_NAMES], **counts}


class _Part:
    """An object with a `state_dict`, and its initial state."""

    order = 0
    left_out: frozenset[str] = frozenset()

    def __init__(self, subject: Any) -> None:
        self.subject = subject
        self._attributes = dict(self._plain_attributes(subject))

    def reset(self) -> None:
        """Reset the object to its initial state."""
        self._put_back(self.subject, self._attributes)

    def named_state(self) -> Iterator[tuple[str, Any]]:
        """Yield copies of its plain values, which a step may change, with their names."""
        for name, value in self._plain_attributes(self.subject):
            yield f"{type(self.subject).__name__}.{name}", value

    def _plain_attributes(self, subject: Any) -> Iterator[tuple[str, Any]]:
        return _plain_attributes(subject, self.left_out)

    @staticmethod
    def _put_back(subject: Any, attributes: dict[str, Any]) -> None:
        for name, value in attributes.items():
            vars(subject)[name] = copied(value)


class _Model(_Part):
    """A model. Only an optimizer changes its parameters; everything else may change in each call.

    Parameters
    ----------
    subject : Module
    modules : mapping of int to _Module
        Initial states of the modules that were called, by the identity of the module.
    """

    order = 0
    left_out = _OF_MODULES

    def __init__(self, subject: Any, modules: Mapping[int, _Module]) -> None:
        super().__init__(subject)
        self._modules = [modules.get(id(module)) or _Module(module) for _, module in inner_modules(subject)]
        self._parameters = [parameter.detach().clone() for parameter in weights_in(subject)]

    def reset(self) -> None:
        for module in self._modules:
            module.reset()
        with torch.no_grad():
            for parameter, first in zip(weights_in(self.subject), self._parameters, strict=True):
                parameter.copy_(first)

    def named_state(self) -> Iterator[tuple[str, Any]]:
        return state_of_modules(self.subject)


class _Module(_Part):
    """A part of a model, without its parameters and inner modules."""

    left_out = _OF_MODULES

    def __init__(self, subject: Any) -> None:
        super().__init__(subject)
        self._buffers = [(name, held.detach().clone()) for name, held in _buffers(subject)]

    def reset(self) -> None:
        super().reset()
        held = dict(_buffers(self.subject))
        for name, first in self._buffers:
            if name in held and held[name].shape == first.shape:
                held[name].copy_(first)


class _Optimizer(_Part):
    order = 1
    left_out = _OF_OPTIMIZERS

    def __init__(self, subject: Any) -> None:
        super().__init__(subject)
        self._groups = [
            {name: copied(value) for name, value in group.items() if name != "params"} for group in subject.param_groups
        ]

    def reset(self) -> None:
        super().reset()
        self.subject.state = defaultdict(dict)
        for group, first in zip(self.subject.param_groups, self._groups, strict=False):
            group.update(copied(first))

    def named_state(self) -> Iterator[tuple[str, Any]]:
        yield from super().named_state()
        for number, group in enumerate(self.subject.param_groups):
            for name, value in group.items():
                if name != "params" and _is_plain(value):
                    yield f"{type(self.subject).__name__}.param_groups[{number}].{name}", copied(value)
            for index, parameter in enumerate(group["params"]):
                for name, value in self.subject.state.get(parameter, {}).items():
                    if _is_plain(value):
                        yield f"{name} of parameter {index} of group {number}", copied(value)


class _Scheduler(_Part):
    order = 2
    left_out = _OF_SCHEDULERS


class _Scaler(_Part):
    order = 3


_COUNTED = {"schedulers": _Scheduler, "scalers": _Scaler}


def _others(optimizer: Any) -> Iterator[_Part]:
    """Yield the schedulers of an optimizer, and all loss scalers; an optimizer does not refer to them."""
    for instance in gc.get_objects():
        if issubclass(type(instance), torch.optim.lr_scheduler.LRScheduler):
            held = vars(instance).get("optimizer")
            # Accelerate wraps optimizers.
            if held is optimizer or getattr(held, "optimizer", None) is optimizer:
                yield _Scheduler(instance)
        elif issubclass(type(instance), torch.amp.GradScaler) and instance.is_enabled():
            yield _Scaler(instance)


def state_of_modules(model: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield copies of the plain attributes, parameters and buffers of a model, with their names."""
    for path, module in inner_modules(model):
        for name, value in _plain_attributes(module, _OF_MODULES):
            yield f"{path or type(model).__name__}.{name}", value
    for name, tensor in (*held_tensors(model, "_parameters"), *held_tensors(model, "_buffers")):
        yield name, tensor.detach().clone()


def _buffers(module: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    return [(name, buffer) for name, buffer in module._buffers.items() if buffer is not None]


def _plain_attributes(subject: Any, left_out: frozenset[str]) -> Iterator[tuple[str, Any]]:
    for name, value in vars(subject).items():
        if name not in left_out and _is_plain(value):
            yield name, copied(value)


def _is_plain(value: Any, depth: int = 0) -> bool:
    if isinstance(value, _PLAIN):
        return not isinstance(value, torch.nn.Parameter)
    if depth > 3 or type(value) not in (list, tuple, dict, set, deque, defaultdict) or len(value) > _MOST_ITEMS:
        return False
    inner = [*value.keys(), *value.values()] if isinstance(value, dict) else value
    return all(_is_plain(element, depth + 1) for element in inner)
