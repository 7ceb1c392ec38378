"""Hyper-parameter searches: the list, and the results of one."""

from __future__ import annotations

import asyncio
from pathlib import Path, PurePath
from typing import Annotated

from fastapi import Query

from tensight.search.recorded import list_studies, read_study
from tensight.search.trials import RECORDING
from tensight.server.errors import documented
from tensight.server.json_bodies import JsonResponse, StrictRoute, json_bytes
from tensight.server.openapi import ANY_ERRORS
from tensight.server.operations import api_router
from tensight.server.routes.parameters import LONGEST_NAME, Context
from tensight.sessions.discovery import FoundSearch
from tensight.sessions.errors import NotFoundError
from tensight.sessions.records import SearchRecord, SearchResult, TrialResult

router = api_router("/searches", tag="searches", route_class=StrictRoute, responses=ANY_ERRORS)


@router.get("", response_model=list[SearchRecord], summary="List the searches")
async def list_searches(
    context: Context,
    refresh: Annotated[bool, Query(description="Search the disk, even if the list is recent.")] = False,
) -> JsonResponse:
    """Return the hyper-parameter searches below the base directory, by name.

    `tensight search` keeps a search in the file `search.db` of its `summary_base_dir`; the file is only read.
    """
    searches = await context.sessions.searches(refresh)
    return JsonResponse(await asyncio.to_thread(_listed, searches))


@router.get(
    "/result", response_model=SearchResult, summary="Show what came of a search", responses=documented(NotFoundError)
)
async def get_search(
    context: Context,
    name: Annotated[
        str,
        Query(
            min_length=1,
            max_length=LONGEST_NAME,
            description="Its `name` in the list of searches.",
            examples=["lenet/search"],
        ),
    ],
) -> JsonResponse:
    """Return parameters, targets, all trials, the best ones, and how much each parameter matters.

    The search may still run, so the result may change.
    """
    folder, _, study = name.rpartition("/")
    search = next((candidate for candidate in await context.sessions.searches() if candidate.name == folder), None)
    if search is None:
        search = next(
            (candidate for candidate in await context.sessions.searches(refresh=True) if candidate.name == folder), None
        )
    if search is None or not study:
        raise NotFoundError(f"there is no search {name[:200]!r}; list the searches to see their names")
    recordings = await context.sessions.recordings_below(search.path)
    return JsonResponse(await asyncio.to_thread(_result, search, study, recordings))


def _name(search: FoundSearch) -> str:
    return search.name


def _listed(searches: list[FoundSearch]) -> bytes:
    records = [record for search in sorted(searches, key=_name) for record in list_studies(search.path, search.name)]
    return json_bytes(records)


def _result(search: FoundSearch, study: str, recordings: dict[Path, str]) -> bytes:
    result = read_study(search.path, study)
    trials = tuple(_with_recording(search, trial, recordings) for trial in result.trials)
    return json_bytes(result.model_copy(update={"trials": trials}))


def _with_recording(search: FoundSearch, trial: TrialResult, recordings: dict[Path, str]) -> TrialResult:
    # The folder may have been moved, or be on another machine: the path beside the database counts.
    folder = search.path / PurePath(trial.summary_dir).name / RECORDING
    name = recordings.get(folder, "") if trial.summary_dir else ""
    return trial.model_copy(update={"recording": name}) if name else trial
