"""How reading a dump grows with its ranks: time and memory of info, check and origin, in fresh processes.

    python benchmarks/scale.py [--ranks 64 128 256 512] [--engine NAME] [--folder DIR] [--whole]

A training of a small network is recorded once; its rank is copied until there are as many ranks as the largest number
asked for. One rank in 64 has another weight, and one has no NaN. Each number of ranks is then read with an empty cache,
again, and searched for origins. Memory is that of the driver, without its workers. Between the smallest and the largest
number the exponent of the growth is fitted: 1 is linear. `--whole` adds a check of the smallest number of ranks as one
dump in one process, as it was done before there were tasks for each rank, as a measure for this machine.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

BLOCKS = 13
SCRIPT = f"""
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.first, self.second = nn.LayerNorm(8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return x + self.second(torch.relu(self.first(self.norm(x))))


model = nn.Sequential(nn.Linear(8, 8), *(Block() for _ in range({BLOCKS})), nn.Linear(8, 4))
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for step in range(3):
    inputs, labels = torch.randn(16, 8), torch.randint(0, 4, (16,))
    if step == 2:
        inputs[0, 0] = float("nan")
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(inputs), labels).backward()
    optimizer.step()
"""

MEASURED = """
import resource, runpy, sys

sys.argv = ["tensight", *sys.argv[2:]]
report = open(sys.orig_argv[3], "w")
try:
    runpy.run_module("tensight", run_name="__main__")
finally:
    report.write(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))
    report.close()
"""

WHOLE = """
import sys

from tensight.analysis import Analysis, check
from tensight.dumps import open_dump
from tensight.watchpoints import recommended_watchpoints

check(Analysis(open_dump(sys.argv[1])), recommended_watchpoints(live=True, initial=True))
"""


class Cost(NamedTuple):
    """What one command took."""

    seconds: float
    megabytes: float


def record(folder: Path) -> Path:
    """Record the training, and return the folder of its rank."""
    script, recording = folder / "train.py", folder / "recording"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "tensight", "run", "--record", "full", "--record-folder", str(recording)]
    subprocess.run([*command, "--port", "9", str(script)], check=True, capture_output=True)
    return recording / "rank_0"


def copy(rank: Path, dump: Path, ranks: int) -> None:
    """Copy a rank until the dump has that many; one in 64 has another weight, one has no NaN."""
    for number in range(len(list(dump.glob("rank_*"))), ranks):
        folder = dump / f"rank_{number}"
        shutil.copytree(rank, folder)
        (network,) = (path for path in folder.iterdir() if (path / "0").is_dir() and path.name == "network")
        if number % 64 == 17:
            file = next((network / "0" / "1").glob("Parameter.*0.weight*.npy"))
            values = np.load(file)
            values.flat[0] += 1
            np.save(file, values)
        if number % 64 == 20:
            for file in (network / "0" / "2").glob("*.npy"):
                values = np.load(file)
                if values.dtype.kind == "f" and not np.isfinite(values).all():
                    np.save(file, np.nan_to_num(values))


def part(dump: Path, ranks: int, folder: Path) -> Path:
    """Return a folder with the first ranks of a dump, as links to their folders."""
    folder.mkdir()
    for number in range(ranks):
        shutil.copytree(dump / f"rank_{number}", folder / f"rank_{number}", copy_function=os.link)
    return folder


def run(cache: Path, *arguments: str, folder: Path) -> Cost:
    """Run a command in a fresh process."""
    report = folder / "report"
    environment = os.environ | {"TENSIGHT_CACHE_DIR": str(cache)}
    begin = time.perf_counter()
    completed = subprocess.run(
        [sys.executable, "-c", MEASURED, str(report), *arguments], env=environment, capture_output=True, text=True
    )
    seconds = time.perf_counter() - begin
    if completed.returncode not in (0, 1) or "Traceback" in completed.stderr:
        sys.exit(completed.stderr)
    return Cost(seconds, int(report.read_text()) / 1024)


def exponent(sizes: list[int], values: list[float]) -> float:
    """Return the slope of the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(np.maximum(values, 1e-9)), 1)[0]) if len(sizes) > 1 else math.nan


def main() -> None:
    """Print time and memory of each command, and their growth."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--ranks", type=int, nargs="+", default=[64, 128, 256, 512])
    arguments.add_argument("--engine", help="for check and origin; by default threads or processes")
    arguments.add_argument("--folder", type=Path, help="where to keep the dump for the next time")
    arguments.add_argument("--whole", action="store_true", help="check the smallest number as one dump, too")
    arguments.add_argument("--json", type=Path, help="write the figures to a file")
    options = arguments.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="tensight-scale-"))
    kept = options.folder or folder
    engine = ["--engine", options.engine] if options.engine else []
    costs: dict[str, dict[int, Cost]] = {}
    try:
        dump = kept / "dump"
        dump.mkdir(parents=True, exist_ok=True)
        copy(record(folder), dump, max(options.ranks))
        files = sum(1 for _ in (dump / "rank_0").rglob("*.npy"))
        print(f"{files:,} files in each rank")
        for ranks in sorted(options.ranks):
            here = folder / str(ranks)
            here.mkdir()
            of_ranks = dump if ranks == max(options.ranks) else part(dump, ranks, here / "dump")
            commands = {
                "info": ("info", str(of_ranks)),
                "check at first": ("check", *engine, str(of_ranks)),
                "check again": ("check", *engine, str(of_ranks)),
                "origin": ("origin", *engine, str(of_ranks)),
            }
            for name, command in commands.items():
                cost = run(here / "cache", *command, folder=here)
                costs.setdefault(name, {})[ranks] = cost
                print(f"{ranks:5} ranks  {name:15} {cost.seconds:7.2f} s  {cost.megabytes:6.0f} MB", flush=True)
            if options.whole and ranks == min(options.ranks):
                begin = time.perf_counter()
                environment = os.environ | {"TENSIGHT_CACHE_DIR": str(here / "whole")}
                subprocess.run([sys.executable, "-c", WHOLE, str(of_ranks)], check=True, env=environment)
                print(f"{ranks:5} ranks  as one dump     {time.perf_counter() - begin:7.2f} s")
            if of_ranks != dump:
                shutil.rmtree(here)
        sizes = sorted(options.ranks)
        for name, by_ranks in costs.items():
            of_time = exponent(sizes, [by_ranks[size].seconds for size in sizes])
            of_memory = exponent(sizes, [by_ranks[size].megabytes for size in sizes])
            print(f"{name:15} grows with the ranks to the power of {of_time:.2f}, the driver's memory {of_memory:.2f}")
        if options.json:
            options.json.write_text(json.dumps(costs))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
