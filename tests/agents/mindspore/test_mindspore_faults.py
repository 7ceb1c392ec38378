"""Whatever happens to the server, the script or the machine: the training's own outcome is as without the debugger."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.agents.mindspore.mindspore_stage import PATIENCE_S, VERSIONS, Run, attached, name_of_job, python_of, rings
from tests.agents.training_process import Outcome
from tests.processes.ports import kept_port
from tests.server.running import running_server

if TYPE_CHECKING:
    from tests.server.running import RunningServer


DISTURBED = Path(__file__).with_name("disturbed_training.py")
FIRST = "Default/network-WithLossCell/_backbone-Network/first-Dense/MatMul-op0"
NOWHERE = ("--host", "127.0.0.1", "--port", "9")
"""Where no server ever answers: the port is reserved."""


@pytest.fixture(scope="module", params=VERSIONS[:1])
def version(request: pytest.FixtureRequest) -> str:
    """What happens to servers and files hardly depends on the version: it is tried with the newest, unless said."""
    python_of(request.param)
    return str(request.param)


either_version = pytest.mark.parametrize("version", VERSIONS, indirect=True)
older_version = pytest.mark.parametrize("version", VERSIONS[1:], indirect=True)
each_signal = pytest.mark.parametrize(
    ("version", "number"), [(VERSIONS[0], signal.SIGINT), (VERSIONS[1], signal.SIGTERM)], indirect=["version"]
)


@pytest.fixture(scope="module")
def undisturbed(version: str, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The training without a debugger and without trouble."""
    with Run(version, folder=tmp_path_factory.mktemp("alone")) as run:
        outcome = run.outcome()
    assert outcome.code == 0, outcome.errors
    return outcome


def debugged(job: str) -> tuple[str, ...]:
    return ("--job", job, "--recommended")


# --- the server ---


def test_without_any_server_the_training_runs_as_alone(tmp_path: Path, version: str, undisturbed: Outcome) -> None:
    with Run(version, folder=tmp_path, options=(*NOWHERE, "--break-at-start")) as run:
        outcome = run.outcome()
    assert (outcome.code, outcome.output) == (0, undisturbed.output)
    assert len(outcome.notices) == 1


@pytest.mark.sampled(2)
@either_version
def test_a_server_that_is_killed_takes_nothing_with_it(tmp_path: Path, version: str, undisturbed: Outcome) -> None:
    with (
        running_server(tmp_path / "workspace") as server,
        Run(version, "--stop-at", "6", folder=tmp_path, server=server, options=debugged("killed")) as run,
    ):
        run.until("step 6")
        server.kill()
        run.go_on()
        outcome = run.outcome()
    assert (outcome.code, outcome.output) == (0, undisturbed.output)


@pytest.mark.long
def test_a_server_that_comes_later_gets_the_training_and_its_watchpoints(tmp_path: Path, version: str) -> None:
    port = str(kept_port())
    options = ("--host", "127.0.0.1", "--port", port, *debugged("late"))
    with Run(version, "--steps", "1000000", "--stop-at", "3", folder=tmp_path, options=options) as run:
        run.until("step 3")
        with running_server(tmp_path / "workspace", "--debugger-port", port) as server:
            run.go_on()
            with attached(server, "late") as session:
                session.pause().wait(PATIENCE_S)
                step = session.step(2).wait(PATIENCE_S).step
                assert step > 3
                assert session.watchpoints()
                assert session.tensor(FIRST).numpy().any()
                session.terminate()
            assert run.outcome().code == 0


# --- the process ---


@pytest.mark.long
@either_version
def test_what_a_killed_training_leaves_behind_is_gone_after_the_next_start(
    tmp_path: Path, mindspore_server: RunningServer, version: str
) -> None:
    with Run(
        version, "--stop-at", "3", folder=tmp_path, server=mindspore_server, options=debugged(name_of_job())
    ) as run:
        run.until("step 3")
        (left,) = rings(run.process.pid)
        run.process.kill()
        run.process.wait(PATIENCE_S)
    assert left.exists()
    with Run(
        version, "--stop-at", "3", folder=tmp_path, server=mindspore_server, options=debugged(name_of_job())
    ) as run:
        run.until("step 3")
        (own,) = rings(run.process.pid)
        assert not left.exists()
        run.go_on()
        assert run.outcome().code == 0
    assert not own.exists()


@pytest.mark.long
@each_signal
def test_a_signal_ends_a_training_that_waits_for_a_person(
    tmp_path: Path, mindspore_server: RunningServer, version: str, number: signal.Signals
) -> None:
    job = name_of_job()
    options = (*debugged(job), "--break-at-start")
    with (
        Run(version, folder=tmp_path, server=mindspore_server, options=options) as run,
        attached(mindspore_server, job) as session,
    ):
        session.wait(PATIENCE_S)
        run.process.send_signal(number)
        outcome = run.outcome()
    assert outcome.code == -number
    assert outcome.output == []
    assert (outcome.errors[-1:] == ["KeyboardInterrupt"]) == (number == signal.SIGINT)


@pytest.mark.long
@each_signal
def test_a_signal_ends_a_training_that_runs_as_it_would_alone(
    tmp_path: Path, mindspore_server: RunningServer, version: str, number: signal.Signals
) -> None:
    def stopped(run: Run) -> Outcome:
        run.until("step 3")
        run.process.send_signal(number)
        return run.outcome()

    with Run(version, "--stop-at", "3", folder=tmp_path) as run:
        alone = stopped(run)
    options = debugged(name_of_job())
    with Run(version, "--stop-at", "3", folder=tmp_path, server=mindspore_server, options=options) as run:
        outcome = stopped(run)
    assert (outcome.code, outcome.output) == (alone.code, alone.output)
    assert outcome.code < 0


@older_version
def test_an_exception_of_the_script_ends_it_as_it_would_alone(
    tmp_path: Path, mindspore_server: RunningServer, version: str
) -> None:
    with Run(version, "--raise-at", "5", folder=tmp_path) as run:
        alone = run.outcome()
    with Run(
        version, "--raise-at", "5", folder=tmp_path, server=mindspore_server, options=debugged(name_of_job())
    ) as run:
        outcome = run.outcome()
    assert (outcome.code, outcome.output) == (alone.code, alone.output)
    assert outcome.code == 1
    assert outcome.errors[-1] == alone.errors[-1] == "ValueError: the training's own mistake"


# --- what a script does beside training ---


@pytest.mark.long
@pytest.mark.parametrize(
    ("version", "mode", "end", "code"), [("2.10", "pynative", "abrupt", 4), ("2.7", "graph", "exit", 3)]
)
def test_worker_processes_checkpoints_copies_and_an_end_within_a_step_are_as_alone(
    tmp_path: Path, mindspore_server: RunningServer, version: str, mode: str, end: str, code: int
) -> None:
    outcomes = []
    folders = tmp_path / "alone", tmp_path / "debugged"
    for folder, server in zip(folders, (None, mindspore_server), strict=True):
        folder.mkdir()
        options = debugged(name_of_job()) if server is not None else ()
        arguments = (mode, "--end", end)
        with Run(version, *arguments, folder=folder, server=server, options=options, script=DISTURBED) as run:
            outcomes.append(run.outcome())
    alone, outcome = outcomes
    assert alone.code == code
    assert outcome.own() == alone.own()
    assert len(outcome.output) == 3
    saved, saved_debugged = ((folder / "3.ckpt").read_bytes() for folder in folders)
    assert saved_debugged == saved


@pytest.mark.long
@older_version
def test_a_checkpoint_between_two_steps_ends_no_training_in_pynative_mode(
    tmp_path: Path, mindspore_server: RunningServer, version: str
) -> None:
    # Without the debugger it may crash: MindSpore 2.7 uses memory of the weights that it has freed.
    options = debugged(name_of_job())
    with Run(version, "pynative", folder=tmp_path, server=mindspore_server, options=options, script=DISTURBED) as run:
        outcome = run.outcome()
    assert (outcome.code, len(outcome.output)) == (0, 4), outcome.errors


@pytest.mark.long
@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_a_training_is_followed_in_the_thread_that_trains(
    tmp_path: Path, mindspore_server: RunningServer, version: str, mode: str
) -> None:
    job = name_of_job()
    options = ("--job", job, "--break-at-start")
    with (
        Run(
            version, mode, "--thread", folder=tmp_path, server=mindspore_server, options=options, script=DISTURBED
        ) as run,
        attached(mindspore_server, job) as session,
    ):
        session.wait(PATIENCE_S)
        assert session.step(2).wait(PATIENCE_S).step == 2
        session.continue_()
        assert run.outcome().code == 0


# --- what a script asks of MindSpore ---


def test_sink_mode_is_pointed_at_with_the_line_and_what_to_write(
    tmp_path: Path, mindspore_server: RunningServer, version: str
) -> None:
    script = Path(__file__).with_name("graph_training.py")
    lines = script.read_text().splitlines()
    line = next(number for number, text in enumerate(lines, start=1) if "dataset_sink_mode=" in text)
    arguments = ("--style", "model", "--sink")
    with Run(version, *arguments, folder=tmp_path, server=mindspore_server, options=debugged(name_of_job())) as run:
        outcome = run.outcome()
    assert outcome.code == 0
    (notice,) = [notice for notice in outcome.notices if "sink" in notice]
    assert f"{script}:{line}: {lines[line - 1].strip()}" in notice
    assert "dataset_sink_mode=False" in notice


@pytest.mark.long
def test_a_dump_that_a_person_asked_for_is_read_and_left_alone(
    tmp_path: Path, mindspore_server: RunningServer, version: str, undisturbed: Outcome
) -> None:
    dump = tmp_path / "dump"
    config = tmp_path / "dump.json"
    common = {
        "op_debug_mode": 0,
        "dump_mode": 0,
        "path": str(dump),
        "net_name": "own",
        "iteration": "all",
        "saved_data": "tensor",
        "input_output": 0,
        "kernels": [],
        "support_device": [0],
    }
    config.write_text(
        json.dumps({"common_dump_settings": common, "e2e_dump_settings": {"enable": True, "trans_flag": False}})
    )
    job = name_of_job()
    with (
        Run(
            version,
            folder=tmp_path,
            server=mindspore_server,
            options=("--job", job, "--break-at-start"),
            variables={"MINDSPORE_DUMP_CONFIG": str(config)},
        ) as run,
        attached(mindspore_server, job) as session,
    ):
        session.wait(PATIENCE_S)
        session.watch_recommended()
        assert session.step(3).wait(PATIENCE_S).step == 3
        assert session.tensor("first.weight").numpy().shape == (16, 12)
        session.continue_()
        outcome = run.outcome()
    assert (outcome.code, outcome.output) == (0, undisturbed.output)
    assert any("MINDSPORE_DUMP_CONFIG" in notice for notice in outcome.notices)
    iterations = [folder for folder in (dump / "rank_0" / "own").glob("*/*") if any(folder.glob("*.npy"))]
    assert len(iterations) == 12


@pytest.mark.long
def test_a_thousand_steps_leave_neither_memory_nor_files(
    tmp_path: Path, mindspore_server: RunningServer, version: str
) -> None:
    job = name_of_job()
    arguments = ("--steps", "1100", "--stop-at", "100", "1100")
    options = ("--job", job, "--break-at-start")
    with Run(version, *arguments, folder=tmp_path, server=mindspore_server, options=options) as run:
        with attached(mindspore_server, job) as session:
            session.wait(PATIENCE_S)
            session.watch("tensor_overflow", on="all")
            session.continue_()
            run.until("step 100")
            (ring,) = rings(run.process.pid)
            early = run.resident_bytes(), count_of_files(ring)
            run.go_on()
            run.until("step 1100")
            late = run.resident_bytes(), count_of_files(ring)
            assert session.summary.hits == 0
        run.go_on()
        assert run.outcome().code == 0
    assert late[1] <= early[1]
    assert late[0] - early[0] < 32 * 2**20
    assert not ring.exists()


def count_of_files(folder: Path) -> int:
    return sum(path.is_file() for path in folder.rglob("*"))
