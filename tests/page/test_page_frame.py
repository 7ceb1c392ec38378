"""What stands around the panels: banner, messages, keys, the list of runs. None of it is in the way of the work."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.page.browsing import training, visit
from tests.page.finding import both_sizes, control, documented_keys, expect_step, listed_keys
from tests.server.running import RunningServer, running_server

if TYPE_CHECKING:
    from tensight.client import Session

pytestmark = both_sizes

ONE_LINE = 32
"""Pixels: no line of text of the page is as high as two."""

Box = dict[str, float]


def box(found: Locator) -> Box:
    shown = found.bounding_box()
    assert shown is not None
    return {
        "left": shown["x"],
        "top": shown["y"],
        "right": shown["x"] + shown["width"],
        "bottom": shown["y"] + shown["height"],
    }


def overlap(one: Box, other: Box) -> bool:
    return (
        one["left"] < other["right"]
        and other["left"] < one["right"]
        and one["top"] < other["bottom"]
        and other["top"] < one["bottom"]
    )


@pytest.mark.long
def test_banner_messages_and_buttons_leave_room_for_the_work(
    page: Page, page_server: RunningServer, transformer: Session, size: tuple[int, int]
) -> None:
    visit(page, page_server, run=transformer.id)
    banner = page.get_by_test_id("origin-banner")
    expect(banner.get_by_test_id("origin-values")).to_contain_text("Inf")
    around = box(banner)
    assert around["bottom"] - around["top"] <= size[1] / 5
    sentence, line = box(page.get_by_test_id("origin-sentence")), box(page.get_by_test_id("origin-line"))
    assert max(sentence["bottom"], line["bottom"]) - min(sentence["top"], line["top"]) < ONE_LINE
    assert not overlap(sentence, line)
    expect(page.get_by_test_id("origin-line")).to_contain_text(re.compile(r"^transformer\.py:\d+"))
    name = page.get_by_test_id("origin-node")
    assert name.get_attribute("title") == name.get_attribute("data-node") == transformer.origins()[0].node

    page.get_by_test_id("action-origin-details").click()
    details = page.get_by_test_id("origin-details")
    expect(details).to_contain_text("# FAULT")
    assert box(banner) == around, "details open over what is below"
    page.keyboard.press("Alt+d")
    expect(details).to_have_count(0)

    page.get_by_test_id("action-origin-node").click()
    node = page.locator('[data-testid="graph-node"][data-chosen="true"]')
    expect(node).to_be_visible()
    frame = page.get_by_test_id("graph-frame")
    for over in (
        frame.get_by_test_id("graph-legend"),
        frame.get_by_role("toolbar"),
        frame.locator(".react-flow__minimap"),
    ):
        assert not overlap(box(node), box(over))

    for _ in range(3):
        page.keyboard.press("F6")
    message = page.get_by_test_id("message")
    expect(message).to_have_text("Nothing is running.× 3")
    foot = box(page.get_by_test_id("panel-foot"))
    for panel in ("panel-timeline", "panel-inspector", "panel-watchpoints"):
        assert not overlap(foot, box(page.get_by_test_id(panel)))
    page.get_by_role("button", name="Dismiss this message").click()
    expect(message).to_have_count(0)


@pytest.mark.long
def test_a_refresh_by_habit_moves_nothing_and_every_key_is_documented(
    page: Page, page_server: RunningServer, transformer: Session
) -> None:
    visit(page, page_server, run=transformer.id)
    step = transformer.summary.step
    expect_step(page, step)
    for shift in ("false", "true"):
        event = f"{{key: 'F5', code: 'F5', shiftKey: {shift}, bubbles: true, cancelable: true}}"
        is_left_to_the_browser = page.evaluate(f"document.body.dispatchEvent(new KeyboardEvent('keydown', {event}))")
        assert is_left_to_the_browser
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert transformer.summary.step == step

    assert documented_keys("control a run") == listed_keys(page, "Run")


@pytest.mark.long
def test_the_address_process_and_device_of_a_training_are_shown(
    page: Page, page_server: RunningServer, transformer: Session
) -> None:
    visit(page, page_server, run=transformer.id)
    (rank,) = transformer.summary.ranks
    shown = page.get_by_test_id("process")
    expect(shown).to_have_text(f"{rank.address} · process {rank.process_id} · CPU {rank.device}")
    shown.click()
    row = page.get_by_test_id("processes").get_by_role("row").last
    for fact in (rank.address, str(rank.process_id), "Paused"):
        expect(row).to_contain_text(fact)


@pytest.mark.long
def test_a_run_whose_server_was_killed_is_opened_again_under_its_name_with_its_steps(
    open_page: Callable[..., Page], tmp_path: Path
) -> None:
    allowed = (r"404 \(Not Found\)", "ERR_CONNECTION_", "WebSocket connection to")
    page = open_page(allowed=allowed)
    folder = tmp_path / f"a-name-that-is-as-long-as-those-of-jobs-are-{'-'.join('abcdefghijklmnopqrstuvwxyz')}"
    folder.mkdir()
    with running_server(tmp_path / "workspace") as first, training(first, "nan_from_log", folder) as run:
        visit(page, first, run=run)
        page.get_by_role("dialog").get_by_role("button", name=re.compile("^Use these")).click()
        control(page, "Step").click()
        expect_step(page, 1)
        expect(page.get_by_test_id("panel-overview").get_by_text(re.compile("steps 0 – 1$"))).to_be_visible()
        name = f"nan_from_log-{folder.name}"
        first.kill()
        # On other ports, where the training does not find it.
        with running_server(tmp_path / "workspace") as second:
            visit(page, second, run=run)
            gone = page.get_by_test_id("run-gone")
            expect(gone).to_contain_text(name)
            (recorded,) = page.get_by_test_id("dump-row").all()
            expect(recorded).to_contain_text(name)
            gone.get_by_role("button", name="Open it again").click()
            expect(page).to_have_title(f"{name} · Tensight")
            expect_step(page, "0 / 1")
            expect(page.get_by_test_id("overview-map")).to_be_visible()
            visit(page, second)
            row = page.get_by_test_id("session-row")
            expect(row).to_contain_text(name)
            for one in (row, recorded):
                assert box(one)["bottom"] - box(one)["top"] < 3 * ONE_LINE
