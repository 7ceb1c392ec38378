"""Several graphs of one training as one program: each node once, of the graph that ran in the step shown."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

import tensight
from tensight.client import Session
from tests.page.browsing import ATTACH_WITHIN_S, TRANSFORMER, training, visit
from tests.page.finding import both_sizes, expect_step
from tests.server.running import RunningServer

pytestmark = [pytest.mark.long, both_sizes]

LAYERS = 12
NODE = "Default/transformer/h/10/attn/c_proj/addmm-op0"
EVALUATED = "Default/transformer/h/10/attn/c_proj/addmm-op1"


@pytest.fixture(scope="module")
def stepped(page_server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A training of twelve layers after step 3; its first step, the second and the third ran graphs of their own."""
    folder = tmp_path_factory.mktemp("variants")
    watched = training(page_server, TRANSFORMER, folder, "--recommended")
    with watched as run, tensight.connect(page_server.url) as server:
        session = server.session(run)
        for _ in range(3):
            session.step(1).wait(ATTACH_WITHIN_S)
        yield session


def row(page: Page, path: str) -> Locator:
    return page.locator(f'[data-testid="node-row"][data-path="{path}"]')


def test_each_node_is_there_once_and_of_the_graph_that_ran(
    page: Page, page_server: RunningServer, stepped: Session
) -> None:
    first, second, third = stepped.graphs()
    assert [[(span.first, span.last) for span in one.steps] for one in (first, second, third)] == [
        [(step, step)] for step in (1, 2, 3)
    ]
    assert len({found.entry.path for found in stepped.nodes()}) == len(stepped.nodes()) > 500
    visit(page, page_server, run=stepped.id)
    # The palette.
    page.keyboard.press("Control+k")
    page.get_by_role("textbox", name="Command or part of a node").fill(NODE)
    expect(page.get_by_test_id("palette-node")).to_have_count(1)
    page.get_by_test_id("palette-node").click()
    variant = page.get_by_test_id("node-variant")
    expect(variant).to_have_text(f"{third.name} (step 3) · in all 3 graphs")
    # The tree, opened around it.
    expect(row(page, NODE)).to_have_count(1)
    expect(row(page, NODE)).to_have_attribute("aria-selected", "true")
    # What ran in the evaluation of step 3 only is marked.
    expect(row(page, EVALUATED).get_by_test_id("variant-mark")).to_have_text("step 3")
    expect(row(page, NODE).get_by_test_id("variant-mark")).to_have_count(0)
    page.get_by_test_id("node-filter").fill("transformer/h/1/")
    found = page.get_by_test_id("found-strip")
    expect(found).to_contain_text(f"{len(stepped.nodes('transformer/h/1/'))} nodes")
    page.get_by_test_id("node-filter").fill("")
    # The table of tensors.
    page.get_by_role("tab", name="Tensors").click()
    page.get_by_test_id("panel-tensors").get_by_role("textbox").fill(NODE)
    expect(page.locator(f'[data-testid="tensor-row"][data-node="{NODE}"]')).to_have_count(1)
    # Another step: the same node of the graph that ran there.
    stepped.go_to(1)
    expect_step(page, 1)
    expect(variant).to_have_text(f"{first.name} (step 1) · in all 3 graphs")
    expect(page.get_by_test_id("panel-inspector")).to_contain_text(f"0/{first.name}/{NODE}:0@1")
    expect(row(page, EVALUATED)).to_have_attribute("data-absent", "true")
    stepped.go_to(3)
    expect_step(page, 3)
    expect(page.get_by_test_id("panel-inspector")).to_contain_text(f"0/{third.name}/{NODE}:0@3")


def test_another_variant_is_chosen_deliberately(page: Page, page_server: RunningServer, stepped: Session) -> None:
    first, _, third = stepped.graphs()
    visit(page, page_server, run=stepped.id, node=NODE, tab="graph")
    choice = page.get_by_test_id("panel-graph").get_by_role("combobox", name="Graph")
    expect(choice).to_have_value(f"As it ran: {third.name}")
    choice.click()
    page.get_by_role("option", name=f"{first.name} (step 1)").click()
    expect(page.get_by_test_id("node-variant")).to_have_text(f"{first.name} (step 1) · did not run in this step")
    expect(row(page, NODE)).to_have_attribute("data-graph", first.name)
    expect(row(page, EVALUATED)).to_have_count(0)
    page.get_by_role("button", name=f"Remove the filter graph: {first.name}").click()
    expect(choice).to_have_value(f"As it ran: {third.name}")
    expect(row(page, EVALUATED)).to_have_count(1)
    # What is drawn is named, also for a node that did not run in the step shown.
    stepped.go_to(2)
    visit(page, page_server, run=stepped.id, node=EVALUATED, tab="graph")
    expect(choice).to_have_value(f"{third.name} (step 3)")
    choice.click()
    page.get_by_role("option", name="As it ran: ").click()
    expect(choice).to_have_value(re.compile("^As it ran: "))
    stepped.go_to(3)


def test_scopes_stand_in_the_order_of_execution(page: Page, page_server: RunningServer, stepped: Session) -> None:
    # With a node of one's own the page selects no other on arrival.
    visit(page, page_server, run=stepped.id, node=NODE)
    expect(row(page, NODE)).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Alt+Shift+C")
    expect(row(page, NODE)).to_have_count(0)
    for scope in ("Default", "Default/transformer", "Default/transformer/h"):
        row(page, scope).click()
    names = page.locator('[data-testid="node-row"][data-path^="Default/transformer/h/"]')
    expect(names).to_have_count(LAYERS)
    paths = [names.nth(place).get_attribute("data-path") for place in range(LAYERS)]
    assert paths == [f"Default/transformer/h/{layer}" for layer in range(LAYERS)]
