"""Watchpoints, hits and origins over HTTP, on a dump in which sicknesses were planted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.serving import Opened, opened, served

SICK = "sick-2.0.0"


@pytest.fixture(scope="module")
def client(unpacked: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    workspace = tmp_path_factory.mktemp("workspace")
    with served(workspace, unpacked(SICK).parent) as server, server.client() as client:
        yield client


@pytest.fixture
def session(client: httpx.Client) -> Iterator[Opened]:
    """The dump, open before its first step, without watchpoints."""
    yield opened(client, SICK)
    again = opened(client, SICK)  # a test may have closed it; watchpoints are kept for the dump
    assert again.ask("DELETE", "/watchpoints").status_code == 204
    assert again.ask("DELETE").status_code == 204


@pytest.fixture
def sick(planted: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = planted[SICK]["planted"]
    return found


def watch(session: Opened, condition: str, **fields: Any) -> dict[str, Any]:
    watchpoint: dict[str, Any] = session.post("/watchpoints", {"condition": condition, **fields})
    return watchpoint


# --- watchpoints ---


def test_a_watchpoint_is_created_described_changed_and_deleted(session: Opened) -> None:
    created = watch(session, "tensor_too_large", parameters={"max_gt": 3}, name="large", selection="weights")
    path = f"/watchpoints/{created['id']}"
    assert (created["abbreviation"], created["enabled"]) == ("TL", True)
    assert created["parameters"]["max_gt"] == 3
    assert session.get("/watchpoints") == [created]
    assert session.get(path) == created
    answer = session.ask("PATCH", path, json={"parameters": {"max_gt": 4}, "enabled": False})
    changed = answer.json()
    assert answer.status_code == 200
    assert (changed["parameters"]["max_gt"], changed["enabled"], changed["name"]) == (4, False, "large")
    assert session.ask("DELETE", path).status_code == 204
    assert session.refused("GET", path, 404)
    assert watch(session, "tensor_overflow")["id"] > created["id"]


def test_nodes_are_added_and_removed(session: Opened) -> None:
    created = watch(session, "tensor_overflow", selection="none")
    assert created["nodes"] == 0
    edits = [{"path": "Default"}, {"path": "Default", "containing": "conv", "add": False}]
    changed = session.ask("PATCH", f"/watchpoints/{created['id']}", json={"further_edits": edits}).json()
    assert changed["nodes"] > 0
    entries = session.get("/tree", watchpoint=created["id"])["entries"]
    assert {entry["path"]: entry["watched"] for entry in entries}["Default"] == "some"
    assert {entry["path"]: entry["watched"] for entry in entries}["Gradients"] == "none"


def test_all_watchpoints_are_deleted_at_once(session: Opened) -> None:
    watch(session, "tensor_overflow")
    watch(session, "tensor_too_large", parameters={"max_gt": 1})
    assert session.ask("DELETE", "/watchpoints").status_code == 204
    assert session.get("/watchpoints") == []


def test_the_recommended_watchpoints_are_there_once(session: Opened) -> None:
    listed = session.get("/watchpoints/recommended")
    assert session.get("/watchpoints") == []
    created = session.post("/watchpoints/recommended", {"accept": True})
    assert created == listed
    assert session.get("/watchpoints") == created
    assert session.get()["recommended_offered"]
    assert session.post("/watchpoints/recommended", {"accept": True}) == created == session.get("/watchpoints")
    assert session.get("/watchpoints/recommended") == []


def test_watchpoints_come_back_with_the_dump(session: Opened) -> None:
    watch(session, "tensor_overflow", name="mine")
    session.ask("DELETE")
    again = opened(session.client, SICK)
    assert [one["name"] for one in again.get("/watchpoints")] == ["mine"]


def test_conditions_say_whether_they_are_available(session: Opened) -> None:
    everywhere = session.client.get("/conditions").json()
    here = session.get("/conditions")
    assert [one["id"] for one in everywhere] == [one["id"] for one in here]
    assert all(one["available"] for one in everywhere)
    unavailable = {one["id"]: one["unavailable_because"] for one in here if not one["available"]}
    assert unavailable["operator_overflow"]
    assert session.refused("POST", "/watchpoints", 409, json={"condition": "operator_overflow"})


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"condition": "nonsense"},
        {"condition": "tensor_too_large"},
        {"condition": "tensor_too_large", "parameters": {"max_gt": "much"}},
        {"condition": "tensor_too_large", "parameters": {"nonsense": 1}},
        {"condition": "tensor_overflow", "selection": "no such selection("},
        {"condition": "tensor_overflow", "name": "x" * 201},
        {"condition": "tensor_overflow", "severity": "fatal"},
        {"condition": "tensor_overflow", "edits": [{"add": True}]},
        {"condition": "tensor_overflow", "edits": "all"},
    ],
)
def test_a_watchpoint_that_makes_no_sense_is_refused(session: Opened, spec: dict[str, Any]) -> None:
    assert session.refused("POST", "/watchpoints", 422, json=spec)
    assert session.get("/watchpoints") == []


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "Infinity"])
def test_a_parameter_must_be_a_finite_number(session: Opened, number: str) -> None:
    body = f'{{"condition": "tensor_too_large", "parameters": {{"max_gt": {number}}}}}'
    headers = {"Content-Type": "application/json"}
    assert session.refused("POST", "/watchpoints", 422, content=body, headers=headers)


@pytest.mark.parametrize(
    ("number", "status"), [("999", 404), ("0", 422), ("-1", 404), ("x", 404), ("9" * 10, 422), ("9" * 5000, 404)]
)
def test_an_unknown_watchpoint_is_not_found(session: Opened, number: str, status: int) -> None:
    assert session.refused("GET", f"/watchpoints/{number}", status)
    assert session.refused("PATCH", f"/watchpoints/{number}", status, json={})
    assert session.refused("DELETE", f"/watchpoints/{number}", status)


# --- hits ---


def test_hits_are_listed_in_the_order_of_execution_with_the_persons_line(session: Opened, sick: dict[str, Any]) -> None:
    watch(session, "tensor_overflow", severity="error")
    session.command("continue")
    page = session.get("/hits", limit=1000)
    assert page["step"] == sick["inf"]["first_iteration"] + 1
    first = page["nodes"][0]
    assert first["node"] == sick["inf"]["operator"]
    assert (first["line"]["file"], first["line"]["line"]) == (sick["inf"]["file"], sick["inf"]["line"])
    positions = [node["position"] for node in page["nodes"] if node["position"] is not None]
    assert positions == sorted(positions)
    assert page["total"] == len(page["nodes"])


def test_hits_come_in_pages_and_around_a_node(session: Opened) -> None:
    watch(session, "tensor_overflow")
    session.command("continue")
    whole = session.get("/hits", limit=1000)
    assert whole["total"] > 10
    pages = [session.get("/hits", offset=at, limit=10) for at in range(0, whole["total"], 10)]
    assert [node for page in pages for node in page["nodes"]] == whole["nodes"]
    focus = whole["nodes"][-1]["node"]
    assert focus in [node["node"] for node in session.get("/hits", focus=focus, limit=10)["nodes"]]


def test_hits_are_filtered_by_watchpoint_graph_and_rank(session: Opened, sick: dict[str, Any]) -> None:
    watch(session, "tensor_overflow")
    large = watch(session, "tensor_too_large", parameters={"max_gt": 1e6})
    session.command("go_to_step", steps=3)
    session.command("recheck")
    everything = session.get("/hits", limit=1000)["total"]
    filtered = session.get("/hits", watchpoint=large["id"], limit=1000)
    assert 0 < filtered["total"] < everything
    hits = [hit for node in filtered["nodes"] for tensor in node["tensors"] for hit in tensor["hits"]]
    assert {hit["condition"] for hit in hits} == {"tensor_too_large"}
    (parameter,) = [one for one in hits[0]["parameters"] if one["name"] == "max_gt"]
    assert parameter["hit"]
    assert parameter["actual"] > parameter["preset"] == 1e6
    assert session.get("/hits", graph="kernel_graph_0", rank=0, limit=1)["total"] == everything


def test_a_change_outdates_the_hits_until_they_are_checked_again(session: Opened) -> None:
    watch(session, "tensor_overflow")
    session.command("continue")
    watch(session, "tensor_too_large", parameters={"max_gt": 1e6})
    assert session.get("/hits")["outdated"]
    assert session.get()["outdated"]
    session.command("recheck")
    assert not session.get("/hits")["outdated"]


def test_a_step_that_was_checked_keeps_its_hits_and_another_is_called_unchecked(session: Opened) -> None:
    point = watch(session, "tensor_overflow")
    session.command("continue")
    found = session.get("/hits", limit=1000)
    assert found["total"] > 0

    session.command("go_to_step", steps=4)
    assert (session.get()["step"], session.get()["hits"], session.get()["outdated"]) == (4, 0, True)
    session.command("step_back")
    assert session.get("/hits", limit=1000) == found
    assert not session.get()["outdated"]
    # Nothing hit there, and that is known.
    session.command("go_to_step", steps=2)
    assert (session.get()["hits"], session.get()["outdated"]) == (0, False)
    spans = {span["first"]: span for span in session.get("/timeline")["steps"]}
    assert [spans[step]["unchecked"] for step in (1, 2, 3, 4)] == [False, False, False, True]

    session.ask("PATCH", f"/watchpoints/{point['id']}", json={"enabled": False})
    watch(session, "tensor_too_large", parameters={"max_gt": 1e6})
    session.command("go_to_step", steps=3)
    assert (session.get()["hits"], session.get()["outdated"]) == (0, True)


def test_hits_show_in_the_tree_and_on_tensors(session: Opened, sick: dict[str, Any]) -> None:
    watch(session, "tensor_overflow")
    session.command("continue")
    assert {entry["path"]: entry["hits"] for entry in session.get("/tree")["entries"]}["Default"] > 0
    tensors = session.get("/tensors", node=sick["inf"]["operator"])
    assert [one["abbreviations"] for one in tensors if one["io"] == "output"] == [["TO"]]


def test_origins_name_the_first_operator_and_its_line(session: Opened, sick: dict[str, Any]) -> None:
    origins = {origin["anomaly"]: origin for origin in session.get("/origins")}
    for anomaly in ("inf", "nan"):
        planted = sick[anomaly]
        assert planted["operator"] in origins[anomaly]["address"]
        assert (origins[anomaly]["line"]["file"], origins[anomaly]["line"]["line"]) == (
            planted["file"],
            planted["line"],
        )
        assert origins[anomaly]["step"] == planted["first_iteration"] + 1


def test_clients_hear_of_watchpoints_and_hits(session: Opened) -> None:
    last = session.get()["last_event"]
    watch(session, "tensor_overflow")
    session.command("continue")
    kinds = [event["kind"] for event in session.get("/events", after=last)["events"]]
    assert kinds.index("watchpoints") < kinds.index("hits")
    assert "state" in kinds
