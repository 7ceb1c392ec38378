"""Parameters that operations share, with their bounds; sessions receive validated values only."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from fastapi import Depends, Path, Query
from starlette.requests import HTTPConnection, Request

from tensight.errors import InputError
from tensight.graph import TensorAddress
from tensight.server.event_stream import EventStreams
from tensight.sessions.registry import Sessions
from tensight.sessions.session import Session

if TYPE_CHECKING:
    from tensight.server.http_settings import HttpSettings

MOST_ROWS = 1000
MOST_ENTRIES = 5000
"""Maximum number of entries of a drawn scope, or of nodes of a relationship graph."""
LONGEST_NAME = 4096
LONGEST_QUERY = 1000
LARGEST = 2**31 - 1

_SLOT_AT_END = re.compile(r":(?:input\.)?[0-9]{1,9}", re.ASCII)


@dataclass(frozen=True)
class ServerContext:
    """Objects that operations need in addition to their parameters.

    Attributes
    ----------
    sessions : Sessions
    streams : EventStreams
    settings : HttpSettings
    started : float
        Seconds since 1970.
    """

    sessions: Sessions
    streams: EventStreams
    settings: HttpSettings
    started: float


async def _context(connection: HTTPConnection) -> ServerContext:
    context = connection.app.state.context
    assert isinstance(context, ServerContext)  # noqa: S101 - set when the application is made
    return context


Context = Annotated[ServerContext, Depends(_context)]
SessionId = Annotated[str, Path(max_length=80, description="Number of the session.", examples=["1"])]


async def _session(context: Context, session_id: SessionId) -> Session:
    return context.sessions.get(session_id)


CurrentSession = Annotated[Session, Depends(_session)]

Rank = Annotated[int, Query(ge=0, le=LARGEST, description="Rank of the process.", examples=[0])]
AnyRank = Annotated[
    int | None, Query(ge=0, le=LARGEST, description="Only this rank; by default all of them.", examples=[0])
]
GraphName = Annotated[
    str,
    Query(
        max_length=LONGEST_NAME,
        description="Name of the graph; by default the one that ran in the step.",
        examples=["kernel_graph_0"],
    ),
]
Follow = Annotated[
    bool,
    Query(
        description=(
            "Take the node from the graph that ran in the step, if that is another variant of the program than "
            "the named graph."
        )
    ),
]
AnyGraph = Annotated[
    str,
    Query(max_length=LONGEST_NAME, description="Only this graph; by default all of them.", examples=["kernel_graph_0"]),
]
NodeName = Annotated[
    str,
    Query(
        min_length=1,
        max_length=LONGEST_NAME,
        description="Name of the node, as in the tree and in searches.",
        examples=["Default/network/conv1/Conv2D-op1"],
    ),
]
ScopePath = Annotated[
    str,
    Query(
        max_length=LONGEST_NAME,
        description="Path of a scope, or `@parameters` or `@constants` for these groups; empty for the whole graph.",
        examples=["Default"],
    ),
]
Watchpoint = Annotated[int | None, Query(ge=1, le=LARGEST, description="Number of a watchpoint.", examples=[1])]


async def _step(
    request: Request,
    step: Annotated[
        int | None,
        Query(
            ge=0,
            le=LARGEST,
            description="Counts from 1, 0 is the state before the first; by default the current step.",
            examples=[1],
        ),
    ] = None,
) -> int | None:
    if "iteration" in request.query_params:
        # An ignored parameter would return another step than intended.
        raise InputError("there is no parameter 'iteration': ask for the step, which counts from 1")
    return step


Step = Annotated[int | None, Depends(_step)]
Offset = Annotated[int, Query(ge=0, le=2**31, description="Number of entries to skip.", examples=[0])]
Limit = Annotated[int, Query(ge=1, le=MOST_ROWS, description="Maximum number of entries.", examples=[100])]
Text = Annotated[str, Query(max_length=LONGEST_QUERY)]
WhichTensor = Annotated[
    Literal["current", "previous", "difference"],
    Query(description="The tensor, the same tensor one step before, or the tensor minus the earlier one."),
]
Tolerance = Annotated[
    float,
    Query(
        ge=0,
        le=1,
        description="For a difference: elements within this share of the largest difference count as equal.",
        examples=[0.01],
    ),
]
Slice = Annotated[
    str,
    Query(
        max_length=4096,
        description=(
            "The part: one entry for each dimension, an index or `start:end` or `start:end:step`. "
            "Empty for the last two dimensions and index 0 of the others, cut to `limit` elements."
        ),
        examples=["[0, :, 0:8]"],
    ),
]


async def _address(
    session: CurrentSession,
    address: Annotated[
        str,
        Query(
            min_length=1,
            max_length=LONGEST_NAME,
            description=(
                "Address of the tensor: `RANK/GRAPH/NODE:SLOT@STEP`, for an input `…:input.SLOT@STEP`. "
                "Without `@STEP` the current step. The graph may be left out (`RANK//NODE:SLOT`): then it is the one "
                "that ran in the step, as it is if another variant of the program than the named graph ran in the step."
            ),
            examples=["0/kernel_graph_0/Default/network/conv1/Conv2D-op1:0@2"],
        ),
    ],
) -> TensorAddress:
    _, colon, end = address.rpartition(":")
    if _SLOT_AT_END.fullmatch(colon + end):
        address = f"{address}@{session.step}"
    return await asyncio.to_thread(session.meant, TensorAddress.parse(address))


Address = Annotated[TensorAddress, Depends(_address)]
