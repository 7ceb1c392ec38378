"""What is shown is one thing: whichever way another step or node is chosen, all panels show that one."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Error, Page, Route, expect

import tensight
from tests.page.browsing import ATTACH_WITHIN_S, training, visit
from tests.page.finding import expect_step, select_by_search

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tensight.client import Session
    from tests.server.running import RunningServer

SCRIPT = """
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(12):
    inputs = torch.randn(16, 6)
    optimizer.zero_grad()
    nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True)).backward()
    optimizer.step()
"""
PRESENT = 8
SLOW_MS = 600
"""By how much answers come late: a click is answered by then, and its event has arrived."""
FIRST, LAST = "Default/0/Linear-op0", "Default/2/Linear-op0"


@pytest.fixture(scope="module")
def stepped(page_server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A training that stands at step 8, and has reported the statistics of every step."""
    folder: Path = tmp_path_factory.mktemp("shown")
    script = folder / "steps.py"
    script.write_text(SCRIPT)
    options = ("--capture", "modules")
    with training(page_server, script, folder, *options) as run, tensight.connect(page_server.url) as server:
        session = server.session(run)
        session.watch("tensor_overflow", on="all")
        for _ in range(PRESENT):
            session.step().wait(ATTACH_WITHIN_S)
        yield session


def answer_late(page: Page) -> None:
    """Let what is asked about a node be answered as it is now, but late."""

    def hold(route: Route) -> None:
        # The page breaks off requests that it no longer needs.
        with contextlib.suppress(Error):
            response = route.fetch()
            page.wait_for_timeout(SLOW_MS)
            route.fulfill(response=response)

    page.route(re.compile(r"/api/v1/sessions/[^/]+/(tensors|node)\?"), hold)


def expect_shown(page: Page, session: Session, node: str, step: int) -> None:
    """Wait until every panel shows a node at a step, with the numbers that the session has of it."""
    expect_step(page, step)
    (output,) = [tensor for tensor in session.tensors(node, step=step) if tensor.io == "output"]
    assert output.statistics is not None
    inspector = page.get_by_test_id("panel-inspector")
    expect(inspector.get_by_test_id("snippet")).to_contain_text(f"{node}:0@{step}")
    expect(inspector.get_by_test_id("tensor-history")).to_contain_text(f"step {step}:")
    row = inspector.locator('[data-slot="output.0"]')
    expect(row.get_by_title(str(output.statistics.mean))).to_be_visible()
    expect(page).to_have_url(re.compile(rf"[?&]step={step}(&|$)"))


def cell(page: Page, node: str, step: int) -> tuple[float, float]:
    """Return where the overview has a tensor at a step, by what it says of its cells."""
    area = page.get_by_test_id("overview-map")
    box = area.bounding_box()
    assert box is not None
    tip = page.get_by_test_id("overview-tip")
    for across in range(int(box["width"]) - 14, int(box["width"] * 0.3), -12):
        for down in range(20, int(box["height"]) - 36, 20):
            area.hover(position={"x": across, "y": down})
            if tip.count() and re.match(rf"{re.escape(node)}\n.*\nStep {step} ", tip.inner_text(), re.DOTALL):
                return across, down
    raise AssertionError(f"the overview has no cell of {node} at step {step}")


def test_every_way_to_another_step_or_node_moves_all_panels(
    page: Page, page_server: RunningServer, stepped: Session
) -> None:
    visit(page, page_server, run=stepped.id, node=FIRST)
    expect_shown(page, stepped, FIRST, PRESENT)
    across, down = cell(page, LAST, 3)
    answer_late(page)

    def click_on_cell() -> None:
        page.get_by_test_id("overview-map").click(position={"x": across, "y": down})

    def timeline_keys(*keys: str) -> Callable[[], None]:
        def press() -> None:
            page.get_by_test_id("timeline-line").focus()
            for key in (*keys, "Enter"):
                page.keyboard.press(key)

        return press

    def type_step() -> None:
        page.keyboard.press("Control+g")
        page.get_by_role("textbox", name="Go to step").fill("5")
        page.keyboard.press("Enter")

    ways: list[tuple[Callable[[], None], str, int]] = [
        (click_on_cell, LAST, 3),
        (lambda: select_by_search(page, FIRST.rsplit("/")[-1]), FIRST, 3),
        (timeline_keys("Home", "ArrowRight"), FIRST, 1),
        (type_step, FIRST, 5),
        (lambda: page.keyboard.press("Shift+F10"), FIRST, 4),
        (click_on_cell, LAST, 3),
        (page.get_by_role("button", name=f"Show step {PRESENT}").click, LAST, PRESENT),
        (lambda: stepped.go_to(2), LAST, 2),
        (page.go_back, FIRST, 2),
        (timeline_keys("End"), FIRST, PRESENT),
    ]
    for change, node, step in ways:
        change()
        expect_shown(page, stepped, node, step)


def test_the_code_that_is_offered_works(page: Page, page_server: RunningServer, stepped: Session) -> None:
    visit(page, page_server, run=stepped.id, node=LAST)
    snippet = page.get_by_test_id("snippet")
    for step in (PRESENT, 2):
        stepped.go_to(step)
        expect_shown(page, stepped, LAST, step)
        subprocess.run(
            [sys.executable, "-c", snippet.locator("pre").inner_text()], check=True, stdout=subprocess.DEVNULL
        )
