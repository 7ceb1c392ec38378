"""Modules whose methods raise: a training that never calls these is debugged as any other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from tests.agents.pytorch.seen_steps import Seen

METHODS = (
    *("named_modules", "modules", "named_children", "children", "named_parameters", "parameters"),
    *("named_buffers", "buffers", "__repr__", "__len__", "state_dict", "extra_repr"),
)


class OddError(Exception):
    """What a method raises."""


def raising(*_: Any, **__: Any) -> Iterator[Any]:
    raise OddError


def attribute(module: nn.Module, name: str) -> Any:
    """Raise another error than Python expects of `__getattr__` where there is no such attribute."""
    for held in (vars(module)["_parameters"], vars(module)["_modules"]):
        if name in held:
            return held[name]
    raise KeyError(name)


def odd(method: str) -> type[nn.Module]:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden: torch.Tensor = self.inner(x)
            return hidden.relu()

    setattr(Odd, method, attribute if method == "__getattr__" else raising)
    return Odd


def weights(module: nn.Module) -> list[torch.Tensor]:
    inner = [weight for child in module._modules.values() if child is not None for weight in weights(child)]
    return [*(weight for weight in module._parameters.values() if weight is not None), *inner]


def seen_twice(model: nn.Module, optimizer: torch.optim.Optimizer) -> Seen:
    """Return what is seen of two steps."""
    with Seen(model, optimizer) as seen:
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).square().mean().backward()
            optimizer.step()
    return seen


@pytest.mark.parametrize("is_outermost", [False, True], ids=["inside", "outermost"])
@pytest.mark.parametrize("method", [*METHODS, "__getattr__"])
def test_a_method_of_a_module_that_raises_does_not_end_debugging(
    method: str, is_outermost: bool, said: list[str]
) -> None:
    part = odd(method)()
    model = part if is_outermost else nn.Sequential(nn.Linear(4, 4), part)
    optimizer = torch.optim.SGD(weights(model), lr=0.1)
    seen = seen_twice(model, optimizer)
    assert len(seen.steps) == 2
    assert any(name.endswith("inner/Linear-op0") for name in seen.steps[-1].names("Default/"))
    assert not [line for line in said if "internal error" in line]


def test_a_module_that_cannot_be_read_is_left_out_and_said_once(said: list[str]) -> None:
    class Unreadable(nn.Module):
        @property
        def _buffers(self) -> Any:
            raise OddError

        @_buffers.setter
        def _buffers(self, value: Any) -> None:
            pass

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    model = nn.Sequential(nn.Linear(4, 4), Unreadable(), nn.Linear(4, 4))
    optimizer = torch.optim.SGD([*model[0].parameters(), *model[2].parameters()], lr=0.1)
    seen = seen_twice(model, optimizer)
    assert len(seen.steps) == 2
    assert {"Default/0/Linear-op0", "Default/2/Linear-op0"} <= set(seen.steps[-1].names("Default/"))
    assert len([line for line in said if "Unreadable is not debugged" in line]) == 1


@pytest.mark.parametrize("is_outermost", [False, True], ids=["inside", "outermost"])
def test_a_mode_that_cannot_be_read_does_not_end_debugging(is_outermost: bool, said: list[str]) -> None:
    class Modeless(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)

        @property
        def training(self) -> bool:
            raise OddError

        @training.setter
        def training(self, value: bool) -> None:
            pass

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden: torch.Tensor = self.inner(x)
            return hidden.relu()

    model = Modeless() if is_outermost else nn.Sequential(nn.Linear(4, 4), Modeless())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = seen_twice(model, optimizer)
    assert len(seen.steps) == 2
    assert any(name.endswith("inner/Linear-op0") for name in seen.steps[-1].names("Default/"))
    assert not [line for line in said if "internal error" in line]
