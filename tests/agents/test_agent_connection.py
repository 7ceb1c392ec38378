"""A training that is debugged does not depend on the debug server: that may come late, hang, go, be another."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
import trustme

import tensight
from tensight import wire
from tensight.agents.core.agent import Terminated
from tensight.sessions.records import State
from tensight.wire.debugger_pb2 import EventReply, SetCMD, TensorProto, WatchCondition, WatchNode
from tests.agents.agent_stage import Scene, session_named, settings_for, until
from tests.agents.numpy_training import FORWARD, WEIGHTS
from tests.agents.old_debug_server import OldServer
from tests.processes.ports import kept_port
from tests.server.running import kept_ports, running_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.server.running import RunningServer

MANY = 1_000_000_000


@pytest.fixture
def train() -> Iterator[Callable[..., Scene]]:
    """Starts trainings, which end with the test."""
    with ExitStack() as stack:

        def start(server: Any, steps: int = MANY, **chosen: Any) -> Scene:
            network = chosen.pop("network", None)
            scene = Scene(settings_for(server, **chosen), steps, network).start()
            stack.callback(scene.abandon, None)
            return scene

        yield start


@pytest.fixture
def stage() -> Iterator[Callable[..., Scene]]:
    """Starts trainings with something that happens before each of their steps."""
    with ExitStack() as stack:

        def start(server: Any, network: dict[str, Any], before_step: Callable[[int], None], **chosen: Any) -> Scene:
            scene = Scene(settings_for(server, **chosen), MANY, network, before_step=before_step)
            stack.callback(scene.abandon, None)
            return scene.start()

        yield start


def goes_on(scene: Scene, steps: int = 100) -> None:
    """Wait until a training has done some more steps."""
    target = scene.steps + steps
    until(lambda: scene.steps >= target, "the training goes on")


# --- Tensight's server ---


def test_a_server_that_comes_late_finds_the_training(tmp_path: Path, train: Callable[..., Scene]) -> None:
    port = str(kept_port())
    scene = train(f"127.0.0.1:{port}", connect_within_s=None, recommended=True, job="late")
    goes_on(scene)
    with (
        running_server(tmp_path / "workspace", "--debugger-port", port) as server,
        tensight.connect(server.url) as person,
    ):
        session = session_named(person, "late")
        until(lambda: scene.debugger.agent.checks.watches.any, "the recommended watchpoints are set")
        assert session.pause().wait(30).state is State.PAUSED
        assert session.tensor(FORWARD[1]).numpy().shape == (32, 16)
        session.terminate()
        assert isinstance(scene.finish(), Terminated)


def test_a_training_that_runs_goes_on_without_its_server_and_with_it_when_it_is_back(
    tmp_path: Path, train: Callable[..., Scene], capsys: pytest.CaptureFixture[str]
) -> None:
    workspace, ports = tmp_path / "workspace", kept_ports()
    with running_server(workspace, *ports) as first:
        scene = train(first, job="restarted")
        with tensight.connect(first.url) as person:
            session_named(person, "restarted")
            goes_on(scene)
            first.kill()
        goes_on(scene)
        until(lambda: not scene.debugger.agent._server.attachment.is_attached, "the loss is noticed")
        step = scene.steps
        goes_on(scene)
        with running_server(workspace, *ports) as second, tensight.connect(second.url) as person:
            session = session_named(person, "restarted")
            record = session.pause().wait(30)
            assert record.state is State.PAUSED
            assert record.step > step
            assert len(person.sessions()) == 1
            session.terminate()
            assert isinstance(scene.finish(), Terminated)
    lines = [line for line in capsys.readouterr().err.splitlines() if "lost the debug server" in line]
    assert len(lines) == 1


def test_a_person_who_waits_finds_the_training_where_it_stood_when_the_server_is_back(
    tmp_path: Path, train: Callable[..., Scene]
) -> None:
    workspace, ports = tmp_path / "workspace", kept_ports()
    with running_server(workspace, *ports) as first:
        scene = train(first, job="waits", break_at_start=True)
        with tensight.connect(first.url) as person:
            session = session_named(person, "waits")
            session.wait(30)
            session.step(2).wait(30)
            value = session.tensor(WEIGHTS[0]).numpy()
        first.kill()
        with running_server(workspace, *ports) as second, tensight.connect(second.url) as person:
            session = session_named(person, "waits")
            record = session.wait(30)
            assert (record.state, record.step, scene.steps) == (State.PAUSED, 2, 2)
            assert (session.tensor(WEIGHTS[0]).numpy() == value).all()
            assert session.tensor(FORWARD[0]).numpy().shape == (32, 16)
            assert session.step().wait(30).step == 3
            session.terminate()
            scene.finish()


@pytest.mark.parametrize(
    ("network", "steps", "is_held"),
    [
        pytest.param({"other_at": {3}}, -1, False, id="to ask"),
        pytest.param({"nan_at": 3}, -1, True, id="for a hit"),
        pytest.param({}, 3, True, id="for a person"),
    ],
)
def test_a_training_stays_stopped_for_a_person_or_a_hit_when_the_server_is_killed_and_goes_on_otherwise(
    tmp_path: Path, stage: Callable[..., Scene], network: dict[str, Any], steps: int, is_held: bool
) -> None:
    workspace, ports = tmp_path / "workspace", kept_ports()
    with running_server(workspace, *ports) as first:

        def before_step(number: int) -> None:
            if number == 3:
                first.kill()

        chosen = {"job": "killed", "recommended": True, "break_at_start": True}
        stage(first, network, before_step, **chosen)
        with tensight.connect(first.url) as person:
            session = session_named(person, "killed")
            session.wait(30)
            session.continue_(steps)
            first.wait()
    with running_server(workspace, *ports) as second, tensight.connect(second.url) as person:
        session = session_named(person, "killed")
        if is_held:
            assert session.wait(30).state is State.PAUSED
            assert session.summary.step == 3
        else:
            until(lambda: session.summary.step > 10, "the training goes on")
            until(lambda: session.summary.state is State.RUNNING, "it is seen to run")
        session.terminate()


def test_a_training_goes_on_whose_next_server_is_killed_when_it_has_just_attached_again(
    tmp_path: Path, stage: Callable[..., Scene]
) -> None:
    workspace, ports = tmp_path / "workspace", kept_ports()
    killed: list[RunningServer] = []
    with ExitStack() as stack:
        first = stack.enter_context(running_server(workspace, *ports))
        running = [first]

        was_lost: list[int] = []

        def before_step(number: int) -> None:
            is_attached = scene.debugger.agent._server.attachment.is_attached
            if killed and not is_attached:
                was_lost.append(number)
            is_back = len(killed) == 1 and bool(was_lost) and is_attached
            if is_back:
                # It has attached at the end of the last step, and asks for commands at the end of this one.
                until(lambda: len(running) == 2, "the second server is known")
            if is_back or number == 5:
                running[-1].kill()
                killed.append(running[-1])

        scene = stage(first, {}, before_step, job="killed twice")
        until(lambda: killed == running, "the first server is killed")
        running.append(stack.enter_context(running_server(workspace, *ports)))
        until(lambda: killed == running, "the second server is killed")
        third = stack.enter_context(running_server(workspace, *ports))
        person = stack.enter_context(tensight.connect(third.url))
        session = session_named(person, "killed twice")
        step = session.summary.step
        until(lambda: session.summary.step > step + 10, "the training goes on")
        session.terminate()


def test_a_pause_of_a_person_outlives_the_server(tmp_path: Path, train: Callable[..., Scene]) -> None:
    workspace, ports = tmp_path / "workspace", kept_ports()
    with running_server(workspace, *ports) as first:
        scene = train(first, job="paused")
        with tensight.connect(first.url) as person:
            session = session_named(person, "paused")
            goes_on(scene)
            step = session.pause().wait(30).step
        first.kill()
    with running_server(workspace, *ports) as second, tensight.connect(second.url) as person:
        record = session_named(person, "paused").wait(30)
        assert (record.state, record.step, scene.steps) == (State.PAUSED, step, step)
        session_named(person, "paused").terminate()


def test_a_training_that_is_attached_does_not_attach_again_because_the_thread_beside_it_found_the_server_late(
    train: Callable[..., Scene], agent_server: RunningServer, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = train(agent_server, job="found late", break_at_start=True)
    with tensight.connect(agent_server.url) as person:
        session = session_named(person, "found late")
        session.wait(30)
        # It was looking while the training, which stood still, looked and attached itself.
        scene.debugger.agent._server.background.is_back = True
        assert [session.step().wait(30).step for _ in range(2)] == [1, 2]
        session.terminate()
        scene.finish()
    assert capsys.readouterr().err.count("attached to the debug server") == 1


def test_what_was_told_before_the_server_was_killed_is_there_when_the_run_is_opened_again(
    tmp_path: Path, train: Callable[..., Scene]
) -> None:
    workspace = tmp_path / "workspace"
    with running_server(workspace) as first:
        scene = train(first, job="cut short", break_at_start=True)
        with tensight.connect(first.url) as person:
            session = session_named(person, "cut short")
            session.wait(30)
            session.watch("tensor_too_large", on="weights", max_gt=-1000)
            session.step().wait(30)
            told = session.statistics()
            hits = session.summary.hits
        until((workspace / "runs/1/hits.json").exists, "hits on disk")
        scene.debugger.agent._server.attachment._settings = settings_for(first, connect_within_s=0.2)
        first.kill()
        # On another port, so that the training does not come back.
        with running_server(workspace) as second, tensight.connect(second.url) as person:
            (dump,) = person.dumps()
            assert (dump.name, dump.title) == ("runs/1", "cut short")
            for _ in range(2):
                opened = person.open(dump.name, resume=True)
                opened.wait(30)
                assert (opened.name, opened.summary.total_steps) == ("cut short", 1)
                opened.go_to(1)
                assert opened.summary.hits == hits > 0
                assert {row.address for row in opened.statistics()} >= {row.address for row in told}
                opened.close()
        scene.abandon(None)


def test_a_training_that_is_to_wait_for_its_server_does(tmp_path: Path, train: Callable[..., Scene]) -> None:
    workspace, ports = tmp_path / "workspace", kept_ports()
    with running_server(workspace, *ports) as first:
        scene = train(first, job="patient", on_disconnect="wait")
        with tensight.connect(first.url) as person:
            session_named(person, "patient")
            goes_on(scene)
        first.kill()
        until(lambda: not scene.debugger.agent._server.attachment.is_attached, "the loss is noticed")
        step = scene.steps
        with running_server(workspace, *ports) as second, tensight.connect(second.url) as person:
            assert scene.steps == step
            session = session_named(person, "patient")
            goes_on(scene)
            session.terminate()
            scene.finish()


def test_a_training_whose_person_is_gone_with_the_server_goes_on(tmp_path: Path, train: Callable[..., Scene]) -> None:
    with running_server(tmp_path / "workspace") as server:
        scene = train(server, steps=3, job="left", break_at_start=True)
        with tensight.connect(server.url) as person:
            session_named(person, "left").wait(30)
        scene.debugger.agent._server.attachment._settings = settings_for(server, connect_within_s=0.2)
        server.kill()
        assert scene.finish() == 3


def test_a_server_that_hangs_does_not_hold_a_training_that_runs(tmp_path: Path, train: Callable[..., Scene]) -> None:
    with running_server(tmp_path / "workspace") as server:
        scene = train(server, job="hangs")
        with tensight.connect(server.url) as person:
            session = session_named(person, "hangs")
            goes_on(scene)
            server.process.send_signal(signal.SIGSTOP)
            try:
                goes_on(scene, 1000)
            finally:
                server.process.send_signal(signal.SIGCONT)
            assert session.pause().wait(30).state is State.PAUSED
            session.terminate()
            assert isinstance(scene.finish(), Terminated)


def test_a_session_that_a_person_closed_does_not_disturb_the_training(
    tmp_path: Path, train: Callable[..., Scene]
) -> None:
    with running_server(tmp_path / "workspace") as server, tensight.connect(server.url) as person:
        scene = train(server, job="closed")
        session_named(person, "closed")
        goes_on(scene)
        session_named(person, "closed").terminate()
        assert isinstance(scene.finish(), Terminated)


# --- access ---


def test_a_server_that_asks_for_a_token_is_shown_it(
    tmp_path: Path, train: Callable[..., Scene], capsys: pytest.CaptureFixture[str]
) -> None:
    token = "correct-horse-battery"  # noqa: S105 - made up
    (tmp_path / "token").write_text(token)
    with running_server(tmp_path / "workspace", "--token-file", str(tmp_path / "token")) as server:
        for shown, problem in (("", "needs an access token, and"), (token[1:], "refuses the access token")):
            # Nobody waits for a server that refuses.
            assert train(server, steps=2, token=shown, break_at_start=True).finish() == 2
            (line,) = capsys.readouterr().err.splitlines()
            assert line.startswith(f"tensight: the debug server at {server.debugger} {problem}")
            assert "TENSIGHT_TOKEN" in line
            assert line.endswith("; the training goes on without the debugger")
        scene = train(server, token=token, job="shown")
        with tensight.connect(server.url, token=token) as person:
            session_named(person, "shown").terminate()
            assert isinstance(scene.finish(), Terminated)


def test_a_server_with_a_certificate_is_talked_to_in_secret(
    tmp_path: Path, train: Callable[..., Scene], capsys: pytest.CaptureFixture[str]
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    issued = authority.issue_cert("127.0.0.1", "localhost")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "server.pem")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    options = (f"--tls-cert={tmp_path / 'server.pem'}", f"--tls-key={tmp_path / 'key.pem'}")
    with running_server(tmp_path / "workspace", *options) as server:
        assert train(server, steps=2, certificates=str(tmp_path / "missing.pem")).finish() == 2
        assert "missing.pem" in capsys.readouterr().err
        scene = train(server, certificates=str(tmp_path / "ca.pem"), job="secret")
        with tensight.connect(server.url, verify=str(tmp_path / "ca.pem")) as person:
            session_named(person, "secret").terminate()
            assert isinstance(scene.finish(), Terminated)


# --- the original's server ---


def request(node: str, **more: Any) -> TensorProto:
    return TensorProto(node_name=node.encode(), slot=b"0", **more)


def test_a_server_without_telemetry_is_spoken_to_as_mindspore_does(train: Callable[..., Scene]) -> None:
    with OldServer() as server:
        scene = train(server.address, steps=3)
        (first,) = server.wait_for("SendMetadata")
        server.wait_for("WaitCMD")
        assert (first.backend, first.ms_version, first.graph_num, first.cur_step) == ("GPU", "2.99.0", 1, 0)
        server.command(wire.run_step())
        server.wait_for("WaitCMD", 2)
        (waiting,) = server.wait_for("WaitCMD", 2)
        assert (waiting.cur_step, waiting.backend, waiting.cur_node) == (1, "GPU", "")
        server.command(wire.run_step(), wire.run_step(), wire.run_step())
        assert scene.finish() == 3
        assert [message.training_done for message in server.named("SendMetadata")[-1]] == [True]
        assert server.unknown_fields == []
        assert list(server.told())[:3] == ["SendMetadata", "SendGraph", "WaitCMD"]


def test_an_older_server_is_offered_its_own_version(train: Callable[..., Scene]) -> None:
    with OldServer("1.8.0") as server:
        scene = train(server.address, steps=1)
        server.wait_for("WaitCMD")
        versions = [sent[0].ms_version for sent in server.named("SendMetadata")]
        assert versions == ["2.99.0", "1.9.0", "1.8.0"]
        server.command(wire.run_step(), wire.run_step())
        assert scene.finish() == 1


def test_an_old_server_sets_watchpoints_and_is_told_of_hits(train: Callable[..., Scene]) -> None:
    with OldServer() as server:
        scene = train(server.address, steps=3, network={"nan_at": 2}, capture="modules")
        overflow = SetCMD(
            id=1,
            watch_condition=WatchCondition(condition=13),
            watch_nodes=[WatchNode(node_name=FORWARD[2].encode(), node_type=b"MatMul")],
        )
        server.command(wire.set_reply(overflow), *[wire.run_step()] * 4)
        (hit,) = server.wait_for("SendWatchpointHits")
        assert (hit.tensor.node_name, hit.tensor.slot, hit.id) == (FORWARD[2], "0", 1)
        assert scene.finish() == 3
        assert server.unknown_fields == []


def test_an_old_server_goes_from_operator_to_operator(train: Callable[..., Scene]) -> None:
    with OldServer() as server:
        scene = train(server.address, steps=1)
        server.command(*(wire.run_node() for _ in FORWARD))
        (waiting,) = server.wait_for("WaitCMD", 1 + len(FORWARD))
        assert (waiting.cur_step, waiting.cur_node) == (1, FORWARD[-1])
        server.command(wire.run_step(), wire.run_step())
        assert scene.finish() == 1


def test_an_old_server_is_sent_values_statistics_and_shapes(train: Callable[..., Scene]) -> None:
    asked = [request(FORWARD[0]), request("Default/fc1/" + WEIGHTS[0], truncate=True, iter=b"prev"), request("no/such")]
    with OldServer() as server:
        scene = train(server.address, steps=2)
        server.command(wire.run_step(), wire.run_step())
        server.command(*(wire.view_command(asked, level) for level in ("value", "statistics", "base")))
        value, weight, missing = server.wait_for("SendTensors")
        assert (list(value.dims), value.data_type, len(value.tensor_content)) == ([32, 16], 11, 2048)
        assert (list(weight.dims), weight.iter, weight.truncate) == ([8, 16], "prev", True)
        assert (missing.finished, missing.tensor_content, list(missing.dims)) == (True, b"", [])
        rows = server.wait_for("SendTensorStats")
        assert [row.statistics.count for row in rows] == [512, 128, 0]
        bases = server.wait_for("SendTensorBase")
        assert [(base.data_type, list(base.shape), base.data_size) for base in bases] == [
            (11, [32, 16], 2048),
            (11, [8, 16], 512),
            (0, [0], 0),
        ]
        assert server.unknown_fields == []
        server.command(wire.run_step())
        assert scene.finish() == 2


def test_an_old_server_ends_the_training(train: Callable[..., Scene]) -> None:
    with OldServer() as server:
        scene = train(server.address)
        server.command(wire.exit_command())
        assert isinstance(scene.finish(), Terminated)


def test_a_server_that_answers_with_nothing_to_do_is_asked_again(train: Callable[..., Scene]) -> None:
    with OldServer() as server:
        scene = train(server.address, steps=1)
        server.command(wire.ok(), EventReply(version_matched=True), wire.run_step(), wire.run_step())
        assert scene.finish() == 1


def test_a_server_that_fails_is_told_once_more_who_the_process_is(train: Callable[..., Scene]) -> None:
    with OldServer() as server:
        scene = train(server.address, steps=1)
        server.command(wire.failed(""), wire.failed(""), wire.run_step(), wire.run_step())
        assert scene.finish() == 1
        introduction = ["SendMetadata", "SendGraph"]
        assert list(server.told())[:7] == [*introduction, "WaitCMD", "WaitCMD", *introduction, "WaitCMD"]


def test_a_server_that_goes_on_failing_is_left(
    train: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tensight.agents.core.connection.commands._RETRY_S", 0.001)
    with OldServer() as server:
        scene = train(server.address, steps=5, connect_within_s=0.2)
        server.command(*[wire.failed("no graph, no commands")] * 100)
        assert scene.finish() == 5
    assert "no graph, no commands" in capsys.readouterr().err
