"""The thread in which a dump is read: one piece of work at a time, which can be watched and stopped."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tensight.sessions.errors import StateError
from tensight.sessions.offline.thread import AnalysisThread, StoppedError

Report = tuple[str, int, int]


def test_work_is_done_one_after_the_other_off_the_event_loop() -> None:
    async def ask() -> None:
        thread = AnalysisThread(lambda *_: None)
        busy = threading.Lock()

        def work() -> int:
            assert busy.acquire(blocking=False)
            busy.release()
            return threading.get_ident()

        idents = set(await asyncio.gather(*(thread.run("working", work) for _ in range(50))))
        assert len(idents) == 1
        assert threading.get_ident() not in idents
        thread.close()

    asyncio.run(ask())


def test_long_work_reports_how_far_it_is_and_short_work_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask() -> list[Report]:
        reports: list[Report] = []
        thread = AnalysisThread(lambda what, done, total: reports.append((what, done, total)))
        await thread.run("short", lambda: thread.progress(1, 2))
        monkeypatch.setattr("tensight.sessions.offline.thread.PROGRESS_EVERY_S", 0.0)
        await thread.run("long", lambda: thread.progress(1, 2))
        await asyncio.to_thread(lambda: None)
        thread.close()
        return reports

    assert asyncio.run(ask()) == [("long", 1, 2)]


def test_work_stops_where_it_reports_its_progress() -> None:
    async def ask() -> None:
        thread = AnalysisThread(lambda *_: None)
        stop = threading.Event()
        stop.set()
        with pytest.raises(StoppedError):
            await thread.run("stopped", lambda: thread.progress(1, 2), stop)
        await thread.run("goes on", lambda: thread.progress(1, 2))
        thread.close()

    asyncio.run(ask())


def test_closing_ends_the_work_that_runs_and_the_work_that_waits() -> None:
    async def ask() -> None:
        thread = AnalysisThread(lambda *_: None)
        started, go_on = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def work() -> None:
            loop.call_soon_threadsafe(started.set)
            assert go_on.wait(30)
            thread.progress(1, 2)

        running = asyncio.ensure_future(thread.run("running", work))
        waiting = asyncio.ensure_future(thread.run("waiting", lambda: None))
        await started.wait()
        thread.close()
        go_on.set()
        for future in (running, waiting, thread.run("later", lambda: None)):
            with pytest.raises(StateError, match="the session was closed"):
                await future

    asyncio.run(ask())
