"""The HTTP API and the page: one application over all sessions. An OpenAPI document describes the API."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from fastapi import FastAPI

from tensight.errors import InputError
from tensight.server import errors, openapi
from tensight.server.access import Access, AccessRules
from tensight.server.event_stream import EventStreams
from tensight.server.routes import comparisons, events, graphs, overview, searches, sessions, tensors, watchpoints
from tensight.server.routes.page import BUILT_PAGE, page_routes
from tensight.server.routes.parameters import ServerContext
from tensight.sessions.registry import Sessions
from tensight.version import __version__

API = "/api/v1"


@dataclass(frozen=True)
class HttpSettings:
    """How the API is served.

    Attributes
    ----------
    url_path_prefix : str
        Before every path: empty, or with a slash before each segment.
    token : str or None
        What requests must bring; None if whoever reaches the server may use it.
    allowed_hosts : tuple of str
        Names and addresses by which the server may be called, beside those of the loopback; ``0.0.0.0`` or ``::`` for
        all addresses.
    max_subscribers : int
        Most WebSockets and waiting polls at once.
    max_body_bytes : int
        Most bytes of a request's body.
    slow_after_s : float
        A subscriber that takes no event for so long is dropped.
    version : str
        What the server says it is.
    debugger_address : str or None
        Where training processes attach: host and port; None if they cannot.
    debugger_needs_token : bool
        Whether training processes attach with an access token only.
    page_folder : Path
        What the build of the page wrote.
    """

    url_path_prefix: str = ""
    token: str | None = field(default=None, repr=False)
    allowed_hosts: tuple[str, ...] = ()
    max_subscribers: int = 500
    max_body_bytes: int = 2**20
    slow_after_s: float = 10.0
    version: str = __version__
    debugger_address: str | None = None
    debugger_needs_token: bool = False
    page_folder: Path = BUILT_PAGE

    def __post_init__(self) -> None:
        """Refuse a token that everybody knows."""
        if self.token == "":
            raise InputError("the token is empty; give None if no token is wanted")


def create_http_app(sessions_table: Sessions, *, settings: HttpSettings) -> FastAPI:
    """Return the application that serves the API and the page.

    Its ``state.context`` is the `ServerContext`; ``state.context.streams.stop()`` sends subscribers away, which the
    server has to do before it waits for its connections to end.

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
        generate_unique_id_function=openapi.operation_id,
    )
    app.state.context = ServerContext(
        sessions=sessions_table,
        streams=EventStreams(settings.max_subscribers, settings.slow_after_s),
        settings=settings,
        started=time.time(),
    )
    errors.install(app)
    for subject in (sessions, graphs, watchpoints, tensors, overview, comparisons, searches, events):
        app.include_router(subject.router, prefix=prefix)
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
