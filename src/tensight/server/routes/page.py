"""The page: the build of ui/, served at the prefix. All its views have this one path, with different queries."""

from __future__ import annotations

import hashlib
import mimetypes
import os
from pathlib import Path

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.staticfiles import NotModifiedResponse, StaticFiles
from starlette.types import Scope

from tensight.server.access import PAGE_POLICY

BUILT_PAGE = Path(__file__).parents[1] / "page"

_FOR_EVER = "public, max-age=31536000, immutable"
_ASK_EACH_TIME = "no-cache"
_MEDIA_TYPES = {
    # Browsers refuse scripts of another type, and the machine's own table may be wrong.
    ".css": "text/css",
    ".html": "text/html",
    ".ico": "image/x-icon",
    ".js": "text/javascript",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
    ".woff2": "font/woff2",
}
_NOT_BUILT = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Tensight</title></head>
<body style="font: 16px/1.6 sans-serif; max-width: 40em; margin: 4em auto; padding: 0 1em">
<h1>The page was not built</h1>
<p>This debug server runs, and its HTTP API answers, but this installation of Tensight has no page.</p>
<p>In a checkout of the sources, build it with</p>
<pre>make page</pre>
<p>and reload; an installation with <code>pip install .</code> builds it, too.</p>
</body>
</html>
"""


def page_routes(prefix: str, folder: Path) -> list[Route]:
    """Return the routes of the page: the page, the files beside it, and the assets, whose names contain their hash.

    The page contains no data, so it needs no token; its requests to the API do.

    Parameters
    ----------
    prefix : str
        Prefix of every path.
    folder : Path
        Output folder of the build; without it the page explains how to build it.
    """
    beside = _Files(folder, caching=_ASK_EACH_TIME)
    assets = _Files(folder / "assets", caching=_FOR_EVER)

    async def page(request: Request) -> Response:
        return _page(folder / "index.html", request)

    async def file(request: Request) -> Response:
        return await beside.get_response(request.path_params["name"], request.scope)

    async def asset(request: Request) -> Response:
        return await assets.get_response(request.path_params["name"], request.scope)

    routes = [
        Route(f"{prefix}/", page, methods=["GET"]),
        Route(f"{prefix}/index.html", page, methods=["GET"]),
        Route(f"{prefix}/assets/{{name}}", asset, methods=["GET"]),
        Route(f"{prefix}/{{name}}", file, methods=["GET"]),
    ]
    if prefix:
        # The page refers to its assets relative to its own path, which must end with the slash.
        routes.append(Route(prefix, _add_slash, methods=["GET"]))
    return routes


def _page(file: Path, request: Request) -> Response:
    try:
        page = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return HTMLResponse(_NOT_BUILT, 503, {"Cache-Control": "no-store"})
    # A hash of the contents: the names of assets in it change, its length does not, and packagers set arbitrary times.
    tag = f'"{hashlib.sha256(page).hexdigest()[:32]}"'
    headers = {"ETag": tag, "Cache-Control": _ASK_EACH_TIME, "Content-Security-Policy": _policy(request)}
    tags = (text.strip().removeprefix("W/") for text in request.headers.get("if-none-match", "").split(","))
    return Response(status_code=304, headers=headers) if tag in tags else HTMLResponse(page, headers=headers)


def _policy(request: Request) -> str:
    """Return the content security policy: some browsers do not count WebSockets of the same host as same-origin."""
    # The host passed the check in `Access`. A policy cannot contain an IPv6 address.
    host = request.headers["host"]
    websockets = "" if host.startswith("[") else f" ws://{host} wss://{host}"
    return f"{PAGE_POLICY}; connect-src 'self'{websockets}"


async def _add_slash(request: Request) -> Response:
    query = f"?{request.url.query}" if request.url.query else ""
    return RedirectResponse(f"{request.url.path}/{query}")


class _Files(StaticFiles):
    """Files of a folder, which may be missing; the compressed variant of a file is sent if the client accepts it.

    Parameters
    ----------
    folder : Path
    caching : str
        Value of the Cache-Control header.
    """

    def __init__(self, folder: Path, *, caching: str) -> None:
        super().__init__(directory=folder, check_dir=False)
        self._caching = caching

    def file_response(
        self, full_path: str | os.PathLike[str], stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        """Return a file, or 304 if the browser has it."""
        path = Path(full_path)
        headers = {"Cache-Control": self._caching, "Vary": "Accept-Encoding"}
        request_headers = Headers(scope=scope)
        packed = path.with_name(f"{path.name}.gz")
        if "gzip" in request_headers.get("accept-encoding", "") and packed.is_file():
            headers["Content-Encoding"] = "gzip"
            response = FileResponse(packed, status_code, headers, _media_type(path))
            response.set_stat_headers(packed.stat())
        else:
            response = FileResponse(path, status_code, headers, _media_type(path), stat_result=stat_result)
        if self.is_not_modified(response.headers, request_headers):
            return NotModifiedResponse(response.headers)
        return response


def _media_type(path: Path) -> str:
    return _MEDIA_TYPES.get(path.suffix) or mimetypes.guess_type(path)[0] or "application/octet-stream"
