"""What debugging costs where there are many small tensors: how the start and a step grow with their number.

    python benchmarks/many_tensors.py [--tensors 1000 10000 100000] [--capture modules|ops] [--steps 4]

A chain of small dense layers, each with a weight and a bias, is trained without any tool, attached to a debug server,
and with the recommended watchpoints. All figures are seconds of processor time, of the training and of the server, so
that they count the work and not what else the machine does. "Start" is the first step beyond that of the plain
training: it contains the search for the server, the graphs, the watchpoints and what is learned of the step; "step" is
the median of the others beside the plain one. Between two numbers of tensors it prints the growth of the start: 1 is
linear, 2 quadratic.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import NamedTuple

from server import Running, started

SCRIPT = """
import json, sys, time

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(int(sys.argv[1]) // 2)))
with torch.no_grad():
    for layer in model:
        layer.weight.copy_(torch.eye(4) + 0.001 * torch.randn(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
data = torch.randn(8, 4)
for _ in range(int(sys.argv[2])):
    begin_s = time.process_time()
    optimizer.zero_grad()
    model(data).square().mean().backward()
    optimizer.step()
    print(json.dumps(time.process_time() - begin_s), flush=True)
"""

WAYS = {"plain": None, "attached": [], "recommended": ["--recommended"]}


class Cost(NamedTuple):
    """Seconds of processor time."""

    first_s: float
    step_s: float
    server_s: float


def processor_s(process_id: int) -> float:
    """Return the processor time that a process has taken so far."""
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(script: Path, way: str, tensors: int, options: argparse.Namespace, server: Running) -> Cost:
    """Run the training once."""
    command = [sys.executable]
    if way != "plain":
        host, _, port = server.debugger.rpartition(":")
        command += ["-m", "tensight", "run", "--host", host, "--port", port, "--capture", options.capture, *WAYS[way]]
    command += [str(script), str(tensors), str(options.steps)]
    before_s = processor_s(server.process.pid)
    seconds: list[float] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            if not seconds:
                server_s = processor_s(server.process.pid) - before_s
            seconds.append(json.loads(line))
    assert process.returncode == 0, way
    return Cost(seconds[0], median(seconds[2:]), server_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tensors", type=int, nargs="+", default=[1000, 10_000, 100_000], help="weights and biases")
    parser.add_argument("--capture", choices=("modules", "ops"), default="modules")
    parser.add_argument("--steps", type=int, default=5, help="at least 3")
    options = parser.parse_args()
    print(f"{'tensors':>9} {'way':12} {'start':>8} {'server':>8} {'growth':>7} {'step':>9} {'beside plain':>13}")
    earlier: dict[str, tuple[int, float]] = {}
    with tempfile.TemporaryDirectory(prefix="tensight-bench-") as folder, started() as server:
        script = Path(folder) / "train.py"
        script.write_text(SCRIPT)
        for tensors in options.tensors:
            plain = measure(script, "plain", tensors, options, server)
            print(f"{tensors:9,} {'plain':12} {plain.first_s:8.2f} {'':8} {'':7} {plain.step_s:9.4f}", flush=True)
            for way in ("attached", "recommended"):
                cost = measure(script, way, tensors, options, server)
                start_s = cost.first_s - plain.first_s
                growth = ""
                if way in earlier:
                    fewer, fewer_s = earlier[way]
                    growth = f"{math.log(start_s / fewer_s) / math.log(tensors / fewer):.2f}"
                earlier[way] = tensors, start_s
                line = f"{tensors:9,} {way:12} {start_s:8.2f} {cost.server_s:8.2f} {growth:>7}"
                print(f"{line} {cost.step_s:9.4f} {cost.step_s / plain.step_s:13.2f}", flush=True)


if __name__ == "__main__":
    main()
