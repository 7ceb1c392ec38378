"""What a person commands, a training that is debugged does: step, pause, go to an operator, watch, end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tensight.agents.core.agent import Terminated
from tensight.sessions.records import State
from tests.agents.agent_stage import until
from tests.agents.numpy_training import FORWARD, GRADIENTS, LOSS, SPLIT, WEIGHTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensight.client import Session
    from tests.agents.agent_stage import Scene

Debug = Callable[..., "tuple[Scene, Session]"] if TYPE_CHECKING else object

OPERATORS = [*FORWARD, *GRADIENTS, "Optimizer/fc1.weight/ApplyMomentum-op0", "Optimizer/fc2.weight/ApplyMomentum-op0"]


def hit_nodes(session: Session) -> list[str]:
    return [node.node for node in session.hits()]


def test_a_training_waits_before_its_first_step_and_goes_as_far_as_it_is_told(debug: Debug) -> None:
    scene, session = debug(steps=6)
    record = session.summary
    assert (record.state, record.step, scene.steps) == (State.PAUSED, 0, 0)
    assert session.step().wait(30).step == scene.steps == 1
    assert session.step(3).wait(30).step == scene.steps == 4
    record = session.continue_().wait(30)
    assert (record.state, record.step) == (State.FINISHED, 6)
    assert scene.finish() == 6


def test_a_training_that_may_run_at_the_start_does_not_wait(debug: Debug) -> None:
    scene, session = debug(steps=3, break_at_start=False)
    assert scene.finish() == 3
    assert session.wait(30).state is State.FINISHED


def test_a_hit_stops_the_training_at_the_end_of_the_step(debug: Debug) -> None:
    _, session = debug(steps=8, network={"nan_at": 4}, capture="modules")
    session.watch("tensor_overflow")
    record = session.continue_().wait(30)
    assert (record.state, record.step, record.node) == (State.PAUSED, 4, "")
    assert hit_nodes(session)[:4] == [FORWARD[2], LOSS, *GRADIENTS]


def test_a_hit_stops_the_training_at_the_operator_where_operators_are_captured(debug: Debug) -> None:
    scene, session = debug(steps=8, network={"nan_at": 4})
    session.watch("tensor_overflow")
    record = session.continue_().wait(30)
    assert (record.state, record.step, record.node) == (State.PAUSED, 4, FORWARD[2])
    assert hit_nodes(session) == [FORWARD[2]]
    session.delete_watchpoints()
    assert session.continue_().wait(30).state is State.FINISHED
    assert scene.finish() == 8


@pytest.mark.parametrize(("capture", "node"), [("ops", FORWARD[2]), ("modules", "")])
def test_a_training_stops_once_for_a_cause(debug: Debug, capture: str, node: str) -> None:
    _, session = debug(steps=8, network={"nan_at": 4}, capture=capture)
    session.watch("tensor_overflow")
    record = session.continue_().wait(30)
    assert (record.step, record.node, hit_nodes(session)[0]) == (4, node, FORWARD[2])
    # Nothing was reported before, whatever else hit in this step.
    assert record.ongoing is None
    record = session.continue_().wait(30)
    assert (record.state, record.step) == (State.FINISHED, 8)
    ongoing = record.ongoing
    assert ongoing is not None
    assert (ongoing.step, ongoing.since) == (8, 4)
    assert ongoing.tensors > len(FORWARD)


def test_a_training_stops_for_every_hit_where_somebody_wants_that(debug: Debug) -> None:
    _, session = debug(steps=3, capture="modules", stop_on="every")
    session.watch("tensor_too_large", on=f"name:{LOSS}", max_gt=0)
    assert [session.continue_().wait(30).step for _ in range(3)] == [1, 2, 3]


def test_going_on_step_by_step_shows_the_hits_of_each_that_stop_nothing(debug: Debug) -> None:
    _, session = debug(steps=6, capture="modules")
    session.watch("tensor_too_large", on=f"name:{LOSS}", max_gt=0)
    assert session.continue_().wait(30).step == 1
    for step in (2, 3):
        assert (session.step().wait(30).step, hit_nodes(session)) == (step, [LOSS])
    assert session.continue_(2).wait(30).step == 5
    assert session.recheck().wait(30).step == 5
    assert hit_nodes(session) == [LOSS]
    assert session.continue_().wait(30).state is State.FINISHED


def test_a_watchpoint_that_is_deleted_or_switched_off_hits_no_more(debug: Debug) -> None:
    _, session = debug(steps=8, capture="modules")
    watchpoint = session.watch("tensor_too_large", on=f"name:{LOSS}", max_gt=0)
    assert session.continue_().wait(30).step == 1
    assert session.continue_(stop_on="every").wait(30).step == 2
    session.change_watchpoint(watchpoint, enabled=False)
    assert session.step(2).wait(30).hits == 0
    session.change_watchpoint(watchpoint, enabled=True)
    assert session.continue_().wait(30).step == 5
    session.delete_watchpoints(watchpoint)
    assert session.continue_().wait(30).state is State.FINISHED


def test_watchpoints_are_checked_again_on_the_values_that_are_there(debug: Debug) -> None:
    _, session = debug(steps=4, capture="modules")
    assert session.step(2).wait(30).hits == 0
    session.watch("tensor_too_large", on="name:fc1.weight", max_gt=0)
    record = session.recheck().wait(30)
    assert (record.step, hit_nodes(session)) == (2, ["fc1.weight", "momentum_buffer.fc1.weight"])


def test_a_command_waits_for_a_check_that_is_under_way(debug: Debug) -> None:
    _, session = debug(steps=6, capture="modules")
    session.watch("tensor_too_large", on="name:fc1.weight", max_gt=0)
    for step in (1, 2, 3):
        session.recheck()
        assert session.step().wait(30).step == step


def test_a_step_that_is_checked_again_has_its_hits_again(debug: Debug) -> None:
    _, session = debug(steps=4)
    session.watch("tensor_too_large", max_gt=-1e9, on=f"name:^{WEIGHTS[0]}")
    assert session.continue_().wait(30).step == 1
    found = hit_nodes(session)
    assert WEIGHTS[0] in found
    session.recheck().wait(30)
    assert hit_nodes(session) == found


def test_initial_weights_are_checked_before_the_first_step_and_never_after(debug: Debug) -> None:
    _, session = debug(steps=4)
    session.watch("weight_initialization", zero_percentage_ge=100, on=f"name:^{WEIGHTS[0]}")
    session.watch("weight_initialization", max_gt=0.1, on=f"name:^{WEIGHTS[0]}")
    record = session.continue_().wait(30)
    assert (record.step, hit_nodes(session)) == (0, [WEIGHTS[0]])
    assert session.continue_().wait(30).state is State.FINISHED


def test_a_pause_stops_a_running_training_after_a_step_of_which_everything_is_there(debug: Debug) -> None:
    scene, session = debug(steps=10_000_000)
    session.continue_()
    until(lambda: scene.steps > 20, "the training runs")
    assert not scene.debugger.agent.capturing
    record = session.pause().wait(30)
    assert (record.state, record.step) == (State.PAUSED, scene.steps)
    assert session.tensor(FORWARD[1]).numpy().shape == (32, 16)
    assert session.tensor(WEIGHTS[0]).statistics().count == 128
    session.continue_()
    until(lambda: scene.steps > record.step + 20, "the training runs again")


def test_a_training_that_is_terminated_while_it_waits_ends(debug: Debug) -> None:
    scene, session = debug(steps=5)
    session.step().wait(30)
    session.terminate()
    outcome = scene.finish()
    assert isinstance(outcome, Terminated)
    assert not outcome.code
    assert session.wait(30).state is State.TERMINATED


def test_a_training_that_is_terminated_while_it_runs_ends(debug: Debug) -> None:
    scene, session = debug(steps=10_000_000)
    session.continue_()
    until(lambda: scene.steps > 20, "the training runs")
    session.terminate()
    assert isinstance(scene.finish(), Terminated)
    assert session.wait(30).state is State.TERMINATED


def test_a_script_that_goes_on_although_it_was_terminated_is_left_alone(debug: Debug) -> None:
    scene, session = debug(steps=5)
    session.terminate()
    scene.finish()
    scene.debugger.train(3)
    assert (scene.steps, scene.debugger.agent.capturing) == (3, False)


def test_a_person_goes_from_operator_to_operator(debug: Debug) -> None:
    scene, session = debug(steps=3)
    seen = [session.next_node().wait(30) for _ in range(4)]
    assert [(record.step, record.node) for record in seen] == [(1, node) for node in FORWARD]
    assert session.tensor(FORWARD[1]).numpy().min() == 0
    assert session.step().wait(30).node == ""
    assert session.summary.step == scene.steps == 1


def test_a_person_runs_to_an_operator(debug: Debug) -> None:
    scene, session = debug(steps=5)
    session.step().wait(30)
    for step in (2, 3):
        record = session.run_to(GRADIENTS[1]).wait(30)
        assert (record.step, record.node) == (step, GRADIENTS[1])
    assert [session.next_node().wait(30).node for _ in range(3)] == [*OPERATORS[6:], ""]
    assert session.continue_().wait(30).state is State.FINISHED
    assert scene.finish() == 5


def test_an_operator_that_runs_in_some_steps_only_is_reached_when_it_runs(debug: Debug) -> None:
    _, session = debug(steps=6, network={"other_at": (2, 5)})
    session.step(2).wait(30)
    record = session.run_to(SPLIT).wait(30)
    assert (record.step, record.node) == (5, SPLIT)


def test_a_step_that_computes_something_else_is_another_graph_and_does_not_stop_the_run(debug: Debug) -> None:
    scene, session = debug(steps=6, network={"other_at": (3,)}, capture="modules")
    session.watch("tensor_too_large", max_gt=1e30)
    assert session.continue_().wait(30).state is State.FINISHED
    assert scene.finish() == 6
    assert [graph.name for graph in session.graphs()] == ["kernel_graph_0", "kernel_graph_1"]
    assert session.node(SPLIT).name == SPLIT


def test_a_watchpoint_finds_operators_that_appear_later(debug: Debug) -> None:
    _, session = debug(steps=6, network={"other_at": (3,)}, capture="modules")
    session.watch("tensor_too_small", on="type:Split", max_lt=1e30)
    record = session.continue_().wait(30)
    assert (record.step, hit_nodes(session)) == (3, [SPLIT])


def test_the_ranks_of_a_job_go_step_by_step_together(debug: Debug) -> None:
    pairs = [debug(steps=5, job="numpy-ranks", framework={"rank": rank, "world_size": 2}) for rank in (0, 1)]
    scenes, session = [scene for scene, _ in pairs], pairs[0][1]
    record = session.step(2).wait(30)
    assert record.step == 2
    assert [scene.steps for scene in scenes] == [2, 2]
    assert session.tensor(FORWARD[1], rank=1).numpy().shape == (32, 16)
    assert session.continue_().wait(30).state is State.FINISHED
    assert [scene.finish() for scene in scenes] == [5, 5]


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_what_a_person_steps_to_is_all_there(debug: Debug, steps: int) -> None:
    _, session = debug(steps=5)
    session.step(steps).wait(30)
    rows = session.statistics()
    assert {row.node for row in rows} >= {*FORWARD, *GRADIENTS, *WEIGHTS}
    assert {row.step for row in rows} == {steps}
    assert session.tensor(GRADIENTS[0]).numpy().shape == (16, 4)
