"""Workers that serve a training, however they are started, are not debugged; processes that train are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tensight
from tensight.sessions.records import State
from tests.server.running import running_server

pytestmark = pytest.mark.long

SCRIPT = Path(__file__).parent / "training_with_workers.py"


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("method", "capture"), [("spawn", "ops"), ("fork", "modules")])
def test_workers_are_left_alone_and_processes_that_train_are_debugged(
    tmp_path: Path, method: str, capture: str
) -> None:
    with running_server(tmp_path / "workspace") as server, tensight.connect(server.url) as person:
        host, _, port = str(server.debugger).rpartition(":")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TENSIGHT_")}
        environment = {
            **inherited,
            "TENSIGHT_DEBUG": "1",
            "TENSIGHT_DEBUGGER_HOST": host,
            "TENSIGHT_DEBUGGER_PORT": port,
            "TENSIGHT_CAPTURE": capture,
            "TENSIGHT_RECOMMENDED": "1",
            "PYTHONWARNINGS": "ignore",
        }
        command = [sys.executable, str(SCRIPT), method]
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
        assert (ended.returncode, ended.stdout) == (0, "True True True\n"), ended.stderr
        records = [session.summary for session in person.sessions()]
        sessions = sorted((record.state, record.step, record.message) for record in records)
    ended_by = "the training was ended by ValueError: after the last step"
    assert sessions == [(State.FINISHED, 4, ""), (State.FINISHED, 4, ended_by)]
    told = [line for line in ended.stderr.splitlines() if line.startswith("tensight:")]
    attached = [line for line in told if "attached to the debug server" in line]
    # A worker of the pool and one of the executor train.
    unattached = [line for line in told if "workers are not debugged, unless they ask for it" in line]
    assert (len(attached), len(unattached), len(told)) == (2, 2, 4), ended.stderr
