"""Everybody can use the page: axe finds nothing serious, and nothing is cut off where the window is small."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

import tensight
from tensight.client import Session
from tests.page.browsing import LARGE, SMALL, training, visit
from tests.page.finding import complaints
from tests.server.running import RunningServer

pytestmark = pytest.mark.long

WITHIN_S = 60.0

# What the panels ask for; graphs, watchpoints and the session itself are there before them.
ANSWERS = re.compile(r"/api/v1/.*/(tree|nodes|sources|hits|statistics|overview|level|relations|origins|timeline)(\?|$)")

# What of the header lies outside of the window, over another part, or shows only a part of its text.
CUT_OFF = """() => {
  const header = document.querySelector('[data-testid=panel-header]')
  const box = header.getBoundingClientRect()
  const isInside = (part) => {
    const { left, right, top, bottom } = part.getBoundingClientRect()
    const at = document.elementFromPoint((left + right) / 2, (top + bottom) / 2)
    const isOnTop = at !== null && (part.contains(at) || at.contains(part))
    return left >= 0 && right <= innerWidth && top >= box.top && bottom <= box.bottom && isOnTop
  }
  const isVisible = (part) => part.getClientRects().length > 0
  const isWhole = (part) => getComputedStyle(part).overflowX === 'visible' || part.scrollWidth <= part.clientWidth + 1
  return [...header.querySelectorAll('button, input, [data-testid]')]
    .filter(isVisible)
    .filter((part) => !isInside(part) || !isWhole(part))
    .map((part) => part.outerHTML.slice(0, 300))
}"""


@pytest.fixture(scope="module")
def hit_dump(page_server: RunningServer) -> Iterator[Session]:
    """The dump of the sick network at the step with the first infinity."""
    with tensight.connect(page_server.url) as server:
        session = server.open("sick-2.10.0", resume=True)
        session.delete_watchpoints()
        session.watch("tensor_overflow")
        session.continue_()
        session.wait(WITHIN_S)
        yield session
        session.delete_watchpoints()
        session.close()


@pytest.fixture(scope="module")
def waiting(page_server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A training that stands at an operator, for which nobody has answered the question for watchpoints."""
    with (
        training(page_server, "nan_from_log", tmp_path_factory.mktemp("waiting")) as run,
        tensight.connect(page_server.url) as server,
    ):
        session = server.session(run)
        session.next_node()
        session.wait(WITHIN_S)
        yield session


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious(
    open_page: Callable[..., Page], page_server: RunningServer, hit_dump: Session, theme: str
) -> None:
    page = open_page(color_scheme=theme)
    origin = hit_dump.origins()[0]
    tensor = origin.address.partition("@")[0]
    at = {"run": hit_dump.id, "node": origin.node}
    found = []
    visit(page, page_server)
    expect(page.get_by_test_id("dump-row")).not_to_have_count(0)
    found += complaints(page, "runs")
    for tab, ready in (("overview", "overview-map"), ("graph", "graph-node"), ("tensors", "panel-tensors")):
        visit(page, page_server, **at, tab=tab, left={"graph": "hits", "tensors": "sources"}.get(tab, "nodes"))
        expect(page.get_by_test_id("origin-banner")).to_be_visible()
        expect(page.get_by_test_id(ready).first).to_be_visible()
        found += complaints(page, tab)
    visit(page, page_server, **at, tensor=tensor, tab=f"tensor:{tensor}")
    expect(page.get_by_test_id("relation-node")).not_to_have_count(0)
    for presentation in ("Heat map", "Table", "Histogram"):
        page.get_by_role("radiogroup", name="Presentation").get_by_text(presentation, exact=True).click()
        found += complaints(page, presentation)
    page.get_by_role("button", name="New watchpoint").click()
    expect(page.get_by_test_id("watchpoint-words")).to_be_visible()
    found += complaints(page, "watchpoint")
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    expect(page.get_by_role("textbox", name="Command or part of a node")).to_be_visible()
    found += complaints(page, "palette")
    assert found == [], "\n".join(found)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_the_question_for_watchpoints(
    open_page: Callable[..., Page], page_server: RunningServer, waiting: Session, theme: str
) -> None:
    page = visit(open_page(color_scheme=theme), page_server, run=waiting.id)
    expect(page.get_by_test_id("recommended-watchpoint")).not_to_have_count(0)
    found = complaints(page, "recommended")
    assert found == [], "\n".join(found)


def test_axe_finds_nothing_serious_while_the_page_waits_for_answers(
    open_page: Callable[..., Page], page_server: RunningServer, hit_dump: Session
) -> None:
    page = open_page()
    origin = hit_dump.origins()[0]
    found = []
    page.route(ANSWERS, lambda _: None)
    for tab, left in (("overview", "nodes"), ("graph", "hits"), ("tensors", "sources")):
        visit(page, page_server, run=hit_dump.id, node=origin.node, tab=tab, left=left)
        expect(page.get_by_role("status", name="Looking for where it began")).to_be_visible()
        if left == "nodes":
            expect(page.get_by_role("treeitem", name="Reading the nodes")).not_to_have_count(0)
        found += complaints(page, tab, is_waiting=True)
    assert found == [], "\n".join(found)


@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("language", ["en-US", "zh-CN"])
def test_nothing_of_the_header_is_cut_off(
    open_page: Callable[..., Page], page_server: RunningServer, waiting: Session, language: str, size: tuple[int, int]
) -> None:
    page = visit(open_page(size=size, locale=language), page_server, run=waiting.id)
    page.get_by_test_id("recommended").get_by_role("button").first.click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_test_id("stood-at")).to_be_visible()
    page.evaluate("document.fonts.ready")
    assert page.evaluate(CUT_OFF) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
