"""A training whose steps are complete before anybody looks is gone through operator by operator, back and forth."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tensight
from tensight.agents.core.connection.commands import Order
from tensight.agents.core.node_cursor import NodeCursor
from tensight.agents.core.program import Program, TracedNode
from tensight.agents.core.slots import SlotTable
from tensight.errors import TensightError
from tensight.graph import OutputSlot
from tensight.sessions.errors import StateError
from tensight.sessions.records import State
from tests.agents.agent_stage import PATIENCE_S, Scene, session_named, settings_for
from tests.agents.numpy_training import FORWARD, GRADIENTS, LOSS, MOMENTS, SPLIT, WEIGHTS, Network
from tests.server.running import running_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tensight.agents.core.program import Role
    from tensight.client import Server, Session
    from tests.server.running import RunningServer

    Walk = Callable[..., tuple[Scene, Session]]

UPDATES = tuple(f"Optimizer/{name}/ApplyMomentum-op0" for name in WEIGHTS)
OPERATORS = (*FORWARD, *GRADIENTS, *UPDATES)

_numbers = itertools.count(1)


@pytest.fixture
def walk(agent_server: RunningServer, person: Server) -> Iterator[Walk]:
    """Starts a training that is seen step by step, and returns it with its session."""
    begun: list[tuple[Scene, Session]] = []

    def start(steps: int = 5, network: dict[str, Any] | None = None, **chosen: Any) -> tuple[Scene, Session]:
        kind = {name: chosen.pop(name) for name in ("outputs_alone", "rank", "world_size") if name in chosen}
        waits = chosen.pop("waits", True)
        settings = settings_for(agent_server, **{"job": f"cursor-{next(_numbers)}", "break_at_start": True, **chosen})
        scene = Scene(settings, steps, network, cursor=True, **kind).start()
        session = session_named(person, settings.job)
        begun.append((scene, session))
        if waits:
            session.wait(PATIENCE_S)
        return scene, session

    yield start
    for scene, session in begun:
        scene.abandon(session)


def position(session: Session) -> tuple[int, str]:
    record = session.wait(PATIENCE_S)
    assert record.state is State.PAUSED
    return record.step, record.node


def truth(steps: int, **network: Any) -> dict[tuple[int, str], np.ndarray[Any, Any]]:
    """What every node gave in each step, first output, with weights as they were after it."""
    seen: dict[tuple[int, str], np.ndarray[Any, Any]] = {}
    net = Network(**network)

    def see(name: str, _type: str, _sources: object, _inputs: object, outputs: tuple[Any, ...]) -> None:
        if outputs:
            seen[net.steps, name] = np.copy(outputs[0])

    for _ in range(steps):
        net.step(see, lambda _: None)
        seen.update({(net.steps, name): weight.copy() for name, weight in net.weights.items()})
    return seen


def hit_nodes(session: Session) -> list[str]:
    return [node.node for node in session.hits()]


def test_a_person_goes_through_a_step_that_is_done_and_on_into_the_next(walk: Walk) -> None:
    scene, session = walk(steps=3)
    assert session.summary.capabilities.can_next_node
    assert not session.summary.capabilities.can_previous_node
    seen = [position(session.next_node()) for _ in OPERATORS]
    assert seen == [(1, node) for node in OPERATORS]
    assert scene.steps == 1
    assert position(session.next_node()) == (1, "")
    assert position(session.next_node()) == (2, OPERATORS[0])
    assert scene.steps == 2
    assert session.continue_().wait(PATIENCE_S).state is State.FINISHED
    assert scene.finish() == 3


def test_a_person_goes_back_to_the_first_operator_and_forward_again(walk: Walk) -> None:
    scene, session = walk(steps=4)
    assert position(session.step(2)) == (2, "")
    assert session.summary.capabilities.can_previous_node
    back = [position(session.previous_node())[1] for _ in OPERATORS]
    assert back == list(reversed(OPERATORS))
    assert position(session.previous_node()) == (2, OPERATORS[0])
    assert position(session.next_node()) == (2, OPERATORS[1])
    assert position(session.run_to(LOSS)) == (2, LOSS)
    assert scene.steps == 2
    assert position(session.previous_node(FORWARD[1])) == (2, FORWARD[1])
    # Of what has not run there is nothing to go back to.
    assert position(session.previous_node(LOSS)) == (2, FORWARD[1])
    # Forward, it is reached in the next step.
    assert position(session.run_to(FORWARD[1])) == (3, FORWARD[1])
    assert scene.steps == 3


def test_steps_count_from_the_one_that_is_gone_through(walk: Walk) -> None:
    scene, session = walk(steps=6)
    assert position(session.next_node()) == (1, OPERATORS[0])
    assert position(session.step()) == (1, "")
    assert scene.steps == 1
    session.previous_node().wait(PATIENCE_S)
    assert position(session.step(3)) == (3, "")
    assert scene.steps == 3


def test_values_are_what_they_were_when_the_operator_had_run(walk: Walk) -> None:
    _, session = walk(steps=3)
    known = truth(2)
    assert position(session.step()) == (1, "")
    first = session.tensor(WEIGHTS[0]).numpy().copy()
    np.testing.assert_array_equal(first, known[1, WEIGHTS[0]])
    assert position(session.run_to(FORWARD[1])) == (2, FORWARD[1])
    np.testing.assert_array_equal(session.tensor(FORWARD[1]).numpy(), known[2, FORWARD[1]])
    for later in (FORWARD[2], WEIGHTS[0]):
        with pytest.raises(TensightError):
            session.tensor(later).numpy()
        np.testing.assert_array_equal(session.tensor(later, step=1).numpy(), known[1, later])
        (record,) = [one for one in session.tensors(later) if one.io == "output"]
        assert record.step == 1
        assert record.status in ("at_source", "available")
    assert position(session.run_to(UPDATES[0])) == (2, UPDATES[0])
    np.testing.assert_array_equal(session.tensor(WEIGHTS[0]).numpy(), known[2, WEIGHTS[0]])
    with pytest.raises(TensightError):
        session.tensor(WEIGHTS[1]).numpy()
    assert position(session.step()) == (2, "")
    np.testing.assert_array_equal(session.tensor(WEIGHTS[1]).numpy(), known[2, WEIGHTS[1]])


def test_going_back_takes_away_what_came_later(walk: Walk) -> None:
    _, session = walk(steps=3)
    known = truth(2)
    assert position(session.step(2)) == (2, "")
    np.testing.assert_array_equal(session.tensor(LOSS).numpy(), known[2, LOSS])
    assert position(session.run_to(LOSS)) == (3, LOSS)
    assert position(session.previous_node()) == (3, FORWARD[2])
    with pytest.raises(TensightError):
        session.tensor(LOSS).numpy()
    record = session.tensors(LOSS)[-1]
    assert record.step == 2
    assert record.statistics is not None
    assert record.statistics.max == pytest.approx(float(known[2, LOSS]))
    assert position(session.next_node()) == (3, LOSS)
    assert session.tensors(LOSS)[-1].step == 3


def test_only_what_has_run_is_in_the_table(walk: Walk) -> None:
    _, session = walk(steps=3)
    assert position(session.next_node()) == (1, FORWARD[0])
    assert position(session.next_node()) == (1, FORWARD[1])
    assert {row.node for row in session.statistics()} == {FORWARD[0], FORWARD[1]}
    assert position(session.step()) == (1, "")
    assert {row.node for row in session.statistics()} >= {*FORWARD, *GRADIENTS, *WEIGHTS, *MOMENTS}


def test_watchpoints_hit_at_the_operator_on_the_way(walk: Walk) -> None:
    _, session = walk(steps=4, network={"nan_at": 2})
    session.watch("tensor_overflow")
    assert position(session.step()) == (1, "")
    assert position(session.run_to(UPDATES[1])) == (2, FORWARD[2])
    assert hit_nodes(session) == [FORWARD[2]]
    # What follows from it stops nothing, and is shown.
    assert position(session.run_to(GRADIENTS[0])) == (2, GRADIENTS[0])
    assert hit_nodes(session) == [FORWARD[2], LOSS, GRADIENTS[0]]
    assert position(session.previous_node()) == (2, LOSS)
    assert position(session.run_to(GRADIENTS[1])) == (2, GRADIENTS[1])
    assert position(session.step()) == (2, "")
    assert {*hit_nodes(session)} >= {FORWARD[2], LOSS, *GRADIENTS, *WEIGHTS}


def test_a_training_that_runs_by_steps_stops_at_the_end_of_the_one_that_hits(walk: Walk) -> None:
    _, session = walk(steps=8, network={"nan_at": 4})
    session.watch("tensor_overflow")
    assert position(session.continue_()) == (4, "")
    assert hit_nodes(session)[:4] == [FORWARD[2], LOSS, *GRADIENTS]
    # Values of what nobody watched are there, too.
    assert session.tensor(FORWARD[1]).numpy().shape == (32, 16)
    back = [position(session.previous_node())[1] for _ in OPERATORS]
    assert back == list(reversed(OPERATORS))
    session.delete_watchpoints()
    assert session.continue_().wait(PATIENCE_S).state is State.FINISHED


def test_a_watchpoint_that_is_set_within_a_step_counts_for_what_comes(walk: Walk) -> None:
    _, session = walk(steps=3)
    assert position(session.next_node()) == (1, FORWARD[0])
    session.watch("tensor_too_large", on=f"name:{LOSS}", max_gt=-1e9)
    assert position(session.run_to(UPDATES[0])) == (1, LOSS)
    assert hit_nodes(session) == [LOSS]
    assert position(session.previous_node()) == (1, FORWARD[2])
    assert session.recheck().wait(PATIENCE_S).hits == 0
    assert position(session.continue_()) == (1, "")
    assert hit_nodes(session) == [LOSS]


def test_an_operator_that_runs_in_some_steps_only_is_reached_when_it_runs(walk: Walk) -> None:
    _, session = walk(steps=6, network={"other_at": (2, 5)})
    assert position(session.step(2)) == (2, "")
    assert position(session.run_to(SPLIT)) == (5, SPLIT)
    assert position(session.next_node()) == (5, "Default/Concat-op0")
    assert position(session.previous_node()) == (5, SPLIT)


def test_what_goes_into_an_operator_is_what_its_source_made(walk: Walk) -> None:
    _, session = walk(steps=3, outputs_alone=True)
    known = truth(2)
    assert position(session.step()) == (1, "")
    assert position(session.run_to(FORWARD[2])) == (2, FORWARD[2])
    active, weight = (record for record in session.tensors(FORWARD[2]) if record.io == "input")
    assert (active.step, weight.step) == (2, 1)
    np.testing.assert_array_equal(session.tensor(FORWARD[2], io="input").numpy(), known[2, FORWARD[1]])
    np.testing.assert_array_equal(session.tensor(weight.address).numpy(), known[1, WEIGHTS[1]])


def test_the_ranks_of_a_job_go_back_together(walk: Walk) -> None:
    ranks = [walk(steps=4, job="cursor-ranks", rank=rank, world_size=2, waits=bool(rank)) for rank in (0, 1)]
    session = ranks[0][1]
    assert position(session.step(2)) == (2, "")
    assert position(session.previous_node()) == (2, OPERATORS[-1])
    assert [rank.node for rank in session.summary.ranks] == [OPERATORS[-1]] * 2
    assert position(session.previous_node(rank=1)) == (2, OPERATORS[-1])
    assert [rank.node for rank in session.summary.ranks] == [OPERATORS[-1], OPERATORS[-2]]
    assert position(session.step()) == (2, "")
    assert [scene.steps for scene, _ in ranks] == [2, 2]
    assert session.continue_().wait(PATIENCE_S).state is State.FINISHED


def test_a_training_whose_server_goes_away_at_an_operator_goes_on(tmp_path: Path) -> None:
    with running_server(tmp_path / "workspace") as server:
        settings = settings_for(server, job="cursor-alone", break_at_start=True, connect_within_s=0.5)
        scene = Scene(settings, 4, cursor=True).start()
        with tensight.connect(server.url) as person:
            session = session_named(person, "cursor-alone")
            session.wait(PATIENCE_S)
            assert position(session.next_node()) == (1, OPERATORS[0])
    assert scene.finish() == 4


def test_before_the_first_step_there_is_no_way_back(walk: Walk) -> None:
    _, session = walk(steps=2)
    with pytest.raises(StateError, match="no operator has run yet"):
        session.previous_node()
    assert position(session.next_node()) == (1, OPERATORS[0])


def test_a_training_that_is_terminated_at_an_operator_ends(walk: Walk) -> None:
    scene, session = walk(steps=5)
    assert position(session.next_node()) == (1, OPERATORS[0])
    session.terminate()
    assert isinstance(scene.finish(), SystemExit)
    assert session.wait(PATIENCE_S).state is State.TERMINATED


def test_an_adapter_that_shows_whole_steps_is_never_asked_to_stop_within_one(walk: Walk) -> None:
    scene, session = walk(steps=3)
    assert position(session.next_node()) == (1, OPERATORS[0])
    assert not scene.debugger.agent.stops_at_nodes


def cursor_of(*nodes: TracedNode, seen: Sequence[str]) -> tuple[NodeCursor, dict[str, int]]:
    """A cursor at the end of a step that ran these nodes, and the slot ids of those that are not operators."""
    table = SlotTable()
    slot_ids = {node.name: table.slot_id(table.node(node.name, node.type, node.role), 0) for node in nodes}
    cursor = NodeCursor(table)
    cursor.begin(Program("kernel_graph_0", 0, nodes), [slot_ids[name] for name in seen], ())
    return cursor, slot_ids


def traced(name: str, type_: str, *sources: str, role: Role = "operator") -> TracedNode:
    return TracedNode(name, type_, role, tuple((source, 0) for source in sources), (OutputSlot.of_tensor(43, (2,)),))


def walked(cursor: NodeCursor, slot_ids: dict[str, int], name: str) -> str:
    """The operator from which on something has its value of the step; "start" or "end" if that is none."""
    cursor.rewind()
    cursor.follow(Order(None, at_nodes=True))
    if cursor.has_run(slot_ids[name]):
        return "start"
    while not cursor.has_run(slot_ids[name]):
        cursor.follow(Order(None, at_nodes=True))
    return cursor.node or "end"


def test_what_lasts_has_its_value_from_the_operator_that_writes_it() -> None:
    cursor, slot_ids = cursor_of(
        traced("weight", "Parameter", role="weight"),
        traced("moments.weight", "Parameter", role="state"),
        traced("alone.weight", "Parameter", role="weight"),
        traced("frozen.weight", "Parameter", role="frozen_weight"),
        traced("moving_mean", "Parameter", role="buffer"),
        traced("batch", "Parameter", role="input"),
        traced("Default/Load-op0", "Load", "weight"),
        traced("Default/Load-op1", "Load", "moving_mean"),
        traced("Default/MatMul-op0", "MatMul", "batch", "Default/Load-op0"),
        traced("Default/MatMul-op1", "MatMul", "Default/MatMul-op0", "alone.weight"),
        traced("Default/BatchNorm-op0", "BatchNorm", "Default/MatMul-op1", "Default/Load-op1"),
        traced("Gradients/MatMulGrad-op0", "MatMul", "Default/BatchNorm-op0", "weight"),
        traced("Default/optimizer-Momentum/Mul-op0", "Mul", "weight"),
        traced("Default/optimizer-Momentum/ApplyMomentum-op0", "ApplyMomentum", "weight", "moments.weight"),
        traced("Default/Loss-op0", "Mul", "weight", "Default/BatchNorm-op0"),
        seen=(
            "Default/MatMul-op0",
            "Default/MatMul-op1",
            "Default/BatchNorm-op0",
            "Gradients/MatMulGrad-op0",
            "Default/optimizer-Momentum/Mul-op0",
            "Default/optimizer-Momentum/ApplyMomentum-op0",
            "Default/Loss-op0",
        ),
    )
    expected = {
        "weight": "Default/optimizer-Momentum/ApplyMomentum-op0",
        "moments.weight": "Default/optimizer-Momentum/ApplyMomentum-op0",
        "alone.weight": "end",
        "frozen.weight": "start",
        "batch": "start",
        "moving_mean": "Default/BatchNorm-op0",
        "Default/MatMul-op1": "Default/MatMul-op1",
    }
    assert {name: walked(cursor, slot_ids, name) for name in expected} == expected


def test_operators_of_a_branch_that_was_not_taken_are_passed_over_but_not_those_without_results() -> None:
    taken, other = traced("Default/Add-op0", "Add"), traced("Default/Sub-op0", "Sub")
    silent = TracedNode("Default/Print-op0", "Print")
    # Its output is whatever was in memory, and never seen.
    update = traced("Default/optimizer-Adam/Adam-op0", "Adam")
    cursor, _ = cursor_of(taken, other, silent, update, seen=(taken.name,))
    for node in (update, silent, taken):
        assert cursor.follow(Order(None, at_nodes=True, back=True))
        assert cursor.node == node.name


def test_a_step_of_which_no_operator_was_seen_has_only_its_end() -> None:
    cursor, _ = cursor_of(traced("Default/Add-op0", "Add"), seen=())
    assert cursor.follow(Order(None, at_nodes=True, back=True))
    assert (cursor.node, cursor.is_within) == ("", False)
    assert not cursor.follow(Order(None, at_nodes=True))
