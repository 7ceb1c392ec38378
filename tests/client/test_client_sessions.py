"""A script has a session of its own, beside the people's, and leaves nothing behind, however it ends."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tensight
from tensight.agents.core.reader import Framework
from tensight.sessions.errors import LimitError, NotFoundError, StateError
from tensight.sessions.records import State
from tests.agents.test_recording_of_steps import RecordedTraining
from tests.server.running import running_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tensight.client import Server
    from tests.server.running import RunningServer

SICK = "sick-2.10.0"
PATIENCE_S = 60.0
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "drive-from-python.md"


@pytest.fixture
def job(dump_server: RunningServer, tmp_path: Path) -> Path:
    """The CI job of the how-to, as it is printed, for the sick dump."""
    (printed,) = [one for one in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "sys.exit" in one]
    (name,) = re.findall(r'server\.open\("([^"]*)"', printed)
    script = tmp_path / "job.py"
    script.write_text(printed.replace(f'"{name}"', f'"{SICK}"').replace("http://127.0.0.1:8080", dump_server.url))
    return script


def run(script: Path) -> tuple[int, str]:
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture
def person(server: Server) -> Iterator[tensight.client.Session]:
    """A person's session of the sick dump: at step 2, with a watchpoint that hits at every step."""
    session = server.open(SICK, resume=True)
    session.delete_watchpoints()
    session.watch("tensor_too_large", abs_mean_gt=0, on="all", name="mine")
    session.go_to(2).wait(PATIENCE_S)
    yield session
    session.delete_watchpoints()
    session.close()


@pytest.mark.long
def test_the_documented_job_says_the_same_each_time_beside_a_person_and_after_one_that_was_killed(
    server: Server, job: Path, person: tensight.client.Session
) -> None:
    first = run(job)
    assert first[0] == 1
    assert "step 3: " in first[1]
    assert [run(job), run(job)] == [first, first]

    dying = job.with_name("dying.py")
    killed = "    import os, signal; session.step(2).wait(); os.kill(os.getpid(), signal.SIGKILL)\n"
    lines = job.read_text().splitlines(keepends=True)
    dying.write_text("".join(killed + line if "session.continue_()" in line else line for line in lines))
    died = subprocess.run([sys.executable, str(dying)], capture_output=True, text=True, timeout=120, check=False)
    assert died.returncode == -9, died.stderr
    assert run(job) == first

    until(lambda: [each.id for each in server.sessions()] == [person.id])
    shown = person.summary
    assert (shown.step, shown.watchpoints, shown.state) == (2, 1, State.PAUSED)
    assert [watchpoint.name for watchpoint in person.watchpoints()] == ["mine"]


def test_a_script_has_its_own_step_and_watchpoints_and_can_join_what_people_have(
    server: Server, person: tensight.client.Session
) -> None:
    with server.open(SICK) as own:
        assert own.id != person.id
        assert (own.summary.fresh, own.summary.step, own.summary.watchpoints) == (True, 0, 0)
        recommended = own.watch_recommended()
        assert recommended
        assert server.session(SICK).id == server.session().id == person.id
        assert server.session(own.id).name == SICK
        (dump,) = [each for each in server.dumps() if each.name == SICK]
        assert dump.session == person.id
    assert server.open(SICK, resume=True).id == person.id
    with server.open(SICK) as again:
        assert [each.text for each in again.watch_recommended()] == [each.text for each in recommended]
    assert person.summary.step == 2
    with pytest.raises(NotFoundError):
        server.session(again.id)


def test_a_session_that_nothing_refers_to_is_closed_and_one_whose_tensor_is_used_is_not(server: Server) -> None:
    session = server.open(SICK)
    number, tensor = session.id, session.tensor("fc2.weight", step=2)
    del session
    gc.collect()
    assert tensor.slice().shape == (3, 10)
    assert number in [each.id for each in server.sessions()]
    del tensor
    gc.collect()
    until(lambda: number not in [each.id for each in server.sessions()])


def test_sessions_of_scripts_are_bounded_and_take_no_room_from_people(
    dump_server: RunningServer, server: Server, person: tensight.client.Session
) -> None:
    with tensight.connect(dump_server.url) as other:
        opened = []
        with pytest.raises(LimitError, match=r"12 sessions of scripts are open.* 3 allows"):
            opened.extend(other.open(SICK) for _ in range(13))
        assert server.open(SICK, resume=True).id == person.id
    until(lambda: [each.id for each in server.sessions()] == [person.id])


def test_a_session_for_people_is_not_held(server: Server, person: tensight.client.Session) -> None:
    with pytest.raises(StateError, match="opened fresh"):
        person._connection.answer(f"/sessions/{person.id}/hold", wait_s=0)


def test_a_recording_is_opened_below_the_base_folder_as_the_how_to_says(tmp_path: Path) -> None:
    folder = tmp_path / "recordings" / "monday"
    training = RecordedTraining(folder, "ring:3", framework=Framework("torch", "2.13.0", "CPU"), nan_at=2)
    training.train(8)
    training.recorder.close()
    with (
        running_server(tmp_path / "workspace", "--summary-base-dir", str(folder.parent)) as running,
        tensight.connect(running.url) as server,
    ):
        (dump,) = server.dumps()
        assert (dump.name, dump.framework, dump.framework_version) == ("monday", "torch", "2.13.0")
        with server.open("monday") as session:
            assert session.summary.framework == "torch"
            conditions = {each.condition for each in session.watch_recommended()}
            assert "unintended_overflow" in conditions
            assert not {"tensor_all_zero", "gradient_vanishing"} & conditions
            assert session.continue_().wait(PATIENCE_S).step == 6
            (origin,) = [each for each in session.origins() if each.anomaly == "nan"]
            assert (origin.step, origin.unseen, origin.is_older) == (6, (1, 5), True)
            assert origin.sentence.endswith("step 6 is the first observed one, so it was there before")
