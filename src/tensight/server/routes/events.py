"""Events: changes of a session, or of the server, for clients."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request, WebSocket

from tensight.server.errors import documented
from tensight.server.event_stream import LONGEST_WAIT_S
from tensight.server.json_bodies import JsonResponse, json_response
from tensight.server.openapi import ANY_ERRORS, SESSION_ERRORS
from tensight.server.operations import api_router
from tensight.server.routes.parameters import Context, CurrentSession, Limit
from tensight.sessions.errors import LimitError
from tensight.sessions.records import EventPage

router = api_router(tag="events", responses=ANY_ERRORS | documented(LimitError))

After = Annotated[int, Query(ge=0, le=2**53, description="Number of the last known event; 0 for none.", examples=[0])]
Wait = Annotated[
    float,
    Query(ge=0, le=LONGEST_WAIT_S, description="Seconds to wait for an event if there is none yet.", examples=[0]),
]


@router.get("/events", response_model=EventPage, summary="Read the events of the server")
async def list_server_events(
    context: Context, request: Request, after: After = 0, wait_s: Wait = 0.0, limit: Limit = 1000
) -> JsonResponse:
    """Return events about sessions that appear, change or go away; wait for one if there is none yet."""
    return await json_response(await context.streams.poll(request, context.sessions.events, after, wait_s, limit))


@router.get(
    "/sessions/{session_id}/events",
    response_model=EventPage,
    summary="Read the events of a session",
    responses=SESSION_ERRORS,
)
async def list_events(
    context: Context,
    session: CurrentSession,
    request: Request,
    after: After = 0,
    wait_s: Wait = 0.0,
    limit: Limit = 1000,
) -> JsonResponse:
    """Return the events after a number; wait for one if there is none yet.

    Events are numbered without gaps. Ask again after `last`. If `missed` is true, some are no longer available: read
    the session again.
    """
    return await json_response(await context.streams.poll(request, session.events, after, wait_s, limit))


@router.websocket("/events/stream")
async def follow_server(websocket: WebSocket, context: Context, after: After = 0) -> None:
    """Send the events of the server as they happen."""
    await context.streams.follow(websocket, context.sessions.events, after, until_closed=False)


@router.websocket("/sessions/{session_id}/events/stream")
async def follow_session(websocket: WebSocket, context: Context, session: CurrentSession, after: After = 0) -> None:
    """Send the events of a session as they happen, until it is closed."""
    await context.streams.follow(websocket, session.events, after, until_closed=True)
