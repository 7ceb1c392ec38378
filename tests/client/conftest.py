"""A real server over the committed dumps, and a person's script connected to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import tensight
from tensight.client import Server, Session
from tests.server.running import running_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.server.running import RunningServer

SICK = "sick-2.10.0"


@pytest.fixture(scope="session")
def dump_server(dump_210: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server that lists the committed dumps: no test may stop it."""
    options = ("--summary-base-dir", str(dump_210.parent), "--max-offline-debugger-session-num", "3")
    with running_server(tmp_path_factory.mktemp("client") / "workspace", *options) as running:
        yield running


@pytest.fixture(scope="session")
def server(dump_server: RunningServer) -> Iterator[Server]:
    with tensight.connect(dump_server.url) as connected:
        yield connected


@pytest.fixture
def session(server: Server) -> Iterator[Session]:
    """The sick network's dump, just opened, for the test alone."""
    with server.open(SICK) as opened:
        yield opened
