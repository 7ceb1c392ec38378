"""An unchanged script that torchrun starts several times: its ranks are one session, and go in lockstep."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from running import running_server

import tensight
from tensight.sessions.records import State

PATIENCE_S = 60.0
SCRIPT = """\
import torch
from torch import distributed, nn

distributed.init_process_group("gloo")
torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(6):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).pow(2).mean().backward()
    optimizer.step()
distributed.destroy_process_group()
"""


def test_ranks_of_one_run_are_one_session(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
    with running_server(tmp_path / "workspace") as server, tensight.connect(server.url) as connection:
        host, _, port = str(server.debugger).rpartition(":")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TENSIGHT_")}
        chosen = {"TENSIGHT_DEBUG": "1", "TENSIGHT_HOST": host, "TENSIGHT_PORT": port, "TENSIGHT_BREAK_AT_START": "1"}
        with subprocess.Popen(command, cwd=tmp_path, env={**inherited, **chosen, "OMP_NUM_THREADS": "1"}) as process:
            session = connection.wait_for_session(PATIENCE_S)
            for event in session.events(timeout_s=PATIENCE_S):
                if event.kind in ("state", "rank") and len(session.summary.ranks) == 2:
                    break
            assert session.wait(PATIENCE_S).state is State.PAUSED
            record = session.step(3).wait(PATIENCE_S)
            assert {(rank.rank, rank.state, rank.step) for rank in record.ranks} == {
                (0, State.PAUSED, 3),
                (1, State.PAUSED, 3),
            }
            assert [each.id for each in connection.sessions()] == [session.id]
            record = session.continue_().wait(PATIENCE_S)
            assert (record.state, record.step) == (State.FINISHED, 6)
            assert process.wait(PATIENCE_S) == 0
