"""JSON responses, written directly from records; and JSON requests, parsed strictly."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from fastapi.routing import APIRoute
from pydantic_core import PydanticSerializationError, from_json, to_json, to_jsonable_python
from starlette.requests import Request
from starlette.responses import Response

from tensight.sessions.records import Record

_LONG = 2000
"""Number of records; longer lists are encoded in a thread, which costs more to start than encoding a page."""


class JsonResponse(Response):
    """A response whose content is JSON already."""

    media_type = "application/json"


async def json_response(content: Record | Sequence[Record], status: int = 200) -> JsonResponse:
    """Return records as a JSON response."""
    if isinstance(content, Sequence) and len(content) > _LONG:
        return JsonResponse(await asyncio.to_thread(json_bytes, content), status)
    return JsonResponse(json_bytes(content), status)


def json_bytes(content: Record | Sequence[Record]) -> bytes:
    """Return records as JSON in UTF-8; numbers that are not finite become null.

    File names may contain undecodable bytes, which become question marks.
    """
    try:
        return to_json(content, inf_nan_mode="null")
    except PydanticSerializationError:
        return json.dumps(_printable(to_jsonable_python(content, inf_nan_mode="null")), allow_nan=False).encode()


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_printable(key): _printable(entry) for key, entry in value.items()}
    return [_printable(entry) for entry in value] if isinstance(value, list) else value


class StrictRoute(APIRoute):
    """A route with strict JSON bodies: Python's parser would also accept NaN, and lone surrogates."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of a request."""
        handle = super().get_route_handler()

        async def handle_strictly(request: Request) -> Response:
            return await handle(_StrictRequest(request.scope, request.receive))

        return handle_strictly


class _StrictRequest(Request):
    async def json(self) -> Any:
        body = await self.body()
        try:
            return from_json(body, allow_inf_nan=False)
        except ValueError as error:
            raise json.JSONDecodeError(f"{error} of the body", "", 0) from None
