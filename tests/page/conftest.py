"""The page in Chromium, over a real server with a training that runs and dumps that were recorded."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import Error, Page

import tensight
from tests.page.browsing import ATTACH_WITHIN_S, SMALL, TRANSFORMER, chromium, new_page, training
from tests.server.running import running_server

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from playwright.sync_api import Browser

    from tensight.client import Session
    from tests.server.running import RunningServer

SICK = "sick-2.10.0"
PICTURES = Path(__file__).parents[2] / "build" / "page-failures"
_PAGES = pytest.StashKey[list[Page]]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep a picture of each page that a test had open when it failed."""
    report = yield
    if report.when == "call" and report.failed:
        for number, page in enumerate(item.stash.get(_PAGES, [])):
            file = PICTURES / f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', item.name)}-{number}.png"
            try:
                page.screenshot(path=file)
            except Error as error:
                report.sections.append(("page", f"no picture could be taken: {error}"))
            else:
                report.sections.append(("page", f"at {page.url}, a picture is in {file}"))
    return report


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium; for one module only, see `chromium`."""
    with chromium() as browser:
        yield browser


@pytest.fixture
def size() -> tuple[int, int]:
    """How large a window is; tests with `both_sizes` have a small and a large one."""
    return SMALL


@pytest.fixture
def open_page(browser: Browser, request: pytest.FixtureRequest, size: tuple[int, int]) -> Iterator[Callable[..., Page]]:
    """Opens a page as `new_page` does, for as many people as a test needs."""
    pages = request.node.stash[_PAGES] = []
    with ExitStack() as stack:

        def open_(**options: Any) -> Page:
            pages.append(stack.enter_context(new_page(browser, **{"size": size, **options})))
            return pages[-1]

        yield open_


@pytest.fixture
def page(open_page: Callable[..., Page]) -> Page:
    """A page in English and light; nothing that the browser complains of is allowed."""
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

        def start(scenario: str | Path = "nan_from_log", *options: str, server: RunningServer = page_server) -> str:
            return stack.enter_context(training(server, scenario, tmp_path_factory.mktemp("training"), *options))

        yield start


@pytest.fixture(scope="session")
def transformer(page_server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A training of twelve layers that stands where it became NaN, in step 4; tests look at it and leave it there.

    It shows calls of modules; `train(TRANSFORMER)` starts one of one's own, of operators.
    """
    with (
        training(
            page_server, TRANSFORMER, tmp_path_factory.mktemp("transformer"), "--capture", "modules", "--recommended"
        ) as run,
        tensight.connect(page_server.url) as server,
    ):
        session = server.session(run)
        session.continue_().wait(ATTACH_WITHIN_S)
        yield session


@pytest.fixture
def dump_run(page_server: RunningServer) -> Iterator[str]:
    """Id of the session in which the dump of the sick network is open, without watchpoints of earlier tests."""
    with tensight.connect(page_server.url) as server:
        session = server.open(SICK, resume=True)
        session.delete_watchpoints()
        session.close()
        run = server.open(SICK, resume=True).id
        yield run
        if run in [each.id for each in server.sessions()]:
            server.session(run).close()
