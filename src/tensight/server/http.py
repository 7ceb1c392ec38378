"""The HTTP API and the page: one application over all sessions. An OpenAPI document describes the API."""

from __future__ import annotations

import time

from fastapi import FastAPI

from tensight.server import errors, openapi
from tensight.server.access import Access, AccessRules
from tensight.server.event_stream import EventStreams
from tensight.server.http_settings import HttpSettings
from tensight.server.operations import API, add_operations
from tensight.server.routes import comparisons, events, graphs, overview, searches, sessions, tensors, watchpoints
from tensight.server.routes.page import page_routes
from tensight.server.routes.parameters import ServerContext
from tensight.sessions.registry import Sessions


def create_http_app(sessions_table: Sessions, *, settings: HttpSettings) -> FastAPI:
    """Return the application that serves the API and the page.

    Its ``state.context`` is the `ServerContext`; ``state.context.streams.stop()`` disconnects subscribers, which the
    server must do before it waits for its connections to end.

    Parameters
    ----------
    sessions_table : Sessions
    settings : HttpSettings
    """
    prefix = settings.url_path_prefix + API
    app = FastAPI(
        title="Tensight",
        version=settings.version,
        summary=openapi.SUMMARY,
        description=openapi.DESCRIPTION,
        openapi_tags=openapi.TAGS,
        openapi_url=f"{prefix}/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.context = ServerContext(
        sessions=sessions_table,
        streams=EventStreams(settings.max_subscribers, settings.slow_after_s),
        settings=settings,
        started=time.time(),
    )
    errors.install(app)
    for subject in (sessions, graphs, watchpoints, tensors, overview, comparisons, searches, events):
        add_operations(app, subject.router, settings.url_path_prefix)
    app.router.routes.extend(page_routes(settings.url_path_prefix, settings.page_folder))
    openapi.complete(app, needs_token=settings.token is not None)
    rules = AccessRules(
        api_path=f"{settings.url_path_prefix}/api/",
        open_paths=(f"{prefix}/login",),
        token=settings.token,
        allowed_hosts=settings.allowed_hosts,
        max_body_bytes=settings.max_body_bytes,
    )
    app.add_middleware(Access, rules=rules)
    return app
