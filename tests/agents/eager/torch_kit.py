"""How the trainings of `eager_trainings` are done on PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from eager_trainings import weights_for
from torch import nn
from torch.nn.modules import module as hooks_of_modules
from torch.optim import optimizer as hooks_of_optimizers

if TYPE_CHECKING:
    from collections.abc import Callable

torch.set_num_threads(1)
add, log, tanh = torch.add, torch.log, torch.tanh
relu = nn.ReLU

_FUNCTIONS = ((torch.autograd, "backward"), (torch.amp.GradScaler, "step"), (torch.amp.GradScaler, "scale"))
_WERE = [getattr(owner, name) for owner, name in _FUNCTIONS]
_HOOKS = (
    hooks_of_modules._global_forward_hooks,
    hooks_of_modules._global_forward_pre_hooks,
    hooks_of_optimizers._global_optimizer_pre_hooks,
    hooks_of_optimizers._global_optimizer_post_hooks,
)


class MeanSquare(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.square().mean()


class Network(nn.Module):
    def __init__(self, compute: Callable[..., Any], **modules: nn.Module) -> None:
        super().__init__()
        self.compute = compute
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, x: torch.Tensor) -> Any:
        return self.compute(self, x)


class Part(nn.Module):
    def __init__(self, compute: Callable[..., Any]) -> None:
        super().__init__()
        self.compute = compute

    def forward(self, x: torch.Tensor) -> Any:
        return self.compute(x)


mean_square, network, part = MeanSquare, Network, Part


def linear(inputs: int, outputs: int) -> nn.Module:
    layer = nn.Linear(inputs, outputs)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(weights_for(inputs, outputs)))
        layer.bias.zero_()
    return layer


def sequence(**modules: nn.Module) -> nn.Module:
    made = nn.Sequential()
    for name, module in modules.items():
        made.add_module(name, module)
    return made


def tensor(values: Any) -> torch.Tensor:
    return torch.from_numpy(values)


def numpy(one: torch.Tensor) -> Any:
    return one.detach().numpy()


def optimizer(*modules: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD([weight for module in modules for weight in module.parameters()], 0.1, momentum=0.5)


def update(forward: Callable[[], Any], chosen: torch.optim.Optimizer) -> list[torch.Tensor]:
    chosen.zero_grad()
    forward().backward()
    chosen.step()
    return [weight.grad for group in chosen.param_groups for weight in group["params"]]


def evaluate(model: nn.Module, x: torch.Tensor) -> Any:
    model.eval()
    with torch.no_grad():
        output = model(x)
    model.train()
    return output


def debug(trace: str, *subjects: Any) -> Any:
    import tensight.torch

    return tensight.torch.debug(*subjects, trace=trace, quiet=True)


def leftovers() -> list[str]:
    replaced = [name for (owner, name), was in zip(_FUNCTIONS, _WERE, strict=True) if getattr(owner, name) is not was]
    return replaced + [repr(hook) for hooks in _HOOKS for hook in hooks.values()]
