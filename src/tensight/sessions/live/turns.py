"""Time slicing of long work: all jobs share a thread, in which each runs for a time slice in turn.

So only a single thread competes with the event loop for the interpreter, no job waits for another to complete, and a
cancelled job stops after its time slice.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from tensight.sessions.live.shielded import shielded

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

_Result = TypeVar("_Result")

TURN_S = 0.05

_thread = ThreadPoolExecutor(1, "turns")


async def in_turns(steps: Generator[None, None, _Result]) -> _Result:
    """Run a generator to completion in time slices, and return its result.

    Cancellation of the caller is deferred until the current time slice ends.
    """
    result: list[_Result] = []

    def take() -> Iterator[None]:
        result.append((yield from steps))

    taken = take()
    try:
        while not result:
            await shielded(_turn(taken))
    finally:
        steps.close()
    return result[0]


async def _turn(steps: Iterator[None]) -> None:
    await asyncio.get_running_loop().run_in_executor(_thread, _go_on, steps)


def _go_on(steps: Iterator[None]) -> None:
    end = time.perf_counter() + TURN_S
    for _ in steps:
        if time.perf_counter() >= end:
            break
