"""What is selected, and seen, when one comes to a run that has stopped: a network of twelve layers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Page, expect

from tests.page.browsing import visit
from tests.page.finding import both_sizes, select_by_search
from tests.page.transformer import SICK_LAYER

if TYPE_CHECKING:
    from tensight.client import Session
    from tests.server.running import RunningServer

pytestmark = both_sizes

FAR_DOWN = "transformer.h.9.mlp.2.weight"
#: Whether rows with a text are in sight in the node tree.
HAS_ROWS = """(text) => {
  const tree = document.querySelector('[data-testid="node-tree"]')
  const { top, bottom } = tree.getBoundingClientRect()
  const rows = [...tree.querySelectorAll('[data-testid="node-row"]')].filter((row) => row.textContent.includes(text))
  const boxes = rows.map((row) => row.getBoundingClientRect())
  return boxes.filter((box) => box.top >= top && box.bottom <= bottom).length > 1
}"""


@pytest.fixture
def arrived(page: Page, page_server: RunningServer, transformer: Session) -> Page:
    return visit(page, page_server, run=transformer.id)


@pytest.mark.long
def test_the_origin_is_selected_on_arrival_and_a_click_on_a_hit_selects_its_node(arrived: Page) -> None:
    page = arrived
    heading = page.get_by_test_id("panel-inspector").get_by_role("heading", level=2)
    began = page.get_by_test_id("origin-sentence").get_by_test_id("origin-node")
    # Attention of the layers before it has -Inf, too, where words are hidden, and its gradients are NaN.
    expect(began).to_have_attribute("data-node", f"Default/transformer/h/{SICK_LAYER}/attn/Attention-op0")
    expect(heading).to_have_text(str(began.get_attribute("data-node")).rpartition("/")[2])
    tree = page.get_by_test_id("node-tree")
    expect(tree.locator(f'[data-path="{began.get_attribute("data-node")}"]').first).to_be_in_viewport()

    page.get_by_role("tab", name=re.compile("^Hits")).click()
    row = page.get_by_test_id("hit-row").nth(2)
    expect(row).to_have_attribute("data-selected", "false")
    row.get_by_test_id("hit-condition").first.click()
    expect(row).to_have_attribute("data-selected", "true")
    expect(heading).to_have_text(str(row.get_attribute("data-node")).rpartition("/")[2])
    badge = page.get_by_test_id("panel-inspector").locator(".mantine-Badge-label", has_text="UO").first
    expect(badge).to_be_visible()
    assert badge.evaluate("label => label.scrollWidth <= label.clientWidth")
    row = page.get_by_test_id("hit-row").nth(1)
    row.get_by_test_id("hit-open-tensor").first.click()
    expect(heading).to_have_text(str(row.get_attribute("data-node")).rpartition("/")[2])
    expect(page.get_by_test_id("panel-tensor")).to_be_visible()


@pytest.mark.long
def test_an_address_that_names_a_tensor_selects_its_node(
    page: Page, page_server: RunningServer, transformer: Session
) -> None:
    address = f"0/{transformer.summary.graph}/{FAR_DOWN}:0"
    visit(page, page_server, run=transformer.id, tensor=address, tab=f"tensor:{address}")
    expect(page.get_by_test_id("panel-inspector").get_by_role("heading", level=2)).to_have_text(FAR_DOWN)


@pytest.mark.long
def test_the_tree_is_drawn_after_a_far_jump_and_a_filter_by_a_line(arrived: Page) -> None:
    page = arrived
    began = page.get_by_test_id("origin-sentence").get_by_test_id("origin-node")
    expect(
        page.get_by_test_id("node-tree").locator(f'[data-path="{began.get_attribute("data-node")}"]')
    ).to_be_visible()
    select_by_search(page, FAR_DOWN)
    rows = page.get_by_test_id("node-tree").get_by_test_id("node-row")
    expect(rows.and_(page.locator(f'[data-path="{FAR_DOWN}"]'))).to_be_in_viewport()
    page.get_by_role("tab", name="Source").click()
    line = page.get_by_test_id("panel-sources").get_by_test_id("source-line").filter(has_text="self.softmax(").first
    line.click()
    page.get_by_role("tab", name="Nodes").click()
    page.wait_for_function(HAS_ROWS, arg="Softmax")
    page.get_by_role("tab", name="Hits").click()
    page.get_by_role("tab", name="Nodes").click()
    page.wait_for_function(HAS_ROWS, arg="Softmax")
