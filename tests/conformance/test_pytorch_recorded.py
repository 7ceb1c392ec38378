"""A recorded PyTorch training tells our offline tools what it tells the original's DumpAnalyzer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pytorch_recorded import answers
from with_recorded_run import record

import tensight.debugger
from tensight.dumps import open_dump

pytestmark = pytest.mark.long

HERE = Path(__file__).parent
GOLDEN = json.loads((HERE / "golden" / "pytorch-recorded.json").read_text())


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training that was recorded whole."""
    return record(tmp_path_factory.mktemp("recorded"))


@pytest.mark.parametrize("question", GOLDEN)
def test_the_answer_is_that_of_the_original(recorded: Path, question: str) -> None:
    told = json.loads(json.dumps(answers(tensight.debugger, str(recorded))[question]))
    assert told == GOLDEN[question]


def test_the_command_line_finds_the_same_hits(recorded: Path) -> None:
    command = [sys.executable, "-m", "tensight", "check", str(recorded), "--watch", "TL(max_gt=500)", "--json"]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 1, checked.stderr
    hits = json.loads(checked.stdout)["watchpoints"][0]["hits"]
    found = {(hit["node"], hit["slot"], hit["step"]) for hit in hits if hit["io"] == "output"}
    # The original knows operators only by the names of their files.
    own = {node.full_name: node.name for graph in open_dump(recorded).graphs(0) for node in graph.operators}
    large = [hit[:3] for hit in GOLDEN["hits"] if hit[3] == "TensorTooLarge"]
    assert found == {(own.get(node, node), slot, iteration + 1) for node, slot, iteration in large}
    assert not any("Linear_fc" in node for node, _, _ in found)
