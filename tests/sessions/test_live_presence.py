"""A process of the server's own machine that is killed is missed at once, though nobody waited for a word from it."""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tensight.sessions.records import State
from tests.sessions.live_stage import Agent, Play, Stage, command, until

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def running() -> Iterator[subprocess.Popen[bytes]]:
    """A process that does nothing; when it is killed its exit code stays there until the end."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def agent_of(stage: Stage, process: subprocess.Popen[bytes], rank: int = 0, world_size: int = 1) -> Agent:
    agent = stage.agent(rank=rank, world_size=world_size, job=f"job-of-{world_size}")
    agent.who.process_id, agent.who.host = process.pid, socket.gethostname().encode()
    return agent


def test_a_process_that_is_killed_while_it_trains_is_lost_at_once(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        with running() as process:
            agent = agent_of(stage, process)
            session = await agent.run(3)
            process.kill()
            await until(session, State.LOST)
            assert "ended unexpectedly" in session.record().message

    on_stage(scene)


def test_what_one_rank_was_is_said_while_the_others_go_on(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        with running() as first, running() as second:
            agents = [agent_of(stage, one, rank, 2) for rank, one in enumerate((first, second))]
            for agent in agents:
                await agent.attach()
            session = stage.session()
            waiting = [agent.ask() for agent in agents]
            await until(session, lambda: all(rank.state is State.PAUSED for rank in session.record().ranks))
            await command(session, "continue")
            for one in waiting:
                await one
            asking = agents[0].ask(1)
            second.kill()
            await until(session, lambda: session.record().ranks[1].state is State.LOST)
            assert session.record().message.startswith("rank 1: the process has ended unexpectedly")
            await until(session, State.PAUSED)
            await command(session, "continue", steps=1)
            await asking
            await agents[0].stand(2)
            assert session.record().step == 2

    on_stage(scene)


def test_one_that_speaks_is_there_whatever_the_system_knows_of_its_number(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        with running() as first, running() as second:
            waits, dies = agent_of(stage, first), agent_of(stage, second, 0, 2)
            session = await waits.attach()
            await waits.stand(3)
            other = await dies.attach()
            asking = await dies.stand(3)
            await command(other, "continue")
            first.kill()
            second.kill()
            await asking
            await until(other, State.LOST)
            assert session.state is State.PAUSED

    on_stage(scene)
