"""Work that is shielded from cancellation, for example while a file is open."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

_Result = TypeVar("_Result")


async def shielded(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Run a coroutine to completion; cancellation of the caller is deferred until then."""
    running = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        # Retrieve the exception, so that asyncio does not log it.
        _ = running.cancelled() or running.exception()
        raise


async def shielded_in_thread(work: Callable[[], _Result]) -> _Result:
    """Run a function in a thread to completion; see `shielded`."""
    return await shielded(asyncio.to_thread(work))
