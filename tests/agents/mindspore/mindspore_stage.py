"""Trainings of MindSpore in processes of their own: the environment that runs the tests has no MindSpore."""

from __future__ import annotations

import itertools
import os
import subprocess
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tensight
from tensight.errors import TensightError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from running import RunningServer

    from tensight.client import Session

PATIENCE_S = 180.0
VERSIONS = ("2.10", "2.7")
SCRIPT = Path(__file__).with_name("graph_training.py")
ENVIRONMENTS = Path(__file__).resolve().parents[3] / ".venvs"
MEMORY_BACKED = Path("/dev/shm")  # noqa: S108 - where MindSpore dumps
NOT_INHERITED = ("TENSIGHT_", "MS_DEBUGGER_", "ENABLE_MS_", "MINDSPORE_DUMP_")

_numbers = itertools.count(1)


def python_of(version: str) -> Path:
    """Return the interpreter that has a version of MindSpore; without one the test is skipped."""
    python = ENVIRONMENTS / f"mindspore-{version}" / "bin" / "python"
    if not python.exists():
        pytest.skip(f"there is no environment with MindSpore {version} at {python}: `make mindspores` builds it")
    return python


def name_of_job() -> str:
    """Return a name for a training that no other has."""
    return f"graph-{os.getpid()}-{next(_numbers)}"


def address(server: RunningServer) -> tuple[str, str]:
    """Return host and port at which trainings find a server."""
    host, _, port = str(server.debugger).rpartition(":")
    return host, port


@dataclass
class Outcome:
    """How a training ended.

    Attributes
    ----------
    code : int
    output : list of str
        Lines that it wrote.
    errors : list of str
        Lines on stderr that are not the debugger's.
    notices : list of str
        Lines on stderr that are.
    """

    code: int
    output: list[str]
    errors: list[str]
    notices: list[str]


class Run:
    """A training in a process of its own.

    Parameters
    ----------
    version : str
        Of MindSpore.
    *arguments : str
        Of the script.
    folder : Path
        Where it runs.
    server : RunningServer or str, optional
        Where it looks for a debug server, if it is debugged with `tensight run`.
    options : tuple of str
        Of `tensight run`.
    variables : mapping of str to str
        Of its environment.
    script : Path
    """

    def __init__(
        self,
        version: str,
        *arguments: str,
        folder: Path,
        server: RunningServer | None = None,
        options: tuple[str, ...] = (),
        variables: Mapping[str, str] | None = None,
        script: Path = SCRIPT,
    ) -> None:
        command = [str(python_of(version))]
        if server is not None or options:
            where = () if server is None else ("--host", address(server)[0], "--port", address(server)[1])
            command += ["-m", "tensight", "run", *where, *options]
        inherited = {name: text for name, text in os.environ.items() if not name.startswith(NOT_INHERITED)}
        self._lines: list[str] = []
        self._errors = folder / "training.stderr"
        with self._errors.open("w") as errors:
            self.process = subprocess.Popen(
                [*command, str(script), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=folder,
                # MindSpore warns of what is deprecated, and of having been built for an older NumPy.
                env={**inherited, "GLOG_v": "3", **(variables or {})},
            )
        assert self.process.stdin
        assert self.process.stdout
        self._stdin, self._stdout = self.process.stdin, self.process.stdout

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def until(self, line: str) -> None:
        """Wait until it has written a line; one that says nothing for too long is killed."""
        impatience = threading.Timer(PATIENCE_S, self.process.kill)
        impatience.start()
        try:
            while line not in self._lines:
                written = self._stdout.readline()
                assert written, f"it ended without {line!r}: {self._lines[-3:]} {self._errors.read_text()}"
                self._lines.append(written.rstrip("\n"))
        finally:
            impatience.cancel()

    def go_on(self) -> None:
        """Let it leave the place where it waits for a word."""
        self._stdin.write("\n")
        self._stdin.flush()

    def outcome(self) -> Outcome:
        """Wait until it has ended."""
        rest, _ = self.process.communicate(timeout=PATIENCE_S)
        lines = [*self._lines, *rest.splitlines()]
        errors = self._errors.read_text().splitlines()
        notices = [line for line in errors if line.startswith("tensight:")]
        return Outcome(self.process.returncode, lines, [line for line in errors if line not in notices], notices)


@contextmanager
def attached(server: RunningServer, name: str) -> Iterator[Session]:
    """Give the session of the training of a name; it is ended where the test leaves it."""
    with tensight.connect(server.url) as client:
        session = client.wait_for_session(PATIENCE_S, name=name)
        try:
            yield session
        finally:
            try:
                if not session.state.has_ended:
                    session.terminate()
            except TensightError:
                """The training has ended by itself, or there is no server any more."""


def rings(process_id: int) -> list[Path]:
    """Return the private dumps that a process has: it holds their locks."""
    found = set()
    for path in Path(f"/proc/{process_id}/fd").iterdir():
        with suppress(OSError):
            found.add(path.readlink())
    return [path for path in found if path.parent == MEMORY_BACKED and path.name.startswith("tensight-ring-")]
