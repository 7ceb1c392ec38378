"""What a long training in PyNative mode leaves behind: nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tensight.client import Session
from tests.agents.mindspore.mindspore_stage import PATIENCE_S, Run, attached, name_of_job, rings

if TYPE_CHECKING:
    from tests.server.running import RunningServer


SCRIPT = Path(__file__).with_name("pynative_steps.py")
Debugged = Callable[..., AbstractContextManager[tuple[Run, Session]]]


@pytest.fixture
def eager_steps(tmp_path: Path, mindspore_server: RunningServer) -> Debugged:
    """Return what starts the training with everything watched for overflows."""

    @contextmanager
    def start(*arguments: str) -> Iterator[tuple[Run, Session]]:
        job = name_of_job()
        options = ("--job", job, "--break-at-start")
        with Run("2.10", *arguments, folder=tmp_path, server=mindspore_server, options=options, script=SCRIPT) as run:
            with attached(mindspore_server, job) as session:
                session.wait(PATIENCE_S)
                session.watch("tensor_overflow", on="all")
                session.continue_()
                yield run, session
            run.go_on()
            outcome = run.outcome()
        assert (outcome.code, outcome.errors) == (0, [])

    return start


@pytest.mark.long
def test_a_thousand_eager_steps_leave_neither_memory_nor_files(eager_steps: Debugged) -> None:
    with eager_steps("--jit", "--steps", "1100", "--stop-at", "100", "1100") as (run, session):
        run.until("step 100")
        early = run.resident_bytes(), dumped_files(run.process.pid)
        run.go_on()
        run.until("step 1100")
        late = run.resident_bytes(), dumped_files(run.process.pid)
        assert session.summary.hits == 0
    assert 0 < late[1] <= early[1]
    assert late[0] - early[0] < 32 * 2**20


def test_a_training_that_compiles_nothing_is_not_dumped(eager_steps: Debugged) -> None:
    with eager_steps("--steps", "5", "--stop-at", "4") as (run, session):
        run.until("step 4")
        assert rings(run.process.pid) == []
        kinds = {found.entry.type for found in session.nodes()}
    assert {"Dense", "LayerNorm", "DenseGrad", "ApplyMomentum"} <= kinds
    # What MindSpore has compiled for its optimizer is nothing that a person has written.
    assert "AssignAdd" not in kinds


def dumped_files(process_id: int) -> int:
    return sum(path.is_file() for ring in rings(process_id) for path in ring.rglob("*"))
