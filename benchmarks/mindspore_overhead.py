"""What debugging costs a MindSpore training in graph mode, beside MindSpore's own dump of the same tensors.

    python benchmarks/mindspore_overhead.py [--only lenet|perceptron] [--rounds 4] [--lives 3] [--version 2.10]

How it is measured is told in taking_turns.py; the debug server runs in another process on the same cores. Plain dump
and ours write to the same disk in memory. MindSpore comes from the environment that ``make test`` makes.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from taking_turns import Tool, show, take_turns

if TYPE_CHECKING:
    from server import Running

HERE = Path(__file__).resolve().parent
STEPS_A_ROUND = {"lenet": 100, "perceptron": 20}

EAGER = (
    Tool("plain", "no tool"),
    Tool("tensight", "tensight: attached, nothing watched"),
    Tool("tensight-watched", "tensight: recommended set on everything", "recommended"),
    Tool("tensight-weights", "tensight: weights and gradients only", "weight_overflow", on="weights"),
)
TOOLS = (
    Tool("plain", "no tool"),
    Tool("dump", "MindSpore's dump of every output and parameter"),
    Tool("tensight", "tensight: attached, nothing watched, beside dump", beside="dump"),
    Tool(
        "tensight-watched",
        "tensight: recommended set on everything, beside dump",
        "recommended",
        beside="dump",
        bars={"lenet": 1.25, "perceptron": 1.25},
    ),
    Tool(
        "tensight-parameters",
        "tensight: weights and gradients only, beside no tool",
        "weight_overflow",
        on="weights",
        bars={"lenet": 1.5},
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=sorted(STEPS_A_ROUND))
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--lives", type=int, default=3, help="how often all processes are started anew")
    parser.add_argument("--version", choices=("2.7", "2.10"), default="2.10", help="of MindSpore")
    parser.add_argument("--mode", choices=("graph", "pynative"), default="graph")
    parser.add_argument("--tools", nargs="*", help="only these, as mindspore_training.py names them")
    options = parser.parse_args()
    environment = f"mindspore-{options.version}"
    root = HERE.parent
    subprocess.run([root / "tests" / "conformance" / "make_env.sh", root / ".venvs", environment], check=True)
    python = str(root / ".venvs" / environment / "bin" / "python")
    tools = [
        tool
        for tool in (TOOLS if options.mode == "graph" else EAGER)
        if not options.tools or tool.name in ("plain", "dump", *options.tools)
    ]

    def command(tool: Tool, job: str, server: Running) -> list[str]:
        port = server.debugger.rpartition(":")[2]
        training = str(HERE / "mindspore_training.py")
        return [
            python,
            training,
            job.partition("-")[0],
            tool.name,
            "--mode",
            options.mode,
            "--port",
            port,
            "--job",
            job,
        ]

    met = True
    for workload, steps in STEPS_A_ROUND.items():
        if options.only in (None, workload):
            lives = [
                take_turns(workload, tools, command, rounds=options.rounds, steps=steps) for _ in range(options.lives)
            ]
            met = show(workload, lives) and met
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
