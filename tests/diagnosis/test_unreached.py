"""Weights without gradients, and with gradients of earlier updates; and their twins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it
from torch.utils.checkpoint import checkpoint

from tensight.agents.core.settings import AgentSettings
from tensight.agents.torch.debugger import Debugger
from tests.diagnosis.diagnosed import CLASSES, FEATURES, Diagnosed, network

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tensight.diagnosis.findings import Finding

HERE = "test_unreached.py:"


class Traced(Diagnosed):
    """Facts beside a trace: of most steps, only a few are read."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._debugger = Debugger((), AgentSettings(trace=str(folder), quiet=True))


class Block(nn.Module):
    """A frozen layer with an adapter."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(FEATURES, FEATURES).requires_grad_(False)
        self.down, self.up = nn.Linear(FEATURES, 4, bias=False), nn.Linear(4, FEATURES, bias=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.layer(hidden) + self.up(self.down(hidden)))


class Checkpointed(nn.Module):
    """Blocks under reentrant checkpointing, whose input may require gradients."""

    def __init__(self, *, requires: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(FEATURES, CLASSES)
        self.requires = requires

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = inputs.clone().requires_grad_(self.requires)
        for block in self.blocks:
            hidden = checkpoint(block, hidden, use_reentrant=True)
        result: torch.Tensor = self.head(hidden)
        return result


def only(training: Diagnosed) -> Finding:
    (finding,) = training.findings()
    assert finding.certainty == "certain"
    return finding


CUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "anew": lambda loss: torch.tensor(loss.item(), requires_grad=True),
    "detached": lambda loss: loss.detach().requires_grad_(),
}


@pytest.mark.parametrize("cut", CUTS)
def test_the_line_is_named_at_which_a_loss_is_cut_off(diagnosed: Diagnosed, cut: str) -> None:
    diagnosed.train(network(), lambda out, labels: CUTS[cut](F.cross_entropy(out, labels)))
    finding = only(diagnosed)
    assert (finding.rule, finding.message) == ("no-gradients", cut)
    assert finding.where["line"].startswith(HERE)


def test_a_cut_off_loss_is_named_though_few_steps_are_read(tmp_path: Path) -> None:
    torch.manual_seed(0)
    with Traced(tmp_path) as training:
        training.train(network(), lambda out, labels: F.cross_entropy(out, labels).detach().requires_grad_(), steps=99)
        finding = only(training)
        assert len(training.facts["parameters"].steps) < len(training.facts["losses"].steps) == 99
        assert (finding.rule, finding.message) == ("no-gradients", "detached")
        assert finding.where["line"].startswith(HERE)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")
@pytest.mark.parametrize("requires", [False, True])
def test_blocks_that_reentrant_checkpointing_cuts_off_are_named_with_their_line(
    diagnosed: Diagnosed, requires: bool
) -> None:
    diagnosed.train(Checkpointed(requires=requires))
    findings = diagnosed.findings()
    assert len(findings) == (not requires)
    for finding in findings:
        assert (finding.rule, finding.message, finding.values["count"]) == ("no-gradient", "checkpointed", 4)
        assert finding.where["line"].startswith(HERE)


@pytest.mark.parametrize("clips", [False, True])
def test_gradients_that_nobody_clears_are_said_with_the_line_of_the_update(diagnosed: Diagnosed, clips: bool) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(9):
        inputs, labels = diagnosed.batch()
        F.cross_entropy(model(inputs), labels).backward()
        if clips:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    finding = only(diagnosed)
    assert finding.rule == "gradients-not-cleared"
    assert "0.weight" in finding.where["parameter"]
    assert finding.where["line"].startswith(HERE)


def clear_by_hand(optimizer: torch.optim.Optimizer) -> None:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None:
                parameter.grad.data.zero_()


CLEARED: dict[str, Callable[[torch.optim.Optimizer], object]] = {
    "none": lambda optimizer: optimizer.zero_grad(),
    "zeros": lambda optimizer: optimizer.zero_grad(set_to_none=False),
    "foreach": lambda optimizer: torch._foreach_zero_(
        [p.grad for p in optimizer.param_groups[0]["params"] if p.grad is not None] or [torch.ones(1)]
    ),
    "data": clear_by_hand,
}


@pytest.mark.parametrize("way", CLEARED)
def test_gradients_that_are_cleared_in_any_way_are_no_finding(diagnosed: Diagnosed, way: str) -> None:
    clear = CLEARED[way]
    generator, critic = nn.Linear(FEATURES, FEATURES), nn.Linear(FEATURES, 1)
    one, two = torch.optim.Adam(generator.parameters(), 0.01), torch.optim.Adam(critic.parameters(), 0.01)
    for _ in range(12):
        inputs, _ = diagnosed.batch()
        clear(two)
        # What the critic's loss adds to the generator's gradients is cleared before it counts.
        critic(generator(inputs)).mean().backward()
        critic(inputs).square().mean().backward()
        two.step()
        clear(one)
        (-critic(generator(inputs))).mean().backward()
        one.step()
    assert "gradients-not-cleared" not in dict(diagnosed.found())


def test_a_model_whose_tensors_are_swapped_can_be_converted(diagnosed: Diagnosed) -> None:
    """PyTorch refuses to swap a tensor, such as a gradient, to which there is another reference."""
    model = network()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        diagnosed.train(model, steps=9, after=lambda _: model.double().float())
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    assert diagnosed.found() == []


def test_gradients_of_a_layer_that_the_script_clears_before_the_update_are_no_finding(diagnosed: Diagnosed) -> None:
    """As recipes do that hold the last layer for the first epochs."""
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(9):
        inputs, labels = diagnosed.batch()
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), labels).backward()
        model[2].weight.grad = model[2].bias.grad = None
        optimizer.step()
    assert diagnosed.found() == []


def test_a_bias_on_which_a_loss_of_derivatives_does_not_depend_is_no_finding(diagnosed: Diagnosed) -> None:
    model = nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(9):
        inputs = diagnosed.batch()[0].requires_grad_()
        (slope,) = torch.autograd.grad(model(inputs).sum(), inputs, create_graph=True)
        optimizer.zero_grad()
        (slope + inputs.detach()).square().mean().backward()
        optimizer.step()
    assert "no-gradient" not in dict(diagnosed.found())
