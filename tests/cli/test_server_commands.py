"""`tensight start`, `stop` and `status`, as a person or a script uses them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tensight.wire.debugger_pb2 import Metadata
from tests.processes.process_end import ProcessEnd
from tests.server.calling import calling
from tests.server.running import running_server

HELLO = Metadata(device_name=b"7:0", ms_version=b"2.0.0", backend=b"GPU", graph_num=1).SerializeToString()
WITHIN_S = 10.0
ANY_PORTS = ("--port", "0", "--debugger-port", "0")


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "w"
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        os.kill(json.loads((tmp_path / "w" / "server.json").read_text())["pid"], signal.SIGKILL)


def run(*arguments: object, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tensight", *map(str, arguments)]
    return subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=60, env={**os.environ, **(env or {})}
    )


def in_background(workspace: Path, *options: str) -> dict[str, Any]:
    started = run("start", "--background", "--workspace", workspace, *ANY_PORTS, *options)
    assert (started.returncode, started.stderr) == (0, "")
    record: dict[str, Any] = json.loads((workspace / "server.json").read_text())
    assert f"for browsers and programs    {record['http']}\n" in started.stdout
    return record


def test_a_server_in_the_background_outlives_its_command_until_it_is_stopped(workspace: Path) -> None:
    record = in_background(workspace)
    assert os.getsid(record["pid"]) == record["pid"]
    assert httpx.get(f"{record['http']}/api/v1/sessions").json() == []
    end = ProcessEnd(record["pid"])
    stopped = run("stop", "--workspace", workspace)
    assert (stopped.returncode, stopped.stderr) == (0, "")
    assert stopped.stdout == f"stopped the server at {record['http']} (process {record['pid']})\n"
    # It has let go of everything; the kernel may still be clearing up after it.
    assert end.comes_within(WITHIN_S)
    assert "ended" in (workspace / "log" / "tensight.log").read_text().splitlines()[-1]
    assert (workspace / "log" / "stderr.log").read_text() == ""


@pytest.mark.long
def test_in_the_background_it_says_why_it_could_not_start(workspace: Path) -> None:
    record = in_background(workspace)
    again = run("start", "--background", "--workspace", workspace, *ANY_PORTS)
    assert (again.returncode, again.stdout) == (2, "")
    assert again.stderr.startswith(f"tensight: the workspace {workspace} is in use by the server at {record['http']}")
    port = record["http"].rpartition(":")[2]
    other = run("start", "--background", "--workspace", f"{workspace}2", "--port", port, "--debugger-port", "0")
    assert other.returncode == 2
    assert other.stderr.startswith(f"tensight: port {port} is in use by process {record['pid']} (")
    assert len(other.stderr.splitlines()) == 1


@pytest.mark.long
def test_in_the_background_options_and_file_go_along(workspace: Path, tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text('url_path_prefix = "from/file"\n')
    hosts = ("--allowed-host", "a.example", "--allowed-host", "b.example")
    record = in_background(workspace, "--config", str(config), *hosts)
    assert record["http"].endswith("/from/file")
    for host in ("a.example", "b.example"):
        assert httpx.get(f"{record['http']}/api/v1/sessions", headers={"Host": host}).status_code == 200


@pytest.mark.long
def test_a_new_token_is_shown_by_the_command_that_made_it(workspace: Path) -> None:
    started = run("start", "--background", "--host", "0.0.0.0", "--workspace", workspace, *ANY_PORTS)  # noqa: S104
    token = (workspace / "token").read_text().strip()
    assert f"Access token, shown only now: {token}\n" in started.stdout
    debugger = json.loads((workspace / "server.json").read_text())["debugger"]
    host, _, port = debugger.rpartition(":")
    # MindSpore's own client cannot show a token.
    assert f"  TENSIGHT_TOKEN=$(cat {workspace / 'token'}) tensight run --host {host} --port {port} " in started.stdout
    assert "ENABLE_MS_DEBUGGER" not in started.stdout
    status = json.loads(run("status", "--json", "--workspace", workspace).stdout)
    assert (status["sessions"], status["problem"]) == ([], "")
    assert token not in (workspace / "log" / "tensight.log").read_text()


@pytest.mark.long
def test_what_other_users_could_read_is_said_at_the_start(workspace: Path) -> None:
    workspace.mkdir()
    workspace.chmod(0o755)
    token = workspace / "token"
    token.write_text(32 * "k")
    token.chmod(0o644)
    started = run("start", "--background", "--host", "0.0.0.0", "--workspace", workspace, *ANY_PORTS)  # noqa: S104
    assert "Other users of this machine could read that file until now" in started.stdout
    assert f"can enter the workspace; `chmod 700 {workspace}` keeps them out" in started.stdout
    run("stop", "--workspace", workspace)
    workspace.chmod(0o700)
    again = run("start", "--background", "--host", "0.0.0.0", "--workspace", workspace, *ANY_PORTS)  # noqa: S104
    assert "Other users" not in again.stdout


def test_status_lists_the_sessions(workspace: Path) -> None:
    with running_server(workspace) as server:
        assert server.debugger
        with calling(server.debugger) as caller:
            assert caller.one("SendMetadata", HELLO).version_matched
            shown = run("status", "--workspace", workspace)
            data = json.loads(run("status", "--json", "--workspace", workspace).stdout)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert f"{server.url}\n" in shown.stdout
    assert re.search(rf"process {server.process.pid}, up \d+ s", shown.stdout)
    assert re.search(r"mindspore-7 .*connecting", shown.stdout)
    assert data["running"]
    assert (data["pid"], data["debugger"], data["problem"]) == (server.process.pid, server.debugger, "")
    assert [session["name"] for session in data["sessions"]] == ["mindspore-7"]


@pytest.mark.long
def test_status_of_an_encrypted_server_trusts_its_certificate(workspace: Path, tmp_path: Path) -> None:
    import trustme

    issued = trustme.CA().issue_cert("some.other.name")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "c.pem")
    issued.private_key_pem.write_to_path(tmp_path / "k.pem")
    with running_server(workspace, "--tls-cert", str(tmp_path / "c.pem"), "--tls-key", str(tmp_path / "k.pem")):
        data = json.loads(run("status", "--json", "--workspace", workspace).stdout)
    assert (data["sessions"], data["problem"]) == ([], "")


@pytest.mark.long
def test_status_tells_of_a_server_that_does_not_answer(workspace: Path) -> None:
    with running_server(workspace) as server:
        server.process.send_signal(signal.SIGSTOP)
        try:
            shown = run("status", "--workspace", workspace)
        finally:
            server.process.send_signal(signal.SIGCONT)
    assert shown.returncode == 0
    assert "sessions unknown: it does not answer: timed out" in shown.stdout


@pytest.mark.parametrize("command", ["status", "stop"])
def test_without_a_server_status_and_stop_say_so(tensight: Callable[..., Any], tmp_path: Path, command: str) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        outcome = tensight(command, "--workspace", folder)
        assert outcome.out == f"no server is running for the workspace {folder}\n"
        assert outcome.code == (1 if command == "status" else 0)
    assert json.loads(tensight("status", "--json", "--workspace", tmp_path).out) == {
        "running": False,
        "workspace": str(tmp_path),
    }


def test_a_server_of_another_machine_is_left_alone(workspace: Path, tensight: Callable[..., Any]) -> None:
    with running_server(workspace) as server:
        record = json.loads((workspace / "server.json").read_text())
        (workspace / "server.json").write_text(json.dumps(record | {"machine": "elsewhere"}))
        outcome = tensight("stop", "--workspace", workspace)
        assert outcome.code == 2
        assert outcome.err == f"tensight: the server of {workspace} runs on elsewhere; stop it there [wrong-state]\n"
        assert "it runs on elsewhere; ask there" in tensight("status", "--workspace", workspace).out
        assert httpx.get(f"{server.url}/api/v1/sessions").status_code == 200


def test_stop_now_ends_even_a_server_that_is_stuck(workspace: Path) -> None:
    with running_server(workspace) as server:
        server.process.send_signal(signal.SIGSTOP)
        assert run("stop", "--now", "--workspace", workspace).returncode == 0
        assert server.wait() == -signal.SIGKILL


@pytest.mark.long
def test_the_workspace_is_found_by_variable_and_file(workspace: Path, tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text(f'workspace = "{workspace}"\n')
    with running_server(workspace):
        assert run("status", env={"TENSIGHT_WORKSPACE": str(workspace)}).returncode == 0
        assert run("status", "--config", config).returncode == 0
        assert run("stop", "--config", config).returncode == 0
