"""Run some steps of a training in a new process, with or without the debugger, and compare the results."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from tensight.agents.core.settings import as_variables
from tensight.cli.own_server import own_server
from tensight.client import WaitError
from tensight.errors import InputError, TensightError
from tensight.frameworks import FRAMEWORKS

if TYPE_CHECKING:
    from tensight.client import Server, Session
    from tensight.server.occupancy import Announcement

CHECK_EVERY_S = 0.5

_JOB = "selftest"
NOTICED_WITHIN_S = 10.0
LINES_SHOWN = 12
_WHERE = "run tensight of the environment that the training has"
_NOT_INHERITED = ("TENSIGHT_DEBUG", "ENABLE_MS_DEBUGGER")


@dataclass(frozen=True, slots=True)
class Measured:
    """The measurements of a process.

    Attributes
    ----------
    steps : int
        Number of optimizer steps.
    step_s : float
        Median duration of a step in seconds; NaN if there was only one.
    peak_bytes : int
        Peak of the resident memory, including files in memory.
    digests : mapping of str to str
        Digest of the bits of each parameter, buffer and tensor of an optimizer's state.
    debugged_steps : int
        Number of steps that the debugger saw.
    messages : str
        Output of the debugger on stderr.
    framework : str
        Name of the framework's module.
    """

    steps: int
    step_s: float
    peak_bytes: int
    digests: Mapping[str, str]
    debugged_steps: int = 0
    messages: str = ""
    framework: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the debugger changed.

    Attributes
    ----------
    compared : int
        Number of compared tensors.
    unstable : tuple of str
        Tensors that differ between two runs without the debugger.
    changed : tuple of str
        Tensors that differ with the debugger, if the script is deterministic.
    attached : bool
        Whether the debugger was attached and saw the steps.
    slowdown : float
        Median step with the debugger divided by that without.
    added_bytes : int
        Increase of the peak of the resident memory by the debugger.
    """

    compared: int
    unstable: tuple[str, ...]
    changed: tuple[str, ...]
    attached: bool
    slowdown: float
    added_bytes: int

    @property
    def passed(self) -> bool:
        """Whether the debugger was attached and provably changed nothing."""
        return self.attached and self.compared > 0 and not self.unstable and not self.changed


def require_framework() -> None:
    """Check that a framework is installed.

    Raises
    ------
    InputError
        No framework is installed for this interpreter.
    """
    if not any(importlib.util.find_spec(framework.module) for framework in FRAMEWORKS):
        neither = " nor ".join(framework.name for framework in FRAMEWORKS)
        raise InputError(f"neither {neither} is installed for {sys.executable}: {_WHERE}")


def judge(plain: Measured, again: Measured, debugged: Measured) -> Verdict:
    """Compare two runs without the debugger and one with it."""
    unstable = differing(plain, again)
    step_s = statistics.median((plain.step_s, again.step_s))
    return Verdict(
        compared=len(plain.digests),
        unstable=unstable,
        changed=() if unstable else differing(plain, debugged),
        # The agent ends its last step after the optimizer's.
        attached=debugged.debugged_steps >= debugged.steps - 1,
        slowdown=debugged.step_s / step_s if step_s else float("nan"),
        added_bytes=debugged.peak_bytes - max(plain.peak_bytes, again.peak_bytes),
    )


def measure(command: Sequence[str], steps: int, on_step: Callable[[], None]) -> Measured:
    """Run some steps of a script without the debugger.

    Parameters
    ----------
    command : sequence of str
        Arguments for `python`: a script, or ``-m`` and a module, and its arguments.
    steps : int
        Number of optimizer steps after which the process is ended.
    on_step : callable
        Called after each step.

    Raises
    ------
    InputError
        The script failed, or its optimizer took no step.
    """
    return run_steps(command, steps, {}, on_step)


def measure_debugged(
    command: Sequence[str], steps: int, capture: str, on_step: Callable[[], None]
) -> tuple[Measured, int]:
    """Run some steps of a script with the debugger and the recommended watchpoints.

    Returns
    -------
    (Measured, int)
        The measurements, and how often a watchpoint stopped the training.
    """
    with tempfile.TemporaryDirectory(prefix="tensight-selftest-") as folder, own_server(Path(folder)) as server:
        host, _, port = (server.debugger or "").rpartition(":")
        choices = {"host": host, "port": int(port), "capture": capture, "recommended": True, "job": _JOB}
        following = _Following(server)
        try:
            measured = run_steps(command, steps, {"TENSIGHT_DEBUG": "1", **as_variables(choices)}, on_step)
        finally:
            following.end()
        return measured, following.stops


