"""What is recorded of a training is a dump that opens, in rings and whole; the training is never disturbed."""

from __future__ import annotations

import logging
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tensight.agents.core.notices import LOGGER
from tensight.agents.core.observation import Observation
from tensight.agents.core.program import Program, Source, TracedNode
from tensight.agents.core.reader import Framework
from tensight.agents.core.recording.recording import Recorder
from tensight.agents.core.retention import Retention
from tensight.agents.core.settings import AgentSettings
from tensight.dumps import open_dump, read_tensor
from tensight.graph import OutputSlot
from tensight.tensors import statistics
from tensight.wire import data_type_of
from tests.agents.numpy_training import FORWARD, LOSS, MOMENTS, ArrayReader, Network

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray


NUMPY = Framework("numpy", "2.3.0")


class RecordedTraining:
    """Trains and records what each node got and gave; values are noted for comparison."""

    def __init__(
        self, folder: Path | str, record: str, budget: int = 2**30, framework: Framework = NUMPY, **network: Any
    ) -> None:
        self.network = Network(**network)
        self.reader = ArrayReader()
        self.retention = Retention(self.reader, budget)
        self.observed = Observation(self.reader, self.retention)
        self.slot_table, self.columns = self.observed.slot_table, self.observed.columns
        settings = AgentSettings(record=record, record_folder=str(folder))
        self.recorder = Recorder(settings, framework, self.reader)
        self.programs: dict[tuple[str, ...], Program] = {}
        self.values: dict[tuple[str, int, str, int], NDArray[Any]] = {}
        self.record(-1, [])

    def train(self, steps: int) -> None:
        for _ in range(steps):
            iteration = self.network.steps
            self.columns.current_iteration = iteration
            self.retention.turn_over()
            nodes: list[TracedNode] = []
            self.observed.seen.clear()

            def see(
                name: str,
                type_: str,
                sources: tuple[Any, ...],
                inputs: tuple[Any, ...],
                outputs: Any,
                at: int = iteration,
            ) -> None:
                links: tuple[Source | None, ...] = tuple((one, 0) if isinstance(one, str) else one for one in sources)
                nodes.append(TracedNode(name, type_, "operator", links, tuple(map(slot_of, outputs))))  # noqa: B023
                for slot, value in enumerate(inputs):
                    self.observe(name, type_, slot, "input", value, at)
                for slot, value in enumerate(outputs):
                    self.observe(name, type_, slot, "output", value, at)

            self.network.step(see, self.reader.wrote)
            self.record(iteration, nodes)

    def observe(self, name: str, type_: str, slot: int, io: Any, value: NDArray[Any], iteration: int) -> None:
        slot_id = self.slot_table.slot_id(self.slot_table.node(name, type_), slot, io)
        self.observed.seen.append(slot_id)
        self.columns.scan(slot_id, value)
        self.retention.keep(slot_id, value)
        self.values[name, slot, io, iteration] = value.copy()

    def record(self, iteration: int, nodes: list[TracedNode]) -> None:
        names = tuple(node.name for node in nodes)
        parameters = dict(self.network.weights)
        parameters |= {f"momentum_buffer.{name}": value for name, value in self.network.moments.items()}
        for name, value in parameters.items():
            self.observe(name, "Parameter", 0, "output", value, iteration)
        if names not in self.programs:
            number = len(self.programs)
            traced = [
                TracedNode(name, "Parameter", "state" if name in MOMENTS else "weight", (), (slot_of(value),))
                for name, value in parameters.items()
            ]
            self.programs[names] = Program(f"kernel_graph_{number}", number, (*traced, *nodes))
        program = self.programs[names]
        self.recorder.record(program, self.observed)


def slot_of(value: NDArray[Any]) -> OutputSlot:
    return OutputSlot(data_type_of(value.dtype.name), value.dtype.name, value.shape)


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    logger = logging.getLogger(LOGGER)
    logger.addHandler(caplog.handler)
    level = logger.level
    logger.setLevel(logging.INFO)
    yield caplog
    logger.removeHandler(caplog.handler)
    logger.setLevel(level)


