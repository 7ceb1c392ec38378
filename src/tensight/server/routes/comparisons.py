"""Comparisons of two runs: request, progress, and results."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from fastapi import Depends, Path, Query, Response
from pydantic import Field

from tensight.graph import TensorAddress
from tensight.server.errors import documented
from tensight.server.json_bodies import JsonResponse, StrictRoute, json_bytes, json_response
from tensight.server.openapi import ANY_ERRORS, CHANGE_ERRORS
from tensight.server.operations import api_router
from tensight.server.routes.parameters import (
    LARGEST,
    LONGEST_NAME,
    MOST_ROWS,
    Context,
    Limit,
    Offset,
    Slice,
    Text,
    Tolerance,
)
from tensight.server.routes.tensors import (
    PART,
    Bins,
    FormOfPart,
    MapColumns,
    MapRows,
    MostElements,
    SliceMapColumns,
    SliceMapRows,
    element_record,
    histogram_record,
)
from tensight.server.tensor_data import part_response
from tensight.sessions.compared_tensors import ComparedView, WhichRun
from tensight.sessions.comparison import Comparison, OperatorChoice
from tensight.sessions.errors import LimitError, NotFoundError, StateError, UnavailableError
from tensight.sessions.records import (
    AddedErrors,
    ComparedLosses,
    ComparedOperatorPage,
    ComparedSetups,
    ComparedStatistics,
    ComparisonOptions,
    ComparisonRecord,
    ElementRecord,
    HistogramRecord,
    UnmatchedPage,
)
from tensight.sessions.records.comparing import ComparedPhase, Side
from tensight.tensors.views import View

router = api_router("/comparisons", tag="comparisons", route_class=StrictRoute, responses=ANY_ERRORS)

MOST_SCOPES = 64
"""Maximum number of scopes with added errors in one response."""

FOUND = documented(NotFoundError)
DONE = documented(NotFoundError, StateError)
VALUES = documented(NotFoundError, UnavailableError, StateError, LimitError)


class CompareRuns(ComparisonOptions):
    """Two runs, and what counts as equal."""

    a: str = Field(min_length=1, max_length=LONGEST_NAME)
    """The reference run: id of a session, or `name` in the list of dumps."""
    b: str = Field(min_length=1, max_length=LONGEST_NAME)
    """The run to compare with it; may be the same."""
    fresh: bool = False
    """Compare again, and discard an earlier comparison of the same runs with the same options."""


async def _comparison(
    context: Context,
    comparison_id: Annotated[str, Path(max_length=80, description="Number of the comparison.", examples=["1"])],
) -> Comparison:
    return context.sessions.comparisons.get(comparison_id)


Current = Annotated[Comparison, Depends(_comparison)]
ComparedRank = Annotated[
    int | None, Query(ge=0, le=LARGEST, description="By default the first compared rank.", examples=[0])
]
SideOf = Annotated[Side, Query(description="The run whose names are used.")]


async def _address_in_a(
    a: Annotated[
        str,
        Query(
            min_length=1,
            max_length=LONGEST_NAME,
            description="Address of the tensor in A, as in the list of operators.",
            examples=["0/kernel_graph_0/Default/network/conv1/Conv2D-op1:0@2"],
        ),
    ],
) -> TensorAddress:
    return TensorAddress.parse(a)


async def _address_in_b(
    b: Annotated[
        str,
        Query(
            max_length=LONGEST_NAME,
            description="Address of the tensor in B; empty for the counterpart of A's tensor.",
            examples=["0/kernel_graph_0/Default/network/conv1/Conv2D-op1:0@2"],
        ),
    ] = "",
) -> TensorAddress | None:
    return TensorAddress.parse(b) if b else None


InA = Annotated[TensorAddress, Depends(_address_in_a)]
InB = Annotated[TensorAddress | None, Depends(_address_in_b)]
Which = Annotated[WhichRun, Query(description="The tensor of A, its counterpart in B, or B minus A.")]


@router.get("", response_model=list[ComparisonRecord], summary="List the comparisons")
async def list_comparisons(context: Context) -> JsonResponse:
    """Return all comparisons in the server, oldest first."""
    return await json_response([comparison.record() for comparison in context.sessions.comparisons.all()])


@router.post(
    "",
    status_code=201,
    response_model=ComparisonRecord,
    summary="Compare two runs",
    responses=CHANGE_ERRORS | documented(NotFoundError, StateError, LimitError),
)
async def compare_runs(context: Context, request: CompareRuns) -> JsonResponse:
    """Start to compare two runs, or return the existing comparison of the same runs with the same options.

    The response comes at once; `comparison` events of the server report the progress. An attached training is compared
    while it is paused, with what it has reported so far. One comparison runs at a time, others wait, and the newest
    eight finished ones are kept.
    """
    options = ComparisonOptions.model_validate(request.model_dump(exclude={"a", "b", "fresh"}))
    comparison = await context.sessions.comparisons.compare(request.a, request.b, options, fresh=request.fresh)
    return await json_response(comparison.record(), 201)


@router.get("/{comparison_id}", response_model=ComparisonRecord, summary="Describe a comparison", responses=FOUND)
async def get_comparison(comparison: Current) -> JsonResponse:
    """Return the progress of a comparison, and for each rank the results."""
    return await json_response(comparison.record())


@router.delete(
    "/{comparison_id}",
    status_code=204,
    summary="Cancel or forget a comparison",
    responses=CHANGE_ERRORS | FOUND,
)
async def close_comparison(context: Context, comparison: Current) -> Response:
    """Cancel a comparison, or discard a finished one."""
    context.sessions.comparisons.close(comparison.id)
    return Response(status_code=204)


@router.get(
    "/{comparison_id}/operators",
    response_model=ComparedOperatorPage,
    summary="List the operators that were compared",
    responses=DONE,
)
async def list_compared_operators(
    comparison: Current,
    rank: ComparedRank = None,
    step: Annotated[
        int | None, Query(ge=0, le=LARGEST, description="By default all compared steps.", examples=[1])
    ] = None,
    phase: Annotated[ComparedPhase | None, Query(description="Only this part of the step.")] = None,
    query: Annotated[
        Text, Query(description="Parts of a name in either run, or of the type, in any case.", examples=["conv"])
    ] = "",
    name: Annotated[Text, Query(description="The whole name in A.", examples=["Default/network/relu/ReLU-op3"])] = "",
    only: Annotated[
        Literal["all", "different", "divergent"],
        Query(
            description="`different`: not known to be bit-equal; `divergent`: their inputs agree, their outputs do not."
        ),
    ] = "all",
    sort: Annotated[
        Literal["position", "added", "relative", "name"], Query(description="`position`: order of execution.")
    ] = "position",
    descending: Annotated[bool, Query(description="Largest first.")] = False,
    offset: Offset = 0,
    limit: Limit = 100,
) -> JsonResponse:
    """Return pairs of operators, each with the differences of its inputs and outputs."""
    choice = OperatorChoice(step, phase, query, name, only, sort, descending)
    page = await comparison.operators(rank, choice, offset, limit)
    return JsonResponse(await asyncio.to_thread(json_bytes, page))


@router.get(
    "/{comparison_id}/unmatched",
    response_model=UnmatchedPage,
    summary="List what only one run has",
    responses=DONE,
)
async def list_unmatched(
    comparison: Current,
    rank: ComparedRank = None,
    side: SideOf = "a",
    kind: Annotated[Literal["all", "operators", "parameters"], Query(description="What is listed.")] = "all",
    query: Annotated[Text, Query(description="Parts of the name or type, in any case.", examples=["conv"])] = "",
    offset: Offset = 0,
    limit: Limit = 100,
) -> JsonResponse:
    """Return operators and parameters without a counterpart, in the last compared step."""
    return await json_response(await comparison.unmatched(rank, side, kind, query, offset, limit))


@router.get(
    "/{comparison_id}/added-errors",
    response_model=AddedErrors,
    summary="Show where error is added",
    responses=DONE,
)
async def get_added_errors(
    comparison: Current,
    rank: ComparedRank = None,
    step: Annotated[
        int | None,
        Query(ge=0, le=LARGEST, description="By default that of the finding, else the last.", examples=[1]),
    ] = None,
    side: SideOf = "a",
    scope: Annotated[
        list[str] | None,
        Query(
            max_length=MOST_SCOPES,
            description="Paths of scopes, as in the tree; by default the root.",
            examples=[["", "Default"]],
        ),
    ] = None,
) -> JsonResponse:
    """Return the added errors of the entries directly below some scopes, to colour a tree or a graph.

    An operator's added error is the error of its output beyond that of its inputs; a scope has the maximum over all
    operators in it, at any depth. Operators without compared tensors are left out.
    """
    return await json_response(await comparison.added_errors(rank, step, side, scope or [""]))


@router.get("/{comparison_id}/losses", response_model=ComparedLosses, summary="Compare the losses", responses=DONE)
async def get_compared_losses(
    comparison: Current,
    rank: ComparedRank = None,
    points: Annotated[
        int, Query(ge=1, le=MOST_ROWS, description="Maximum number of points of a curve.", examples=[400])
    ] = 400,
) -> JsonResponse:
    """Return both loss curves over their common steps, and the likely cause of their difference."""
    return await json_response(await comparison.losses(rank, points))


@router.get("/{comparison_id}/setups", response_model=ComparedSetups, summary="Compare the set-ups", responses=DONE)
async def get_compared_setups(comparison: Current) -> JsonResponse:
    """Return the differences in versions, flags, seeds, hyper-parameters, first batches and initial weights."""
    return await json_response(await comparison.setups())


@router.get(
    "/{comparison_id}/tensor/values", response_class=Response, summary="Read a slice of both", responses=PART | VALUES
)
async def get_compared_values(
    comparison: Current,
    a: InA,
    b: InB,
    which: Which = "difference",
    slice_: Annotated[Slice, Query(alias="slice")] = "",
    tolerance: Tolerance = 0.0,
    limit: MostElements = 100_000,
    form: FormOfPart = "json",
) -> Response:
    """Return a part of a tensor of A, of its counterpart in B with A's order of axes, or of B minus A."""
    return await _part(comparison, a, b, View("values", slice_, tolerance, limit=limit), which, form)