class _Following:
    """Resume a training whenever a watchpoint stops it."""

    def __init__(self, server: Announcement) -> None:
        self.stops = 0
        self._server = server
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Wait until the server has noticed the end of the training."""
        self._over.set()
        self._thread.join(NOTICED_WITHIN_S)

    def _follow(self) -> None:
        import tensight

        # If the server ends while the training runs, this is not an error of the measurement.
        with contextlib.suppress(TensightError), tensight.connect(self._server.http) as server:
            session = self._session(server)
            while session is not None:
                record = session.wait()
                if record.state.has_ended:
                    return
                self.stops += record.hits > 0
                session.continue_()

    def _session(self, server: Server) -> Session | None:
        while not self._over.is_set():
            with contextlib.suppress(WaitError):
                return server.wait_for_session(CHECK_EVERY_S, name=_JOB)
        return None


def differing(first: Measured, second: Measured) -> tuple[str, ...]:
    """Return the names of the tensors whose bits differ between two runs."""
    names = dict.fromkeys((*first.digests, *second.digests))
    return tuple(name for name in names if first.digests.get(name) != second.digests.get(name))


def run_steps(
    command: Sequence[str],
    steps: int,
    variables: Mapping[str, str],
    on_step: Callable[[], None],
    runner: Sequence[str] = ("tensight.agents.trial",),
) -> Measured:
    """Run some steps of a script in a new process.

    Parameters
    ----------
    command, steps, on_step
        See `measure`.
    variables : mapping of str to str
        Additional environment variables.
    runner : sequence of str
        The module that runs the script, and its arguments.

    Raises
    ------
    InputError
        The script failed, or its optimizer took no step.
    """
    reading, writing = os.pipe()
    environment = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    arguments = [sys.executable, "-m", *runner, str(writing), str(steps), *command]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(  # noqa: S603 - what the person asked for
            arguments,
            env={**environment, **variables},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(writing,),
            start_new_session=True,
        )
        os.close(writing)
        try:
            with open(reading, "rb", buffering=0) as pipe:
                outcome = _read_outcome(pipe, on_step)
            process.wait()
        finally:
            # Also ends workers of data loaders that are still running.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        return _measured(outcome, output.read().decode(errors="replace"), process.returncode, " ".join(command))


def _read_outcome(pipe: IO[bytes], on_step: Callable[[], None]) -> dict[str, Any] | None:
    """Read a dot for each step, then the line with the outcome; None if the process ended without one."""
    read, steps = b"", 0
    while read.count(b"\n") < 2:
        piece = pipe.read(65536)
        if not piece:
            return None
        read += piece
        for _ in range(steps, read.find(b"\n") if b"\n" in read else len(read)):
            steps += 1
            on_step()
    outcome: dict[str, Any] = json.loads(read.splitlines()[1])
    return outcome


def failure_text(what: str, code: int, lines: Sequence[str]) -> str:
    """Return how a command has failed, with the last lines that it printed."""
    last = "\n".join(f"  {line}" for line in lines[-LINES_SHOWN:])
    return f"{what}: ended with exit code {code}; the last it printed:\n{last}"


def _measured(outcome: dict[str, Any] | None, output: str, code: int, what: str) -> Measured:
    if code != 0 or outcome is None:
        text = failure_text(what, code, output.splitlines())
        missing = [framework.name for framework in FRAMEWORKS if f"No module named {framework.module!r}" in text]
        hint = "".join(f"\n{name} is not installed for {sys.executable}: {_WHERE}" for name in missing)
        raise InputError(f"{text}{hint}")
    if outcome["steps"] == 0:
        frameworks = " or ".join(framework.name for framework in FRAMEWORKS)
        raise InputError(f"{what}: no optimizer of {frameworks} took a step in this process; nothing can be compared")
    seconds = outcome["step_seconds"]
    lines = [line for line in output.splitlines() if line.startswith("tensight: ")]
    return Measured(
        steps=outcome["steps"],
        step_s=statistics.median(seconds) if seconds else float("nan"),
        peak_bytes=outcome["peak_bytes"],
        digests=outcome["digests"],
        debugged_steps=outcome["debugged_steps"],
        messages="\n".join(lines),
        framework=outcome["framework"],
    )
