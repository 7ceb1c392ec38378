"""Where something began that came with a weight: who changed it, and when, in both captures."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from tensight.graph.layer_node import FROM_COMPILED_CODE
from tests.agents.pytorch.trainings import Training
from tests.agents.pytorch.watched_training import debug

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.server.running import RunningServer

SICK_STEP = 4
"""Counted from 1."""


class Network(nn.Module):
    """What a small language model begins and ends with; the last layer has the embedding's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.wte = nn.Embedding(20, 8)
        self.norm = nn.LayerNorm(8)
        self.fc = nn.Linear(8, 8)
        self.head = nn.Linear(8, 20, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Return what comes next."""
        return self.head(torch.tanh(self.fc(self.norm(self.wte(words)))))


def explode(network: Network) -> None:
    network.fc.weight.data.mul_(1e18)


def overwrite_one(network: Network) -> None:
    # As a library does that PyTorch knows nothing of.
    network.norm.weight.detach().numpy()[3] = float("nan")


def break_normalisation(network: Network) -> None:
    network.norm.eps = -1e3


def changing(change: Callable[[Network], None], kind: type[Network] = Network) -> Training:
    """Return a training in which something happens before one of its steps."""
    torch.manual_seed(3)
    network = kind()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)

    def step(number: int) -> torch.Tensor:
        if number == SICK_STEP - 1:
            change(network)
        words = torch.randint(0, 20, (4, 6))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(network(words).flatten(0, 1), words.flatten())
        loss.backward()
        optimizer.step()
        return loss

    return Training((network,), (optimizer,), step)


def line_of(function: Callable[..., object]) -> int:
    """Return the number of the last line of a function."""
    code = function.__code__
    return max(number for _, _, number in code.co_lines() if number is not None)


@pytest.mark.parametrize("capture", ["modules", "ops"])
def test_a_weight_that_was_changed_between_two_updates_is_where_it_began(
    torch_server: RunningServer, capture: str
) -> None:
    finding = debug(torch_server, changing(overwrite_one), 8, capture=capture)
    origin = finding.origins[0]
    assert (origin.anomaly, origin.node, origin.step) == ("nan", "norm.weight", SICK_STEP), finding.summary()
    assert (origin.certain, origin.arrived) == (True, True)
    # Where operators are captured nobody has looked at the weight of the norm before.
    known = capture == "modules"
    assert known == origin.changed == ("changed since the last update, outside of the optimizer" in origin.sentence)


def test_an_explosion_of_a_weight_is_not_laid_at_the_module_that_has_it(torch_server: RunningServer) -> None:
    finding = debug(torch_server, changing(explode), 8, capture="modules")
    origin = finding.origins[0]
    assert (origin.anomaly, origin.node, origin.step) == ("explosion", "fc.weight", SICK_STEP), finding.summary()
    assert "changed since the last update, outside of the optimizer" in origin.sentence
    assert not origin.also


def test_where_operators_are_seen_the_one_that_wrote_to_the_weight_is_named(torch_server: RunningServer) -> None:
    finding = debug(torch_server, changing(explode), 8, capture="ops")
    origin = finding.origins[0]
    assert (origin.anomaly, origin.type, origin.certain) == ("explosion", "mul_", True), finding.summary()
    assert origin.line is not None
    assert (origin.line.file, origin.line.line) == (sys.modules[__name__].__file__, line_of(explode))
    assert not origin.also
    assert all(one.anomaly != "all_zero" or one.step == SICK_STEP for one in finding.origins), finding.summary()


@pytest.mark.parametrize("capture", ["modules", "ops"])
def test_what_the_step_wrote_at_its_end_is_no_cause_of_it(torch_server: RunningServer, capture: str) -> None:
    finding = debug(torch_server, changing(break_normalisation), 8, capture=capture)
    origin = finding.origins[0]
    assert (origin.anomaly, origin.step, origin.certain) == ("nan", SICK_STEP, True), finding.summary()
    assert origin.node.startswith("Default/norm/"), finding.summary()


def kill_units(network: Network) -> None:
    with torch.no_grad():
        network.fc.bias.fill_(-1e3)


class Rectified(Network):
    """The same with a ReLU."""

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.fc(self.norm(self.wte(words)))))


@pytest.mark.parametrize("capture", ["modules", "ops"])
def test_zeros_began_when_they_began_and_not_when_they_had_lasted_long_enough(
    torch_server: RunningServer, capture: str
) -> None:
    finding = debug(torch_server, changing(kill_units, Rectified), 30, capture=capture)
    origin = next(origin for origin in finding.origins if origin.anomaly == "all_zero")
    assert finding.step > SICK_STEP
    assert f"began at step {SICK_STEP} in" in origin.sentence, finding.summary()
    hits = [hit for node in finding.hits for tensor in node.tensors for hit in tensor.hits]
    since = {(hit.since, hit.may_be_older) for hit in hits if hit.condition == "unintended_zeros"}
    assert since == {(SICK_STEP, False)}


def by_slice(data: torch.Tensor, first: int) -> torch.Tensor:
    return data[first : first + 8]


def by_index(data: torch.Tensor, first: int) -> torch.Tensor:
    return data[torch.arange(first, first + 8)]


def by_slice_of_a_view(data: torch.Tensor, first: int) -> torch.Tensor:
    return data.view(8, 8, 8)[first // 8]


@pytest.mark.parametrize("batch", [by_slice, by_index, by_slice_of_a_view])
def test_a_nan_in_data_came_in_with_the_batch_that_has_it(
    torch_server: RunningServer, batch: Callable[[torch.Tensor, int], torch.Tensor]
) -> None:
    torch.manual_seed(3)
    data = torch.randn(64, 8)
    data[8 * SICK_STEP - 1, 2] = float("nan")
    network = nn.Linear(8, 2)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)

    def step(number: int) -> torch.Tensor:
        optimizer.zero_grad()
        loss = network(batch(data, 8 * number)).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    finding = debug(torch_server, Training((network,), (optimizer,), step), 8, capture="ops")
    origin = finding.origins[0]
    assert (origin.anomaly, origin.arrived, origin.step) == ("nan", True, SICK_STEP), finding.summary()


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_a_nan_of_compiled_code_is_said_to_be_of_compiled_code(torch_server: RunningServer) -> None:
    class Fused(Network):
        def forward(self, words: torch.Tensor) -> torch.Tensor:
            hidden = self.norm(self.wte(words))
            return self.head((hidden * hidden).sum(-1, keepdim=True).log() * hidden)

    torch.manual_seed(3)
    network = Fused()
    compiled = torch.compile(network)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)

    def step(number: int) -> torch.Tensor:
        if number == SICK_STEP - 1:
            nn.init.zeros_(network.norm.weight)
            nn.init.zeros_(network.norm.bias)
        words = torch.randint(0, 20, (4, 6))
        optimizer.zero_grad()
        logits = compiled(words)  # calls compiled code
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), words.flatten())
        loss.backward()
        optimizer.step()
        return loss

    finding = debug(torch_server, Training((network,), (optimizer,), step), 8, capture="ops")
    origin = next(origin for origin in finding.origins if origin.anomaly == "nan")
    assert (origin.step, origin.arrived) == (SICK_STEP, True), finding.summary()
    assert origin.node.startswith(FROM_COMPILED_CODE)
    assert origin.line is not None
    assert origin.line.file == sys.modules[__name__].__file__


class Detector(nn.Module):
    """What detectors do: targets that are zero, large thresholds; and far from all of that a logarithm."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Linear(8, 8)
        self.head = nn.Linear(8, 4)
        self.is_broken = False

    def forward(self, pictures: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
        """Return the loss."""
        features = torch.tanh(self.backbone(pictures))
        if self.is_broken:
            features = torch.log(features)
        areas = torch.where(boxes > 0, boxes, torch.full_like(boxes, 1e8))
        matched = (areas < 1e7).float() * (1e8 - areas)
        targets = torch.stack([boxes * 0, boxes])[0] + (matched > 1e9) * 1.0
        return nn.functional.mse_loss(self.head(features), targets)


@pytest.mark.parametrize("capture", ["modules", "ops"])
def test_large_thresholds_and_zero_targets_are_no_origins_of_a_nan_elsewhere(
    torch_server: RunningServer, capture: str
) -> None:
    torch.manual_seed(3)
    network = Detector()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)

    def step(number: int) -> torch.Tensor:
        network.is_broken = number >= SICK_STEP - 1
        optimizer.zero_grad()
        loss = network(torch.randn(6, 8), torch.randn(6, 4))
        loss.backward()
        optimizer.step()
        return loss

    finding = debug(torch_server, Training((network,), (optimizer,), step), 8, capture=capture)
    assert [(one.anomaly, one.step) for one in finding.origins] == [("nan", SICK_STEP)], finding.summary()


def regression(
    sick: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], loss: Callable[..., torch.Tensor]
) -> Training:
    """Return a training whose targets are made anew for each batch; those of one step by `sick`."""
    torch.manual_seed(3)
    network = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)

    def step(number: int) -> torch.Tensor:
        inputs = torch.rand(16, 8)
        targets = torch.full((16, 4), 0.25)
        if number == SICK_STEP - 1:
            targets = sick(inputs, targets)
        optimizer.zero_grad()
        found = loss(network(inputs), targets)
        found.backward()
        optimizer.step()
        return found

    return Training((network,), (optimizer,), step)


def soft_cross_entropy(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return -(targets * scores.log_softmax(dim=1)).sum(dim=1).mean()


@pytest.mark.parametrize("loss", [nn.functional.mse_loss, soft_cross_entropy], ids=lambda loss: loss.__name__)
def test_it_is_not_said_that_no_nan_went_in_where_targets_are_not_seen(
    torch_server: RunningServer, loss: Callable[..., torch.Tensor]
) -> None:
    finding = debug(torch_server, regression(lambda _, targets: targets.log1p() / 0 * 0, loss), 6, capture="modules")
    origin = finding.origins[0]
    assert (origin.step, origin.certain, origin.also) == (SICK_STEP, False, ()), finding.summary()
    assert origin.sentence.endswith("unless it came from targets or other tensors without gradients")
