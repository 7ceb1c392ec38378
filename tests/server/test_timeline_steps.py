"""An old MindSpore process with one graph: it arrives, runs step by step, and ends. Every message is accounted for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.standin.nodes import DENSE, GRAPH, WEIGHTS
from tests.standin.training import in_order

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.standin.attached import Attached

ARRIVAL = [
    "> SendMetadata version 2.0.0",
    "< SendMetadata version_matched true",
    "> SendGraph 1",
    "< SendGraph OK",
    "> WaitCMD step 0",
]


def steps(first: int, last: int) -> list[str]:
    """Return the story of a training that is told to run one step, again and again."""
    return [text for step in range(first, last + 1) for text in ("< WaitCMD run_cmd step 1", f"> WaitCMD step {step}")]


def test_a_process_sends_its_graph_and_waits_until_somebody_says_continue(attach: Callable[..., Attached]) -> None:
    training, session = attach()
    record = session.record()
    assert training.story() == ARRIVAL
    assert (record["state"], record["step"], record["backend"]) == ("paused", 0, "Ascend")
    assert record["framework"].lower() == "mindspore"
    assert record["framework_version"] == "2.0.0"
    assert [graph["name"] for graph in session.graphs()] == [GRAPH]
    assert set(session.nodes(name="weight")) >= {"conv1.weight", "fc1.weight"}
    assert session.nodes(type="MatMul")[0] == DENSE


def test_continue_by_steps_is_sent_as_single_steps_that_the_server_counts_down(
    attach: Callable[..., Attached],
) -> None:
    training, session = attach(steps=10)
    assert session.proceed(steps=3)["step"] == 3
    assert training.story() == ARRIVAL + steps(1, 3)
    assert session.proceed(steps=1)["step"] == 4
    assert training.story() == ARRIVAL + steps(1, 4)


def test_continue_without_end_runs_until_the_training_is_done(attach: Callable[..., Attached]) -> None:
    training, session = attach(steps=5)
    session.command("continue")
    assert training.finish() == 0
    end = ["< WaitCMD run_cmd step 1", "> SendMetadata training done"]
    story = training.story()
    assert story[: len(ARRIVAL) + 10] == ARRIVAL + steps(1, 5)
    assert story[len(ARRIVAL) + 10 : -2] == end
    assert story[-1] == "end"
    record = session.wait("finished")
    assert record["step"] == 5
    assert not record["capabilities"]["can_pause"]


def test_pause_takes_effect_at_the_next_step_and_sends_nothing(attach: Callable[..., Attached]) -> None:
    training, session = attach(steps=1_000_000)
    session.command("continue")
    training.wait_for("> WaitCMD step 3")
    session.command("pause")
    step = session.wait("paused")["step"]
    assert training.story() == ARRIVAL + steps(1, step)
    assert session.proceed(steps=2)["step"] == step + 2


def test_pause_ends_a_countdown(attach: Callable[..., Attached]) -> None:
    training, session = attach(steps=1_000_000)
    session.command("continue", steps=900_000)
    training.wait_for("> WaitCMD step 3")
    session.command("pause")
    step = session.wait("paused")["step"]
    assert step < 900_000
    assert session.proceed(steps=1)["step"] == step + 1


def test_terminate_ends_a_waiting_training(attach: Callable[..., Attached]) -> None:
    training, session = attach()
    session.proceed(steps=1)
    session.command("terminate")
    assert training.finish() == 0
    assert training.story()[-4:-1] == [
        "< WaitCMD exit true",
        "> SendMetadata training done",
        "< SendMetadata version_matched true",
    ] or training.story()[-4:-2] == ["< WaitCMD exit true", "> SendMetadata training done"]
    assert training.story()[-1] == "end terminated"
    record = session.wait("terminated")
    assert not record["capabilities"]["can_terminate"]


def test_terminate_ends_a_running_training_at_its_next_step(attach: Callable[..., Attached]) -> None:
    training, session = attach(steps=1_000_000)
    session.command("continue")
    training.wait_for("> WaitCMD step 2")
    session.command("terminate")
    assert training.finish() == 0
    assert in_order(training.story(), ["< WaitCMD run_cmd step 1", "< WaitCMD exit true", "end terminated"])
    session.wait("terminated")


def test_commands_are_refused_in_words_while_the_training_runs_and_after_it_ended(
    attach: Callable[..., Attached],
) -> None:
    training, session = attach(steps=1_000_000, hold=["in step#2"])
    session.command("continue")
    training.wait_for("hold in step")
    for action in ("recheck", "continue", "next_node"):
        answer = session.try_command(action)
        assert answer.status_code == 409
        assert answer.json()["error"]["code"] == "not-paused"
        assert answer.json()["error"]["message"]
    session.command("terminate")
    training.release()
    training.finish()
    session.wait("terminated")
    for action in ("continue", "pause", "recheck", "terminate"):
        assert session.try_command(action).status_code == 409


def test_a_finished_run_stays_listed_with_its_graph_and_values(attach: Callable[..., Attached]) -> None:
    training, session = attach(steps=2)
    session.proceed(steps=2)
    session.values(f"0/{GRAPH}/fc1.weight:0@2")
    session.command("continue")
    training.finish()
    session.wait("finished")
    assert [graph["name"] for graph in session.graphs()] == [GRAPH]
    assert set(session.nodes(kind="parameter")) >= set(WEIGHTS)
    assert session.values(f"0/{GRAPH}/fc1.weight:0@2").shape == (3, 32)


def test_what_happens_is_an_event_with_a_number(attach: Callable[..., Attached]) -> None:
    training, session = attach(steps=1)
    session.proceed(steps=1)
    session.command("continue")
    training.finish()
    session.wait("finished")
    events = session.events()
    assert [event["number"] for event in events] == list(range(1, len(events) + 1))
    states = [event["data"]["state"] for event in events if event["kind"] == "state"]
    assert in_order(states, ["connecting", "paused", "running", "paused", "running", "finished"])
    assert "graph" in [event["kind"] for event in events]
