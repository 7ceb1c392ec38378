"""Work that is shielded from cancellation while it holds a file."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

_Result = TypeVar("_Result")


async def shielded(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Run a coroutine to its end; a caller that is cancelled in the meantime is held until then."""
    running = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        # Looked at, so that it does not count as an error that nobody has seen.
        _ = running.cancelled() or running.exception()
        raise


async def shielded_in_thread(work: Callable[[], _Result]) -> _Result:
    """Run a function in a thread to its end; see `shielded`."""
    return await shielded(asyncio.to_thread(work))
