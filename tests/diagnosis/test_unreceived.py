"""A training that nobody asks why it does not learn: nothing of it is read, and no hook slows its modules down."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tensight.agents.core.settings import AgentSettings
from tensight.agents.torch.debugger import Debugger
from tests.diagnosis.diagnosed import network
from tests.processes.ports import kept_port

if TYPE_CHECKING:
    import pytest


def train(steps: int) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()


def test_without_a_server_nothing_is_read_of_a_training(capfd: pytest.CaptureFixture[str]) -> None:
    settings = AgentSettings(port=kept_port(), quiet=True)
    debugger = Debugger((), settings)
    debugger.start()
    try:
        train(3)
        source = debugger._facts
        assert source is not None
        assert not source._diagnosing.reads
        assert not source._hooks
        assert source._weights.groups == []
    finally:
        debugger.close()
    assert "internal error" not in capfd.readouterr().err
