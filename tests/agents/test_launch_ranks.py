"""An unchanged script that torchrun starts several times: its ranks are one session, and go in lockstep."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

import tensight
from tensight.sessions.records import State
from tests.agents.agent_stage import until
from tests.server.running import running_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tensight.client import Session

pytestmark = pytest.mark.long

PATIENCE_S = 120.0
SCRIPT = """\
import sys
import torch
from torch import distributed, nn

distributed.init_process_group("gloo")
torch.set_num_threads(1)
torch.manual_seed(0)
# Memory that nobody has written to yet is NaN then.
torch.use_deterministic_algorithms("nan-memory" in sys.argv)
network = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
model = nn.parallel.DistributedDataParallel(network, gradient_as_bucket_view="bucket-views" in sys.argv)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(6):
    optimizer.zero_grad()
    inputs = torch.randn(4, 8)
    if sys.argv[1:2] == [str(step)] and distributed.get_rank() == 1:
        inputs[0, 0] = float("nan")
    model(inputs).pow(2).mean().backward()
    optimizer.step()
distributed.destroy_process_group()
"""


@contextmanager
def two_ranks(folder: Path, *arguments: str, capture: str = "modules") -> Iterator[Session]:
    """The session of both ranks, which wait before the first step; at the end they have ended as they should."""
    (folder / "train.py").write_text(SCRIPT)
    started = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py")
    with running_server(folder / "workspace") as server, tensight.connect(server.url) as connection:
        host, _, port = str(server.debugger).rpartition(":")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TENSIGHT_")}
        chosen = {
            "TENSIGHT_DEBUG": "1",
            "TENSIGHT_DEBUGGER_HOST": host,
            "TENSIGHT_DEBUGGER_PORT": port,
            "TENSIGHT_BREAK_AT_START": "1",
        }
        environment = {**inherited, **chosen, "TENSIGHT_CAPTURE": capture, "OMP_NUM_THREADS": "1"}
        with (
            (folder / "stderr").open("w") as stderr,
            subprocess.Popen(
                [sys.executable, "-m", *started, *arguments], cwd=folder, env=environment, stderr=stderr
            ) as process,
        ):
            try:
                session = connection.wait_for_session(PATIENCE_S, name="train")
                for event in session.events(timeout_s=PATIENCE_S):
                    if event.kind in ("state", "rank") and len(session.summary.ranks) == 2:
                        break
                assert session.wait(PATIENCE_S).state is State.PAUSED
                yield session
                assert [each.id for each in connection.sessions()] == [session.id]
                record = session.continue_().wait(PATIENCE_S)
                assert (record.state, record.step) == (State.FINISHED, 6)
                assert process.wait(PATIENCE_S) == 0
            finally:
                # A test that failed would wait for it. It ends its ranks.
                process.terminate()


def said(folder: Path, beginning: str) -> list[str]:
    """Return the lines of the debugger on the stderr of both ranks that begin in some way."""
    lines = (line.removeprefix("tensight: ") for line in (folder / "stderr").read_text().splitlines())
    return [line for line in lines if line.startswith(beginning)]


def test_ranks_of_one_run_are_one_session(tmp_path: Path) -> None:
    with two_ranks(tmp_path) as session:
        record = session.step(3).wait(PATIENCE_S)
        assert {(rank.rank, rank.state, rank.step) for rank in record.ranks} == {
            (0, State.PAUSED, 3),
            (1, State.PAUSED, 3),
        }


def test_a_hit_at_an_operator_of_one_rank_keeps_no_other_waiting_for_it_within_the_step(tmp_path: Path) -> None:
    with two_ranks(tmp_path, "3", capture="ops") as session:
        session.watch("tensor_overflow", on="all")
        record = session.continue_().wait(PATIENCE_S)
        assert {(rank.rank, rank.state, rank.step, rank.node) for rank in record.ranks} == {
            (0, State.PAUSED, 4, ""),
            (1, State.PAUSED, 4, ""),
        }
        assert {hit.rank for hit in session.hits() if hit.type == "addmm"} == {1}
        stops = until(
            lambda: said(tmp_path, "rank 1: stopped after step 4"), "one of the ranks says why they wait", PATIENCE_S
        )
        assert len(stops) == 1
        assert stops[0].startswith("rank 1: stopped after step 4 by tensor_overflow on ")
        assert "NaN came in at step 4 in input0" in stops[0]
        assert len(said(tmp_path, "attached to the debug server; the training can be watched at http://")) == 1
        assert not said(tmp_path, "stopped after")
        session.delete_watchpoints(*session.watchpoints())


@pytest.mark.parametrize("option", ["", "bucket-views"])
def test_memory_of_gradients_that_nobody_has_written_to_yet_stops_no_rank(tmp_path: Path, option: str) -> None:
    with two_ranks(tmp_path, "never", "nan-memory", option, capture="ops") as session:
        session.watch("tensor_overflow", on="all")
        record = session.step(5).wait(PATIENCE_S)
        assert [(rank.state, rank.step) for rank in record.ranks] == [(State.PAUSED, 5)] * 2
        assert not list(session.hits())
