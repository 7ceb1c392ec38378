"""Work that nobody can walk away from while it holds a file."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

_Result = TypeVar("_Result")


async def uninterrupted(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Do some work; a caller that is cancelled in the meantime is held until the work is done."""
    running = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        # Looked at, so that it does not count as an error that nobody has seen.
        _ = running.cancelled() or running.exception()
        raise


async def to_the_end(work: Callable[[], _Result]) -> _Result:
    """Do some work in a thread, uninterrupted."""
    return await uninterrupted(asyncio.to_thread(work))