NAMES = {
    "Default/fc1/MatMul-op0": "Default/fc1/MatMul_fc1-op0",
    "Default/fc2/MatMul-op0": "Default/fc2/MatMul_fc2-op0",
    "Gradients/Default/fc1/MatMulGrad-op0": "Gradients/Default/fc1/MatMulGrad_fc1-op0",
    "Gradients/Default/fc2/MatMulGrad-op0": "Gradients/Default/fc2/MatMulGrad_fc2-op0",
}
"""Under which names the files of operators are recorded whose last part is that of another one, too."""


def as_recorded(name: str) -> str:
    return NAMES.get(name, name)


def recorded_values(folder: Path) -> dict[tuple[str, int, str, int], NDArray[Any]]:
    """All values of a dump by the name that the training gave the node, slot, io and iteration."""
    dump = open_dump(folder)
    assert dump.problems == []
    own_names = {recorded: name for name, recorded in NAMES.items()}
    found = {}
    for file in dump.tensors():
        graph = dump.graph_of(file)
        assert graph is not None, file
        assert file.node is not None, file
        node = graph.node(file.node)
        name = node.full_name or node.name
        found[own_names.get(name, name), file.slot, file.io, file.iteration] = read_tensor(file)
    return found


WEIGHTS_READ = [
    (node, 1, "input", 0)
    for node in (FORWARD[0], FORWARD[2], "Gradients/Default/fc1/MatMulGrad-op0", "Gradients/Default/fc2/MatMulGrad-op0")
]
"""Inputs that the optimizer has written to when the first step ends: from then on they are copied."""


def test_a_run_recorded_whole_opens_as_a_dump_with_every_value(tmp_path: Path) -> None:
    training = RecordedTraining(tmp_path / "run", "full")
    training.train(4)
    training.recorder.close()
    found = recorded_values(tmp_path / "run")
    assert found.keys() == training.values.keys() - set(WEIGHTS_READ)
    for key, value in found.items():
        np.testing.assert_array_equal(value, training.values[key])
    dump = open_dump(tmp_path / "run")
    about = dump.metadata
    assert (about.framework, about.framework_version, about.by_agent) == (*NUMPY[:2], True)
    assert dump.iterations() == (0, 1, 2, 3)
    assert dump.execution_order(0)[: len(FORWARD)] == tuple(FORWARD)
    assert set(NAMES) <= {node.name for graph in dump.graphs(0) for node in graph.operators}


def test_what_was_not_kept_is_recorded_with_its_statistics(tmp_path: Path, said: pytest.LogCaptureFixture) -> None:
    training = RecordedTraining(tmp_path / "run", "full", budget=0)
    training.train(2)
    assert [message for message in said.messages if "only statistics are recorded" in message]
    assert recorded_values(tmp_path / "run") == {}
    rows = open_dump(tmp_path / "run").recorded_tensors(iterations=[1])
    found = {(row.op_name, row.slot, row.io): row.recorded for row in rows}
    seen = {(as_recorded(key[0]), *key[1:3]): value for key, value in training.values.items() if key[3] == 1}
    assert found.keys() == seen.keys()
    for key, row in found.items():
        assert row is not None
        expected = statistics(seen[key])
        found_values = [row.values[name] for name in ("max", "avg", "zero count", "l2norm")]
        assert found_values == [expected.max, expected.mean, expected.zero_count, expected.l2_norm]
    assert training.recorder.value(LOSS, 0, "output", 1) is None
    assert "only its statistics" in training.recorder.why_missing(1)


