"""Loss, learning rates and norm of the gradients of a training that nobody watches; watchpoints while it runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
import torch
from torch import nn

import tensight
from tensight.client import Session
from tensight.sessions.records import State
from tests.server.running import RunningServer

PATIENCE_S = 60.0
MOST = 0.25


@dataclass
class Training:
    """A training with two groups of parameters, which notes what it does.

    Attributes
    ----------
    told : dict of int to tuple of float
        Of each step: loss, both learning rates, norm of the gradients before clipping, if any.
    clip : {"", "norm", "value"}
        How gradients are clipped; "value" through ``.data``, as many scripts of reinforcement learning do.
    """

    scaler: torch.amp.GradScaler | None = None
    nan_at: int = 0
    clip: str = ""
    told: dict[int, tuple[float, float, float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
        groups = [{"params": self.model[0].parameters()}, {"params": self.model[2].parameters(), "lr": 0.02}]
        self.optimizer = torch.optim.SGD(groups, lr=0.05)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 2, 0.5)

    def run(self, steps: int) -> None:
        for step in range(1, steps + 1):
            inputs = torch.randn(16, 6)
            loss = (self.model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
            loss = loss * math.nan if step == self.nan_at else loss
            self.optimizer.zero_grad()
            (loss if self.scaler is None else self.scaler.scale(loss)).backward()
            if self.scaler is not None:
                self.scaler.unscale_(self.optimizer)
            norm = math.sqrt(sum(float(one.grad.square().sum()) for one in self.model.parameters()))
            self.told[step] = (loss.item(), *(group["lr"] for group in self.optimizer.param_groups), norm)
            if self.clip == "norm":
                nn.utils.clip_grad_norm_(self.model.parameters(), MOST)
            for one in self.model.parameters() if self.clip == "value" else ():
                one.grad.data.clamp_(-1e-3, 1e-3)
            if self.scaler is None:
                self.optimizer.step()
            else:
                self.scaler.step(self.optimizer)
                self.scaler.update()
            self.schedule.step()


def debugged(
    server: RunningServer, job: str, training: Training, steps: int, do: Callable[[Session], Any], **settings: Any
) -> Any:
    """Train, and return what a person finds out meanwhile."""
    host, _, port = str(server.debugger).rpartition(":")
    where = {"host": host, "port": int(port), "job": job, "connect_within_s": PATIENCE_S}

    def attend() -> Any:
        with tensight.connect(server.url) as connection:
            session = connection.wait_for_session(PATIENCE_S, name=job)
            session.wait(PATIENCE_S)
            try:
                return do(session)
            finally:
                session.terminate()

    with ThreadPoolExecutor(1) as threads:
        found = threads.submit(attend)
        try:
            with tensight.torch.debug(training.model, training.optimizer, **where, break_at_start=True, **settings):
                training.run(steps)
        except SystemExit:
            """The person ended it."""
        return found.result(PATIENCE_S)


def curves_of(server: RunningServer, session: Session) -> dict[str, dict[int, float | None]]:
    found = httpx.get(f"{server.url}/api/v1/sessions/{session.id}/curves").raise_for_status().json()
    return {
        f"{one['name']} {one['slot']}": dict(zip(one["steps"], one["values"], strict=True)) for one in found["curves"]
    }


@pytest.mark.parametrize("kind", ["plain", "operators", "scaled", "nan"])
def test_the_loss_the_learning_rates_and_the_norm_of_the_gradients_are_those_of_the_training(
    torch_server: RunningServer, kind: str
) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0) if kind == "scaled" else None
    training = Training(scaler, nan_at=3 if kind == "nan" else 0)

    def look(session: Session) -> tuple[dict[str, dict[int, float | None]], list[str]]:
        for _ in range(4):
            session.step().wait(PATIENCE_S)
        return curves_of(torch_server, session), [node.entry.path for node in session.nodes()]

    capture = "ops" if kind == "operators" else "modules"
    found, nodes = debugged(torch_server, f"curves-{kind}", training, 5, look, capture=capture)
    assert set(found) == {"loss 0", "learning_rate 0", "learning_rate 1", "gradient_norm 0"}
    names = ("loss 0", "learning_rate 0", "learning_rate 1", "gradient_norm 0")
    for step in range(1, 5):
        for name, value in zip(names, training.told[step], strict=True):
            told = found[name][step]
            assert told is None if math.isnan(value) else told == pytest.approx(value, rel=1e-5), (name, step)
    assert not any("detach" in name or "norm" in name for name in nodes), "what is read leaves no trace in the graph"


@pytest.mark.parametrize(("clip", "is_scaled"), [("norm", False), ("norm", True), ("value", False)])
def test_norms_of_gradients_are_told_before_and_after_clipping(
    torch_server: RunningServer, clip: str, is_scaled: bool
) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0) if is_scaled else None
    training = Training(scaler, clip=clip)

    def look(session: Session) -> dict[str, dict[int, float | None]]:
        for _ in range(3):
            session.step().wait(PATIENCE_S)
        return curves_of(torch_server, session)

    found = debugged(torch_server, f"clipped-{clip}-{is_scaled}", training, 4, look)
    before, after = found["gradient_norm_before_clipping 0"], found["gradient_norm 0"]
    for step in range(1, 4):
        unclipped = training.told[step][3]
        assert before[step] == pytest.approx(unclipped, rel=1e-5)
        told = after[step]
        assert told is not None
        if clip == "norm":
            assert told == pytest.approx(min(unclipped, MOST), rel=1e-5)
        assert told < unclipped


def test_the_loss_of_the_step_at_which_a_watchpoint_stops_is_told(torch_server: RunningServer) -> None:
    """Of steps of a millisecond one in hundreds has its numbers taken; nobody knew that this one would be looked at."""
    training = Training(nan_at=23)

    def look(session: Session) -> tuple[int, dict[str, dict[int, float | None]]]:
        session.watch("tensor_overflow", on="gradients")
        session.continue_().wait(PATIENCE_S)
        return session.summary.step, curves_of(torch_server, session)

    step, found = debugged(torch_server, "stops-unforeseen", training, 50, look)
    assert step == 23
    assert found["loss 0"][23] is None, "NaN"
    assert len(found["learning_rate 0"]) < 23, "the others are taken of some steps only"


def test_a_training_that_only_runs_tells_its_curves_and_is_watched_from_the_next_step_on(
    torch_server: RunningServer,
) -> None:
    training = Training()

    def watch_while_it_runs(session: Session) -> Any:
        session.continue_()
        session.wait_until(
            lambda record: record.step > 100 and len(curves_of(torch_server, session).get("loss 0", ())) > 2, PATIENCE_S
        )
        found = curves_of(torch_server, session)
        capabilities = session.summary.capabilities
        before = session.summary.step
        watched = session.watch("tensor_too_large", on="weights", max_gt=-1e9)
        stopped = session.wait(PATIENCE_S)
        return found, capabilities, before, watched, stopped

    found, capabilities, before, watched, stopped = debugged(
        torch_server, "only-runs", training, 10**9, watch_while_it_runs
    )
    assert capabilities.can_edit_watchpoints
    assert watched.nodes == 4
    assert (stopped.state, stopped.hits) == (State.PAUSED, 4)
    assert stopped.step > before
    steps = found["loss 0"]
    assert 2 < len(steps) < before, "of some steps only"
    for step, loss in steps.items():
        assert loss == pytest.approx(training.told[step][0], rel=1e-5)
