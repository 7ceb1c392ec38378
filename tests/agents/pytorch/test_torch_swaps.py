"""A training puts other tensors in the place of its own, in every way that PyTorch has for that."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

from tests.agents.pytorch import trainings
from tests.agents.pytorch.test_torch_boundary import CAPTURES, trains_as_alone
from tests.agents.pytorch.trainings import Training

if TYPE_CHECKING:
    from tensight.client import Session
    from tests.server.running import RunningServer


def watch(session: Session) -> None:
    """Look at all tensors: an optimizer that has lost its weights is a reason to stop."""
    session.watch("tensor_too_large", max_gt=1e30)
    session.watch("weight_change_too_large", abs_mean_update_ratio_gt=1e30)


class Prompt(nn.Module):
    """Returns its weight, as learned queries and prompts do."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 4))

    def forward(self) -> torch.Tensor:
        return self.weight


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.prompt = Prompt()
        self.norm = nn.BatchNorm1d(4)
        self.hidden = nn.Linear(4, 4)
        self.out = nn.Linear(4, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.out(torch.tanh(self.hidden(self.norm(inputs * self.prompt()))))


def convert(model: nn.Module) -> None:
    model.double()
    model.float()


def load(model: nn.Module) -> None:
    model.load_state_dict(copy.deepcopy(model.state_dict()))


def assign(model: nn.Module) -> None:
    state = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    model.load_state_dict(state, assign=True)


def swap(model: nn.Module) -> None:
    one, other = torch.ones(2, 3), torch.zeros(2, 3)
    torch.utils.swap_tensors(one, other)
    one *= 2
    weight = model.out.weight
    new = nn.Parameter(weight.detach() * 1.5)
    gradient, weight.grad = weight.grad, None
    torch.utils.swap_tensors(weight, new)
    weight.grad = gradient


def reparametrize(model: nn.Module) -> None:
    parametrizations.weight_norm(model.hidden)
    model.hidden(torch.randn(1, 4))
    parametrize.remove_parametrizations(model.hidden, "weight")


CONVERSIONS = (convert, load, assign, swap, reparametrize)
MOMENTS = ("begin", "unused", "computed", "end")


def converted() -> Training:
    """A training that does each of these things in each moment of a step, one after the other."""
    torch.manual_seed(trainings.SEED)
    model = Network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    todo = list(itertools.product(MOMENTS, CONVERSIONS))

    def step(number: int) -> torch.Tensor:
        moment, convert = todo[number]

        def at(now: str) -> None:
            if now == moment:
                convert(model)

        at("begin")
        optimizer.zero_grad()
        model(torch.randn(3, 4))
        at("unused")
        loss = model(torch.randn(3, 4)).square().mean()
        loss.backward()
        loss = loss.detach()
        at("computed")
        optimizer.step()
        at("end")
        return loss

    return Training((model,), (optimizer,), step)


@contextmanager
def swapped_on_conversion(swaps: bool) -> Iterator[None]:
    torch.__future__.set_swap_module_params_on_conversion(swaps)
    try:
        yield
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("capture", CAPTURES)
@pytest.mark.parametrize("swaps", [False, True])
def test_a_training_that_puts_other_tensors_in_the_place_of_its_own_is_not_changed(
    torch_server: RunningServer, swaps: bool, capture: str
) -> None:
    with swapped_on_conversion(swaps):
        trains_as_alone(torch_server, converted, capture, len(MOMENTS) * len(CONVERSIONS), watch)
