"""A training stops once for a cause, also where some of what follows from it cannot be judged at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from tensight.agents.eager.traced_programs import Programs
from tests.agents.pytorch.trainings import Training
from tests.agents.pytorch.watched_training import PATIENCE_S, Finding, Person, debug

if TYPE_CHECKING:
    from tensight.agents.core.program import Program
    from tensight.agents.eager.traced_programs import Trace
    from tensight.client import Session
    from tensight.sessions.records import SessionRecord
    from tests.server.running import RunningServer

STEPS = 12
SICK_STEP = 6
"""Counted from 1."""


class Pooled(nn.Module):
    """Operators that choose, as pooling does, before one that makes NaN, and views behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, 4, 3)
        self.head = nn.Linear(36, 3)
        self.step = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.dropout(torch.max_pool2d(torch.relu(self.convolution(x)), 2), 0.25, train=True)
        x = x.flatten(1)
        largest = x.amax(1, keepdim=True) + (-1e3 if self.step == SICK_STEP else 1.0)
        x = (x - x.mean(1, keepdim=True)) / largest.sqrt()
        # Views of it are judged when the step is over.
        out: torch.Tensor = self.head(x.t().t().unsqueeze(1)).flatten(1)
        return out


@dataclass
class GoingOn(Person):
    """Somebody who goes on after each stop."""

    stops: list[tuple[int, list[str]]] = field(default_factory=list)

    def see(self, session: Session, record: SessionRecord) -> Finding:
        """Look at all stops until the end."""
        while not record.state.has_ended:
            self.stops.append((record.step, [node.node for node in session.hits()]))
            record = session.continue_().wait(PATIENCE_S)
        return Finding(ended=True, step=record.step)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("capture", "node"), [("modules", "Default/Pooled-op"), ("ops", "Default/sqrt-op")])
def test_a_nan_that_poisons_the_weights_stops_a_training_once(
    torch_server: RunningServer, capture: str, node: str
) -> None:
    network = Pooled()
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)

    def step(number: int) -> torch.Tensor:
        network.step = number + 1
        inputs, labels = torch.randn(8, 1, 8, 8), torch.randint(0, 3, (8,))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(network(inputs), labels)
        loss.backward()
        optimizer.step()
        return loss

    person = GoingOn()
    finding = debug(torch_server, Training((network,), (optimizer,), step), STEPS, person=person, capture=capture)
    assert finding.step == STEPS
    assert len(person.stops) == 1, person.stops
    ((stopped_at, hits),) = person.stops
    assert stopped_at == SICK_STEP
    assert hits[0].startswith(node)


class Unrolled(nn.Module):
    """A loop whose state becomes NaN in the middle of a step that runs one more operator than the others."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.RNNCell(4, 4)
        self.step = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = torch.zeros(2, 4)
        for number in range(60):
            state = self.cell(x, state)
            if self.step == SICK_STEP and number == 5:
                state = torch.sqrt(state - 2)
        return state


def test_what_has_run_is_not_learnt_again_at_each_of_the_operators_that_a_nan_reaches(
    torch_server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = Unrolled()
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)
    learnt: list[int] = []
    running = Programs.running

    def counted(programs: Programs, trace: Trace) -> Program:
        learnt.append(network.step)
        return running(programs, trace)

    def step(number: int) -> torch.Tensor:
        network.step = number + 1
        optimizer.zero_grad()
        loss = network(torch.randn(2, 4)).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    monkeypatch.setattr(Programs, "running", counted)
    person = GoingOn()
    finding = debug(torch_server, Training((network,), (optimizer,), step), STEPS, person=person, capture="ops")
    assert finding.step == STEPS
    assert [stopped_at for stopped_at, _ in person.stops] == [SICK_STEP]
    assert "Default/sqrt-op0" in person.stops[0][1]
    # Hundreds of operators follow the first one with NaN.
    assert learnt.count(SICK_STEP) < 20
