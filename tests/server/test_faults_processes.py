"""Training processes that die, at each point of the protocol: the person sees it, and nobody else is harmed."""

from __future__ import annotations

import itertools
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.server.running import running_server
from tests.standin.attached import devices
from tests.standin.nodes import CONV, RELU, address
from tests.standin.person import Inspection, Person
from tests.standin.training import Training

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.server.running import RunningServer

# Three missed heartbeats of five seconds, or a connection that did not come back for half a minute.
NOTICED_WITHIN_S = 60.0


def go_on(session: Inspection) -> None:
    session.command("continue", steps=1)


def hit(session: Inspection) -> None:
    session.watch("tensor_too_large", CONV, max_gt=-1000)
    session.command("continue", steps=1)


def finish(session: Inspection) -> None:
    session.command("continue")


def read_value(session: Inspection) -> httpx.Response:
    return session.try_values(address("embedding.weight", step=0), slice="[0, :5]")


def read_statistics(session: Inspection) -> httpx.Response:
    parameters = {"rank": 0, "graph": "kernel_graph_0", "node": RELU}
    return session.person.http.get(f"{session.path}/tensors", params=parameters)


@dataclass(frozen=True)
class Point:
    """A place in the protocol, and what brings a process there."""

    place: str
    scenario: str = "single-graph"
    drive: Callable[[Inspection], Any] | None = None
    asks: bool = False
    """Somebody waits for an answer from the process meanwhile."""

    def __str__(self) -> str:
        return self.place


POINTS = [
    Point("after SendMetadata"),
    Point("in SendGraph", "big-graph"),
    Point("in SendMultiGraphs", "several-graphs"),
    Point("before WaitCMD"),
    Point("waiting"),
    Point("after WaitCMD", drive=go_on),
    Point("in step", drive=go_on),
    Point("before SendWatchpointHits", drive=hit),
    Point("in SendWatchpointHits", drive=hit),
    Point("after SendWatchpointHits", drive=hit),
    Point("before SendTensors", "big-tensor", drive=read_value, asks=True),
    Point("in SendTensors", "big-tensor", drive=read_value, asks=True),
    Point("after SendTensors", "big-tensor", drive=read_value, asks=True),
    Point("in SendTensorStats", drive=read_statistics, asks=True),
    Point("before SendMetadata#2", drive=finish),
]


@dataclass
class Casualty:
    """A process that was killed at a point, and what the server made of it."""

    session: Inspection
    answer: Future[httpx.Response] | None
    record: dict[str, Any] = field(default_factory=dict)


@dataclass
class Ward:
    """All that died, and one that did not."""

    casualties: dict[str, Casualty]
    bystander: Training
    bystanding: Inspection
    widow: Training
    """Rank 0 of a job whose rank 1 died."""
    widowed: Inspection


def drive(point: Point, session: Inspection, asking: ThreadPoolExecutor) -> Future[httpx.Response] | None:
    """Do what brings the process to the point; return the answer that somebody waits for, if anybody does."""
    if not point.drive:
        return None
    session.wait("paused")
    if point.asks:
        return asking.submit(point.drive, session)
    point.drive(session)
    return None


def job_without_its_second_rank(server: RunningServer, person: Person, stack: ExitStack) -> tuple[Training, Inspection]:
    job = {"job": "job", "world_size": 2, "device": 98, "steps": 100, "heartbeat_period": 5}
    ranks = [stack.enter_context(Training(server.debugger, key=f"key-{n}", rank=n, **job)) for n in (0, 1)]
    session = person.session_of(98)
    session.wait_until(lambda: [rank["state"] for rank in session.record()["ranks"]] == ["paused"] * 2, "complete")
    session.proceed(steps=2)
    ranks[1].kill()
    return ranks[0], session


@pytest.fixture(scope="module")
def ward(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ward]:
    """Processes brought to all points and killed, at the same time: the server takes half a minute to give one up."""
    with ExitStack() as stack:
        server = stack.enter_context(running_server(tmp_path_factory.mktemp("ward")))
        person = stack.enter_context(Person(server.url))
        asking = stack.enter_context(ThreadPoolExecutor(len(POINTS)))
        bystander = stack.enter_context(Training(server.debugger, device=99, steps=100))
        bystanding = person.session_of(99)
        bystanding.wait("paused")
        widow, widowed = job_without_its_second_rank(server, person, stack)
        casualties = {}
        for device, point in enumerate(POINTS):
            hold = [] if point.place == "waiting" else [point.place]
            training = stack.enter_context(
                Training(server.debugger, point.scenario, device=device, hold=hold, heartbeat_period=5)
            )
            session = person.session_of(device)
            casualties[point.place] = Casualty(session, drive(point, session, asking))
            training.wait_for("> WaitCMD" if point.place == "waiting" else "hold")
            training.kill()
        for casualty in casualties.values():
            casualty.record = casualty.session.wait("lost", timeout_s=NOTICED_WITHIN_S)
        widowed.wait_until(lambda: widowed.record()["ranks"][1]["state"] == "lost", "without rank 1")
        yield Ward(casualties, bystander, bystanding, widow, widowed)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("point", POINTS, ids=str)
def test_a_process_killed_at_this_point_is_lost_and_the_person_is_told(ward: Ward, point: Point) -> None:
    casualty = ward.casualties[point.place]
    record = casualty.record
    assert record["message"]
    assert [rank["state"] for rank in record["ranks"]] == ["lost"]
    assert casualty.session.try_command("continue").status_code == 409
    if casualty.answer:
        answer = casualty.answer.result(timeout=5)
        assert answer.status_code in (200, 404), answer.text


def test_the_graphs_of_a_killed_process_can_still_be_looked_at(ward: Ward) -> None:
    session = ward.casualties["waiting"].session
    assert CONV in session.nodes(name="conv2d")
    assert session.hits()["total"] == 0
    session = ward.casualties["after SendWatchpointHits"].session
    assert [node["node"] for node in session.hits()["nodes"]] == [CONV]


def test_a_process_that_lives_notices_nothing_of_the_dead(ward: Ward) -> None:
    step = ward.bystanding.proceed(steps=1)["step"]
    assert ward.bystander.story()[-2:] == ["< WaitCMD run_cmd step 1", f"> WaitCMD step {step}"]
    assert not ward.bystander.all("failure")


def test_a_job_that_lost_a_rank_says_so_and_can_go_on_without_it(ward: Ward) -> None:
    record = ward.widowed.record()
    assert record["state"] == "paused"
    assert "rank 1" in record["message"]
    assert ward.widowed.proceed(steps=1)["ranks"][0]["step"] == 3
    assert ward.widow.story()[-1] == "> WaitCMD step 3"


@pytest.mark.sampled(8)
def test_a_process_killed_before_it_announced_itself_leaves_no_session(
    debug_server: RunningServer, person: Person
) -> None:
    device = next(devices)
    with Training(debug_server.debugger, device=device, hold=["before SendMetadata"]) as training:
        training.wait_for("< SendHeartbeat")
        training.kill()
    known = itertools.chain.from_iterable(session["ranks"] for session in person.sessions())
    assert str(device) not in {rank["device"] for rank in known}
