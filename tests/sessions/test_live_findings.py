"""Findings while a training runs: what holds is announced once, and stops the training if that was asked for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tensight import wire
from tensight.diagnosis.lines import line_of
from tensight.sessions.errors import NotFoundError
from tensight.sessions.live import findings
from tensight.sessions.records import State
from tensight.wire.facts import facts_messages
from tensight.wire.telemetry_pb2 import PollRequest, Receipt, StatisticsRows
from tests.sessions.live_stage import PATIENCE_S, Agent, Play, Stage, stream, until
from tests.sessions.test_live_terminal import PAGE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tensight.sessions.live.session import LiveSession

RUNS = ("steps", "pause", "conditions")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judge facts as soon as they arrive."""
    monkeypatch.setattr(findings, "EVERY_S", 0.0)
    monkeypatch.setattr(findings, "_SHARE", 1e9)


def lines(steps: Iterable[int], *, rate: float = 0.0) -> list[bytes]:
    """The facts of an optimizer with this learning rate."""
    group = {"name": "SGD group 0", "optimizer": "SGD", "parameters": 1, "rate": rate, "unknown": 0}
    parameter = {
        "name": "weight",
        "elements": 4,
        "is_trainable": True,
        "optimizers": 1,
        "owners": 1,
        "optimizer": "SGD",
        "rate": rate,
        "gradient": 2,
        "norm": 1.0,
        "moved": float(rate > 0),
        "lost": 0.0,
        "change": rate,
    }
    return [
        line
        for step in steps
        for line in (
            line_of("losses", step, [{"name": "loss", "value": 1.0 / step, "is_connected": True}]),
            line_of("groups", step, [group]),
            line_of("rates", step, [{**group, "initial_rate": rate}]),
            line_of("parameters", step, [parameter]),
            line_of("steps", step, [{"name": "step", "backward_passes": 1, "updates": 1}]),
        )
    ]


async def send(agent: Agent, facts: Iterable[bytes]) -> Receipt:
    return await agent.calls.send_statistics(agent.caller, stream(facts_messages(facts)))


async def running(stage: Stage, **options: Any) -> tuple[Agent, LiveSession]:
    agent = stage.agent(abilities=RUNS, run_at_start=True, **options)
    session = await agent.attach()
    while await agent.told() != "run step -1":
        """It writes what it is told."""
    return agent, session


async def judged(session: LiveSession, steps: int) -> None:
    """Wait until the facts up to a step have been judged."""

    async def wait() -> None:
        while session.findings._before_steps < steps:
            await asyncio.sleep(0.01)

    await asyncio.wait_for(wait(), PATIENCE_S)


def announced(session: LiveSession) -> list[list[str]]:
    return [event.data["rules"] for event in session.events.after(0).events if event.kind == "findings"]


async def told(agent: Agent) -> list[str]:
    reply = await agent.calls.poll(agent.caller, PollRequest(step=1))
    return [wire.text(line) for line in reply.lines]


