"""Traces of PyTorch trainings: what they hold is what a recording of the same training holds."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

import tensight
from tensight.agents.core.recording.tracing import STATES_EVERY, STATES_OF_FIRST
from tensight.agents.torch.perturbing import perturb
from tensight.analysis import Analysis
from tensight.analysis.statistics_table import KNOWN, STATISTICS
from tensight.compare import Verdict
from tensight.compare.runs import compare_runs
from tensight.dumps import open_dump
from tensight.errors import InputError

if TYPE_CHECKING:
    from tensight.analysis.statistics_table import StatisticsTable

SCRIPT = """\
import os
import torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
optimizer = torch.optim.Adam(net.parameters())
for step in range(4):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(net(torch.randn(4, 8)), torch.randint(0, 3, (4,))).backward()
    optimizer.step()
    if os.environ.get("KILLED") and step == 2:
        os.kill(os.getpid(), 9)
print(*(float(p.detach().sum()) for p in net.parameters()))
"""


def train(steps: int = 3, **settings: object) -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    with tensight.torch.debug(net, optimizer, connect_within_s=0.0, **settings):  # type: ignore[arg-type]
        for _ in range(steps):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(torch.randn(4, 8)), torch.randint(0, 3, (4,))).backward()
            optimizer.step()


def rows_by_name(table: StatisticsTable) -> dict[tuple[object, ...], tuple[object, ...]]:
    found = {}
    for row, file in enumerate(table.files):
        values = [table.rows[name][row].item() for name in STATISTICS]
        texts = tuple(repr(value) for value in values)
        found[file.iteration, file.node, file.io, file.slot] = (table.dtypes[row], table.shapes[row], *texts)
    return found


def contents(rows: dict[tuple[object, ...], tuple[object, ...]]) -> dict[tuple[object, ...], object]:
    """Return shape and content hash of each tensor."""
    return {name: (row[1], row[2 + STATISTICS.index("content_hash")]) for name, row in rows.items()}


@pytest.mark.parametrize("capture", ["modules", "ops"])
def test_a_trace_has_the_rows_of_a_recording(tmp_path: Path, capture: str) -> None:
    train(record="full", record_folder=str(tmp_path / "recording"), capture=capture)
    train(trace=str(tmp_path / "trace"), capture=capture)
    tables = [
        Analysis(open_dump(tmp_path / name), cache_dir=tmp_path / "cache").statistics()
        for name in ("recording", "trace")
    ]
    recorded, traced = map(rows_by_name, tables)
    assert recorded.keys() == traced.keys()
    # Of what nobody had kept when the step ended the recording has a line of statistics, with less in it.
    whole = [key for key, row in zip(recorded, tables[0].rows, strict=True) if row["state"] == KNOWN]
    assert len(whole) > 0.8 * len(recorded)
    assert {key: recorded[key] for key in whole} == {key: traced[key] for key in whole}
    dumps = [open_dump(tmp_path / name) for name in ("recording", "trace")]
    # Operators that only take an output out of several are numbered, and there may be more of them.
    names = [[name for name in dump.execution_order(0) if "TupleGetItem" not in name] for dump in dumps]
    assert names[0] == names[1]
    assert dumps[0].iterations() == dumps[1].iterations() == (0, 1, 2)
    assert dumps[1].problems == []
    for dump in dumps:
        assert dump.setup is not None
        assert [one["class"] for one in dump.setup["optimizers"]] == ["SGD"]


def test_states_of_the_optimizer_are_read_in_the_first_steps_and_then_now_and_then(
    tmp_path: Path, said: list[str]
) -> None:
    trace = str(tmp_path / "trace")
    train(steps=18, trace=trace)
    table = Analysis(open_dump(trace), cache_dir=tmp_path / "cache").statistics()
    steps: dict[str, set[int]] = {"state": set(), "weight": set()}
    for file in table.files:
        if file.node in ("momentum_buffer.0.weight", "0.weight"):
            steps["state" if file.node.startswith("momentum") else "weight"].add(file.iteration)
    assert steps["state"] == {*range(STATES_OF_FIRST), STATES_EVERY, 2 * STATES_EVERY}
    assert steps["weight"] == set(range(-1, 18))
    train(steps=18, against=trace)
    assert [line for line in said if "no difference from the trace in 18 steps" in line]


def traced(folder: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "tensight", "trace", *options, "train.py"]
    kept = ("TENSIGHT_CACHE_DIR", "TENSIGHT_KERNELS")
    variables = {name: value for name, value in os.environ.items() if not name.startswith("TENSIGHT_") or name in kept}
    variables |= environment
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.long
def test_the_command_traces_an_unchanged_script_without_a_server(tmp_path: Path) -> None:
    plain = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=300, check=True)
    ended = traced(tmp_path, "--out", "whole", "--capture", "ops")
    assert (ended.returncode, ended.stdout) == (0, plain.stdout)
    # No line about a server that does not answer.
    assert ended.stderr == f"tensight: the training is traced in {tmp_path / 'whole'}\n"
    again = traced(tmp_path, "--out", "whole", "--steps", "1")
    assert (again.returncode, again.stdout) == (0, plain.stdout)
    assert "nothing is traced" in again.stderr
    first = traced(tmp_path, "--out", "first", "--capture", "ops", "--steps", "2", "--quiet")
    assert (first.returncode, first.stdout, first.stderr) == (0, plain.stdout, "")
    killed = traced(tmp_path, "--out", "killed", "--capture", "ops", KILLED="1")
    assert killed.returncode == -9
    runs = {name: open_dump(tmp_path / name) for name in ("whole", "first", "killed")}
    assert {name: run.iterations() for name, run in runs.items()} == {
        "whole": (0, 1, 2, 3),
        "first": (0, 1),
        "killed": (0, 1, 2),
    }
    tables = {
        name: rows_by_name(Analysis(run, cache_dir=tmp_path / "cache").statistics()) for name, run in runs.items()
    }
    inputs = {name: run.setup["batches"] for name, run in runs.items() if run.setup is not None}
    assert {name: len(batches) for name, batches in inputs.items()} == {"whole": 3, "first": 2, "killed": 3}
    assert inputs["killed"] == inputs["whole"]
    assert all(one["hash"] and one["shape"] for batch in inputs["whole"] for one in batch)
    for name in ("first", "killed"):
        # Until the kernels are compiled statistics may differ in the last digit; the content does not.
        assert contents(tables[name]).items() <= contents(tables["whole"]).items()
        assert runs[name].problems == []
    assert np.all(Analysis(runs["whole"], cache_dir=tmp_path / "cache").statistics().rows["content_hash"] != 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_weights_are_perturbed_by_one_unit_in_the_last_place_and_zeros_are_not(dtype: torch.dtype) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 8)).to(dtype)
    with torch.no_grad():
        net[0].weight[0] = 0
    net[2].weight = net[0].weight
    before = copy.deepcopy(net).requires_grad_(False)
    assert perturb([net, net[0]]) == 5
    for (name, old), new in zip(before.named_parameters(), net.parameters(), strict=True):
        is_zero = old == 0
        assert torch.equal(new[is_zero], old[is_zero]), name
        moved = (new.detach().double() - old.double()).abs() / old.double().abs()
        eps = torch.finfo(dtype).eps
        assert ((eps / 2 <= moved[~is_zero]) & (moved[~is_zero] <= eps)).all(), name
    assert all(torch.equal(*both) for both in zip(before.buffers(), net.buffers(), strict=True))


def test_a_perturbed_run_is_traced_from_its_perturbed_weights(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    train(trace=str(tmp_path / "a"))
    train(trace=str(tmp_path / "perturbed"), perturb=True)
    assert "--perturb: 6 weights were moved by one unit in the last place" in capfd.readouterr().err
    a, perturbed = (Analysis(open_dump(tmp_path / name), cache_dir=tmp_path / "cache") for name in ("a", "perturbed"))
    (exact,) = compare_runs(a, perturbed, exact=True)
    assert {one.name_a for one in exact.tensors} >= {"0.weight", "3.weight"}
    (within,) = compare_runs(a, perturbed)
    assert within.verdict is Verdict.SAME
    with pytest.raises(InputError, match="perturbed only in a run that is traced"):
        tensight.torch.debug(perturb=True)
