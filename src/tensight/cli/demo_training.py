"""The demo with PyTorch: a real training in its own process, debugged through a server."""

from __future__ import annotations

import ast
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.markup import escape

from tensight.cli.live_findings import print_findings
from tensight.cli.output import console, count
from tensight.cli.own_server import own_server
from tensight.client import WaitError
from tensight.errors import TensightError
from tensight.server.occupancy import running_server
from tensight.server.settings import load_settings

if TYPE_CHECKING:
    from rich.console import Console

    from tensight.client import Server, Session

LINES_KEPT = 12
CHECK_EVERY_S = 0.5
ATTACH_WITHIN_S = 120.0
TOKEN_VARIABLE = "TENSIGHT_TOKEN"  # noqa: S105 - the name of a variable
END_WITHIN_S = 5.0


class TrainingFailedError(TensightError):
    """The training of the demo ended before it could be debugged."""

    code = "training-failed"


def show_training(scenario: str, *, stay: bool) -> bool:
    """Train until a watchpoint hits, and print what hit, where it began and at which line.

    Parameters
    ----------
    scenario : str
        Name of a script in `tensight/scenarios`, with hyphens.
    stay : bool
        Leave the session open until the user ends it.

    Returns
    -------
    bool
        Whether a watchpoint hit.

    Raises
    ------
    TrainingFailedError
        The training ended before it could be debugged.
    """
    import tensight

    out = console()
    file = resources.files("tensight") / "scenarios" / f"{scenario.replace('-', '_')}.py"
    with contextlib.ExitStack() as stack:
        script = stack.enter_context(resources.as_file(file))
        out.print(f"[bold]{_summary(script)}[/]\n")
        status = stack.enter_context(out.status("Starting the debug server …"))
        address = stack.enter_context(_server())
        server = stack.enter_context(tensight.connect(address.http, address.token))
        out.print(f"[green]✓[/] debug server at {address.http}")
        status.update("Starting the training …")
        training = stack.enter_context(_training(script, address))
        session = stack.enter_context(_session(server, training))
        points = session.watch_recommended()
        out.print(f"[green]✓[/] training attached, {count(len(points), 'recommended watchpoint')} set")
        training.on_line = lambda line: status.update(f"Training … [dim]{escape(line)}[/]")
        record = session.continue_().wait()
        status.stop()
        if not record.hits:
            out.print(f"[yellow]The training ended at step {record.step}, and nothing hit.[/]")
            return False
        where = f"within step {record.step}, before it printed anything" if record.node else f"at step {record.step}"
        last_line = f"; the last line printed: [dim]{escape(training.last_line)}[/]" if training.last_line else ""
        out.print(f"[red]■[/] stopped {where}{last_line}\n")
        print_findings(out, session)
        if stay:
            _stay(out, address, session)
        return True


class _Address(NamedTuple):
    http: str
    debugger: str
    token: str | None


@contextmanager
def _server() -> Iterator[_Address]:
    """Yield the user's server if it is running and usable, else a temporary one on free ports."""
    running = running_server(load_settings({}, None).workspace)
    if running is not None and running.here and running.debugger is not None and running.tls_cert is None:
        token = None if running.token_file is None else Path(running.token_file).read_text(encoding="utf-8").strip()
        yield _Address(running.http, running.debugger, token)
        return
    with tempfile.TemporaryDirectory(prefix="tensight-demo-") as folder, own_server(Path(folder)) as record:
        yield _Address(record.http, record.debugger or "", None)


def _summary(script: Path) -> str:
    """Return the first line of the script's documentation."""
    return (ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or "").splitlines()[0]


def _stay(out: Console, address: _Address, session: Session) -> None:
    """Print how to inspect the session, and wait until the user ends it."""
    out.print("The training is stopped at this step. See it in the browser:")
    out.print(f"    [bold]{address.http}/?run={session.id}[/]", soft_wrap=True)
    out.print("or, from another terminal, in Python:")
    out.print("\n".join(f"    {line}" for line in _how_to_go_on(address, session)))
    out.print("[bold]Enter[/] (or Ctrl-C) ends the training.")
    with contextlib.suppress(KeyboardInterrupt, EOFError):
        input()


def _how_to_go_on(address: _Address, session: Session) -> tuple[str, ...]:
    return (
        "import tensight",
        f'session = tensight.connect("{address.http}").session("{session.name}")',
        "session.hits(), session.origins()",
        "session.tensor(session.hits()[0].tensors[0]).histogram()  # or .slice(), .statistics(), .history()",
        "session.back().wait(); session.step().wait()  # the last five steps can be looked at; or one step on",
    )


class _Training:
    """A training under the debugger, in its own process; the last lines of its output are kept.

    Parameters
    ----------
    script : Path
    address : _Address
        Address of the server.
    records : str
        Folder for the last steps.
    """

    def __init__(self, script: Path, address: _Address, records: str) -> None:
        self.job = f"demo-{script.stem}-{os.getpid()}"
        self.lines: deque[str] = deque(maxlen=LINES_KEPT)
        self.complaints: deque[str] = deque(maxlen=LINES_KEPT)
        self.on_line: Callable[[str], None] = lambda _: None
        host, _, port = address.debugger.rpartition(":")
        seen = ["--capture", "ops", "--record", "ring:5", "--record-folder", records]
        where = ["--host", host, "--port", port, "--job", self.job, "--break-at-start", "--quiet"]
        self.process = subprocess.Popen(  # noqa: S603 - ourselves
            [sys.executable, "-m", "tensight", "run", *seen, *where, str(script)],
            env={**os.environ, **({} if address.token is None else {TOKEN_VARIABLE: address.token})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            # Ctrl-C must only reach this process, which then ends the training.
            start_new_session=True,
        )
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout is not None  # noqa: S101 - a pipe was asked for
        for line in self.process.stdout:
            kept = self.complaints if line.startswith("tensight: ") else self.lines
            kept.append(line.rstrip())
            self.on_line(line.rstrip())

    @property
    def last_line(self) -> str:
        """The last line that the training printed."""
        return self.lines[-1] if self.lines else ""

    def end(self) -> None:
        """Wait until the process ends; after a timeout, send SIGTERM, then SIGKILL."""
        for send in (None, signal.SIGTERM, signal.SIGKILL):
            if send is not None:
                self.process.send_signal(send)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(END_WITHIN_S)
                break
        self._reading.join(END_WITHIN_S)


@contextmanager
def _training(script: Path, address: _Address) -> Iterator[_Training]:
    with tempfile.TemporaryDirectory(prefix="tensight-demo-steps-") as records:
        training = _Training(script, address, records)
        try:
            yield training
        finally:
            training.end()


@contextmanager
def _session(server: Server, training: _Training) -> Iterator[Session]:
    """Yield the session of the training, and terminate it on exit."""
    session = _attached(server, training)
    try:
        yield session
    finally:
        # It may have ended already.
        with contextlib.suppress(TensightError):
            session.terminate()


def _attached(server: Server, training: _Training) -> Session:
    """Return the session of the training as soon as it is stopped before the first step."""
    end = time.monotonic() + ATTACH_WITHIN_S
    while training.process.poll() is None and time.monotonic() < end:
        try:
            session = server.wait_for_session(CHECK_EVERY_S, name=training.job)
        except WaitError:
            continue
        session.wait(ATTACH_WITHIN_S)
        return session
    output = "\n".join(f"    {line}" for line in (*training.complaints, *training.lines))
    raise TrainingFailedError(f"The training ended before the debugger was attached; it printed\n{output}\n")
