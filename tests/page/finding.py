"""Where a person finds things on the page, for tests of what happens when they use them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.page.browsing import LARGE, SMALL

AXE = Path(__file__).parents[2] / "ui" / "node_modules" / "axe-core" / "axe.min.js"
SERIOUS = ("serious", "critical")

both_sizes = pytest.mark.parametrize(
    "size", [pytest.param(SMALL, id="1280"), pytest.param(LARGE, id="1920", marks=pytest.mark.long)]
)
"""Tests with this mark are run in a small and in a large window: their `page` has that size."""


def control(page: Page, name: str) -> Locator:
    """Return a button of the run control."""
    return page.get_by_role("toolbar", name="Run control").get_by_role("button", name=name, exact=True)


def expect_step(page: Page, step: int | str, state: str = "paused") -> None:
    """Wait until the page says that the run stands at a step; of a dump it is ``STEP / LAST``."""
    expect(page.get_by_test_id("run-state")).to_have_attribute("data-state", state)
    expect(page.get_by_test_id("step")).to_have_text(f"Step {step}")


def answer_with_yes(page: Page) -> int:
    """Answer the question for the recommended watchpoints, and return how many there are."""
    dialog = page.get_by_role("dialog", name="Use the recommended watchpoints?")
    offered = dialog.get_by_test_id("recommended-watchpoint")
    expect(offered).not_to_have_count(0)
    amount = offered.count()
    dialog.get_by_role("button", name=f"Use these {amount}").click()
    expect(dialog).to_be_hidden()
    expect(page.get_by_test_id("watchpoint-row")).to_have_count(amount)
    return amount


def select_by_search(page: Page, name: str) -> None:
    """Select a node as one does without knowing where it is: with the search."""
    page.keyboard.press("Control+k")
    page.get_by_role("textbox", name="Command or part of a node").fill(name)
    page.get_by_test_id("palette-node").filter(has=page.get_by_text(name, exact=True)).first.click()
    expect(page.get_by_test_id("panel-inspector").get_by_role("heading", level=2)).to_have_text(name)


def choose(page: Page, group: str, name: str) -> None:
    """Choose one of a row of buttons of which one is on."""
    radios = page.get_by_role("radiogroup", name=group)
    radios.get_by_text(name, exact=True).click()
    expect(radios.get_by_role("radio", name=name, exact=True)).to_be_checked()


def cells(page: Page, number_of_cells: int) -> list[float]:
    """Return the numbers of the table of a tensor, as it writes them."""
    shown = page.get_by_test_id("value-table").get_by_role("gridcell")
    expect(shown).to_have_count(number_of_cells)
    expect(page.get_by_test_id("value-table").locator("[data-sign=unread]")).to_have_count(0)
    return [float(text) for text in shown.all_inner_texts()]


def complaints(page: Page, view: str, *, is_waiting: bool = False) -> list[str]:
    """Return what axe finds of the page as it is now: when all is there, or while it waits for answers."""
    if not is_waiting:
        expect(page.locator(".mantine-Skeleton-root:visible")).to_have_count(0)
    page.evaluate(AXE.read_text())
    told: dict[str, Any] = page.evaluate("axe.run({resultTypes: ['violations']})")
    return [
        f"{view}: {each['id']} ({each['impact']}): {each['help']}: {node['html'][:300]}"
        for each in told["violations"]
        if each["impact"] in SERIOUS
        for node in each["nodes"]
    ]


def listed_keys(page: Page, group: str) -> dict[str, str]:
    """Return the keys that the page lists for a group of actions, by what they do."""
    page.keyboard.press("Shift+?")
    shown = page.get_by_test_id("shortcuts").locator("section")
    section = shown.filter(has=page.get_by_role("heading", name=group, exact=True))
    expect(section).to_be_visible()
    return {
        row.locator("dt").inner_text(): " ".join(row.locator("kbd").all_inner_texts())
        for row in section.locator("dl > div").all()
    }


def documented_keys(heading: str) -> dict[str, str]:
    """Return the keys in a table of the page's documentation, by what they do."""
    text = (Path(__file__).parents[2] / "docs" / "page.md").read_text()
    rows = text.partition(f"| {heading} | keys |")[2].partition("\n\n")[0]
    return dict(re.findall(r"^\| ([^|`]+) \| `([^`]+)` \|$", rows, re.MULTILINE))
