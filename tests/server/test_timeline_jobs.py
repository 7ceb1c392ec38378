"""Several training processes at once: separate jobs are separate sessions, ranks of one job go together."""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest

from tests.standin.attached import devices
from tests.standin.mindspore_network import replay
from tests.standin.nodes import CONV, DENSE, WEIGHTS, address
from tests.standin.training import Training

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.server.running import RunningServer
    from tests.standin.attached import Attached
    from tests.standin.person import Inspection, Person


def test_two_processes_are_two_sessions(attach: Callable[..., Attached], person: Person) -> None:
    first, one = attach()
    second = attach()
    assert one.id != second.session.id
    one.proceed(steps=2)
    assert second.session.record()["step"] == 0
    assert second.training.story()[-1] == "> WaitCMD step 0"
    one.watch("tensor_overflow", DENSE)
    assert second.session.watchpoints() == []
    one.command("terminate")
    first.finish()
    assert second.session.proceed(steps=1)["step"] == 1


def test_two_processes_that_call_themselves_alike_stay_apart(
    attach: Callable[..., Attached], debug_server: RunningServer, person: Person
) -> None:
    device = next(devices)
    _, one = attach(device=device)
    with Training(debug_server.debugger, device=device) as second:
        two = person.session_of(device, besides=(one.id,))
        two.wait("paused")
        assert one.proceed(steps=2)["step"] == 2
        assert two.record()["step"] == 0
        assert two.record()["name"] != one.record()["name"]
        assert second.story()[-1] == "> WaitCMD step 0"


class Job(NamedTuple):
    """A job of several ranks."""

    ranks: list[Training]
    session: Inspection


@pytest.fixture
def start_job(debug_server: RunningServer, person: Person) -> Iterator[Callable[..., Job]]:
    """Starts a job; options of single ranks are given as ``{rank: {…}}``."""
    with ExitStack() as stack:

        def start(size: int = 2, of_rank: dict[int, dict[str, object]] | None = None, **options: object) -> Job:
            name, device = f"job-{uuid.uuid4().hex[:8]}", next(devices)
            ranks = [
                stack.enter_context(
                    Training(
                        debug_server.debugger,
                        **{
                            "job": name,
                            "key": uuid.uuid4().hex,
                            "rank": rank,
                            "world_size": size,
                            "device": device,
                            **options,
                            **(of_rank or {}).get(rank, {}),
                        },
                    )
                )
                for rank in range(size)
            ]
            for rank in ranks:
                rank.wait_for("> WaitCMD step 0")
            session = person.session_of(device)

            def complete() -> bool:
                record = session.record()
                return [rank["state"] for rank in record["ranks"]] == ["paused"] * size and record["name"] == name

            session.wait_until(complete, f"{size} ranks that wait")
            return Job(ranks, session)

        yield start


def test_the_ranks_of_a_job_are_one_session(start_job: Callable[..., Job]) -> None:
    _, session = start_job(3)
    record = session.record()
    assert record["state"] == "paused"
    assert [rank["rank"] for rank in record["ranks"]] == [0, 1, 2]
    assert {graph["rank"] for graph in session.graphs()} == {0, 1, 2}


def test_ranks_go_together_step_by_step(start_job: Callable[..., Job]) -> None:
    (quick, slow), session = start_job(steps=10, of_rank={1: {"hold": ["in step#2"]}})
    session.command("continue", steps=3)
    slow.wait_for("hold in step")
    quick.wait_for("> WaitCMD step 2")
    assert quick.story()[-1] == "> WaitCMD step 2"
    assert session.record()["state"] == "running"
    slow.release()
    record = session.wait("paused")
    assert [rank["step"] for rank in record["ranks"]] == [3, 3]
    assert quick.story()[-1] == slow.story()[-1] == "> WaitCMD step 3"


def test_a_hit_on_one_rank_stops_all_at_their_next_step(start_job: Callable[..., Job]) -> None:
    (healthy, sick), session = start_job(steps=1000, of_rank={1: {"nan_at": 3}})
    number = session.watch("tensor_overflow", CONV)["id"]
    record = session.proceed()
    assert [rank["step"] for rank in record["ranks"]] == [3, 3]
    hits = session.hits()["nodes"]
    assert [(node["rank"], node["node"]) for node in hits] == [(1, CONV)]
    assert not healthy.all("> SendWatchpointHits")
    assert sick.wait_for("> SendWatchpointHits")["hits"] == [[f"{CONV}:0", number, 0]]


def test_a_tensor_is_asked_of_the_rank_that_has_it(start_job: Callable[..., Job]) -> None:
    (first, second), session = start_job()
    session.proceed(steps=1)
    np.testing.assert_array_equal(
        session.values(address("fc1.weight", step=1, rank=1)), replay(1, seed=1)["fc1.weight:0"]
    )
    assert not first.all("< WaitCMD view_cmd")
    assert second.all("< WaitCMD view_cmd")
    assert set(WEIGHTS) <= set(session.nodes(kind="parameter", rank=0))


def test_pause_and_terminate_reach_all_ranks(start_job: Callable[..., Job]) -> None:
    ranks, session = start_job(steps=1_000_000)
    session.command("continue")
    ranks[0].wait_for("> WaitCMD step 3")
    session.command("pause")
    record = session.wait("paused")
    assert len({rank["step"] for rank in record["ranks"]}) == 1
    session.command("terminate")
    assert [rank.finish() for rank in ranks] == [0, 0]
    assert [rank.story()[-1] for rank in ranks] == ["end terminated"] * 2
    session.wait("terminated")


def test_all_ranks_done_is_a_finished_session(start_job: Callable[..., Job]) -> None:
    ranks, session = start_job(steps=2)
    session.command("continue")
    assert [rank.finish() for rank in ranks] == [0, 0]
    record = session.wait("finished")
    assert [rank["state"] for rank in record["ranks"]] == ["finished", "finished"]
