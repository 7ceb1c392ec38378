"""Ranks that watch themselves and are killed at any moment: what they leave is the beginning of what they would leave.

    python killed_ranks.py FOLDER KILLS

Each rank is a fork of this process, which has imported everything, so that a kill takes some milliseconds. Prints the
number of ranks that had written nothing yet, some of it, and all.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

from tensight.agents.core.settings import AgentSettings
from tensight.watchpoints.rank_hits import PATTERN, RankHit, read_account
from tests.agents.numpy_training import Network, NumpyDebugger

STEPS = 24


def train(folder: Path, rank: int) -> None:
    settings = AgentSettings(alone=str(folder), quiet=True, findings="off")
    debugger = NumpyDebugger(Network(nan_at=3), settings, rank=rank, world_size=1024)
    debugger.attach()
    debugger.train(STEPS)
    debugger.agent.close()


def in_child(folder: Path, rank: int) -> int:
    """Start a rank; return its process id."""
    process = os.fork()
    if process == 0:
        train(folder, rank)
        os._exit(0)
    return process


def hits_of(folder: Path, rank: int) -> list[RankHit] | None:
    """Return what a rank has written; None if that is not even its first line."""
    paths = list(folder.glob(PATTERN.replace("*", f"{rank}-*")))
    if not paths or b"\n" not in paths[0].read_bytes():
        return None
    account = read_account(paths[0])
    assert account.problems == []
    assert account.rank == rank
    return account.hits


def main() -> None:
    folder, kills = Path(sys.argv[1]), int(sys.argv[2])
    began = time.monotonic()
    os.waitpid(in_child(folder, 0), 0)
    lasts_s = time.monotonic() - began
    whole = hits_of(folder, 0)
    assert whole
    outcomes = {"nothing": 0, "some": 0, "all": 0}
    moments = random.Random(0)  # noqa: S311 - no secret
    for rank in range(1, kills + 1):
        process = in_child(folder, rank)
        time.sleep(moments.uniform(0.0, 1.1 * lasts_s))
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        hits = hits_of(folder, rank)
        if not hits:
            outcomes["nothing"] += 1
            continue
        assert hits == whole[: len(hits)], f"rank {rank}"
        outcomes["all" if len(hits) == len(whole) else "some"] += 1
        for path in folder.glob(f"*-{rank}-*"):
            path.unlink()
    print(outcomes["nothing"], outcomes["some"], outcomes["all"])


if __name__ == "__main__":
    main()
