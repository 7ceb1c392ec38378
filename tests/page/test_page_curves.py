"""Curves of a training over its steps, also while it only runs; and watchpoints that it is given meanwhile."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Page, expect

import tensight
from tests.page.browsing import visit
from tests.page.finding import both_sizes, control, expect_step
from tests.server.running import RunningServer

if TYPE_CHECKING:
    from tensight.client import Session

pytestmark = [pytest.mark.long, both_sizes]

FOREVER = """
import time

import torch

torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
while True:
    inputs = torch.randn(32, 8)
    optimizer.zero_grad()
    (model(inputs) - inputs.sum(1, keepdim=True)).square().mean().backward()
    optimizer.step()
    time.sleep(0.01)
"""


def test_curves_of_a_large_model_are_drawn_and_a_click_goes_to_the_step(
    page: Page, page_server: RunningServer, transformer: Session
) -> None:
    visit(page, page_server, run=transformer.id)
    page.get_by_role("tab", name="Curves").click()
    curves = page.get_by_test_id("curve")
    expect(curves).to_have_count(3)
    loss = curves.filter(has_text=re.compile("^Loss"))
    expect(loss).to_have_text("LossNaN")
    expect(curves.filter(has_text="Learning rate")).to_contain_text("0.001")
    chart = page.get_by_test_id("curves-chart")
    expect(chart).to_have_attribute("aria-label", "Curves over the steps: Loss, Learning rate, Gradient norm")

    page.get_by_label("Add a tensor").fill("h.3.attn weight")
    page.get_by_role("option", name="transformer.h.3.attn.c_attn.weight:0", exact=True).click()
    expect(curves).to_have_count(4)
    expect(chart).to_have_attribute("aria-label", re.compile(r", transformer\.h\.3\.attn\.c_attn\.weight:0 L2 norm$"))
    curves.nth(1).get_by_role("button").click()
    expect(chart).to_have_attribute("aria-label", re.compile("^Curves over the steps: Loss, Gradient norm, "))
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")

    step = transformer.summary.step
    around = chart.bounding_box()
    assert around is not None
    # The axis goes from the left edge of its field to the right one.
    left, right = around["x"] + 70, around["x"] + around["width"] - 16
    page.mouse.click(left + (right - left) * (step - 1) / step, around["y"] + 40)
    expect(page.get_by_test_id("run-past")).to_contain_text(f"Step {step - 1} is shown")
    page.get_by_role("button", name=f"Show step {step}").click()
    expect_step(page, step)


def test_a_training_that_only_runs_has_curves_and_is_given_a_watchpoint(
    page: Page, page_server: RunningServer, train: Callable[..., str], tmp_path: Path
) -> None:
    script = tmp_path / "forever.py"
    script.write_text(FOREVER)
    run = train(script)
    with tensight.connect(page_server.url) as server:
        server.session(run).watch_recommended(accept=False)
    visit(page, page_server, run=run, tab="curves")
    expect(page.get_by_test_id("curves-empty")).to_be_visible()
    control(page, "Continue").click()
    expect(page.get_by_test_id("run-state")).to_have_attribute("data-state", "running")
    expect(page.get_by_test_id("curve")).to_have_count(3)
    expect(page.get_by_test_id("curves-chart")).to_be_visible()
    expect(page.get_by_test_id("panel-timeline")).not_to_contain_text("No loss is known")

    page.get_by_role("button", name="New watchpoint").first.click()
    dialog = page.get_by_role("dialog", name="New watchpoint")
    dialog.get_by_label("Name").fill("while it runs")
    dialog.get_by_test_id("watchpoint-submit").click()
    expect(page.get_by_test_id("message")).to_contain_text("from the next step on; the training goes on")
    expect(page.get_by_test_id("watchpoint-row")).to_have_count(1)
    with tensight.connect(page_server.url) as server:
        session = server.session(run)
        step = session.summary.step
        session.wait_until(lambda record: record.step > step + 20, 30)
        assert session.statistics(step=session.pause().wait(30).step)
