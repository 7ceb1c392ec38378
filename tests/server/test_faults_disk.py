"""The disk is full: what cannot be written fails in words, the session goes on, and all works again with room."""

from __future__ import annotations

import resource
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.server.running import RunningServer, running_server
from tests.standin.mindspore_client import EXIT_GAVE_UP
from tests.standin.mindspore_network import replay
from tests.standin.nodes import CONV, DENSE, RELU, address
from tests.standin.person import Person
from tests.standin.training import Training

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx

pytestmark = pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux limits the files of others")


@contextmanager
def full_disk(server: RunningServer, largest_file: int) -> Iterator[None]:
    """Let no file of the server grow beyond some bytes, as if the disk were full."""
    pid = server.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (largest_file, before[1]))
    yield
    resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


def assert_no_room(answer: httpx.Response, workspace: Path) -> None:
    assert (answer.status_code, answer.json()["error"]["code"]) == (507, "storage-failed")
    assert str(workspace) in answer.json()["error"]["message"]


def test_a_tensor_that_cannot_be_written_fails_in_words_and_the_session_goes_on(tmp_path: Path) -> None:
    with (
        running_server(tmp_path / "workspace") as server,
        Training(server.debugger, "big-tensor", steps=5) as training,
        Person(server.url) as person,
    ):
        session = person.session_of(0)
        session.wait("paused")
        session.proceed(steps=1)
        big = address("embedding.weight", step=1)
        with full_disk(server, 8 * 2**20):
            assert_no_room(session.try_values(big, slice="[0, :5]"), tmp_path)
            assert session.record()["state"] == "paused"
            # The process was not disturbed: it could send all of it.
            assert training.wait_for("< SendTensors")
            np.testing.assert_array_equal(session.values(address(DENSE, step=1)), replay(1)[f"{DENSE}:0"])
            assert session.proceed(steps=1)["step"] == 2
            assert not list((tmp_path / "workspace" / "tempdata").glob("*"))
        big = address("embedding.weight", step=2)
        np.testing.assert_array_equal(session.values(big, slice="[0, :5]"), np.arange(5, dtype="f4"))
        session.command("terminate")
        assert training.finish() == 0


def test_with_no_room_at_all_the_training_still_goes_on_and_nothing_is_half_done(tmp_path: Path) -> None:
    with (
        running_server(tmp_path / "workspace") as server,
        Training(server.debugger, steps=10),
        Person(server.url) as person,
    ):
        session = person.session_of(0)
        session.wait("paused")
        kept = session.watch("tensor_too_large", CONV, max_gt=-1000)["id"]
        with full_disk(server, 1):
            # A watchpoint that cannot be saved counts all the same; the person is told that it will not last.
            unsaved = session.watch("tensor_overflow", DENSE)["id"]
            warnings = [each["data"]["text"] for each in session.events() if each["kind"] == "message"]
            assert any(str(tmp_path) in warning for warning in warnings)
            assert session.proceed(steps=1)["step"] == 1
            assert session.hit_list() == [(f"{CONV}:0", kept, 0)]
            for _ in range(3):
                assert_no_room(session.try_values(address(DENSE, step=1)), tmp_path)
            assert session.tensors(DENSE)
            refused = [each["data"]["text"] for each in session.events() if each["kind"] == "message"]
            # Each who asks is told; everybody else only once.
            assert len([text for text in refused if "cannot be written" in text and "watchpoints" not in text]) == 1
        third = session.watch("tensor_overflow", RELU)["id"]
        np.testing.assert_array_equal(session.values(address(DENSE, step=1)), replay(1)[f"{DENSE}:0"])
        assert session.proceed(steps=1)["step"] == 2
        server.kill()
    with (
        running_server(tmp_path / "workspace") as server,
        Training(server.debugger),
        Person(server.url) as person,
    ):
        # With room, everything was saved.
        session = person.session_of(0)
        session.wait("paused")
        assert [each["id"] for each in session.watchpoints()] == [kept, unsaved, third]


def test_a_graph_that_cannot_be_written_is_refused_and_the_person_is_told_why(tmp_path: Path) -> None:
    with (
        running_server(tmp_path / "workspace") as server,
        Person(server.url) as person,
        full_disk(server, 2**20),
        Training(server.debugger, "big-graph", retry_unit_s=0.05) as training,
    ):
        session = person.session_of(0)
        message = session.wait_until(lambda: session.record()["message"], "says why")
        assert "graph" in message
        assert str(tmp_path) in message
        # An old process cannot send its graph again, so it ends.
        assert training.finish() == EXIT_GAVE_UP
