"""A script drives a training that has Tensight's agent: it looks back, finds where NaN began, and walks operators."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tensight
from tensight.client import Server, Session, WaitError
from tensight.errors import InputError
from tensight.sessions.errors import StateError
from tensight.sessions.records import State
from tests.agents.agent_stage import PATIENCE_S, Scene, settings_for
from tests.agents.numpy_training import FORWARD, LOSS, WEIGHTS
from tests.server.running import running_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.server.running import RunningServer

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "drive-from-python.md"


@pytest.fixture(scope="module")
def agent_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("agents")
    with running_server(folder / "workspace", "--summary-base-dir", str(folder)) as running:
        yield running


@pytest.fixture(scope="module")
def server(agent_server: RunningServer) -> Iterator[Server]:
    with tensight.connect(agent_server.url) as connected:
        yield connected


@pytest.fixture
def train(
    agent_server: RunningServer, server: Server, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[..., tuple[Scene, Session]]]:
    """Starts a training and returns it with its session; it is ended afterwards."""
    begun: list[tuple[Scene, Session]] = []

    def start(steps: int, network: dict[str, Any] | None = None, **chosen: Any) -> tuple[Scene, Session]:
        job = chosen.pop("job", request.node.name)
        settings = settings_for(
            agent_server,
            job=job,
            record="ring:10",
            record_folder=str(tmp_path / "ring"),
            **{"break_at_start": True, **chosen},
        )
        scene = Scene(settings, steps, network).start()
        session = server.wait_for_session(PATIENCE_S, name=job)
        begun.append((scene, session))
        return scene, session

    yield start
    for scene, session in begun:
        scene.abandon(session)


def test_a_script_looks_back_and_goes_on_from_the_present(train: Callable[..., tuple[Scene, Session]]) -> None:
    _, session = train(8)
    session.wait(PATIENCE_S)
    weights = {}
    for step in (1, 2, 3):
        assert session.step().wait(PATIENCE_S).step == step
        weights[step] = session.tensor(WEIGHTS[0]).numpy()
    assert session.summary.capabilities.can_step_back
    record = session.back(2).wait(PATIENCE_S)
    assert (record.step, record.present_step, record.state) == (1, 3, State.PAUSED)
    past = session.tensor(WEIGHTS[0])
    np.testing.assert_array_equal(past.numpy(), weights[1])
    np.testing.assert_array_equal(session.go_to(2).tensor(WEIGHTS[0]).slice("[0, :]"), weights[2][0])
    with pytest.raises(InputError, match="there is no step 4"):
        session.go_to(4)
    record = session.step().wait(PATIENCE_S)
    assert (record.step, record.present_step) == (4, None)
    with pytest.raises(StateError):
        session.previous_node()


def test_a_script_finds_where_nan_began_and_the_code_around_it(train: Callable[..., tuple[Scene, Session]]) -> None:
    _, session = train(9, {"nan_at": 4})
    session.wait(PATIENCE_S)
    session.watch("tensor_overflow")
    record = session.continue_().wait(PATIENCE_S)
    assert (record.step, record.hits > 0) == (4, True)
    (origin,) = [one for one in session.origins() if one.anomaly == "nan"]
    assert (origin.node, origin.step, origin.certain) == (FORWARD[2], 4, True)
    assert origin.line is not None
    assert origin.line.code.startswith("see(FORWARD[2]")
    assert [line.code.strip() for line in origin.excerpt if line.line == origin.line.line] == [origin.line.code]
    assert session.back().wait(PATIENCE_S).hits == 0
    assert not [one for one in session.origins() if one.anomaly == "nan"]


def test_a_script_walks_from_operator_to_operator(train: Callable[..., tuple[Scene, Session]]) -> None:
    _, session = train(6)
    session.wait(PATIENCE_S)
    session.step().wait(PATIENCE_S)
    assert session.next_node().wait(PATIENCE_S).node == FORWARD[0]
    record = session.run_to(LOSS).wait(PATIENCE_S)
    assert (record.node, record.step) == (LOSS, 2)
    assert session.tensor(FORWARD[1]).numpy().min() == 0
    record = session.step().wait(PATIENCE_S)
    assert (record.node, record.step) == ("", 2)


def test_a_script_waits_for_a_step_of_a_training_that_goes_on_by_itself(
    train: Callable[..., tuple[Scene, Session]],
) -> None:
    scene, session = train(100_000, break_at_start=False)
    assert session.wait_until(lambda record: record.step >= 20, PATIENCE_S).step >= 20
    with pytest.raises(WaitError, match="is running at step"):
        session.wait_until(lambda record: record.step > 10**9, 0.05)
    assert session.pause().wait(PATIENCE_S).state is State.PAUSED
    session.terminate()
    scene.finish()
    with pytest.raises(WaitError, match="is terminated"):
        session.wait_until(lambda record: record.step > 10**9, PATIENCE_S)


def test_the_recommended_set_is_there_before_the_first_step(train: Callable[..., tuple[Scene, Session]]) -> None:
    _, session = train(60, {"nan_at": 30}, break_at_start=False, recommended=True)
    record = session.wait(PATIENCE_S)
    assert record.recommended_offered
    assert record.state is State.PAUSED, record
    names = {hit.name for node in session.hits() for tensor in node.tensors for hit in tensor.hits}
    assert names <= {point.name for point in session.watchpoints()}


def test_the_pages_program_runs(
    agent_server: RunningServer,
    server: Server,
    train: Callable[..., tuple[Scene, Session]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    programs = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (program,) = [one for one in programs if "# a training with an agent" in one]
    _, session = train(9, {"nan_at": 4}, job="nightly")
    exec(program, {"server": server})  # noqa: S102 - our own page
    printed = capsys.readouterr().out
    assert f"began at step 4 in {FORWARD[2]} (no NaN in its inputs)" in printed
    assert "3 of 4" in printed
    assert session.summary.node


def test_trainings_that_stand_are_compared_by_what_they_have_told(train: Callable[..., tuple[Scene, Session]]) -> None:
    _, one = train(100_000, job="healthy")
    _, other = train(100_000, {"nan_at": 3}, job="sick")
    for session in (one, other):
        session.wait(PATIENCE_S)
        session.step().wait(PATIENCE_S)
    with one.compare(other) as early:
        record = early.wait(PATIENCE_S)
        assert (record.verdict, record.ranks[0].steps) == ("same", (1,)), record
        assert (record.a.live, record.a.step, record.a.session) == (True, 1, one.id)
        assert "at step 1" in record.b.note
    for session in (one, other):
        session.step(2).wait(PATIENCE_S)
    later = one.compare(other)
    assert later.id != early.id
    assert (later.verdict, later.first.name if later.first else "") == ("different", FORWARD[2]), later.sentence
    assert "NaN or Inf where the other run has none" in later.sentence
    (divergent,) = later.operators(only="divergent", phase="forward")
    assert divergent.name == FORWARD[2]
    assert "<td>→</td>" in later.operators(only="divergent")._repr_html_()
    assert FORWARD[2] in later._repr_html_()
    one.continue_()
    with pytest.raises(StateError, match=f"session {one.id} .* is running; pause it") as refused:
        other.compare(one)
    assert refused.value.code == "not-paused"
    one.pause().wait(PATIENCE_S)


def test_ranks_that_drift_apart_are_stopped_and_named(agent_server: RunningServer, server: Server) -> None:
    scenes = [
        Scene(settings_for(agent_server, job="drift", break_at_start=True), 50, {"seed": rank}, rank=rank, world_size=2)
        for rank in range(2)
    ]
    for scene in scenes:
        scene.start()
    session = server.wait_for_session(PATIENCE_S, name="drift")
    try:
        session.wait_until(lambda record: len(record.ranks) == 2 and record.state is State.PAUSED, PATIENCE_S)
        session.watch("weights_differ")
        record = session.continue_().wait(PATIENCE_S)
        assert record.state is State.PAUSED
        found = {(node.rank, node.node) for node in session.hits()}
        assert found >= {(rank, weight) for rank in range(2) for weight in WEIGHTS}
        assert {rank.step for rank in record.ranks} == {record.step}
    finally:
        for scene in scenes:
            scene.abandon(session)
