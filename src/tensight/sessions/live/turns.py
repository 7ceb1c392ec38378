"""Long work that takes turns: each goes on for a moment in a thread that all share, then the next one does.

However much is waiting, one thread at a time competes with the event loop for the interpreter, no work waits for
another one to end, and what is no longer wanted stops within a moment.
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
    """Do work that is cut into steps, and return its result.

    A caller that is cancelled is held until the step that runs is done; the others are not begun.
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
