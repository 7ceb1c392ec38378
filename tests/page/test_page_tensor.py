"""Where in a tensor NaN is: in a network of twelve layers, at 1280 × 800 and 1920 × 1080."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Page, expect

from tests.page.browsing import visit
from tests.page.finding import both_sizes, choose
from tests.page.transformer import HEADS, LENGTH, SICK_LAYER, SICK_SEQUENCE

if TYPE_CHECKING:
    from tensight.client import Session
    from tests.server.running import RunningServer

pytestmark = [pytest.mark.long, both_sizes]

FIRST_ROW, ROWS = 8, 5
SOFTMAX = f"Default/transformer/h/{SICK_LAYER}/attn/softmax/Softmax-op0:0"


def element(*index: int) -> str:
    return f"[{', '.join(map(str, index))}] = "


@pytest.fixture
def tensor_page(page: Page, page_server: RunningServer, transformer: Session) -> Page:
    """The weights of the attention that became NaN: of one sequence, in five rows of each head."""
    address = f"0/{transformer.summary.graph}/{SOFTMAX}"
    visit(page, page_server, run=transformer.id, tensor=address, tab=f"tensor:{address}")
    expect(page.get_by_test_id("panel-tensor").get_by_role("heading", level=2)).to_have_text("Softmax-op0:0")
    return page


def test_a_tensor_opens_at_its_first_nan_and_keys_lead_to_the_next(tensor_page: Page) -> None:
    page = tensor_page
    expect(page.get_by_label("Dimension 0, length")).to_have_value(str(SICK_SEQUENCE))
    told = page.get_by_test_id("element-bar")
    expect(told).to_have_text(f"{element(SICK_SEQUENCE, 0, FIRST_ROW, 0)}NaN")
    expect(page.get_by_test_id("marked-element")).to_be_visible()
    back = page.get_by_role("button", name="Back to the first slice")
    expect(back).to_be_disabled()

    page.get_by_role("button", name="Go to the next NaN or infinity").click()
    expect(told).to_have_text(f"{element(SICK_SEQUENCE, 0, FIRST_ROW, 1)}NaN")
    # The last one of all, for the search goes on at the other end.
    page.keyboard.press("Shift+B")
    page.keyboard.press("Shift+B")
    expect(told).to_have_text(f"{element(SICK_SEQUENCE, HEADS - 1, FIRST_ROW + ROWS - 1, LENGTH - 1)}NaN")
    expect(page.get_by_label("Dimension 1, length")).to_have_value(str(HEADS - 1))

    page.keyboard.press("Shift+T")
    cell = page.get_by_test_id("value-table").get_by_role("gridcell", selected=True)
    expect(cell).to_have_text("NaN")
    expect(cell).to_be_in_viewport()
    page.keyboard.press("Shift+M")
    expect(told).to_have_text("[0, 0, 0, 0] = 1")
    expect(cell).to_be_in_viewport()
    page.keyboard.press("Shift+A")
    expect(told).to_have_text(f"{element(SICK_SEQUENCE, 0, FIRST_ROW, 0)}NaN")
    page.keyboard.press("Shift+M")
    back.click()
    expect(told).to_have_text(f"{element(SICK_SEQUENCE, 0, FIRST_ROW, 0)}NaN")


def test_a_map_of_all_slices_shows_where_nan_is_and_leads_there(tensor_page: Page) -> None:
    page = tensor_page
    cells = page.get_by_test_id("slice-map").get_by_role("application")
    words = page.get_by_test_id("slice-words")
    expect(words).to_contain_text(f"[{SICK_SEQUENCE}, 0, :, :]NaN/Inf {ROWS * LENGTH}largest NaN")
    cells.focus()
    page.keyboard.press("ArrowRight")
    expect(words).to_contain_text(f"[{SICK_SEQUENCE}, 1, :, :]NaN/Inf {ROWS * LENGTH}")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Dimension 1, length")).to_have_value("1")
    expect(page.get_by_test_id("element-bar")).to_have_text(f"{element(SICK_SEQUENCE, 1, FIRST_ROW, 0)}NaN")
    # The first cell: a slice without NaN is shown at its largest element.
    cells.click(position={"x": 8, "y": 8})
    expect(page.get_by_label("Dimension 0, length")).to_have_value("0")
    expect(page.get_by_test_id("element-bar")).to_have_text("[0, 0, 0, 0] = 1")
    choose(page, "What the map of slices shows", "Largest")
    expect(words).to_contain_text("largest 1")


def test_a_tensor_without_nan_opens_at_its_largest_element(
    page: Page, page_server: RunningServer, transformer: Session
) -> None:
    address = f"0/{transformer.summary.graph}/transformer.wpe.weight:0@3"
    tensor = transformer.tensor(address)
    largest = tensor.locate("largest")
    assert largest.index is not None
    assert tensor.locate() == largest
    run = {"run": transformer.id, "tensor": address.partition("@")[0]}
    # The step shown has NaN everywhere in it; in the one before, the weight is whole.
    visit(page, page_server, **run)
    choose(page, "Which value", "Previous")
    told = page.get_by_test_id("element-bar")
    expect(told).to_contain_text(f"{element(*largest.index)}{float(largest.value):.3f}"[:-1])
    page.keyboard.press("Shift+N")
    expect(page.get_by_test_id("finder").get_by_role("status")).to_contain_text("There is no NaN or infinity")
