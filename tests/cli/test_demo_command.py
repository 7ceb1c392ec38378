"""`tensight demo`: each scenario is a training of its own, stopped where it goes wrong, with the planted line."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tensight
from tensight.cli.demo import Scenario
from tensight.sessions.records import State
from tests.server.running import RunningServer, running_server

SCENARIOS = Path(tensight.__file__).parent / "scenarios"
PATIENCE_S = 60.0
OPERATORS = {
    Scenario.NAN_FROM_LOG: "Inf began at step 52 in Default/log-op0",
    Scenario.EXPLODING_GRADIENT: "Explosion began at step 100 in Gradients/Default/div",
    Scenario.VANISHING_GRADIENT: "Default/sigmoid-op0",
    Scenario.DYING_RELU: "Default/relu-op1",
    Scenario.FROZEN_WEIGHT: "body.weight",
    Scenario.FP16_OVERFLOW: "Inf began at step 61 in Default/attention/bmm-op0",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """The person's own server, which the demo uses instead of starting one."""
    with running_server(tmp_path_factory.mktemp("demo") / "workspace") as running:
        yield running


def environment(workspace: Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TENSIGHT_")}
    return {**inherited, "TENSIGHT_WORKSPACE": str(workspace), "OMP_NUM_THREADS": "1"}


def demo(*options: str, workspace: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tensight", "demo", *options],
        env=environment(workspace),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
    )


def planted_line(scenario: Scenario) -> int:
    lines = (SCENARIOS / f"{scenario.value.replace('-', '_')}.py").read_text().splitlines()
    (line,) = (number for number, text in enumerate(lines, 1) if "# FAULT: " in text)
    return line


def test_every_scenario_is_a_script_and_every_script_a_scenario() -> None:
    named = {scenario.value.replace("-", "_") for scenario in Scenario if scenario is not Scenario.DUMP}
    assert named == {path.stem for path in SCENARIOS.glob("*.py")}


@pytest.mark.long
@pytest.mark.parametrize("scenario", OPERATORS, ids=lambda scenario: scenario.value)
def test_it_stops_at_the_planted_fault_and_names_operator_and_line(server: RunningServer, scenario: Scenario) -> None:
    outcome = demo("--scenario", scenario.value, workspace=server.workspace)
    assert (outcome.returncode, outcome.stderr) == (0, ""), outcome.stdout
    assert OPERATORS[scenario] in outcome.stdout
    # Where a step takes a way that is new, the training stops when it is known what comes of an infinite value.
    first, *_ = re.findall(r"(\S+\.py):(\d+)\n", outcome.stdout)
    assert (Path(first[0]).stem, int(first[1])) == (scenario.value.replace("-", "_"), planted_line(scenario))
    assert re.search(r"→ +\d+  .*# FAULT: ", outcome.stdout)
    with tensight.connect(server.url) as connection:
        assert all(session.state.has_ended for session in connection.sessions())


@pytest.mark.long
def test_with_a_server_of_its_own_it_stays_until_it_is_told_and_leaves_nothing_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tensight", "demo", "--stay"]
    with subprocess.Popen(
        command, env=environment(tmp_path), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        said = _read_until(process, "ends the training")
        address, name = re.findall(r'tensight\.connect\("(.*)"\)\.session\("(.*)"\)', said)[0]
        with tensight.connect(address) as connection:
            session = connection.session(name)
            assert (session.state, session.summary.step) == (State.PAUSED, 52)
            assert session.hits()
            assert f"{address}/?run={session.id}\n" in said
            assert session.back().wait(PATIENCE_S).step == 51
        process.communicate("\n", timeout=PATIENCE_S)
    assert process.returncode == 0
    with pytest.raises(tensight.errors.TensightError):
        tensight.connect(address)


@pytest.mark.long
def test_told_to_end_it_ends_its_server_too(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tensight", "demo", "--stay"]
    with subprocess.Popen(
        command, env=environment(tmp_path), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        address = re.findall(r"debug server at (\S+)", _read_until(process, "training attached"))[0]
        process.terminate()
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    with pytest.raises(tensight.errors.TensightError):
        tensight.connect(address)


def test_without_pytorch_it_shows_the_recorded_run_and_says_so(
    tensight: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    outcome = tensight("demo")
    assert outcome.code == 0
    assert outcome.out.startswith("PyTorch is not installed here. Here is a run that was recorded")
    assert "log_energy = self.log(energy)" in outcome.out


def test_a_pytorch_that_cannot_be_imported_is_told_before_the_recorded_run_is_shown(
    server: RunningServer, tmp_path: Path
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise ImportError('libtorch_cpu.so: cannot open')\n")
    variables = {**environment(server.workspace), "PYTHONPATH": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-m", "tensight", "demo"], env=variables, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert ended.returncode == 0
    assert "ImportError: libtorch_cpu.so: cannot open" in ended.stdout
    assert "log_energy = self.log(energy)" in ended.stdout


def _read_until(process: subprocess.Popen[str], words: str) -> str:
    assert process.stdout is not None
    descriptor, said = process.stdout.fileno(), b""
    deadline = time.monotonic() + 2 * PATIENCE_S
    while words.encode() not in said:
        ready, _, _ = select.select([descriptor], [], [], deadline - time.monotonic())
        assert ready, said.decode()
        piece = os.read(descriptor, 65536)
        assert piece, said.decode()
        said += piece
    return said.decode()
