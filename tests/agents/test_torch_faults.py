"""Whatever happens to the server, the script or the machine: the training's own outcome is as without the debugger."""

from __future__ import annotations

import os
import resource
import signal
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tensight
from tensight.errors import TensightError
from tensight.sessions.records import State
from tests.agents.training_process import Outcome, TrainingProcess
from tests.processes.forked import PYTORCH, Imports
from tests.server.running import RunningServer, kept_ports, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tensight.client import Session


SCRIPT = Path(__file__).with_name("troubled_training.py")
PATIENCE_S = 60.0
NO_SERVER = "127.0.0.1:9"
"""An address at which no server ever answers: the port is reserved."""

FAILING_HOOKS = 7
"""How many kinds of hooks the script has."""
MISTAKE = "ValueError: the training's own mistake"


class Run(TrainingProcess):
    """A training in a process of its own; `debugger` is where it looks for a server, if it is debugged.

    It is forked, and no child of this process, unless `imports` is None.
    """

    def __init__(
        self,
        *arguments: str,
        debugger: str = "",
        options: tuple[str, ...] = (),
        variables: Mapping[str, str] | None = None,
        folder: Path,
        imports: Imports | None = PYTORCH,
    ) -> None:
        command = [sys.executable, str(SCRIPT), *arguments]
        if debugger:
            host, _, port = debugger.rpartition(":")
            where = ("--host", host, "--port", port)
            command = [sys.executable, "-m", "tensight", "run", *where, *options, str(SCRIPT), *arguments]
        super().__init__(command, folder, environment={**os.environ, **(variables or {})}, imports=imports)

    def __enter__(self) -> Run:
        return self


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The training without a debugger and without trouble."""
    with Run(folder=tmp_path_factory.mktemp("alone")) as run:
        return run.outcome()


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server to which nothing happens."""
    with running_server(tmp_path_factory.mktemp("faults") / "workspace") as server:
        yield server


@contextmanager
def attached(server: RunningServer, name: str) -> Iterator[Session]:
    """Give the session of the training of a name."""
    with tensight.connect(server.url) as client:
        yield client.wait_for_session(PATIENCE_S, name=name)


def debugged(name: str, *more: str) -> tuple[str, ...]:
    """Return the options of a training that everything is watched of."""
    return ("--job", name, "--recommended", *more)


# --- the server ---


def waiting_for_ever(folder: Path) -> dict[str, str]:
    """Return an environment in which whoever waits for a server at its start does not come to an end."""
    (folder / "sitecustomize.py").write_text(
        "from tensight.agents.core.connection import attachment; attachment._WAIT_S = 1e6\n"
    )
    return {"PYTHONPATH": os.pathsep.join((str(folder), os.environ.get("PYTHONPATH", "")))}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("way", ["break", "run", "variable"])
def test_without_any_server_the_training_runs_as_alone(tmp_path: Path, undisturbed: Outcome, way: str) -> None:
    host, _, port = NO_SERVER.rpartition(":")
    by_variable = {"TENSIGHT_DEBUG": "1", "TENSIGHT_DEBUGGER_HOST": host, "TENSIGHT_DEBUGGER_PORT": port}
    how: dict[str, dict[str, Any]] = {
        "break": {"debugger": NO_SERVER, "options": ("--break-at-start",)},
        "run": {"debugger": NO_SERVER, "variables": waiting_for_ever(tmp_path)},
        "variable": {"variables": {**waiting_for_ever(tmp_path), **by_variable}},
    }
    with Run(folder=tmp_path, **how[way]) as run:
        outcome = run.outcome()
    assert outcome.own() == undisturbed.own()
    assert len(outcome.notices) == 1


@pytest.mark.parametrize("capture", ["modules", "ops"])
def test_a_server_that_is_killed_while_the_training_runs_takes_nothing_with_it(
    tmp_path: Path, undisturbed: Outcome, capture: str
) -> None:
    with running_server(tmp_path / "workspace") as server:
        options = debugged("killed", "--capture", capture)
        with Run("--stop-at", "8", debugger=str(server.debugger), options=options, folder=tmp_path) as run:
            run.until("step 8")
            server.kill()
            run.go_on()
            outcome = run.outcome()
    assert outcome.own() == undisturbed.own()
    assert outcome.notices


