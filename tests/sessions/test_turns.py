"""Long work that takes turns in one thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator

import pytest

from tensight.sessions.live.turns import TURN_S, in_turns


def endless(steps: list[int]) -> Generator[None, None, str]:
    while True:
        steps.append(len(steps))
        yield


def busy(name: str, turns: int, done: list[str]) -> Generator[None, None, str]:
    """Take some turns, however fast the machine is."""
    for _ in range(turns):
        begin = time.perf_counter()
        while time.perf_counter() - begin < TURN_S:
            pass
        yield
    done.append(name)
    return name


def test_short_work_does_not_wait_for_long_work_that_came_before() -> None:
    done: list[str] = []

    async def scene() -> list[str]:
        long = asyncio.ensure_future(in_turns(busy("long", 5, done)))
        await asyncio.sleep(0)
        return [await in_turns(busy("short", 1, done)), await long]

    assert asyncio.run(scene()) == ["short", "long"]
    assert done == ["short", "long"]


def test_the_event_loop_runs_on_meanwhile_and_a_cancelled_caller_ends_the_work() -> None:
    steps: list[int] = []

    async def scene() -> None:
        work = asyncio.ensure_future(in_turns(endless(steps)))
        while not steps:
            await asyncio.sleep(0)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        begun = len(steps)
        await in_turns(busy("another", 1, []))
        assert len(steps) == begun

    asyncio.run(scene())


def test_what_goes_wrong_is_raised_to_the_caller() -> None:
    def failing() -> Generator[None, None, str]:
        yield
        raise ValueError("damaged")

    with pytest.raises(ValueError, match="damaged"):
        asyncio.run(in_turns(failing()))
