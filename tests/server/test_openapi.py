"""The description of the API is complete: programs are generated from it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter

from tensight.server.examples import EXAMPLES
from tensight.server.http import create_http_app
from tensight.server.http_settings import HttpSettings
from tensight.server.routes import comparisons, graphs, overview, searches, sessions, tensors, watchpoints
from tensight.server.routes import events as events_routes
from tensight.sessions.registry import Sessions
from tensight.sessions.workspace import Workspace
from tests.server.serving import served

# Programs call operations by these ids: one that is renamed breaks them.
OPERATIONS = {
    "get_server": "GET /server",
    "log_in": "POST /login",
    "list_conditions": "GET /conditions",
    "list_dumps": "GET /dumps",
    "list_sessions": "GET /sessions",
    "open_dump": "POST /sessions",
    "get_session": "GET /sessions/{session_id}",
    "hold_session": "GET /sessions/{session_id}/hold",
    "close_session": "DELETE /sessions/{session_id}",
    "send_command": "POST /sessions/{session_id}/command",
    "list_session_conditions": "GET /sessions/{session_id}/conditions",
    "list_graphs": "GET /sessions/{session_id}/graphs",
    "get_tree": "GET /sessions/{session_id}/tree",
    "search_nodes": "GET /sessions/{session_id}/nodes",
    "get_nodes_meant": "GET /sessions/{session_id}/nodes/meant",
    "get_node": "GET /sessions/{session_id}/node",
    "get_level": "GET /sessions/{session_id}/level",
    "get_relations": "GET /sessions/{session_id}/relations",
    "list_sources": "GET /sessions/{session_id}/sources",
    "get_source": "GET /sessions/{session_id}/source",
    "get_curves": "GET /sessions/{session_id}/curves",
    "list_executions": "GET /sessions/{session_id}/executions",
    "list_watchpoints": "GET /sessions/{session_id}/watchpoints",
    "create_watchpoint": "POST /sessions/{session_id}/watchpoints",
    "delete_watchpoints": "DELETE /sessions/{session_id}/watchpoints",
    "list_recommended_watchpoints": "GET /sessions/{session_id}/watchpoints/recommended",
    "recommend_watchpoints": "POST /sessions/{session_id}/watchpoints/recommended",
    "get_watchpoint": "GET /sessions/{session_id}/watchpoints/{number}",
    "change_watchpoint": "PATCH /sessions/{session_id}/watchpoints/{number}",
    "delete_watchpoint": "DELETE /sessions/{session_id}/watchpoints/{number}",
    "list_hits": "GET /sessions/{session_id}/hits",
    "list_origins": "GET /sessions/{session_id}/origins",
    "list_tensors": "GET /sessions/{session_id}/tensors",
    "get_values": "GET /sessions/{session_id}/tensor/values",
    "get_heat_map": "GET /sessions/{session_id}/tensor/heat-map",
    "get_slices": "GET /sessions/{session_id}/tensor/slices",
    "get_element": "GET /sessions/{session_id}/tensor/element",
    "get_histogram": "GET /sessions/{session_id}/tensor/histogram",
    "get_statistics": "GET /sessions/{session_id}/tensor/statistics",
    "get_history": "GET /sessions/{session_id}/tensor/history",
    "get_file": "GET /sessions/{session_id}/tensor/file",
    "list_statistics": "GET /sessions/{session_id}/statistics",
    "get_overview": "GET /sessions/{session_id}/overview",
    "get_timeline": "GET /sessions/{session_id}/timeline",
    "list_comparisons": "GET /comparisons",
    "compare_runs": "POST /comparisons",
    "get_comparison": "GET /comparisons/{comparison_id}",
    "close_comparison": "DELETE /comparisons/{comparison_id}",
    "list_compared_operators": "GET /comparisons/{comparison_id}/operators",
    "list_unmatched": "GET /comparisons/{comparison_id}/unmatched",
    "get_added_errors": "GET /comparisons/{comparison_id}/added-errors",
    "get_compared_losses": "GET /comparisons/{comparison_id}/losses",
    "get_compared_setups": "GET /comparisons/{comparison_id}/setups",
    "list_searches": "GET /searches",
    "get_search": "GET /searches/result",
    "get_compared_values": "GET /comparisons/{comparison_id}/tensor/values",
    "get_compared_heat_map": "GET /comparisons/{comparison_id}/tensor/heat-map",
    "get_compared_slices": "GET /comparisons/{comparison_id}/tensor/slices",
    "get_compared_element": "GET /comparisons/{comparison_id}/tensor/element",
    "get_compared_histogram": "GET /comparisons/{comparison_id}/tensor/histogram",
    "get_compared_statistics": "GET /comparisons/{comparison_id}/tensor/statistics",
    "list_server_events": "GET /events",
    "list_events": "GET /sessions/{session_id}/events",
}


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    table = Sessions(Workspace(tmp_path_factory.mktemp("workspace")), None)
    return create_http_app(table, settings=HttpSettings())


@pytest.fixture(scope="module")
def document(app: FastAPI) -> dict[str, Any]:
    return app.openapi()


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path.removeprefix('/api/v1')}", operation


def test_the_ids_of_operations_do_not_change(document: dict[str, Any]) -> None:
    found = {operation["operationId"]: where for where, operation in operations(document)}
    assert found == {**found, **OPERATIONS}
    assert len(found) == len(set(found.values()))


def test_every_operation_is_explained(document: dict[str, Any]) -> None:
    tags = {tag["name"] for tag in document["tags"]}
    for where, operation in operations(document):
        assert operation["summary"], where
        assert operation["description"].endswith("."), where
        assert set(operation["tags"]) <= tags, where


def test_every_parameter_is_explained_and_bounded(document: dict[str, Any]) -> None:
    for where, operation in operations(document):
        for parameter in operation.get("parameters", ()):
            if parameter["in"] == "header":
                continue  # HTTP says what is done with headers that make no sense
            place = f"{where} {parameter['name']}"
            assert parameter["description"], place
            for schema in parameter["schema"].get("anyOf", [parameter["schema"]]):
                if schema["type"] in ("integer", "number"):
                    assert {"minimum", "maximum"} <= set(schema), place
                if schema["type"] == "string":
                    assert {"maxLength"} <= set(schema) or "enum" in schema, place


def test_every_operation_tells_its_errors_with_examples(document: dict[str, Any]) -> None:
    for where, operation in operations(document):
        responses = operation["responses"]
        expected = {"401", "403", "422", "500"}
        if "{session_id}" in where or "{comparison_id}" in where:
            expected |= {"404"}
        if not where.startswith("GET"):
            expected |= {"413", "415"}
        assert expected <= set(responses), where
        for status, response in responses.items():
            # 400 is the HTTP server's own word, in plain text.
            if int(status) > 400:
                content = response["content"]["application/json"]
                assert content["schema"] == {"$ref": "#/components/schemas/ErrorReply"}, f"{where} {status}"
                assert content["example"]["error"]["message"], f"{where} {status}"
                assert response["description"], f"{where} {status}"


def test_every_json_body_has_an_example(document: dict[str, Any]) -> None:
    for where, operation in operations(document):
        if "requestBody" in operation:
            assert "example" in operation["requestBody"]["content"]["application/json"], where
        for status, response in operation["responses"].items():
            content = response.get("content", {})
            if int(status) < 300:
                assert not content or any("example" in media for media in content.values()) or "npy" in str(content), (
                    where
                )


def routes() -> Iterator[APIRoute]:
    for subject in (sessions, graphs, watchpoints, tensors, overview, comparisons, searches, events_routes):
        yield from (route for route in subject.router.routes if isinstance(route, APIRoute))


def test_examples_are_what_the_operations_take_and_give() -> None:
    models = {route.name: (asked_by(route), route.response_model) for route in routes()}
    assert set(EXAMPLES) <= set(models)
    for name, (asked, answered) in EXAMPLES.items():
        for example, model in zip((asked, answered), models[name], strict=True):
            if example is None:
                continue
            assert model is not None, name
            read = TypeAdapter(model).validate_python(example)
            assert unknown_fields(example, read) == [], name


def asked_by(route: APIRoute) -> Any:
    body = route.body_field
    return None if body is None else body.field_info.annotation


def unknown_fields(example: Any, read: Any) -> list[str]:
    """Return the fields of an example that its model does not have."""
    if isinstance(example, list):
        return [name for one, model in zip(example, read, strict=True) for name in unknown_fields(one, model)]
    if isinstance(example, dict) and isinstance(read, BaseModel):
        fields = type(read).model_fields
        return [name for name in example if name not in fields] + [
            name
            for key, value in example.items()
            if key in fields
            for name in unknown_fields(value, getattr(read, key))
        ]
    return []


def test_access_is_described(document: dict[str, Any], app: FastAPI) -> None:
    schemes = document["components"]["securitySchemes"]
    assert schemes["token"]["scheme"] == "bearer"
    assert {} in document["security"]
    locked = create_http_app(
        app.state.context.sessions,
        settings=HttpSettings(token="a-token"),  # noqa: S106 - of a test
    )
    assert {} not in locked.openapi()["security"]
    assert dict(operations(locked.openapi()))["POST /login"]["security"] == []


def test_fields_of_records_are_explained_where_their_names_do_not(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    assert schemas["SessionRecord"]["properties"]["outdated"]["description"]
    assert all(schema.get("description") for schema in schemas.values() if schema["type"] == "object")


def test_the_description_is_served_below_the_prefix(tmp_path: Path) -> None:
    with served(tmp_path, url_path_prefix="/team") as server, server.client() as client:
        answer = client.get("/openapi.json")
        assert answer.status_code == 200
        assert all(path.startswith("/team/api/v1/") for path in answer.json()["paths"])
        assert client.get(f"http://127.0.0.1:{server.port}/docs").status_code == 404
