"""The server, its dumps and sessions, and commands to a session."""

from __future__ import annotations

import time
from typing import Annotated, Literal

from fastapi import Query, Request, Response
from pydantic import Field

from tensight.errors import DumpError
from tensight.server.access import COOKIE, WRONG_ACCESS, cookie_value, is_same
from tensight.server.errors import UnauthorizedError, documented
from tensight.server.event_stream import LONGEST_WAIT_S
from tensight.server.json_bodies import JsonResponse, StrictRoute, json_response
from tensight.server.openapi import ANY_ERRORS, CHANGE_ERRORS
from tensight.server.operations import api_router
from tensight.server.routes.parameters import (
    LONGEST_NAME,
    MOST_ENTRIES,
    MOST_ROWS,
    Context,
    CurrentSession,
    SessionId,
)
from tensight.server.tensor_data import MOST_ELEMENTS, MOST_JSON_ELEMENTS
from tensight.sessions.conditions import condition_records
from tensight.sessions.errors import LimitError, NotFoundError, StateError, StorageError
from tensight.sessions.records import Command, ConditionRecord, DumpRecord, Record, SessionRecord

router = api_router(tag="sessions", route_class=StrictRoute, responses=ANY_ERRORS)


class Limits(Record):
    """Upper limits of requests."""

    rows: int = MOST_ROWS
    """Entries of a page."""
    entries: int = MOST_ENTRIES
    """Entries of a drawn scope or a relationship graph."""
    elements: int = MOST_ELEMENTS
    """Elements of a slice."""
    json_elements: int = MOST_JSON_ELEMENTS
    """Elements of a slice as JSON."""
    body_bytes: int
    """Bytes of a request."""
    subscribers: int
    """Subscribers to events, all together."""
    wait_s: float = LONGEST_WAIT_S
    """Seconds to wait for an event, in one request."""


class ServerRecord(Record):
    """Facts about the server."""

    name: Literal["tensight"] = "tensight"
    version: str
    api: Literal["v1"] = "v1"
    started: float
    uptime_s: float
    debugger_address: str | None
    """Host and port to which training processes on the server's machine attach; None if the server accepts none."""
    debugger_elsewhere: str | None
    """Host and port for training processes on other machines; None if they cannot attach."""
    debugger_needs_token: bool
    """Whether training processes need the server's access token."""
    sessions: int
    subscribers: int
    last_event: int
    """Number of the server's newest event."""
    limits: Limits


class Login(Record):
    """Credentials of a browser."""

    token: str = Field(min_length=1, max_length=1000)
    """The server printed it at its start."""


class OpenDump(Record):
    """The dump to open."""

    dump: str = Field(min_length=1, max_length=LONGEST_NAME)
    """Its `name` in the list of dumps."""
    fresh: bool = False
    """A separate session for a script: at step 0, without watchpoints of earlier sessions, and its own are not kept.
    It is closed 10 s after the last client that held it has left, or, if it was never held, after 10 minutes without a
    request."""


@router.get("/server", response_model=ServerRecord, summary="Describe the server")
async def get_server(context: Context) -> JsonResponse:
    """Return the server's version, limits, and the address for training processes."""
    settings = context.settings
    now = time.time()
    return await json_response(
        ServerRecord(
            version=settings.version,
            started=context.started,
            uptime_s=max(now - context.started, 0.0),
            debugger_address=settings.debugger_address,
            debugger_elsewhere=settings.debugger_elsewhere,
            debugger_needs_token=settings.debugger_needs_token,
            sessions=len(context.sessions.all()),
            subscribers=context.streams.subscribers,
            last_event=context.sessions.events.last,
            limits=Limits(body_bytes=settings.max_body_bytes, subscribers=settings.max_subscribers),
        )
    )


@router.post("/login", status_code=204, summary="Log a browser in", responses=CHANGE_ERRORS)
async def log_in(context: Context, login: Login, request: Request) -> Response:
    """Set a cookie that represents the token; pages cannot read it and other sites cannot use it.

    Programs send the token itself with each request, as `Authorization: Bearer TOKEN`. If the server has no token,
    no login is needed, and no cookie is set.
    """
    response = Response(status_code=204)
    token = context.settings.token
    if token is None:
        return response
    if not is_same(login.token, token):
        raise UnauthorizedError(WRONG_ACCESS)
    response.set_cookie(
        COOKIE,
        cookie_value(token),
        path=f"{context.settings.url_path_prefix}/api/",
        httponly=True,
        samesite="strict",
        secure=request.scope["scheme"] == "https",
    )
    return response


