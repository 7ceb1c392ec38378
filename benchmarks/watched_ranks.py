"""Ranks that watch themselves: what they open beside files, and how long it takes to read what all of them have left.

    python benchmarks/watched_ranks.py [--processes 256] [--together 2] [--ranks 1024]

So many real processes train in turns, each as a rank of one run, with a NaN in some of them; their files, copied under
other ranks, are then the folder of the larger runs that are read, by one process.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from pathlib import Path

from tensight.ranks import rank_of_file, ranks_text
from tensight.runs.watched_ranks import read_watched_run

ROOT = Path(__file__).resolve().parents[1]
RANK = """
import json, sys, threading
opened = []
sys.addaudithook(lambda event, arguments: opened.append(event) if event.startswith("socket.") else None)
from tensight.agents.core.settings import AgentSettings
from tests.agents.numpy_training import Network, NumpyDebugger
folder, rank, size, nan_at = sys.argv[1], *map(int, sys.argv[2:])
debugger = NumpyDebugger(Network(nan_at=nan_at), AgentSettings(alone=folder, quiet=True), rank=rank, world_size=size)
debugger.attach()
debugger.train(40)
debugger.agent.close()
grpc = "grpc" in sys.modules
print(json.dumps({"sockets": len(opened), "grpc": grpc, "threads": threading.active_count() - 1}))
"""
SICK_EVERY = 64
"""One rank of so many has a NaN."""


def train(folder: Path, ranks: int, together: int) -> dict[str, int]:
    """Run the processes of a run in turns; return what they have opened, summed."""
    opened = {"sockets": 0, "grpc": 0, "threads": 0}
    running: deque[subprocess.Popen[str]] = deque()

    def finish() -> None:
        output, _ = running.popleft().communicate()
        for name, amount in json.loads(output).items():
            opened[name] += amount

    for rank in range(ranks):
        nan_at = 7 if rank % SICK_EVERY == 20 else 0
        command = [sys.executable, "-c", RANK, str(folder), str(rank), str(ranks), str(nan_at)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT))
        if len(running) >= together:
            finish()
    while running:
        finish()
    return opened


def copy(of: Path, to: Path, ranks: int) -> None:
    """Write the files of a run again as those of a larger one."""
    to.mkdir()
    files: dict[int, list[Path]] = {}
    for path in of.iterdir():
        files.setdefault(rank_of_file(path), []).append(path)
    for rank in range(ranks):
        for path in files[rank % len(files)]:
            kind, _, number = path.stem.split("-")
            (to / f"{kind}-{rank}-{number}.jsonl").write_bytes(path.read_bytes())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--processes", type=int, default=256)
    parser.add_argument("--together", type=int, default=2)
    parser.add_argument("--ranks", type=int, default=1024)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tensight-ranks-") as folder:
        run = Path(folder) / "run"
        opened = train(run, options.processes, options.together)
        size_bytes = sum(path.stat().st_size for path in run.iterdir())
        print(f"{options.processes} processes in turns: {opened}, {size_bytes / options.processes:,.0f} bytes a rank")
        seconds: dict[int, float] = {}
        for ranks in (options.ranks // 4, options.ranks // 2, options.ranks):
            larger = Path(folder) / str(ranks)
            copy(run, larger, ranks)
            began = time.process_time()
            watched = read_watched_run(larger, engine="threads")
            seconds[ranks] = time.process_time() - began
            causes = [shared for shared in watched.hits if shared.is_cause]
            text = "; ".join(f"{shared.hit.node} {ranks_text(shared.ranks, watched.ranks)}" for shared in causes)
            print(f"{ranks:,} ranks read in {seconds[ranks]:.2f} s of processor time: {text}")
        exponent = math.log(seconds[options.ranks] / seconds[options.ranks // 4], 4)
        print(f"growth in ranks: exponent {exponent:.2f}")


if __name__ == "__main__":
    main()
