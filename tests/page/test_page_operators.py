"""A person stands at an operator within a step, looks around there, and goes back and forth."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

import tensight
from tests.agents.agent_stage import PATIENCE_S, Scene, session_named, settings_for
from tests.agents.numpy_training import FORWARD, LOSS, WEIGHTS
from tests.page.browsing import ATTACH_WITHIN_S, TRANSFORMER, training, visit
from tests.page.finding import both_sizes, control, expect_step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Page

    from tensight.client import Session
    from tests.server.running import RunningServer


pytestmark = [pytest.mark.long, both_sizes]

STANDS_AT = "Default/transformer/h/10/attn/c_proj/addmm-op0"
WEIGHT = "transformer.h.3.attn.c_proj.weight"
RAN, NOT_YET = (f"Default/transformer/h/{layer}/attn/c_proj/addmm-op0" for layer in (3, 11))


@pytest.fixture(scope="module")
def within(page_server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A training of twelve layers that stands at an operator in its second step."""
    with (
        training(page_server, TRANSFORMER, tmp_path_factory.mktemp("within")) as run,
        tensight.connect(page_server.url) as server,
    ):
        session = server.session(run)
        session.step(1).wait(ATTACH_WITHIN_S)
        session.watch("tensor_too_large", on=f"name:{STANDS_AT}", max_gt=-1e9)
        session.continue_().wait(ATTACH_WITHIN_S)
        yield session


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


def test_the_weights_that_operators_have_read_are_there_and_a_recheck_checks(
    page: Page, page_server: RunningServer, within: Session
) -> None:
    assert (within.summary.node, within.summary.step) == (STANDS_AT, 2)
    within.delete_watchpoints()
    visit(page, page_server, run=within.id, node=WEIGHT)
    inspector = page.get_by_test_id("panel-inspector")
    expect(inspector.get_by_role("heading", level=2)).to_have_text(WEIGHT)
    # What the operators of this step have read is what the update of the step before has left.
    expect(inspector).to_contain_text(f"{WEIGHT}:0@1")
    expect(inspector.get_by_test_id("tensor-row")).to_contain_text("max")
    expect(inspector).not_to_contain_text("not kept")
    for operator in (RAN, NOT_YET):
        within.watch("tensor_too_large", on=f"name:{operator}", max_gt=-1e9)
    page.get_by_role("tab", name="Hits").click()
    expect(page.get_by_text("Watchpoints have changed since")).to_be_visible()
    page.keyboard.press("F9")
    rows = page.get_by_test_id("hit-row")
    expect(rows).to_have_count(1)
    expect(rows).to_have_attribute("data-node", RAN)


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
