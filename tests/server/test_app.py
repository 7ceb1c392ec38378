"""The server process as a whole: what it serves where, what it says, and why it does not start."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import grpc
import httpx
import pytest

from tensight.wire.debugger_pb2 import Metadata
from tests.server.calling import calling, refused
from tests.server.running import StartFailedError, running_server

HELLO = Metadata(device_name=b"0:0", ms_version=b"2.0.0", graph_num=1).SerializeToString()


def test_one_process_serves_training_processes_and_people(tmp_path: Path) -> None:
    with running_server(tmp_path / "w") as server:
        assert server.debugger
        record = json.loads((tmp_path / "w" / "server.json").read_text())
        assert (record["pid"], record["machine"]) == (server.process.pid, socket.gethostname())
        assert httpx.get(f"{server.url}/api/v1/server").json()["debugger_address"] == server.debugger
        with calling(server.debugger) as caller:
            assert caller.one("SendMetadata", HELLO).version_matched
        (session,) = httpx.get(f"{server.url}/api/v1/sessions").json()
        assert session["name"] == "mindspore-0"


def test_it_prints_how_to_reach_it_and_how_to_attach_a_training(tmp_path: Path) -> None:
    with running_server(tmp_path / "w", "--url-path-prefix", "team") as server:
        assert server.url.endswith("/team")
        assert server.debugger
        port = server.debugger.rpartition(":")[2]
        server.stop()
        assert server.process.stdout is not None
        said = server.process.stdout.read()
    assert f"for browsers and programs    {server.url}\n" in said
    assert f"for training processes       {server.debugger}\n" in said
    assert f"  tensight run --host 127.0.0.1 --port {port} --recommended train.py\n" in said
    assert f"ENABLE_MS_DEBUGGER=1 MS_DEBUGGER_HOST=127.0.0.1 MS_DEBUGGER_PORT={port} python train.py\n" in said
    assert f"`tensight stop --workspace {tmp_path / 'w'}` ends the server." in said
    assert "token" not in said


def test_paths_begin_with_the_prefix(tmp_path: Path) -> None:
    with running_server(tmp_path / "w", "--url-path-prefix", "/team/a/") as server:
        assert httpx.get(f"{server.url}/api/v1/sessions").json() == []
        assert httpx.get(f"{server.url.removesuffix('/team/a')}/api/v1/sessions").status_code == 404


def test_without_the_debugger_only_http_is_served(tmp_path: Path) -> None:
    with running_server(tmp_path / "w", "--enable-debugger", "false") as server:
        assert server.debugger is None
        assert httpx.get(f"{server.url}/api/v1/server").json()["debugger_address"] is None


def test_settings_reach_the_server_from_environment_and_file(tmp_path: Path, dump_210: Path) -> None:
    workspace = tmp_path / "w"
    workspace.mkdir()
    (workspace / "tensight.toml").write_text(f'summary_base_dir = "{dump_210}"\nlog_format = "text"\n')
    with running_server(workspace, env={"TENSIGHT_LOG_FORMAT": "json"}) as server:
        assert httpx.get(f"{server.url}/api/v1/dumps").json()
        assert json.loads(server.errors.splitlines()[0])["event"] == "ready"


def test_every_network_address_needs_a_token_that_is_shown_once(tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    with running_server(workspace, "--host", "0.0.0.0") as server:  # noqa: S104
        assert server.debugger
        token = (workspace / "token").read_text().strip()
        assert (workspace / "token").stat().st_mode & 0o777 == 0o600
        with calling(server.debugger) as caller:
            assert refused(caller.one, "SendMetadata", HELLO).code() == grpc.StatusCode.UNAUTHENTICATED
        with calling(server.debugger, token=token) as caller:
            assert caller.one("SendMetadata", HELLO).version_matched
        assert httpx.get(f"{server.url}/api/v1/sessions").status_code == 401
        reply = httpx.get(f"{server.url}/api/v1/server", headers={"Authorization": f"Bearer {token}"}).json()
        assert reply["debugger_elsewhere"] == f"{socket.gethostname()}:{server.debugger.rpartition(':')[2]}"
        assert server.stop() == 0
        assert server.process.stdout is not None
        said = server.process.stdout.read()
        assert f"Access token, shown only now: {token}\n" in said
        where = f"--host {socket.gethostname()} --port {server.debugger.rpartition(':')[2]}"
        assert f"On another machine, start it with\n  TENSIGHT_TOKEN=TOKEN tensight run {where} --recommended" in said
        assert "travels unencrypted" in said
    with running_server(workspace, "--host", "0.0.0.0") as server:  # noqa: S104
        assert (workspace / "token").read_text().strip() == token
        server.stop()
        assert server.process.stdout is not None
        assert token not in server.process.stdout.read()


def test_old_trainings_attach_over_loopback_beside_a_page_that_others_reach(tmp_path: Path) -> None:
    options = ("--host", "0.0.0.0", "--debugger-host", "127.0.0.1")  # noqa: S104
    with running_server(tmp_path / "w", *options) as server:
        assert server.debugger
        with calling(server.debugger) as caller:
            assert caller.one("SendMetadata", HELLO).version_matched
        assert httpx.get(f"{server.url}/api/v1/sessions").status_code == 401
        server.stop()
        assert server.process.stdout is not None
        assert "On another machine" not in server.process.stdout.read()


@pytest.mark.parametrize("option", ["--port", "--debugger-port"])
def test_a_port_in_use_is_one_line_that_names_its_holder(tmp_path: Path, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartFailedError) as caught, running_server(tmp_path / "w", option, str(port)):
            pass
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"tensight: port {port} is in use by process {os.getpid()} (")
    assert line.endswith(f"; end that, or choose another port with {option} (0: any) [port-unavailable]")


def test_two_servers_never_share_a_port(tmp_path: Path) -> None:
    with running_server(tmp_path / "first") as first:
        assert first.debugger
        port = first.debugger.rpartition(":")[2]
        taken = f"port {port} is in use by process {first.process.pid} "
        with (
            pytest.raises(StartFailedError, match=taken),
            running_server(tmp_path / "second", "--debugger-port", port),
        ):
            pass


def test_two_servers_never_share_a_workspace(tmp_path: Path) -> None:
    with running_server(tmp_path / "w") as first:
        with (
            pytest.raises(
                StartFailedError, match=rf"in use by the server at {first.url} \(process {first.process.pid}\)"
            ),
            running_server(tmp_path / "w"),
        ):
            pass
        assert httpx.get(f"{first.url}/api/v1/sessions").json() == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--port", "70000"], "--port is '70000': must be a whole number from 0 to 65535"),
        (["--host", "203.0.113.9"], "--host 203.0.113.9 is not an address of this machine"),
        (["--summary-base-dir", "/nowhere"], "--summary-base-dir is '/nowhere': must be a folder that exists"),
        (["--tls-cert", "/nowhere", "--tls-key", "/nowhere"], "--tls-cert /nowhere: No such file or directory"),
        (["--config", "/nowhere"], "--config is /nowhere: there is no such file"),
    ],
)
def test_what_keeps_it_from_starting_is_one_line(tmp_path: Path, options: list[str], message: str) -> None:
    with pytest.raises(StartFailedError) as caught, running_server(tmp_path / "w", *options):
        pass
    said, _, code = str(caught.value).rpartition(" ")
    assert said == f"tensight: {message}"
    assert code in ("[input-invalid]\n", "[port-unavailable]\n")
    assert not (tmp_path / "w" / "server.json").exists()


def test_what_is_in_the_workspace_is_for_its_owner_only(tmp_path: Path) -> None:
    with running_server(tmp_path / "deep" / "w"):
        files = list((tmp_path / "deep" / "w").rglob("*"))
        assert {path.name for path in files} >= {"lock", "server.json", "log", "tensight.log"}
        assert [path for path in files if path.stat().st_mode & 0o077] == []


def test_a_request_for_another_host_is_refused_unless_that_is_allowed(tmp_path: Path) -> None:
    with running_server(tmp_path / "w", "--allowed-host", "debug.example.org") as server:
        address = f"{server.url}/api/v1/sessions"
        assert httpx.get(address, headers={"Host": "evil.example.org"}).status_code == 403
        assert httpx.get(address, headers={"Host": "debug.example.org"}).status_code == 200
