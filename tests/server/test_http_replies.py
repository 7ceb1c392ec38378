"""What the HTTP API says when something cannot be done, and that what it says is JSON."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from pydantic_core import from_json

from tensight.errors import DumpError, GraphError, InputError, TensightError, TensorFileError
from tensight.server import errors
from tensight.server.json_bodies import json_bytes, json_response
from tensight.sessions.errors import LimitError, NotFoundError, StateError, StorageError, UnavailableError
from tensight.sessions.records import DumpRecord, Event
from tests.server.serving import Served, served

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path) as server:
        yield server


@pytest.fixture
def client(server: Served) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


class OtherError(TensightError):
    """One that the table does not name."""


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (NotFoundError, 404, "not-found"),
        (UnavailableError, 404, "value-unavailable"),
        (StateError, 409, "wrong-state"),
        (InputError, 422, "input-invalid"),
        (DumpError, 422, "dump-unreadable"),
        (GraphError, 422, "graph-unreadable"),
        (TensorFileError, 422, "tensor-unreadable"),
        (LimitError, 429, "limit-exceeded"),
        (StorageError, 507, "storage-failed"),
        (OtherError, 422, "error"),
    ],
)
def test_every_error_has_its_status_and_code(error: type[TensightError], status: int, code: str) -> None:
    response = errors.reply_to(error("what was wrong, and what to do"), "/api/v1/sessions/1")
    assert response.status_code == status
    assert json.loads(response.body) == {
        "error": {"code": code, "message": "what was wrong, and what to do", "where": "/api/v1/sessions/1"}
    }


def test_a_narrower_code_is_answered_with_the_status_of_its_class() -> None:
    response = errors.reply_to(StateError("step 0 is the first", code="end-reached"), "/api/v1/sessions/1/command")
    assert (response.status_code, json.loads(response.body)["error"]["code"]) == (409, "end-reached")


@pytest.mark.parametrize("kind", errors.STATUS)
def test_every_error_of_the_table_is_described(kind: type[TensightError]) -> None:
    status = errors.STATUS[kind]
    HTTPStatus(status)
    assert errors.documented(kind)[status]["description"]


def test_a_message_is_bounded_and_can_be_printed() -> None:
    response = errors.reply_to(InputError("\ud800" + "x" * 10_000), "/" + "y" * 10_000)
    error = json.loads(response.body)["error"]
    assert len(error["message"]) == errors.LONGEST_MESSAGE
    assert len(error["where"]) == 200


def test_what_nobody_thought_of_is_logged_and_not_told(
    server: Served, client: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(refresh: bool) -> Any:
        raise RuntimeError("the secret is 42")

    server.sessions.dumps = fail  # type: ignore[method-assign, assignment] # what fails unforeseen cannot be provoked
    with caplog.at_level(logging.ERROR, "tensight"):
        answer = client.get("/dumps")
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "server-failed"
    assert "42" not in answer.text
    assert "X-Content-Type-Options" in answer.headers
    (record,) = [record for record in caplog.records if record.name.startswith("tensight.server")]
    assert "the secret is 42" in str(record.exc_info)
    assert client.get("/server").status_code == 200


# --- JSON ---


def test_no_number_that_json_has_not_is_ever_written() -> None:
    event = Event.model_construct(number=1, time=0.0, kind="message", data={"a": [float("nan"), -float("inf")]})
    assert json.loads(json_bytes(event), parse_constant=pytest.fail)["data"] == {"a": [None, None]}


def test_names_that_are_no_text_are_written_with_question_marks() -> None:
    name = b"run-\xff".decode("utf-8", "surrogateescape")
    (dump,) = from_json(json_bytes([DumpRecord(name=name)]))
    assert dump["name"] == "run-?"


def test_a_long_list_is_written_as_a_whole() -> None:
    dumps = [DumpRecord(name=str(number)) for number in range(5000)]
    response = asyncio.run(json_response(dumps))
    assert [dump["name"] for dump in json.loads(response.body)] == [dump.name for dump in dumps]
