"""Steps that do not compute what the step before did: what is found in them is told with their own graph."""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from tensight.analysis import Analysis, Anomaly, origins
from tensight.dumps import open_dump
from tests.agents.pytorch.trainings import Training
from tests.agents.pytorch.watched_training import Person, debug

if TYPE_CHECKING:
    from pathlib import Path

    from tensight.client import Session
    from tensight.sessions.records import OriginRecord
    from tests.server.running import RunningServer

SICK_STEP = 8
"""Counted from 1."""

_MARK = "  # here"


class Branching(nn.Module):
    """Two layers, and what a script computes beside them in some steps."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 4)
        self.step = 0

    @property
    def is_sick(self) -> bool:
        return self.step == SICK_STEP

    @property
    def shift(self) -> float:
        return float(self.is_sick)


class OnlyOnce(Branching):
    """An operator that runs for the first time is the one that is wrong."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits = self.fc(x)
        if self.is_sick:
            logits = logits + 0.01 * torch.log(torch.softmax(logits, -1) - 0.3)  # here
        return logits


class TakingTurns(Branching):
    """The same operators in each step, of which every other step reads another one's result."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits = self.fc(x)
        read = torch.log(logits.sigmoid() - self.shift)  # here
        kept = logits.tanh()
        return (read if self.step % 2 == 0 else kept) * 1.0


class NowRead(Branching):
    """What was computed for nothing so far is read for once: by operators that have all run before."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits = self.fc(x)
        read = torch.log(logits.sigmoid() - self.shift)  # here
        kept = logits.tanh()
        return (read if self.is_sick else kept) * 1.0


NETWORKS = (OnlyOnce, TakingTurns, NowRead)


class Attending(nn.Module):
    """Chooses among positions by a softmax, each but the first; it may be told that there is none to choose from."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Linear(6, 6)
        self.softmax = nn.Softmax(-1)
        self.out = nn.Linear(6, 6)
        self.sees_nothing = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.arange(6) < (6 if self.sees_nothing else 1)
        weights = self.softmax(self.scores(x).masked_fill(hidden, -torch.inf))
        return x + self.out(weights * x)


def attending(*, evaluates: bool) -> Training:
    """Return a training that becomes NaN in its third layer, in steps that may begin with a look at the loss."""
    torch.manual_seed(3)
    network = nn.Sequential(*(Attending() for _ in range(4)), nn.Linear(6, 4))
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)

    def step(number: int) -> torch.Tensor:
        network[2].sees_nothing = number + 1 == SICK_STEP
        inputs, labels = torch.randn(8, 6), torch.randint(0, 4, (8,))
        optimizer.zero_grad()
        if evaluates and number % 2:
            with torch.no_grad():
                nn.functional.cross_entropy(network(inputs), labels)
        loss = nn.functional.cross_entropy(network(inputs), labels)
        loss.backward()
        optimizer.step()
        return loss

    return Training((network,), (optimizer,), step)


def training(network_type: type[Branching]) -> Training:
    torch.manual_seed(3)
    network = network_type()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)

    def step(number: int) -> torch.Tensor:
        network.step = number + 1
        inputs, labels = torch.randn(8, 6), torch.randint(0, 4, (8,))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(network(inputs), labels)
        loss.backward()
        optimizer.step()
        return loss

    return Training((network,), (optimizer,), step)


def line_of(network_type: type[Branching]) -> int:
    """Return the line that computes the first NaN."""
    lines, first = inspect.getsourcelines(network_type)
    return next(first + at for at, line in enumerate(lines) if line.rstrip().endswith(_MARK))


def assert_found(origin: OriginRecord, network_type: type[Branching]) -> None:
    assert (origin.anomaly, origin.type, origin.step) == ("nan", "log", SICK_STEP), origin.sentence
    assert origin.certain, origin.sentence
    assert not origin.also, (origin.also, origin.address)
    assert origin.line is not None
    assert (origin.line.file, origin.line.line) == (sys.modules[__name__].__file__, line_of(network_type))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("network_type", NETWORKS, ids=lambda one: one.__name__)
def test_the_operator_of_a_step_that_took_another_way_is_named(
    torch_server: RunningServer, network_type: type[Branching]
) -> None:
    finding = debug(torch_server, training(network_type), SICK_STEP + 2, capture="ops")
    assert not finding.ended
    assert finding.step == SICK_STEP, finding.summary()
    assert_found(finding.origins[0], network_type)
    hit = finding.hits[0]
    assert finding.origins[0].address == f"0/{hit.graph}/{hit.node}:0@{SICK_STEP}", finding.summary()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("network_type", NETWORKS, ids=lambda one: one.__name__)
def test_at_the_end_of_such_a_step_and_in_its_recording_it_is_the_same(
    torch_server: RunningServer, network_type: type[Branching], tmp_path: Path
) -> None:
    def watch(session: Session) -> None:
        session.watch("weight_overflow")

    finding = debug(
        torch_server,
        training(network_type),
        SICK_STEP + 2,
        person=Person(watch),
        capture="ops",
        record="ring:20",
        record_folder=str(tmp_path / "recording"),
    )
    assert finding.step == SICK_STEP, finding.summary()
    assert_found(finding.origins[0], network_type)
    (recorded,) = origins(Analysis(open_dump(tmp_path / "recording")), [Anomaly.NAN])
    assert (recorded.op_type, recorded.address.step, recorded.certain) == ("log", SICK_STEP, True), recorded.sentence
    assert recorded.user_frame is not None
    assert recorded.user_frame.line == line_of(network_type)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("evaluates", [False, True], ids=["training", "evaluating first"])
@pytest.mark.parametrize("capture", ["modules", "ops"])
def test_masks_of_other_layers_are_no_origins(torch_server: RunningServer, capture: str, evaluates: bool) -> None:
    finding = debug(torch_server, attending(evaluates=evaluates), SICK_STEP + 2, capture=capture)
    assert finding.step == SICK_STEP, finding.summary()
    assert all("/2/" in origin.node for origin in finding.origins), finding.summary()
    # Each layer's mask is -Inf, and its gradient NaN; the evaluation, which comes first, has no gradients.
    nan = next(origin for origin in finding.origins if origin.anomaly == "nan")
    assert nan.node.rpartition("/")[2] in ("Softmax-op0", "_softmax-op0"), nan.sentence
    assert (nan.certain, nan.arrived) == (True, False), nan.sentence
