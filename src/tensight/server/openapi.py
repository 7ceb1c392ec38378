"""The API description beyond what the operations declare themselves."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute

from tensight.server.access import COOKIE
from tensight.server.errors import (
    BodyTooLargeError,
    ContentTypeError,
    ErrorReply,
    ForbiddenError,
    UnauthorizedError,
    documented,
)
from tensight.server.examples import EXAMPLES
from tensight.sessions.errors import NotFoundError

SUMMARY = "Debug the training of a neural network: stop it where a tensor goes wrong, and see why."

DESCRIPTION = """
A *session* is one run being debugged: a training process that is attached, or a dump or recorded run that was opened.
Its `capabilities` list the commands that it accepts.

Steps count from 1; step 0 is the state before the first update. A tensor has an address,
`RANK/GRAPH/NODE:SLOT@STEP`.

Everything that happens in a session is an event with a number. Follow them at `…/events/stream`, a WebSocket that sends
each event as one JSON text, starting after the number `after`; or poll them at `…/events`. A gap between the last known
number and the first one sent means that events were dropped: read the session again. A subscriber that accepts nothing
for some seconds is disconnected with close code 1013, and may reconnect.

If the server has a token, send `Authorization: Bearer TOKEN`, or log in to get a cookie; a page may also offer the
WebSocket protocols `tensight` and `bearer.TOKEN`. Bodies are JSON, declared as `application/json`. Every error has the
same format: `{"error": {"code", "message", "where"}}`.
"""

TAGS = [
    {"name": "sessions", "description": "The server, its dumps and sessions, and commands to them."},
    {"name": "graphs", "description": "The computation: graphs, nodes, and the lines of code behind them."},
    {"name": "watchpoints", "description": "Conditions that are checked on tensors."},
    {"name": "hits", "description": "Where watchpoints hit, and where anomalies began."},
    {"name": "tensors", "description": "Values and statistics of tensors."},
    {"name": "comparisons", "description": "Differences between two runs, and where they begin."},
    {"name": "searches", "description": "Hyper-parameter searches, and the results of their trials."},
    {"name": "events", "description": "Changes of sessions and of the server, as they happen."},
]

_INTERNAL: dict[int | str, dict[str, Any]] = {
    500: {"model": ErrorReply, "description": "The server failed; its log contains the reason."}
}
ANY_ERRORS = documented(UnauthorizedError, ForbiddenError) | _INTERNAL
CHANGE_ERRORS = documented(BodyTooLargeError, ContentTypeError)
SESSION_ERRORS = documented(NotFoundError)

_ERROR_SCHEMA = {"$ref": f"#/components/schemas/{ErrorReply.__name__}"}
_EXAMPLES_OF_ERRORS = {
    401: (
        "unauthorized",
        "this server needs its access token, which is in the file named at its start",
        "",
    ),
    403: ("forbidden", "a page of 'https://example.org' may not use this server; open the server's own page", ""),
    404: ("session-unknown", "there is no session '7'; list the sessions to see which there are", "/api/v1/sessions/7"),
    409: ("not-paused", "watchpoints can be changed while the run is paused; it is running", ""),
    413: ("body-too-large", "the body of the request has more than 1,048,576 bytes, the maximum", ""),
    415: ("content-type-invalid", "the body is declared as 'text/plain'; send JSON, as application/json", ""),
    416: ("range-invalid", "the file has 528 bytes; bytes=600- lies outside of it", "header.range"),
    422: ("input-invalid", "query.limit: Input should be less than or equal to 1000", "query.limit"),
    429: ("limit-exceeded", "2 dumps are open already; close one first", ""),
    500: ("server-failed", "the server failed (ValueError); see its log. The session remains usable.", ""),
    507: ("storage-failed", "the workspace cannot be written: no space left on device", ""),
}


def operation_id(route: APIRoute) -> str:
    """Return the id of an operation; client generators use it, so it is chosen, not derived from the path."""
    return route.name


def complete(app: FastAPI, *, needs_token: bool) -> None:
    """Add examples and authentication to the API description of an application.

    Parameters
    ----------
    app : FastAPI
    needs_token : bool
        Whether requests are refused without a token.
    """
    describe = app.openapi

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = describe()
            _add_access(document, needs_token=needs_token)
            for path in document["paths"].values():
                for operation in path.values():
                    _add_examples(operation)
        return describe()

    app.openapi = described  # type: ignore[method-assign] # as FastAPI documents it


def _add_access(document: dict[str, Any], *, needs_token: bool) -> None:
    schemes = document.setdefault("components", {}).setdefault("securitySchemes", {})
    schemes["token"] = {"type": "http", "scheme": "bearer", "description": "The token that the server printed."}
    schemes["cookie"] = {"type": "apiKey", "in": "cookie", "name": COOKIE, "description": "Set by a login."}
    either: list[dict[str, list[str]]] = [{"token": []}, {"cookie": []}]
    document["security"] = either if needs_token else [{}, *either]
    for path in document["paths"].values():
        for operation in path.values():
            if operation["operationId"] == "log_in":
                operation["security"] = []


def _add_examples(operation: dict[str, Any]) -> None:
    request_example, response_example = EXAMPLES.get(operation["operationId"], (None, None))
    if request_example is not None:
        operation["requestBody"]["content"]["application/json"]["example"] = request_example
    for status, response in operation["responses"].items():
        if int(status) == 400:
            # The HTTP server's own response, in plain text.
            continue
        if int(status) >= 400:
            code, message, where = _EXAMPLES_OF_ERRORS[int(status)]
            example = {"error": {"code": code, "message": message, "where": where}}
            # Errors are JSON also where the operation itself responds with another type.
            response["content"] = {"application/json": {"schema": _ERROR_SCHEMA, "example": example}}
        elif response_example is not None and "application/json" in response.get("content", {}):
            response["content"]["application/json"]["example"] = response_example
