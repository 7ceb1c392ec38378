"""Overviews of a run: all tensors over all steps, and the steps on a line."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import Path, Query

from tensight.server.errors import documented
from tensight.server.json_bodies import JsonResponse, json_bytes
from tensight.server.openapi import ANY_ERRORS, SESSION_ERRORS
from tensight.server.operations import api_router
from tensight.server.routes.parameters import LARGEST, MOST_ROWS, CurrentSession, Offset, Rank, Text
from tensight.sessions.errors import NotFoundError, StateError
from tensight.sessions.overview import OverviewChoice
from tensight.sessions.records import (
    Curves,
    DiagnosisRecord,
    FactsRecord,
    Overview,
    OverviewStatistic,
    Timeline,
)

router = api_router(
    "/sessions/{session_id}", tag="tensors", responses=ANY_ERRORS | SESSION_ERRORS | documented(StateError)
)

MOST_LOCATED = 64
"""Maximum number of tensors with rows in one response."""

ColumnsAtMost = Annotated[
    int, Query(ge=1, le=MOST_ROWS, description="Maximum number of columns; neighbouring steps merge.", examples=[400])
]


@router.get("/overview", response_model=Overview, summary="Picture all tensors over all steps")
async def get_overview(
    session: CurrentSession,
    rank: Rank = 0,
    statistic: Annotated[OverviewStatistic, Query(description="Statistic in the cells.")] = "abs_mean",
    query: Annotated[
        Text, Query(description="Part of the name of the node, case-insensitive.", examples=["conv"])
    ] = "",
    offset: Offset = 0,
    limit: Annotated[int, Query(ge=1, le=LARGEST, description="Maximum number of tensors.", examples=[400])] = LARGEST,
    rows: Annotated[
        int,
        Query(ge=1, le=MOST_ROWS, description="Maximum number of rows; neighbouring tensors merge.", examples=[400]),
    ] = 400,
    columns: ColumnsAtMost = 400,
    first_step: Annotated[int, Query(ge=0, le=LARGEST, description="From this step on.", examples=[0])] = 0,
    last_step: Annotated[int, Query(ge=0, le=LARGEST, description="Up to this step.", examples=[100])] = LARGEST,
    read: Annotated[
        bool, Query(description="Spend about a second on reading unread tensors of a dump; see `unread`.")
    ] = False,
    locate: Annotated[
        list[str] | None,
        Query(
            max_length=MOST_LOCATED,
            description="Addresses of tensors whose rows are returned.",
            examples=[["0/kernel_graph_0/Default/Conv2D-op3:0@2"]],
        ),
    ] = None,
) -> JsonResponse:
    """Return a statistic of tensors in execution order by steps, with non-finite values and hits."""
    choice = OverviewChoice(statistic, query, offset, limit, rows, columns, first_step, last_step, tuple(locate or ()))
    # As many numbers as in a large list of records.
    return JsonResponse(await asyncio.to_thread(json_bytes, await session.overview(rank, choice, read=read)))


@router.get("/timeline", response_model=Timeline, summary="Show the steps on a line")
async def get_timeline(session: CurrentSession, rank: Rank = 0, columns: ColumnsAtMost = 400) -> JsonResponse:
    """Return the steps of a rank: hits, what is known about each, which graph ran, and the loss."""
    return JsonResponse(await asyncio.to_thread(json_bytes, await session.timeline(rank, columns)))


@router.get("/curves", response_model=Curves, summary="Show loss, learning rate and gradient norm")
async def get_curves(
    session: CurrentSession,
    rank: Rank = 0,
    points: Annotated[
        int, Query(ge=1, le=MOST_ROWS, description="Maximum number of points of a curve.", examples=[400])
    ] = 400,
) -> JsonResponse:
    """Return the curves of a training over its steps that are recorded regardless of watchpoints."""
    return JsonResponse(await asyncio.to_thread(json_bytes, await session.curves(rank, points)))


@router.get("/findings", response_model=DiagnosisRecord, summary="Say why the training does not learn")
async def get_findings(session: CurrentSession) -> JsonResponse:
    """Return what rules find in the facts of a run: what is wrong, where, since when, by what evidence, what to do."""
    return JsonResponse(await asyncio.to_thread(json_bytes, await session.diagnosis()))


@router.get(
    "/facts/{subject}",
    response_model=FactsRecord,
    summary="Read the facts of a run",
    responses=documented(NotFoundError),
)
async def get_facts(
    session: CurrentSession,
    subject: Annotated[Text, Path(description="The table.", examples=["losses"])],
    rank: Rank = 0,
) -> JsonResponse:
    """Return a table of what is known of each step beside its tensors; its last 10,000 rows."""
    return JsonResponse(await asyncio.to_thread(json_bytes, await session.facts(rank, subject)))
