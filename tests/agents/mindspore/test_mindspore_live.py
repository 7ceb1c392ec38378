"""Graphs of MindSpore that are debugged while they train, by a person at a real server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tensight.sessions.errors import UnavailableError
from tests.agents.mindspore.mindspore_stage import PATIENCE_S, VERSIONS, Run, address, attached, name_of_job
from tests.agents.training_process import Outcome

if TYPE_CHECKING:
    from pathlib import Path

    from tensight.client import Session
    from tests.server.running import RunningServer


FIRST = "Default/network-WithLossCell/_backbone-Network/first-Dense/MatMul-op0"
SECOND = FIRST.replace("first", "second")
STYLES = ("cell", "model", "jit", "functional", "block", "callback")


@pytest.fixture(scope="module")
def alone(version: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What a training arrives at without the debugger, by its style."""
    known: dict[str, Outcome] = {}

    def outcome(style: str) -> Outcome:
        if style not in known:
            with Run(version, "--style", style, folder=tmp_path_factory.mktemp(style)) as run:
                known[style] = run.outcome()
            assert known[style].code == 0, known[style].errors
        return known[style]

    return outcome


@pytest.mark.long
@pytest.mark.parametrize(
    ("version", "style"),
    [*((VERSIONS[0], style) for style in STYLES), (VERSIONS[1], "model"), (VERSIONS[1], "functional")],
    indirect=["version"],
)
def test_results_are_those_without_the_debugger(
    mindspore_server: RunningServer, version: str, alone: Any, tmp_path: Path, style: str
) -> None:
    undisturbed = alone({"block": "cell", "callback": "model"}.get(style, style))
    job = name_of_job()
    with start(style, version, mindspore_server, job, tmp_path) as run, attached(mindspore_server, job) as session:
        session.wait(PATIENCE_S)
        session.watch_recommended()
        session.watch("weight_change_too_small", on="all")
        session.step(3).wait(PATIENCE_S)
        graphs = {record.name for record in session.graphs()}
        types = {found.entry.type for found in session.nodes()}
        watched = {point.condition: point.nodes for point in session.watchpoints()}
        session.delete_watchpoints(*session.watchpoints())
        session.continue_()
        outcome = run.outcome()
        record = session.wait(PATIENCE_S)
    assert (outcome.code, outcome.output) == (0, undisturbed.output), outcome.errors
    assert record.step == 12
    attached_line = (
        f"tensight: attached to the debug server; the training can be watched at {mindspore_server.url}/?run="
    )
    assert outcome.notices[0].startswith(attached_line)
    assert outcome.complaints == []
    assert {"MatMul", "ReLU", "ApplyMomentum"} <= types
    assert (watched["weight_growth"], watched["gradient_growth"]) == (2, 2)
    assert graphs


def start(style: str, version: str, server: RunningServer, job: str, folder: Path) -> Run:
    """Start a training that waits before its first step."""
    if style not in ("block", "callback"):
        options = ("--job", job, "--break-at-start")
        return Run(version, "--style", style, folder=folder, server=server, options=options)
    host, port = address(server)
    variables = {
        "TENSIGHT_DEBUGGER_HOST": host,
        "TENSIGHT_DEBUGGER_PORT": port,
        "TENSIGHT_JOB": job,
        "TENSIGHT_BREAK_AT_START": "1",
    }
    return Run(version, "--style", style, folder=folder, variables=variables)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("version", "style"), [(VERSIONS[0], "cell"), (VERSIONS[0], "functional")])
def test_a_layer_that_no_optimizer_was_given_is_found(
    mindspore_server: RunningServer, version: str, tmp_path: Path, style: str
) -> None:
    job = name_of_job()
    options, arguments = ("--job", job, "--break-at-start"), ("--style", style, "--head-only", "forgotten")
    with (
        Run(version, *arguments, folder=tmp_path, server=mindspore_server, options=options) as run,
        attached(mindspore_server, job) as session,
    ):
        session.wait(PATIENCE_S)
        session.watch_recommended()
        record = session.continue_().wait(PATIENCE_S)
        weights = {found.entry.path for found in session.nodes(kind="weight")}
        hits = {(hit.node, hit.tensors[0].hits[0].condition) for hit in session.hits()}
        session.terminate()
        run.outcome()
    assert weights == {"first.weight", "first.bias", "second.weight", "second.bias"}
    assert (record.step, hits) == (10, {("first.weight", "weight_not_changed")})


