"""A person finds, with the page, why the loss of a real PyTorch training becomes NaN."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import APIResponse, Page, Route, expect

import tensight
from tensight.client import Session
from tests.page.browsing import SCENARIOS, training, visit
from tests.page.finding import answer_with_yes, cells, choose, complaints, control, expect_step
from tests.server.running import RunningServer

FAULT = next(
    number
    for number, line in enumerate((SCENARIOS / "nan_from_log.py").read_text().splitlines(), 1)
    if "# FAULT" in line
)
WITHIN_S = 120.0


@pytest.fixture(scope="module")
def stopped(page_server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A training that stands where a recommended watchpoint hit; tests look at it and leave it there."""
    with (
        training(page_server, "nan_from_log", tmp_path_factory.mktemp("stopped")) as run,
        tensight.connect(page_server.url) as server,
    ):
        session = server.session(run)
        session.watch_recommended()
        session.continue_()
        session.wait(WITHIN_S)
        yield session


@pytest.fixture(scope="module")
def stepped(page_server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A training after its second step, with a watchpoint that did not hit."""
    with (
        training(page_server, "nan_from_log", tmp_path_factory.mktemp("stepped")) as run,
        tensight.connect(page_server.url) as server,
    ):
        session = server.session(run)
        session.watch("tensor_too_large", on="weights", max_gt=1e9)
        session.step(2)
        session.wait(WITHIN_S)
        yield session


def open_origin(page: Page, server: RunningServer, session: Session) -> str:
    """Open the tensor in which it began, as the banner offers it, and return its address."""
    visit(page, server, run=session.id)
    page.get_by_test_id("action-origin-tensor").click()
    expect(page.get_by_test_id("panel-tensor").get_by_role("heading", level=2)).to_have_text("log-op0:0")
    return session.origins()[0].address


def test_from_the_question_to_the_line_of_code_and_what_to_do(
    page: Page, page_server: RunningServer, train: Callable[..., str]
) -> None:
    visit(page, page_server, run=train())
    answer_with_yes(page)
    control(page, "Continue").click()
    sentence = page.get_by_test_id("origin-sentence")
    expect(sentence).to_have_text(re.compile(r"^Inf began at step \d+ in Default/log-op0"))
    expect(page.get_by_test_id("run-state")).to_have_attribute("data-state", "paused")
    line = page.get_by_test_id("origin-line")
    expect(line).to_have_attribute("data-line", str(FAULT))
    expect(line).to_contain_text("torch.log(probabilities)")
    expect(page.get_by_test_id("origin-next")).to_contain_text("logarithm")
    expect(page.get_by_test_id("tab-hits")).to_have_text("Hits (1)")

    page.get_by_test_id("action-origin-tensor").click()
    tensor = page.get_by_test_id("panel-tensor")
    expect(tensor.get_by_role("heading", name="log-op0:0")).to_be_visible()
    expect(tensor.get_by_role("row", name=re.compile("-Inf"))).to_contain_text("1")
    advice = tensor.get_by_test_id("advice")
    expect(advice).to_contain_text("Unintended overflow")
    expect(advice).to_contain_text("logarithm")
    assert not complaints(page, "tensor")


@pytest.mark.long
def test_a_tensor_is_sliced_with_a_box_for_each_dimension(
    page: Page, page_server: RunningServer, stopped: Session
) -> None:
    address = open_origin(page, page_server, stopped)
    values = stopped.tensor(address)
    choose(page, "Presentation", "Table")
    first = page.get_by_label("Dimension 0, length 64")
    first.fill("-4:")
    first.press("Enter")
    assert cells(page, 12) == pytest.approx(values.slice("[-4:, :]").ravel().tolist(), rel=1e-5)

    page.get_by_label("Dimension 1, length 3").fill("1")
    page.get_by_role("button", name="Apply").click()
    assert cells(page, 4) == pytest.approx(values.slice("[-4:, 1]").tolist(), rel=1e-5)

    choose(page, "Extent of the statistics", "This slice")
    statistics = page.get_by_test_id("tensor-statistics")
    expect(statistics.get_by_role("row", name=re.compile("^Elements"))).to_contain_text("4")

    page.get_by_label("Dimension 1, length 3").fill("3")
    expect(page.get_by_role("alert")).to_contain_text("index 3 does not exist")
    expect(page.get_by_role("button", name="Apply")).to_be_disabled()
    page.get_by_role("button", name="Discard what was typed").click()
    page.get_by_role("button", name="Back to the first slice").click()
    expect(page.get_by_label("Dimension 0, length 64")).to_have_value(":")


@pytest.mark.long
def test_a_tensor_is_a_heat_map_a_table_and_a_histogram(
    page: Page, page_server: RunningServer, stopped: Session
) -> None:
    address = open_origin(page, page_server, stopped)
    choose(page, "Presentation", "Heat map")
    picture = page.get_by_role("application", name=re.compile("^Heat map of"))
    picture.focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_test_id("element-bar")).to_contain_text(re.compile(r"^\[\d+, \d+\] = -?[\d.]"))

    page.keyboard.press("Shift+T")
    expect(page.get_by_role("radio", name="Table")).to_be_checked()
    row, column = (int(axis[0]) for axis in (stopped.tensor(address).numpy() == -float("inf")).nonzero())
    for dimension, index in enumerate((row, column)):
        page.get_by_label(f"Dimension {dimension}, length").fill(f"{index}:{index + 1}")
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_test_id("value-table").get_by_role("gridcell")).to_have_text("-Inf")
    expect(page.get_by_test_id("element-bar")).to_have_text(f"[{row}, {column}] = -Inf")

    choose(page, "Presentation", "Histogram")
    finite = stopped.tensor(address).statistics().count - 1
    expect(page.get_by_label(re.compile(f"^Histogram of {finite} finite elements"))).to_be_visible()


@pytest.mark.long
def test_the_relationship_graph_is_walked_and_walked_back(
    page: Page, page_server: RunningServer, stopped: Session
) -> None:
    open_origin(page, page_server, stopped)
    heading = page.get_by_test_id("panel-tensor").get_by_role("heading", level=2)
    relations = page.get_by_test_id("panel-relations")
    expect(relations.get_by_role("button", name="Output 0 of log-op0, hit: UO")).to_be_visible()
    relations.get_by_role("button", name="Output 0 of _softmax-op0").dblclick()
    expect(heading).to_have_text("_softmax-op0:0")
    relations.get_by_role("button", name=re.compile("^Output 0 of .*addmm")).first.dblclick()
    expect(heading).to_have_text(re.compile("addmm"))
    for name in ("_softmax-op0:0", "log-op0:0"):
        relations.get_by_role("button", name="Back to the previous tensor").click()
        expect(heading).to_have_text(name)
    relations.get_by_role("button", name="Forward again").click()
    expect(heading).to_have_text("_softmax-op0:0")


@pytest.mark.long
def test_the_line_of_code_is_shown_with_the_nodes_that_it_made(
    page: Page, page_server: RunningServer, stopped: Session
) -> None:
    visit(page, page_server, run=stopped.id)
    page.get_by_test_id("origin-line").click()
    expect(page.get_by_role("tab", name="Source")).to_have_attribute("aria-selected", "true")
    sources = page.get_by_test_id("panel-sources")
    line = sources.locator(f'[data-testid="source-line"][data-line="{FAULT}"]')
    expect(line).to_have_attribute("data-origin", "inner")
    expect(line).to_contain_text("torch.log(probabilities)")
    line.click()
    page.get_by_role("tab", name="Nodes").click()
    nodes = page.get_by_test_id("panel-nodes")
    expect(nodes.locator('[data-testid="node-row"][data-path="Default/log-op0"]')).not_to_have_count(0)
    expect(nodes.locator('[data-testid="node-row"][data-path="Default/_softmax-op0"]')).to_have_count(0)

    page.get_by_role("tab", name="Source").click()
    sources.get_by_role("button", name="Show the text of nan_from_log.py").click()
    text = sources.get_by_test_id("source-text")
    expect(text.locator(f'[data-line="{FAULT}"]')).to_contain_text("# FAULT")


@pytest.mark.long
def test_a_weight_is_compared_with_the_step_before(page: Page, page_server: RunningServer, stepped: Session) -> None:
    visit(page, page_server, run=stepped.id)
    page.get_by_label("Filter nodes by name").fill("output.bias")
    graph = stepped.summary.graph
    page.locator(f'[data-testid="node-row"][data-path="output.bias"][data-graph="{graph}"]').click()
    page.get_by_test_id("panel-inspector").get_by_role("button", name="Compare with the previous step").click()
    expect(page.get_by_role("radio", name="Difference")).to_be_checked()
    statistics = page.get_by_test_id("tensor-statistics")
    for side in ("Previous", "Current", "Diff."):
        expect(statistics.get_by_role("columnheader", name=side)).to_be_visible()

    choose(page, "Presentation", "Table")
    bias = stepped.tensor("output.bias", graph=graph)
    difference = bias.numpy().astype(float) - bias.previous.numpy().astype(float)
    assert cells(page, 3) == pytest.approx(difference.tolist(), rel=1e-4)
    choose(page, "Which value", "Previous")
    assert cells(page, 3) == pytest.approx(bias.previous.numpy().tolist(), rel=1e-5)


@pytest.mark.long
def test_a_watchpoint_is_changed_and_the_step_checked_again(
    page: Page, page_server: RunningServer, stepped: Session
) -> None:
    visit(page, page_server, run=stepped.id)
    page.get_by_role("tab", name="Hits").click()
    expect(page.get_by_test_id("hits-empty")).to_contain_text("No hits at step 2")

    row = page.locator('[data-testid="watchpoint-row"][data-condition="tensor_too_large"]')
    row.get_by_role("button", name=re.compile("^Change watchpoint")).click()
    dialog = page.get_by_role("dialog", name=re.compile("^Watchpoint"))
    limit = dialog.locator('[data-parameter="max_gt"]')
    limit.fill("much")
    dialog.get_by_role("button", name="Save").click()
    expect(limit).to_have_attribute("aria-invalid", "true")
    limit.fill("1e-3")
    expect(dialog.get_by_test_id("watchpoint-words")).to_contain_text("greater than 0.001")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_be_hidden()
    expect(row).to_contain_text("> 0.001")

    hits = page.get_by_test_id("panel-hits")
    expect(hits.get_by_test_id("hits-outdated")).to_be_visible()
    hits.get_by_role("button", name="Recheck this step").click()
    expect(hits.get_by_test_id("hits-outdated")).to_have_count(0)
    expect(hits.locator('[data-testid="hit-row"][data-node="hidden.weight"]')).to_contain_text("0.001")


@pytest.mark.long
def test_the_run_is_taken_to_the_next_node_back_a_step_and_to_its_end(
    page: Page, page_server: RunningServer, train: Callable[..., str]
) -> None:
    run = train()
    visit(page, page_server, run=run)
    answer_with_yes(page)
    control(page, "Next node").click()
    stood_at = page.get_by_test_id("stood-at")
    expect(stood_at).to_be_visible()
    before = stood_at.inner_text()
    control(page, "Next node").click()
    expect(stood_at).not_to_have_text(before)

    page.get_by_label("Steps at a time").fill("3")
    control(page, "Step by 3").click()
    expect_step(page, 3)
    control(page, "Step back").click()
    expect_step(page, 2)
    past = page.get_by_test_id("run-past")
    expect(past).to_contain_text("Step 2 is shown; the training is at step 3.")
    past.get_by_role("button", name="Show step 3").click()
    expect_step(page, 3)
    expect(past).to_have_count(0)

    control(page, "Terminate").click()
    question = page.get_by_role("dialog", name="Terminate the training?")
    question.get_by_role("button", name="Keep it running").click()
    expect(question).to_be_hidden()
    expect_step(page, 3)
    control(page, "Terminate").click()
    question.get_by_role("button", name="Terminate", exact=True).click()
    expect(page.get_by_test_id("run-ended")).to_contain_text("at step 3")
    expect(control(page, "Continue")).to_be_disabled()


@pytest.mark.long
def test_an_answer_that_an_event_has_overtaken_is_not_shown(
    page: Page, page_server: RunningServer, train: Callable[..., str]
) -> None:
    run = train()
    visit(page, page_server, run=run)
    watchpoints = answer_with_yes(page)
    page.get_by_label("Steps at a time").fill("2")
    control(page, "Step by 2").click()
    # Each of the first two has a new graph, for which the session is read once more.
    expect_step(page, 2)
    overtaken: list[tuple[Route, APIResponse]] = []

    def hold(route: Route) -> None:
        overtaken.append((route, route.fetch()))
        page.evaluate("held => document.body.dataset.held = held", overtaken[-1][1].json()["watchpoints"])

    page.route(re.compile(f"/api/v1/sessions/{run}$"), hold)
    with tensight.connect(page_server.url) as server:
        session = server.session(run)
        session.watch("tensor_too_large", on="weights", max_gt=1e9)
        expect(page.locator("body")).to_have_attribute("data-held", str(watchpoints + 1))
        session.step(1)
        expect_step(page, 3)
        page.evaluate("""() => {
          const step = document.querySelector('[data-testid="step"]')
          window.shown = []
          new MutationObserver(() => window.shown.push(step.textContent))
            .observe(step, { childList: true, characterData: true, subtree: true })
        }""")
        route, response = overtaken[-1]
        with page.expect_response(route.request.url) as answer:
            route.fulfill(response=response)
        assert answer.value.json()["step"] == 2
        page.unroute_all()
        session.step(1)
        expect_step(page, 4)
    assert page.evaluate("window.shown") == ["Step 4"]
