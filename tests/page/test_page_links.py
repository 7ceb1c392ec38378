"""Links, reloads, another browser, a server that was gone: whoever looks at a run sees the same of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

import tensight
from tests.page.browsing import training, visit
from tests.page.finding import answer_with_yes, choose, control, expect_step, select_by_search
from tests.server.running import RunningServer, kept_ports, running_server

LONGER_THAN_A_GLANCE_MS = 10_000
NOT_FOUND = r"404 \(Not Found\)"
WITHOUT_SERVER = (
    # Also where it is killed in the middle of an answer.
    "ERR_(CONNECTION_|SOCKET_NOT_CONNECTED|CONTENT_LENGTH_MISMATCH|INCOMPLETE_CHUNKED_ENCODING|EMPTY_RESPONSE)",
    "WebSocket connection to",
    # While the server is back and the training is not.
    NOT_FOUND,
)


def go_to_step(page: Page, step: int) -> None:
    control(page, "Go to step…").click()
    page.get_by_role("textbox", name="Go to step").fill(str(step))
    page.get_by_role("button", name="Go", exact=True).click()


@pytest.fixture
def run(page_server: RunningServer, dump_run: str) -> str:
    """Id of the session of the dump, whose question for watchpoints is answered with no."""
    with tensight.connect(page_server.url) as server:
        session = server.session(dump_run)
        if not session.summary.recommended_offered:
            session.watch_recommended(accept=False)
    return dump_run


def open_log(page: Page) -> None:
    """Find the logarithm of the sick network, and open its output."""
    select_by_search(page, "Log-op0")
    page.get_by_test_id("panel-inspector").get_by_role("button", name=re.compile("^Open out 0")).click()


def expect_log(page: Page) -> None:
    expect(page.get_by_test_id("panel-inspector").get_by_role("heading", level=2)).to_have_text("Log-op0")
    expect(page.get_by_test_id("panel-tensor").get_by_role("heading", level=2)).to_have_text("Log-op0:0")
    expect(page.get_by_role("tab", name="Log-op0:0")).to_have_attribute("aria-selected", "true")


@pytest.mark.long
def test_a_link_shows_another_person_the_same(
    run: str, open_page: Callable[..., Page], page_server: RunningServer
) -> None:
    page = open_page()
    visit(page, page_server, run=run)
    go_to_step(page, 3)
    expect_step(page, "3 / 4")
    open_log(page)
    expect_log(page)
    page.get_by_role("tab", name="Source").click()
    expect(page).to_have_url(re.compile("left=sources"))
    link = page.url
    assert "step=3" in link

    other = open_page()
    other.goto(link)
    expect_log(other)
    expect_step(other, "3 / 4")
    expect(other.get_by_role("tab", name="Source")).to_have_attribute("aria-selected", "true")
    expect(other.get_by_test_id("panel-tensor").get_by_role("row", name=re.compile("^-Inf"))).to_contain_text("1")


@pytest.mark.long
def test_a_link_to_another_step_asks_before_it_moves_the_run(
    run: str, open_page: Callable[..., Page], page_server: RunningServer
) -> None:
    page = open_page()
    visit(page, page_server, run=run, step=2)
    question = page.get_by_test_id("linked-step")
    expect(question).to_contain_text("The link is about step 2; step 0 is shown.")
    question.get_by_role("button", name="Go to step 2").click()
    expect_step(page, "2 / 4")
    expect(question).to_have_count(0)


@pytest.mark.long
def test_a_link_to_a_run_that_is_gone_says_so(open_page: Callable[..., Page], page_server: RunningServer) -> None:
    page = open_page(allowed=(NOT_FOUND,))
    page.goto(f"{page_server.url}/?run=987654&tab=graph")
    expect(page.get_by_test_id("run-gone")).to_contain_text("The server has no run 987654")
    page.get_by_role("button", name="Show all runs").click()
    expect(page.get_by_role("heading", name="Dumps and recorded runs")).to_be_visible()
    expect(page).to_have_url(f"{page_server.url}/")


@pytest.mark.long
def test_nothing_of_a_run_is_asked_for_before_it_is_known_to_be_open(
    run: str, page: Page, page_server: RunningServer
) -> None:
    asked: list[str] = []
    held: list[Route] = []
    page.on("request", lambda request: asked.append(request.url))
    answer = re.compile(f"/sessions/{run}$")
    page.route(answer, lambda route: held.append(route))
    visit(page, page_server, run=run)
    expect(page.get_by_test_id("waiting")).to_be_visible()
    assert [url for url in asked if f"/sessions/{run}/" in url] == []
    page.route(answer, lambda route: route.continue_())
    for route in held:
        route.continue_()
    expect(page.get_by_test_id("node-row")).not_to_have_count(0)


@pytest.mark.long
def test_back_and_forward_lead_through_what_was_looked_at(run: str, page: Page, page_server: RunningServer) -> None:
    page.clock.install()
    visit(page, page_server, run=run)
    tabs = [page.get_by_role("tab", name=name, exact=True) for name in ("Overview", "Graph", "Tensors")]
    for tab in tabs[1:]:
        page.clock.fast_forward(LONGER_THAN_A_GLANCE_MS)
        tab.click()
        expect(tab).to_have_attribute("aria-selected", "true")
    for tab in reversed(tabs[:-1]):
        page.go_back()
        expect(tab).to_have_attribute("aria-selected", "true")
    page.go_forward()
    expect(tabs[1]).to_have_attribute("aria-selected", "true")
    page.get_by_role("button", name="All runs").click()
    expect(page.get_by_test_id("panel-runs")).to_be_visible()
    page.go_back()
    expect(tabs[1]).to_have_attribute("aria-selected", "true")


@pytest.mark.long
def test_two_persons_at_one_training_see_the_same_and_a_reload_loses_nothing(
    open_page: Callable[..., Page], page_server: RunningServer, train: Callable[..., str]
) -> None:
    run = train()
    # The tree may just be asking for the nodes of the watchpoint that the other person deletes.
    allowed = (NOT_FOUND + r" .*watchpoint=\d",)
    one, other = (visit(open_page(allowed=allowed), page_server, run=run) for _ in range(2))
    expect(other.get_by_test_id("recommended")).to_be_visible()
    amount = answer_with_yes(one)
    expect(other.get_by_test_id("recommended")).to_be_hidden()
    expect(other.get_by_test_id("watchpoint-row")).to_have_count(amount)

    control(other, "Step").click()
    for page in (one, other):
        expect_step(page, 1)

    other.get_by_role("button", name="New watchpoint").click()
    dialog = other.get_by_role("dialog", name="New watchpoint")
    dialog.get_by_label("Name").fill("from the other one")
    dialog.get_by_test_id("watchpoint-submit").click()
    expect(one.get_by_test_id("watchpoint-row")).to_have_count(amount + 1)
    expect(one.get_by_test_id("watchpoint-row").last).to_contain_text("from the other one")

    select_by_search(one, "hidden.weight")
    one.get_by_test_id("panel-inspector").get_by_role("button", name=re.compile("^Open out 0")).click()
    choose(one, "Presentation", "Table")
    one.reload()
    expect_step(one, 1)
    expect(one.get_by_test_id("panel-tensor").get_by_role("heading", name="hidden.weight:0")).to_be_visible()
    expect(one.get_by_test_id("panel-inspector").get_by_role("heading", name="hidden.weight")).to_be_visible()
    expect(one.get_by_test_id("watchpoint-row")).to_have_count(amount + 1)
    expect(one.get_by_test_id("recommended")).to_have_count(0)

    one.get_by_role("button", name=f"Delete watchpoint {amount + 1}").click()
    one.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    expect(other.get_by_test_id("watchpoint-row")).to_have_count(amount)
    control(one, "Step").click()
    for page in (one, other):
        expect_step(page, 2)


@pytest.mark.long
def test_the_page_goes_on_when_a_killed_server_is_back(open_page: Callable[..., Page], tmp_path: Path) -> None:
    page = open_page(allowed=WITHOUT_SERVER)
    ports = kept_ports()
    with (
        running_server(tmp_path / "workspace", *ports) as first,
        training(first, "nan_from_log", tmp_path, "--on-disconnect", "wait") as run,
    ):
        visit(page, first, run=run)
        amount = answer_with_yes(page)
        control(page, "Step").click()
        expect_step(page, 1)
        first.kill()
        expect(page.get_by_test_id("server-lost")).to_contain_text("The debug server has not responded")
        expect(control(page, "Continue")).to_be_disabled()
        expect(page.get_by_test_id("watchpoint-row")).to_have_count(amount)
        with running_server(tmp_path / "workspace", *ports):
            expect(page.get_by_test_id("server-lost")).to_have_count(0)
            expect_step(page, 1)
            expect(page.get_by_test_id("watchpoint-row")).to_have_count(amount)
            control(page, "Step").click()
            expect_step(page, 2)