@router.get(
    "/{comparison_id}/tensor/heat-map",
    response_class=Response,
    summary="Picture a slice of both",
    responses=PART | VALUES,
)
async def get_compared_heat_map(
    comparison: Current,
    a: InA,
    b: InB,
    which: Which = "difference",
    slice_: Annotated[Slice, Query(alias="slice")] = "",
    tolerance: Tolerance = 0.0,
    rows: MapRows = 256,
    columns: MapColumns = 256,
    form: FormOfPart = "json",
) -> Response:
    """Return a matrix of cells, each the element of largest magnitude in it; non-finite elements take precedence."""
    return await _part(comparison, a, b, View("heat_map", slice_, tolerance, rows, columns), which, form)


@router.get(
    "/{comparison_id}/tensor/slices",
    response_class=Response,
    summary="Picture all slices of both",
    responses=PART | VALUES,
)
async def get_compared_slices(
    comparison: Current,
    a: InA,
    b: InB,
    which: Which = "difference",
    slice_: Annotated[Slice, Query(alias="slice")] = "",
    tolerance: Tolerance = 0.0,
    rows: SliceMapRows = 128,
    columns: SliceMapColumns = 128,
    form: FormOfPart = "json",
) -> Response:
    """Return a map of the slices that differ in the dimensions with an index in `slice`; as for a single tensor."""
    return await _part(comparison, a, b, View("slices", slice_, tolerance, rows, columns), which, form)


