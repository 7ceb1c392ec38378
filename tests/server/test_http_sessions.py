"""Sessions over HTTP, on dumps that MindSpore really wrote: opened, commanded, closed; and what cannot be opened."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from tests.server.serving import Opened, Served, opened, served

SICK, HEALTHY = "sick-2.0.0", "healthy-2.10.0"


@pytest.fixture(scope="module")
def base_dir(unpacked: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two dumps, one of them a level deeper; beside the folder, and linked into it, one that is nobody's business."""
    base = tmp_path_factory.mktemp("runs") / "base"
    shutil.copytree(unpacked(SICK), base / SICK, copy_function=os.link)
    shutil.copytree(unpacked(HEALTHY), base / "team" / HEALTHY, copy_function=os.link)
    shutil.copytree(unpacked(SICK), base.parent / "secret", copy_function=os.link)
    (base / "link").symlink_to(base.parent / "secret")
    return base


@pytest.fixture
def server(base_dir: Path, tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path / "workspace", base_dir, max_offline=1, debugger_address="127.0.0.1:50051") as server:
        yield server


@pytest.fixture
def client(server: Served) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


def error_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def test_the_server_describes_itself(client: httpx.Client) -> None:
    server = client.get("/server").json()
    assert (server["name"], server["api"], server["debugger_address"]) == ("tensight", "v1", "127.0.0.1:50051")
    assert server["sessions"] == 0
    assert server["limits"]["rows"] == 1000


def test_dumps_are_listed_by_their_path_below_the_base_directory(client: httpx.Client) -> None:
    dumps = client.get("/dumps", params={"refresh": True}).json()
    assert [(dump["name"], dump["ranks"], dump["framework_version"]) for dump in dumps] == [
        (SICK, [0], "2.0.0"),
        (f"team/{HEALTHY}", [0], "2.10.0"),
    ]


def test_an_open_dump_is_a_session_until_it_is_closed(client: httpx.Client) -> None:
    session = opened(client, SICK)
    assert [one["name"] for one in client.get("/sessions").json()] == [SICK]
    assert {dump["name"]: dump["session"] for dump in client.get("/dumps").json()}[SICK] == session.get()["id"]
    assert opened(client, SICK).path == session.path
    assert session.ask("DELETE").status_code == 204
    assert client.get("/sessions").json() == []
    assert error_of(session.ask("GET")) == (404, "session-unknown")
    assert error_of(session.ask("DELETE")) == (404, "session-unknown")
    assert opened(client, SICK).path != session.path


def test_the_server_tells_when_sessions_come_and_go(client: httpx.Client) -> None:
    session = opened(client, SICK)
    session.ask("DELETE")
    events = client.get("/events").json()["events"]
    assert events[0]["data"]["name"] == SICK
    assert [event["kind"] for event in events][-1] == "closed"
    assert [event["number"] for event in events] == list(range(1, len(events) + 1))


def test_no_more_dumps_are_open_than_allowed(client: httpx.Client) -> None:
    opened(client, SICK)
    answer = client.post("/sessions", json={"dump": f"team/{HEALTHY}"})
    assert error_of(answer) == (429, "limit-exceeded")
    assert SICK in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "name",
    [
        "../secret",
        "link",
        f"{SICK}/../../secret",
        f"./{SICK}/../../secret",
        "/etc",
        "%2e%2e/secret",
        "..%2fsecret",
        "..\\secret",
        "team",
        f"{SICK}/rank_0",
        "no-such-dump",
        "runs/1",
        "runs/../../secret",
        "\0",
        "../workspace",
    ],
)
def test_only_names_that_are_listed_can_be_opened(client: httpx.Client, name: str) -> None:
    assert error_of(client.post("/sessions", json={"dump": name})) == (404, "dump-unknown")
    assert client.get("/sessions").json() == []


def test_an_absolute_path_is_no_name(client: httpx.Client, base_dir: Path) -> None:
    for path in (base_dir / SICK, base_dir.parent / "secret"):
        assert error_of(client.post("/sessions", json={"dump": os.fspath(path)})) == (404, "dump-unknown")


