"""The page in Chromium, over a real server with a training that runs and dumps that were recorded."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from browsing import chromium, new_page, training
from running import running_server

import tensight

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page
    from running import RunningServer

SICK = "sick-2.10.0"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium; for one module only, see `chromium`."""
    with chromium() as browser:
        yield browser


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens a page as `new_page` does, for as many people as a test needs."""
    with ExitStack() as stack:

        def open_(**options: Any) -> Page:
            return stack.enter_context(new_page(browser, **options))

        yield open_


@pytest.fixture
def page(open_page: Callable[..., Page]) -> Page:
    """A page at 1280 × 800, in English and light; nothing that the browser complains of is allowed."""
    return open_page()


@pytest.fixture(scope="session")
def page_server(dump_210: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server that lists the committed dumps, for all tests that leave it whole."""
    options = ("--summary-base-dir", str(dump_210.parent), "--max-offline-debugger-session-num", "5")
    with running_server(tmp_path_factory.mktemp("page") / "workspace", *options) as running:
        yield running


@pytest.fixture
def train(page_server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., str]]:
    """Starts the training of a scenario, and returns the id of its session, which waits before the first step."""
    with ExitStack() as stack:

        def start(scenario: str = "nan_from_log", *options: str, server: RunningServer = page_server) -> str:
            return stack.enter_context(training(server, scenario, tmp_path_factory.mktemp("training"), *options))

        yield start


@pytest.fixture
def dump_run(page_server: RunningServer) -> Iterator[str]:
    """Id of the session in which the dump of the sick network is open, without watchpoints of earlier tests."""
    with tensight.connect(page_server.url) as server:
        session = server.open(SICK)
        session.delete_watchpoints()
        session.close()
        run = server.open(SICK).id
        yield run
        if run in [each.id for each in server.sessions()]:
            server.session(run).close()
