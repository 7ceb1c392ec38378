"""The page opens wherever the server has it, for whoever may use it, and complains of nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.page.browsing import visit
from tests.server.running import RunningServer, running_server

PREFIX = "/team/tensight"


@pytest.fixture(scope="module")
def locked_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Below a prefix, with a token."""
    folder = tmp_path_factory.mktemp("locked")
    options = ("--url-path-prefix", PREFIX, "--token-file", str(folder / "token"))
    with running_server(folder / "workspace", *options) as server:
        yield server


def token_of(server: RunningServer) -> str:
    return (server.workspace.parent / "token").read_text().strip()


@pytest.mark.long
def test_the_page_shows_the_list_of_runs(page: Page, page_server: RunningServer) -> None:
    visit(page, page_server)
    expect(page).to_have_title("Tensight")
    expect(page.get_by_test_id("panel-runs")).to_be_visible()


def test_the_address_that_the_server_prints_leads_to_the_page(page: Page, locked_server: RunningServer) -> None:
    page.goto(locked_server.url)
    assert page.url == f"{locked_server.url}/"


@pytest.mark.long
def test_a_training_that_waits_is_opened_by_its_address(
    page: Page, page_server: RunningServer, train: Callable[..., str]
) -> None:
    run = train()
    visit(page, page_server, run=run)
    expect(page).to_have_title(re.compile(r"^nan_from_log-.* · Tensight$"))


@pytest.mark.long
def test_a_dump_is_opened_by_its_address(page: Page, page_server: RunningServer, dump_run: str) -> None:
    visit(page, page_server, run=dump_run)
    expect(page).to_have_title("sick-2.10.0 · Tensight")


def test_a_page_below_a_prefix_needs_a_login_where_there_is_a_token(
    open_page: Callable[..., Page], locked_server: RunningServer
) -> None:
    # Asking without the token is how the page learns that there is one.
    page = open_page(allowed=(r"401 \(Unauthorized\)", r"HTTP Authentication failed"))
    visit(page, locked_server)
    page.get_by_label("Access token", exact=True).fill("a guess")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_text("not that of this server")).to_be_visible()
    page.get_by_label("Access token", exact=True).fill(token_of(locked_server))
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_label("Access token", exact=True)).to_have_count(0)
    page.reload()
    expect(page.get_by_test_id("panel-runs")).to_be_visible()
    expect(page.get_by_text("TENSIGHT_TOKEN=TOKEN tensight run").first).to_be_visible()
    expect(page.get_by_text("ENABLE_MS_DEBUGGER=1")).to_have_count(0)
    expect(page.get_by_label("Access token", exact=True)).to_have_count(0)
