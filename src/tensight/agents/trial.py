"""Runs and measures some steps of an unchanged script, for `tensight selftest`, with and without the debugger.

``python -m tensight.agents.trial FD STEPS [-m] SCRIPT ARGUMENTS`` runs the script as `python` would and ends the
process after so many steps of the optimizer. It writes a dot to the file descriptor after each step, and at the end a
line of JSON: `Outcome`.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import runpy
import sys
import time
from abc import ABC, abstractmethod
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn

from tensight.agents.launch import when_imported
from tensight.frameworks import FRAMEWORKS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tensight.agents.core.debugging import TrainingDebugger

STEP = b"."


class Outcome(NamedTuple):
    """The report of a trial.

    Attributes
    ----------
    framework : str
        Name of its module; empty if no optimizer took a step.
    steps : int
        Steps of the optimizer; of the first, if there are several.
    step_seconds : list of float
        From the end of a step to the end of the next one.
    peak_bytes : int
        Maximum memory of the process: resident, or in memory-backed files.
    digests : dict of str to str
        SHA-256 of the bits of everything that a step may change: parameters, buffers, optimizers' states.
    debugged_steps : int
        Number of steps that the debugger observed.
    """

    framework: str
    steps: int
    step_seconds: list[float]
    peak_bytes: int
    digests: dict[str, str]
    debugged_steps: int


class Training(ABC):
    """The training as a framework's adapter sees it; the adapter's module has a function `follow` (trial)."""

    framework: ClassVar[str]
    """Name of its module."""

    @abstractmethod
    def state(self) -> Iterator[tuple[str, str]]:
        """Yield name and digest of everything that a step may change, the same names in every run."""

    def bytes_in_files(self) -> int:
        """Return the memory that is taken by files of the debugger."""
        return 0

    def debugged_steps(self) -> int:
        """Return the number of steps that the debugger observed."""
        debugger = self._debugger()
        return 0 if debugger is None or debugger.agent is None else debugger.agent.step

    def close(self) -> None:
        """End debugging, and remove its files: the process is about to end."""
        debugger = self._debugger()
        if debugger is not None:
            debugger.close()

    def _debugger(self) -> TrainingDebugger | None:
        # Not imported here: a run without the debugger must not import it.
        module = sys.modules.get(f"tensight.agents.{self.framework}.install")
        return None if module is None else module.installed()


class Trial:
    """The measurement of one process.

    Parameters
    ----------
    descriptor : int
        File descriptor for the report.
    most_steps : int
        Number of steps after which the process ends.
    """

    def __init__(self, descriptor: int, most_steps: int) -> None:
        self._descriptor = descriptor
        self._most_steps = most_steps
        self._process = os.getpid()
        self._training: Training | None = None
        self._ends: list[float] = []
        self._bytes_in_files = 0

    def stepped(self, training: Training) -> None:
        """Note a step of the first optimizer of a training; the last step ends the process."""
        # Forked workers inherit the code that counts steps, and have nothing to report.
        if os.getpid() != self._process or (self._training is not None and training is not self._training):
            return
        self._training = training
        self._ends.append(time.perf_counter())
        os.write(self._descriptor, STEP)
        count = len(self._ends)
        if count & (count - 1) == 0:
            # Rare enough to leave the median of the steps unchanged.
            self._bytes_in_files = max(self._bytes_in_files, training.bytes_in_files())
        if count == self._most_steps:
            self._end(training)

    def _end(self, training: Training) -> NoReturn:
        self.report()
        training.close()
        sys.stdout.flush()
        sys.stderr.flush()
        # A script could catch any exception.
        os._exit(0)

    def report(self) -> None:
        """Write the outcome."""
        if os.getpid() != self._process:
            return
        self._process = -1
        training = self._training
        seconds = [later - earlier for earlier, later in zip(self._ends, self._ends[1:], strict=False)]
        outcome = Outcome(
            framework="" if training is None else training.framework,
            steps=len(self._ends),
            step_seconds=seconds,
            # Read first, because computing the digests takes memory.
            peak_bytes=_peak_bytes() + self._bytes_in_files,
            digests={} if training is None else dict(training.state()),
            debugged_steps=0 if training is None else training.debugged_steps(),
        )
        with open(self._descriptor, "w", closefd=False) as report:
            report.write(f"\n{json.dumps(outcome._asdict())}\n")


def _peak_bytes() -> int:
    """Return the maximum resident memory of this program; the kernel's other figure includes its parent's."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def _follow(trial: Trial, framework: str) -> None:
    """Measure every step from now on; the framework has been imported."""
    adapter: Any = importlib.import_module(f"tensight.agents.{framework}.trial")
    adapter.follow(trial)
    # Exit handlers run in reverse order, and the report must come before the framework cleans up.
    atexit.unregister(trial.report)
    atexit.register(trial.report)


def main(arguments: Sequence[str]) -> None:
    """Run a script as `python` would, and measure it."""
    trial = Trial(int(arguments[0]), int(arguments[1]))
    atexit.register(trial.report)
    for framework in FRAMEWORKS:
        when_imported(framework.module, partial(_follow, trial, framework.module))
    if arguments[2] == "-m":
        sys.argv = list(arguments[3:])
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = list(arguments[2:])
        sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
