"""Trainings of MindSpore in processes of their own: the environment that runs the tests has no MindSpore."""

from __future__ import annotations

import itertools
import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tensight
from tensight.errors import TensightError
from tests.agents.training_process import TrainingProcess
from tests.processes.forked import MINDSPORE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tensight.client import Session
    from tensight.sessions.records import OriginRecord
    from tests.server.running import RunningServer

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


class Run(TrainingProcess):
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
        # MindSpore warns of what is deprecated, and of having been built for an older NumPy.
        environment = {**inherited, "GLOG_v": "3", **(variables or {})}
        super().__init__(
            [*command, str(script), *arguments],
            folder,
            environment=environment,
            patience_s=PATIENCE_S,
            imports=MINDSPORE,
        )

    def __enter__(self) -> Run:
        return self


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


def origins_at_stop(
    server: RunningServer, version: str, folder: Path, script: Path, *arguments: str, step: int
) -> list[OriginRecord]:
    """Return what is told where a training stops with the recommended watchpoints, which is at a step for certain.

    Parameters
    ----------
    server : RunningServer
    version : str
        Of MindSpore.
    folder : Path
        In which it runs.
    script : Path
    *arguments : str
        Of the script.
    step : int
    """
    job = name_of_job()
    options = ("--job", job, "--break-at-start")
    with (
        Run(version, *arguments, folder=folder, server=server, options=options, script=script) as run,
        attached(server, job) as session,
    ):
        session.wait(PATIENCE_S)
        session.watch_recommended()
        assert session.continue_().wait(PATIENCE_S).step == step
        origins = list(session.origins())
        session.terminate()
        assert run.outcome().code == 0
    return origins


def rings(process_id: int) -> list[Path]:
    """Return the private dumps that a process has: it holds their locks."""
    found = set()
    for path in Path(f"/proc/{process_id}/fd").iterdir():
        with suppress(OSError):
            found.add(path.readlink())
    return [path for path in found if path.parent == MEMORY_BACKED and path.name.startswith("tensight-ring-")]
