"""Where Inf began in networks that branch by values: MindSpore cuts them into graphs, and does not tie them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tensight.analysis import Analysis, Anomaly, origins
from tensight.dumps import open_dump
from tests.agents.mindspore.mindspore_stage import Run, origins_at_stop

if TYPE_CHECKING:
    from tensight.analysis import Origin
    from tests.server.running import RunningServer

pytestmark = pytest.mark.long


SCRIPT = Path(__file__).with_name("branching_training.py")
FAULTY_STEP = 3


def origin_in_dump(version: str, kind: str, folder: Path) -> Origin:
    """Return where Inf began in a training that MindSpore itself has dumped."""
    dump = folder / "dump"
    common = {
        "op_debug_mode": 0, "dump_mode": 0, "path": str(dump), "net_name": "Branching", "iteration": "all",
        "saved_data": "tensor", "input_output": 0, "kernels": [], "support_device": [0],
    }  # fmt: skip
    config = folder / "dump.json"
    config.write_text(json.dumps({"common_dump_settings": common, "e2e_dump_settings": {"enable": True}}))
    variables = {"MINDSPORE_DUMP_CONFIG": str(config)}
    with Run(version, kind, str(FAULTY_STEP), folder=folder, variables=variables, script=SCRIPT) as run:
        assert run.outcome().code == 0
    return origins(Analysis(open_dump(dump), cache_dir=folder / "cache"), [Anomaly.INF])[0]


@pytest.mark.parametrize(
    ("version", "kind"),
    [("2.10", "Branch"), ("2.10", "Nested"), ("2.10", "InTurn"), ("2.7", "Nested")],
    indirect=["version"],
)
def test_the_operator_of_a_branch_is_named_in_a_dump(version: str, kind: str, tmp_path: Path) -> None:
    origin = origin_in_dump(version, kind, tmp_path)
    assert (origin.op_type, origin.address.step, origin.certain) == ("Exp", FAULTY_STEP, True)
    assert origin.also == ()
    assert origin.user_frame is not None
    assert "# FAULT" in origin.user_frame.code


def test_the_operator_of_a_loop_is_the_first_but_not_certain(version: str, tmp_path: Path) -> None:
    origin = origin_in_dump(version, "Loop", tmp_path)
    assert (origin.op_type, origin.certain) == ("Exp", False)
    assert origin.user_frame is not None
    assert "# FAULT" in origin.user_frame.code


def test_nothing_is_certain_where_a_branch_may_have_left_a_constant(version: str, tmp_path: Path) -> None:
    assert not origin_in_dump(version, "Constant", tmp_path).certain


@pytest.mark.parametrize(("version", "kind"), [("2.10", "InTurn"), ("2.7", "Branch")], indirect=["version"])
def test_the_operator_of_a_branch_is_named_while_the_training_runs(
    mindspore_server: RunningServer, version: str, kind: str, tmp_path: Path
) -> None:
    arguments = (kind, str(FAULTY_STEP))
    first = origins_at_stop(mindspore_server, version, tmp_path, SCRIPT, *arguments, step=FAULTY_STEP)[0]
    assert (first.anomaly, first.type, first.step, first.certain) == ("inf", "Exp", FAULTY_STEP, True)
    assert first.line is not None
    assert "# FAULT" in first.line.code