@router.get(
    "/{comparison_id}/tensor/element", response_model=ElementRecord, summary="Find an element", responses=VALUES
)
async def get_compared_element(
    comparison: Current,
    a: InA,
    b: InB,
    find: Annotated[
        Literal["first", "largest", "next", "previous"],
        Query(
            description=(
                "`first`: the first NaN or infinity, or if there is none the element of largest magnitude; "
                "`largest`: the finite element of largest magnitude; `next`, `previous`: the nearest NaN or infinity "
                "after or before the element that `slice` names."
            )
        ),
    ] = "largest",
    which: Which = "difference",
    slice_: Annotated[Slice, Query(alias="slice")] = "",
    tolerance: Tolerance = 0.0,
) -> JsonResponse:
    """Return the position of an element, such as that with the largest difference."""
    compared = await comparison.view(a, b, View(find, slice_, tolerance), which)
    return await json_response(element_record(a, compared.result))


@router.get(
    "/{comparison_id}/tensor/histogram",
    response_model=HistogramRecord,
    summary="Show how values of both are distributed",
    responses=VALUES,
)
async def get_compared_histogram(
    comparison: Current,
    a: InA,
    b: InB,
    which: Which = "difference",
    slice_: Annotated[Slice, Query(alias="slice")] = "",
    tolerance: Tolerance = 0.0,
    bins: Bins = 40,
) -> JsonResponse:
    """Return the number of finite elements in each bin; by default of the whole tensor."""
    compared = await comparison.view(a, b, View("histogram", slice_, tolerance, bins=bins), which)
    return await json_response(histogram_record(a, compared.result))


@router.get(
    "/{comparison_id}/tensor/statistics",
    response_model=ComparedStatistics,
    summary="Compute the statistics of both",
    responses=VALUES,
)
async def get_compared_statistics(
    comparison: Current, a: InA, b: InB, slice_: Annotated[Slice, Query(alias="slice")] = ""
) -> JsonResponse:
    """Return the statistics of both tensors and of B minus A; without values, the recorded statistics."""
    return await json_response(await comparison.statistics(a, b, slice_))


async def _part(
    comparison: Comparison, a: TensorAddress, b: TensorAddress | None, view: View, which: WhichRun, form: FormOfPart
) -> Response:
    compared = await comparison.view(a, b, view, which)
    return await asyncio.to_thread(_part_response, compared, form)


def _part_response(compared: ComparedView, form: FormOfPart) -> Response:
    response = part_response(compared.result, form)
    response.headers["X-Tensight-Layout"] = compared.layout
    return response