@pytest.mark.long
def test_a_layer_that_is_frozen_is_none(mindspore_server: RunningServer, tmp_path: Path) -> None:
    job = name_of_job()
    options = ("--job", job, "--break-at-start")
    with (
        Run(VERSIONS[0], "--head-only", "frozen", folder=tmp_path, server=mindspore_server, options=options) as run,
        attached(mindspore_server, job) as session,
    ):
        session.wait(PATIENCE_S)
        session.watch_recommended()
        record = session.continue_().wait(PATIENCE_S)
        weights = {found.entry.path for found in session.nodes(kind="weight")}
        outcome = run.outcome()
    assert outcome.code == 0
    assert (record.step, weights) == (12, {"second.weight", "second.bias"})


def test_the_variables_of_the_original_are_enough(
    mindspore_server: RunningServer, version: str, tmp_path: Path
) -> None:
    host, port = address(mindspore_server)
    job = name_of_job()
    variables = {
        "ENABLE_MS_DEBUGGER": "1",
        "MS_DEBUGGER_HOST": host,
        "MS_DEBUGGER_PORT": port,
        "MS_DEBUGGER_PARTIAL_MEM": "1",
        "TENSIGHT_JOB": job,
    }
    with (
        Run(version, folder=tmp_path, variables=variables) as run,
        attached(mindspore_server, job) as session,
    ):
        assert session.wait(PATIENCE_S).step == 0
        session.watch("tensor_overflow", on="all")
        assert session.step(2).wait(PATIENCE_S).step == 2
        session.terminate()
        outcome = run.outcome()
    assert outcome.code == 0
    assert outcome.output == ["step 1"]
    assert outcome.notices[-1] == "tensight: terminated from the debug server"


@pytest.mark.long
@pytest.mark.parametrize(
    ("version", "style", "width"),
    [
        # So wide that weights are scanned while other operators run.
        *[(version, "jit", "65536") for version in VERSIONS],
        *[(version, "branch", "16") for version in VERSIONS],
        ("2.10", "functional", "16"),
        ("2.7", "between", "16"),
    ],
    indirect=["version"],
)
def test_what_a_person_sees_are_the_values_of_the_training(
    mindspore_server: RunningServer, version: str, tmp_path: Path, style: str, width: str
) -> None:
    job = name_of_job()
    arguments = ("--style", style, "--save", str(tmp_path), "--steps", "4", "--width", width)
    options = ("--job", job, "--break-at-start")
    with (
        Run(version, *arguments, folder=tmp_path, server=mindspore_server, options=options) as run,
        attached(mindspore_server, job) as session,
    ):
        session.wait(PATIENCE_S)
        session.watch_recommended()
        initial = {name: session.tensor(name).numpy() for name in ("first.weight", "second.bias")}
        seen, means = [], []
        for _ in range(3):
            session.step().wait(PATIENCE_S)
            seen.append(everything(session))
            means.append([session.tensor(name).statistics().mean for name in initial])
        before = {name: session.tensor(name).previous.numpy() for name in initial}
        curves = {one.name: dict(zip(one.steps, one.values, strict=True)) for one in session.curves().curves}
        session.delete_watchpoints(*session.watchpoints())
        session.continue_()
        assert run.outcome().code == 0
    for step, values in enumerate(seen, start=1):
        saved = dict(np.load(tmp_path / f"{step}.npz"))
        # Of a branch MindSpore dumps no parameters; and what an update puts out is its weight once more.
        saved["updated second.bias"] = saved["second.bias"]
        assert set(values) < set(saved)
        for name, value in values.items():
            assert value.tobytes() == saved[name].tobytes(), (step, name)
        np.testing.assert_allclose(means[step - 1], [saved[name].mean(dtype=float) for name in initial])
        loss = float(saved["loss"])
        assert curves["loss"][step] == (pytest.approx(loss, rel=1e-6) if np.isfinite(loss) else None)
        assert curves["learning_rate"][step] == 0.1
    assert {name: value.tobytes() for name, value in before.items()} == {
        name: seen[1][name].tobytes() for name in before
    }
    assert all(initial[name].tobytes() != seen[0][name].tobytes() for name in initial)


