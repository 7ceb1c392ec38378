"""Sessions that are closed one after the other cost one garbage collection."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest

from tensight.sessions import garbage
from tensight.sessions.garbage import CycleCollector


class Cycle:
    """Refers to itself, so that only the collector frees it."""

    def __init__(self) -> None:
        self.itself = self


def test_one_collection_frees_the_cycles_of_all_sessions_closed_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "DELAY_S", 0.01)
    passes: list[int] = []

    def count(phase: str, info: dict[str, Any]) -> None:
        if phase == "start" and info["generation"] == 2:
            passes.append(info["generation"])

    async def close_two() -> None:
        collector, freed = CycleCollector(), [asyncio.Event(), asyncio.Event()]
        loop = asyncio.get_running_loop()
        for event in freed:
            held = Cycle()
            weakref.finalize(held, loop.call_soon_threadsafe, event.set)
            collector.exempt()
            del held
            collector.collect_soon()
        await asyncio.wait_for(asyncio.gather(*(event.wait() for event in freed)), 30)

    gc.collect()
    gc.callbacks.append(count)
    try:
        asyncio.run(close_two())
    finally:
        gc.callbacks.remove(count)
    assert len(passes) == 1


def test_a_server_that_ended_before_its_collection_hinders_no_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    collector = CycleCollector()

    async def close() -> None:
        collector.collect_soon()

    async def close_and_wait() -> None:
        freed, held = asyncio.Event(), Cycle()
        weakref.finalize(held, asyncio.get_running_loop().call_soon_threadsafe, freed.set)
        del held
        collector.collect_soon()
        await asyncio.wait_for(freed.wait(), 30)

    monkeypatch.setattr(garbage, "DELAY_S", 300.0)
    asyncio.run(close())
    monkeypatch.setattr(garbage, "DELAY_S", 0.01)
    asyncio.run(close_and_wait())


def test_a_collection_that_falls_due_while_the_server_ends_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "DELAY_S", 0.0)
    errors: list[dict[str, Any]] = []

    async def end() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: errors.append(context))
        CycleCollector().collect_soon()
        await loop.shutdown_default_executor()
        due = loop.create_future()
        loop.call_later(0.001, due.set_result, None)
        await due

    asyncio.run(end())
    assert errors == []
