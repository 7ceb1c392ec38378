"""Opens dumps as sessions and waits for what they do."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from tensight.dumps import open_dump
from tensight.sessions.offline.session import OfflineSession
from tensight.sessions.offline.value_memory import ValueMemory
from tensight.sessions.records import Command, SessionRecord, State

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from tensight.sessions.session import Session
    from tensight.sessions.workspace import Workspace

PATIENCE_S = 30


async def until(session: Session, is_so: Callable[[], bool]) -> None:
    """Wait for the events of a session until something is so."""

    async def look() -> None:
        last = 0
        while not is_so():
            last = (await session.events.wait_after(last, PATIENCE_S)).last

    await asyncio.wait_for(look(), PATIENCE_S)


async def opened(session: Session) -> None:
    await until(session, lambda: session.state is not State.CONNECTING)


async def go(session: Session, action: str, **arguments: Any) -> SessionRecord:
    """Give a command and wait until it is done."""
    await session.command(Command(action=action, **arguments))  # type: ignore[arg-type]
    await until(session, lambda: session.state is not State.RUNNING)
    return session.record()


@asynccontextmanager
async def debugging(
    path: Path,
    *,
    name: str = "a dump",
    workspace: Workspace | None = None,
    memory: ValueMemory | None = None,
    **options: Any,
) -> AsyncIterator[OfflineSession]:
    """A dump opened as a session."""
    memory = memory or ValueMemory(2**30)
    session = OfflineSession("1", name, open_dump(path), workspace=workspace, memory=memory, **options)
    session.begin()
    try:
        await opened(session)
        yield session
    finally:
        await session.close("the test is over")
