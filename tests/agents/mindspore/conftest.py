"""One server for all trainings of MindSpore, which are processes of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.agents.mindspore.mindspore_stage import VERSIONS, python_of
from tests.server.running import RunningServer, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def mindspore_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server that answers, for every test of this process; no test may stop it."""
    with running_server(tmp_path_factory.mktemp("mindspore") / "workspace") as server:
        yield server


@pytest.fixture(
    params=[VERSIONS[0], *(pytest.param(older, marks=pytest.mark.long) for older in VERSIONS[1:])], scope="module"
)
def version(request: pytest.FixtureRequest) -> str:
    """Each version of MindSpore that there is an environment for; older ones by name only, but for `make test-long`."""
    python_of(request.param)
    return str(request.param)
