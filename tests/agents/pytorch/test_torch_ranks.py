"""Ranks of one training, each a process with gloo: one session, they stop together."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from running import RunningServer

import tensight

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
with tensight.torch.debug(model, optimizer, port=port, job="ranks", break_at_start=True):
    for _ in range(8):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
print("steps done", flush=True)
torch.distributed.destroy_process_group()
"""


def test_two_ranks_are_one_session_and_stop_together(torch_server: RunningServer, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    port = str(torch_server.debugger).rpartition(":")[2]
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), str(tmp_path / "store"), port],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        with tensight.connect(torch_server.url) as connection:
            session = connection.wait_for_session(PATIENCE_S, name="ranks")
            session.wait(PATIENCE_S)
            record = session.step(3).wait(PATIENCE_S)
            assert record.step == 3
            weights = [session.tensor("0.weight", rank=rank).numpy() for rank in range(2)]
            inputs = [session.tensor("0_input_0", rank=rank).numpy() for rank in range(2)]
            session.continue_()
        outputs = [rank.communicate(timeout=PATIENCE_S) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
    assert [rank.returncode for rank in ranks] == [0, 0], outputs
    assert all("steps done" in output for output, _ in outputs)
    # What the wrapper is called leaves no trace in names; each rank shows its own batch and the common weights.
    assert (weights[0] == weights[1]).all()
    assert (inputs[0] != inputs[1]).any()
