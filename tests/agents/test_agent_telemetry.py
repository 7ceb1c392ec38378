"""Statistics travel as a training runs: some of the steps while it goes on, everything of the step where it stops."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tensight.agents.core.connection.telemetry import EVERY_S
from tensight.sessions.records import State
from tensight.tensors import statistics
from tests.agents.agent_stage import until
from tests.agents.numpy_training import FORWARD, GRADIENTS, LOSS, MOMENTS, WEIGHTS, Network

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensight.client import Session
    from tests.agents.agent_stage import Scene

Debug = Callable[..., "tuple[Scene, Session]"] if TYPE_CHECKING else object

ALL = {*FORWARD, *GRADIENTS, *WEIGHTS, *MOMENTS}
NEVER = {"max_gt": 1e30}


def test_all_rows_of_the_step_are_there_when_the_training_stops(debug: Debug) -> None:
    _, session = debug(steps=5)
    session.step(3).wait(30)
    rows = {(row.node, row.io, row.slot): row for row in session.statistics()}
    assert {node for node, io, _ in rows if io == "output"} == ALL
    assert {node for node, io, _ in rows if io == "input"} == {*FORWARD, *GRADIENTS}
    network = Network()
    for _ in range(3):
        network.step(lambda *_: None, lambda _: None)
    expected = statistics(network.weights[WEIGHTS[0]])
    found = rows[(WEIGHTS[0], "output", 0)].statistics
    assert (found.max, found.min, found.std, found.l2_norm) == pytest.approx(
        (expected.max, expected.min, expected.std, expected.l2_norm)
    )
    assert found.content_hash == f"{expected.content_hash:016x}"
    assert rows[(FORWARD[0], "output", 0)].type == "MatMul"


def test_rows_come_while_a_watched_training_runs_but_not_of_every_step(debug: Debug) -> None:
    scene, session = debug(steps=1_000_000_000, capture="modules")
    session.watch("tensor_too_large", **NEVER)
    session.continue_()
    until(lambda: list(session.nodes(name=LOSS)), "the graph")
    curve = until(lambda: len(found := session.tensor(LOSS, step=1).history()) > 3 and found, "a curve")
    steps = [row.step for row in curve]
    assert steps == sorted(set(steps))
    assert scene.steps > 3 * len(steps)
    record = session.pause().wait(30)
    assert {row.node for row in session.statistics() if row.step == record.step} == ALL
    session.terminate()


def test_a_training_of_which_nothing_is_watched_sends_nothing(debug: Debug) -> None:
    scene, session = debug(steps=1_000_000_000)
    session.step().wait(30)
    session.continue_()
    until(lambda: scene.steps > 200, "the training runs")
    assert not scene.debugger.agent.capturing
    session.pause().wait(30)
    assert [row.step for row in session.tensor(LOSS).history()] == [1, session.summary.step]
    session.terminate()


def test_weights_of_the_step_before_a_stop_are_known_too(debug: Debug) -> None:
    _, session = debug(steps=300, network={"nan_at": 200}, capture="modules")
    session.watch("tensor_overflow")
    record = session.continue_().wait(30)
    assert record.step == 200
    assert [row.step for row in session.tensor(WEIGHTS[0]).history()][-2:] == [199, 200]


def test_rows_that_nobody_asked_for_are_made_of_the_values_that_are_kept(debug: Debug) -> None:
    # Where operators are captured a watchpoint on NaN asks for no statistics; what is stepped to has them all the same.
    _, session = debug(steps=10, network={"nan_at": 9})
    session.watch("tensor_overflow")
    record = session.step(2).wait(30)
    assert record.step == 2
    assert {row.node for row in session.statistics() if row.io == "output"} == ALL
    record = session.continue_().wait(30)
    assert (record.step, record.node) == (9, FORWARD[2])
    assert session.tensor(FORWARD[2]).statistics().nan_count == 1


def test_the_last_rows_of_a_training_that_ends_arrive(debug: Debug) -> None:
    scene, session = debug(steps=40, capture="modules")
    session.watch("tensor_too_large", **NEVER)
    assert session.continue_().wait(30).state is State.FINISHED
    scene.finish()
    assert session.tensor(LOSS, step=40).history()[-1].step == 40


def test_a_block_of_thousands_of_rows_travels(debug: Debug) -> None:
    def see_many(step: int) -> None:
        agent = scene.debugger.agent
        if agent.capturing:
            for number in range(2_500):
                slot_id = agent.slot_table.slot_id(agent.slot_table.node(f"many.{number:04}", "Parameter", "buffer"), 0)
                need = agent.slot_table.needs[slot_id]
                if need:
                    agent.observe(slot_id, np.full(3, step + number, np.float32), need)

    scene, session = debug(steps=3, before_step=see_many)
    session.step(2).wait(60)
    rows = [row for row in session.statistics() if row.node.startswith("many.")]
    assert len(rows) == 2_500
    assert {row.node: row.statistics.max for row in rows}["many.0042"] == 2 + 42


def test_rows_travel_no_faster_than_a_person_looks() -> None:
    assert EVERY_S >= 0.1
