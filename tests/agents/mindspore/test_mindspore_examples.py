"""Each example on MindSpore, debugged live: its planted fault is found, and in a healthy training nothing is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tensight.sessions.records import State
from tests.agents.mindspore.example_trainings import PATIENCE_S, Debugged, debugged, planted_line, run
from tests.server.running import RunningServer, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tensight.client import Session


@dataclass(frozen=True)
class Place:
    """Where a fault shows.

    Attributes
    ----------
    step : int
        In which.
    condition : str
        Which recommended watchpoint finds it.
    node : str
        Regular expression for the node where it began.
    code : str
        On the line that is named; empty for the line that the script marks.
    """

    step: int
    condition: str
    node: str
    code: str = ""


FAULTS = {"lenet": "log-of-zero", "resnet": "float16-loss", "transformer": "empty-sentence", "gan": "frozen-layer"}
OPERATORS = {
    "lenet": Place(6, "unintended_overflow", r"HandWrittenLoss/Log-op\d+$"),
    "resnet": Place(6, "unintended_overflow", r"Default/Mul-op\d+$"),
    "transformer": Place(5, "unintended_overflow", r"/Div-op\d+$"),
    "gan": Place(10, "weight_not_changed", r"^generator\.hidden1\.weight$"),
}
CELLS = {
    "lenet": Place(6, "unintended_overflow", r"/HandWrittenLoss-op0$", "def construct(self, scores, digits)"),
    "transformer": Place(5, "unintended_overflow", r"/Transformer-op0$"),
    "gan": Place(5, "gradient_imbalance", r"/generator/hidden1/weight/"),
}
STEPS = 11
"""More than any recommended watchpoint waits for."""


@pytest.fixture(scope="module")
def examples_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("examples") / "workspace") as server:
        yield server


def found(session: Session) -> list[tuple[str, list[tuple[str, int, list[str]]]]]:
    """Return what hit, so that it can be compared."""
    return [
        (node.node, [(tensor.io, tensor.slot, [hit.condition for hit in tensor.hits]) for tensor in node.tensors])
        for node in session.hits()
    ]


def beginning(session: Session, condition: str) -> tuple[str, Any]:
    """Return the node where it began, and its line: of an overflow the origin, else the first tensor that hit."""
    if condition == "unintended_overflow":
        origin = session.origins()[0]
        return origin.node, origin.line
    first = session.hits()[0]
    return first.node, first.line


@pytest.mark.sampled(16)
@pytest.mark.parametrize(
    ("version", "example", "mode"),
    [
        *[("2.10", example, "graph") for example in FAULTS],
        ("2.10", "lenet", "pynative"),
        ("2.10", "gan", "pynative"),
        *[("2.7", example, "graph") for example in ("resnet", "transformer", "gan")],
        ("2.7", "transformer", "pynative"),
    ],
)
def test_the_planted_fault_is_found_at_its_step_operator_and_line(
    examples_server: RunningServer, version: str, example: str, mode: str
) -> None:
    place = (OPERATORS if mode == "graph" else CELLS)[example]
    with debugged(examples_server, version, example, "--mode", mode, "--fault", FAULTS[example]) as training:
        session = training.session
        session.watch_recommended()
        record = session.continue_().wait(PATIENCE_S)
        assert (record.state, record.step) == (State.PAUSED, place.step), found(session)
        assert any(hit.condition == place.condition for hit in session.hits()[0].tensors[0].hits), found(session)

        if mode == "graph" and example != "gan":
            # Only the layer that learns nothing has zeros that nobody meant.
            assert "all_zero" not in {origin.anomaly for origin in session.origins()}
        node, line = beginning(session, place.condition)
        assert re.search(place.node, node), found(session)[:5]
        assert line is not None
        if place.code:
            assert place.code in line.code
        else:
            assert line.line <= planted_line(example) <= (line.end_line or line.line), line

        before = found(session)
        session.recheck().wait(PATIENCE_S)
        assert found(session) == before
        if mode == "graph":
            the_operators_can_be_gone_through(session, place.step)
        the_training_can_be_ended(training)


def the_operators_can_be_gone_through(session: Session, step: int) -> None:
    """Go back by two operators, forward by one, and to one by its name."""
    last = session.previous_node().wait(PATIENCE_S)
    one_before = session.previous_node().wait(PATIENCE_S)
    assert (last.step, one_before.step) == (step, step)
    assert last.node
    assert one_before.node
    assert one_before.node != last.node
    assert session.next_node().wait(PATIENCE_S).node == last.node
    assert session.previous_node(one_before.node).wait(PATIENCE_S).node == one_before.node


def the_training_can_be_ended(training: Debugged) -> None:
    training.session.terminate()
    assert training.session.wait(PATIENCE_S).state is State.TERMINATED
    assert "terminated from the debug server" in training.finish().complained


@pytest.mark.long
@pytest.mark.parametrize("example", FAULTS)
def test_a_healthy_training_ends_as_without_the_debugger_and_nothing_hits(
    examples_server: RunningServer, tmp_path: Path, example: str
) -> None:
    options = ["--mode", "graph", "--steps", str(STEPS), "--save"]
    alone = run("2.10", example, *options, str(tmp_path / "alone.ckpt"))
    assert alone.code == 0, alone.complained
    saved = (tmp_path / "alone.ckpt").read_bytes()
    with debugged(examples_server, "2.10", example, *options, str(tmp_path / "debugged.ckpt")) as training:
        session = training.session
        session.watch_recommended()
        record = session.continue_(STEPS).wait(PATIENCE_S)
        assert (record.state, record.step, found(session)) == (State.PAUSED, STEPS, [])
        every_gradient_is_watched(session)
        weights = [node.entry.path for node in session.nodes(kind="weight") if node.entry.path.encode() in saved]
        assert len(weights) > 5
        # What is seen of the last step is what the training saved after it, in another process, to the last bit.
        assert not [name for name in weights if session.tensor(name).numpy().tobytes() not in saved]
        assert session.continue_().wait(PATIENCE_S).state is State.FINISHED
        ended = training.finish()
    assert ended.code == 0, ended.complained
    assert ended.printed == alone.printed
    assert (tmp_path / "debugged.ckpt").read_bytes() == saved


@pytest.mark.long
@pytest.mark.parametrize("example", ["transformer", "gan"])
def test_in_a_healthy_training_on_an_older_version_nothing_hits(examples_server: RunningServer, example: str) -> None:
    with debugged(examples_server, "2.7", example, "--mode", "graph", "--steps", str(STEPS)) as training:
        session = training.session
        session.watch_recommended()
        record = session.continue_(STEPS).wait(PATIENCE_S)
        assert (record.state, record.step, found(session)) == (State.PAUSED, STEPS, [])
        every_gradient_is_watched(session)
        session.continue_()
        ended = training.finish()
    assert ended.code == 0, ended.complained
    assert len(ended.printed.splitlines()) >= STEPS


def every_gradient_is_watched(session: Session) -> None:
    """A recommended watchpoint watches weights that are matrices, another one their gradients."""
    watched = {point.condition: point.nodes for point in session.watchpoints()}
    assert watched["gradient_growth"] == watched["weight_growth"] > 0
