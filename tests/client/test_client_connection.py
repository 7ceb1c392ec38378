"""A script reaches the server, proves who it is, and survives a connection that breaks."""

from __future__ import annotations

import http.server
import json
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import pytest
import trustme

import tensight
from tensight.client import AccessError, ServerError, UnreachableError, connection, download
from tensight.errors import InputError, TensightError
from tests.server.running import running_server
from tests.standin.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tensight.client import Session
    from tests.server.running import RunningServer

WEIGHT = "network.fc2.weight"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again as often, but sooner."""
    for module in (connection, download):
        monkeypatch.setattr(module, "RETRY_AFTER_S", (0.01, 0.02, 0.05, 0.1))


@contextmanager
def served(answer: Callable[[http.server.BaseHTTPRequestHandler], None]) -> Iterator[str]:
    """Some other server than ours."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, *_: object) -> None:
            """Keep quiet."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def answering(body: bytes, status: int = 200, **headers: str) -> Iterator[tuple[str, list[str]]]:
    """A server that gives each request the same answer; also what it was asked."""
    asked: list[str] = []

    def answer(request: http.server.BaseHTTPRequestHandler) -> None:
        asked.append(f"{request.path} {request.headers.get('Authorization', '')}".strip())
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    with served(answer) as url:
        yield url, asked


# --- addresses ---


@pytest.mark.parametrize("url", ["ftp://127.0.0.1", "http://", "http://127.0.0.1:port", "http://h/?query=1", " "])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="not the address of a server"):
        tensight.connect(url)


def test_the_scheme_and_a_slash_at_the_end_may_be_left_out_or_given(dump_server: RunningServer) -> None:
    plain = dump_server.url.removeprefix("http://")
    for url in (plain, f"http://{plain}/", f"http://{plain}/api/v1"):
        with tensight.connect(url) as server:
            assert server.version == tensight.__version__
            assert server.url == dump_server.url


def test_nobody_there_says_how_to_start_a_server() -> None:
    with pytest.raises(UnreachableError, match="tensight start") as caught:
        tensight.connect("127.0.0.1:1")
    assert isinstance(caught.value, (TensightError, ConnectionError))


def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(
    dump_server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with tensight.connect(dump_server.url) as server:
        server.sessions()


def test_another_kind_of_server_is_recognised() -> None:
    with answering(b"<html>hello</html>") as (url, _), pytest.raises(ServerError, match="is it a Tensight server"):
        tensight.connect(url)
    with answering(b"gone", 404) as (url, _), pytest.raises(ServerError, match="404"):
        tensight.connect(url)
    with answering(b'{"name": 1}') as (url, _), pytest.raises(ServerError, match="name"):
        tensight.connect(url)


def test_a_token_does_not_follow_a_redirection() -> None:
    with answering(b"") as (elsewhere, asked_elsewhere):
        with answering(b"", 307, Location=elsewhere) as (url, asked), pytest.raises(ServerError, match=elsewhere):
            tensight.connect(url, "secret-token-of-a-server")
        assert asked == ["/api/v1/server Bearer secret-token-of-a-server"]
        assert asked_elsewhere == []


def test_fields_of_a_newer_server_are_ignored() -> None:
    greeting = {"name": "tensight", "version": "99.1", "something": {"new": True}}
    with answering(json.dumps(greeting).encode()) as (url, _), tensight.connect(url) as server:
        assert server.version == "99.1"


def test_an_error_of_a_kind_that_only_a_newer_server_knows_is_still_told() -> None:
    error = {"error": {"code": "on-strike", "message": "the server is on strike", "where": "/api/v1/server"}}
    with answering(json.dumps(error).encode(), 503) as (url, _), pytest.raises(ServerError, match=r"^the server is on"):
        tensight.connect(url)


# --- who may ---


def test_a_server_with_a_token_wants_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = "correct-horse-battery-staple"  # noqa: S105 - of this test
    (tmp_path / "token").write_text(token)
    options = (
        "--token-file",
        str(tmp_path / "token"),
        "--summary-base-dir",
        str(tmp_path),
        "--url-path-prefix",
        "/a/b",
    )
    with running_server(tmp_path / "workspace", *options) as running:
        with pytest.raises(AccessError, match=r"needs its access token, .*; give it with token=… or in TENSIGHT_TOKEN"):
            tensight.connect(running.url)
        with pytest.raises(AccessError, match=r"is not that of this server, .*; it came from token=…"):
            tensight.connect(running.url, "wrong-horse-battery-staple")
        monkeypatch.setenv("TENSIGHT_TOKEN", "wrong-horse-battery-staple")
        with pytest.raises(
            AccessError, match=r"is not that of this server, .*; it came from the variable TENSIGHT_TOKEN"
        ):
            tensight.connect(running.url)
        with tensight.connect(running.url, f"{token}\n") as server:
            assert server.sessions() == []
        monkeypatch.setenv("TENSIGHT_TOKEN", token)
        with tensight.connect(running.url) as server:
            assert server.sessions() == []
    with pytest.raises(InputError, match="characters"):
        tensight.connect(running.url, "tökén")


def test_certificates_are_checked_on_both_sides(tmp_path: Path) -> None:
    authority = trustme.CA()
    ours, theirs = authority.issue_cert("127.0.0.1"), authority.issue_cert("person@example.org")
    files = {name: str(tmp_path / name) for name in ("ca.pem", "cert.pem", "key.pem", "own.pem", "own-key.pem")}
    authority.cert_pem.write_to_path(files["ca.pem"])
    ours.cert_chain_pems[0].write_to_path(files["cert.pem"])
    ours.private_key_pem.write_to_path(files["key.pem"])
    theirs.cert_chain_pems[0].write_to_path(files["own.pem"])
    theirs.private_key_pem.write_to_path(files["own-key.pem"])
    options = ("--tls-cert", files["cert.pem"], "--tls-key", files["key.pem"], "--tls-client-ca", files["ca.pem"])
    certificate = (files["own.pem"], files["own-key.pem"])
    with running_server(tmp_path / "workspace", *options, "--summary-base-dir", str(tmp_path)) as running:
        assert running.url.startswith("https://")
        with tensight.connect(running.url, verify=files["ca.pem"], certificate=certificate) as server:
            assert server.sessions() == []
        with tensight.connect(running.url, verify=False, certificate=certificate) as server:
            assert server.sessions() == []
        with pytest.raises(AccessError, match="verify="):
            tensight.connect(running.url, certificate=certificate)
        with pytest.raises(UnreachableError):
            tensight.connect(running.url, verify=files["ca.pem"])
        with pytest.raises(UnreachableError, match="https://"):
            tensight.connect(running.url.replace("https", "http"))
    with pytest.raises(InputError, match="certificates cannot be used"):
        tensight.connect(running.url, verify=str(tmp_path / "missing.pem"))


# --- connections that break ---


@pytest.fixture
def proxied(dump_server: RunningServer, session: Session) -> Iterator[tuple[Proxy, Session]]:
    """The session, reached over a connection that the test can break."""
    with Proxy(dump_server.url.removeprefix("http://")) as proxy, tensight.connect(proxy.address) as server:
        yield proxy, server.session(session.id)


def test_questions_survive_a_connection_that_breaks(proxied: tuple[Proxy, Session]) -> None:
    proxy, session = proxied
    before = session.summary
    proxy.cut()
    assert session.summary == before


def test_a_change_is_never_made_twice_but_made_if_the_connection_was_idle(proxied: tuple[Proxy, Session]) -> None:
    proxy, session = proxied
    proxy.refuse()
    with pytest.raises(UnreachableError):
        session.watch("tensor_overflow")
    proxy.heal()
    assert len(session.watchpoints()) == 0
    session.watch("tensor_overflow")
    assert len(session.watchpoints()) == 1


def test_a_server_that_is_gone_is_told_after_a_few_tries(proxied: tuple[Proxy, Session]) -> None:
    proxy, session = proxied
    proxy.refuse()
    with pytest.raises(UnreachableError, match=proxy.address):
        _ = session.summary
    assert "broke" in session._repr_html_() or "no server" in session._repr_html_()


def test_waiting_goes_on_when_the_connection_breaks(proxied: tuple[Proxy, Session], session: Session) -> None:
    proxy, remote = proxied
    events = remote.events(after=remote.summary.last_event, timeout_s=60)
    found = []
    asked = threading.Event()

    def follow() -> None:
        asked.set()
        found.append(next(iter(events)))

    thread = threading.Thread(target=follow)
    thread.start()
    assert asked.wait(60)
    proxy.cut()
    session.watch("tensor_overflow")
    thread.join(60)
    assert [event.kind for event in found] == ["watchpoints"]


# --- downloads ---


class BreakingServer:
    """A server that breaks off every download after a piece of it, and takes part in `most` downloads."""

    def __init__(self, body: bytes, piece_bytes: int, most: int = 1000) -> None:
        self.body, self.piece_bytes, self.most = body, piece_bytes, most
        self.ranges: list[str] = []

    def answer(self, request: http.server.BaseHTTPRequestHandler) -> None:
        if "/tensor/file" in request.path:
            self._send_piece(request)
            return
        record = {"id": "1", "name": "run", "state": "paused", "created": 0}
        answer = [record] if request.path.endswith("/sessions") else {"name": "tensight", "version": "1"}
        self._send(request, 200, json.dumps(answer).encode())

    def _send_piece(self, request: http.server.BaseHTTPRequestHandler) -> None:
        request.close_connection = True
        if len(self.ranges) >= self.most:
            return
        asked = request.headers.get("Range", "")
        self.ranges.append(asked)
        assert not asked or request.headers["If-Range"] == '"tag"'
        start = int(asked.removeprefix("bytes=").rstrip("-") or 0)
        rest = self.body[start:]
        headers = {"ETag": '"tag"', "Content-Range": f"bytes {start}-{len(self.body) - 1}/{len(self.body)}"}
        self._send(request, 206 if asked else 200, rest[: self.piece_bytes], len(rest), headers)

    def _send(
        self,
        request: http.server.BaseHTTPRequestHandler,
        status: int,
        content: bytes,
        declared: int | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        request.send_response(status)
        for name, value in (headers or {}).items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(content) if declared is None else declared))
        request.end_headers()
        request.wfile.write(content)


BODY = bytes(range(256)) * 4000


def test_a_download_goes_on_where_the_connection_broke(tmp_path: Path) -> None:
    breaking = BreakingServer(BODY, len(BODY) // 5 + 1)
    with served(breaking.answer) as url, tensight.connect(url) as server:
        target = server.session("1").tensor("0/g/n:0@1").save(tmp_path / "weight.npy")
    assert target.read_bytes() == BODY
    # One byte of what is there is asked for again each time, so five pieces and a little do.
    assert breaking.ranges[0] == ""
    assert all(each.startswith("bytes=") for each in breaking.ranges[1:])
    assert len(breaking.ranges) <= 6
    assert [path.name for path in tmp_path.iterdir()] == ["weight.npy"]


def test_a_download_goes_on_where_an_earlier_process_stopped(tmp_path: Path) -> None:
    breaking = BreakingServer(BODY, 10_000, most=3)
    target = tmp_path / "weight.npy"
    with served(breaking.answer) as url, tensight.connect(url) as server:
        tensor = server.session("1").tensor("0/g/n:0@1")
        with pytest.raises(UnreachableError):
            tensor.save(target)
        assert not target.exists()
        breaking.piece_bytes, breaking.most = len(BODY), 4
        tensor.save(target)
    assert target.read_bytes() == BODY
    assert breaking.ranges == ["", "bytes=9999-", "bytes=19998-", "bytes=29997-"]


def test_a_saved_tensor_is_the_one_on_the_server(session: Session, tmp_path: Path) -> None:
    tensor = session.tensor(WEIGHT, step=2)
    saved = tensor.save(tmp_path)
    assert saved.name == "network.fc2.weight.output.0.rank0.step2.npy"
    np.testing.assert_array_equal(np.load(saved), tensor.numpy())
    assert tensor.save(tmp_path / "other.npy").read_bytes() == saved.read_bytes()


def test_a_part_of_something_else_is_not_continued(session: Session, tmp_path: Path) -> None:
    target = tmp_path / "weight.npy"
    (tmp_path / ".weight.npy.part").write_bytes(b"something else")
    (tmp_path / ".weight.npy.part.json").write_text('{"source": [], "etag": "\\"old\\""}')
    tensor = session.tensor(WEIGHT, step=2)
    tensor.save(target)
    np.testing.assert_array_equal(np.load(target), tensor.numpy())


def test_a_part_of_an_older_state_is_replaced(session: Session, tmp_path: Path) -> None:
    target = tmp_path / "weight.npy"
    tensor = session.tensor(WEIGHT, step=2)
    source = [session._connection.url, f"{session._path()}/tensor/file", {"address": tensor.address}]
    (tmp_path / ".weight.npy.part").write_bytes(b"x" * 100)
    (tmp_path / ".weight.npy.part.json").write_text(json.dumps({"source": source, "etag": '"old"'}))
    tensor.save(target)
    np.testing.assert_array_equal(np.load(target), tensor.numpy())


def test_a_file_that_cannot_be_written_is_an_error_of_the_system(session: Session, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="missing"):
        session.tensor(WEIGHT, step=2).save(tmp_path / "missing" / "weight.npy")


def test_without_an_address_it_is_the_server_of_the_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSIGHT_WORKSPACE", str(tmp_path / "w"))
    options = ("--url-path-prefix", "team", "--token-file", str(tmp_path / "token"))
    with running_server(tmp_path / "w", *options) as running:
        with tensight.connect() as server:
            assert (server.url, server.sessions()[:]) == (running.url, [])
        with tensight.connect(token=(tmp_path / "token").read_text().strip()) as server:
            assert server.url == running.url
        # A variable that names another port is meant.
        monkeypatch.setenv("TENSIGHT_PORT", "1")
        with pytest.raises(UnreachableError, match=r"http://127\.0\.0\.1:1\b"):
            tensight.connect()


def test_without_an_address_the_port_of_the_environment_is_taken(
    dump_server: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSIGHT_WORKSPACE", str(tmp_path))
    monkeypatch.setenv("TENSIGHT_PORT", dump_server.url.rpartition(":")[2])
    with tensight.connect() as server:
        assert server.url == dump_server.url
    monkeypatch.setenv("TENSIGHT_PORT", "many")
    with pytest.raises(InputError, match="TENSIGHT_PORT is 'many'"):
        tensight.connect()


def test_the_address_comes_from_the_environment_where_none_is_given(
    dump_server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSIGHT_URL", dump_server.url)
    with tensight.connect() as server:
        assert server.url == dump_server.url


def test_what_the_docs_name_is_there_after_one_import() -> None:
    program = "import tensight; help(tensight.client.Session.watch); tensight.analysis.check, tensight.dumps.open_dump"
    assert subprocess.run([sys.executable, "-c", program], stdout=subprocess.DEVNULL).returncode == 0


def test_importing_tensight_does_not_load_the_client() -> None:
    program = "import sys, tensight; sys.exit(any(name in sys.modules for name in ('httpx', 'pydantic', 'numpy')))"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
