"""Comparing two runs over HTTP: recordings of real trainings, a training that stands, and what cannot be compared."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from serving import Served, served
from two_runs import make_network, record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx

NORM = "Default/blocks/1/norm1/LayerNorm-op0"
WITHIN_S = 60


@pytest.fixture(scope="module")
def base_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compared") / "base"
    folder.mkdir()
    record(folder / "a", make_network())
    record(folder / "b", make_network(eps=1e-3))
    return folder


@pytest.fixture(scope="module")
def server(base_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("workspace"), base_dir) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: Served) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


def compare(client: httpx.Client, a: str = "a", b: str = "b", **options: Any) -> dict[str, Any]:
    """Compare two runs, and return the record when it is done or has failed."""
    answer = client.post("/comparisons", json={"a": a, "b": b, **options})
    assert answer.status_code == 201, answer.text
    return finished(client, answer.json()["id"])


def finished(client: httpx.Client, number: str) -> dict[str, Any]:
    after, until = 0, time.monotonic() + WITHIN_S
    while time.monotonic() < until:
        record = client.get(f"/comparisons/{number}").json()
        if record["state"] in ("done", "failed"):
            return record
        after = client.get("/events", params={"after": after, "wait_s": 5}).json()["last"]
    raise AssertionError(f"the comparison is still {record}")


@pytest.fixture(scope="module")
def done(client: httpx.Client) -> dict[str, Any]:
    return compare(client)


@pytest.fixture(scope="module")
def path(done: dict[str, Any]) -> str:
    return f"/comparisons/{done['id']}"


def error_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def test_the_first_operator_that_differs_is_told_with_what_it_rests_on(done: dict[str, Any]) -> None:
    assert (done["state"], done["verdict"]) == ("done", "different")
    (rank,) = done["ranks"]
    assert (rank["finding"], rank["step"], rank["first"]["name"]) == ("forward", 1, NORM)
    assert rank["sentence"] == done["sentence"]
    assert NORM in rank["sentence"]
    assert rank["first"]["source"]["file"].endswith("two_runs.py")
    assert (rank["proof"]["inputs"], rank["proof"]["inputs_that_agree"]) == (1, 1)
    assert rank["proof"]["weights"] == rank["proof"]["weights_that_agree"] > 10
    assert sum(rank["matched"].values()) > 20
    assert rank["steps"] == [1]
