"""Weights that stand still: what cuts them off from the loss is said; where nothing is left to learn, nothing is."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it
from torch.utils.checkpoint import checkpoint

from tests.agents.pytorch import trainings
from tests.agents.pytorch.networks import CLASSES, Mlp
from tests.agents.pytorch.planting import classified_by
from tests.agents.pytorch.seen_steps import Seen
from tests.agents.pytorch.trainings import Training, batches_of, descend, points, supervised
from tests.agents.pytorch.watched_training import debug

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.server.running import RunningServer

WARNS = pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")
CAPTURES = pytest.mark.parametrize("capture", ["modules", "ops"])


def cut_loss(cut: Callable[[torch.Tensor], torch.Tensor]) -> Training:
    """Compute gradients of a new tensor with the value of the loss."""
    torch.manual_seed(trainings.SEED)
    batch = batches_of(*points(), 32)
    model = Mlp(16, 32, CLASSES)

    def loss_of(number: int) -> torch.Tensor:
        inputs, labels = batch(number)
        return cut(F.cross_entropy(model(inputs), labels))

    return descend(model, torch.optim.Adam(model.parameters(), lr=1e-3), loss_of)


CUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "new tensor": lambda loss: torch.tensor(loss.item(), requires_grad=True),
    "detached": lambda loss: loss.detach().requires_grad_(),
}


class TwoBranches(nn.Module):
    """Reads its inputs twice; one branch may be cut off."""

    def __init__(self, cut: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.image, self.text = nn.Linear(16, 32), nn.Linear(16, 32)
        self.head = nn.Linear(64, CLASSES)
        self.cut = cut

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return one logit for each class."""
        return self.head(torch.cat([F.relu(self.image(inputs)), self.cut(F.relu(self.text(inputs)))], 1))


