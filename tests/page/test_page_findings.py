"""Why a training does not learn: findings on the page, with their places and the facts behind them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Page, expect

import tensight
from tests.page.browsing import UNLEARNED, training, visit
from tests.page.finding import both_sizes, complaints
from tests.server.running import RunningServer

if TYPE_CHECKING:
    from tensight.client import Session

WITHIN_S = 60.0


@pytest.fixture(scope="module")
def stopped(page_server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A training that a certain finding has stopped; nothing is watched in it."""
    with (
        training(
            page_server, UNLEARNED, tmp_path_factory.mktemp("findings"), "--findings", "certain", "--capture", "modules"
        ) as run,
        tensight.connect(page_server.url) as server,
    ):
        session = server.session(run)
        session.watch_recommended(accept=False)
        session.continue_().wait(WITHIN_S)
        yield session


@both_sizes
def test_a_training_that_stops_says_why_it_does_not_learn(
    page: Page, page_server: RunningServer, stopped: Session
) -> None:
    first, second = stopped.findings()
    assert (first.rule, second.rule) == ("activation-twice", "evaluation-mode")
    visit(page, page_server, run=stopped.id)
    strip = page.get_by_test_id("findings-strip")
    expect(strip).to_contain_text(first.title)
    page.keyboard.press("Alt+y")
    expect(page.get_by_role("tab", name="Findings (2)")).to_have_attribute("aria-selected", "true")
    expect(strip).to_have_count(0)
    cards = page.get_by_test_id("finding")
    expect(cards).to_have_count(2)
    expect(cards.first.get_by_test_id("finding-certainty")).to_have_text("certain")
    expect(cards.first.get_by_role("heading")).to_have_text(first.title)
    expect(cards.first.get_by_test_id("finding-advice")).to_have_text(first.advice)
    expect(page.get_by_test_id("findings-foot")).to_contain_text(re.compile(r"^Facts up to step \d+"))

    line = cards.first.get_by_test_id("finding-line")
    number = (line.inner_text().split() or [""])[0].rpartition(":")[2]
    line.click()
    shown = page.get_by_test_id("source-text").locator(f"[data-line='{number}']")
    expect(shown).to_be_in_viewport()
    expect(shown).to_have_attribute("data-cursor", "true")

    cards.nth(1).get_by_role("button", name="0.1", exact=True).click()
    expect(page.get_by_test_id("panel-inspector")).to_contain_text("Default/0/1")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert complaints(page, "findings") == []


def test_facts_are_drawn_over_the_steps(page: Page, page_server: RunningServer, stopped: Session) -> None:
    visit(page, page_server, run=stopped.id, tab="findings")
    facts = page.get_by_test_id("facts")
    chart = facts.get_by_test_id("curves-chart")
    expect(chart).to_have_attribute("aria-label", "Loss over the steps: loss")
    facts.get_by_role("combobox", name="Fact").click()
    page.get_by_role("option", name="Norm of a parameter", exact=True).click()
    curves = facts.get_by_test_id("fact-curve")
    expect(curves).to_have_count(4)
    facts.get_by_role("combobox", name="Items").click()
    page.get_by_role("option", name="0.3.bias", exact=True).click()
    expect(curves).to_have_count(5)
    expect(chart).to_have_attribute("aria-label", re.compile(r"^Norm of a parameter over the steps: 0\.0\.weight, .*"))
    facts.get_by_role("combobox", name="Fact").click()
    page.get_by_role("option", name="Loss scale", exact=True).click()
    expect(facts.get_by_test_id("facts-empty")).to_be_visible()


@pytest.mark.long
def test_findings_are_in_the_language_of_the_page(
    open_page: Callable[..., Page], page_server: RunningServer, stopped: Session
) -> None:
    page = visit(open_page(locale="zh-CN"), page_server, run=stopped.id, tab="findings")
    card = page.get_by_test_id("finding").first
    expect(card.get_by_test_id("finding-certainty")).to_have_text("确定")
    expect(card.get_by_test_id("finding-advice")).to_have_text(stopped.findings()[0].chinese.advice)


@pytest.mark.long
def test_a_dump_without_facts_says_so(page: Page, page_server: RunningServer, dump_run: str) -> None:
    visit(page, page_server, run=dump_run, tab="findings")
    expect(page.get_by_test_id("findings-no-facts")).to_contain_text("tensight diagnose train.py")
