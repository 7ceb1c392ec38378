"""Watchpoints and their hits."""

from __future__ import annotations

import math
from typing import Annotated

from fastapi import Path, Query, Response
from starlette.convertors import Convertor, register_url_convertor

from tensight.errors import InputError
from tensight.server.errors import documented
from tensight.server.json_bodies import JsonResponse, StrictRoute, json_response
from tensight.server.openapi import ANY_ERRORS, CHANGE_ERRORS, SESSION_ERRORS
from tensight.server.operations import api_router
from tensight.server.routes.parameters import (
    LARGEST,
    LONGEST_NAME,
    AnyGraph,
    AnyRank,
    CurrentSession,
    Limit,
    Offset,
    Watchpoint,
)
from tensight.sessions.errors import LimitError, NotFoundError, StateError, StorageError
from tensight.sessions.records import (
    HitPage,
    OriginRecord,
    Record,
    WatchpointChange,
    WatchpointRecord,
    WatchpointSpec,
)
from tensight.sessions.session import Session

router = api_router(
    "/sessions/{session_id}",
    tag="watchpoints",
    route_class=StrictRoute,
    responses=ANY_ERRORS | SESSION_ERRORS,
)

EDIT_ERRORS = CHANGE_ERRORS | documented(StateError, LimitError, StorageError)

ONE = "/watchpoints/{number:watchpoint_number}"

Number = Annotated[int, Path(ge=1, le=LARGEST, description="Number of the watchpoint.", examples=[1])]


class _WatchpointNumber(Convertor[str]):
    """A number in a path; anything else is another path, such as that of the recommended watchpoints."""

    regex = "[0-9]{1,10}"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("watchpoint_number", _WatchpointNumber())


class Recommendation(Record):
    """Whether to create the recommended watchpoints."""

    accept: bool
    """False: do not create them, and do not offer them again in this session."""


@router.get("/watchpoints", response_model=list[WatchpointRecord], summary="List the watchpoints")
async def list_watchpoints(session: CurrentSession) -> JsonResponse:
    """Return the watchpoints by number, each with its numbers of watched nodes and of hits."""
    return await json_response(session.watchpoints())


@router.post(
    "/watchpoints",
    status_code=201,
    response_model=WatchpointRecord,
    summary="Create a watchpoint",
    responses=EDIT_ERRORS,
)
async def create_watchpoint(session: CurrentSession, spec: WatchpointSpec) -> JsonResponse:
    """Create a watchpoint. It is checked from the next step on; recheck to check the current step, too."""
    _require_numbers(spec.parameters)
    return await json_response(await session.create_watchpoint(spec), 201)


@router.delete("/watchpoints", status_code=204, summary="Delete all watchpoints", responses=EDIT_ERRORS)
async def delete_watchpoints(session: CurrentSession) -> Response:
    """Delete all watchpoints of the session."""
    await session.delete_watchpoints()
    return Response(status_code=204)


@router.get(
    "/watchpoints/recommended",
    response_model=list[WatchpointRecord],
    summary="List the recommended watchpoints",
)
async def list_recommended_watchpoints(session: CurrentSession) -> JsonResponse:
    """Return the recommended watchpoints as they would be created now, without creating them."""
    return await json_response(await session.recommended())


@router.post(
    "/watchpoints/recommended",
    response_model=list[WatchpointRecord],
    summary="Accept or refuse the recommended watchpoints",
    responses=EDIT_ERRORS,
)
async def recommend_watchpoints(session: CurrentSession, recommendation: Recommendation) -> JsonResponse:
    """Create the recommended watchpoints, or decline them; existing ones stay."""
    return await json_response(await session.recommend(recommendation.accept))


@router.get(ONE, response_model=WatchpointRecord, summary="Describe a watchpoint")
async def get_watchpoint(session: CurrentSession, number: Number) -> JsonResponse:
    """Return a watchpoint."""
    return await json_response(_watchpoint(session, number))


@router.patch(
    ONE,
    response_model=WatchpointRecord,
    summary="Change a watchpoint",
    responses=EDIT_ERRORS,
)
async def change_watchpoint(session: CurrentSession, number: Number, change: WatchpointChange) -> JsonResponse:
    """Change its parameters, name, nodes or severity, or enable or disable it; omitted fields stay."""
    _require_numbers(change.parameters or {})
    return await json_response(await session.change_watchpoint(number, change))


@router.delete(ONE, status_code=204, summary="Delete a watchpoint", responses=EDIT_ERRORS)
async def delete_watchpoint(session: CurrentSession, number: Number) -> Response:
    """Delete a watchpoint; its number is not reused."""
    await session.delete_watchpoints([number])
    return Response(status_code=204)


@router.get("/hits", response_model=HitPage, tags=["hits"], summary="List the hits")
async def list_hits(
    session: CurrentSession,
    rank: AnyRank = None,
    graph: AnyGraph = "",
    watchpoint: Watchpoint = None,
    focus: Annotated[
        str,
        Query(max_length=LONGEST_NAME, description="Return the page that contains this node, whatever `offset` is."),
    ] = "",
    offset: Offset = 0,
    limit: Limit = 10,
) -> JsonResponse:
    """Return the nodes with hits in the current step, in execution order; `limit` and `offset` count nodes."""
    page = await session.hits(rank=rank, graph=graph, watchpoint=watchpoint, focus=focus, offset=offset, limit=limit)
    return await json_response(page)


@router.get(
    "/origins",
    response_model=list[OriginRecord],
    tags=["hits"],
    summary="Tell where anomalies began",
    responses=documented(StateError),
)
async def list_origins(session: CurrentSession) -> JsonResponse:
    """Return, for each kind of anomaly, the first operator that showed it, and the line of code behind that."""
    return await json_response(await session.origins())


def _watchpoint(session: Session, number: int) -> WatchpointRecord:
    watchpoint = next((record for record in session.watchpoints() if record.id == number), None)
    if watchpoint is None:
        raise NotFoundError(
            f"there is no watchpoint {number}; list the watchpoints to see which there are", code="watchpoint-unknown"
        )
    return watchpoint


def _require_numbers(parameters: dict[str, float | bool]) -> None:
    for name, value in parameters.items():
        if not math.isfinite(value):
            raise InputError(f"parameter {name[:80]!r} is {value}; give a finite number")