class UnusedBranch(TwoBranches):
    """Computes a branch that nothing reads."""

    def __init__(self) -> None:
        super().__init__(lambda hidden: hidden)
        self.pooler = nn.Linear(32, 8)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return one logit for each class."""
        self.pooler(self.image(inputs))
        return super().forward(inputs)


class Block(nn.Module):
    """A frozen layer with an adapter."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16).requires_grad_(False)
        self.down, self.up = nn.Linear(16, 4, bias=False), nn.Linear(4, 16, bias=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return what both say."""
        return torch.tanh(self.layer(hidden) + self.up(self.down(hidden)))


class Checkpointed(nn.Module):
    """Blocks under reentrant checkpointing, whose input may require gradients."""

    def __init__(self, *, requires: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(16, CLASSES)
        self.requires = requires

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return one logit for each class."""
        hidden = inputs.clone().requires_grad_(self.requires)
        for block in self.blocks:
            hidden = checkpoint(block, hidden, use_reentrant=True)
        return self.head(hidden)


def converging(loss_of: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Training:
    """Learn what can be learnt exactly."""
    torch.manual_seed(trainings.SEED)
    inputs = torch.eye(8)
    model = nn.Linear(8, 1, bias=False)
    batch = batches_of(inputs, torch.sign(torch.randn(8, 1)), 8)
    return supervised(model, torch.optim.SGD(model.parameters(), lr=1.0), batch, loss_of)


CONVERGING: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "hinge": lambda outputs, targets: F.relu(1 - outputs * targets).mean(),
    "squares": lambda outputs, targets: (outputs - targets).square().mean(),
}


class OneClass(nn.Module):
    """Cannot be wrong, so that its loss is 0 from the start."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the logit of the only class."""
        return self.layer(inputs)


def stops(server: RunningServer, training: Training, capture: str, steps: int = 20) -> set[str]:
    """Return the weights that the recommended watchpoints stop for because they do not change."""
    finding = debug(server, training, steps, capture=capture)
    hits = {node.node: hit.condition for node in finding.hits for tensor in node.tensors for hit in tensor.hits}
    assert set(hits.values()) <= {"weight_not_changed"}, finding.summary()
    return set(hits)


@CAPTURES
@pytest.mark.parametrize("cut", CUTS)
def test_weights_stand_still_if_the_loss_is_cut_off(torch_server: RunningServer, cut: str, capture: str) -> None:
    assert stops(torch_server, cut_loss(CUTS[cut]), capture) == {"layers.0.weight", "layers.1.weight"}


@CAPTURES
def test_a_branch_that_is_detached_is_found(torch_server: RunningServer, capture: str) -> None:
    training = classified_by(partial(TwoBranches, lambda hidden: hidden.detach()))
    assert stops(torch_server, training, capture) == {"text.weight"}


@CAPTURES
def test_a_branch_that_nothing_reads_is_no_finding(torch_server: RunningServer, capture: str) -> None:
    assert stops(torch_server, classified_by(UnusedBranch), capture) == set()


@WARNS
@CAPTURES
def test_adapters_that_checkpointing_cuts_off_are_found(torch_server: RunningServer, capture: str) -> None:
    names = {f"blocks.{number}.{layer}.weight" for number in range(2) for layer in ("down", "up")}
    assert stops(torch_server, classified_by(partial(Checkpointed, requires=False)), capture) == names
    assert stops(torch_server, classified_by(partial(Checkpointed, requires=True)), capture) == set()


@CAPTURES
@pytest.mark.parametrize("loss", CONVERGING)
def test_weights_that_have_nothing_left_to_learn_are_no_finding(
    torch_server: RunningServer, loss: str, capture: str
) -> None:
    assert stops(torch_server, converging(CONVERGING[loss]), capture, steps=120) == set()


def test_a_loss_that_is_0_from_the_start_is_a_finding(torch_server: RunningServer) -> None:
    torch.manual_seed(trainings.SEED)
    inputs, labels = points()
    model = OneClass()
    training = supervised(model, torch.optim.Adam(model.parameters()), batches_of(inputs, labels * 0, 32))
    assert stops(torch_server, training, "modules") == {"layer.weight"}


@pytest.mark.parametrize(("amount", "reports"), [(32, 0), (200, 0), (260, 1)])
def test_gradients_that_are_accumulated_are_reported_late(amount: int, reports: int) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with Seen(model, optimizer) as seen:
        for _ in range(amount):
            model(torch.randn(4, 2)).sum().backward()
        assert len(seen.agent.reports) == reports
        optimizer.step()
        assert seen.agent.reports == []


@pytest.mark.parametrize("to_none", [True, False])
def test_gradients_that_are_cleared_and_never_used_are_reported(to_none: bool) -> None:
    model = nn.Linear(2, 1)
    with Seen(model) as seen:
        for _ in range(40):
            model.zero_grad(set_to_none=to_none)
            model(torch.randn(4, 2)).sum().backward()
        (report,) = seen.agent.reports
    assert report.startswith("33 backward passes since step 0, and no update by an optimizer")


class SoftmaxOverOne(nn.Module):
    """Takes the softmax over its only unit, which is always 1."""

    def __init__(self) -> None:
        super().__init__()
        self.inlet, self.head = nn.Linear(16, 32), nn.Linear(32, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return probabilities."""
        return F.softmax(self.head(torch.tanh(self.inlet(inputs))), dim=1)


class ClippedScores(nn.Module):
    """Applies a ReLU to its scores, all of which are below 0."""

    def __init__(self) -> None:
        super().__init__()
        self.inlet, self.head = nn.Linear(16, 32), nn.Linear(32, CLASSES)
        nn.init.constant_(self.head.bias, -3.0)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return scores."""
        return F.relu(self.head(torch.tanh(self.inlet(inputs))))


def binary(model_type: Callable[[], nn.Module]) -> Training:
    """Tell two classes apart."""
    torch.manual_seed(trainings.SEED)
    inputs, _ = points()
    model = model_type()
    batch = batches_of(inputs, (inputs[:, :1] > 0).float(), 32)
    return supervised(model, torch.optim.Adam(model.parameters()), batch, F.binary_cross_entropy)


@pytest.mark.parametrize(
    ("build", "operator"),
    [
        (partial(binary, SoftmaxOverOne), "Gradients/Default/_softmax_backward_data-op0"),
        (partial(classified_by, ClippedScores), "Default/relu-op0"),
    ],
    ids=["softmax over one unit", "ReLU on the scores"],
)
def test_zeros_that_stop_weights_have_an_origin(
    torch_server: RunningServer, build: Callable[[], Training], operator: str
) -> None:
    finding = debug(torch_server, build(), 20, capture="ops")
    (origin,) = finding.origins
    assert (origin.anomaly, origin.node) == ("all_zero", operator), finding.summary()
    assert "began at step 1 in" in origin.sentence
    assert origin.line is not None
    assert origin.line.file == __file__


def test_zeros_that_stop_no_weight_are_no_origin(torch_server: RunningServer) -> None:
    """The weights stand still because the learning rate is 0; beside them a ReLU is always off."""
    torch.manual_seed(trainings.SEED)
    model = ClippedScores()
    inputs, labels = points()

    def loss(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(outputs + model.inlet(inputs[:32])[:, :CLASSES], labels)

    training = supervised(model, torch.optim.SGD(model.parameters(), lr=0.0), batches_of(inputs, labels, 32), loss)
    finding = debug(torch_server, training, 20, capture="modules")
    assert finding.hits, finding.summary()
    assert not [origin for origin in finding.origins if "inlet" in origin.node], finding.summary()


def scaled(amount: float) -> Training:
    """Train with a loss scale that is set anew after each step."""
    torch.manual_seed(trainings.SEED)
    batch = batches_of(*points(), 32)
    model = Mlp(16, 32, CLASSES)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=amount)

    def step(number: int) -> torch.Tensor:
        inputs, labels = batch(number)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = F.cross_entropy(model(inputs).float(), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update(amount)
        return loss

    return Training((model,), (optimizer,), step)


@CAPTURES
def test_a_scaler_that_skips_every_update_is_found(torch_server: RunningServer, capture: str) -> None:
    finding = debug(torch_server, scaled(2.0**30), 30, capture=capture)
    assert finding.step == 21, finding.summary()
    assert "inf" in {origin.anomaly for origin in finding.origins}, finding.summary()
    assert debug(torch_server, scaled(2.0**10), 30, capture=capture).ended
