"""Searches over HTTP: real trials of PyTorch under the debugger, read from the database that they were kept in."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from tests.search.recorded_search import NAME, make_search
from tests.server.serving import Served, served

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def base_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("searched") / "base 100%"
    make_search(folder)
    return folder


@pytest.fixture(scope="module")
def server(base_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("workspace"), base_dir) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: Served) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


@pytest.fixture(scope="module")
def result(client: httpx.Client) -> dict[str, Any]:
    answer = client.get("/searches/result", params={"name": NAME})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_searches_are_listed_with_what_came_of_them(client: httpx.Client) -> None:
    [record] = client.get("/searches").json()

    assert record["name"] == NAME
    assert (record["trials"], record["complete"], record["pruned"], record["failed"]) == (10, 7, 2, 1)
    assert record["targets"] == [{"name": "loss", "goal": "minimize"}]
    assert record["best"]
    assert not record["problem"]


def test_a_search_says_what_was_searched_and_what_came_of_each_trial(result: dict[str, Any]) -> None:
    rate, kind = result["parameters"]
    assert (rate["name"], rate["kind"], rate["low"], rate["high"], rate["log"]) == ("lr", "float", 1e-4, 0.1, True)
    assert (kind["kind"], kind["choices"]) == ("choice", ["healthy", "seeded", "nan", "fails"])
    trials = {trial["params"]["kind"]: trial for trial in result["trials"]}
    ill = trials["nan"]
    assert (ill["state"], ill["illness"]["step"], ill["values"]) == ("pruned", 3, [])
    assert ill["illness"]["condition"] in ill["reason"]
    assert "no such data" in trials["fails"]["reason"]
    assert trials["healthy"]["values"]
    assert all(trial["began"] and trial["duration_s"] for trial in result["trials"])
    best = min((one for one in result["trials"] if one["values"]), key=lambda one: one["values"][0])
    assert result["best"] == [best["number"]]
    assert f"lr: {best['params']['lr']}" in result["best_yaml"]
    assert f"--lr {best['params']['lr']}" in result["best_command"]
    assert sum(result["importance"].values()) == pytest.approx(1)


def test_the_recorded_run_of_a_trial_can_be_opened(client: httpx.Client, result: dict[str, Any]) -> None:
    ill = next(trial for trial in result["trials"] if trial["illness"])

    answer = client.post("/sessions", json={"dump": ill["recording"]})

    assert answer.status_code == 201, answer.text
    client.delete(f"/sessions/{answer.json()['id']}")


@pytest.mark.parametrize(
    "name", ["search", "tried/other", "../tried/search", "/etc/search", "postgresql://host/search"]
)
def test_only_searches_below_the_base_directory_can_be_asked_for(client: httpx.Client, name: str) -> None:
    answer = client.get("/searches/result", params={"name": name})

    assert answer.status_code in (404, 422)
    assert "there is no" in answer.json()["error"]["message"]


def test_what_is_no_database_of_a_search_is_listed_with_the_reason(tmp_path: Path, base_dir: Path) -> None:
    broken = tmp_path / "base" / "broken"
    broken.mkdir(parents=True)
    (broken / "search.db").write_text("no database at all, and long enough that it might be one")
    (tmp_path / "base" / "leads-out").mkdir()
    (tmp_path / "base" / "leads-out" / "search.db").symlink_to(base_dir / "tried" / "search.db")
    with served(tmp_path / "workspace", tmp_path / "base") as server, server.client() as client:
        [record] = client.get("/searches").json()

        assert record["name"] == "broken/"
        assert "cannot be read as the database of a search" in record["problem"]


def test_looking_at_a_search_changes_nothing(client: httpx.Client, base_dir: Path, result: dict[str, Any]) -> None:
    database = base_dir / "tried" / "search.db"
    before = database.read_bytes()

    assert client.get("/searches/result", params={"name": NAME}).json() == result

    assert database.read_bytes() == before


def test_a_search_that_was_moved_still_has_its_recordings(
    tmp_path: Path, base_dir: Path, result: dict[str, Any]
) -> None:
    shutil.copytree(base_dir / "tried", tmp_path / "moved")
    with served(tmp_path / "workspace", tmp_path / "moved") as server, server.client() as client:
        moved = client.get("/searches/result", params={"name": "./search"}).json()

    assert [bool(trial["recording"]) for trial in moved["trials"]] == [
        bool(trial["recording"]) for trial in result["trials"]
    ]
