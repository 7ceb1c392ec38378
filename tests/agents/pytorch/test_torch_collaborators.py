"""Whatever of ours fails, wherever PyTorch has called it: the training goes on and arrives where it does alone."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pytest
import torch
import trainings
from torch import nn
from trainings import Training

from tensight.agents import agent as agents
from tensight.agents import (
    columns,
    known_programs,
    lasting,
    notices,
    outliving,
    places,
    retention,
    rounds,
    row_sending,
    stops,
    traced_programs,
    watching,
)
from tensight.agents.settings import AgentSettings
from tensight.agents.torch import (
    arrays,
    branches,
    calls,
    discovery,
    modules,
    names,
    observing,
    operator_mode,
    operator_steps,
    operator_tracing,
    operators,
    pairing,
    parameters,
    scopes,
    steps,
)
from tensight.agents.torch.debugger import Debugger

if TYPE_CHECKING:
    from running import RunningServer

STEPS = 3
CLASSES: tuple[type, ...] = (
    agents.Agent,
    arrays.TorchReader,
    branches.Branch,
    calls.Call,
    calls.Operation,
    columns.StatisticsColumns,
    discovery.Discovery,
    known_programs.KnownPrograms,
    lasting.LastingPlaces,
    modules.ModuleCapture,
    names.Names,
    observing.OperatorObserver,
    operator_mode.OperatorMode,
    operator_steps.OperatorStep,
    operator_tracing.StepTracer,
    operators.OperatorCapture,
    outliving.OutlivingTensors,
    pairing.AutogradPairs,
    parameters.Parameters,
    places.PlaceTable,
    retention.Retention,
    rounds.Rounds,
    row_sending.RowSender,
    scopes.ModuleScopes,
    steps.Steps,
    stops.Stops,
    traced_programs.Programs,
    watching.Watches,
)
METHODS = [
    (class_, name)
    for class_ in CLASSES
    for name, function in vars(class_).items()
    if not name.startswith("_") and inspect.isfunction(function)
]


class OurError(Exception):
    """A mistake of ours."""


class Collaborator:
    """A method that fails at one of its calls.

    Parameters
    ----------
    fails_at : int, optional
        The call that fails, from 0; none does by default.

    Attributes
    ----------
    calls : int
    has_failed : bool
    """

    def __init__(self, class_: type, name: str, patch: pytest.MonkeyPatch, fails_at: int = -1) -> None:
        self.calls = 0
        self.has_failed = False
        original = getattr(class_, name)

        def method(*given: Any, **named: Any) -> Any:
            self.calls += 1
            if self.calls - 1 == fails_at:
                self.has_failed = True
                raise OurError(f"{class_.__name__}.{name}")
            return original(*given, **named)

        patch.setattr(class_, name, method)


def training() -> Training:
    """Two modules, a script that computes something of its own, an optimizer with states."""
    torch.manual_seed(trainings.SEED)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    batch = torch.randn(STEPS, 3, 4)
    return trainings.descend(model, optimizer, lambda number: (model(batch[number]) * 2).square().mean())


@pytest.mark.parametrize("capture", ["modules", "ops"])
def test_no_exception_of_ours_reaches_a_training(
    torch_server: RunningServer, capture: Any, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = training()
    alone.run(STEPS)
    host, _, port = str(torch_server.debugger).rpartition(":")
    settings = AgentSettings(host=host, port=int(port), job=f"failing-{capture}", capture=capture, recommended=True)

    def debug() -> Debugger:
        debugged = training()
        with Debugger((*debugged.models, *debugged.optimizers), settings) as debugger:
            debugged.run(STEPS)
        assert debugged.fingerprint() == alone.fingerprint()
        return debugger

    with monkeypatch.context() as patch:
        collaborators = {(class_, name): Collaborator(class_, name, patch) for class_, name in METHODS}
        debug()
    called = {method: collaborator.calls for method, collaborator in collaborators.items() if collaborator.calls}
    failed = 0
    for (class_, name), calls_ in called.items():
        notices._said.clear()
        said.clear()
        with monkeypatch.context() as patch:
            collaborator = Collaborator(class_, name, patch, fails_at=calls_ // 2)
            debugger = debug()
        # What has failed may have been that which removes all from PyTorch.
        debugger._detach()
        if debugger.agent is not None:
            debugger.agent.close()
            assert not debugger.agent._attachment.connection.is_usable, (class_, name)
        told = [line for line in said if "attached" not in line]
        # How often it is called may depend on when the server answers.
        assert len(told) == collaborator.has_failed, (class_, name, told)
        failed += collaborator.has_failed
    assert failed > len(METHODS) / 3
