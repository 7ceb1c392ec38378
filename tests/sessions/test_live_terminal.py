"""What the terminal of a training is told: one line or two where something happens, by one of its processes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tensight import wire
from tensight.sessions.live import PageAddress
from tensight.sessions.records import State
from tests.sessions.live_stage import CONV, PATIENCE_S, RELU, Agent, Play, Stage, command, kind, until, watch

if TYPE_CHECKING:
    from collections.abc import Sequence

FREE = ("steps", "pause", "nodes", "views", "conditions")
PAGE = PageAddress(here="http://127.0.0.1:8080", elsewhere="http://gpu1:8080", machine="gpu1", is_local=False)
AT = "http://gpu1:8080/?run=1"


class Terminal:
    """An agent that writes what it is told, and goes on when it is told to."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.lines: list[str] = []

    async def until(self, command: str, step: int = 0, node: str = "") -> str:
        """Ask at a step until there is a command that begins in some way; lines are written meanwhile."""
        while True:
            reply = await self.agent.ask(step, node)
            assert kind(reply) != "failed", reply
            if reply.message:
                self.lines.append(wire.text(reply.message))
            if kind(reply).startswith(command):
                return kind(reply)

    def stands(self, step: int = 0, node: str = "") -> asyncio.Task[str]:
        """Stand at a step until the training goes on."""
        return asyncio.create_task(self.until("run step", step, node))

    async def told(self, *lines: str) -> None:
        """See that these lines, and no others, have been written since the last time."""
        assert await self.written(len(lines)) == list(lines)
        self.lines = []

    async def written(self, amount: int) -> Sequence[str]:
        """Return the lines when there are so many."""

        async def wait() -> None:
            while len(self.lines) < amount:
                await asyncio.sleep(0.01)

        await asyncio.wait_for(wait(), PATIENCE_S)
        return self.lines