def test_what_holds_twice_is_announced_once(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent, session = await running(stage)
        assert (await send(agent, lines(range(1, 6)))).ok
        assert (await send(agent, lines(range(6, 12)))).ok
        await judged(session, 11)
        assert not announced(session)
        await send(agent, lines(range(12, 20)))
        await until(session, lambda: bool(announced(session)))
        await send(agent, lines(range(20, 40)))
        await judged(session, 39)
        assert announced(session) == [["learning-rate-zero"]]
        (finding,) = (await session.diagnosis()).findings
        assert (finding.rule, finding.certainty, session.record().findings) == ("learning-rate-zero", "certain", 1)
        assert finding.chinese.title != finding.title
        lines_told = await told(agent)
        assert [line for line in lines_told if finding.title in line] == lines_told[-2:-1]
        assert session.state is State.RUNNING

    on_stage(scene, page=PAGE)


@pytest.mark.parametrize(("choice", "stops"), [("list", False), ("certain", True), ("every", True), ("off", False)])
def test_only_what_was_asked_for_stops_the_training(on_stage: Play, choice: str, stops: bool) -> None:
    async def scene(stage: Stage) -> None:
        agent = stage.agent(abilities=RUNS, run_at_start=True)
        agent.who.findings = choice.encode()
        session = await agent.attach()
        assert await agent.told() == "run step -1"
        for first in (1, 12, 24):
            await send(agent, lines(range(first, first + 12)))
            await judged(session, first + 11)
        assert announced(session)
        assert (await agent.calls.poll(agent.caller, PollRequest(step=36))).pause is stops

    on_stage(scene)


def test_a_healthy_training_has_no_finding_also_when_it_has_ended(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent, session = await running(stage)
        await send(agent, lines(range(1, 40), rate=0.1))
        await agent.done()
        await judged(session, 39)
        assert not (await session.diagnosis()).findings
        assert not announced(session)

    on_stage(scene)


def test_a_short_training_is_judged_when_it_has_ended(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent, session = await running(stage)
        await send(agent, lines(range(1, 5)))
        await agent.done()
        await until(session, lambda: bool(announced(session)))
        assert announced(session) == [["learning-rate-zero"]]

    on_stage(scene)


def test_what_is_certain_is_announced_where_the_training_stops(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent, session = await running(stage)
        await send(agent, lines(range(1, 12)))
        await judged(session, 11)
        assert not announced(session)
        session.run_controller.stop()
        await agent.stand(11)
        await until(session, lambda: bool(announced(session)))
        assert announced(session) == [["learning-rate-zero"]]

    on_stage(scene)


def test_nothing_is_announced_where_the_training_stops_early(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent, session = await running(stage)
        await send(agent, lines(range(1, 6)))
        session.run_controller.stop()
        await agent.stand(5)
        await until(session, State.PAUSED)
        await agent.done()
        await until(session, State.FINISHED)
        await until(session, lambda: bool(announced(session)))
        assert [event.kind for event in session.events.after(0).events].count("findings") == 1

    on_stage(scene)


def test_facts_are_tables_for_clients_and_recorded(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent, session = await running(stage)
        await send(agent, [*lines(range(1, 4)), line_of("losses", 4, [{"name": "loss", "value": float("nan")}])])
        table = await session.facts(0, "losses")
        assert table.columns["step"] == [1, 2, 3, 4]
        assert table.columns["value"] == [1.0, 0.5, pytest.approx(1 / 3), None]
        assert not (await session.facts(5, "losses")).columns["step"]
        with pytest.raises(NotFoundError, match="moods"):
            await session.facts(0, "moods")
        assert (session.recording.folder / "facts-0-0.jsonl").stat().st_size > 0

    on_stage(scene)


def test_damaged_facts_are_refused_with_the_reason(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent, session = await running(stage)
        receipt = await send(agent, [b"nonsense\n"])
        assert not receipt.ok
        assert b"facts" in receipt.message
        receipt = await agent.calls.send_statistics(agent.caller, stream([StatisticsRows(facts=b"nonsense")]))
        assert not receipt.ok
        assert session.state is State.RUNNING

    on_stage(scene)


def test_another_process_of_a_rank_begins_anew(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        first, other = (stage.agent(abilities=RUNS, job="two", rank=rank, world_size=2) for rank in range(2))
        session = await first.attach()
        assert await other.attach() is session
        await send(first, lines(range(1, 12)))
        await first.done()
        assert await stage.agent(abilities=RUNS, job="two", rank=0, world_size=2).attach() is session
        assert not (await session.facts(0, "losses")).columns["step"]

    on_stage(scene)


def test_a_session_that_is_restored_goes_on_with_its_facts(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent, session = await running(stage)
        await send(agent, lines(range(1, 12)))
        restored = findings.LiveFindings(session)
        restored.take(0, lines(range(12, 14)))
        assert restored.facts.table(0, "losses").columns["step"] == list(range(1, 14))

    on_stage(scene)


def test_ranks_are_put_side_by_side(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agents = [stage.agent(abilities=RUNS, job="two", rank=rank, world_size=2) for rank in range(2)]
        for agent in agents:
            session = await agent.attach()
        for rank, agent in enumerate(agents):
            row = {"name": f"rank {rank}", "world": 2, "norm": 1.0, "norm_backward": 1.0, "batch": 7}
            of_ranks = [line_of("ranks", step, [{**row, "weights": step}]) for step in range(1, 12)]
            await send(agent, [*lines(range(1, 12), rate=0.1), *of_ranks])
        for agent in agents:
            await agent.done()
        await until(session, lambda: bool(announced(session)))
        assert announced(session) == [["ranks-same-data"]]

    on_stage(scene)


def test_nothing_is_judged_after_the_session_was_closed(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent, session = await running(stage)
        await send(agent, lines(range(1, 12)))
        await stage.attachments.close("the test is over")
        await asyncio.sleep(0)
        assert session.is_closing

    on_stage(scene)
