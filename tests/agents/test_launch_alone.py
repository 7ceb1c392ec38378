"""Unchanged scripts that torchrun starts several times, each rank of which watches itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tensight.runs.watched_ranks import read_watched_run
from tensight.watchpoints.rank_hits import PATTERN, read_account
from tests.agents.agent_stage import until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

RANKS = 4
PATIENCE_S = 180.0
SCRIPT = """\
import json, os, sys
from collections import Counter
import torch
from torch import distributed, nn

distributed.init_process_group("gloo")
torch.set_num_threads(1)
torch.manual_seed(0)
rank = distributed.get_rank()
steps, bad_rank = int(sys.argv[1]), int(sys.argv[2])
network = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
model = nn.parallel.DistributedDataParallel(network)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
torch.manual_seed(rank)
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
    for step in range(1, min(steps, 8) + 1):
        optimizer.zero_grad()
        inputs = torch.randn(4, 8)
        if rank == bad_rank and step == 5:
            inputs[0, 0] = float("nan")
        model(inputs).pow(2).mean().backward()
        optimizer.step()
# Collectives that were executed; a dispatch mode lists those of the dispatcher twice.
calls = Counter(event.name for event in profile.events() if event.name.startswith("gloo:"))
sockets = 0
for number in os.listdir("/proc/self/fd"):
    try:
        sockets += os.readlink(f"/proc/self/fd/{number}").startswith("socket:")
    except OSError:
        pass
with open(f"{sys.argv[3]}-{rank}.json", "w") as file:
    json.dump({"calls": calls, "sockets": sockets, "grpc": "grpc" in sys.modules}, file)
for step in range(9, steps + 1):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).pow(2).mean().backward()
    optimizer.step()
distributed.destroy_process_group()
"""


def torchrun(folder: Path, run: Path | None, *arguments: object) -> subprocess.Popen[bytes]:
    (folder / "train.py").write_text(SCRIPT)
    launcher = ("torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS), "train.py")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TENSIGHT_")}
    chosen = {"OMP_NUM_THREADS": "1"}
    if run is not None:
        chosen |= {"TENSIGHT_DEBUG": "1", "TENSIGHT_ALONE": str(run)}
    return subprocess.Popen(
        [sys.executable, "-m", *launcher, *map(str, arguments)],
        cwd=folder,
        env={**inherited, **chosen},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def counted(folder: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads((folder / f"{name}-{rank}.json").read_text()) for rank in range(RANKS)]


def test_ranks_call_nothing_and_open_nothing_that_they_would_not_without(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with torchrun(tmp_path, None, 8, -1, "plain") as plain:
        assert plain.wait(PATIENCE_S) == 0
    with torchrun(tmp_path, run, 8, -1, "alone") as alone:
        assert alone.wait(PATIENCE_S) == 0
    before, after = counted(tmp_path, "plain"), counted(tmp_path, "alone")
    assert sum(Counter(before[0]["calls"]).values()) >= 8
    assert after == before
    watched = read_watched_run(run)
    assert (sorted(watched.ranks), watched.world_size, watched.not_over) == (list(range(RANKS)), RANKS, [])
    assert set(watched.steps.values()) == {8}
    assert (watched.hits, watched.findings, watched.problems) == ([], [], [])


def test_a_nan_of_one_rank_is_the_cause_and_named_with_that_rank(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with torchrun(tmp_path, run, 200, 2, "nan") as process:
        assert process.wait(PATIENCE_S) == 0
    watched = read_watched_run(run)
    causes = [shared for shared in watched.hits if shared.is_cause]
    assert [(shared.hit.step, shared.hit.node, shared.ranks) for shared in causes] == [(5, "0_input_0", [2])]
    arrived = [shared for shared in watched.hits if shared.new and not shared.is_cause]
    assert {shared.hit.type for shared in arrived} == {"AccumulateGrad"}
    assert all(sorted(shared.ranks) == list(range(RANKS)) for shared in arrived)
    assert {finding.explained.finding.rule for finding in watched.findings} == {"loss-not-finite"}


def test_ranks_that_are_killed_leave_what_they_have_seen(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with torchrun(tmp_path, run, 1_000_000_000, 1, "killed") as process:
        try:

            def all_have_counted() -> bool:
                files = list(run.glob(PATTERN)) if run.is_dir() else []
                return len(files) == RANKS and all(b'"counts"' in path.read_bytes() for path in files)

            until(all_have_counted, "each rank has seen the NaN", PATIENCE_S)
        finally:
            # torchrun starts its ranks in sessions of their own.
            for path in run.glob(PATTERN):
                os.kill(int(path.stem.rpartition("-")[2]), signal.SIGKILL)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    watched = read_watched_run(run)
    assert sorted(watched.not_over) == list(range(RANKS))
    assert [shared.ranks for shared in watched.hits if shared.is_cause] == [[1]]
    assert watched.problems == []
    assert all(read_account(path).hits for path in run.glob(PATTERN))


IN_A_THREAD = """\
import threading
import torch
from torch import nn

def train():
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(1, 31):
        inputs = torch.randn(4, 4)
        if step == 10:
            inputs[0, 0] = float("nan")
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()

torch.set_num_threads(1)
thread = threading.Thread(target=train)
thread.start()
thread.join()
"""


def test_a_training_in_a_thread_of_its_own_is_seen_whole(tmp_path: Path) -> None:
    """As in workers of Ray Train, where another thread imports PyTorch."""
    (tmp_path / "train.py").write_text(IN_A_THREAD)
    run = tmp_path / "run"
    chosen = {"TENSIGHT_DEBUG": "1", "TENSIGHT_ALONE": str(run), "OMP_NUM_THREADS": "1"}
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TENSIGHT_")}
    subprocess.run([sys.executable, "train.py"], cwd=tmp_path, env={**inherited, **chosen}, timeout=120, check=True)
    watched = read_watched_run(run)
    assert [(shared.hit.step, shared.hit.node) for shared in watched.hits if shared.is_cause] == [(10, "input_0")]
    (finding,) = watched.findings
    assert finding.explained.finding.rule == "loss-not-finite"
