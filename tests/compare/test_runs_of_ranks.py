"""Two runs of several ranks: what began on one rank is named there, and not where the others got it from."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tensight.analysis import Analysis
from tensight.compare import Verdict
from tensight.compare.runs import Finding, compare_runs, first_of_all
from tensight.compare.runs.words import notes, sentence
from tensight.dumps import open_dump

if TYPE_CHECKING:
    from pathlib import Path

    from tensight.compare.runs import RunComparison

pytestmark = pytest.mark.long

RANKS = 2
SCRIPT = """
import sys, torch, tensight
from torch import nn
rank, folder = int(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
for run in sys.argv[3:]:
    torch.manual_seed(0)
    approximate = "tanh" if run == "gelu" else "none"
    net = nn.Sequential(nn.Linear(16, 32), nn.GELU(approximate), nn.LayerNorm(32), nn.Linear(32, 4))
    model = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    seed = 1 if run == "first batch of rank 1" and rank == 1 else 7 + rank
    generator = torch.Generator().manual_seed(seed)
    with tensight.torch.debug(model, optimizer, trace=f"{folder}/{run}", quiet=True, port=1):
        for step in range(4):
            x, y = torch.randn(8, 16, generator=generator), torch.randint(0, 4, (8,), generator=generator)
            if run == "batch of rank 1" and rank == 1 and step == 2:
                x = x * 1.01
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            if run == "gradient of rank 0" and rank == 0 and step == 2:
                net[3].weight.grad.mul_(1.01)
            optimizer.step()
torch.distributed.destroy_process_group()
"""
RUNS = ("reference", "same", "gelu", "first batch of rank 1", "batch of rank 1", "gradient of rank 0")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Traces of both ranks of each of the runs."""
    folder = tmp_path_factory.mktemp("ranks")
    command = [sys.executable, "-c", SCRIPT]
    processes = [subprocess.Popen([*command, str(rank), str(folder), *RUNS]) for rank in range(RANKS)]
    assert [process.wait(timeout=120) for process in processes] == [0] * RANKS
    return folder


def compared(runs: Path, run: str) -> list[RunComparison]:
    sides = [Analysis(open_dump(str(runs / name)), cache_dir=runs / f"{name} cache") for name in ("reference", run)]
    return compare_runs(*sides)


def test_equal_runs_are_bit_equal_on_each_rank(runs: Path) -> None:
    results = compared(runs, "same")
    assert [one.rank for one in results] == [0, 1]
    assert all(one.is_bit_equal for one in results)


def test_what_all_ranks_have_done_otherwise_is_found_on_each(runs: Path) -> None:
    results = compared(runs, "gelu")
    assert [(one.finding, one.step) for one in results] == [(Finding.FORWARD, 1)] * RANKS
    assert all(one.first is not None and one.first.pair.a.type == "GELU" for one in results)


@pytest.mark.parametrize(
    ("run", "step", "verdict"),
    [("first batch of rank 1", 1, Verdict.NOT_COMPARABLE), ("batch of rank 1", 3, Verdict.DIFFERENT)],
)
def test_gradients_that_another_rank_has_changed_are_said_to_come_from_there(
    runs: Path, run: str, step: int, verdict: Verdict
) -> None:
    follows, begins = compared(runs, run)
    assert (begins.finding, begins.step, begins.verdict) == (Finding.DATA, step, verdict)
    assert (follows.finding, follows.step, follows.from_rank) == (Finding.ANOTHER_RANK, step, 1)
    assert follows.verdict is verdict
    assert "AccumulateGrad" in sentence(follows)
    assert "after rank 1 did, which contributes to it" in sentence(follows)
    assert notes(follows) == []
    assert first_of_all([follows, begins]) is begins


def test_a_gradient_that_one_rank_changes_after_the_others_have_it_is_found_on_that_rank(runs: Path) -> None:
    own, other = compared(runs, "gradient of rank 0")
    assert own.first is not None
    assert own.first.pair.a.node.name.endswith("3/weight/AccumulateGrad-op0")
    assert (own.finding, own.step) == (Finding.BACKWARD, 3)
    assert other.step is None or other.step > 3
    assert first_of_all([other, own]) is own