def test_a_server_that_is_killed_while_the_training_waits_for_a_person_lets_it_go_on(
    tmp_path: Path, undisturbed: Outcome
) -> None:
    with running_server(tmp_path / "workspace") as server:
        options = ("--job", "waiting", "--break-at-start")
        with Run(debugger=str(server.debugger), options=options, folder=tmp_path) as run:
            with attached(server, "waiting") as session:
                assert session.wait(PATIENCE_S).step == 0
            server.kill()
            outcome = run.outcome()
    assert outcome.own() == undisturbed.own()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("notices", [True, False])
def test_a_server_that_is_restarted_finds_the_training_again(
    tmp_path: Path, undisturbed: Outcome, notices: bool
) -> None:
    workspace, enough, ports = tmp_path / "workspace", tmp_path / "enough", kept_ports()
    with running_server(workspace, *ports) as first:
        arguments, options = ("--stop-at", "8", "--linger", str(enough)), debugged("restarted")
        with Run(*arguments, debugger=str(first.debugger), options=options, folder=tmp_path) as run:
            run.until("step 8")
            if not notices:
                run.process.send_signal(signal.SIGSTOP)
            first.kill()
            with running_server(workspace, *ports) as second:
                if not notices:
                    run.process.send_signal(signal.SIGCONT)
                run.go_on()
                with attached(second, "restarted") as session:
                    session.pause().wait(PATIENCE_S)
                    session.continue_()
                    enough.touch()
                    outcome = run.outcome()
                    assert session.wait(PATIENCE_S).step > 8
    assert outcome.own() == undisturbed.own()


def test_a_server_that_does_not_answer_any_more_does_not_hold_the_training(
    tmp_path: Path, undisturbed: Outcome
) -> None:
    with running_server(tmp_path / "workspace") as server:
        options = debugged("slow")
        with Run("--stop-at", "8", debugger=str(server.debugger), options=options, folder=tmp_path) as run:
            run.until("step 8")
            server.process.send_signal(signal.SIGSTOP)
            try:
                run.go_on()
                outcome = run.outcome()
            finally:
                server.process.send_signal(signal.SIGCONT)
    assert outcome.own() == undisturbed.own()


# --- the script ---


def errors_of_script(outcome: Outcome) -> list[str]:
    """Return what it says of exceptions, without the lines of PyTorch, and of the debugger, that they came through."""
    return [line for line in outcome.errors if SCRIPT.name in line or not line.startswith(" ")]


@pytest.mark.long
def test_hooks_that_fail_and_an_end_in_the_middle_of_a_step_are_as_alone(
    tmp_path: Path, lasting: RunningServer
) -> None:
    arguments = ("--failing-hooks", "--end-at", "9", "--end-by")
    with Run(*arguments, "raise", folder=tmp_path) as run:
        alone = run.outcome()
    assert alone.code == 1
    assert errors_of_script(alone)[-1] == MISTAKE
    for way, capture, code in (("raise", "ops", 1), ("exit", "modules", 3), ("_exit", "ops", 4)):
        options = debugged(way, "--capture", capture)
        with Run(*arguments, way, debugger=str(lasting.debugger), options=options, folder=tmp_path) as run:
            outcome = run.outcome()
        assert (outcome.code, outcome.output) == (code, alone.output)
        errors = errors_of_script(outcome)
        assert errors == errors_of_script(alone)[: len(errors)]
        assert errors.count(MISTAKE) == FAILING_HOOKS + (way == "raise")
    with tensight.connect(lasting.url) as client:
        (message,) = (session.summary.message for session in client.sessions() if session.name == "raise")
    assert message == f"the training was ended by {MISTAKE}"


@pytest.mark.long
def test_a_training_that_was_stopped_by_the_shell_goes_on_with_its_session(
    tmp_path: Path, lasting: RunningServer, undisturbed: Outcome
) -> None:
    options = debugged("stopped", "--capture", "ops")
    enough = tmp_path / "enough"
    arguments = ("--stop-at", "8", "--linger", str(enough))
    with (
        Run(*arguments, debugger=str(lasting.debugger), options=options, folder=tmp_path, imports=None) as run,
        attached(lasting, "stopped") as session,
    ):
        run.until("step 8")
        run.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, run.process.pid, os.WSTOPPED | os.WNOWAIT)
        session.pause()
        run.process.send_signal(signal.SIGCONT)
        run.go_on()
        assert session.wait(PATIENCE_S).step > 8
        enough.touch()
        session.continue_()
        outcome = run.outcome()
        assert session.wait(PATIENCE_S).state == State.FINISHED
    assert outcome.own() == undisturbed.own()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_training_that_runs(tmp_path: Path, lasting: RunningServer, number: signal.Signals) -> None:
    name = f"running-{number.name}"
    options = debugged(name)
    with Run("--linger", "for ever", debugger=str(lasting.debugger), options=options, folder=tmp_path) as run:
        run.until("step 20")
        run.process.send_signal(number)
        outcome = run.outcome()
    assert outcome.code == -number
    assert (outcome.errors[-1:] == ["KeyboardInterrupt"]) == (number == signal.SIGINT)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_training_that_waits_for_a_person(
    tmp_path: Path, lasting: RunningServer, number: signal.Signals
) -> None:
    name = f"waiting-{number.name}"
    options = ("--job", name, "--break-at-start")
    with (
        Run(debugger=str(lasting.debugger), options=options, folder=tmp_path) as run,
        attached(lasting, name) as session,
    ):
        session.wait(PATIENCE_S)
        run.process.send_signal(number)
        outcome = run.outcome()
        # Nobody says goodbye when a signal ends a process at once.
        assert number == signal.SIGTERM or session.wait(PATIENCE_S).state.has_ended
    assert outcome.code == -number
    assert outcome.output == []