def test_a_terminal_is_told_where_its_page_is_why_it_stops_and_that_it_goes_on(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        terminal = Terminal(stage.agent(abilities=FREE))
        session = await terminal.agent.attach()
        standing = terminal.stands()
        await terminal.told(
            f"attached to the debug server; the training can be watched at {AT}",
            f"stopped before the first step; the training waits at {AT}",
        )
        await watch(session)
        await command(session, "continue")
        assert await standing == "run step -1"
        await terminal.told("the training goes on")
        await terminal.agent.report((CONV, 1), (RELU, 1))
        standing = terminal.stands(4)
        await terminal.told(
            f"stopped after step 4 by tensor_too_large on {CONV} and 1 more", f"the training waits at {AT}"
        )
        await command(session, "continue", steps=2)
        assert await standing == "run step 2"
        await terminal.told("the training goes on to step 6")
        standing = terminal.stands(6)
        await terminal.told(f"stopped after step 6; the training waits at {AT}")
        await command(session, "continue")
        await standing
        await terminal.told("the training goes on")
        await command(session, "pause")
        asking = await terminal.agent.stand(9, RELU)
        await command(session, "terminate")
        assert wire.text((await asking).message) == "terminated from the debug server"

    on_stage(scene, page=PAGE)


def test_a_terminal_is_told_which_watchpoints_earlier_runs_left(on_stage: Play) -> None:
    attached = f"attached to the debug server; the training can be watched at {AT.replace('run=1', 'run={}')}"

    async def scene(stage: Stage) -> None:
        first = Terminal(stage.agent(abilities=FREE, recommended=True, run_at_start=True))
        session = await first.agent.attach()
        await first.stands()
        # What is set as asked needs no words.
        await first.told(attached.format(1))
        amount = len(session.watchpoints())
        await watch(session, name="mine", enabled=False)
        await first.agent.done()

        second = Terminal(stage.agent(abilities=FREE, run_at_start=True))
        session = await second.agent.attach()
        await second.stands()
        kept = f"{amount + 1} watchpoints kept from an earlier run of this network, 1 of them disabled: with mine"
        await second.told(attached.format(2), kept)
        await session.delete_watchpoints([point.id for point in session.watchpoints() if point.name != "mine"])
        await second.agent.done()

        third = Terminal(stage.agent(abilities=FREE, run_at_start=True))
        await third.agent.attach()
        await third.stands()
        nothing = "1 watchpoint kept from an earlier run of this network, all of them disabled, so nothing is watched"
        await third.told(attached.format(3), f"{nothing}: mine")
        await third.agent.done()

        fourth = Terminal(stage.agent(abilities=FREE, recommended=True, run_at_start=True))
        await fourth.agent.attach()
        await fourth.stands()
        await fourth.told(
            attached.format(4),
            f"{amount} watchpoints, recommended and deleted in an earlier run, set again",
            "1 watchpoint kept from an earlier run of this network, 1 of them disabled: mine",
        )

    on_stage(scene, page=PAGE)


def test_a_stop_that_a_program_ends_at_once_is_not_told(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        terminal = Terminal(stage.agent(abilities=FREE))
        session = await terminal.agent.attach()
        for step in range(20):
            standing = terminal.stands(step)
            await until(session, State.PAUSED)
            await command(session, "continue", steps=1)
            await standing
        await terminal.told(f"attached to the debug server; the training can be watched at {AT}")

    on_stage(scene, page=PAGE)


def test_a_stop_at_hits_is_told_also_if_a_program_ends_it_at_once(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        terminal = Terminal(stage.agent(abilities=FREE))
        session = await terminal.agent.attach()
        standing = terminal.stands()
        await until(session, State.PAUSED)
        await watch(session)
        await command(session, "continue")
        await standing
        terminal.lines.clear()
        await terminal.agent.report((CONV, 1))
        ending = asyncio.create_task(terminal.until("exit", 1))
        await until(session, State.PAUSED)
        await command(session, "terminate")
        await ending
        assert "\n".join(terminal.lines).split("\n") == [
            f"stopped after step 1 by tensor_too_large on {CONV}",
            "terminated from the debug server",
        ]

    on_stage(scene, page=PAGE)


def test_of_stops_at_hits_that_follow_each_other_fast_those_are_told_that_wait(
    on_stage: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tensight.sessions.live.terminal.HITS_EVERY_S", 60.0)

    async def scene(stage: Stage) -> None:
        terminal = Terminal(stage.agent(abilities=FREE))
        session = await terminal.agent.attach()
        standing = terminal.stands()
        await until(session, State.PAUSED)
        await watch(session, name="mine")
        for step, lines in ((1, 3), (2, 0), (3, 6)):
            await command(session, "continue")
            await standing
            await terminal.agent.report((CONV, 1))
            standing = terminal.stands(step)
            await until(session, State.PAUSED)
            await terminal.written(lines)
        assert [line.partition("; ")[0] for line in terminal.lines] == [
            "attached to the debug server",
            f"stopped after step 1 by tensor_too_large (mine) on {CONV}",
            f"the training waits at {AT}",
            "the training goes on",
            f"stopped after step 3 by tensor_too_large (mine) on {CONV}",
            f"the training waits at {AT}",
        ]

    on_stage(scene, page=PAGE)


def test_one_of_several_ranks_speaks_for_all(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        ranks = [Terminal(stage.agent(abilities=FREE, rank=rank, world_size=2)) for rank in range(2)]
        for terminal in ranks:
            await terminal.agent.attach()
        session = ranks[0].agent.session
        standing = [terminal.stands() for terminal in ranks]
        await until(session, State.PAUSED)
        await watch(session)
        await command(session, "continue")
        await asyncio.gather(*standing)
        await ranks[0].told(f"attached to the debug server; the training can be watched at {AT}")
        await ranks[1].agent.report((CONV, 1))
        standing = [terminal.stands(1) for terminal in ranks]
        await ranks[1].written(2)
        assert ranks[1].lines[0].startswith("rank 1: stopped after step 1 by ")
        await command(session, "continue", steps=1)
        await asyncio.gather(*standing)
        assert ranks[1].lines[2:] == ["the training goes on to step 2"]
        standing = [terminal.stands(2) for terminal in ranks]
        await ranks[0].told(f"stopped after step 2; the training waits at {AT}")
        await command(session, "continue")
        await asyncio.gather(*standing)
        assert (len(ranks[0].lines), len(ranks[1].lines)) == (1, 3)

    on_stage(scene, page=PAGE)


def test_an_old_client_and_a_server_without_a_page_are_told_nothing(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        for process in (stage.process(), stage.agent()):
            session = await process.attach()
            asking = await process.stand()
            await asyncio.sleep(0)
            await command(session, "continue")
            assert not (await asking).message

    on_stage(scene, page=None)


@pytest.mark.parametrize(
    ("page", "here", "elsewhere"),
    [
        (PAGE, "http://127.0.0.1:8080/?run=7", "http://gpu1:8080/?run=7"),
        (
            PageAddress(here="http://127.0.0.1:80/x", elsewhere="", machine="gpu1", is_local=True),
            "http://127.0.0.1:80/x/?run=7",
            "http://127.0.0.1:80/x/?run=7 on gpu1",
        ),
        (
            PageAddress(here="https://10.0.0.1:80", elsewhere="", machine="gpu1", is_local=False),
            "https://10.0.0.1:80/?run=7",
            "https://10.0.0.1:80/?run=7",
        ),
    ],
)
def test_the_address_is_one_that_works_where_the_training_runs(page: PageAddress, here: str, elsewhere: str) -> None:
    assert page.of("7", "gpu1") == here
    assert page.of("7", "node1") == elsewhere
