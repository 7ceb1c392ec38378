"""The scripts of `examples/`, run by the Python of an environment with MindSpore, and a person who debugs them."""

from __future__ import annotations

import itertools
import os
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tensight
from tests.processes.forked import MINDSPORE, popen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensight.client import Session
    from tests.server.running import RunningServer

PATIENCE_S = 180.0
ROOT = Path(__file__).resolve().parents[3]

_jobs = itertools.count(1)


def python(version: str) -> Path:
    return ROOT / ".venvs" / f"mindspore-{version}" / "bin" / "python"


def script(example: str) -> Path:
    return ROOT / "examples" / f"{example}_mindspore.py"


def planted_line(example: str) -> int:
    """Return the number of the line that the script marks as its fault."""
    lines = script(example).read_text().splitlines()
    (line,) = (number for number, text in enumerate(lines, 1) if "# FAULT" in text)
    return line


@dataclass(frozen=True)
class Ended:
    """A training that has ended.

    Attributes
    ----------
    code : int
        Its exit code.
    printed, complained : str
        What it wrote to stdout and stderr.
    """

    code: int
    printed: str
    complained: str


def run(version: str, example: str, *options: str) -> Ended:
    """Train without the debugger."""
    command = [str(python(version)), str(script(example)), *options]
    return _ended(subprocess.Popen(command, env=_environment(), **_PIPES))


class Debugged:
    """An example that is debugged; it waits before its first step.

    Attributes
    ----------
    session : Session
    """

    def __init__(self, session: Session, process: subprocess.Popen[str]) -> None:
        self.session = session
        self._process = process

    def finish(self) -> Ended:
        """Wait until the process has ended."""
        return _ended(self._process)


@contextmanager
def debugged(server: RunningServer, version: str, example: str, *options: str) -> Iterator[Debugged]:
    """Start an example with `tensight run`, and end it with the block."""
    job = f"{example}-{version}-{next(_jobs)}-{os.getpid()}"
    host, _, port = str(server.debugger).rpartition(":")
    ours = [str(python(version)), "-m", "tensight", "run", "--break-at-start", "--job", job, "--host", host]
    command = [*ours, "--port", port, str(script(example)), *options]
    process = popen(command, MINDSPORE, env=_environment(), **_PIPES)
    try:
        with tensight.connect(server.url) as client:
            session = client.wait_for_session(PATIENCE_S, name=job)
            session.wait(PATIENCE_S)
            yield Debugged(session, process)
    finally:
        process.kill()
        process.communicate()


# MindSpore leaves a folder where it runs when it cannot compile something.
_PIPES: dict[str, Any] = {
    "stdout": subprocess.PIPE,
    "stderr": subprocess.PIPE,
    "text": True,
    "cwd": tempfile.gettempdir(),
}


def _environment() -> dict[str, str]:
    # MindSpore warns of what CPUs lack.
    return {**os.environ, "GLOG_v": "3"}


def _ended(process: subprocess.Popen[str]) -> Ended:
    printed, complained = process.communicate(timeout=PATIENCE_S)
    return Ended(process.returncode, printed, complained)
