"""Where anomalies of a running training began: by what its process told of the step at which it stands, and before."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tensight.agents.core.graph_messages import execution_order, graph_chunks, graph_message
from tensight.agents.core.program import Program, Role, Source, StackFrame, TracedNode
from tensight.graph import OutputSlot
from tensight.sessions.live.session import LiveSession
from tensight.sessions.records import OriginRecord, State
from tensight.wire import data_type_of
from tests.sessions.live_stage import Agent, Play, Stage, command, stream, until
from tests.sessions.reported_statistics import tell

NAN, INF = [math.nan, 1.0], [math.inf, 1.0]
FINE = [0.5, -0.5]
FILE = "/home/someone/train.py"
CODE = "".join(f"line{number} = compute({number})\n" for number in range(1, 21))

WEIGHT, MOMENT, BIAS = "fc.weight", "exp_avg.fc.weight", "norm.running_mean"
LINEAR, LOG, LOSS = "Default/fc/Linear-op0", "Default/Log-op0", "Default/Loss-op0"
GRADIENT = "Default/fc/weight/AccumulateGrad-op0"
APPLY = "Optimizer/fc/weight/ApplyAdam-op0"
HEALTHY = {
    WEIGHT: FINE,
    MOMENT: FINE,
    BIAS: FINE,
    LINEAR: FINE,
    LOG: FINE,
    LOSS: [0.1, 0.1],
    f"Gradients/{GRADIENT}": FINE,
}


def node(name: str, *inputs: str | None, line: int = 0, role: Role = "operator", amount: int = 1) -> TracedNode:
    slots = tuple(OutputSlot.of_tensor(data_type_of("float32"), (2,)) for _ in range(amount))
    kind = name.rpartition("/")[2].partition("-")[0] if role == "operator" else "Parameter"
    sources: tuple[Source | None, ...] = tuple(None if one is None else (one, 0) for one in inputs)
    stack = (StackFrame(FILE, line, "forward", f"line{line} = compute({line})"),) if line else ()
    return TracedNode(name, kind, role, sources, slots, stack)


def program(name: str = "kernel_graph_0", log: str = LOG) -> Program:
    nodes = (
        node("batch", role="input"),
        node(WEIGHT, role="weight"),
        node(MOMENT, role="state"),
        node(BIAS, role="buffer"),
        node(LINEAR, "batch", WEIGHT, line=5),
        node(log, LINEAR, BIAS, line=6),
        node(LOSS, log, line=7),
        node(f"Gradients/{GRADIENT}", LOSS, line=5),
        node(APPLY, WEIGHT, MOMENT, f"Gradients/{GRADIENT}", line=9, amount=0),
    )
    return Program(name, 0, nodes)


async def training(stage: Stage, *programs: Program) -> tuple[Agent, LiveSession]:
    """An agent with a graph, and what it told before the first step; nothing waits yet."""
    agent = stage.agent(abilities=("nodes", "conditions", "steps", "pause"))
    await agent.announce()
    await send(agent, *(programs or (program(),)))
    await tell(agent, {WEIGHT: FINE, MOMENT: [0.0, 0.0], BIAS: FINE}, -1)
    return agent, agent.session


async def send(agent: Agent, *programs: Program) -> None:
    chunks = [
        chunk for one in programs for chunk in graph_chunks(graph_message(one), execution_order(one), {FILE: CODE})
    ]
    reply = await agent.calls.send_graph(agent.caller, stream(chunks), True)
    assert reply.status == reply.OK, reply


async def origin(session: LiveSession, anomaly: str) -> OriginRecord:
    found = [one for one in await session.origins() if one.anomaly == anomaly]
    assert len(found) == 1, found
    return found[0]


def test_the_operator_the_line_and_the_code_around_it_are_named(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent, session = await training(stage)
        await tell(agent, {"batch": FINE, **HEALTHY, LOG: NAN, LOSS: NAN}, 0)
        await agent.stand(1)
        assert session.capabilities().has_origin
        found = await origin(session, "nan")
        assert (found.node, found.step, found.certain, found.arrived) == (LOG, 1, True, False)
        assert found.address == f"0/kernel_graph_0/{LOG}:0@1"
        assert found.line is not None
        assert (found.line.file, found.line.line) == (FILE, 6)
        assert [line.line for line in found.excerpt] == [3, 4, 5, 6, 7, 8, 9]
        assert found.excerpt[3].code == "line6 = compute(6)"
        assert "began at step 1 in Default/Log-op0 (no NaN in its inputs)" in found.sentence

    on_stage(scene)


def test_a_healthy_training_has_none(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent, session = await training(stage)
        assert not session.capabilities().has_origin or not await session.origins()
        await tell(agent, {"batch": FINE, **HEALTHY}, 0)
        await agent.stand(1)
        assert await session.origins() == ()

    on_stage(scene)


def test_each_kind_is_found_and_those_that_are_not_numbers_come_first(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent, session = await training(stage)
        values: dict[str, Any] = {
            "batch": FINE,
            **HEALTHY,
            LINEAR: [0.0, 0.0],
            LOG: [-math.inf, 2e7],
            LOSS: [math.inf, 1.0],
        }
        await tell(agent, values, 0)
        await agent.stand(1)
        found = await session.origins()
        assert [(one.anomaly, one.node) for one in found] == [("inf", LOG), ("all_zero", LINEAR), ("explosion", LOG)]

    on_stage(scene)


def test_an_anomaly_of_an_earlier_step_is_found_there(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent, session = await training(stage)
        await tell(agent, {"batch": FINE, **HEALTHY}, 0)
        await tell(agent, {"batch": FINE, **HEALTHY, LOG: NAN, LOSS: NAN, f"Gradients/{GRADIENT}": NAN, WEIGHT: NAN}, 1)
        await tell(agent, {"batch": FINE, **dict.fromkeys(HEALTHY, NAN)}, 2)
        await agent.stand(3)
        found = await origin(session, "nan")
        assert (found.node, found.step) == (LOG, 2)

    on_stage(scene)


def test_a_weight_that_its_optimizer_spoils_is_laid_at_the_optimizers_door(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent, session = await training(stage)
        await tell(agent, {"batch": FINE, **HEALTHY}, 0)
        await tell(agent, {"batch": FINE, **HEALTHY, WEIGHT: INF}, 1)
        await agent.stand(2)
        found = await origin(session, "inf")
        assert (found.node, found.type, found.step, found.arrived) == (APPLY, "ApplyAdam", 2, False)
        assert found.address == f"0/kernel_graph_0/{WEIGHT}:0@2"
        assert found.line is not None
        assert found.line.line == 9

    on_stage(scene)


def test_a_weight_that_was_another_before_the_update_was_changed_by_somebody_else(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent, session = await training(stage)
        await tell(agent, {"batch": FINE, **HEALTHY}, 0)
        await tell(agent, {"batch": FINE, **dict.fromkeys(HEALTHY, NAN), f"{WEIGHT}:input.0": NAN}, 1)
        await agent.stand(2)
        found = await origin(session, "nan")
        assert (found.node, found.step, found.certain, found.arrived) == (WEIGHT, 2, True, True)
        assert "changed since the last update, outside of the optimizer" in found.sentence

    on_stage(scene)


def test_a_weight_that_nobody_saw_before_the_update_may_have_brought_it(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent, session = await training(stage)
        await tell(agent, {"batch": FINE, **HEALTHY}, 0)
        await tell(agent, {"batch": FINE, **dict.fromkeys(HEALTHY, NAN)}, 1)
        await agent.stand(2)
        found = await origin(session, "nan")
        assert (found.node, found.certain, found.candidates) == (LINEAR, False, (LINEAR, WEIGHT))

    on_stage(scene)


def test_what_went_in_with_a_weight_is_what_it_was_before_the_update(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent, session = await training(stage)
        await tell(agent, {"batch": FINE, **HEALTHY}, 0)
        await tell(agent, {"batch": FINE, **dict.fromkeys(HEALTHY, NAN), f"{WEIGHT}:input.0": FINE}, 1)
        await agent.stand(2)
        assert (await origin(session, "nan")).certain
        records = await session.tensors_of(0, "kernel_graph_0", LINEAR, 2)
        counts = [(record.io, None if record.statistics is None else record.statistics.nan_count) for record in records]
        assert counts == [("input", 0), ("input", 0), ("output", 1)]

    on_stage(scene)


def test_the_first_is_told_first_though_a_later_one_is_certain(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        gate = "Default/sigmoid-op0"
        agent, session = await training(stage, program(log=gate))
        # Nobody knows what went into the first; the second began anew.
        values = {gate if name == LOG else name: value for name, value in HEALTHY.items()}
        await tell(agent, {**values, LINEAR: INF, f"Gradients/{GRADIENT}": INF}, 0)
        await agent.stand(1)
        found = await origin(session, "inf")
        assert (found.node, found.certain, found.also) == (LINEAR, False, (f"Gradients/{GRADIENT}",))

    on_stage(scene)


def test_what_comes_in_with_the_data_has_arrived(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent, session = await training(stage)
        await tell(agent, {"batch": NAN, **dict.fromkeys(HEALTHY, NAN)}, 0)
        await agent.stand(1)
        found = await origin(session, "nan")
        assert (found.node, found.arrived) == ("batch", True)

    on_stage(scene)


def test_a_running_mean_shows_what_went_in_and_is_no_source(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent, session = await training(stage)
        await tell(agent, {"batch": FINE, **HEALTHY, LOG: NAN, LOSS: NAN, BIAS: NAN}, 0)
        await agent.stand(1)
        assert (await origin(session, "nan")).node == LOG

    on_stage(scene)


def test_weights_of_steps_that_were_not_told_are_not_taken_for_clean(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent, session = await training(stage)
        # The steps between have not been told, and in this one everything is spoilt already.
        await tell(agent, {"batch": FINE, **dict.fromkeys(HEALTHY, NAN)}, 5)
        await agent.stand(6)
        found = await origin(session, "nan")
        assert (found.node, found.certain) == (LINEAR, False)
        assert set(found.candidates) == {LINEAR, WEIGHT}
        assert "first seen" in found.sentence
        assert (found.unseen, found.is_older) == ((1, 5), False)
        assert found.sentence.endswith("step 6 is the first observed one, so it may have been there before")

    on_stage(scene)


def test_what_the_step_before_has_left_in_weights_came_in_and_did_not_begin_there(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent, session = await training(stage)
        # A process that stops tells everything of its step, and what the step before has left.
        await tell(agent, {WEIGHT: NAN, MOMENT: NAN, BIAS: FINE}, 4)
        await tell(agent, {"batch": FINE, **dict.fromkeys(HEALTHY, NAN), BIAS: FINE}, 5)
        await agent.stand(6)
        found = await origin(session, "nan")
        assert (found.node, found.step, found.arrived, found.certain) == (WEIGHT, 6, True, True)

    on_stage(scene)


def test_in_the_middle_of_a_step_what_has_run_counts(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent, session = await training(stage)
        await tell(agent, {"batch": FINE, **HEALTHY}, 0)
        await tell(agent, {"batch": FINE, LINEAR: FINE, LOG: INF}, 1)
        await agent.stand(2, LOG)
        found = await origin(session, "inf")
        assert (found.node, found.step, found.certain) == (LOG, 2, True)

    on_stage(scene)


def test_the_graph_that_ran_explains_the_step(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        other = program("kernel_graph_1", log="Default/Sqrt-op0")
        agent, session = await training(stage, program(), other)
        await tell(agent, {"batch": FINE, **HEALTHY}, 0)
        values = {"batch": FINE, **HEALTHY, LOSS: NAN}
        values["Default/Sqrt-op0"] = NAN
        del values[LOG]
        # What all graphs have may be told under any of them.
        await tell(agent, {name: value for name, value in values.items() if "/" not in name}, 1)
        await tell(agent, {name: value for name, value in values.items() if "/" in name}, 1, "kernel_graph_1")
        await agent.stand(2, root=1)
        found = await origin(session, "nan")
        assert (found.node, found.certain) == ("Default/Sqrt-op0", True)
        assert found.address == "0/kernel_graph_1/Default/Sqrt-op0:0@2"

    on_stage(scene)


@pytest.mark.parametrize(("graph", "also"), [("kernel_graph_0", ()), ("kernel_graph_1", (LOG,))])
def test_of_two_graphs_with_the_same_operators_that_ran_which_the_process_names(
    on_stage: Play, graph: str, also: tuple[str, ...]
) -> None:
    async def scene(stage: Stage) -> None:
        other = Program(
            "kernel_graph_1",
            1,
            tuple(node(LOG, "batch", BIAS, line=6) if one.name == LOG else one for one in program().nodes),
        )
        agent, session = await training(stage, program(), other)
        await tell(agent, {"batch": FINE, **HEALTHY, LINEAR: NAN, LOG: NAN, LOSS: NAN}, 0, graph)
        await agent.stand(1)
        assert (await origin(session, "nan")).also == also

    on_stage(scene)


def test_negative_infinities_of_masks_are_no_anomaly(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        masked = program(log="Default/masked_fill-op0")
        agent, session = await training(stage, masked)
        values = {"batch": FINE, **HEALTHY, "Default/masked_fill-op0": [-math.inf, 1.0]}
        del values[LOG]
        await tell(agent, values, 0)
        await agent.stand(1)
        assert await session.origins() == ()
        await tell(agent, {**values, "Default/masked_fill-op0": INF, LOSS: INF}, 1)
        asking = agent.ask(2)
        await until(session, lambda: session.step == 2)
        assert (await origin(session, "inf")).node == "Default/masked_fill-op0"
        assert not asking.done()

    on_stage(scene)


def test_what_only_hands_a_value_on_need_not_have_been_seen(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        view, log = "Default/view-op0", "Default/Log-op1"
        nodes = (*program().nodes[:5], node(view, LINEAR), node(log, view, line=12))
        agent, session = await training(stage, Program("kernel_graph_0", 0, nodes))
        await tell(agent, {"batch": FINE, WEIGHT: FINE, LINEAR: FINE, log: NAN}, 0)
        await agent.stand(1)
        found = await origin(session, "nan")
        assert (found.node, found.certain) == (log, True)

    on_stage(scene)


def test_an_earlier_step_that_is_shown_knows_nothing_of_what_came_later(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        agent, session = await training(stage)
        await tell(agent, {"batch": FINE, **HEALTHY}, 0)
        await tell(agent, {"batch": FINE, **HEALTHY, LOG: NAN, LOSS: NAN}, 1)
        await agent.stand(2)
        await command(session, "step_back")
        assert await session.origins() == ()
        await command(session, "go_to_step", steps=2)
        assert (await origin(session, "nan")).step == 2

    on_stage(scene)


def test_every_rank_has_its_own(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        ranks = [stage.agent(rank=rank, world_size=2) for rank in range(2)]
        for rank in ranks:
            await rank.announce()
            await send(rank, program())
        session = ranks[0].session
        await tell(ranks[0], {"batch": FINE, **HEALTHY}, 0)
        await tell(ranks[1], {"batch": FINE, **HEALTHY, LOG: NAN, LOSS: NAN}, 0)
        asking = [rank.ask(1) for rank in ranks]
        await until(session, State.PAUSED)
        assert [one.address for one in await session.origins()] == [f"1/kernel_graph_0/{LOG}:0@1"]
        assert not any(one.done() for one in asking)

    on_stage(scene)


def test_of_mindspores_own_client_too_little_is_known(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        process = stage.process()
        session = await process.attach()
        await process.stand()
        assert await session.origins() == ()
        assert not session.capabilities().has_origin

    on_stage(scene)