def test_a_ring_holds_the_last_steps_and_nothing_else(tmp_path: Path) -> None:
    training = RecordedTraining(tmp_path / "run", "ring:3", other_at=(5, 6))
    for step in range(1, 9):
        training.train(1)
        first = max(step - 3, -1)
        assert training.recorder.oldest_iteration == first
        assert tuple(training.recorder._iterations) == tuple(range(first, step))
        dump = open_dump(tmp_path / "run")
        assert dump.problems == []
        assert dump.iterations() == tuple(range(max(first, 0), step))
        assert {file.iteration for file in dump.tensors()} == set(range(first, step))
    training.recorder.close()
    assert {path.name for path in (tmp_path / "run").iterdir()} == {".tensight-recording", "rank_0"}


def test_values_of_earlier_steps_are_read_back(tmp_path: Path) -> None:
    training = RecordedTraining(tmp_path / "run", "ring:4", other_at=(3,))
    training.train(6)
    for (name, slot, io, iteration), value in training.values.items():
        found = training.recorder.value(name, slot, io, iteration)  # type: ignore[arg-type]
        if iteration < 2:
            assert found is None
        else:
            np.testing.assert_array_equal(found, value)
    assert training.recorder.value("no such node", 0, "output", 4) is None
    assert training.recorder.why_missing(1) == "step 2 is not recorded; steps 3 to 6 are"


def test_a_value_that_somebody_has_damaged_is_missing(tmp_path: Path) -> None:
    training = RecordedTraining(tmp_path / "run", "full")
    training.train(1)
    for path in (tmp_path / "run").rglob("*Loss-op0*.output.*"):
        path.write_bytes(b"no array")
    assert training.recorder.value(LOSS, 0, "output", 0) is None
    assert training.recorder.value(FORWARD[1], 0, "output", 0) is not None


def test_a_program_that_has_grown_is_recorded_anew(tmp_path: Path) -> None:
    training = RecordedTraining(tmp_path / "run", "full")
    training.train(1)
    names, program = next(reversed(training.programs.items()))
    more = TracedNode("Default/Late-op0", "Late", "operator", ((LOSS, 0),))
    training.programs[names] = Program(program.name, program.number, (*program.nodes, more))
    training.recorder.learn(training.programs[names])
    training.recorder.learn(training.programs[names])
    assert "Default/Late-op0" in open_dump(tmp_path / "run").execution_order(0)
    np.testing.assert_array_equal(training.recorder.value(LOSS, 0, "output", 0), training.values[LOSS, 0, "output", 0])
    training.train(1)
    assert tuple(training.recorder._iterations) == (-1, 0, 1)


def test_without_recording_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    training = RecordedTraining("", "")
    training.train(2)
    training.recorder.learn(next(iter(training.programs.values())))
    training.recorder.close()
    assert not list(tmp_path.iterdir())
    assert training.recorder.oldest_iteration is None
    assert training.recorder.value(LOSS, 0, "output", 0) is None
    assert "no steps are recorded" in training.recorder.why_missing(0)


def test_the_same_tensor_at_several_places_is_one_file(tmp_path: Path) -> None:
    training = RecordedTraining(tmp_path / "run", "full")
    training.train(1)
    files = {file.op_name: file.path for file in open_dump(tmp_path / "run").tensors() if file.slot == 0}
    output = next(path for path in files.values() if ".ReLU-op0" in path and ".output." in path)
    assert Path(output).stat().st_nlink == 2  # the ReLU's output, the next MatMul's input


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path: Path, said: pytest.LogCaptureFixture) -> None:
    (tmp_path / "mine").write_text("mine")
    training = RecordedTraining(tmp_path, "full")
    training.train(1)
    assert not training.recorder.is_on
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert "is not empty, and not a recording of Tensight" in said.messages[-1]
    RecordedTraining(tmp_path / "mine", "full")
    assert "is not a folder" in said.messages[-1]


def test_an_earlier_recording_is_never_written_over(tmp_path: Path, said: pytest.LogCaptureFixture) -> None:
    RecordedTraining(tmp_path / "run", "full").train(1)
    again = RecordedTraining(tmp_path / "run", "full", seed=1)
    assert not again.recorder.is_on
    assert "contains a recording already" in said.messages[-1]
    assert recorded_values(tmp_path / "run").keys() >= {(LOSS, 0, "output", 0)}


