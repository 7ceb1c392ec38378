"""The computation: graphs, nodes, and the lines of code behind them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import Field
from starlette.responses import PlainTextResponse

from tensight.server.errors import documented
from tensight.server.json_bodies import JsonResponse, json_response
from tensight.server.openapi import ANY_ERRORS, SESSION_ERRORS
from tensight.server.operations import api_router
from tensight.server.routes.parameters import (
    LONGEST_NAME,
    MOST_ENTRIES,
    Address,
    AnyGraph,
    AnyRank,
    CurrentSession,
    Follow,
    GraphName,
    Limit,
    NodeName,
    Offset,
    Rank,
    ScopePath,
    Step,
    Text,
    Watchpoint,
)
from tensight.sessions.errors import StateError
from tensight.sessions.records import (
    ExecutionPage,
    GraphLevel,
    GraphRecord,
    NodeRecord,
    NodesMeant,
    RelationGraph,
    SearchPage,
    SourcePage,
    TreePage,
)

router = api_router("/sessions/{session_id}", tag="graphs", responses=ANY_ERRORS | SESSION_ERRORS)

MOST_OPENED = 500
"""Maximum number of open scopes of a picture; their paths must fit into a URL."""

TOO_LONG: dict[int | str, dict[str, Any]] = {
    400: {
        "description": "The URL is longer than 64 KiB: fewer scopes can be open at once.",
        "content": {"text/plain": {"schema": {"type": "string"}}},
    }
}
"""Response of the HTTP server itself, before the application sees the request."""

Kind = Literal["", "operator", "parameter", "constant", "weight", "gradient", "activation"]


@router.get("/graphs", response_model=list[GraphRecord], summary="List the graphs")
async def list_graphs(session: CurrentSession, rank: AnyRank = None) -> JsonResponse:
    """Return the graphs of a rank, or of all."""
    return await json_response(await session.graph_records(rank))


@router.get("/tree", response_model=TreePage, summary="List the rows of the node tree")
async def get_tree(
    session: CurrentSession,
    rank: Rank = 0,
    graph: Annotated[
        str,
        Query(
            max_length=LONGEST_NAME,
            description="Only this graph; by default all graphs of the rank as one program.",
            examples=["kernel_graph_0"],
        ),
    ] = "",
    scope: ScopePath = "",
    watchpoint: Watchpoint = None,
    offset: Offset = 0,
    limit: Limit = 1000,
) -> JsonResponse:
    """Return the scopes and nodes directly below a scope; with a watchpoint, also how many nodes it watches."""
    page = await session.tree(rank, graph, scope, watchpoint=watchpoint, offset=offset, limit=limit)
    return await json_response(page)


@router.get("/nodes", response_model=SearchPage, summary="Search nodes")
async def search_nodes(
    session: CurrentSession,
    name: Annotated[Text, Query(description="Part of the name, or a regular expression.", examples=["conv"])] = "",
    op_type: Annotated[
        Text, Query(alias="type", description="Type of the operator, case-insensitive.", examples=["MatMul"])
    ] = "",
    kind: Annotated[Kind, Query(description="Kind of the node, or role of its tensor.")] = "",
    stack: Annotated[
        str, Query(max_length=255, description="Part of `file:line code` of its stack.", examples=["network.py"])
    ] = "",
    rank: AnyRank = None,
    graph: AnyGraph = "",
    regex: Annotated[bool, Query(description="`name` is a regular expression.")] = False,
    case_sensitive: Annotated[bool, Query(description="Match `name` case-sensitively.")] = False,
    watchpoint: Watchpoint = None,
    offset: Offset = 0,
    limit: Limit = 100,
) -> JsonResponse:
    """Find the nodes that match all criteria; with a watchpoint, each with whether it is watched."""
    page = await session.search(
        name=name,
        op_type=op_type,
        kind=kind,
        stack=stack,
        rank=rank,
        graph=graph,
        regex=regex,
        case_sensitive=case_sensitive,
        watchpoint=watchpoint,
        offset=offset,
        limit=limit,
    )
    return await json_response(page)


@router.get("/nodes/meant", response_model=NodesMeant, summary="Nodes that a name may mean")
async def get_nodes_meant(
    session: CurrentSession, name: NodeName, step: Step, rank: Rank = 0, graph: AnyGraph = ""
) -> JsonResponse:
    """Return the node with a name, or with a name that ends so; a weight precedes the optimizer states of it."""
    return await json_response(await session.nodes_meant(name, rank, graph, step))


@router.get("/node", response_model=NodeRecord, summary="Describe a node")
async def get_node(
    session: CurrentSession,
    name: NodeName,
    step: Step,
    rank: Rank = 0,
    graph: GraphName = "",
    follow: Follow = False,
) -> JsonResponse:
    """Return what the graph contains about a node: inputs, outputs, consumers, attributes, stack."""
    return await json_response(await session.node(rank, graph, name, step=step, follow=follow))


@router.get(
    "/level",
    response_model=GraphLevel,
    summary="Open a scope for drawing",
    responses={**documented(StateError), **TOO_LONG},
)
async def get_level(
    session: CurrentSession,
    rank: Rank = 0,
    graph: GraphName = "",
    scope: ScopePath = "",
    opened: Annotated[
        list[Annotated[str, Field(max_length=LONGEST_NAME)]] | None,
        Query(alias="open", max_length=MOST_OPENED, description="A scope within it that is open, too; repeatable."),
    ] = None,
    beside: Annotated[bool, Query(description="Draw each parameter and constant that a drawn operator reads.")] = False,
    watchpoint: Watchpoint = None,
    limit: Annotated[int, Query(ge=1, le=MOST_ENTRIES, description="Maximum number of entries of a scope.")] = 1500,
) -> JsonResponse:
    """Return the entries of a scope, its neighbours outside, and the edges between them."""
    level = await session.level(rank, graph, scope, limit, opened=opened or (), beside=beside, watchpoint=watchpoint)
    return await json_response(level)


@router.get("/relations", response_model=RelationGraph, summary="Show what a tensor is made of and used for")
async def get_relations(
    session: CurrentSession,
    address: Address,
    hops: Annotated[int, Query(ge=1, le=20, description="Number of edges up and down.")] = 1,
    limit: Annotated[int, Query(ge=1, le=MOST_ENTRIES, description="Maximum number of nodes.")] = 200,
) -> JsonResponse:
    """Return the node of a tensor, its producers, and the consumers of that output, with the hits on each."""
    return await json_response(await session.relations(address, hops, limit))


@router.get("/sources", response_model=SourcePage, summary="List the lines of code")
async def list_sources(
    session: CurrentSession,
    query: Annotated[Text, Query(description="Part of `file:line code`, case-insensitive.", examples=["conv"])] = "",
    offset: Offset = 0,
    limit: Limit = 10,
) -> JsonResponse:
    """Return the files and lines that created nodes, the user's code before libraries."""
    return await json_response(await session.sources(query, offset, limit))


@router.get(
    "/source",
    response_class=PlainTextResponse,
    summary="Read a file of code",
    responses={200: {"description": "The text of the file.", "content": {"text/plain": {"example": "import numpy\n"}}}},
)
async def get_source(
    session: CurrentSession,
    file: Annotated[
        str,
        Query(
            min_length=1,
            max_length=LONGEST_NAME,
            description="Path as in the list of sources.",
            examples=["network.py"],
        ),
    ],
) -> PlainTextResponse:
    """Return the text of a file as the training process sent it; files of this machine are not read."""
    text = await session.source_text(file)
    return PlainTextResponse(text.encode("utf-8", "replace"))


@router.get("/executions", response_model=ExecutionPage, summary="List which graphs ran in which step")
async def list_executions(
    session: CurrentSession, rank: Rank = 0, offset: Offset = 0, limit: Limit = 100
) -> JsonResponse:
    """Return the steps of a rank with the graphs that ran in them, as far as recorded."""
    return await json_response(await session.executions(rank, offset, limit))
