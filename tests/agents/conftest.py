"""A debug server for the trainings of this folder that leave it whole, and trainings in NumPy."""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

import tensight
from tests.agents.agent_stage import Scene, session_named, settings_for
from tests.server.running import RunningServer, running_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tensight.client import Server, Session

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def agent_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """No test may stop it."""
    with running_server(tmp_path_factory.mktemp("agents") / "workspace") as server:
        yield server


@pytest.fixture(scope="session")
def person(agent_server: RunningServer) -> Iterator[Server]:
    with tensight.connect(agent_server.url) as connected:
        yield connected


@pytest.fixture
def debug(agent_server: RunningServer, person: Server) -> Iterator[Callable[..., tuple[Scene, Session]]]:
    """Starts a training and returns it with its session; it waits before the first step unless told otherwise."""
    with ExitStack() as stack:

        def start(
            steps: int = 5,
            network: dict[str, Any] | None = None,
            *,
            framework: dict[str, Any] | None = None,
            **chosen: Any,
        ) -> tuple[Scene, Session]:
            before_step = chosen.pop("before_step", None)
            chosen.setdefault("job", f"numpy-{next(_numbers)}")
            chosen.setdefault("break_at_start", True)
            settings = settings_for(agent_server, **chosen)
            scene = Scene(settings, steps, network, before_step=before_step, **(framework or {})).start()
            session = session_named(person, chosen["job"])
            stack.callback(scene.abandon, session)
            if chosen["break_at_start"]:
                session.wait(30)
            return scene, session

        yield start
