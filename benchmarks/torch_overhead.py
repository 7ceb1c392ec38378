"""What debugging costs a PyTorch training, beside its peers: seconds a step, as a ratio to the step without any tool.

    python benchmarks/torch_overhead.py [--only transformer|cnn] [--rounds 4] [--lives 3] [--without-peers] [--profile]

All run in one go, each in a process of its own: in every round each of them does some steps, one after the other, so
that whatever else the machine does hits all alike. A ratio is that of the medians of a round; what is shown is the
median of the rounds, and between which quarters the rounds lie. Two processes that do the same differ by some percent
for as long as they live, and who comes first in a round has it easier: so each has several lives, and all take turns.
The debug server runs in another process on the same cores.

The peers come from the package index, into an environment that is made at the first run (.venvs/torch-peers); they are
compared with the plain step in that environment.
"""

from __future__ import annotations

import argparse
import json
import selectors
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING

from server import Running, started

if TYPE_CHECKING:
    from tensight.client import Session

HERE = Path(__file__).resolve().parent
PEERS = HERE.parent / ".venvs" / "torch-peers"
PEER_PACKAGES = ("torch==2.13.0", "transformers==5.23.0", "mindstudio-probe==26.2.0")
PATIENCE_S = 300
STEPS_A_ROUND = {"transformer": 6, "cnn": 40}


@dataclass(frozen=True)
class Tool:
    """A way of running the workload.

    Attributes
    ----------
    name : str
        As torch_training.py knows it.
    title : str
    watch : str
        What is watched for: "" nothing, "recommended", or a condition.
    peer : bool
        Whether it runs in the peers' environment.
    bars : dict of str to float
        The ratio that must not be exceeded, by workload.
    """

    name: str
    title: str
    watch: str = ""
    peer: bool = False
    bars: dict[str, float] = field(default_factory=dict)


TOOLS = (
    Tool("plain", "no tool"),
    Tool("tensight", "tensight: attached, nothing watched", bars={"transformer": 1.02, "cnn": 1.02}),
    Tool(
        "tensight-watched",
        "tensight: module statistics, recommended set on all",
        "recommended",
        bars={"transformer": 1.10, "cnn": 1.35},
    ),
    Tool("tensight-operators", "tensight: NaN and Inf at every operator", "tensor_overflow", bars={"transformer": 1.3}),
    Tool("plain", "no tool, in the peers' environment", peer=True),
    Tool("msprobe", "msprobe: statistics of every module (L0)", peer=True),
    Tool("msprobe-apis", "msprobe: statistics of every API (L1)", peer=True),
    Tool("underflow-overflow", "transformers: NaN and Inf in modules, forward", peer=True),
    Tool("detect-anomaly", "torch detect_anomaly: NaN, backward only", peer=True),
    Tool("debug-mode-names", "torch DebugMode: every operator, no value", peer=True),
    Tool("debug-mode", "torch DebugMode: every operator and its norm", peer=True),
)


class Worker:
    """A training process that does steps when it is told to."""

    def __init__(self, workload: str, tool: Tool, server: Running, options: argparse.Namespace) -> None:
        self.tool = tool
        self.ratios: list[float] = []
        self.medians: list[float] = []
        self._server = server
        self._job = f"{workload}-{tool.name}"
        self._session: Session | None = None
        python = str(PEERS / "bin" / "python") if tool.peer else sys.executable
        profiler = ["-m", "cProfile", "-o", f"{self._job}.profile"] if options.profile and not tool.peer else []
        command = [python, *profiler, str(HERE / "torch_training.py"), workload, tool.name, "--job", self._job]
        command += ["--port", server.debugger.rpartition(":")[2], "--threads", str(options.threads)]
        command += ["--clock", options.clock]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def begin(self) -> None:
        """Do the first steps, and set watchpoints before them."""
        self._order(3)
        if self.tool.watch:
            self._session = self._server.person.wait_for_session(PATIENCE_S, name=self._job)
            self._session.wait(PATIENCE_S)
            if self.tool.watch == "recommended":
                self._session.watch_recommended()
            else:
                self._session.watch(self.tool.watch, on="all")
            self._session.continue_()
        self._answer()

    def steps(self, count: int) -> float:
        """Return the median of the seconds that each of some steps took, after one that warms the caches again."""
        self._order(1 + count)
        return median(self._answer()[1:])

    def _order(self, count: int) -> None:
        assert self.process.stdin
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()

    def _answer(self) -> list[float]:
        assert self.process.stdout
        end = time.monotonic() + PATIENCE_S
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while not selector.select(5):
                assert time.monotonic() < end, f"{self._job} takes too long"
                if self._session is not None and self._session.state.value == "paused":
                    raise SystemExit(f"{self._job} was stopped by {self._session.hits()[0]}")
        line = self.process.stdout.readline()
        assert line, f"{self._job} ended"
        seconds: list[float] = json.loads(line)
        return seconds


def measure(workload: str, tools: list[Tool], options: argparse.Namespace) -> list[Worker]:
    with started() as server, ExitStack() as stack:
        workers = [stack.enter_context(Worker(workload, tool, server, options)) for tool in tools]
        for worker in workers:
            worker.begin()
        for turn in range(options.rounds):
            for worker in workers[turn % len(workers) :] + workers[: turn % len(workers)]:
                worker.medians.append(worker.steps(STEPS_A_ROUND[workload]))
        for worker in workers:
            base = next(each for each in workers if each.tool.name == "plain" and each.tool.peer == worker.tool.peer)
            worker.ratios = [mine / plain for mine, plain in zip(worker.medians, base.medians, strict=True)]
        return workers


def show(workload: str, lives: list[list[Worker]]) -> None:
    """Print a row for each tool, from all lives of its processes."""
    print(f"\n{workload:52} {'ms a step':>9} {'ratio':>7}  {'quarters':13} {'bar':>5}")
    for same in zip(*lives, strict=True):
        tool = same[0].tool
        ratios = [ratio for worker in same for ratio in worker.ratios]
        seconds = median(each for worker in same for each in worker.medians)
        low, ratio, high = quantiles(ratios, n=4, method="inclusive")
        bar = tool.bars.get(workload)
        verdict = "" if bar is None else f"{bar:5.2f} {'yes' if ratio <= bar else 'NO'}"
        print(f"{tool.title:52} {seconds * 1e3:9.1f} {ratio:7.3f}  {f'{low:.2f} – {high:.2f}':13} {verdict}")


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
    parser.add_argument("--only", choices=sorted(STEPS_A_ROUND))
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
    for workload in STEPS_A_ROUND:
        if options.only in (None, workload):
            show(workload, [measure(workload, tools, options) for _ in range(options.lives)])


if __name__ == "__main__":
    main()
