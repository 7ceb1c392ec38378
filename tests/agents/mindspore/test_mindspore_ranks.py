"""Several processes of MindSpore: one session of ranks that stop and go together."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tensight.sessions.records import State
from tests.agents.mindspore.mindspore_stage import (
    NOT_INHERITED,
    PATIENCE_S,
    VERSIONS,
    address,
    attached,
    name_of_job,
    python_of,
    rings,
)
from tests.agents.training_process import TrainingProcess
from tests.processes.ports import kept_port

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensight.client import Session
    from tensight.sessions.records import SessionRecord
    from tests.server.running import RunningServer

pytestmark = pytest.mark.long


SCRIPT = Path(__file__).with_name("ranked_training.py")
FIRST = "Default/network-WithLossCell/_backbone-Network/first-Dense/MatMul-op0"
SECOND = FIRST.replace("first", "second")
STEPS = 1000
END_WITHIN_S = 20.0


class Rank(TrainingProcess):
    """One that a person has started, and which trains apart from the others."""

    def __init__(self, folder: Path, variables: dict[str, str]) -> None:
        command = [str(python_of(VERSIONS[0])), str(SCRIPT), "--apart", "--steps", str(STEPS)]
        super().__init__(command, folder, environment={**inherited(), **variables}, patience_s=PATIENCE_S)

    def __enter__(self) -> Rank:
        return self


class Ranks(TrainingProcess):
    """Two ranks and the scheduler that `msrun` starts; each writes a log."""

    def __init__(
        self, version: str, *arguments: str, folder: Path, variables: dict[str, str], options: tuple[str, ...] = ()
    ) -> None:
        python = python_of(version)
        self._logs = folder / "logs"
        self.port = kept_port()
        ports = ("--master_addr=127.0.0.1", f"--master_port={self.port}")
        amounts = ("--worker_num=2", "--local_worker_num=2", "--join=True", f"--log_dir={self._logs}")
        started = ("msrun", *amounts, *ports, str(SCRIPT), *arguments)
        command = [str(python.parent / "msrun"), *started[1:]]
        if options:
            command = [str(python), "-m", "tensight", "run", *options, *started]
        # msrun runs the interpreter of the environment that is active.
        path = os.pathsep.join((str(python.parent), os.environ["PATH"]))
        environment = {**inherited(), "PATH": path, **variables}
        super().__init__(command, folder, environment=environment, patience_s=PATIENCE_S)

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *error: object) -> None:
        # It ends its ranks, which are no children of ours, and itself.
        self.process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            self.process.communicate(timeout=END_WITHIN_S)
        super().__exit__(*error)

    def said_by(self, who: str) -> list[str]:
        """Return what the training, or Tensight, said in the log of a process."""
        lines = (self._logs / f"{who}.log").read_text().splitlines()
        return [line for line in lines if line.startswith(("step ", "arrived ", "tensight:", "Traceback"))]

    def results(self) -> list[list[str]]:
        """Return what the ranks wrote once they have ended, without what Tensight said."""
        outcome = self.outcome()
        assert outcome.code == 0, (outcome.errors, self.said_by("worker_0"), self.said_by("worker_1"))
        found = [self.said_by(f"worker_{rank}") for rank in range(2)]
        return [[line for line in lines if not line.startswith("tensight:")] for lines in found]


def inherited() -> dict[str, str]:
    variables = {name: text for name, text in os.environ.items() if not name.startswith(NOT_INHERITED)}
    return {**variables, "GLOG_v": "3"}


def new_folder(path: Path, name: str) -> Path:
    """Make a folder for what a process writes."""
    made = path / name
    made.mkdir()
    return made


def until(session: Session, holds: Callable[[SessionRecord], bool]) -> SessionRecord:
    """Wait for something that an event of the session tells."""
    record = session.summary
    for _ in session.events(timeout_s=PATIENCE_S):
        record = session.summary
        if holds(record):
            break
    return record


def stand_together(session: Session, ranks: int) -> SessionRecord:
    """Wait until all ranks stand before their first step."""
    return until(
        session,
        lambda record: len(record.ranks) == ranks and all(rank.state is State.PAUSED for rank in record.ranks),
    )


def places(record: SessionRecord) -> list[tuple[int, State, int]]:
    return [(rank.rank, rank.state, rank.step) for rank in record.ranks]


def folders_of(record: SessionRecord) -> list[Path]:
    """Return where MindSpore dumps, of all ranks."""
    return [folder for rank in record.ranks for folder in rings(rank.process_id)]


def test_ranks_of_msrun_stop_together_where_the_data_of_one_is_bad_and_arrive_where_they_would_alone(
    mindspore_server: RunningServer, tmp_path: Path
) -> None:
    job = name_of_job()
    host, port = address(mindspore_server)
    options = ("--host", host, "--port", port, "--job", job, "--break-at-start")
    with (
        Ranks(
            VERSIONS[0], "--nan-at", "5", folder=new_folder(tmp_path, "debugged"), variables={}, options=options
        ) as ranks,
        Ranks(VERSIONS[0], "--nan-at", "5", folder=new_folder(tmp_path, "alone"), variables={}) as alone,
        attached(mindspore_server, job) as session,
    ):
        folders = folders_of(stand_together(session, 2))
        assert len(folders) == 2
        assert places(session.step(3).wait(PATIENCE_S)) == [(0, State.PAUSED, 3), (1, State.PAUSED, 3)]
        weights = [session.tensor("first.weight", rank=rank).numpy() for rank in range(2)]
        products = [session.tensor(FIRST, rank=rank).numpy() for rank in range(2)]
        session.watch("tensor_overflow", on="all")
        stopped = session.continue_().wait(PATIENCE_S)
        hits = {(hit.rank, hit.node) for hit in session.hits()}
        origin, came = session.origins()
        session.delete_watchpoints(*session.watchpoints())
        ended = session.continue_().wait(PATIENCE_S)
        results, undisturbed = ranks.results(), alone.results()
    assert (weights[0] == weights[1]).all()
    assert (products[0] != products[1]).any()
    assert places(stopped) == [(0, State.PAUSED, 5), (1, State.PAUSED, 5)]
    assert {rank for rank, node in hits if node in (FIRST, SECOND)} == {1}
    # The average over the ranks takes it to all of them.
    assert {rank for rank, node in hits if node == "first.weight"} == {0, 1}
    assert (origin.address.partition("/")[0], origin.arrived) == ("1", True), origin
    assert came.sentence == f"NaN came from rank 1 at step 5 in {came.node}"
    assert places(ended) == [(0, State.FINISHED, 8), (1, State.FINISHED, 8)]
    assert results == undisturbed
    assert [len(lines) for lines in results] == [9, 9]
    assert not any(folder.exists() for folder in folders)


def test_of_ranks_that_a_person_started_one_is_killed_the_scheduler_is_none_and_the_others_end_when_they_are_told(
    mindspore_server: RunningServer, tmp_path: Path
) -> None:
    host, port = address(mindspore_server)
    debugged = {"ENABLE_MS_DEBUGGER": "1", "MS_DEBUGGER_HOST": host, "MS_DEBUGGER_PORT": port}
    # The scheduler of a script that never calls init() trains as rank 0 does.
    roles = [{"RANK_ID": "0"}, {"RANK_ID": "1"}, {"RANK_ID": "2"}, {"RANK_ID": "0", "MS_ROLE": "MS_SCHED"}]
    # Nobody has named them: those are one run that one process has started.
    name = SCRIPT.stem
    with ExitStack() as started:
        processes = [
            started.enter_context(Rank(new_folder(tmp_path, str(number)), {**debugged, "RANK_SIZE": "3", **role}))
            for number, role in enumerate(roles)
        ]
        session = started.enter_context(attached(mindspore_server, name))
        folders = folders_of(stand_together(session, 3))
        assert places(session.step(2).wait(PATIENCE_S)) == [(rank, State.PAUSED, 2) for rank in range(3)]
        processes[2].process.kill()
        session.continue_()
        until(session, lambda record: record.ranks[2].state is State.LOST)
        stopped = session.wait(PATIENCE_S)
        session.continue_()
        until(session, lambda record: record.step >= stopped.step + 5)
        session.terminate()
        ended = session.wait(PATIENCE_S)
        first, second, _, scheduler = [process.outcome() for process in processes]
    assert "rank 2: the process has ended unexpectedly" in stopped.message
    assert [rank.state for rank in ended.ranks[:2]] == [State.TERMINATED, State.TERMINATED]
    for outcome in (first, second):
        assert (outcome.code, outcome.complaints) == (0, [])
        assert stopped.step + 5 <= len(outcome.output) < STEPS
    assert (scheduler.code, scheduler.notices, len(scheduler.output)) == (0, [], STEPS + 1)
    said = [line for outcome in (first, second) for line in outcome.notices]
    assert said.count("tensight: terminated from the debug server") == 1
    # What a killed rank leaves behind goes when the next training starts.
    assert not any(path.exists() for path in folders[:2])
