"""From calls of modules to every operator in mid-training: what was told as a range of lines is named."""

from __future__ import annotations

import inspect
import shlex
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from tensight.sessions.errors import StateError
from tests.agents.pytorch.trainings import Training
from tests.agents.pytorch.watched_training import Finding, Person, debug

if TYPE_CHECKING:
    from tensight.client import Session
    from tests.server.running import RunningServer

PATIENCE_S = 60.0
SICK_STEPS = (4, 5, 6)
"""Counted from 1."""


class Network(nn.Module):
    """Divides by what is 0 in some steps."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(6, 6)
        self.b = nn.Linear(6, 4)
        self.is_sick = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.a(x)
        spread = hidden.std() * (not self.is_sick)
        centred = hidden - hidden.mean()
        scaled = centred / spread  # here
        return self.b(scaled)


def line_of(mark: str) -> int:
    lines, first = inspect.getsourcelines(Network)
    return next(first + at for at, line in enumerate(lines) if mark in line)


def training(*, skips: bool) -> Training:
    """Return a training that leaves out updates which are not finite, or does them all the same."""
    torch.manual_seed(3)
    network = Network()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)

    def step(number: int) -> torch.Tensor:
        network.is_sick = number + 1 in SICK_STEPS
        inputs, labels = torch.randn(8, 6), torch.randint(0, 4, (8,))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(network(inputs), labels)
        loss.backward()
        if skips and not loss.isfinite():
            optimizer.zero_grad()
        optimizer.step()
        return loss

    return Training((network,), (optimizer,), step)


class Looking(Person):
    """Somebody who looks closer at the first stop, and goes on to the next one."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def look(self, session: Session) -> None:
        session.watch_recommended()
        record = session.continue_().wait(PATIENCE_S)
        self.seen.append((record, session.origins()[0]))
        if not record.capabilities.can_look_closer:
            with pytest.raises(StateError, match="TENSIGHT_CAPTURE=ops"):
                session.look_closer()
            return
        assert record.closer_command == ""
        record = session.look_closer().wait(PATIENCE_S)
        self.seen.append((record, session.origins()[0], session.hits()))
        if not record.state.has_ended:
            with pytest.raises(StateError, match="every operator is captured already"):
                session.look_closer()


def look_closer(server: RunningServer, *, skips: bool, steps: int = 8) -> tuple[list[Any], Training, Finding]:
    trained, person = training(skips=skips), Looking()
    person.watch = person.look
    finding = debug(server, trained, steps, person=person, capture="modules")
    return person.seen, trained, finding


def test_the_next_stop_names_the_operator_and_its_line(torch_server: RunningServer) -> None:
    ((first, told), (second, named, hits)), _, _ = look_closer(torch_server, skips=True)
    assert (first.step, told.step, told.certain) == (4, 4, False), told.sentence
    assert (told.line.line, told.line.end_line) == (line_of("spread = "), line_of("# here"))
    assert (second.step, named.step) == (5, 5), named.sentence
    assert (named.node, named.certain, named.arrived) == ("Default/div-op0", True, False), named.sentence
    assert (named.line.line, named.line.end_line) == (line_of("# here"), None)
    assert "Default/div-op0" in [one.node for one in hits]
    assert second.node, "it stands at an operator, within the step"
    assert not second.capabilities.can_look_closer
    assert second.capabilities.can_next_node


def test_where_the_weights_are_lost_another_run_is_offered_instead(torch_server: RunningServer) -> None:
    ((first, told),), _, _ = look_closer(torch_server, skips=False)
    assert (first.step, told.step) == (4, 4)
    assert told.line.end_line is not None
    assert not first.capabilities.can_look_closer
    assert first.closer_command == f"TENSIGHT_CAPTURE=ops {shlex.join(sys.orig_argv)}", "how this process was started"


def test_lost_weights_are_known_whatever_is_watched(torch_server: RunningServer) -> None:
    seen: list[Any] = []

    def look(session: Session) -> None:
        session.watch("tensor_overflow", on="gradients")
        seen.append(session.continue_().wait(PATIENCE_S))

    debug(torch_server, training(skips=False), 8, person=Person(look), capture="modules")
    assert (seen[0].step, seen[0].capabilities.can_look_closer) == (4, False)


def test_a_training_that_was_looked_at_closer_is_the_same(torch_server: RunningServer) -> None:
    def look_and_go_on(session: Session) -> None:
        session.step(2).wait(PATIENCE_S)
        session.look_closer(2).wait(PATIENCE_S)

    trained, plain = training(skips=True), training(skips=True)
    finding = debug(torch_server, trained, 8, person=Person(look_and_go_on), capture="modules")
    assert finding.ended
    torch.manual_seed(3)
    plain = training(skips=True)
    plain.run(8)
    assert trained.fingerprint() == plain.fingerprint()