@pytest.mark.parametrize("session", ["7", "1%00", "x" * 80, "é"])
def test_an_unknown_session_is_not_found(client: httpx.Client, session: str) -> None:
    assert error_of(client.get(f"/sessions/{session}/graphs")) == (404, "session-unknown")


@pytest.mark.parametrize("session", ["..", "%2e%2e"])
def test_a_session_cannot_lead_out_of_its_path(client: httpx.Client, session: str) -> None:
    assert error_of(client.get(f"/sessions/{session}/graphs"))[0] == 404


def test_a_sessions_id_is_bounded(client: httpx.Client) -> None:
    assert error_of(client.get(f"/sessions/{'x' * 81}")) == (422, "input-invalid")


def test_a_damaged_dump_says_what_is_wrong(dump_copy: Callable[[str], Path], tmp_path: Path) -> None:
    for graph in dump_copy(SICK).rglob("*.pb"):
        graph.write_bytes(b"\xff" * 100)
    with served(tmp_path / "workspace", tmp_path) as server, server.client() as client:
        answer = client.post("/sessions", json={"dump": SICK})
        session = Opened(client, f"/sessions/{answer.json()['id']}")
        assert session.settled()["message"] or any(graph["problems"] for graph in session.get("/graphs"))


# --- run control ---


@pytest.fixture
def session(client: httpx.Client) -> Opened:
    return opened(client, SICK)


def test_a_dump_is_walked_through_step_by_step(session: Opened) -> None:
    assert session.get()["step"] == 0
    assert session.command("continue", steps=2)["step"] == 2
    assert session.command("step_back")["step"] == 1
    assert session.command("go_to_step", steps=4)["step"] == 4
    assert session.get("/executions")["total"] == 4


def test_a_dump_is_walked_through_operator_by_operator(session: Opened) -> None:
    session.command("go_to_step", steps=1)
    first = session.command("next_node")["node"]
    second = session.command("next_node")["node"]
    assert first
    assert second not in ("", first)
    assert session.command("previous_node")["node"] == first
    operators = session.get("/nodes", name="ReLU", kind="operator", limit=1)["nodes"]
    target = operators[0]["entry"]["path"]
    assert session.command("run_to_node", node=target)["node"] == target


def test_continue_stops_at_the_first_hit(session: Opened, planted: dict[str, Any]) -> None:
    session.post("/watchpoints", {"condition": "tensor_overflow"})
    found = session.command("continue")
    assert found["step"] == planted[SICK]["planted"]["inf"]["first_iteration"] + 1
    assert found["hits"] > 0


def test_a_command_that_is_impossible_here_says_why(session: Opened) -> None:
    assert session.refused("POST", "/command", 409, json={"action": "pause"})


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "command",
    [
        {},
        {"action": "fly"},
        {"action": "continue", "steps": -2},
        {"action": "continue", "steps": 2**31},
        {"action": "continue", "steps": "many"},
        {"action": None},
        [],
        "continue",
    ],
)
def test_what_is_no_command_is_refused(session: Opened, command: Any) -> None:
    assert session.refused("POST", "/command", 422, json=command)


def test_terminate_closes_a_dump(session: Opened) -> None:
    session.post("/command", {"action": "terminate"})
    with httpx.Client(base_url=session.client.base_url, timeout=60) as client:
        known = 0
        while client.get("/sessions").json():
            known = client.get("/events", params={"after": known, "wait_s": 30}).json()["last"]


def test_a_follower_of_a_session_is_told_its_end(server: Served, session: Opened) -> None:
    with connect(f"{server.websocket_url}{session.path}/events/stream") as follower:
        assert session.ask("DELETE").status_code == 204
        events = [json.loads(text) for text in follower]
        assert [event["number"] for event in events] == list(range(1, len(events) + 1))
        assert events[-1]["kind"] == "closed"
        assert follower.close_code == 1000