def test_a_fork_in_the_middle_leaves_the_parent_debugged_and_the_child_alone(
    tmp_path: Path, lasting: RunningServer, undisturbed: Outcome
) -> None:
    options = debugged("forking")
    arguments = ("--fork-at", "5", "--stop-at", "20")
    with (
        Run(*arguments, debugger=str(lasting.debugger), options=options, folder=tmp_path) as run,
        attached(lasting, "forking") as session,
    ):
        run.until("step 20")
        run.go_on()
        outcome = run.outcome()
        assert session.wait(PATIENCE_S).step == 20
    assert outcome.output.pop(5) == "child ended with 7"
    assert outcome.own() == undisturbed.own()


def test_a_data_loader_with_workers_that_are_forked_serves_a_debugged_training(
    tmp_path: Path, lasting: RunningServer
) -> None:
    with Run("--workers", "2", folder=tmp_path) as run:
        alone = run.outcome()
    assert alone.code == 0
    # With modules: test_torch_workers.
    options = debugged("loading", "--capture", "ops")
    with Run("--workers", "2", debugger=str(lasting.debugger), options=options, folder=tmp_path) as run:
        outcome = run.outcome()
    assert outcome.own() == alone.own()


# --- the machine ---


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux limits the files of others")
def test_a_full_disk_ends_the_recording_and_not_the_training(
    tmp_path: Path, lasting: RunningServer, undisturbed: Outcome
) -> None:
    recorded = tmp_path / "recorded"
    options = debugged("recording", "--record", "full", "--record-folder", str(recorded))
    arguments = ("--stop-at", "4")
    with Run(*arguments, debugger=str(lasting.debugger), options=options, folder=tmp_path) as run:
        run.until("step 4")
        resource.prlimit(run.process.pid, resource.RLIMIT_FSIZE, (64, resource.RLIM_INFINITY))
        run.go_on()
        outcome = run.outcome()
    assert outcome.code == undisturbed.code
    assert outcome.output == undisturbed.output
    assert recorded.exists()


@pytest.mark.long
@pytest.mark.parametrize("capture", ["modules", "ops"])
def test_thousands_of_fast_steps_leave_no_memory_behind(tmp_path: Path, lasting: RunningServer, capture: str) -> None:
    options = debugged(f"long-{capture}", "--capture", capture)
    arguments = ("--steps", "2000", "--stop-at", "500", "2000")
    with Run(*arguments, debugger=str(lasting.debugger), options=options, folder=tmp_path) as run:
        run.until("step 500")
        early = run.resident_bytes()
        run.go_on()
        run.until("step 2000")
        late = run.resident_bytes()
        run.go_on()
        assert run.outcome().code == 0
    assert late - early < 2 * 2**20


def test_a_memory_budget_of_nothing_keeps_statistics_and_no_value(
    tmp_path: Path, lasting: RunningServer, undisturbed: Outcome
) -> None:
    options = debugged("budget", "--break-at-start", "--memory-budget", "0")
    with (
        Run(debugger=str(lasting.debugger), options=options, folder=tmp_path) as run,
        attached(lasting, "budget") as session,
    ):
        session.wait(PATIENCE_S)
        session.step(3).wait(PATIENCE_S)
        tensors = session.tensors("Default/layers/0/Linear-op0")
        assert tensors[-1].statistics is not None
        with pytest.raises(TensightError, match="set aside"):
            session.tensor(tensors[-1]).slice()
        session.continue_()
        outcome = run.outcome()
    assert outcome.own() == undisturbed.own()