def test_without_a_folder_there_is_a_new_one_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folders = []
    for _ in range(2):
        training = RecordedTraining("", "ring:2")
        training.train(1)
        folders.append(training.recorder.folder)
    assert folders[0] != folders[1]
    assert set(folders) == {path for path in tmp_path.iterdir() if path.name.startswith("tensight-recording-")}


def test_ranks_of_one_run_record_in_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    reader = ArrayReader()
    settings = AgentSettings(record="full", job="night run")
    ranks = [Framework("numpy", "2.3.0", rank=rank, world_size=2, device=rank) for rank in range(2)]
    recorders = [Recorder(settings, rank, reader) for rank in ranks]
    assert {recorder.folder for recorder in recorders} == {tmp_path / "tensight-recording-night-run"}
    second_run = [Recorder(settings, rank, reader) for rank in ranks]
    assert {recorder.folder for recorder in second_run} == {tmp_path / "tensight-recording-night-run-2"}
    dump = open_dump(tmp_path / "tensight-recording-night-run")
    assert dump.ranks == (0, 1)
    assert [device.rank for device in dump.devices()] == [0, 1]


def test_files_are_only_for_their_owner(tmp_path: Path) -> None:
    RecordedTraining(tmp_path / "run", "full").train(1)
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o700
    for path in (tmp_path / "run").rglob("*.npy"):
        assert path.stat().st_mode & 0o777 == 0o600


@pytest.fixture
def small_disk() -> Iterator[None]:
    """No file may grow beyond 2,000 bytes: what a full disk says, at the same points."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.usefixtures("small_disk")
def test_a_full_disk_ends_the_recording_and_not_the_training(tmp_path: Path, said: pytest.LogCaptureFixture) -> None:
    training = RecordedTraining(tmp_path / "run", "ring:9", width=64)
    training.train(3)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    training.train(3)
    assert not training.recorder.is_on
    told = [message for message in said.messages if "recording ends" in message]
    assert len(told) == 1
    assert "the training goes on" in told[0]
    assert "steps 0 to 3 are recorded" in told[0]
    assert training.recorder.value(LOSS, 0, "output", 2) is not None
    assert {key[3] for key in recorded_values(tmp_path / "run")} == {-1, 0, 1, 2}
    training.recorder.close()


def test_a_step_that_is_interrupted_while_it_is_written_leaves_no_half(tmp_path: Path) -> None:
    training = RecordedTraining(tmp_path / "run", "full")
    training.train(1)
    read = training.reader.host
    calls = []

    def interrupted(tensor: NDArray[Any]) -> NDArray[Any]:
        calls.append(tensor)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return read(tensor)

    training.reader.host = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        training.train(1)
    assert {key[3] for key in recorded_values(tmp_path / "run")} == {-1, 0}
    training.recorder.close()
    assert not (tmp_path / "run" / ".growing").exists()


def test_a_forked_process_writes_nothing(tmp_path: Path) -> None:
    training = RecordedTraining(tmp_path / "run", "full")
    training.train(1)
    child = os.fork()
    if not child:
        try:
            training.train(1)
            training.recorder.close()
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    training.train(1)
    assert {key[3] for key in recorded_values(tmp_path / "run")} == {-1, 0, 1}


def test_what_is_recorded_is_checked_and_traced_to_its_origin(tmp_path: Path) -> None:
    training = RecordedTraining(tmp_path / "run", "full", nan_at=3)
    training.train(4)
    training.recorder.close()
    told = tensight("check", tmp_path / "run", "--watch", "TO")
    assert FORWARD[2] in told
    assert as_recorded(FORWARD[2]) not in told
    told = tensight("origin", tmp_path / "run")
    assert FORWARD[2] in told
    assert as_recorded(FORWARD[2]) not in told


def tensight(*arguments: object) -> str:
    command = [sys.executable, "-m", "tensight", *map(str, arguments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout
