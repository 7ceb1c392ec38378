"""Every kind of session that there is, on a real server: dumps at rest, recorded runs, and trainings in processes.

A new kind of session adds an entry to `KINDS`; a new layout of dumps is there by its dump in the suite of readers.
"""

from __future__ import annotations

import itertools
import shutil
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tensight
from tests.agents.mindspore.mindspore_stage import PATIENCE_S, VERSIONS, Run, address, attached
from tests.agents.training_process import TrainingProcess
from tests.dumps.test_reader_contract import DUMPS
from tests.processes.forked import PYTORCH
from tests.server.running import running_server
from tests.standin.person import Person
from tests.standin.training import Training

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    from _pytest.mark import ParameterSet

    from tensight.client import Server, Session
    from tests.server.running import RunningServer

HERE = Path(__file__).parent
MINDSPORE = HERE.parent / "agents" / "mindspore"
ENDLESS = 20_000
"""Steps of a training that lasts until a person ends it."""

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Stage:
    """A server, and the folders of the test.

    Attributes
    ----------
    running : RunningServer
    server : Server
        A person's script, connected to it.
    folder : Path
        Dumps in its folder ``dumps`` are listed.
    unpacked : callable
        Returns the folder of a committed dump.
    """

    running: RunningServer
    server: Server
    folder: Path
    unpacked: Callable[[str], Path]

    def own_folder(self, name: str) -> Path:
        """Return a new folder for a training."""
        folder = self.folder / f"{name}-{next(_numbers)}"
        folder.mkdir()
        return folder


@contextmanager
def stage(folder: Path, unpacked: Callable[[str], Path]) -> Iterator[Stage]:
    """Start a server for sessions of every kind."""
    dumps = folder / "dumps"
    dumps.mkdir()
    options = ("--summary-base-dir", str(dumps), "--max-offline-debugger-session-num", "20")
    with running_server(folder / "workspace", *options) as running, tensight.connect(running.url) as server:
        yield Stage(running, server, folder, unpacked)


# --- at rest ---


@contextmanager
def open_dump(name: str, on: Stage) -> Iterator[Session]:
    """Open a dump of the suite of readers."""
    listed = f"{name}-{next(_numbers)}"
    shutil.move(DUMPS[name].make(on.own_folder(name), on.unpacked), on.folder / "dumps" / listed)
    with on.server.open(listed, PATIENCE_S) as session:
        yield session


@contextmanager
def open_recorded_run(on: Stage) -> Iterator[Session]:
    """Open what the server recorded of a training that has ended."""
    with train_with_torch(on, steps=4) as live:
        live.watch("tensor_too_large", max_gt=0)
        for _ in range(4):
            live.step().wait(PATIENCE_S)
        live.terminate()
        dump = live.wait(PATIENCE_S).dump
    with on.server.open(dump, PATIENCE_S) as session:
        yield session


# --- trainings ---


@contextmanager
def train_with_torch(on: Stage, *, steps: int = ENDLESS, arguments: tuple[str, ...] = ()) -> Iterator[Session]:
    """Debug a training of PyTorch that has our agent in it; it waits before its first step."""
    host, port = address(on.running)
    job = f"torch-{next(_numbers)}"
    options = ("--host", host, "--port", port, "--job", job, "--break-at-start")
    script = (str(HERE / "steady_training.py"), "--steps", str(steps), *arguments)
    command = [sys.executable, "-m", "tensight", "run", *options, *script]
    with TrainingProcess(command, on.own_folder(job), imports=PYTORCH), attached(on.running, job) as session:
        session.wait(PATIENCE_S)
        yield session


@contextmanager
def train_with_mindspore(on: Stage, *, steps: int = ENDLESS, arguments: tuple[str, ...] = ()) -> Iterator[Session]:
    """Debug a graph of MindSpore; it waits before its first step."""
    job = f"graph-{next(_numbers)}"
    options = ("--job", job, "--break-at-start")
    words = ("--steps", str(steps), *arguments)
    with (
        Run(VERSIONS[0], *words, folder=on.own_folder(job), server=on.running, options=options),
        attached(on.running, job) as session,
    ):
        session.wait(PATIENCE_S)
        yield session


@contextmanager
def train_with_pynative(on: Stage, *, steps: int = ENDLESS) -> Iterator[Session]:
    """Debug a training of MindSpore in PyNative mode; it waits before its first step."""
    job = f"pynative-{next(_numbers)}"
    folder = on.own_folder(job)
    words = (str(folder), "--steps", str(steps), "--server", str(on.running.debugger), "--job", job)
    script = MINDSPORE / "pynative_training.py"
    with Run(VERSIONS[0], *words, folder=folder, script=script), attached(on.running, job) as session:
        session.wait(PATIENCE_S)
        yield session


@contextmanager
def train_with_protocol(on: Stage, *, steps: int = ENDLESS, scenario: str = "single-graph") -> Iterator[Session]:
    """Debug a process that speaks MindSpore's own protocol, as MindSpore 1.9 and 2.0 do."""
    device = next(_numbers)
    with (
        Training(str(on.running.debugger), scenario, steps=steps, device=device),
        Person(on.running.url) as person,
    ):
        session = on.server.session(person.session_of(device).id)
        session.wait(PATIENCE_S)
        try:
            yield session
        finally:
            if not session.state.has_ended:
                session.terminate().wait(PATIENCE_S)


AT_REST: dict[str, Callable[[Stage], AbstractContextManager[Session]]] = {
    **{name: partial(open_dump, name) for name in DUMPS},
    "recorded-run": open_recorded_run,
}

TRAININGS: dict[str, Callable[[Stage], AbstractContextManager[Session]]] = {
    "torch": train_with_torch,
    "mindspore-graph": train_with_mindspore,
    "mindspore-pynative": train_with_pynative,
    "mindspore-protocol": train_with_protocol,
    "mindspore-protocol-graphs": partial(train_with_protocol, scenario="several-graphs"),
}

KINDS = {**AT_REST, **TRAININGS}

TYPICAL = ("npy", "recorded-run", "torch", "mindspore-protocol")
"""Kinds that `make test` tries; `make test-long` tries the others as well."""


def parameters_of(kinds: Iterable[str]) -> list[ParameterSet]:
    """Return kinds as parameters of tests; `make test` tries the typical ones alone."""
    return [pytest.param(kind, marks=[] if kind in TYPICAL else [pytest.mark.long]) for kind in kinds]
