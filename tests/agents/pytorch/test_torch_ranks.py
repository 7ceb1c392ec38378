"""Ranks of one training, each a process with gloo: one session, they stop together."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tensight
from tensight.sessions.records import State
from tests.agents.agent_stage import until
from tests.processes.forked import PYTORCH, popen
from tests.processes.ports import kept_port
from tests.server.running import RunningServer, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_S = 60.0

SCRIPT = """
import sys, torch, tensight
from torch import nn
rank, store, port = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
torch.set_num_threads(1)
torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
model = nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
torch.manual_seed(rank)
waits = sys.argv[4] == "waits"
with tensight.torch.debug(model, optimizer, port=port, job="ranks", break_at_start=waits, recommended=not waits):
    for step in range(8 if waits else 10**9):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
        if step == 4:
            print("trains", flush=True)
print("steps done", flush=True)
torch.distributed.destroy_process_group()
"""

SICK_SCRIPT = """
import sys, torch, tensight
from torch import nn
rank, store, port, capture, kind = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), *sys.argv[4].split()
torch.set_num_threads(1)
torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
torch.manual_seed(0)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.shift = nn.Linear(4, 4), nn.Linear(4, 4), 0.0

    def forward(self, x):
        h = torch.relu(self.a(x))
        h = torch.log(h + 1.0 - self.shift)  # here
        return self.b(h)

net = model = Net()
if kind == "ddp":
    model = nn.parallel.DistributedDataParallel(net)
else:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    for part in (net.a, net.b, net):
        fully_shard(part, mesh=init_device_mesh("cpu", (2,)))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
torch.manual_seed(rank)
settings = dict(port=port, job=f"sick-{capture}-{kind}", break_at_start=True, capture=capture)
with tensight.torch.debug(model, optimizer, **settings):
    for step in range(8):
        net.shift = 1e6 if step == 3 and rank == 1 else 0.0
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
"""
SICK_LINE = next(number for number, line in enumerate(SICK_SCRIPT.splitlines(), 1) if line.endswith("# here"))


@contextmanager
def two_ranks(folder: Path, port: str, begins: str, text: str = SCRIPT) -> Iterator[list[subprocess.Popen[str]]]:
    """Start both ranks, which look for a server at a port; what still runs is killed where the block ends."""
    script = folder / "train.py"
    script.write_text(text)
    ranks = [
        popen(
            [sys.executable, str(script), str(rank), str(folder / "store"), port, begins],
            PYTORCH,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"},
        )
        for rank in range(2)
    ]
    try:
        yield ranks
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()


@pytest.mark.long
def test_two_ranks_are_one_session_and_stop_together(torch_server: RunningServer, tmp_path: Path) -> None:
    port = str(torch_server.debugger).rpartition(":")[2]
    with two_ranks(tmp_path, port, "waits") as ranks:
        with tensight.connect(torch_server.url) as connection:
            session = connection.wait_for_session(PATIENCE_S, name="ranks")
            session.wait(PATIENCE_S)
            record = session.step(3).wait(PATIENCE_S)
            assert record.step == 3
            weights = [session.tensor("0.weight", rank=rank).numpy() for rank in range(2)]
            inputs = [session.tensor("0_input_0", rank=rank).numpy() for rank in range(2)]
            session.continue_()
        outputs = [rank.communicate(timeout=PATIENCE_S) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], outputs
    assert all("steps done" in output for output, _ in outputs)
    # What the wrapper is called leaves no trace in names; each rank shows its own batch and the common weights.
    assert (weights[0] == weights[1]).all()
    assert (inputs[0] != inputs[1]).any()


@pytest.mark.long
def test_a_server_that_comes_while_ranks_train_gets_all_of_them(tmp_path: Path) -> None:
    port = str(kept_port())
    with two_ranks(tmp_path, port, "at once") as ranks:
        for rank in ranks:
            assert rank.stdout
            assert rank.stdout.readline() == "trains\n"
        with (
            running_server(tmp_path / "workspace", "--debugger-port", port) as server,
            tensight.connect(server.url) as connection,
        ):
            session = connection.wait_for_session(PATIENCE_S, name="ranks")
            until(lambda: len(session.summary.ranks) == 2, "both ranks are attached", PATIENCE_S)
            session.pause().wait(PATIENCE_S)
            step = session.step(2).wait(PATIENCE_S).step
            weights = [session.tensor("0.weight", rank=rank).numpy() for rank in range(2)]
            assert {rank.step for rank in session.summary.ranks} == {step}
            assert session.watchpoints()
            session.terminate()
            outputs = [rank.communicate(timeout=PATIENCE_S) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], outputs
    assert (weights[0] == weights[1]).all()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
@pytest.mark.parametrize("capture", ["modules", "ops"])
def test_the_rank_that_a_nan_came_from_is_named_first(
    torch_server: RunningServer, tmp_path: Path, capture: str, kind: str
) -> None:
    port = str(torch_server.debugger).rpartition(":")[2]
    with (
        two_ranks(tmp_path, port, f"{capture} {kind}", SICK_SCRIPT) as ranks,
        tensight.connect(torch_server.url) as connection,
    ):
        session = connection.wait_for_session(PATIENCE_S, name=f"sick-{capture}-{kind}")
        session.wait(PATIENCE_S)
        session.watch_recommended()
        record = session.continue_().wait(PATIENCE_S)
        origins = list(session.origins())
        if kind == "ddp":
            # One cause, on whichever rank it goes on: neither stops again.
            assert session.continue_().wait(PATIENCE_S).state is State.FINISHED
        else:
            session.terminate()
        outputs = [rank.communicate(timeout=PATIENCE_S) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], outputs
    assert record.step == 4
    first, second = (one for one in origins if one.anomaly == "nan")
    assert (first.address[0], first.step, first.arrived) == ("1", 4, False), first.sentence
    assert first.line is not None
    assert first.line.line <= SICK_LINE <= (first.line.end_line or first.line.line), first.line
    if capture == "ops":
        assert (first.node, first.certain, first.line.line) == ("Default/log-op0", True, SICK_LINE), first.sentence
    assert (second.address[0], second.step) == ("0", 4)
    assert second.sentence.startswith("NaN came from rank 1 at step 4"), second.sentence
    # Memory that FSDP has only made room in shows nothing.
    assert not [one.sentence for one in origins if one.anomaly == "explosion"]
    assert not [one.sentence for one in origins if one.anomaly == "all_zero" and one.certain]
