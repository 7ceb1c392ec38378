"""What `tensight run` adds to the start of a script: attached to a server, and without one, beside the plain script.

    python benchmarks/start_up.py [--runs 12]

Each way is run in turn, so that whatever else the machine does hits them alike, and the best run of each counts. The
script imports torch, builds a tiny model and does three steps. Beside them: `tensight --help`, and `tensight info` of a
small dump.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.server.running import running_server

DUMP = Path(__file__).parents[1] / "tests" / "fixtures" / "sick-2.10.0.tar.xz"
MOST_ADDED_S = 0.2
"""What the agent may add where there is a server; without one the start waits for it, as long as the settings say."""

MOST_S = {"--help": 0.2, "info": 0.25}
"""What commands may take."""

SCRIPT = """
import torch

torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(16, 4)).square().mean().backward()
    optimizer.step()
"""


class Run(NamedTuple):
    """What a process took: seconds on the clock, and seconds of processor time."""

    wall_s: float
    cpu_s: float


def run(command: list[str]) -> Run:
    """Run a command to its end."""
    begin_s = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    wall_s = time.perf_counter() - begin_s
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command}: {said.decode()}")
    return Run(wall_s, usage.ru_utime + usage.ru_stime)


def main() -> int:
    """Measure, print, and fail if more is added than may be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=12, help="of each way")
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder, running_server(Path(folder) / "workspace", imports=None) as server:
        script = Path(folder) / "train.py"
        script.write_text(SCRIPT)
        host, _, port = str(server.debugger).rpartition(":")
        debugged = [sys.executable, "-m", "tensight", "run"]
        ways = {
            "plain": [sys.executable, str(script)],
            "attached": [*debugged, "--host", host, "--port", port, str(script)],
            "no server": [*debugged, "--host", "127.0.0.1", "--port", "9", str(script)],
            "--help": [sys.executable, "-m", "tensight", "--help"],
            "info": [sys.executable, "-m", "tensight", "info", folder, "--cache-dir", folder],
        }
        with tarfile.open(DUMP) as archive:
            archive.extractall(folder, filter="data")
        found: dict[str, list[Run]] = {name: [] for name in ways}
        for _ in range(runs + 1):
            for name, command in ways.items():
                found[name].append(run(command))
    for several in found.values():
        del several[0]  # fills caches
    plain = found["plain"]
    added_s = {}
    print(f"{'':12}{'wall, best':>12}{'median':>10}{'CPU, best':>12}{'median':>10}{'added, best: wall':>20}{'CPU':>8}")
    for name, several in found.items():
        walls, cpus = ([one[part] for one in several] for part in (0, 1))
        figures = (min(walls), statistics.median(walls), min(cpus), statistics.median(cpus))
        line = "{:12}{:12.3f}{:10.3f}{:12.3f}{:10.3f}".format(name, *figures)
        if name not in MOST_S:
            added_s[name] = min(walls) - min(one.wall_s for one in plain)
            line += f"{added_s[name]:20.3f}{min(cpus) - min(one.cpu_s for one in plain):8.3f}"
        print(line)
    too_long = [name for name, most_s in MOST_S.items() if min(one.wall_s for one in found[name]) > most_s]
    if added_s["attached"] > MOST_ADDED_S:
        too_long.append("attached")
    if too_long:
        print(f"longer than it may take: {', '.join(too_long)}", file=sys.stderr)
    return 1 if too_long else 0


if __name__ == "__main__":
    sys.exit(main())
