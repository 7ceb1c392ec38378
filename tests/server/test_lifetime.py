"""How a server ends: everybody is told, nothing hangs, and the next one starts where it ended."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tensight.wire.debugger_pb2 import EventReply, Heartbeat, Metadata
from tests.server.calling import calling
from tests.server.running import RunningServer, kept_ports, running_server

STREAM = "/api/v1/events/stream"
HELLO = Metadata(device_name=b"0:0", ms_version=b"2.0.0", graph_num=1).SerializeToString()


def is_ended(server: RunningServer) -> bool:
    return not (server.workspace / "server.json").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_at_a_signal_waiting_processes_are_told_and_the_server_ends(tmp_path: Path, number: signal.Signals) -> None:
    with running_server(tmp_path / "w") as server:
        assert server.debugger
        with calling(server.debugger) as caller:
            caller.attach("0:0")
            waiting = caller.wait_for_command("0:0")
            # Answered after the call before it has reached the server.
            caller.one("SendHeartbeat", Heartbeat(period=30).SerializeToString())
            server.process.send_signal(number)
            reply = EventReply.FromString(waiting.result())
        assert (reply.status, reply.message) == (EventReply.FAILED, b"the debug server is shutting down")
        assert not reply.HasField("exit")
        assert server.wait() == 0
        assert is_ended(server)
        assert "ended" in server.errors.splitlines()[-1]
        assert "error" not in server.errors


def test_requests_that_wait_for_events_do_not_hold_it_up(tmp_path: Path) -> None:
    with running_server(tmp_path / "w") as server, httpx.stream("GET", f"{server.url}/api/v1/sessions"):
        port = int(server.url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as polling:
            polling.sendall(b"GET /api/v1/events?wait_s=30 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            with socket.create_connection(("127.0.0.1", port)) as half:
                half.sendall(b"GET /api/v1/sessions HTTP/1.1\r\nHost")
                assert server.stop() == 0


def test_a_thread_that_computes_what_nothing_needs_does_not_hold_it_up() -> None:
    script = """
import asyncio, threading
from tensight.server.lifetime import allow_threads, end_threads

async def main():
    allow_threads()
    asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)
    print("closed")
    await end_threads()

asyncio.run(main())
"""
    ended = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60)
    assert ended.stdout == "closed\n"


def test_subscribers_are_sent_away(tmp_path: Path) -> None:
    with running_server(tmp_path / "w") as server, connect(f"{server.url.replace('http', 'ws')}{STREAM}") as follower:
        server.process.send_signal(signal.SIGTERM)
        with pytest.raises(ConnectionClosed):
            follower.recv(timeout=30)
        assert server.wait() == 0


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with running_server(tmp_path / "w") as server:
        # Stopped, so that both signals are there when it goes on.
        server.process.send_signal(signal.SIGSTOP)
        server.process.send_signal(signal.SIGTERM)
        server.process.send_signal(signal.SIGINT)
        server.process.send_signal(signal.SIGCONT)
        assert server.wait() in (128 + signal.SIGTERM, 128 + signal.SIGINT)
        assert is_ended(server)
        assert "ended at once: a second signal" in server.errors


def test_the_next_server_starts_after_an_orderly_end_and_after_a_kill(tmp_path: Path) -> None:
    ports = kept_ports()
    with running_server(tmp_path / "w", *ports) as first:
        assert first.debugger
        with calling(first.debugger) as caller:
            caller.one("SendMetadata", HELLO)
            first.kill()
        assert not is_ended(first)
    with running_server(tmp_path / "w", *ports) as second:
        assert second.url == first.url
        assert httpx.get(f"{second.url}/api/v1/server").status_code == 200
        assert second.stop() == 0
    with running_server(tmp_path / "w", *ports) as third:
        assert httpx.get(f"{third.url}/api/v1/server").status_code == 200


def test_a_failure_that_nobody_expects_is_logged_and_ends_nothing(tmp_path: Path) -> None:
    with running_server(tmp_path / "w") as server:
        with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as http:
            http.sendall(b"\x00\xff" * 1000)
            assert http.recv(100).startswith(b"HTTP/1.1 400")
        assert httpx.get(f"{server.url}/api/v1/sessions").json() == []
