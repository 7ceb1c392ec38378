"""The debug server dies or ends while training processes wait, and comes back on the same workspace and ports."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import TYPE_CHECKING

import httpx
import numpy as np
import pytest

from tests.server.running import RunningServer, kept_ports, running_server
from tests.standin.mindspore_client import EXIT_GAVE_UP
from tests.standin.mindspore_network import BigTensor, replay
from tests.standin.nodes import CONV, DENSE, GRAPH, address
from tests.standin.person import Inspection, Person
from tests.standin.training import Training

if TYPE_CHECKING:
    from pathlib import Path


Serve = Callable[[], AbstractContextManager[RunningServer]]
PATIENT = {"retry_unit_s": 2}
"""A busy machine may need many seconds to start a server; with five retries that take 2, 4, 6… s there is time."""


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    """Starts one server after another on the same workspace and ports."""
    return partial(running_server, tmp_path / "workspace", *kept_ports())


def end(server: RunningServer, how: str) -> None:
    if how == "kill":
        server.kill()
    else:
        assert server.stop() == 0


@pytest.mark.long
@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_waiting_process_goes_on_with_its_watchpoints_after_the_server_came_back(serve: Serve, how: str) -> None:
    with serve() as first, Training(first.debugger, steps=20, **PATIENT) as training:
        with Person(first.url) as person:
            session = person.session_of(0)
            session.wait("paused")
            session.proceed(steps=2)
            sent = session.watch("tensor_too_large", DENSE, max_gt=1e9, name="large")["id"]
            session.proceed(steps=1)
            unsent = session.watch("tensor_overflow", CONV)["id"]
            texts = [each["text"] for each in session.watchpoints()]
            name = session.record()["name"]
        end(first, how)
        training.wait_for("failure 1")
        assert "< WaitCMD exit true" not in training.story()
        before = training.now

        with serve() as second, Person(second.url) as person:
            session = person.session_of(0)
            record = session.wait("paused")
            assert (record["name"], record["step"], record["backend"]) == (name, 3, "Ascend")
            assert [each["text"] for each in session.watchpoints()] == texts
            assert session.watchpoints()[0]["name"] == "large"
            assert DENSE in session.nodes(name="matmul")
            np.testing.assert_array_equal(session.values(address(DENSE, step=3)), replay(3)[f"{DENSE}:0"])
            assert session.proceed(steps=1)["step"] == 4
            story = training.story(before)
            assert f"< WaitCMD set_cmd {sent}" in story
            assert f"< WaitCMD set_cmd {unsent}" in story
            assert len(training.all("> SendGraph")) == 1
            session.command("terminate")
            assert training.finish() == 0


def test_processes_that_wait_when_the_server_ends_are_told_and_not_terminated(serve: Serve) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(serve())
        trainings = [
            stack.enter_context(Training(server.debugger, device=device, retry_unit_s=0.05)) for device in (0, 1)
        ]
        with Person(server.url) as person:
            for training in trainings:
                person.session_of(training.device).wait("paused")
        assert server.stop() == 0
        for training in trainings:
            # An old process asks again some times, and ends the training when nobody comes back.
            assert training.finish() == EXIT_GAVE_UP
            assert "< WaitCMD FAILED" in training.story()
            assert "< WaitCMD exit true" not in training.story()
            assert training.story()[-1] == "end too many failures"


def test_a_server_that_was_killed_while_a_training_ran_finds_it_again(serve: Serve) -> None:
    with (
        serve() as first,
        Training(first.debugger, steps=20, hold=["in step#3"], **PATIENT) as training,
    ):
        with Person(first.url) as person:
            session = person.session_of(0)
            session.wait("paused")
            session.command("continue")
            training.wait_for("hold in step")
        first.kill()
        training.release()
        training.wait_for("failure 1")
        with serve() as second, Person(second.url) as person:
            session = person.session_of(0)
            # Nobody knows any more how far it was to run, so it waits for a word.
            assert session.wait("paused")["step"] == 3
            assert session.proceed(steps=1)["step"] == 4


@pytest.mark.long
def test_a_server_that_was_killed_in_the_middle_of_a_tensor_leaves_nothing_half(tmp_path: Path, serve: Serve) -> None:
    with (
        ThreadPoolExecutor(1) as asking,
        serve() as first,
        Training(first.debugger, "big-tensor", steps=20, hold=["in SendTensors#3"], **PATIENT) as training,
    ):
        here = address("embedding.weight", step=0)
        with Person(first.url) as person:
            session = person.session_of(0)
            session.wait("paused")
            answer = asking.submit(session.try_values, here, slice="[0, :5]")
            training.wait_for("hold in SendTensors")
            first.kill()
            assert isinstance(answer.exception(timeout=30), httpx.HTTPError)
        training.release()
        training.wait_for("failure 1")
        with serve() as second, Person(second.url) as person:
            session = person.session_of(0)
            session.wait("paused")
            assert not list((tmp_path / "workspace" / "tempdata").glob("*"))
            whole = person.http.get(f"{session.path}/tensor/file", params={"address": here}).content
            assert whole[128:] == b"".join(BigTensor.of_size(32).pieces())


@pytest.mark.long
def test_a_server_that_was_killed_in_the_middle_of_a_graph_tells_the_process_that_it_has_none(serve: Serve) -> None:
    with (
        serve() as first,
        Training(first.debugger, "big-graph", hold=["in SendGraph#2"], retry_unit_s=0.3) as training,
    ):
        training.wait_for("hold in SendGraph")
        first.kill()
        with serve():
            training.release()
            # An old process never sends its graph again; without one it cannot be debugged, and it must not hang.
            assert training.finish() == EXIT_GAVE_UP
            assert "< WaitCMD FAILED" in training.story()


def test_the_ranks_of_a_job_are_one_session_again_after_the_server_came_back(serve: Serve) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(serve())
        ranks = [
            stack.enter_context(
                Training(first.debugger, job="job", key=f"key-{rank}", rank=rank, world_size=2, steps=20, **PATIENT)
            )
            for rank in (0, 1)
        ]
        with Person(first.url) as person:
            session = person.session_of(0)
            session.wait_until(lambda: all_paused(session, step=0), "two ranks that wait")
            session.watch("tensor_too_large", CONV, max_gt=-1000)
            session.proceed(steps=1)
        first.kill()
        for rank in ranks:
            rank.wait_for("failure 1")
        second = stack.enter_context(serve())
        person = stack.enter_context(Person(second.url))
        session = person.session_of(0)
        session.wait_until(lambda: all_paused(session, step=1), "two ranks that wait again")
        assert [record["name"] for record in person.sessions()] == ["job"]
        assert len(session.watchpoints()) == 1
        session.proceed(steps=1)
        assert all_paused(session, step=2)
        assert [node["rank"] for node in session.hits()["nodes"]] == [0, 1]


def all_paused(session: Inspection, *, step: int) -> bool:
    return [(rank["state"], rank["step"]) for rank in session.record()["ranks"]] == [("paused", step)] * 2


def test_a_run_whose_server_was_killed_before_anything_but_hits_was_recorded_can_be_looked_at(
    tmp_path: Path, serve: Serve
) -> None:
    with serve() as first, Training(first.debugger, **PATIENT) as training:
        with Person(first.url) as person:
            session = person.session_of(0)
            session.wait("paused")
            session.watch("tensor_too_large", DENSE, max_gt=-1000)
            session.proceed(steps=1)
            session.wait_until(lambda: (tmp_path / "workspace/runs/1/hits.json").exists(), "hits on disk")
        first.kill()
        training.wait_for("failure 1")
        with serve() as second, Person(second.url) as person:
            session = person.open("runs/1")
            assert session.wait("paused")["total_steps"] == 0
            (pictured,) = person.get(f"{session.path}/overview")["rows"]
            assert pictured["node"] == DENSE
            assert person.get(f"{session.path}/timeline")["last_step"] == 1
            for path in ("statistics", "executions", "graphs", "origins", "tree", "sources", "hits"):
                person.get(f"{session.path}/{path}")
            assert session.tensors(DENSE)
            person.get(f"{session.path}/tensor/history", address=address(DENSE, step=1))


def test_an_ended_run_is_listed_and_opens_like_a_dump_after_a_restart(serve: Serve) -> None:
    with (
        serve() as first,
        Training(first.debugger, steps=2) as training,
        Person(first.url) as person,
    ):
        session = person.session_of(0)
        session.wait("paused")
        session.watch("tensor_too_large", DENSE, max_gt=-1000)
        session.proceed(steps=1)
        session.values(address(DENSE, step=1))
        hits = session.hit_list()
        session.proceed(steps=1)
        session.command("continue")
        training.finish()
        dump = session.wait("finished")["dump"]
        assert dump
        first.stop()
    with serve() as second, Person(second.url) as person:
        assert dump in [each["name"] for each in person.get("/dumps")]
        opened = person.open(dump)
        assert [each["name"] for each in opened.graphs()] == [GRAPH]
        assert opened.record()["framework_version"] == "2.0.0"
        np.testing.assert_array_equal(opened.values(address(DENSE, step=1)), replay(1)[f"{DENSE}:0"])
        opened.proceed("go_to_step", steps=1)
        assert opened.hit_list() == hits
