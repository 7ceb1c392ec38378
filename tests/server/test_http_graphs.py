"""Graphs, nodes and lines of code over HTTP, on dumps that MindSpore really wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.serving import Opened, opened, served

SICK, HEALTHY = "sick-2.0.0", "healthy-2.10.0"


@pytest.fixture(scope="module")
def sessions(unpacked: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Opened]]:
    """Both dumps, open; nothing here changes them."""
    base = unpacked(SICK).parent
    unpacked(HEALTHY)
    with served(tmp_path_factory.mktemp("workspace"), base) as server, server.client() as client:
        yield {name: opened(client, name) for name in (SICK, HEALTHY)}


@pytest.fixture
def sick(sessions: dict[str, Opened]) -> Opened:
    return sessions[SICK]


@pytest.fixture
def healthy(sessions: dict[str, Opened]) -> Opened:
    return sessions[HEALTHY]


@pytest.fixture
def inf(planted: dict[str, Any]) -> dict[str, Any]:
    """The operator that put out the first infinity."""
    found: dict[str, Any] = planted[SICK]["planted"]["inf"]
    return found


def names(page: dict[str, Any]) -> list[str]:
    return [node["entry"]["path"] for node in page["nodes"]]


def test_the_graphs_of_a_rank_are_listed(sick: Opened, healthy: Opened, planted: dict[str, Any]) -> None:
    (graph,) = sick.get("/graphs")
    assert (graph["rank"], graph["name"]) == (0, "kernel_graph_0")
    assert graph["operators"] == planted[SICK]["operators"]
    assert len(healthy.get("/graphs", rank=0)) == len(planted[HEALTHY]["graphs"])


def test_the_tree_leads_from_the_root_to_every_node(sick: Opened, inf: dict[str, Any]) -> None:
    scope, path = "", ""
    while path != inf["operator"]:
        entries = sick.get("/tree", scope=scope)["entries"]
        (path,) = {one["path"] for one in entries if f"{inf['operator']}/".startswith(f"{one['path']}/")}
        scope = path


def test_the_tree_comes_in_pages(sick: Opened) -> None:
    whole = sick.get("/tree", scope="@parameters")
    assert whole["total"] == len(whole["entries"]) == sick.get("/graphs")[0]["parameters"]
    pages = [sick.get("/tree", scope="@parameters", offset=at, limit=7) for at in range(0, whole["total"], 7)]
    assert [entry for page in pages for entry in page["entries"]] == whole["entries"]
    assert sick.get("/tree", offset=2**31)["entries"] == []


def test_without_a_graph_all_of_a_rank_are_one_program(sick: Opened, healthy: Opened) -> None:
    assert sick.get("/tree")["graph"] == "kernel_graph_0"
    root = healthy.get("/tree")
    assert root["graph"] == ""
    assert sum(row["nodes"] for row in root["entries"]) == healthy.get("/nodes", limit=1)["total"]
    assert {graph["name"]: graph["steps"] for graph in healthy.get("/graphs")[:2]} == {
        "kernel_graph0": [{"first": 1, "last": 3}],
        "kernel_graph1": [{"first": 2, "last": 4}],
    }
    assert healthy.get("/level")["graph"] == "kernel_graph0"


def test_a_node_is_taken_from_the_graph_that_ran(healthy: Opened) -> None:
    weight = "network.hidden.weight"
    nodes = [healthy.get("/node", name=weight, step=step) for step in (0, 1, 4)]
    assert [node["graph"] for node in nodes] == ["kernel_graph0", "kernel_graph0", "kernel_graph1"]
    assert nodes[0]["graphs"] == ["kernel_graph0", "kernel_graph1"]
    named = {"name": weight, "graph": "kernel_graph0", "step": 4}
    assert healthy.get("/node", **named)["graph"] == "kernel_graph0"
    assert healthy.get("/node", follow=True, **named)["graph"] == "kernel_graph1"
    (shown,) = healthy.get("/tensors", node=weight, step=4)
    assert shown["address"] == f"0/kernel_graph1/{weight}:0@4"
    for graph in ("", "kernel_graph0", "kernel_graph1"):
        address = f"0/{graph}/{weight}:0@4"
        assert healthy.get("/tensor/statistics", address=address)["address"] == shown["address"]


def test_nodes_are_found_by_name_type_kind_and_stack(sick: Opened, inf: dict[str, Any]) -> None:
    assert names(sick.get("/nodes", name=inf["operator"].lower())) == [inf["operator"]]
    assert names(sick.get("/nodes", name="^Default.*/LOG-op[0-9]+$", regex=True)) == [inf["operator"]]
    assert names(sick.get("/nodes", name="LOG-OP", case_sensitive=True)) == []
    assert inf["operator"] in names(sick.get("/nodes", type="log"))
    assert inf["operator"] in names(sick.get("/nodes", stack=f"{Path(inf['file']).name}:{inf['line']}"))
    parameters = sick.get("/nodes", kind="parameter", limit=1000)
    assert {node["entry"]["kind"] for node in parameters["nodes"]} == {"parameter"}
    assert sick.get("/nodes", name="conv", limit=1)["total"] > 1


def test_a_hostile_expression_is_refused_or_answered_soon(sick: Opened) -> None:
    answer = sick.ask("GET", "/nodes", params={"name": "(a+)+$(x*)*" * 20, "regex": True})
    assert answer.status_code in (200, 422)
    assert sick.refused("GET", "/nodes", 422, params={"name": "(", "regex": True})


def test_a_node_is_told_with_its_stack_and_neighbours(sick: Opened, inf: dict[str, Any]) -> None:
    node = sick.get("/node", name=inf["operator"])
    assert (node["type"], node["kind"]) == (inf["op_type"], "operator")
    (line,) = [frame for frame in node["stack"] if frame["is_user_code"]]
    assert (line["file"], line["line"]) == (inf["file"], inf["line"])
    (fed_by,) = [slot["peer"] for slot in node["inputs"] if not slot["control"]]
    assert inf["operator"] in sick.get("/node", name=fed_by)["consumers"]


def test_a_scope_is_opened_for_drawing(sick: Opened, inf: dict[str, Any]) -> None:
    scope = inf["operator"].rpartition("/")[0]
    level = sick.get("/level", scope=scope)
    assert inf["operator"] in {entry["path"] for entry in level["entries"]}
    drawn = {entry["path"] for entry in (*level["entries"], *level["outside"])}
    assert {end for edge in level["edges"] for end in (edge["source"], edge["target"])} <= drawn
    assert sick.get("/level", scope=scope, limit=1)["truncated"]


def test_scopes_are_opened_within_a_picture(sick: Opened, inf: dict[str, Any]) -> None:
    parts = inf["operator"].split("/")
    paths = ["/".join(parts[:length]) for length in range(1, len(parts))]
    level = sick.get("/level", open=paths, beside=True)
    assert [one["scope"] for one in level["opened"]] == paths
    assert inf["operator"] in {entry["path"] for entry in level["opened"][-1]["entries"]}
    assert inf["operator"] in {edge["target"] for edge in level["edges"]}


def test_the_relationship_graph_shows_both_directions(sick: Opened, inf: dict[str, Any]) -> None:
    address = f"0/kernel_graph_0/{inf['operator']}:0"
    near = sick.get("/relations", address=address)
    assert near["centre"] == inf["operator"]
    assert {node["distance"] for node in near["nodes"]} == {-1, 0, 1}
    far = sick.get("/relations", address=address, hops=3)
    assert len(far["nodes"]) > len(near["nodes"])


def test_lines_of_code_are_listed_the_persons_own_first(sick: Opened, inf: dict[str, Any]) -> None:
    page = sick.get("/sources", limit=100)
    assert page["files"][0]["file"] == inf["file"]
    assert inf["line"] in {line["line"] for line in page["files"][0]["lines"]}
    libraries = [file["is_library"] for file in page["files"]]
    assert libraries == sorted(libraries)
    found = sick.get("/sources", query=f"{Path(inf['file']).name}:{inf['line']} ".upper())
    assert [line["line"] for line in found["files"][0]["lines"]] == [inf["line"]]


def test_no_file_of_this_machine_is_read_for_its_code(sick: Opened) -> None:
    for file in ("/etc/passwd", "../../etc/passwd", "/tmp/tensight-fixtures/sick_network.py"):  # noqa: S108 - is refused
        assert sick.refused("GET", "/source", 404, params={"file": file})


def test_what_ran_in_which_step_is_listed(healthy: Opened) -> None:
    page = healthy.get("/executions", limit=2)
    assert page["total"] > 2
    assert len(page["executions"]) == 2
    assert page["executions"][0]["graph"] in {graph["name"] for graph in healthy.get("/graphs")}


@pytest.mark.parametrize(
    ("path", "parameters"),
    [
        ("/graphs", {"rank": 9}),
        ("/tree", {"rank": 9}),
        ("/tree", {"graph": "no"}),
        ("/tree", {"scope": "no/such/scope"}),
        ("/tree", {"watchpoint": 9}),
        ("/node", {"name": "no"}),
        ("/level", {"scope": "no"}),
        ("/relations", {"address": "0/kernel_graph_0/no:0"}),
        ("/relations", {"address": "9/kernel_graph_0/no:0@2"}),
        ("/executions", {"rank": 9}),
    ],
)
def test_what_there_is_not_is_not_found(sick: Opened, path: str, parameters: dict[str, Any]) -> None:
    assert sick.refused("GET", path, 404, params=parameters)


@pytest.mark.parametrize(
    ("path", "parameters"),
    [
        ("/tree", {"limit": 0}),
        ("/tree", {"limit": 1001}),
        ("/tree", {"offset": -1}),
        ("/tree", {"offset": 2**31 + 1}),
        ("/tree", {"rank": -1}),
        ("/tree", {"rank": 2**31}),
        ("/tree", {"scope": "x" * 4097}),
        ("/nodes", {"name": "x" * 1001}),
        ("/nodes", {"kind": "nonsense"}),
        ("/nodes", {"regex": "perhaps"}),
        ("/nodes", {"stack": "x" * 256}),
        ("/node", {}),
        ("/node", {"name": ""}),
        ("/level", {"limit": 5001}),
        ("/level", {"open": ["x" * 4097]}),
        ("/level", {"open": ["x"] * 501}),
        ("/relations", {}),
        ("/relations", {"address": "conv1"}),
        ("/relations", {"address": "x" * 4097}),
        ("/relations", {"address": "0/kernel_graph_0/no:0", "hops": 21}),
        ("/sources", {"query": "x" * 1001}),
        ("/source", {}),
    ],
)
def test_what_is_out_of_bounds_is_refused(sick: Opened, path: str, parameters: dict[str, Any]) -> None:
    assert sick.refused("GET", path, 422, params=parameters)
