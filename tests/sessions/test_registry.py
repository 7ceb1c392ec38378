"""The sessions of a server: which dumps are open, how many may be, and what the server's log tells."""

from __future__ import annotations

import asyncio
import os
import shutil
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tensight.sessions.errors import LimitError, NotFoundError, StateError
from tensight.sessions.offline.session import OfflineSession
from tensight.sessions.records import Command, State
from tensight.sessions.registry import Sessions
from tensight.sessions.workspace import Workspace
from tests.sessions.offline_runs import PATIENCE_S, opened
from tests.sessions.still_session import StillSession

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@asynccontextmanager
async def server(tmp_path: Path, base: Path | None, **options: Any) -> AsyncIterator[Sessions]:
    sessions = Sessions(Workspace(tmp_path / "workspace"), base, **options)
    try:
        yield sessions
    finally:
        await sessions.close_all("the test is over")


async def event_of(sessions: Sessions, kind: str, **data: object) -> dict[str, Any]:
    """Wait for an event of the server's log that has these data."""

    async def look() -> dict[str, Any]:
        last = 0
        while True:
            page = await sessions.events.wait_after(last, PATIENCE_S)
            for event in page.events:
                if event.kind == kind and data.items() <= event.data.items():
                    return event.data
            last = page.last

    return await asyncio.wait_for(look(), PATIENCE_S)


def still(number: str, state: State = State.PAUSED) -> StillSession:
    session = StillSession({0: ()}, name="a training")
    session.id, session.now = number, state
    return session


@pytest.fixture
def base(tmp_path: Path, dump_200: Path, dump_210: Path) -> Path:
    folder = tmp_path / "base"
    for name, dump in (("old", dump_200), ("new", dump_210), ("again", dump_210)):
        shutil.copytree(dump, folder / name)
    return folder


def test_a_dump_is_opened_once_however_many_people_ask_for_it(tmp_path: Path, base: Path) -> None:
    async def ask() -> None:
        async with server(tmp_path, base) as sessions:
            first, second = await asyncio.gather(sessions.open_dump("old"), sessions.open_dump("old"))
            assert first is second is sessions.get(first.id)
            assert sessions.all() == [first]
            assert first.name == "old"
            await opened(first)
            assert first.state is State.PAUSED
            by_name = {dump.name: dump.session for dump in await sessions.dumps()}
            assert by_name == {"again": None, "new": None, "old": first.id}

    asyncio.run(ask())


def test_over_the_limit_the_message_names_the_open_sessions(tmp_path: Path, base: Path) -> None:
    async def ask() -> None:
        async with server(tmp_path, base, max_offline=2) as sessions:
            first = await sessions.open_dump("old")
            second = await sessions.open_dump("new")
            with pytest.raises(LimitError, match=rf"first: {first.id} \(old\), {second.id} \(new\)$"):
                await sessions.open_dump("again")
            await sessions.close(first.id)
            third = await sessions.open_dump("again")
            assert {first.id, second.id, third.id} == {"1", "2", "3"}

    asyncio.run(ask())


@pytest.mark.long
def test_there_is_a_limit_for_all_sessions_together(tmp_path: Path, base: Path) -> None:
    async def ask() -> None:
        async with server(tmp_path, base, max_sessions=2) as sessions:
            sessions.add(still("1"))
            sessions.add(still("2"))
            with pytest.raises(LimitError, match="2 sessions already"):
                sessions.add(still("3"))
            with pytest.raises(LimitError, match="2 sessions already"):
                await sessions.open_dump("old")

    asyncio.run(ask())


def test_names_that_are_not_listed_open_nothing(tmp_path: Path, base: Path) -> None:
    async def ask() -> None:
        async with server(tmp_path, base) as sessions:
            for name in ("..", "../base/old", str(base / "old"), "old/rank_0", "%6fld", "runs/1", "nothing"):
                with pytest.raises(NotFoundError):
                    await sessions.open_dump(name)
            with pytest.raises(NotFoundError, match="no session '7'"):
                sessions.get("7")
            with pytest.raises(NotFoundError):
                await sessions.close("7")
            assert sessions.all() == []

    asyncio.run(ask())


def test_the_command_terminate_closes_a_dump_and_takes_it_off_the_list(tmp_path: Path, base: Path) -> None:
    async def ask() -> None:
        async with server(tmp_path, base) as sessions:
            session = await sessions.open_dump("old")
            await opened(session)
            record = await session.command(Command(action="terminate"))
            assert record.state is State.TERMINATED
            closed = await event_of(sessions, "closed", session=session.id)
            assert closed["reason"] == "closed by the command terminate"
            assert sessions.all() == []
            with pytest.raises(StateError):
                await session.origins()

    asyncio.run(ask())


