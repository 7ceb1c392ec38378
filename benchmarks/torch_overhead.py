"""What debugging costs a PyTorch training, beside its peers: seconds a step, as a ratio to the step without any tool.

    python benchmarks/torch_overhead.py [--only transformer|cnn|small] [--rounds 4] [--lives 3] [--without-peers]
        [--clock processor] [--profile]

How it is measured is told in taking_turns.py; the debug server runs in another process on the same cores.

The peers come from the package index, into an environment that is made at the first run (.venvs/torch-peers); they are
compared with the plain step in that environment.
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
PEERS = HERE.parent / ".venvs" / "torch-peers"
PEER_PACKAGES = ("torch==2.13.0", "transformers==5.23.0", "mindstudio-probe==26.2.0")
STEPS_A_ROUND = {"transformer": 6, "cnn": 40, "lstm": 40, "checkpointed": 40, "llama": 20}
SMALL = ("lstm", "checkpointed", "llama")
"""Small programs, as most people try first. Their bars are for processor time: `--only small --clock processor`."""

TOOLS = (
    Tool("plain", "no tool"),
    Tool("tensight", "tensight: attached, nothing watched", bars={"transformer": 1.02, "cnn": 1.02}),
    Tool(
        "tensight-watched",
        "tensight: module statistics, recommended set on all",
        "recommended",
        bars={"transformer": 1.10, "cnn": 1.35, **dict.fromkeys(SMALL, 1.2)},
    ),
    Tool("tensight-operators", "tensight: NaN and Inf at every operator", "tensor_overflow", bars={"transformer": 1.3}),
    Tool(
        "tensight-watched-operators",
        "tensight: every operator, recommended set on all",
        "recommended",
        bars=dict.fromkeys(SMALL, 2.5),
    ),
    Tool("tensight-alone", "tensight: a rank that watches itself", bars={"transformer": 1.10}),
    Tool("tensight-alone-hits", "tensight: a rank that watches itself, hits alone", bars={"transformer": 1.10}),
    Tool("tensight-traced", "tensight: trace of modules", bars={"transformer": 1.05}),
    Tool("tensight-traced-operators", "tensight: trace of operators", bars={"transformer": 1.5}),
    Tool("plain", "no tool, in the peers' environment", peer=True),
    Tool("msprobe", "msprobe: statistics of every module (L0)", peer=True),
    Tool("msprobe-apis", "msprobe: statistics of every API (L1)", peer=True),
    Tool("underflow-overflow", "transformers: NaN and Inf in modules, forward", peer=True),
    Tool("detect-anomaly", "torch detect_anomaly: NaN, backward only", peer=True),
    Tool("debug-mode-names", "torch DebugMode: every operator, no value", peer=True),
    Tool("debug-mode", "torch DebugMode: every operator and its norm", peer=True),
)


def prepare_peers() -> None:
    """Make the environment of the peers, if it is not there."""
    done = PEERS / "complete"
    if done.exists():
        return
    print("Installing the peers (once, about two minutes) ...", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(PEERS)], check=True)
    pip = [str(PEERS / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, *PEER_PACKAGES], check=True)
    done.touch()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=(*sorted(STEPS_A_ROUND), "small"))
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--lives", type=int, default=3, help="how often all processes are started anew")
    parser.add_argument("--threads", type=int, default=2, help="of PyTorch")
    parser.add_argument(
        "--clock",
        choices=("wall", "processor", "thread"),
        default="wall",
        help="processor time: where others use the machine",
    )
    parser.add_argument("--without-peers", action="store_true")
    parser.add_argument("--tools", nargs="*", help="only these, as torch_training.py names them")
    parser.add_argument("--profile", action="store_true", help="write a profile of each process of ours")
    options = parser.parse_args()
    if not options.without_peers:
        prepare_peers()
    tools = [tool for tool in TOOLS if not (tool.peer and options.without_peers)]
    tools = [tool for tool in tools if not options.tools or tool.name in ("plain", *options.tools)]

    def command(tool: Tool, job: str, server: Running) -> list[str]:
        python = str(PEERS / "bin" / "python") if tool.peer else sys.executable
        profiler = ["-m", "cProfile", "-o", f"{job}.profile"] if options.profile and not tool.peer else []
        what = [job.partition("-")[0], tool.name, "--job", job, "--port", server.debugger.rpartition(":")[2]]
        how = ["--threads", str(options.threads), "--clock", options.clock]
        return [python, *profiler, str(HERE / "torch_training.py"), *what, *how]

    for workload, steps in STEPS_A_ROUND.items():
        if options.only in (None, workload, "small" if workload in SMALL else workload):
            show(
                workload,
                [
                    take_turns(workload, tools, command, rounds=options.rounds, steps=steps)
                    for _ in range(options.lives)
                ],
            )


if __name__ == "__main__":
    main()
