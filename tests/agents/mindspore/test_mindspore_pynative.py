"""Trainings on MindSpore in PyNative mode, in processes of their own, and what a person sees of them."""

from __future__ import annotations

import itertools
import os
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tensight
from tests.processes.forked import MINDSPORE, popen
from tests.server.running import RunningServer, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensight.client import Session


PATIENCE_S = 120.0
SCRIPT = Path(__file__).with_name("pynative_training.py")
ENVIRONMENTS = Path(__file__).resolve().parents[3] / ".venvs"

_jobs = itertools.count(1)


def python(version: str) -> Path:
    return ENVIRONMENTS / f"mindspore-{version}" / "bin" / "python"


def quiet() -> dict[str, str]:
    return {**os.environ, "GLOG_v": "3"}


def run(version: str, folder: Path, *options: str) -> dict[str, Any]:
    """Train without the debugger, and return what the training kept."""
    folder.mkdir()
    command = [str(python(version)), str(SCRIPT), str(folder), *options]
    ended = subprocess.run(command, env=quiet(), capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert ended.returncode == 0, ended.stderr
    return kept(folder)


def kept(folder: Path) -> dict[str, Any]:
    with np.load(folder / "kept.npz") as arrays:
        return dict(arrays)


def equal(one: Any, other: Any) -> bool:
    """Whether two arrays have the same bits."""
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


@pytest.fixture(scope="module")
def pynative_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("pynative") / "workspace") as server:
        yield server


class Training:
    """A training that is debugged; it waits before its first step.

    Attributes
    ----------
    session : Session
    process : Popen
    folder : Path
    """

    def __init__(self, session: Session, process: subprocess.Popen[str], folder: Path) -> None:
        self.session = session
        self.process = process
        self.folder = folder

    def end(self) -> tuple[int, str]:
        """Wait for its end, and return its exit code and what it wrote to stderr."""
        _, errors = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, errors


@contextmanager
def debugged(server: RunningServer, version: str, folder: Path, *options: str) -> Iterator[Training]:
    folder.mkdir()
    job = f"pynative-{next(_jobs)}"
    command = [str(python(version)), str(SCRIPT), str(folder), "--server", str(server.debugger), "--job", job, *options]
    process = popen(command, MINDSPORE, env=quiet(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        with tensight.connect(server.url) as connection:
            session = connection.wait_for_session(PATIENCE_S, name=job)
            session.wait(PATIENCE_S)
            yield Training(session, process, folder)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_a_nan_stops_the_training_at_its_step_its_cell_and_its_line(
    pynative_server: RunningServer, tmp_path: Path
) -> None:
    with debugged(pynative_server, "2.10", tmp_path / "sick", "--sick-from", "3") as training:
        session = training.session
        session.watch_recommended()
        record = session.continue_().wait(PATIENCE_S)
        assert record.step == 4
        assert "Default/stretch/Stretch-op0" in [hit.node for hit in session.hits()]
        origin = session.origins()[0]
        assert origin.node == "Default/stretch/Stretch-op0"
        assert [frame.code for frame in origin.stack[:2]] == [
            "def construct(self, x: Tensor) -> Tensor:",
            "x = self.stretch(x)",
        ]
        seen = session.tensor("Default/stretch/Stretch-op0").numpy()
        session.terminate()
        training.end()
        assert np.isnan(seen).any()
        assert equal(seen, kept(training.folder)["3/stretched"])


@pytest.mark.long
@pytest.mark.parametrize(("version", "optimizer"), [("2.10", "adam"), ("2.7", "momentum")])
def test_values_gradients_and_updates_are_those_of_the_training(
    pynative_server: RunningServer, tmp_path: Path, version: str, optimizer: str
) -> None:
    state = "moments" if optimizer == "momentum" else "moment1"
    with debugged(pynative_server, version, tmp_path / "seen", "--optimizer", optimizer) as training:
        session = training.session
        seen: dict[str, Any] = {"-1/stem.weight": session.tensor("stem.weight").numpy()}
        for step in range(3):
            session.step().wait(PATIENCE_S)
            for what, node in (
                ("x", "stem_input_0"),
                ("loss", "Default/CrossEntropyLoss/CrossEntropyLoss-op0"),
                ("logits", "Default/head/Dense-op0"),
                ("stretched", "Default/stretch/Stretch-op0"),
                ("gradient of stem.weight", "Gradients/Default/stem/weight/AccumulateGrad-op0"),
                ("gradient of head.bias", "Gradients/Default/head/bias/AccumulateGrad-op0"),
                ("stem.weight", "stem.weight"),
                ("blocks.0.bn.moving_mean", "blocks.0.bn.moving_mean"),
            ):
                seen[f"{step}/{what}"] = session.tensor(node).numpy()
            if step:
                assert equal(session.tensor("stem.weight").previous.numpy(), seen[f"{step - 1}/stem.weight"])
        nodes = {found.entry.path for found in session.nodes()}
        curves = {one.name: dict(zip(one.steps, one.values, strict=True)) for one in session.curves().curves}
        update = session.node(f"Optimizer/stem/weight/Apply{optimizer.title()}-op0")
        relu = session.node("Default/blocks/0/relu/ReLU-op0")
        session.continue_()
        assert training.end()[0] == 0
        theirs = kept(training.folder)
    assert {what: equal(value, theirs[what]) for what, value in seen.items()} == dict.fromkeys(seen, True)
    for step in range(3):
        gradients = [value for name, value in theirs.items() if name.startswith(f"{step}/gradient of ")]
        norm = np.sqrt(sum(float(np.square(value, dtype=float).sum()) for value in gradients))
        assert curves["loss"][step + 1] == pytest.approx(float(theirs[f"{step}/loss"]), rel=1e-6)
        assert curves["gradient_norm"][step + 1] == pytest.approx(norm, rel=1e-5)
        assert curves["learning_rate"][step + 1] == 0.01
    assert {f"{state}.stem.weight", "Gradients/Default/head/DenseGrad-op0", "Default/Loss-op0"} <= nodes
    assert update.stack[0].code == "optimizer(gradients)"
    assert relu.stack[0].code == "return self.relu(self.bn(self.conv(x)) + x)"


@pytest.mark.long
@pytest.mark.parametrize(
    ("version", "style", "more"),
    [("2.10", "functional", ("--jit",)), ("2.10", "wrapped", ()), ("2.7", "wrapped", ("--jit",))],
)
def test_results_are_those_without_the_debugger(
    pynative_server: RunningServer, tmp_path: Path, version: str, style: str, more: tuple[str, ...]
) -> None:
    options = ("--style", style, *more)
    alone = run(version, tmp_path / "alone", *options)
    with debugged(pynative_server, version, tmp_path / "seen", *options) as training:
        session = training.session
        session.watch_recommended()
        session.watch("weight_change_too_small", on="all")
        session.step(2).wait(PATIENCE_S)
        nodes = {found.entry.path for found in session.nodes()}
        session.delete_watchpoints(*session.watchpoints())
        session.continue_()
        code, errors = training.end()
    assert code == 0, errors
    theirs = kept(training.folder)
    assert set(theirs) == set(alone)
    assert {what: equal(value, alone[what]) for what, value in theirs.items()} == dict.fromkeys(alone, True)
    assert {"Default/stem/Conv2d-op0", "Gradients/Default/blocks/1/relu/ReLUGrad-op0"} <= nodes
    assert ("Default/squashed-op0" in nodes) == bool(more)
    assert "jit" not in errors
