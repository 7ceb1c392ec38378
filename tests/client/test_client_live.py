"""A script drives a training process as a person does: the stand-in for an old MindSpore process obeys."""

from __future__ import annotations

import itertools
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tensight
from tensight.client import Server, Session, WaitError
from tensight.sessions.errors import StateError
from tensight.sessions.records import State
from tests.server.running import running_server
from tests.standin.training import Training

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.server.running import RunningServer

devices = itertools.count(10)
WEIGHT = "fc1.weight"


@pytest.fixture(scope="module")
def live_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("live")
    with running_server(folder / "workspace", "--summary-base-dir", str(folder)) as running:
        yield running


@pytest.fixture(scope="module")
def server(live_server: RunningServer) -> Iterator[Server]:
    with tensight.connect(live_server.url) as connected:
        yield connected


@pytest.fixture
def attach(live_server: RunningServer, server: Server) -> Iterator[Callable[..., tuple[Training, Session]]]:
    """Starts a training and returns it with its session, which stands before the first step."""
    with ExitStack() as stack:

        def start(scenario: str = "single-graph", **options: object) -> tuple[Training, Session]:
            assert live_server.debugger
            device = next(devices)
            training = stack.enter_context(Training(live_server.debugger, scenario, device=device, **options))
            session = server.wait_for_session(60, name=f"mindspore-{device}")
            assert session.wait(60).state is State.PAUSED
            return training, session

        yield start


def test_a_script_waits_for_a_training_that_starts_later(live_server: RunningServer, server: Server) -> None:
    with pytest.raises(WaitError, match="mindspore-2000"):
        server.wait_for_session(0.1, name="mindspore-2000")
    found: list[Session] = []
    waiting = threading.Thread(target=lambda: found.append(server.wait_for_session(60, name="mindspore-2001")))
    waiting.start()
    assert live_server.debugger
    with Training(live_server.debugger, device=2001) as training:
        waiting.join(60)
        (session,) = found
        record = session.wait(60)
        assert (record.state, record.step, record.capabilities.live) == (State.PAUSED, 0, True)
        session.terminate()
        assert training.finish() == 0


def test_a_script_that_waits_gets_the_training_that_attaches_next_not_one_that_is_there(
    live_server: RunningServer, server: Server, attach: Callable[..., tuple[Training, Session]]
) -> None:
    _, earlier = attach()
    with pytest.raises(
        WaitError, match=rf"{earlier.id} \({earlier.name}, paused\): server\.session\(NAME\) returns one"
    ):
        server.wait_for_session(0.1)
    assert server.wait_for_session(60, name=earlier.name).id == earlier.id
    found: list[Session] = []
    begun = threading.Event()

    def wait() -> None:
        with tensight.connect(live_server.url) as own:
            records = own._records

            def look() -> Any:
                known = records()
                begun.set()
                return known

            own._records = look  # type: ignore[method-assign]
            found.append(own.wait_for_session(60))

    waiting = threading.Thread(target=wait)
    waiting.start()
    begun.wait(60)
    _, later = attach()
    waiting.join(60)
    assert [session.id for session in found] == [later.id]


def test_a_script_runs_a_training_step_by_step_to_its_end(attach: Callable[..., tuple[Training, Session]]) -> None:
    training, session = attach(steps=4)
    assert session.step().wait(60).step == 1
    assert session.step(2).wait(60).step == 3
    record = session.continue_().wait(60)
    assert training.finish() == 0
    assert (record.state, record.step) == (State.FINISHED, 4)


def test_a_hit_stops_the_training_and_its_values_come_over_the_wire(
    attach: Callable[..., tuple[Training, Session]],
) -> None:
    _, session = attach(steps=5, nan_at=2)
    session.watch("tensor_overflow", name="overflow")
    record = session.continue_().wait(60)
    assert (record.state, record.step) == (State.PAUSED, 2)
    hits = session.hits()
    assert record.hits == sum(len(node.tensors) for node in hits) > 0
    assert {hit.name for node in hits for tensor in node.tensors for hit in tensor.hits} == {"overflow"}
    broken = session.tensor(hits[0].tensors[0])
    assert not np.isfinite(broken.numpy()).all()
    assert broken.statistics().nan_count == np.isnan(broken.numpy()).sum()


def test_a_parameter_is_compared_with_the_step_before(attach: Callable[..., tuple[Training, Session]]) -> None:
    _, session = attach(steps=5)
    session.step(2).wait(60)
    weight = session.tensor(WEIGHT)
    change = weight.numpy() - weight.previous.numpy()
    assert np.abs(change).max() > 0
    np.testing.assert_allclose(weight.difference().slice(), change, rtol=1e-6)
    assert weight.record.shape == change.shape


def test_a_script_cannot_ask_a_training_that_runs(attach: Callable[..., tuple[Training, Session]]) -> None:
    training, session = attach(steps=5, hold=["in step"])
    session.continue_(1)
    training.wait_for("hold")
    assert session.state is State.RUNNING
    with pytest.raises(WaitError, match="running"):
        session.wait(0.2)
    with pytest.raises(StateError) as refused:
        session.tensor(WEIGHT).numpy()
    assert refused.value.code == "not-paused"
    with pytest.raises(StateError):
        session.continue_()
    training.release()
    assert session.wait(60).step == 1


def test_pause_stops_a_training_that_would_run_for_ever(attach: Callable[..., tuple[Training, Session]]) -> None:
    _, session = attach(steps=1_000_000)
    record = session.continue_().pause().wait(60)
    assert record.state is State.PAUSED
    session.terminate()
    assert session.wait(60).state is State.TERMINATED


def test_events_follow_a_training_to_its_end(attach: Callable[..., tuple[Training, Session]]) -> None:
    _, session = attach(steps=2)
    session.continue_()
    states = []
    for event in session.events(timeout_s=60):
        if event.kind == "state":
            states.append(event.data["state"])
            if event.data["state"] == "finished":
                break
    assert states[-1] == "finished"
    assert {"running", "paused"} <= set(states)


def test_a_finished_training_can_still_be_looked_at(
    server: Server, attach: Callable[..., tuple[Training, Session]], tmp_path: Path
) -> None:
    training, session = attach(steps=3)
    session.step(2).wait(60)
    seen = session.tensor(WEIGHT).numpy()
    session.continue_().wait(60)
    assert training.finish() == 0
    assert len(session.graphs()) == 1
    np.testing.assert_array_equal(session.tensor(WEIGHT, step=2).numpy(), seen)
    np.testing.assert_array_equal(np.load(session.tensor(WEIGHT, step=2).save(tmp_path)), seen)
