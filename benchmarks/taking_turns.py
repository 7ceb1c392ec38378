"""Trainings under different tools, each in a process of its own, that do their steps in turn: what a tool costs.

All run in one go: in every round each of them does some steps, one after the other, so that whatever else the machine
does hits all alike. A ratio is that of the medians of a round; what is shown is the median of the rounds, and between
which quarters the rounds lie. Two processes that do the same differ by some percent for as long as they live, and who
comes first in a round has it easier: so each has several lives, and all take turns.
"""

from __future__ import annotations

import json
import selectors
import subprocess
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import TYPE_CHECKING

from server import Running, started

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tensight.client import Session

PATIENCE_S = 300


@dataclass(frozen=True)
class Tool:
    """A way of running a workload.

    Attributes
    ----------
    name : str
        As the training script knows it.
    title : str
    watch : str
        What is watched for: "" nothing, "recommended", or a condition.
    on : str
        On which nodes a condition is watched.
    beside : str
        Name of the tool that it is compared with.
    peer : bool
        Whether it runs in another environment, and is compared with a tool of that one.
    bars : dict of str to float
        The ratio that must not be exceeded, by workload.
    """

    name: str
    title: str
    watch: str = ""
    on: str = "all"
    beside: str = "plain"
    peer: bool = False
    bars: dict[str, float] = field(default_factory=dict)


class Worker:
    """A training process that does steps when it is told to.

    Parameters
    ----------
    tool : Tool
    command : list of str
        Starts the process; it reads numbers of steps from its standard input and answers each with a line of JSON, the
        seconds of each step.
    job : str
        Name of its session.
    server : Running
    """

    def __init__(self, tool: Tool, command: list[str], job: str, server: Running) -> None:
        self.tool = tool
        self.ratios: list[float] = []
        self.medians: list[float] = []
        self._server = server
        self._job = job
        self._session: Session | None = None
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
                self._session.watch(self.tool.watch, on=self.tool.on)
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


def take_turns(
    workload: str,
    tools: Sequence[Tool],
    command: Callable[[Tool, str, Running], list[str]],
    *,
    rounds: int,
    steps: int,
) -> list[Worker]:
    """Run a workload under each tool, once; return what each took.

    Parameters
    ----------
    workload : str
    tools : sequence of Tool
    command : callable (tool, job, server) -> list of str
        Returns what starts the training.
    rounds, steps : int
        How often they take turns, and how many steps each does then.
    """
    with started() as server, ExitStack() as stack:
        workers = []
        for tool in tools:
            job = f"{workload}-{tool.name}"
            workers.append(stack.enter_context(Worker(tool, command(tool, job, server), job, server)))
        for worker in workers:
            worker.begin()
        for turn in range(rounds):
            for worker in workers[turn % len(workers) :] + workers[: turn % len(workers)]:
                worker.medians.append(worker.steps(steps))
        for worker in workers:
            base = next(
                each for each in workers if each.tool.name == worker.tool.beside and each.tool.peer == worker.tool.peer
            )
            worker.ratios = [mine / other for mine, other in zip(worker.medians, base.medians, strict=True)]
        return workers


def show(workload: str, lives: list[list[Worker]]) -> bool:
    """Print a row for each tool, from all lives of its processes; return whether no bar is missed."""
    met = True
    print(f"\n{workload:52} {'ms a step':>9} {'ratio':>7}  {'quarters':13} {'bar':>5}")
    for same in zip(*lives, strict=True):
        tool = same[0].tool
        ratios = [ratio for worker in same for ratio in worker.ratios]
        seconds = median(each for worker in same for each in worker.medians)
        low, ratio, high = quantiles(ratios, n=4, method="inclusive")
        bar = tool.bars.get(workload)
        met = met and (bar is None or ratio <= bar)
        verdict = "" if bar is None else f"{bar:5.2f} {'yes' if ratio <= bar else 'NO'}"
        print(f"{tool.title:52} {seconds * 1e3:9.1f} {ratio:7.3f}  {f'{low:.2f} – {high:.2f}':13} {verdict}")
    return met
