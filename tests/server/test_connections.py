"""Connections that send nothing, too much or no HTTP: others are answered, and the log has a line, no traceback."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import httpx
import pytest

from tensight.server import connections
from tensight.server.http import create_http_app
from tensight.server.http_server import HttpServer
from tensight.server.http_settings import HttpSettings
from tensight.server.listening import open_socket
from tensight.sessions.registry import Sessions
from tensight.sessions.workspace import Workspace
from tests.server.running import RunningServer, running_server

if TYPE_CHECKING:
    from pathlib import Path

HOST = b"Host: 127.0.0.1\r\n"
GET = b"GET /api/v1/server HTTP/1.1\r\n" + HOST
POST = b"POST /api/v1/login HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
UPGRADE = (
    b"GET /api/v1/events/stream HTTP/1.1\r\n" + HOST + b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("connections") / "workspace") as server:
        yield server


def connected(server: RunningServer) -> socket.socket:
    url = httpx.URL(server.url)
    return socket.create_connection((url.host, url.port or 80), 20)


def answer(server: RunningServer, request: bytes) -> bytes:
    """Return everything that the server sends before it closes the connection."""
    with connected(server) as connection:
        connection.sendall(request)
        received = b""
        with suppress(ConnectionResetError):
            while data := connection.recv(65536):
                received += data
        return received


MALFORMED = {
    "no HTTP": b"\x00\x01\x02\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "letters as a length": POST + b"Content-Length: x\r\n\r\n",
    "a piece without length": POST + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n",
    "a piece without length of what is answered at once": GET + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n",
    "a path that is no ASCII": b"GET /\xff\xfe HTTP/1.1\r\n" + HOST + b"\r\n",
    "headers of 70,000 bytes": GET + b"X: " + b"a" * 70_000 + b"\r\n\r\n",
    "70,000 bytes of short headers": GET + b"X: aaaa\r\n" * 7_800 + b"\r\n",
    "a path of 70,000 bytes": b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n",
    "a handshake with a long header": UPGRADE + b"X: " + b"a" * 20_000 + b"\r\n\r\n",
    "a handshake with many headers": UPGRADE + b"X: a\r\n" * 300 + b"\r\n",
    "a handshake with a body": UPGRADE + b"Content-Length: 5\r\n\r\nhello",
    "a handshake with two keys": UPGRADE + b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
}


@pytest.mark.parametrize("request_bytes", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_request_is_answered_with_400_and_a_line_in_the_log(
    server: RunningServer, request_bytes: bytes
) -> None:
    before = len(server.errors)
    assert answer(server, request_bytes).startswith(b"HTTP/1.1 400 ")
    # Its answer comes after everything that the server logs of the request before it.
    assert httpx.get(f"{server.url}/api/v1/server").status_code == 200
    assert "Traceback" not in server.errors
    # The log is written by another thread: that the server is ready may be in it only now.
    logged = [line for line in server.errors[before:].splitlines() if " ready " not in line]
    assert len(logged) <= 1


def test_headers_of_64_kib_pass(server: RunningServer) -> None:
    request = GET + b"Connection: close\r\nX: " + b"a" * (connections.LONGEST_HEADERS - 200) + b"\r\n\r\n"
    assert answer(server, request).startswith(b"HTTP/1.1 200 ")


def test_what_follows_a_request_is_no_part_of_its_answer(server: RunningServer) -> None:
    before = len(server.errors)
    assert answer(server, GET + b"\r\n" + b"\x00no request\r\n\r\n").startswith(b"HTTP/1.1 200 ")
    assert "Traceback" not in server.errors[before:]


@pytest.mark.parametrize("frame", [b"\x81\x02\xff\xff", b"\xff" * 40, b"\x81\x81\0\0\0\0\xff", b"\x88\x82\0\0\0\0\0\0"])
def test_invalid_frames_end_a_websocket_and_leave_no_traceback(server: RunningServer, frame: bytes) -> None:
    with connected(server) as connection:
        connection.sendall(UPGRADE + b"\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 101 ")
        connection.sendall(frame)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass
    assert httpx.get(f"{server.url}/api/v1/server").status_code == 200
    assert "Traceback" not in server.errors


@pytest.mark.parametrize("begun", [b"", POST + b"Content-Length: 9\r\n\r\n{"], ids=["silent", "within a body"])
def test_2500_connections_without_a_request_keep_nobody_from_an_answer(server: RunningServer, begun: bytes) -> None:
    with ExitStack() as stack:
        for _ in range(2500):
            connection = stack.enter_context(connected(server))
            with suppress(OSError):  # closed already, in favour of newer ones
                connection.sendall(begun)
        for _ in range(3):
            assert httpx.get(f"{server.url}/api/v1/server", timeout=20).status_code == 200
    assert "Traceback" not in server.errors


@pytest.mark.parametrize("begun", [b"", b"GET / HT", POST + b"Content-Length: 9\r\n\r\n{"])
def test_a_connection_is_closed_when_its_request_does_not_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    monkeypatch.setattr(connections, "REQUEST_WITHIN_S", 0.1)

    async def wait_for_the_end() -> bytes:
        sessions = Sessions(Workspace(tmp_path), None)
        with open_socket("127.0.0.1", 0, "--port") as listening:
            server = HttpServer(create_http_app(sessions, settings=HttpSettings()), None)
            await server.start(listening)
            reader, writer = await asyncio.open_connection(*listening.getsockname())
            writer.write(begun)
            received = await asyncio.wait_for(reader.read(), 20)
            writer.close()
            server.stop()
            await server.running
        await sessions.close_all("the test is over")
        return received

    assert asyncio.run(wait_for_the_end()) == b""
