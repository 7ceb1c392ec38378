"""A person goes back and forth through the operators of a training that shows a step only when it is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from agent_stage import PATIENCE_S, Scene, session_named, settings_for
from browsing import visit
from finding import control, expect_step
from numpy_training import FORWARD, LOSS, WEIGHTS
from playwright.sync_api import expect

import tensight

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Page
    from running import RunningServer

    from tensight.client import Session


@pytest.fixture
def stands(page_server: RunningServer) -> Iterator[Callable[..., Session]]:
    """Starts a training, and returns its session after two steps."""
    begun: list[tuple[Scene, Session]] = []
    with tensight.connect(page_server.url) as server:

        def start(job: str, *, cursor: bool) -> Session:
            scene = Scene(settings_for(page_server, job=job, break_at_start=True), 9, cursor=cursor).start()
            session = session_named(server, job)
            begun.append((scene, session))
            session.wait(PATIENCE_S)
            session.watch("tensor_too_large", max_gt=1e9)
            session.step(2).wait(PATIENCE_S)
            return session

        yield start
        for scene, session in begun:
            scene.abandon(session)


def test_operators_of_a_step_are_gone_through_back_and_forth(
    page: Page, page_server: RunningServer, stands: Callable[..., Session]
) -> None:
    session = stands("back-and-forth", cursor=True)
    visit(page, page_server, run=session.id, node=WEIGHTS[0])
    stood_at = page.get_by_test_id("stood-at")
    expect(stood_at).to_have_count(0)
    control(page, "Previous node").click()
    expect(stood_at).to_contain_text("ApplyMomentum-op0")
    page.get_by_role("tab", name="Hits").click()
    page.keyboard.press("F9")
    expect(page.get_by_test_id("hits-empty")).to_contain_text("hit up to ApplyMomentum-op0")
    page.get_by_role("tab", name="Nodes").click()
    session.previous_node(LOSS)
    expect(stood_at).to_contain_text("Loss-op0")
    # The update comes later, so what the weight was before is shown.
    inspector = page.get_by_test_id("panel-inspector")
    expect(inspector).to_contain_text(f"{WEIGHTS[0]}:0@1")
    control(page, "Previous node").click()
    expect(stood_at).to_contain_text(FORWARD[2].rpartition("/")[2])
    control(page, "Next node").click()
    expect(stood_at).to_contain_text("Loss-op0")
    control(page, "Step").click()
    expect(stood_at).to_have_count(0)
    expect_step(page, 2)
    expect(inspector).to_contain_text(f"{WEIGHTS[0]}:0@2")


def test_a_training_that_goes_forward_only_says_so(
    page: Page, page_server: RunningServer, stands: Callable[..., Session]
) -> None:
    session = stands("forward-only", cursor=False)
    visit(page, page_server, run=session.id)
    expect(control(page, "Next node")).to_be_enabled()
    expect(control(page, "Previous node")).to_be_disabled()
