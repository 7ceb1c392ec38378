"""A training that is debugged arrives at the very bits at which it arrives alone."""

from __future__ import annotations

import dataclasses
import warnings
from typing import TYPE_CHECKING

import pytest

from tests.agents.pytorch import trainings
from tests.agents.pytorch.watched_training import Person, debug

if TYPE_CHECKING:
    import torch

    from tensight.client import Session
    from tests.server.running import RunningServer

STEPS = 50
FAMILIES = ("cnn", "transformer", "rnn", "lbfgs", "accumulation", "checkpointing", "gan", "vae", "scaler")


@pytest.fixture(scope="module")
def alone() -> dict[str, tuple[str, list[float]]]:
    """Fingerprints and losses of the trainings without a debugger."""
    found = {}
    for name in FAMILIES:
        training = trainings.HEALTHY[name]()
        losses = training.run(STEPS)
        found[name] = training.fingerprint(), losses
    return found


def watch_everything(session: Session) -> None:
    """Set the recommended watchpoints, and ask for every value besides."""
    session.watch_recommended()
    session.watch("tensor_too_large", on="all", max_gt=1e30)
    session.watch("weight_change_too_large", abs_mean_update_ratio_gt=1e30)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("capture", ["modules", "ops"])
@pytest.mark.parametrize("name", FAMILIES)
def test_every_bit_is_as_without_the_debugger(
    torch_server: RunningServer, alone: dict[str, tuple[str, list[float]]], name: str, capture: str
) -> None:
    training = trainings.HEALTHY[name]()
    finding = debug(torch_server, training, STEPS, person=Person(watch_everything), capture=capture)
    assert finding.ended, finding.summary()
    assert training.fingerprint() == alone[name][0]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("capture", ["modules", "ops"])
def test_every_bit_is_the_same_when_nothing_is_watched(
    torch_server: RunningServer, alone: dict[str, tuple[str, list[float]]], capture: str
) -> None:
    training = trainings.HEALTHY["cnn"]()
    debug(torch_server, training, STEPS, person=Person(lambda _: None), capture=capture)
    assert training.fingerprint() == alone["cnn"][0]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("capture", ["modules", "ops"])
def test_python_warns_once_as_without_the_debugger(
    torch_server: RunningServer, capture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = trainings.HEALTHY["cnn"]()

    def step(number: int) -> torch.Tensor:
        warnings.warn("the script's own", UserWarning, stacklevel=1)
        return training.step(number)

    shown: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        monkeypatch.setattr(warnings, "showwarning", lambda message, *_: shown.append(str(message)))
        debug(torch_server, dataclasses.replace(training, step=step), 5, capture=capture)
    assert shown.count("the script's own") == 1
