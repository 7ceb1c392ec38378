"""Lightning's and Transformers' trainers, debugged by a callback: what they call a step is one, and nothing changes."""

from __future__ import annotations

import importlib
import inspect
import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

import tensight
import tensight.torch
from tensight.analysis import Analysis, Anomaly, origins
from tensight.dumps import open_dump
from tensight.errors import InputError
from tensight.sessions.records import SessionRecord, State
from tests.agents.training_process import TrainingProcess

if TYPE_CHECKING:
    from types import ModuleType

    from tensight.client import Session
    from tests.server.running import RunningServer

pytestmark = pytest.mark.filterwarnings("ignore")  # of two large packages, which is not ours to heed
PATIENCE_S = 60.0

_jobs = itertools.count(1)


@pytest.fixture(scope="module")
def trainers() -> ModuleType:
    """The trainings, imported only here."""
    return importlib.import_module("tests.agents.pytorch.trainers")


def debugged(
    server: RunningServer, training: Callable[[dict[str, Any]], None], look: Callable[[Session], Any]
) -> tuple[SessionRecord, Any]:
    """Train with a person who sets a watchpoint and looks at what there is when the training stands or has ended."""
    host, _, port = str(server.debugger).rpartition(":")
    job = f"callback-{next(_jobs)}"

    def person() -> tuple[SessionRecord, Any]:
        with tensight.connect(server.url) as connection:
            session = connection.wait_for_session(PATIENCE_S, name=job)
            session.wait(PATIENCE_S)
            session.watch("tensor_overflow", on="all")
            record = session.continue_().wait(PATIENCE_S)
            seen = look(session)
            if not record.state.has_ended:
                session.terminate()
            return record, seen

    with ThreadPoolExecutor(1) as threads:
        seen = threads.submit(person)
        try:
            training({"host": host, "port": int(port), "job": job, "break_at_start": True})
        except SystemExit:
            """The person ended it."""
        return seen.result(PATIENCE_S)


def parameters_of(session: Session) -> set[str]:
    return {node.entry.path for node in session.nodes(kind="weight")}


