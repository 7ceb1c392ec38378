"""Values of tensors: statistics, slices, pictures, distributions, and whole tensors as files."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from fastapi import Query, Request, Response

from tensight.graph import TensorAddress
from tensight.graph.steps import iteration_of
from tensight.server import errors
from tensight.server.errors import ErrorReply, documented
from tensight.server.json_bodies import JsonResponse, json_response
from tensight.server.openapi import ANY_ERRORS, SESSION_ERRORS
from tensight.server.operations import api_router
from tensight.server.routes.parameters import (
    Address,
    AnyRank,
    CurrentSession,
    Follow,
    GraphName,
    Limit,
    NodeName,
    Offset,
    Rank,
    Slice,
    Step,
    Text,
    Tolerance,
    WhichTensor,
)
from tensight.server.tensor_data import (
    MEDIA_TYPES,
    MOST_ELEMENTS,
    Form,
    RangeError,
    TensorFile,
    TensorFileResponse,
    file_name,
    part_response,
)
from tensight.sessions.errors import LimitError, NotFoundError, StateError, UnavailableError
from tensight.sessions.offline.statistics import computed_statistics
from tensight.sessions.records import (
    ElementRecord,
    HistogramRecord,
    Record,
    Statistics,
    StatisticsPage,
    StatisticsRow,
    TensorRecord,
)
from tensight.tensors.heat_maps import MOST_CELLS
from tensight.tensors.histograms import MOST_BINS
from tensight.tensors.slice_maps import MOST_CELLS as MOST_SLICES
from tensight.tensors.slices import parse_slice
from tensight.tensors.views import View, ViewResult

router = api_router("/sessions/{session_id}", tag="tensors", responses=ANY_ERRORS | SESSION_ERRORS)

VALUE_ERRORS = documented(NotFoundError, UnavailableError, StateError, LimitError)

_PART_HEADERS = {
    "X-Tensight-Dtype": ("Type of the elements of the body.", "float32"),
    "X-Tensight-Shape": ("Shape of the body, with commas; empty for a single number.", "3,4"),
    "X-Tensight-Tensor-Dtype": ("Type of the elements of the whole tensor.", "float32"),
    "X-Tensight-Tensor-Shape": ("Shape of the whole tensor.", "32,3,4"),
    "X-Tensight-Slice": ("The part in the response.", "[0, 0:3, 0:4]"),
}
PART: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The elements, in the requested format.",
        "headers": {
            name: {"description": text, "schema": {"type": "string"}, "example": example}
            for name, (text, example) in _PART_HEADERS.items()
        },
        "content": {
            **{
                MEDIA_TYPES[form]: {"schema": {"type": "string", "format": "binary"}}
                for form in ("raw", "npy", "arrow")
            },
            MEDIA_TYPES["json"]: {
                "schema": {
                    "description": "Nested lists of numbers; a tensor without dimensions is one number.",
                    "anyOf": [
                        {"type": "array"},
                        {"type": "number"},
                        {"type": "boolean"},
                        {"type": "string", "enum": ["NaN", "Infinity", "-Infinity"]},
                    ],
                },
                "example": [[0.5, "NaN"], ["-Infinity", 2]],
            },
        },
    }
}
_FILE_HEADERS = {
    "ETag": "Changes with the content; send it as `If-Range` to resume a download.",
    "Accept-Ranges": "`bytes`: a part can be requested with `Range`.",
    "Content-Disposition": "Name of the file.",
}
FILE: dict[int | str, dict[str, Any]] = {
    status: {
        "description": text,
        "headers": {name: {"description": what, "schema": {"type": "string"}} for name, what in _FILE_HEADERS.items()},
        "content": {MEDIA_TYPES["npy"]: {"schema": {"type": "string", "format": "binary"}}},
    }
    for status, text in {200: "The file.", 206: "The part of the file that `Range` requested."}.items()
}
FILE[304] = {"description": "The file is still the one that `If-None-Match` names."}
FILE[416] = {"model": ErrorReply, "description": RangeError.__doc__}

_REQUEST_HEADERS = {
    "Range": (
        "The bytes: `bytes=0-1023`, `bytes=1024-`, `bytes=-100`; for several ranges the whole file is sent.",
        "bytes=0-",
    ),
    "If-Range": (
        "The tag of the file that `Range` continues; if it has changed, the whole file is sent.",
        '"5d41"',
    ),
    "If-None-Match": ("The tag of the file that the client has; it is not sent again.", '"5d41"'),
}
FILE_REQUEST: dict[str, Any] = {
    "parameters": [
        {
            "name": name,
            "in": "header",
            "required": False,
            "description": text,
            "schema": {"type": "string"},
            "example": example,
        }
        for name, (text, example) in _REQUEST_HEADERS.items()
    ]
}

FormOfPart = Annotated[
    Form,
    Query(
        alias="format",
        description=(
            "`raw`: elements in C order, little-endian; `npy`: a NumPy file; `arrow`: an IPC stream with one column; "
            "`json`: nested lists, with strings for values that are not JSON numbers."
        ),
    ),
]

MostElements = Annotated[int, Query(ge=1, le=MOST_ELEMENTS, description="Maximum number of elements.")]
MapRows = Annotated[int, Query(ge=1, le=MOST_CELLS, description="Maximum number of rows of cells.")]
MapColumns = Annotated[int, Query(ge=1, le=MOST_CELLS, description="Maximum number of columns of cells.")]
SliceMapRows = Annotated[int, Query(ge=1, le=MOST_SLICES, description="Maximum number of rows of cells.")]
SliceMapColumns = Annotated[int, Query(ge=1, le=MOST_SLICES, description="Maximum number of columns of cells.")]
Bins = Annotated[int, Query(ge=1, le=MOST_BINS, description="Number of bins of equal width.")]


class TensorStatisticsRecord(Record):
    """Statistics of a tensor, or of a difference with both of its sides."""

    address: str
    statistics: Statistics
    """Statistics of the requested tensor or difference."""
    current: Statistics | None = None
    """For a difference: statistics of the tensor."""
    previous: Statistics | None = None
    """For a difference: statistics of the tensor one step before."""


def element_record(address: TensorAddress, view: ViewResult) -> ElementRecord:
    """Return the record of an element search; without index and value if there is no such element."""
    record = ElementRecord(address=str(address))
    if view.array is None:
        return record
    index = tuple(entry for entry in parse_slice(view.slice, view.shape) if isinstance(entry, int))
    return record.model_copy(update={"index": index, "value": str(view.array[()])})


def histogram_record(address: TensorAddress, view: ViewResult) -> HistogramRecord:
    """Return the record of a histogram. UnavailableError if none was computed."""
    histogram = view.histogram
    if histogram is None:
        raise UnavailableError(f"no histogram of {address} was computed")
    return HistogramRecord(counts=tuple(histogram.counts.tolist()), edges=tuple(histogram.edges.tolist()))


@router.get("/tensors", response_model=list[TensorRecord], summary="List the tensors of a node")
async def list_tensors(
    session: CurrentSession,
    node: NodeName,
    step: Step,
    rank: Rank = 0,
    graph: GraphName = "",
    follow: Follow = False,
) -> JsonResponse:
    """Return the inputs and outputs of a node with their statistics, and whether their values are available."""
    if follow or not graph:
        iteration = None if step is None else iteration_of(step)
        graph = await asyncio.to_thread(session.graph_of, rank, node, graph, iteration)
    return await json_response(await session.tensors_of(rank, graph, node, step))


@router.get(
    "/tensor/values",
    response_class=Response,
    summary="Read a slice",
    responses=PART | VALUE_ERRORS,
)
async def get_values(
    session: CurrentSession,
    address: Address,
    which: WhichTensor = "current",
    slice_: Annotated[Slice, Query(alias="slice")] = "",
    tolerance: Tolerance = 0.0,
    limit: MostElements = 100_000,
    form: FormOfPart = "json",
) -> Response:
    """Return a part of a tensor, of the same tensor one step before, or of the difference of both."""
    view = View("values", slice_, tolerance, limit=limit)
    return await asyncio.to_thread(part_response, await session.view(address, view, which), form)


@router.get(
    "/tensor/heat-map",
    response_class=Response,
    summary="Picture a slice",
    responses=PART | VALUE_ERRORS,
)
async def get_heat_map(
    session: CurrentSession,
    address: Address,
    which: WhichTensor = "current",
    slice_: Annotated[Slice, Query(alias="slice")] = "",
    tolerance: Tolerance = 0.0,
    rows: MapRows = 256,
    columns: MapColumns = 256,
    form: FormOfPart = "json",
) -> Response:
    """Return a matrix of cells, each the element of largest magnitude in it; non-finite elements take precedence."""
    view = View("heat_map", slice_, tolerance, rows, columns)
    return await asyncio.to_thread(part_response, await session.view(address, view, which), form)


@router.get(
    "/tensor/slices",
    response_class=Response,
    summary="Picture all slices",
    responses=PART | VALUE_ERRORS,
)
async def get_slices(
    session: CurrentSession,
    address: Address,
    which: WhichTensor = "current",
    slice_: Annotated[Slice, Query(alias="slice")] = "",
    tolerance: Tolerance = 0.0,
    rows: SliceMapRows = 128,
    columns: SliceMapColumns = 128,
    form: FormOfPart = "json",
) -> Response:
    """Return a map of the slices that differ in the dimensions with an index in `slice`; by default all but two.

    The last of these dimensions is horizontal, the others are vertical. There are three planes: the element of largest
    magnitude of each cell (NaN and infinities first), the number of NaN and infinities, and the number, in C order,
    of the slice that contains the element.
    """
    view = View("slices", slice_, tolerance, rows, columns)
    return await asyncio.to_thread(part_response, await session.view(address, view, which), form)


@router.get(
    "/tensor/element",
    response_model=ElementRecord,
    summary="Find an element",
    responses=VALUE_ERRORS,
)
async def get_element(
    session: CurrentSession,
    address: Address,
    find: Annotated[
        Literal["first", "largest", "next", "previous"],
        Query(
            description=(
                "`first`: the first NaN or infinity, or if there is none the element of largest magnitude; "
                "`largest`: the finite element of largest magnitude; `next`, `previous`: the nearest NaN or infinity "
                "after or before the element that `slice` names, continued at the other end of the tensor."
            )
        ),
    ] = "first",
    which: WhichTensor = "current",
    slice_: Annotated[Slice, Query(alias="slice")] = "",
    tolerance: Tolerance = 0.0,
) -> JsonResponse:
    """Return the position of an element in a tensor, in C order."""
    view = await session.view(address, View(find, slice_, tolerance), which)
    return await json_response(element_record(address, view))


@router.get(
    "/tensor/histogram",
    response_model=HistogramRecord,
    summary="Show how values are distributed",
    responses=VALUE_ERRORS,
)
async def get_histogram(
    session: CurrentSession,
    address: Address,
    which: WhichTensor = "current",
    slice_: Annotated[Slice, Query(alias="slice")] = "",
    tolerance: Tolerance = 0.0,
    bins: Bins = 40,
) -> JsonResponse:
    """Return the number of finite elements in each bin; by default of the whole tensor."""
    view = await session.view(address, View("histogram", slice_, tolerance, bins=bins), which)
    return await json_response(histogram_record(address, view))


@router.get(
    "/tensor/statistics",
    response_model=TensorStatisticsRecord,
    summary="Compute the statistics of a tensor",
    responses=VALUE_ERRORS,
)
async def get_statistics(
    session: CurrentSession,
    address: Address,
    which: WhichTensor = "current",
    slice_: Annotated[Slice, Query(alias="slice")] = "",
    tolerance: Tolerance = 0.0,
) -> JsonResponse:
    """Return the statistics of a tensor, by default of all of it; for a difference also those of both sides."""
    view = await session.view(address, View("statistics", slice_, tolerance), which)
    if view.statistics is None:
        raise UnavailableError(f"no statistics of {address} were computed")
    record = TensorStatisticsRecord(address=str(address), statistics=computed_statistics(view.statistics))
    if which == "difference":
        current = await session.view(address, View("statistics", slice_))
        sides = {"current": current.statistics, "previous": view.previous_statistics}
        record = record.model_copy(
            update={name: computed_statistics(side) for name, side in sides.items() if side is not None}
        )
    return await json_response(record)


@router.get("/tensor/history", response_model=list[StatisticsRow], summary="Follow a tensor over the steps")
async def get_history(session: CurrentSession, address: Address) -> JsonResponse:
    """Return the statistics of a tensor at every step where they are known, in order."""
    return await json_response(await session.statistics_over_steps(address))


@router.get(
    "/tensor/file",
    response_class=Response,
    summary="Download a tensor",
    responses=FILE | VALUE_ERRORS,
    openapi_extra=FILE_REQUEST,
)
@router.head("/tensor/file", response_class=Response, include_in_schema=False)
async def get_file(session: CurrentSession, address: Address, request: Request) -> Response:
    """Send a whole tensor as an npy file, however large, or the part that `Range` requests.

    Types that NumPy does not have are sent as float32 (int8 for integers), which contains all their values.
    """
    array = await session.value(address)
    file = await asyncio.to_thread(TensorFile, array, f"{session.id}/{session.created}/{address}")
    headers = {
        "Content-Disposition": f'attachment; filename="{file_name(address)}"',
        "X-Tensight-Dtype": array.dtype.name,
    }
    try:
        return TensorFileResponse(file, request.headers, headers)
    except RangeError as error:
        return errors.reply(
            416, error.code, str(error), "header.range", {"Content-Range": f"bytes */{file.size_bytes}"}
        )


@router.get("/statistics", response_model=StatisticsPage, summary="List the statistics of all tensors")
async def list_statistics(
    session: CurrentSession,
    step: Step,
    rank: AnyRank = None,
    query: Annotated[
        Text, Query(description="Part of the name of the node, case-insensitive.", examples=["conv"])
    ] = "",
    sort: Annotated[
        str, Query(max_length=40, description="Name of a column: `position`, `max`, `nan_count`…", examples=["max"])
    ] = "position",
    descending: Annotated[bool, Query(description="Largest first.")] = False,
    offset: Offset = 0,
    limit: Limit = 100,
) -> JsonResponse:
    """Return the statistics of all tensors of a step, as far as they are known."""
    page = await session.statistics_table(
        rank=rank,
        step=step,
        query=query,
        sort=sort,
        descending=descending,
        offset=offset,
        limit=limit,
    )
    return await json_response(page)