@pytest.mark.long
def test_a_dump_that_failed_to_open_may_be_opened_again(tmp_path: Path, base: Path) -> None:
    async def ask() -> None:
        async with server(tmp_path, base, mem_limit_mb=0) as sessions:
            session = await sessions.open_dump("old")
            await opened(session)
            assert session.state is State.FAILED
            assert "--offline-debugger-mem-limit" in session.record().message
            again = await sessions.open_dump("old")
            assert again.id != session.id
            assert sessions.all() == [again]

    asyncio.run(ask())


def test_the_servers_log_tells_when_sessions_appear_change_and_go(tmp_path: Path, base: Path) -> None:
    async def ask() -> None:
        async with server(tmp_path, base) as sessions:
            session = await sessions.open_dump("old")
            assert (await event_of(sessions, "state", id=session.id))["state"] == "connecting"
            await event_of(sessions, "state", id=session.id, state="paused")
            await session.command(Command(action="go_to_step", steps=3))
            await event_of(sessions, "state", id=session.id, step=3)
            await sessions.close(session.id, "enough")
            assert (await event_of(sessions, "closed", session=session.id))["reason"] == "enough"

    asyncio.run(ask())


def test_a_training_that_ended_stays_listed_until_its_owner_removes_it(tmp_path: Path) -> None:
    async def ask() -> None:
        async with server(tmp_path, None) as sessions:
            session = still("1")
            sessions.add(session)
            session.events.append("closed", reason="the training ended")
            session.events.append_state(session.record())
            await event_of(sessions, "state", id="1")
            assert sessions.all() == [session]
            sessions.remove("1")
            sessions.remove("1")
            assert sessions.all() == []

    asyncio.run(ask())


def test_a_run_is_open_in_the_session_that_records_it_and_later_opens_like_a_dump(
    tmp_path: Path, dump_200: Path
) -> None:
    async def ask() -> None:
        async with server(tmp_path, None) as sessions:
            run = Workspace(tmp_path / "workspace").run_folder("5")
            shutil.copytree(dump_200, run / "dump")
            training = still("5", State.RUNNING)
            sessions.add(training)
            assert [(one.name, one.session) for one in await sessions.dumps()] == [("runs/5", "5")]
            assert await sessions.open_dump("runs/5") is training
            training.now = State.FINISHED
            session = await sessions.open_dump("runs/5")
            assert isinstance(session, OfflineSession)
            assert session.id not in ("5", "")
            assert session.record().dump == "runs/5"

    asyncio.run(ask())


def test_a_server_that_shuts_down_closes_every_session(tmp_path: Path, base: Path) -> None:
    class Stubborn(StillSession):
        async def close(self, reason: str) -> None:
            raise RuntimeError(f"not because {reason}")

    async def ask() -> None:
        async with server(tmp_path, base) as sessions:
            dump = await sessions.open_dump("new")
            stubborn = Stubborn({0: ()})
            stubborn.id = "50"
            sessions.add(stubborn)
            await sessions.close_all("the server stops")
            assert sessions.all() == []
            assert dump.state is State.TERMINATED
            assert dump.events.after(0).events[-1].data == {"reason": "the server stops"}

    asyncio.run(ask())


@pytest.mark.long
def test_watchpoints_come_back_when_a_dump_of_the_same_name_is_opened_again(tmp_path: Path, base: Path) -> None:
    async def ask() -> None:
        async with server(tmp_path, base) as sessions:
            first = await sessions.open_dump("new")
            await opened(first)
            await first.recommend(accept=True)
            wanted = [one.text for one in first.watchpoints()]
            await sessions.close(first.id)
            second = await sessions.open_dump("new")
            await opened(second)
            assert [one.text for one in second.watchpoints()] == wanted != []
            assert second.record().outdated
            other = await sessions.open_dump("old")
            await opened(other)
            assert other.watchpoints() == ()

    asyncio.run(ask())


@pytest.mark.long
def test_a_closed_dump_leaves_no_file_open(tmp_path: Path, base: Path) -> None:
    async def ask() -> None:
        async with server(tmp_path, base) as sessions:
            before = len(os.listdir("/proc/self/fd"))
            session = await sessions.open_dump("old")
            await opened(session)
            await sessions.close(session.id)
            assert len(os.listdir("/proc/self/fd")) <= before

    asyncio.run(ask())
