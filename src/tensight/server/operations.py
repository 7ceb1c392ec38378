"""How operations come into the application: their routers, and what their paths begin with."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute

from tensight.server.openapi import operation_id

API = "/api/v1"
"""What the paths of all operations begin with, after the prefix of the server."""


def api_router(
    path: str = "",
    *,
    tag: str,
    responses: dict[int | str, dict[str, Any]],
    route_class: type[APIRoute] = APIRoute,
) -> APIRouter:
    """Return a router for operations on one subject, whose paths and ids are complete: see `add_operations`.

    Parameters
    ----------
    path : str
        What the paths of its operations have in common, below `API`.
    tag : str
        One of those in `tensight.server.openapi`.
    responses : dict
        OpenAPI's descriptions of its errors, by status.
    route_class : type
    """
    return APIRouter(
        prefix=API + path,
        tags=[tag],
        responses=responses,
        route_class=route_class,
        generate_unique_id_function=operation_id,
    )


def add_operations(app: FastAPI, router: APIRouter, prefix: str) -> None:
    """Add the operations of a router to an application.

    Including a router builds each of its routes anew, which takes half a second for all of them; without a prefix they
    are taken as they are.

    Parameters
    ----------
    app : FastAPI
    router : APIRouter
        As `api_router` returns it.
    prefix : str
        Of every path, before `API`; usually empty.
    """
    if prefix:
        app.include_router(router, prefix=prefix)
    else:
        app.router.routes.extend(router.routes)
