"""Error responses of the HTTP API: the mapping from exceptions to status codes, and their error codes."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError, WebSocketRequestValidationError
from pydantic import WithJsonSchema
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.routing import Match
from starlette.websockets import WebSocket

from tensight.error_catalogue import CATALOGUE
from tensight.errors import InputError, TensightError
from tensight.sessions.errors import LimitError, NotFoundError, StateError, StorageError, UnavailableError
from tensight.sessions.records import Record

logger = logging.getLogger(__name__)

ErrorCode = Annotated[str, WithJsonSchema({"type": "string", "enum": sorted(CATALOGUE)})]

_METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")

LONGEST_MESSAGE = 2000
"""Maximum length in characters; a message may quote untrusted input."""


class ErrorDetail(Record):
    """What went wrong."""

    code: ErrorCode
    """Error code for programs, from the list in the reference of errors."""
    message: str
    """Message for the user: what was wrong, where, and what to do."""
    where: str = ""
    """The parameter or path of the error."""


class ErrorReply(Record):
    """The body of every answer with a status of 400 or more."""

    error: ErrorDetail


class UnauthorizedError(TensightError):
    """The request brings no token, or a wrong one."""

    code = "unauthorized"


class ForbiddenError(TensightError):
    """The request comes from a page, or asks for a host, that this server does not serve."""

    code = "forbidden"


class BodyTooLargeError(TensightError):
    """The body of the request has more bytes than the server reads."""

    code = "body-too-large"


class ContentTypeError(TensightError):
    """The body of the request is not declared to be JSON."""

    code = "content-type-invalid"


STATUS: dict[type[TensightError], int] = {
    UnauthorizedError: 401,
    ForbiddenError: 403,
    NotFoundError: 404,
    UnavailableError: 404,
    StateError: 409,
    BodyTooLargeError: 413,
    ContentTypeError: 415,
    LimitError: 429,
    StorageError: 507,
    TensightError: 422,
}
"""Status by exception class; the nearest base class decides."""

_CODE_OF_STATUS = {404: NotFoundError.code, 405: "method-invalid", 413: BodyTooLargeError.code}
"""Codes for requests that are refused before our code runs."""


def reply(status: int, code: str, message: str, where: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response in the error format."""
    detail = ErrorDetail(code=code, message=_printable(message)[:LONGEST_MESSAGE], where=_printable(where)[:200])
    body = ErrorReply(error=detail).model_dump_json()
    return Response(body, status, headers, media_type="application/json")


def reply_to(error: TensightError, where: str) -> Response:
    """Return the response to a request that Tensight refused.

    Parameters
    ----------
    error : TensightError
    where : str
        Path of the request.
    """
    status = status_of(type(error))
    headers = {"WWW-Authenticate": "Bearer"} if status == HTTPStatus.UNAUTHORIZED else None
    return reply(status, error.code, str(error), where, headers)


def status_of(kind: type[TensightError]) -> int:
    """Return the status of an error response for this class."""
    return next(STATUS[base] for base in kind.__mro__ if base in STATUS)


def reply_to_unexpected(error: Exception, where: str) -> Response:
    """Return the response to a request that failed unexpectedly, and log the reason.

    The user learns where to look; the message of the exception may be confidential.
    """
    logger.error("request failed", extra={"path": where}, exc_info=error)
    return reply(
        500,
        "server-failed",
        f"the server failed ({type(error).__name__}); see its log. The session remains usable.",
        where,
    )


def install(app: FastAPI) -> None:
    """Convert every exception of the application to a response in the error format."""
    handlers: dict[type[Exception], Any] = {
        TensightError: _refused,
        RequestValidationError: _invalid_request,
        WebSocketRequestValidationError: _invalid_request,
        HTTPException: _not_routed,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)


def documented(*kinds: type[TensightError]) -> dict[int | str, dict[str, Any]]:
    """Return OpenAPI's description of the errors of an operation; invalid input is always included."""
    descriptions: dict[int, list[str]] = {}
    for kind in (*kinds, InputError):
        descriptions.setdefault(status_of(kind), []).append((kind.__doc__ or "").strip())
    return {
        status: {"model": ErrorReply, "description": " ".join(dict.fromkeys(texts))}
        for status, texts in sorted(descriptions.items())
    }


async def deny_websocket(websocket: WebSocket, response: Response) -> None:
    """Refuse a WebSocket's handshake with a response."""
    if "websocket.http.response" in websocket.scope.get("extensions", {}):
        await websocket.send_denial_response(response)
    else:
        await websocket.close(1008)


async def _refused(connection: HTTPConnection, error: Exception) -> Response | None:
    assert isinstance(error, TensightError)  # noqa: S101 - registered for it only
    return await _answer(connection, reply_to(error, connection.scope["path"]))


async def _invalid_request(connection: HTTPConnection, error: Exception) -> Response | None:
    assert isinstance(error, RequestValidationError | WebSocketRequestValidationError)  # noqa: S101 - as above
    problems = error.errors()
    where = _locations(problems[:1])
    message = "; ".join(f"{_locations([problem])}: {problem['msg']}" for problem in problems[:10])
    return await _answer(connection, reply(422, InputError.code, message, where))


async def _not_routed(connection: HTTPConnection, error: Exception) -> Response | None:
    assert isinstance(error, HTTPException)  # noqa: S101 - as above
    path = connection.scope["path"]
    code = _CODE_OF_STATUS.get(error.status_code, InputError.code)
    message = {
        404: f"nothing is found at {path}; /openapi.json below the API's path describes what there is",
        405: f"{connection.scope.get('method', '')} is not possible at {path}",
    }.get(error.status_code, str(error.detail))
    headers = {**(error.headers or {})}
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(_methods_at(connection))
    return await _answer(connection, reply(error.status_code, code, message, path, headers))


def _methods_at(connection: HTTPConnection) -> list[str]:
    """Return the methods allowed at a path; a router names those of only one of the routes there."""
    routes = connection.app.router.routes
    scopes = {method: {**connection.scope, "method": method} for method in _METHODS}
    return [
        method for method, scope in scopes.items() if any(route.matches(scope)[0] is Match.FULL for route in routes)
    ]


async def _answer(connection: HTTPConnection, response: Response) -> Response | None:
    if isinstance(connection, Request):
        return response
    assert isinstance(connection, WebSocket)  # noqa: S101 - there is nothing else
    await deny_websocket(connection, response)
    return None


def _locations(problems: Iterable[Mapping[str, Any]]) -> str:
    return ", ".join(".".join(map(str, problem["loc"])) for problem in problems)


def _printable(text: str) -> str:
    """Return a text that UTF-8 can encode: a path may contain undecodable bytes."""
    return text.encode("utf-8", "replace").decode()
