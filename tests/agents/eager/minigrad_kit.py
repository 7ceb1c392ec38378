"""How the trainings of `eager_trainings` are done on minigrad, which is plain NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import minigrad
import numpy as np
from eager_trainings import weights_for

if TYPE_CHECKING:
    from collections.abc import Callable

add, log, tanh = minigrad.add, minigrad.log, minigrad.tanh
relu, mean_square, sequence, tensor = minigrad.ReLU, minigrad.MeanSquare, minigrad.Sequential, minigrad.Tensor

_FUNCTIONS = ((minigrad, "backward"), (minigrad.Module, "__call__"), (minigrad.SGD, "step"))
_WERE = [getattr(owner, name) for owner, name in _FUNCTIONS]
_weights: list[minigrad.Tensor] = []


class Network(minigrad.Module):
    def __init__(self, compute: Callable[..., Any], **modules: minigrad.Module) -> None:
        self.compute = compute
        vars(self).update(modules)

    def forward(self, x: minigrad.Tensor) -> Any:
        return self.compute(self, x)


class Part(minigrad.Module):
    def __init__(self, compute: Callable[..., Any]) -> None:
        self.compute = compute

    def forward(self, x: minigrad.Tensor) -> Any:
        return self.compute(x)


network, part = Network, Part


def linear(inputs: int, outputs: int) -> minigrad.Module:
    layer = minigrad.Linear(inputs, outputs)
    layer.weight.values = weights_for(inputs, outputs)
    _weights.append(layer.weight)
    return layer


def numpy(one: minigrad.Tensor) -> Any:
    return np.array(one.values)


def optimizer(*modules: minigrad.Module) -> minigrad.SGD:
    return minigrad.SGD([weight for module in modules for weight in module.parameters()], 0.1, 0.5)


def update(forward: Callable[[], Any], chosen: minigrad.SGD) -> list[Any]:
    chosen.zero_grad()
    minigrad.backward(forward())
    chosen.step()
    return [weight.grad for weight in chosen.parameters]


def evaluate(model: minigrad.Module, x: minigrad.Tensor) -> Any:
    model.train(False)
    with minigrad.no_grad():
        output = model(x)
    model.train()
    return output


def debug(trace: str, *subjects: Any) -> Any:
    from minigrad_agent.debugger import Debugger

    from tensight.agents.core.settings import AgentSettings

    models = [one for one in subjects if isinstance(one, minigrad.Module)]
    optimizers = [one for one in subjects if isinstance(one, minigrad.SGD)]
    return Debugger(models, optimizers, AgentSettings(trace=trace, quiet=True))


def leftovers() -> list[str]:
    replaced = [name for (owner, name), was in zip(_FUNCTIONS, _WERE, strict=True) if getattr(owner, name) is not was]
    return replaced + [repr(hook) for weight in _weights for hook in weight.hooks.values()]