@router.get("/conditions", response_model=list[ConditionRecord], summary="List the conditions")
async def list_conditions() -> JsonResponse:
    """Return all conditions for watchpoints, with their parameters and advice.

    The list of a session tells whether each is available there.
    """
    return await json_response(condition_records())


@router.get("/dumps", response_model=list[DumpRecord], summary="List the dumps", responses=documented(StorageError))
async def list_dumps(
    context: Context,
    refresh: Annotated[bool, Query(description="Search the disk, even if the list is recent.")] = False,
) -> JsonResponse:
    """Return the dumps below the base directory and the recorded runs, by name."""
    return await json_response(await context.sessions.dumps(refresh))


@router.get("/sessions", response_model=list[SessionRecord], summary="List the sessions")
async def list_sessions(context: Context) -> JsonResponse:
    """Return all sessions, oldest first."""
    return await json_response([session.record() for session in context.sessions.all()])


@router.post(
    "/sessions",
    status_code=201,
    response_model=SessionRecord,
    summary="Open a dump",
    responses=CHANGE_ERRORS | documented(NotFoundError, LimitError, DumpError, StorageError, StateError),
)
async def open_dump(context: Context, dump: OpenDump) -> JsonResponse:
    """Open a dump or a recorded run as a session, or return the session that has it open, unless `fresh` is set."""
    session = await context.sessions.open_dump(dump.dump, fresh=dump.fresh)
    return await json_response(session.record(), 201)


@router.get(
    "/sessions/{session_id}",
    response_model=SessionRecord,
    summary="Describe a session",
    responses=documented(NotFoundError),
)
async def get_session(session: CurrentSession) -> JsonResponse:
    """Return a summary of a session, with the commands that it accepts now."""
    return await json_response(session.record())


@router.get(
    "/sessions/{session_id}/hold",
    status_code=204,
    summary="Hold a session",
    responses=documented(NotFoundError, StateError, LimitError),
)
async def hold_session(
    context: Context,
    session: CurrentSession,
    request: Request,
    wait_s: Annotated[
        float, Query(ge=0, le=LONGEST_WAIT_S, description="Seconds until the response.", examples=[0])
    ] = LONGEST_WAIT_S,
) -> Response:
    """Keep a fresh session open until the response, or until the connection breaks; then hold it again."""
    lease = session.lease
    if lease is None:
        raise StateError("only a session that was opened fresh needs to be held; others stay until they are closed")
    with lease.held():
        await context.streams.wait(request, lease.ended, wait_s)
    return Response(status_code=204)


@router.delete(
    "/sessions/{session_id}",
    status_code=204,
    summary="Close a session",
    responses=CHANGE_ERRORS | documented(NotFoundError, StateError, StorageError),
)
async def close_session(context: Context, session_id: SessionId) -> Response:
    """Close a dump, or forget a training that has ended. Recorded runs can be opened again."""
    await context.sessions.close(session_id)
    return Response(status_code=204)


@router.post(
    "/sessions/{session_id}/command",
    response_model=SessionRecord,
    summary="Command a session",
    responses=CHANGE_ERRORS | documented(NotFoundError, StateError, LimitError, StorageError),
)
async def send_command(session: CurrentSession, command: Command) -> JsonResponse:
    """Start, stop or move the run.

    The response comes when the command is accepted, not when it is done: follow the session's events for that.
    """
    return await json_response(await session.command(command))


@router.get(
    "/sessions/{session_id}/conditions",
    response_model=list[ConditionRecord],
    tags=["watchpoints"],
    summary="List the conditions of a session",
    responses=documented(NotFoundError),
)
async def list_session_conditions(session: CurrentSession) -> JsonResponse:
    """Return all conditions, each with whether it can be checked in this session now."""
    return await json_response(session.conditions())
