"""What MindSpore dumps of optimizers whose operators write to parameters and leave their outputs alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from typer.testing import CliRunner

from tensight.analysis import Analysis, check, origins
from tensight.cli.app import app
from tensight.dumps import Dump, TensorFile, open_dump, read_tensor
from tensight.errors import InputError
from tensight.graph.operator_facts import UPDATED_IN_PLACE
from tensight.watchpoints import Selector, SelectorKind, Watchpoint, parse_watch
from tests.agents.mindspore.mindspore_stage import Run

if TYPE_CHECKING:
    from collections.abc import Iterable

pytestmark = pytest.mark.long


SCRIPT = Path(__file__).with_name("dumping_training.py")
UPDATES = {"Adam", "ApplyRMSProp"}
STEPS, WEIGHTS = 3, 4
ADAM, RMSPROP = 3 * STEPS * WEIGHTS, STEPS * WEIGHTS
"""Outputs of the updates: Adam declares three each, RMSProp one."""
NORMALIZATION = {(True, 1), (True, 2), (False, 1), (False, 2), (False, 3), (False, 4)}
"""Whether it trains, and what it then leaves alone."""


@pytest.fixture(scope="module")
def folder(version: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a training was dumped as `dump`, and its weights saved."""
    # MindSpore takes no path with a dot.
    folder = tmp_path_factory.mktemp("dumped")
    common = {
        "op_debug_mode": 0,
        "dump_mode": 0,
        "path": str(folder / "dump"),
        "net_name": "Net",
        "iteration": "all",
        "saved_data": "tensor",
        "input_output": 0,
        "kernels": [],
        "support_device": [0],
    }
    settings = {"common_dump_settings": common, "e2e_dump_settings": {"enable": True, "trans_flag": True}}
    (folder / "dump.json").write_text(json.dumps(settings))
    variables = {"MINDSPORE_DUMP_CONFIG": str(folder / "dump.json")}
    with Run(version, str(folder / "weights.npz"), folder=folder, variables=variables, script=SCRIPT) as run:
        outcome = run.outcome()
    assert outcome.code == 0, outcome.errors
    return folder


@pytest.fixture
def dump(folder: Path) -> Dump:
    return open_dump(folder / "dump")


def outputs_of_updates(files: Iterable[TensorFile]) -> list[TensorFile]:
    return [file for file in files if file.op_type in UPDATES and file.io == "output"]


def test_outputs_that_nobody_wrote_are_no_tensors(dump: Dump) -> None:
    assert not outputs_of_updates(dump.tensors())
    unwritten = dump.unwritten_tensors()
    assert {file.op_type for file in unwritten} == {*UPDATES, "BatchNorm"}
    assert len(unwritten) == ADAM + RMSPROP + len(NORMALIZATION)
    for file in (file for file in unwritten if file.slot == 0):
        assert file.node is not None
        written = dump.at(file.rank, file.graph_id, file.iteration, file.node, 0, "input")
        assert written is not None
        assert not np.array_equal(read_tensor(file), read_tensor(written)), "MindSpore writes it now"


def test_normalization_that_evaluates_leaves_what_it_writes_in_training(dump: Dump) -> None:
    found = [file for file in dump.unwritten_tensors() if file.op_type == "BatchNorm"]
    trained = min(file.graph_id for file in found)
    assert {(file.graph_id == trained, file.slot) for file in found} == NORMALIZATION


def test_outputs_of_other_updates_are_the_parameters_once_more(dump: Dump) -> None:
    parameters = {
        (file.graph_id, file.iteration, file.node): file for file in dump.tensors() if file.op_type == "Parameter"
    }
    found = set()
    for file in dump.tensors():
        if file.op_type in UPDATED_IN_PLACE and file.io == "output":
            graph = dump.graph_of(file)
            assert graph is not None
            source = graph.node(str(file.node)).inputs[file.slot].source
            parameter = parameters[file.graph_id, file.iteration, source]
            assert read_tensor(file).tobytes() == read_tensor(parameter).tobytes(), (file.op_type, file.slot)
            found.add(file.op_type)
    assert found == UPDATED_IN_PLACE


def test_the_parameters_have_what_the_training_arrived_at(dump: Dump, folder: Path) -> None:
    saved = dict(np.load(folder / "weights.npz"))
    ends = {
        file.node: read_tensor(file)
        for file in dump.tensors(iterations=[STEPS - 1])
        if file.op_type == "Parameter" and file.graph_id == 0
    }
    expected = {name.removeprefix("Adam."): value for name, value in saved.items() if name.startswith("Adam.")}
    assert len(expected) == WEIGHTS
    for name, value in expected.items():
        assert ends[name].tobytes() == value.tobytes(), name


def test_neither_watchpoints_nor_origins_judge_them(dump: Dump, tmp_path: Path) -> None:
    analysis = Analysis(dump, cache_dir=tmp_path)
    everything = Watchpoint(1, "", parse_watch("tensor_too_large(max_gt=-1e30)")[0], Selector(SelectorKind.ALL))
    (result,) = check(analysis, [everything])
    hit = {hit.tensor.op_type for hit in result.hits}
    assert {"MatMul", "Parameter"} <= hit
    assert not hit & UPDATES
    assert origins(analysis) == []


def test_the_commands_say_how_many_there_are(folder: Path, tmp_path: Path) -> None:
    path, cache = str(folder / "dump"), ("--cache-dir", str(tmp_path))
    said = f"{ADAM + RMSPROP + len(NORMALIZATION)} outputs left out"
    assert said in CliRunner().invoke(app, ["info", path, *cache]).stdout
    checked = CliRunner().invoke(app, ["check", path, *cache, "--watch", "tensor_overflow"])
    assert (checked.exit_code, said in checked.stdout) == (0, True), checked.output
    one_step = CliRunner().invoke(app, ["check", path, *cache, "--steps", "1", "--json"])
    # MindSpore numbers the steps of the second network from 1 on.
    assert json.loads(one_step.stdout)["unwritten"] == ADAM // STEPS
    update = next(file.node for file in open_dump(path).unwritten_tensors() if file.op_type == "Adam")
    with pytest.raises(InputError, match="leaves output 0 as memory was"):
        open_dump(path).find(f"{update}:0")
