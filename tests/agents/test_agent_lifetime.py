"""A debugged training begins and ends as it would alone: without a server, forked, interrupted, raising."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tensight.agents.core.program import Program
from tensight.agents.core.settings import AgentSettings
from tensight.sessions.records import State
from tests.agents.agent_stage import Scene, ended_session, session_named
from tests.agents.numpy_training import FORWARD, WEIGHTS, Network, NumpyDebugger
from tests.server.running import running_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tensight.client import Server, Session
    from tests.server.running import RunningServer

Debug = Callable[..., "tuple[Scene, Session]"] if TYPE_CHECKING else object


HEAVY = (
    *("pydantic", "pyarrow", "rich", "typer", "fastapi", "duckdb", "torch", "uvicorn", "structlog", "httpx"),
    *("openpyxl", "fsspec", "tensight.sessions", "tensight.server", "tensight.client", "tensight.analysis"),
)


class Script:
    """A script in a process of its own, that trains a network and prints what it does."""

    def __init__(self, code: str, server: RunningServer | None, **environment: str) -> None:
        address = (server.debugger if server else None) or "127.0.0.1:1"
        host, _, port = address.rpartition(":")
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(sys.path),
                "TENSIGHT_DEBUGGER_HOST": host,
                "TENSIGHT_DEBUGGER_PORT": port,
                **environment,
            },
        )

    def finish(self) -> tuple[int, list[str], str]:
        """Return its exit code, the lines that it printed, and what it wrote to stderr."""
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out.splitlines(), err


@pytest.fixture
def run() -> Iterator[Callable[..., Script]]:
    """Starts scripts, and ends them when the test ends."""
    started: list[Script] = []

    def start(code: str, server: RunningServer | None = None, before: str = "", **environment: str) -> Script:
        started.append(Script(before + BEGIN + code, server, **environment))
        return started[-1]

    yield start
    for script in started:
        if script.process.poll() is None:
            script.process.kill()
        script.process.communicate()


BEGIN = """
import os, sys
from tests.agents.numpy_training import *
debugger = NumpyDebugger(Network(), AgentSettings.from_environment(connect_within_s=30.0))
"""


def test_without_a_server_the_training_begins_at_once_and_says_so_once(capsys: pytest.CaptureFixture[str]) -> None:
    debugger = NumpyDebugger(Network(), AgentSettings(host="127.0.0.1", port=1))
    begun_s = time.monotonic()
    debugger.attach()
    assert time.monotonic() - begun_s < 3.0
    debugger.train(3)
    debugger.agent.close()
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        "tensight: no debug server at 127.0.0.1:1 (Connection refused);"
        " the training goes on, and attaches when there is one"
    )


def test_a_port_that_is_set_for_the_page_is_not_taken_for_that_of_trainings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TENSIGHT_PORT", "1")
    settings = AgentSettings.from_environment(host="host.invalid")
    assert settings.port == 50051
    debugger = NumpyDebugger(Network(), settings)
    debugger.attach()
    debugger.agent.close()
    assert "TENSIGHT_PORT is the port of the page, and TENSIGHT_DEBUGGER_PORT that for" in capsys.readouterr().err


def test_a_port_that_serves_the_page_is_named_as_such(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running_server(tmp_path / "w") as server:
        port = int(server.url.rpartition(":")[2])
        debugger = NumpyDebugger(Network(), AgentSettings.from_environment(host="127.0.0.1", port=port))
        debugger.attach()
        debugger.agent.close()
    assert f"127.0.0.1:{port} (that port serves HTTP, as the page does;" in capsys.readouterr().err


@pytest.mark.parametrize("chosen", [{"break_at_start": True}, {"connect_within_s": 0.5}])
def test_a_training_that_is_to_wait_for_a_server_begins_later(
    chosen: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tensight.agents.core.connection.attachment._WAIT_S", 0.5)
    debugger = NumpyDebugger(Network(), AgentSettings(host="127.0.0.1", port=1, **chosen))
    begun_s = time.monotonic()
    debugger.attach()
    debugger.agent.close()
    assert time.monotonic() - begun_s >= 0.5


def test_a_debugged_training_has_the_same_weights_as_one_alone(debug: Debug) -> None:
    scene, session = debug(steps=12)
    session.watch("tensor_too_large", max_gt=1e30)
    session.step(5).wait(30)
    session.tensor(WEIGHTS[0]).numpy()
    session.continue_().wait(30)
    scene.finish()
    alone = Network()
    for _ in range(12):
        alone.step(lambda *_: None, lambda _: None)
    for name, weight in alone.weights.items():
        np.testing.assert_array_equal(scene.debugger.network.weights[name], weight)


def test_nothing_is_told_after_the_end(debug: Debug) -> None:
    scene, session = debug(steps=2)
    session.continue_().wait(30)
    scene.finish()
    agent = scene.debugger.agent
    agent.close()
    agent.step_done(Program("kernel_graph_9", 9, ()))
    agent.attach(Program("kernel_graph_9", 9, ()))
    agent.node_done(agent.slot_table.node(FORWARD[0], "MatMul"))
    assert session.summary.state is State.FINISHED
    assert not any(agent.slot_table.needs)


def test_the_end_of_the_interpreter_is_the_end_of_the_session(
    agent_server: RunningServer, person: Server, run: Callable[..., Script]
) -> None:
    script = run("debugger.attach(); debugger.train(4)", agent_server, TENSIGHT_JOB="ends-by-itself")
    code, _, err = script.finish()
    assert code == 0, err
    assert ended_session(person, "ends-by-itself").state is State.FINISHED


def test_an_exception_of_the_script_is_the_end_of_the_session(
    agent_server: RunningServer, person: Server, run: Callable[..., Script]
) -> None:
    script = run("debugger.attach(); debugger.train(2); 1 / 0", agent_server, TENSIGHT_JOB="raises")
    code, _, err = script.finish()
    assert code == 1
    assert err.endswith("ZeroDivisionError: division by zero\n")
    assert ended_session(person, "raises").state is State.FINISHED


def test_a_terminated_script_ends_with_code_0_and_runs_what_it_runs_at_the_end(
    agent_server: RunningServer, person: Server, run: Callable[..., Script]
) -> None:
    code = "import atexit; atexit.register(print, 'bye')\ntry:\n  debugger.attach()\nfinally:\n  print('finally')"
    script = run(code, agent_server, TENSIGHT_JOB="is-ended", TENSIGHT_BREAK_AT_START="1")
    session_named(person, "is-ended").terminate()
    assert script.finish()[:2] == (0, ["finally", "bye"])


def test_an_interrupt_while_the_training_waits_is_the_scripts(
    agent_server: RunningServer, person: Server, run: Callable[..., Script]
) -> None:
    code = "try:\n  debugger.attach()\nexcept KeyboardInterrupt:\n  print('interrupted')"
    script = run(code, agent_server, TENSIGHT_JOB="interrupted", TENSIGHT_BREAK_AT_START="1")
    session = session_named(person, "interrupted")
    session.wait(30)
    script.process.send_signal(signal.SIGINT)
    exit_code, lines, err = script.finish()
    assert (exit_code, lines) == (0, ["interrupted"]), err
    assert session.wait(30).state is State.FINISHED


HANDLERS = {
    "by default": ("", -signal.SIGTERM, []),
    "that notes it": ("def on_term(*_):\n  global told\n  told = True\n", 0, ["told after step 2"]),
    "that raises": ("def on_term(*_):\n  raise RuntimeError('preempted')\n", 0, ["preempted"]),
    "that exits": ("def on_term(*_):\n  sys.exit(3)\n", 3, []),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("handler", HANDLERS)
def test_a_training_that_is_told_to_end_is_held_no_longer(
    agent_server: RunningServer, person: Server, run: Callable[..., Script], handler: str
) -> None:
    define, exit_code, lines = HANDLERS[handler]
    code = f"""
import signal
told = False
{define}
if "on_term" in globals():
    signal.signal(signal.SIGTERM, on_term)
debugger.attach()
try:
    for _ in range(3):
        debugger.step()
        if told:
            print("told after step", debugger.agent.step)
            break
except RuntimeError as error:
    print(error)
assert signal.getsignal(signal.SIGTERM) in (signal.SIG_DFL, globals().get("on_term"))
"""
    name = f"terminated {handler}"
    script = run(code, agent_server, TENSIGHT_JOB=name, TENSIGHT_BREAK_AT_START="1")
    session = session_named(person, name)
    session.wait(30)
    session.step(2).wait(30)
    script.process.terminate()
    assert script.finish()[:2] == (exit_code, lines)
    assert ended_session(person, name).step == 2


def test_a_second_ctrl_c_ends_a_training_whose_server_does_not_answer(
    tmp_path: Path, run: Callable[..., Script]
) -> None:
    with running_server(tmp_path / "workspace") as server:
        # What was registered last runs first: it says that our goodbye to the server comes next.
        code = """
import atexit
debugger.attach()
atexit.register(print, "ends", flush=True)
print("trains", flush=True)
while True:
    debugger.step()
"""
        process = run(code, server, TENSIGHT_JOB="hurried").process
        assert process.stdout
        process.stdout.readline()
        server.process.send_signal(signal.SIGSTOP)
        try:
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline() == "ends\n"
            process.send_signal(signal.SIGINT)
            _, told = process.communicate(timeout=60)
        finally:
            server.process.send_signal(signal.SIGCONT)
    assert process.returncode == -signal.SIGINT
    # Of the second nothing of ours tells; on a busy machine it may come so late that it ends what others clean up, or
    # so early that our goodbye has not begun.
    interrupted, *later = told.split("Traceback")[1:]
    assert "KeyboardInterrupt" in interrupted
    ours = [trace for trace in later if str(Path("tensight", "agents")) in trace]
    assert not [trace for trace in ours if "    def close_at_exit(" not in trace], told


def test_a_forked_child_is_silent_and_its_parent_goes_on(
    agent_server: RunningServer, person: Server, run: Callable[..., Script]
) -> None:
    code = """
debugger.attach()
for number in range(20):
    debugger.step()
    child = os.fork()
    if not child:
        debugger.train(2)
        debugger.agent.close()
        assert not debugger.agent.capturing and not any(debugger.agent.slot_table.needs)
        sys.exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
print(debugger.agent.step, debugger.agent._server.attachment.is_attached)
"""
    script = run(code, agent_server, TENSIGHT_JOB="forks")
    exit_code, lines, err = script.finish()
    assert (exit_code, lines) == (0, ["20 True"]), err
    # From Python 3.12 on it warns of a fork in a process that has threads, as the agent's are.
    own = [line for line in err.splitlines() if line.startswith("tensight:")]
    assert len(own) == 1, err
    assert ended_session(person, "forks").state is State.FINISHED


def test_workers_that_are_forked_serve_a_debugged_training(
    agent_server: RunningServer, run: Callable[..., Script]
) -> None:
    code = """
import multiprocessing
debugger.attach()
with multiprocessing.get_context("fork").Pool(2) as pool:
    for number in range(30):
        assert pool.map(abs, [-number, number]) == [number, number]
        debugger.step()
print("done", os.environ.get("GRPC_ENABLE_FORK_SUPPORT"))
"""
    exit_code, lines, err = run(code, agent_server, TENSIGHT_JOB="pool").finish()
    assert (exit_code, lines) == (0, ["done None"]), err


@pytest.mark.long
def test_forks_of_a_training_that_has_imported_grpc_before_come_between_our_calls(
    agent_server: RunningServer, run: Callable[..., Script]
) -> None:
    code = """
import threading
from tensight.wire.telemetry_pb2 import PollRequest
debugger.attach()
connection = debugger.agent._server.attachment.connection
asked = 0

def ask():
    global asked
    while True:
        assert connection.ask("Poll", PollRequest(step=1), timeout_s=30.0).reply is not None
        asked += 1

threading.Thread(target=ask, daemon=True).start()
for number in range(100):
    debugger.step()
    before = asked
    child = os.fork()
    if not child:
        sys.exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    while asked == before:
        pass
print("done")
"""
    imported = "import grpc\n"
    exit_code, lines, err = run(code, agent_server, before=imported, TENSIGHT_JOB="grpc-before").finish()
    assert (exit_code, lines) == (0, ["done"]), err
    assert "fork() handlers" not in err


def test_a_training_process_has_nothing_heavy_in_it(agent_server: RunningServer, run: Callable[..., Script]) -> None:
    code = f"debugger.attach(); debugger.train(3); print([name for name in {HEAVY!r} if name in sys.modules])"
    exit_code, lines, err = run(code, agent_server, TENSIGHT_JOB="light").finish()
    assert (exit_code, lines) == (0, ["[]"]), err


def test_a_mistake_of_ours_ends_the_debugging_and_not_the_training(
    debug: Debug, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scene, session = debug(steps=6)
    session.step().wait(30)
    monkeypatch.setattr(scene.debugger.reader, "settle", _fail)
    session.step(2)
    assert scene.finish() == 6
    assert "internal error" in capsys.readouterr().err
    assert session.wait(30).state is State.FINISHED


def test_a_tensor_that_cannot_be_read_is_passed_over(
    debug: Debug, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scene, session = debug(steps=6)
    scan = scene.debugger.reader.scan

    def scan_most(tensor: object, columns: object, slot_id: int, *, hashed: bool) -> bool:
        if scene.debugger.agent.slot_table[slot_id].node.name == FORWARD[1]:
            raise RuntimeError("this one not")
        return scan(tensor, columns, slot_id, hashed=hashed)

    monkeypatch.setattr(scene.debugger.reader, "scan", scan_most)
    session.step(2).wait(30)
    assert session.tensor(FORWARD[0]).statistics().count == 512
    session.continue_().wait(30)
    assert scene.finish() == 6
    assert f"{FORWARD[1]}:0 is not observed" in capsys.readouterr().err


def _fail(*_: object) -> None:
    raise RuntimeError("a mistake")
