"""One debug server for all tests that leave it whole, and old MindSpore processes that attach to it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from tests.server.running import running_server
from tests.standin.attached import Attached, devices
from tests.standin.person import Person
from tests.standin.training import Training

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from tests.server.running import RunningServer

_TRAININGS = pytest.StashKey[list[Training]]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Tell of a failed test what its training processes said, and where they are."""
    report = yield
    if report.when == "call" and report.failed:
        report.sections.extend(("training process", each.report()) for each in item.stash.get(_TRAININGS, []))
    return report


@pytest.fixture(scope="session")
def debug_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server that serves all tests of a session: none of them may stop it."""
    with running_server(tmp_path_factory.mktemp("workspace")) as server:
        yield server


@pytest.fixture(scope="session")
def person(debug_server: RunningServer) -> Iterator[Person]:
    with Person(debug_server.url) as person:
        yield person


@pytest.fixture
def attach(
    debug_server: RunningServer, person: Person, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Attached]]:
    """Starts an old MindSpore process of a scenario and waits until its session stands still.

    Each has a device of its own, and so watchpoints of its own.
    """
    trainings = request.node.stash[_TRAININGS] = []
    with ExitStack() as stack:

        def start(scenario: str = "single-graph", *, state: str = "paused", **options: Any) -> Attached:
            options.setdefault("device", next(devices))
            training = stack.enter_context(Training(debug_server.debugger, scenario, **options))
            trainings.append(training)
            session = person.session_of(training.device)
            session.wait(state)
            return Attached(training, session)

        yield start
