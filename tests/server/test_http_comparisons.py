"""Comparing two runs over HTTP: recordings of real trainings, a training that stands, and what cannot be compared."""

from __future__ import annotations

import json
import shutil
import time
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pytest
import torch

from tensight.compare import Verdict
from tensight.compare.runs import Finding
from tensight.compare.runs.steps import Phase
from tensight.sessions.records import RankComparison
from tensight.sessions.records.comparing import ComparedPhase, ComparisonVerdict
from tests.compare.two_runs import make_network, record
from tests.server.serving import Served, opened, served

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx

NORM = "Default/blocks/1/norm1/LayerNorm-op0"
WITHIN_S = 60


@pytest.fixture(scope="module")
def base_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two trainings that differ in one operator, and the first one with every operator captured."""
    folder = tmp_path_factory.mktemp("compared") / "base"
    folder.mkdir()
    record(folder / "a", make_network())
    record(folder / "b", make_network(eps=1e-3))
    record(folder / "ops", make_network(), capture="ops")
    moved = make_network()
    with torch.no_grad():
        moved.head.weight[3, 3] += 0.1
    record(folder / "moved", moved)
    record(folder / "traces" / "b", make_network(eps=1e-3), as_trace=True)
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


@pytest.fixture
def done(client: httpx.Client) -> dict[str, Any]:
    return compare(client)


@pytest.fixture
def path(done: dict[str, Any]) -> str:
    return f"/comparisons/{done['id']}"


def error_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def test_every_word_of_a_comparison_can_be_told() -> None:
    words = RankComparison.model_fields["finding"].annotation, ComparisonVerdict, ComparedPhase
    assert [set(get_args(one)) for one in words] == [
        {each.value for each in kind} for kind in (Finding, Verdict, Phase)
    ]


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


def rounded(content: Any) -> Any:
    """Return a record without the last digits: sums of elements depend on where in memory these lie."""
    if isinstance(content, dict):
        return {name: rounded(value) for name, value in content.items()}
    if isinstance(content, list):
        return [rounded(value) for value in content]
    return f"{content:.6g}" if isinstance(content, float) else content


def test_what_the_command_prints_is_what_the_server_answers(
    tensight: Any, base_dir: Path, done: dict[str, Any]
) -> None:
    ended = tensight("compare", "runs", "--json", base_dir / "a", base_dir / "b")
    (printed,) = json.loads(ended.out)["ranks"]
    (rank,) = done["ranks"]
    assert rounded({name: printed[name] for name in rank}) == rounded(rank)
    assert NORM in [one["name"] for one in printed["compared"]]


def test_pairs_of_operators_are_listed_sorted_and_chosen(client: httpx.Client, path: str) -> None:
    def listed(**choice: Any) -> Any:
        return client.get(f"{path}/operators", params=choice).json()

    everything = listed(limit=1000)
    places = [row["position"] for row in everything["rows"]]
    assert places == sorted(places)
    assert everything["total"] == len(places) > 20
    assert listed(offset=3, limit=2)["rows"] == everything["rows"][3:5]
    (divergent,) = listed(only="divergent", phase="forward")["rows"]
    assert divergent["name"] == NORM
    assert all(row["text"] != "bit-equal" for row in listed(only="different")["rows"])
    added = [row["added"] for row in listed(sort="added", descending=True, limit=1000)["rows"]]
    assert added == sorted(added, key=lambda value: -1.0 if value is None else value, reverse=True)
    assert {row["name"] for row in listed(query="norm1 blocks/1", phase="forward")["rows"]} == {NORM}
    assert listed(step=2)["total"] == 0


def test_tensors_are_named_as_the_sessions_of_both_runs_name_them(
    client: httpx.Client, path: str, done: dict[str, Any]
) -> None:
    first = done["ranks"][0]["first"]
    (output,) = first["outputs"]
    sides = {"a": output["address"], "b": output["address_b"]}
    both = client.get(f"{path}/tensor/statistics", params={"a": output["address"]}).json()
    for dump, address in sides.items():
        session = opened(client, dump)
        assert session.get("/tensor/statistics", address=address)["statistics"] == both[dump]
        for read in first["inputs"]:
            session.get("/tensor/values", address=read["address" if dump == "a" else "address_b"])
        record = client.get(path).json()
        assert record[dump]["session"] == session.path.rpartition("/")[2]
        assert client.delete(session.path).status_code == 204
    assert both["measures"]["relative"] == output["relative"]
    assert both["difference"]["l2_norm"] == pytest.approx(output["absolute"], rel=1e-6)


def test_values_of_both_and_their_difference_are_read(client: httpx.Client, path: str, done: dict[str, Any]) -> None:
    output = done["ranks"][0]["first"]["outputs"][0]

    def values(which: str, **more: Any) -> Any:
        asked = {"a": output["address"], "which": which, "slice": "[0, :, :]", **more}
        answer = client.get(f"{path}/tensor/values", params=asked)
        assert (answer.status_code, answer.headers["X-Tensight-Layout"]) == (200, "")
        return np.array(answer.json(), np.float64)

    one, other = values("a"), values("b", b=output["address_b"])
    assert np.array_equal(values("difference"), other - one)
    found = client.get(f"{path}/tensor/element", params={"a": output["address"], "slice": "[0, :, :]"}).json()
    row, column = np.unravel_index(np.abs(other - one).argmax(), one.shape)
    assert found["index"] == [0, row, column]
    picture = client.get(f"{path}/tensor/heat-map", params={"a": output["address"], "slice": "[0, :, :]"}).json()
    assert np.array_equal(np.array(picture), (other - one).astype(np.float32))
    bins = client.get(f"{path}/tensor/histogram", params={"a": output["address"], "bins": 4}).json()
    assert sum(bins["counts"]) == np.prod(output["shapes"][0])


def test_added_errors_are_told_for_scopes_and_operators(client: httpx.Client, path: str, done: dict[str, Any]) -> None:
    first = done["ranks"][0]["first"]
    scopes = ["", "Default", "Default/blocks", "Default/blocks/1/norm1", "nowhere"]
    found = client.get(f"{path}/added-errors", params={"scope": scopes}).json()
    assert (found["rank"], found["step"]) == (0, 1)
    by_scope = {one["scope"]: {entry["path"]: entry for entry in one["entries"]} for one in found["scopes"]}
    norm = by_scope["Default/blocks/1/norm1"][NORM]
    assert (norm["kind"], norm["added"], norm["divergent"]) == ("operator", first["added"], 1)
    assert by_scope["Default/blocks"]["Default/blocks/0"]["relative"] == 0
    assert by_scope["Default/blocks"]["Default/blocks/1"]["added"] >= norm["added"]
    assert by_scope[""]["Default"]["added"] == max(entry["added"] for entry in by_scope["Default"].values())
    assert found["largest"] >= norm["added"]
    assert by_scope["nowhere"] == {}
    of_b = client.get(f"{path}/added-errors", params={"scope": "Default/blocks/1/norm1", "side": "b"}).json()
    assert [entry["path"] for entry in of_b["scopes"][0]["entries"]] == [NORM]


def test_weights_that_differ_before_the_first_step_are_told_with_their_places(client: httpx.Client) -> None:
    record = compare(client, "a", "moved")
    (rank,) = record["ranks"]
    assert (rank["finding"], rank["differing"], rank["steps"]) == ("initial weights", 1, [])
    (weight,) = rank["tensors"]
    assert (weight["name"], weight["agrees"]) == ("head.weight", False)
    path = f"/comparisons/{record['id']}"
    asked = {"a": weight["address"], "find": "largest"}
    assert client.get(f"{path}/tensor/element", params=asked).json()["index"] == [3, 3]
    found = client.get(f"{path}/added-errors", params={"scope": ["", "@parameters"], "side": "b"}).json()
    root, parameters = (scope["entries"] for scope in found["scopes"])
    assert [(entry["path"], entry["kind"], entry["divergent"]) for entry in root] == [("@parameters", "parameters", 1)]
    assert {entry["path"] for entry in parameters if entry["relative"]} == {"head.weight"}


def test_a_trace_is_listed_and_compared_without_values(client: httpx.Client) -> None:
    assert "traces/b" in [dump["name"] for dump in client.get("/dumps", params={"refresh": True}).json()]
    same = compare(client, "b", "traces/b")
    assert same["verdict"] == "same", same["sentence"]
    differs = compare(client, "a", "traces/b")
    first = differs["ranks"][0]["first"]
    assert first["name"] == NORM
    (output,) = first["outputs"]
    assert (output["from_values"], "at least" in output["text"]) == (False, True)
    path, asked = f"/comparisons/{differs['id']}/tensor", {"a": output["address"]}
    assert client.get(f"{path}/values", params={**asked, "which": "a"}).status_code == 200
    refused = client.get(f"{path}/values", params=asked)
    assert error_of(refused) == (404, "statistics-only")
    assert "only statistics were recorded in B" in refused.json()["error"]["message"]
    both = client.get(f"{path}/statistics", params=asked).json()
    assert both["difference"] is None
    assert both["a"]["l2_norm"] != both["b"]["l2_norm"]
    assert both["measures"]["relative"] == output["relative"]


def test_what_could_not_be_read_is_said(client: httpx.Client, base_dir: Path) -> None:
    shutil.copytree(base_dir / "a", base_dir / "torn")
    torn = next(path for path in sorted((base_dir / "torn").rglob("*.npy")) if "LayerNorm" in path.name)
    torn.write_bytes(torn.read_bytes()[:-8])
    record = compare(client, "a", "torn")
    assert record["a"]["note"] == ""
    assert record["b"]["note"].startswith("Not all of torn can be used: ")
    assert torn.name in record["b"]["note"]


def test_losses_and_set_ups_are_compared(client: httpx.Client, path: str) -> None:
    losses = client.get(f"{path}/losses").json()
    assert (losses["verdict"], losses["compared"]) == ("same", 3)
    assert 0 < losses["largest_relative_difference"] < 1e-3
    assert [point["step"] for point in losses["points"]] == [1, 2, 3]
    assert losses["points"][0]["a"] != losses["points"][0]["b"]
    setups = client.get(f"{path}/setups").json()
    assert "blocks.1.norm1" in " ".join(one["what"] for one in setups["differences"])


def test_the_same_runs_are_compared_once(client: httpx.Client, done: dict[str, Any]) -> None:
    again = client.post("/comparisons", json={"a": "a", "b": "b"}).json()
    assert (again["id"], again["state"]) == (done["id"], "done")
    assert done["id"] in [one["id"] for one in client.get("/comparisons").json()]
    looser = compare(client, rtol=0.5)
    assert looser["id"] != done["id"]
    assert looser["verdict"] == "same"
    fresh = compare(client, rtol=0.5, fresh=True)
    assert fresh["id"] != looser["id"]
    assert client.get(f"/comparisons/{looser['id']}").status_code == 404


def test_a_run_is_the_same_as_itself(client: httpx.Client) -> None:
    same = compare(client, "a", "a")
    assert (same["verdict"], same["ranks"][0]["steps"]) == ("same", [1, 2, 3])
    path = f"/comparisons/{same['id']}"
    assert client.get(f"{path}/operators", params={"only": "different"}).json()["total"] == 0
    assert client.get(f"{path}/operators", params={"step": 3}).json()["total"] > 20
    assert client.get(f"{path}/added-errors", params={"step": 2}).json()["largest"] == 0
    assert client.get(f"{path}/losses").json()["verdict"] == "same"


def test_what_only_one_run_has_is_listed(client: httpx.Client) -> None:
    record = compare(client, "a", "ops")
    path, counts = f"/comparisons/{record['id']}", record["ranks"][0]["unmatched"]
    for side, amount in (("a", counts["operators"]), ("b", counts["operators_b"])):
        page = client.get(f"{path}/unmatched", params={"side": side, "kind": "operators", "limit": 3}).json()
        assert page["total"] == amount
    assert counts["operators_b"] > 10
    assert page["rows"][0]["phase"]


def test_a_comparison_outlives_the_session_it_was_asked_for_by(client: httpx.Client, base_dir: Path) -> None:
    session = opened(client, "a")
    number = session.path.rpartition("/")[2]
    answer = client.post("/comparisons", json={"a": number, "b": "b", "exact": True}).json()
    assert (answer["a"]["dump"], answer["a"]["session"]) == ("a", number)
    assert client.delete(session.path).status_code == 204
    record = finished(client, answer["id"])
    assert (record["state"], record["a"]["session"]) == ("done", None)
    address = record["ranks"][0]["first"]["outputs"][0]["address"]
    assert client.get(f"/comparisons/{answer['id']}/tensor/values", params={"a": address}).status_code == 200


@pytest.mark.long
def test_comparisons_wait_for_one_another_can_be_cancelled_and_are_bounded(client: httpx.Client) -> None:
    last = client.get("/server").json()["last_event"]
    asked = [client.post("/comparisons", json={"a": "a", "b": "b", "atol": one}) for one in (1, 2, 3, 4, 5)]
    assert [answer.status_code for answer in asked] == [201, 201, 201, 201, 429]
    running, waiting, *others = [answer.json()["id"] for answer in asked[:4]]
    for number in (waiting, running):
        assert client.delete(f"/comparisons/{number}").status_code == 204
        assert error_of(client.get(f"/comparisons/{number}")) == (404, "not-found")
    assert [finished(client, number)["state"] for number in others] == ["done", "done"]
    events = client.get("/events", params={"after": last}).json()["events"]
    states: dict[str, list[str]] = {}
    for event in events:
        if event["kind"] == "comparison":
            states.setdefault(event["data"]["id"], []).append(event["data"]["state"])
    assert states[waiting] == ["waiting", "closed"]
    assert list(dict.fromkeys(states[others[0]])) == ["waiting", "running", "done"]
    for atol in range(10, 16):
        compare(client, atol=atol)
    assert len(client.get("/comparisons").json()) == 8


def test_a_rank_that_is_not_in_both_is_refused_in_words(client: httpx.Client) -> None:
    failed = compare(client, ranks=[5])
    assert (failed["state"], failed["verdict"]) == ("failed", None)
    assert "no rank in common" in failed["message"]
    assert error_of(client.get(f"/comparisons/{failed['id']}/operators")) == (409, "wrong-state")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"a": "a"}, 422),
        ({"a": "", "b": "b"}, 422),
        ({"a": "a", "b": "none"}, 404),
        ({"a": "../a", "b": "b"}, 404),
        ({"a": "a", "b": "b", "rtol": -1}, 422),
        ({"a": "a", "b": "b", "ranks": list(range(1001))}, 422),
        ({"a": "a", "b": "b", "mapping": {f"x{number}": "y" for number in range(10_001)}}, 422),
        ({"a": "a", "b": "b", "tolerances": {"x": -1}}, 422),
    ],
)
def test_what_cannot_be_compared_is_refused(client: httpx.Client, body: dict[str, Any], status: int) -> None:
    assert client.post("/comparisons", json=body).status_code == status


@pytest.mark.parametrize(
    ("place", "asked", "status"),
    [
        ("/operators", {"rank": 1}, 404),
        ("/operators", {"sort": "colour"}, 422),
        ("/operators", {"limit": 1001}, 422),
        ("/added-errors", {"step": 9}, 404),
        ("/added-errors", {"scope": ["x"] * 65}, 422),
        ("/unmatched", {"side": "c"}, 422),
        ("/losses", {"points": 0}, 422),
        ("/tensor/values", {"a": "nowhere"}, 422),
        ("/tensor/values", {"a": "0/none/x:0@1"}, 404),
        ("/tensor/values", {"slice": "[9, 9, 9]"}, 422),
        ("/tensor/values", {"which": "previous"}, 422),
        ("/tensor/values", {"b": "0/none/x:0@1"}, 404),
    ],
)
def test_what_cannot_be_answered_is_refused(
    client: httpx.Client, done: dict[str, Any], place: str, asked: dict[str, Any], status: int
) -> None:
    output = done["ranks"][0]["first"]["outputs"][0]
    answer = client.get(f"/comparisons/{done['id']}{place}", params={"a": output["address"], **asked})
    assert answer.status_code == status, answer.text
