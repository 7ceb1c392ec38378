"""A search with its recordings: trials of PyTorch, of which one is healthy in most cases, one ill, and one fails."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.processes.forking_interpreter import forking_interpreter

PATIENCE_S = 300.0
NAME = "tried/search"

TRAINING = """
import argparse
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--kind")
arguments = parser.parse_args()
if arguments.kind == "fails":
    raise SystemExit("no such data")
torch.manual_seed(int(arguments.kind == "seeded"))
inputs = torch.randn(16, 4)
targets = inputs.sum(1, keepdim=True)
network = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(network.parameters(), lr=arguments.lr)
for step in range(1, 9):
    optimizer.zero_grad()
    outputs = network(inputs)
    if arguments.kind == "nan" and step == 3:
        outputs = outputs * float("nan")
    loss = ((outputs - targets) ** 2).mean()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
"""

CONFIGURATION = """
command: train.py --lr {lr} --kind {kind}
summary_base_dir: tried
tuner: {name: random, args: {seed: 18}}
record: ring:4
pruner: {name: none}
target: {name: loss, goal: minimize, from: {pattern: 'loss (\\S+)'}}
parameters:
  lr: {bounds: [1e-4, 0.1], type: float, log: true}
  kind: {choice: [healthy, seeded, nan, fails]}
"""


def make_search(folder: Path, trials: int = 10) -> None:
    """Run a search in a folder."""
    folder.mkdir(parents=True)
    (folder / "train.py").write_text(TRAINING)
    (folder / "search.yaml").write_text(CONFIGURATION)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TENSIGHT_")}
    words = ("search", "--config", "search.yaml", "--trials", str(trials), "--jobs", "2", "--quiet")
    ended = subprocess.run(
        [forking_interpreter().python, "-m", "tensight", *words],
        cwd=folder,
        env={**inherited, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
