"""Every code block of the concepts, run as it is printed; what the pages say of its output is in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Follow

pytestmark = pytest.mark.long


def test_graphs_and_addresses(follow: Follow, dump_210: Path) -> None:
    with follow("docs/concepts/graphs-and-addresses.md") as walk:
        (walk.folder / "dump").symlink_to(dump_210)
        shown = walk.cell()
        assert "118 operators and 25 parameters" in shown
        assert "puts out [('float32', (4, 1))]" in shown
        assert "sick_network.py line 31" in shown
        assert {"'Default'", "'Gradients'"} <= set(walk.cell().strip("[]\n").split(", "))
        shown = walk.cell()
        assert "/Log-op0:0@3\n" in shown
        assert "step 3 is iteration 2" in shown


def test_capture_modes(follow: Follow) -> None:
    with follow("docs/concepts/capture-modes.md") as walk:
        modules, operators = walk.terminal().split("13 nodes\n")
        assert "Default/conv1/Conv2d-op0" in modules
        assert "Default/conv1/convolution-op0" in operators
        for name in ("lerp_-op0", "addcmul_-op0", "addcdiv_-op0"):
            assert f"Optimizer/conv1/weight/{name}" in operators
            assert f"Optimizer/conv1/weight/{name}" not in modules
        for name in ("Optimizer/conv1/weight/ApplyAdam-op0", "exp_avg.conv1.weight", "conv1/weight/AccumulateGrad"):
            assert name in modules
            assert name in operators


def test_recordings(follow: Follow) -> None:
    with follow("docs/concepts/recordings.md") as walk:
        assert "1-5" in walk.terminal()
        layout = walk.next()
        rank = walk.folder / "recording" / "rank_0"
        for line in layout.text.splitlines()[2:]:
            name = line.split()[0]
            assert (rank / name).exists() or (rank / "network" / name).exists(), name
        assert walk.cell() == "(4, 1, 3, 3)\n"


def test_watchpoints(follow: Follow) -> None:
    with follow("docs/concepts/watchpoints.md") as walk:
        assert walk.cell().startswith("tensor_too_large(max_gt=10000, mean_gt=5)\n")
        statistics, changes = walk.cell().splitlines()
        assert "changes=False" in statistics
        assert "changes=True" in changes


def test_origins(follow: Follow, dump_210: Path) -> None:
    with follow("docs/concepts/origins.md") as walk:
        (walk.folder / "dump").symlink_to(dump_210)
        shown = walk.terminal()
        assert "Inf began at step 3" in shown
        assert "Sub-op0 (no NaN in its inputs)" in shown
        shown = walk.cell()
        assert "certain: True  line: 31" in shown
        assert "certain: True  line: 32" in shown
