"""Whatever of ours fails, wherever PyTorch has called it: the training goes on and arrives where it does alone."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
import torch
from torch import nn

import tensight
import tensight.agents.torch
from tensight.agents.core import notices
from tensight.agents.core.settings import AgentSettings
from tensight.agents.torch.debugger import Debugger
from tensight.errors import TensightError
from tests.agents.collaborators import Collaborator, Method, label, methods, packages_of_core
from tests.agents.pytorch import trainings
from tests.agents.pytorch.trainings import Training

if TYPE_CHECKING:
    from tensight.client import Session
    from tests.server.running import RunningServer

pytestmark = pytest.mark.long

STEPS = 3
PATIENCE_S = 60.0
OF_ADAPTER = "tensight.agents.torch."

NOT_BROKEN = {
    "core.settings": "refuses what cannot be used, at the line of the script that says it",
    "core.debugging": "what the script calls; what that calls is broken",
    "torch.debugger": "what the script calls; what that calls is broken",
    "torch.boundary": "the guard itself",
    "torch.lightning": "what a trainer calls; it calls a debugger",
    "torch.transformers": "what a trainer calls; it calls a debugger",
    "trial": "in no training but the one of `tensight selftest`",
    "torch.trial": "in no training but the one of `tensight selftest`",
    "core.connection.background.Background.run": "the guard of its thread",
    "torch.arrays.TorchReader.hold": "where it fails in a kernel it is called again, in Python",
    "core.process.forking": "where the gate fails a call to the server has failed, and is made again",
    "core.connection.attachment.Attachment.end": "the last that is done; nobody is left who would do it",
    "core.connection.background.Background.end": "the last that is done; nobody is left who would do it",
    "core.connection.connection.Connection.close": "the last that is done; nobody is left who would do it",
}
"""Modules and methods below `tensight.agents`, and why each is left out."""


class Circumstance(NamedTuple):
    """How a training is debugged.

    Attributes
    ----------
    capture : str
    records : bool
        Steps are recorded.
    look : callable (session), optional
        What a person does with the training, which waits for that before its first step.
    """

    capture: str
    records: bool = False
    look: Callable[[Session], object] | None = None


def look_at_modules(session: Session) -> None:
    watchpoint = session.watch("tensor_overflow", on="all")
    session.step().wait(PATIENCE_S)
    weight = session.tensor("2.weight")
    weight.numpy()
    weight.histogram()
    weight.difference()
    session.recheck()
    watchpoint.delete()
    session.look_closer(1).wait(PATIENCE_S)


def look_at_operators(session: Session) -> None:
    session.next_node().wait(PATIENCE_S)
    session.run_to("Optimizer/2/weight/mul_-op0").wait(PATIENCE_S)


CIRCUMSTANCES = {
    "modules": Circumstance("modules"),
    "ops": Circumstance("ops"),
    "recorded": Circumstance("modules", records=True),
    "looked at": Circumstance("modules", look=look_at_modules),
    "operators looked at": Circumstance("ops", look=look_at_operators),
}


def training() -> Training:
    """Two modules, a script that computes something of its own, an optimizer with states."""
    torch.manual_seed(trainings.SEED)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    batch = torch.randn(STEPS, 3, 4)
    return trainings.descend(model, optimizer, lambda number: (model(batch[number]) * 2).square().mean())


class Stage:
    """Where the same training is debugged again and again.

    Attributes
    ----------
    refused : list of str
        What a person was told in place of an answer.
    """

    def __init__(self, server: RunningServer, folder: Path) -> None:
        alone = training()
        alone.run(STEPS)
        self._arrives_at = alone.fingerprint()
        self._server = server
        self._folder = folder
        self._numbers = itertools.count()
        self.refused: list[str] = []

    def debug(self, circumstance: Circumstance) -> Debugger:
        """Debug the training; it arrives where it does alone."""
        host, _, port = str(self._server.debugger).rpartition(":")
        job = f"{self._folder.name}-{next(self._numbers)}"
        recorded = {"record": "ring:2", "record_folder": self._folder / job} if circumstance.records else {}
        settings = AgentSettings(
            host=host,
            port=int(port),
            job=job,
            capture=circumstance.capture,
            recommended=True,
            break_at_start=circumstance.look is not None,
            **recorded,
        )
        debugged = training()
        with ThreadPoolExecutor(1) as people:
            if circumstance.look is not None:
                people.submit(self._look, job, circumstance.look)
            with Debugger((*debugged.models, *debugged.optimizers), settings) as debugger:
                debugged.run(STEPS)
        assert debugged.fingerprint() == self._arrives_at
        return debugger

    def _look(self, job: str, look: Callable[[Session], object]) -> None:
        with tensight.connect(self._server.url) as client:
            session = client.wait_for_session(PATIENCE_S, name=job)
            try:
                session.wait(PATIENCE_S)
                look(session)
            except TensightError as error:
                self.refused.append(str(error))
            finally:
                with suppress(TensightError):
                    while not session.wait(PATIENCE_S).state.has_ended:
                        session.continue_()

    def calls(self, circumstance: Circumstance) -> dict[Method, int]:
        """Return how often each method is called that is called at all."""
        packages = *packages_of_core(), tensight.agents.torch
        collaborators = {method: Collaborator(*method) for method in methods(*packages, left_out=NOT_BROKEN)}
        with ExitStack() as counted:
            for collaborator in collaborators.values():
                counted.enter_context(collaborator)
            self.debug(circumstance)
        return {method: collaborator.calls for method, collaborator in collaborators.items() if collaborator.calls}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", CIRCUMSTANCES)
def test_no_exception_of_ours_reaches_a_training(
    torch_server: RunningServer, name: str, said: list[str], tmp_path: Path
) -> None:
    stage, circumstance = Stage(torch_server, tmp_path), CIRCUMSTANCES[name]
    calls = stage.calls(circumstance)
    for other in itertools.takewhile(lambda other: other != name, CIRCUMSTANCES):
        for class_, method in stage.calls(CIRCUMSTANCES[other]) if CIRCUMSTANCES[other] != circumstance else ():
            # What PyTorch calls fails in each capture; everything else in the first circumstance that calls it.
            if name != "ops" or not class_.__module__.startswith(OF_ADAPTER):
                calls.pop((class_, method), None)
    failed, silent = 0, []
    for (class_, method), count in calls.items():
        notices._logged.clear()
        said.clear()
        stage.refused.clear()
        with Collaborator(class_, method, fails_at=count // 2) as collaborator:
            debugger = stage.debug(circumstance)
        # What has failed may have been that which removes all from PyTorch.
        debugger._detach()
        if debugger.agent is not None:
            debugger.agent.close()
            assert not debugger.agent._server.attachment.connection.is_usable, (class_, method)
        told = [line for line in said if label(class_, method) in line]
        # How often it is called may depend on when the server answers.
        failed += collaborator.has_failed
        if collaborator.has_failed and len(told) != 1 and not stage.refused:
            silent.append((label(class_, method), told))
    assert failed > len(calls) / 2
    assert not silent