@pytest.mark.long
def test_where_memory_is_short_gradients_and_parameters_are_seen(
    mindspore_server: RunningServer, version: str, tmp_path: Path
) -> None:
    job = name_of_job()
    arguments = ("--style", "jit", "--save", str(tmp_path), "--steps", "4")
    options = ("--job", job, "--break-at-start", "--partial-memory")
    with (
        Run(version, *arguments, folder=tmp_path, server=mindspore_server, options=options) as run,
        attached(mindspore_server, job) as session,
    ):
        session.wait(PATIENCE_S)
        session.watch("tensor_too_large", on="all", max_gt=1e9)
        assert session.step(3).wait(PATIENCE_S).step == 3
        weight = session.tensor("first.weight").numpy()
        gradients = [
            tensor.statistics
            for found in session.nodes()
            if found.entry.path.startswith("Gradients/") and found.entry.type == "MatMul"
            for tensor in session.tensors(found.entry.path)
            if tensor.io == "output"
        ]
        session.continue_()
        assert run.outcome().code == 0
    saved = np.load(tmp_path / "3.npz")["first.weight"]
    np.testing.assert_array_equal(weight, saved)
    assert gradients
    assert None not in gradients


def everything(session: Session) -> dict[str, Any]:
    """Return what a person can see of a step that the script has saved, too."""
    names = ("first.weight", "second.bias", "moments.first.weight")
    values = {name: session.tensor(name).numpy() for name in names}
    nodes = [found.entry for found in session.nodes()]
    loss = next(node.path for node in nodes if node.type == "SparseSoftmaxCrossEntropyWithLogits")
    values["loss"] = session.tensor(loss).numpy()
    updates = {session.node(node.path).inputs[0].peer: node.path for node in nodes if node.type == "ApplyMomentum"}
    # weight, moment, learning rate, gradient, momentum
    values["gradient.second.weight"] = session.tensor(updates["second.weight"], slot=3, io="input").numpy()
    values["updated second.bias"] = session.tensor(updates["second.bias"]).numpy()
    return values


def test_a_fault_stops_the_training_at_its_step_and_its_line_and_is_gone_through_node_by_node(
    mindspore_server: RunningServer, version: str, tmp_path: Path
) -> None:
    job = name_of_job()
    options = ("--job", job, "--break-at-start")
    with (
        Run(version, "--inf-at", "5", folder=tmp_path, server=mindspore_server, options=options) as run,
        attached(mindspore_server, job) as session,
    ):
        session.wait(PATIENCE_S)
        session.watch_recommended()
        assert session.continue_().wait(PATIENCE_S).step == 5
        hits = [(hit.node, hit.step) for hit in session.hits()]
        origin = next(origin for origin in session.origins() if origin.anomaly == "nan")
        session.recheck().wait(PATIENCE_S)
        again = [(hit.node, hit.step) for hit in session.hits()]
        session.previous_node("Default/network-WithLossCell/_backbone-Network/relu-ReLU/ReLU-op0").wait(PATIENCE_S)
        at_relu = session.summary.node
        weight_before = session.tensor("first.weight").previous.numpy()
        with pytest.raises(UnavailableError):
            session.tensor("first.weight").numpy()
        paths = [found.entry.path for found in session.nodes("MatMul")]
        reader = next(path for path in paths if session.node(path).inputs[1].peer == "first.weight")
        as_read = session.tensor(next(one.address for one in session.tensors(reader) if one.slot == 1))
        weight_read, largest = as_read.numpy(), as_read.locate("largest").index
        session.previous_node().wait(PATIENCE_S)
        session.next_node().wait(PATIENCE_S)
        assert session.summary.node == at_relu
        session.terminate()
        outcome = run.outcome()
    assert (FIRST, 5) in hits
    np.testing.assert_array_equal(weight_read, weight_before)
    assert largest == tuple(map(int, np.unravel_index(np.abs(weight_before).argmax(), weight_before.shape)))
    assert again == hits
    # Inf times a weight is Inf; the difference of two is no number.
    assert origin.node == SECOND
    assert origin.line is not None
    assert origin.line.code == "return self.second(self.relu(self.first(pictures)))"
    assert at_relu.endswith("ReLU-op0")
    # At the operator that reads it the weight is that of the step before: its update comes later.
    assert np.isfinite(weight_before).all()
    assert outcome.code == 0
    assert outcome.output == [f"step {step}" for step in range(1, 5)]


@pytest.mark.long
def test_evaluations_between_the_steps_are_no_steps(
    mindspore_server: RunningServer, version: str, tmp_path: Path
) -> None:
    job = name_of_job()
    options = ("--job", job, "--break-at-start")
    with (
        Run(version, "--evaluate", "--steps", "5", folder=tmp_path, server=mindspore_server, options=options) as run,
        attached(mindspore_server, job) as session,
    ):
        session.wait(PATIENCE_S)
        assert session.step(3).wait(PATIENCE_S).step == 3
        session.continue_()
        outcome = run.outcome()
        assert session.wait(PATIENCE_S).step == 5
    assert outcome.code == 0
