"""A real server in a process of its own, for tests that talk to it as its users do."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.processes.forked import DEBUG_SERVER, Imports, popen
from tests.processes.ports import kept_port

START_WITHIN_S = 60
END_WITHIN_S = 30


class StartFailedError(Exception):
    """The server ended before it was ready; the text is what it wrote to stderr."""


@dataclass
class RunningServer:
    """A server that answers.

    Attributes
    ----------
    url : str
        Of the HTTP API, with the prefix of its paths, without `/api/v1`.
    debugger : str or None
        ``host:port`` for gRPC.
    banner : str
        The first line that it printed.
    """

    url: str
    debugger: str | None
    workspace: Path
    process: subprocess.Popen[str]
    banner: str

    def stop(self) -> int:
        """End it in an orderly way, and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """End it as a power failure would: no word to anybody, no file closed."""
        self.process.kill()
        self.wait()

    def wait(self) -> int:
        """Wait until it has ended, and return its exit code.

        Trainings look for it where it was: there they find no server of another test.
        """
        code = self.process.wait(END_WITHIN_S)
        if self.debugger is not None:
            with suppress(OSError):  # another server listens there already
                kept_port(int(self.debugger.rpartition(":")[2]))
        return code

    @property
    def errors(self) -> str:
        """What it wrote to stderr so far: its log."""
        return _errors_file(self.workspace).read_text(errors="replace")


@contextmanager
def running_server(
    workspace: Path,
    *options: str,
    env: Mapping[str, str] | None = None,
    command: tuple[str, ...] = (),
    imports: Imports | None = DEBUG_SERVER,
) -> Iterator[RunningServer]:
    """Start a server on free ports and end it when the context ends.

    Parameters
    ----------
    workspace : Path
        Its workspace; a second server may be started on the same one when the first has ended.
    *options : str
        More options of `tensight start`; they may also replace the ports.
    env : mapping, optional
        Environment variables beside those of the test.
    command : tuple of str
        What to put before the command, such as `prlimit`.
    imports : Imports, optional
        It is forked off an interpreter that has imported them; if None, it is started.

    Raises
    ------
    StartFailedError
        It ended instead.
    """
    workspace.mkdir(parents=True, exist_ok=True)
    arguments = ["--workspace", str(workspace), "--port", "0", "--debugger-port", "0", *options]
    with open(_errors_file(workspace), "w") as errors:
        process = popen(
            [*command, sys.executable, "-m", "tensight", "start", *arguments],
            imports,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, **(env or {})},
        )
    try:
        banner = _first_line(process, workspace)
        record = json.loads((workspace / "server.json").read_text())
        yield RunningServer(record["http"], record["debugger"], workspace, process, banner)
    finally:
        _end(process)


def kept_ports() -> tuple[str, ...]:
    """Return options for several servers, one after another, on the same ports."""
    return "--port", str(kept_port()), "--debugger-port", str(kept_port())


def _first_line(process: subprocess.Popen[str], workspace: Path) -> str:
    """Return the first line, which comes when the server answers."""
    assert process.stdout is not None
    deadline = time.monotonic() + START_WITHIN_S
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        if not selector.select(deadline - time.monotonic()):
            raise StartFailedError(f"not ready within {START_WITHIN_S} s: {_errors_file(workspace).read_text()}")
    line = process.stdout.readline()
    if not line:
        process.wait(END_WITHIN_S)
        raise StartFailedError(_errors_file(workspace).read_text())
    return line.rstrip("\n")


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(END_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    assert process.stdout is not None
    process.stdout.close()


def _errors_file(workspace: Path) -> Path:
    return workspace.parent / f"{workspace.name}.stderr"
