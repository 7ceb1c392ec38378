"""Events over HTTP: asking for them, waiting for them, and following them over a WebSocket."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from tensight.sessions.events import MOST_KEPT
from tests.server.serving import WITHIN_S, Served, served

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path, max_subscribers=4) as server:
        yield server


@pytest.fixture
def client(server: Served) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


def happen(server: Served, number: int = 1, text: str = "") -> None:
    """Let so many events happen on the server."""

    def append() -> None:
        for count in range(number):
            server.sessions.events.append("message", level="info", text=text or f"event {count}")

    server.do(append)


def until(condition: Any) -> None:
    """Wait until something is so; the time given up to other threads is not waited for."""
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < deadline, "it never became so"
        threading.Event().wait(0.005)


def follow(server: Served, after: int = 0, **options: Any) -> Any:
    return connect(f"{server.websocket_url}/events/stream?after={after}", open_timeout=WITHIN_S, **options)


def numbers(page: httpx.Response) -> list[int]:
    assert page.status_code == 200, page.text
    return [event["number"] for event in page.json()["events"]]


def next_number(websocket: Any) -> int:
    return json.loads(websocket.recv(WITHIN_S))["number"]


def all_that_comes(websocket: Any) -> Iterator[int]:
    """The numbers of the events that a follower is sent until it is sent away."""
    with suppress(ConnectionClosed):
        while True:
            yield next_number(websocket)


# --- asking and waiting ---


def test_events_are_told_from_the_number_known(client: httpx.Client, server: Served) -> None:
    happen(server, 5)
    assert numbers(client.get("/events")) == [1, 2, 3, 4, 5]
    assert numbers(client.get("/events?after=3")) == [4, 5]
    page = client.get("/events?after=1&limit=2")
    assert (numbers(page), page.json()["last"], page.json()["missed"]) == ([2, 3], 3, False)


def test_without_events_the_answer_comes_at_once(client: httpx.Client) -> None:
    assert client.get("/events").json() == {"events": [], "last": 0, "missed": False}


def test_a_waiting_poll_is_answered_by_the_next_event(client: httpx.Client, server: Served) -> None:
    happen(server, 2)
    with ThreadPoolExecutor(1) as executor:
        poll = executor.submit(client.get, "/events?after=2&wait_s=30")
        until(lambda: server.streams.subscribers == 1)
        happen(server)
        assert numbers(poll.result(WITHIN_S)) == [3]
    assert server.streams.subscribers == 0


def test_a_poll_ends_without_events_when_its_time_is_over(client: httpx.Client) -> None:
    assert numbers(client.get("/events?wait_s=0.05")) == []


def test_a_poll_whose_client_left_no_longer_counts(server: Served) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(b"GET /api/v1/events?wait_s=30 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        until(lambda: server.streams.subscribers == 1)
    until(lambda: server.streams.subscribers == 0)


def test_a_client_that_was_away_for_too_long_is_told_so(client: httpx.Client, server: Served) -> None:
    happen(server, MOST_KEPT + 50)
    page = client.get("/events?after=3&limit=1").json()
    assert (page["events"][0]["number"], page["missed"]) == (51, True)


@pytest.mark.parametrize("asked", ["after=-1", "after=x", "wait_s=31", "wait_s=nan", "limit=0", "limit=1001"])
def test_what_is_out_of_bounds_is_refused(client: httpx.Client, asked: str) -> None:
    answer = client.get(f"/events?{asked}")
    assert answer.status_code == 422
    assert answer.json()["error"]["where"] == f"query.{asked.partition('=')[0]}"


# --- following ---


def test_a_follower_catches_up_and_then_hears_events_as_they_happen(server: Served) -> None:
    happen(server, 3)
    with follow(server, 1) as websocket:
        assert [next_number(websocket) for _ in range(2)] == [2, 3]
        happen(server, text="é 模型")
        assert json.loads(websocket.recv(WITHIN_S))["data"] == {"level": "info", "text": "é 模型"}


def test_a_follower_that_comes_back_misses_nothing(server: Served) -> None:
    happen(server, 2)
    with follow(server) as websocket:
        seen = [next_number(websocket) for _ in range(2)]
    happen(server, 1500)
    with follow(server, seen[-1]) as websocket:
        seen += [next_number(websocket) for _ in range(1500)]
    assert seen == list(range(1, 1503))


def test_a_gap_tells_a_follower_that_events_were_lost(server: Served) -> None:
    happen(server, MOST_KEPT + 50)
    with follow(server, 3) as websocket:
        assert next_number(websocket) == 51


def test_a_number_of_another_server_starts_from_the_beginning(server: Served) -> None:
    happen(server, 2)
    with follow(server, 4711) as websocket:
        assert next_number(websocket) == 1


def test_a_follower_that_leaves_makes_room(server: Served) -> None:
    with follow(server):
        until(lambda: server.streams.subscribers == 1)
    until(lambda: server.streams.subscribers == 0)


def test_what_a_follower_says_is_not_listened_to(server: Served) -> None:
    with follow(server) as websocket:
        websocket.send("hello?")
        websocket.send(b"\0" * 1000)
        happen(server)
        assert next_number(websocket) == 1


def test_there_may_be_only_so_many_subscribers(client: httpx.Client, server: Served) -> None:
    with ExitStack() as followers:
        for _ in range(4):
            followers.enter_context(follow(server))
        until(lambda: server.streams.subscribers == 4)
        with pytest.raises(InvalidStatus) as refusal, follow(server):
            pass
        assert refusal.value.response.status_code == 429
        assert json.loads(refusal.value.response.body or b"")["error"]["code"] == "limit-exceeded"
        assert client.get("/events?wait_s=1").status_code == 429
        assert client.get("/events").status_code == 200
    until(lambda: server.streams.subscribers == 0)
    with follow(server):
        pass


@pytest.mark.parametrize("path", ["/sessions/7/events/stream", "/events/stream?after=-1", "/events/stream?after=x"])
def test_a_stream_that_cannot_be_is_refused_with_a_reason(server: Served, path: str) -> None:
    with pytest.raises(InvalidStatus) as refusal, connect(f"{server.websocket_url}{path}"):
        pass
    assert refusal.value.response.status_code in (404, 422)
    assert json.loads(refusal.value.response.body or b"")["error"]["message"]


def test_followers_are_sent_away_when_the_server_stops(server: Served) -> None:
    with ThreadPoolExecutor(1) as executor, server.client() as client, follow(server) as websocket:
        poll = executor.submit(client.get, "/events?wait_s=30")
        until(lambda: server.streams.subscribers == 2)
        server.do(server.streams.stop)
        assert numbers(poll.result(WITHIN_S)) == []
        with pytest.raises(ConnectionClosed) as closed:
            websocket.recv(WITHIN_S)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1001


# --- slow ones, and many ---


def test_a_slow_follower_is_dropped_and_keeps_nobody_waiting(tmp_path: Path) -> None:
    text = "x" * 200_000
    with served(tmp_path, slow_after_s=0.3) as server, follow(server) as quick, follow(server, max_queue=1) as slow:
        until(lambda: server.streams.subscribers == 2)
        for _ in range(40):  # 32 MB: more than the buffers of both sides hold
            happen(server, 4, text)
            seen = [next_number(quick) for _ in range(4)][-1]
        until(lambda: server.streams.dropped == 1)
        happen(server)
        assert next_number(quick) == seen + 1
        got = list(all_that_comes(slow))
        assert slow.close_code == 1013
        assert got == list(range(1, len(got) + 1))
        assert len(got) < seen
        with server.client() as client:
            assert numbers(client.get(f"/events?after={got[-1]}&limit=1")) == [got[-1] + 1]


@pytest.mark.long
def test_hundreds_of_followers_hear_every_event(tmp_path: Path) -> None:
    with served(tmp_path, max_subscribers=300) as server, ExitStack() as entered:
        followers = [entered.enter_context(follow(server, compression=None)) for _ in range(200)]
        until(lambda: server.streams.subscribers == 200)
        happen(server, 20)
        for follower in followers:
            assert [next_number(follower) for _ in range(20)] == list(range(1, 21))
