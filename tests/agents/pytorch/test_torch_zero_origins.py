"""Where zeros begin, in recordings of every operator: gradients are full of buffers of zeros that PyTorch makes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import tensight.torch
from tensight.analysis import Analysis, Anomaly, origins
from tensight.dumps import open_dump

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tensight.analysis import Origin


class Residual(nn.Module):
    """A block whose last normalization starts as zero, as those of residual networks do."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(6, 6), nn.BatchNorm1d(6)
        nn.init.zeros_(self.norm.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.norm(self.first(x))


class WithBias(nn.Module):
    """A layer that also returns a bias of zeros, as attention without relative positions does."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.layer(x), torch.zeros(1, 6)


class Without(torch.autograd.Function):
    """Its backward pass forgets the gradient."""

    @staticmethod
    def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(gradient)


def by_index(hidden: torch.Tensor) -> torch.Tensor:
    return hidden[torch.tensor([1, 1, 3])]


def strided(hidden: torch.Tensor) -> torch.Tensor:
    return hidden.as_strided((2, 6), (6, 1))


def by_parts(hidden: torch.Tensor) -> torch.Tensor:
    """A part of the gradient is zero, and is looked at alone."""
    padded = nn.functional.pad(hidden, (0, 0, 0, 2))
    return torch.stack([row * 2 for row in padded.unbind()])[:4]


def in_a_buffer(hidden: torch.Tensor) -> torch.Tensor:
    """The second row is seen while it is still empty."""
    batch = torch.full((2, 6), 0.0)
    batch[0].copy_(hidden[0])
    batch[1].copy_(hidden[1])
    return batch


def residual(hidden: torch.Tensor) -> torch.Tensor:
    return hidden


def subtracted(hidden: torch.Tensor) -> torch.Tensor:
    return hidden - hidden


def without_gradient(hidden: torch.Tensor) -> torch.Tensor:
    return Without.apply(hidden)


def zeros_of(part: Callable[[torch.Tensor], torch.Tensor], folder: Path, capture: str = "ops") -> list[Origin]:
    """Record a step of a small training, and return where its zeros began."""
    torch.manual_seed(0)
    model = nn.ModuleDict(
        {"first": nn.Linear(5, 6), "block": Residual(), "attention": WithBias(), "last": nn.Linear(6, 2)}
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    recorded = {"record": "full", "record_folder": str(folder / "recording")}
    with tensight.torch.debug(model, optimizer, capture=capture, port=1, **recorded):
        hidden = model["block"](model["first"](torch.randn(4, 5)))
        hidden, bias = model["attention"](hidden)
        model["last"](part(hidden) + bias).square().mean().backward()
        optimizer.step()
    analysis = Analysis(open_dump(str(folder / "recording")), cache_dir=folder / "cache")
    return origins(analysis, [Anomaly.ALL_ZERO])


def test_zeros_that_a_module_makes_without_inputs_are_no_origin(tmp_path: Path) -> None:
    assert [origin.sentence for origin in zeros_of(residual, tmp_path, "modules")] == []


@pytest.mark.parametrize("part", [by_index, strided, by_parts, in_a_buffer, residual])
def test_zeros_that_belong_there_are_no_origin(part: Callable[[torch.Tensor], torch.Tensor], tmp_path: Path) -> None:
    assert [origin.sentence for origin in zeros_of(part, tmp_path)] == []


@pytest.mark.parametrize(("part", "operator"), [(subtracted, "sub"), (without_gradient, "zeros_like")])
def test_zeros_that_an_operator_makes_begin_there(
    part: Callable[[torch.Tensor], torch.Tensor], operator: str, tmp_path: Path
) -> None:
    first = zeros_of(part, tmp_path)[0]
    assert (first.op_type, first.address.step) == (operator, 1)
    assert first.user_frame is not None