@pytest.mark.parametrize("kind", ["Regression", "Wrapped"])
def test_lightning_trains_the_same_and_each_update_is_a_step(
    torch_server: RunningServer, trainers: ModuleType, kind: str, tmp_path: Path
) -> None:
    plain, model = (getattr(trainers, kind)() for _ in range(2))
    trainers.fit(plain, tmp_path, [])
    record, weights = debugged(
        torch_server,
        lambda settings: trainers.fit(model, tmp_path, [tensight.torch.LightningDebugger(**settings)]),
        parameters_of,
    )
    assert (record.state, record.step) == (State.FINISHED, 2 * trainers.ROWS // trainers.BATCH)
    assert weights == {f"network.{name}" for name in ("0.weight", "0.bias", "2.weight", "2.bias")}
    for name, value in plain.state_dict().items():
        assert torch.equal(value, model.state_dict()[name])


def test_lightning_accumulates_gradients_over_batches(
    torch_server: RunningServer, trainers: ModuleType, tmp_path: Path
) -> None:
    record, _ = debugged(
        torch_server,
        lambda settings: trainers.fit(
            trainers.Regression(), tmp_path, [tensight.torch.LightningDebugger(**settings)], accumulate_grad_batches=4
        ),
        lambda _: None,
    )
    assert (record.state, record.step) == (State.FINISHED, 2 * trainers.ROWS // trainers.BATCH // 4)


def test_lightning_with_two_optimizers_has_one_step_a_batch(
    torch_server: RunningServer, trainers: ModuleType, tmp_path: Path
) -> None:
    record, weights = debugged(
        torch_server,
        lambda settings: trainers.fit(
            trainers.TwoOptimizers(), tmp_path, [tensight.torch.LightningDebugger(**settings)]
        ),
        parameters_of,
    )
    assert record.state is State.FINISHED
    assert record.step in (2 * trainers.ROWS // trainers.BATCH, 4 * trainers.ROWS // trainers.BATCH)
    assert len(weights) == 4


def test_lightning_stops_where_a_watchpoint_hits(
    torch_server: RunningServer, trainers: ModuleType, tmp_path: Path
) -> None:
    record, (first, origin) = debugged(
        torch_server,
        lambda settings: trainers.fit(
            trainers.Regression(),
            tmp_path,
            [tensight.torch.LightningDebugger(**settings)],
            sick_from=5 * trainers.BATCH,
        ),
        lambda session: (session.hits()[0].node, session.origins()[0]),
    )
    assert (record.state, record.step) == (State.PAUSED, 6)
    assert first == "Default/network/0/Linear-op0"
    # Who has made what comes from outside nobody knows; that its line is the one that reads it is said.
    assert origin.arrived
    assert origin.sentence.endswith(f"; it is read by line {origin.line.line} of {Path(str(trainers.__file__)).name}")


LIGHTNING_SCRIPT = """
import torch
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader, TensorDataset
import tensight.torch

class Sick(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, number):
        return torch.log(self.layer(batch[0]) - 100 * (number == 2)).sum() if number else self.layer(batch[0]).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

callbacks = [tensight.torch.LightningDebugger(recommended=True)]
quiet = {"logger": False, "enable_checkpointing": False, "enable_model_summary": False}
trainer = Trainer(accelerator="cpu", max_epochs=1, callbacks=callbacks, **quiet)
trainer.fit(Sick(), DataLoader(TensorDataset(torch.ones(40, 4)), batch_size=4))
print("trained to the end")
"""


@pytest.mark.long
def test_lightning_ends_at_a_stop_when_it_is_told_to(torch_server: RunningServer, tmp_path: Path) -> None:
    (tmp_path / "sick_lightning.py").write_text(LIGHTNING_SCRIPT)
    host, _, port = str(torch_server.debugger).rpartition(":")
    environment = {**os.environ, "TENSIGHT_DEBUGGER_HOST": host, "TENSIGHT_DEBUGGER_PORT": port}
    command = [sys.executable, "sick_lightning.py"]
    with (
        TrainingProcess(command, tmp_path, environment=environment) as run,
        tensight.connect(torch_server.url) as person,
    ):
        session = person.wait_for_session(PATIENCE_S, name="sick_lightning")
        assert session.wait(PATIENCE_S).state is State.PAUSED
        run.process.terminate()
        outcome = run.outcome()
        assert session.wait(PATIENCE_S).state.has_ended
    assert "trained to the end" not in outcome.output
    assert any("Received SIGTERM" in line for line in outcome.errors)
    assert outcome.complaints == ["tensight: SIGTERM: the training goes on to its end, and is not stopped any more"]


def lines_of(function: Any) -> tuple[range, int]:
    """Return the lines of a function, and the one that is marked."""
    lines, first = inspect.getsourcelines(function)
    marked = next(first + at for at, line in enumerate(lines) if line.rstrip().endswith("# here"))
    return range(first, first + len(lines)), marked


@pytest.mark.sampled(2)
@pytest.mark.parametrize("trainer", ["lightning", "transformers"])
def test_what_a_network_computes_itself_is_a_range_of_its_lines_also_in_a_recording(
    torch_server: RunningServer, trainers: ModuleType, tmp_path: Path, trainer: str
) -> None:
    recording = tmp_path / "recording"

    def training(settings: dict[str, Any]) -> None:
        settings.update(record="ring:20", record_folder=str(recording))
        if trainer == "lightning":
            trainers.fit(trainers.Regression(sick_at=2), tmp_path, [tensight.torch.LightningDebugger(**settings)])
        else:
            trainers.train(trainers.Module(is_sick=True), tmp_path, [tensight.torch.TransformersDebugger(**settings)])

    record, found = debugged(torch_server, training, lambda session: session.origins()[0])
    assert (record.state, record.step) == (State.PAUSED, 3 if trainer == "lightning" else 1)
    function, marked = lines_of(
        trainers.Regression.training_step if trainer == "lightning" else trainers.Module.forward
    )
    assert found.line is not None
    assert found.line.line <= marked <= found.line.end_line, found.sentence
    assert {found.line.line, found.line.end_line} <= set(function), found.sentence
    lines = f"between lines {found.line.line} and {found.line.end_line} of {Path(str(trainers.__file__)).name}"
    assert lines in found.sentence
    (recorded,) = origins(Analysis(open_dump(recording)), [Anomaly.NAN])
    assert lines in recorded.sentence
    assert (recorded.operator, recorded.certain) == (found.node, found.certain)


def test_an_exception_of_the_script_passes_lightning_and_ends_the_session(
    torch_server: RunningServer, trainers: ModuleType, tmp_path: Path
) -> None:
    def training(settings: dict[str, Any]) -> None:
        with pytest.raises(ZeroDivisionError, match="the script's own"):
            trainers.fit(trainers.Regression(fails_at=3), tmp_path, [tensight.torch.LightningDebugger(**settings)])

    record, _ = debugged(torch_server, training, lambda _: None)
    assert (record.state, record.step) == (State.FINISHED, 3)


def test_transformers_trains_the_same_and_each_update_is_a_step(
    torch_server: RunningServer, trainers: ModuleType, tmp_path: Path
) -> None:
    plain, model = trainers.Module(), trainers.Module()
    trainers.train(plain, tmp_path, [])
    record, weights = debugged(
        torch_server,
        lambda settings: trainers.train(model, tmp_path, [tensight.torch.TransformersDebugger(**settings)]),
        parameters_of,
    )
    assert (record.state, record.step) == (State.FINISHED, 2 * trainers.ROWS // trainers.BATCH)
    assert weights == {f"network.{name}" for name in ("0.weight", "0.bias", "2.weight", "2.bias")}
    for name, value in plain.state_dict().items():
        assert torch.equal(value, model.state_dict()[name])


def test_transformers_accumulates_gradients_and_stops_where_a_watchpoint_hits(
    torch_server: RunningServer, trainers: ModuleType, tmp_path: Path
) -> None:
    def training(settings: dict[str, Any]) -> None:
        callback = tensight.torch.TransformersDebugger(**settings)
        trainers.train(trainers.Module(), tmp_path, [callback], sick_from=0, gradient_accumulation_steps=2)

    record, first = debugged(torch_server, training, lambda session: session.hits()[0].node)
    assert (record.state, record.step) == (State.PAUSED, 1)
    assert first == "Default/network/0/Linear-op0"


def test_settings_are_refused_where_the_script_names_them() -> None:
    for callback in (tensight.torch.LightningDebugger, tensight.torch.TransformersDebugger):
        with pytest.raises(InputError, match="the port of the debug server is 0"):
            callback(port=0)
        with pytest.raises(TypeError):
            callback(prot=50051)


@pytest.mark.long
def test_the_callback_is_one_of_the_package_that_the_script_uses() -> None:
    script = (
        "import warnings; warnings.simplefilter('ignore')\n"
        "import pytorch_lightning, tensight.torch\n"
        "print(issubclass(tensight.torch.LightningDebugger, pytorch_lightning.Callback))"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "True\n"
