"""A person looks at dumps that MindSpore wrote: what there is to see is what is in the files, of each rank."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page, expect

import tensight
from tensight.client import Server, Session
from tests.page.browsing import visit
from tests.page.finding import answer_with_yes, cells, choose, control, expect_step
from tests.server.running import RunningServer, running_server

RANKS = "two-ranks"
GRAPHS = "healthy-2.10.0"
LAST = 4
WITHIN_S = 60.0


@pytest.fixture(scope="module")
def offline_server(
    unpacked: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """A server that lists a dump with several graphs, and one with two ranks of which the second has no infinity."""
    folder = tmp_path_factory.mktemp("offline")
    dumps = folder / "dumps"
    shutil.copytree(unpacked(GRAPHS), dumps / GRAPHS)
    for rank in ("rank_0", "rank_1"):
        shutil.copytree(unpacked("sick-2.10.0") / "rank_0", dumps / RANKS / rank)
    for file in (dumps / RANKS / "rank_1" / "Sick").rglob("Log.*.output.0.*.npy"):
        np.save(file, np.zeros_like(np.load(file)))
    with running_server(folder / "workspace", "--summary-base-dir", str(dumps)) as server:
        yield server


@pytest.fixture(scope="module")
def person(offline_server: RunningServer) -> Iterator[Server]:
    """Asks the server what the page should show."""
    with tensight.connect(offline_server.url) as server:
        yield server


@pytest.fixture
def opened(person: Server) -> Iterator[Callable[[str], Session]]:
    """Opens a dump, without watchpoints of earlier tests, and closes it afterwards."""
    sessions = []

    def open_(name: str) -> Session:
        session = person.open(name, resume=True)
        session.delete_watchpoints()
        session.close()
        sessions.append(person.open(name, resume=True))
        return sessions[-1]

    yield open_
    for session in sessions:
        session.close()


@pytest.fixture
def sick(opened: Callable[[str], Session]) -> Session:
    """The dump with two ranks, where NaN or infinities appear first."""
    session = opened(RANKS)
    session.watch("tensor_overflow")
    session.continue_()
    session.wait(WITHIN_S)
    return session


def sick_operator(planted: dict[str, Any], name: str) -> dict[str, Any]:
    return planted["sick-2.10.0"]["planted"][name]


@pytest.mark.long
def test_a_dump_is_opened_from_the_list_and_checked_until_something_hits(
    page: Page, offline_server: RunningServer, planted: dict[str, Any]
) -> None:
    log = sick_operator(planted, "inf")
    visit(page, offline_server)
    page.locator(f'[data-testid="dump-row"][data-name="{RANKS}"]').get_by_role("button", name="Open").click()
    expect(page).to_have_title(f"{RANKS} · Tensight")
    answer_with_yes(page)
    page.get_by_role("tab", name="Hits").click()
    for step in range(log["first_iteration"] + 2):
        control(page, "Continue").click()
        expect(page.get_by_test_id("hits-total")).to_have_text(re.compile(rf"at step {step},"))
    expect_step(page, f"{log['first_iteration'] + 1} / {LAST}")
    expect(page.get_by_test_id("origin-sentence")).to_contain_text(log["operator"])
    expect(page.get_by_test_id("origin-line")).to_have_attribute("data-line", str(log["line"]))
    expect(page.locator(f'[data-testid="hit-row"][data-node="{log["operator"]}"]')).not_to_have_count(0)


@pytest.mark.long
def test_a_checked_step_has_its_hits_again_and_the_banner_stays(
    page: Page, offline_server: RunningServer, sick: Session, planted: dict[str, Any]
) -> None:
    operator = sick_operator(planted, "inf")["operator"]
    step = sick_operator(planted, "inf")["first_iteration"] + 1
    visit(page, offline_server, run=sick.id, left="hits")
    sentence, hits = page.get_by_test_id("origin-sentence"), page.get_by_test_id("panel-hits")
    expect(hits.get_by_test_id("hits-total")).to_contain_text(f"at step {step},")

    sick.go_to(LAST)
    expect(hits).to_contain_text(f"Step {LAST} is not checked")
    expect(hits).not_to_contain_text("No hits")
    expect(sentence).to_contain_text(operator)
    page.get_by_role("button", name=f"Go to step {step}").click()
    expect_step(page, f"{step} / {LAST}")
    expect(hits.get_by_test_id("hits-total")).to_contain_text(f"at step {step},")
    expect(sentence).to_contain_text(operator)
    control(page, "Step back").click()
    expect(hits).to_contain_text(f"No hits at step {step - 1}")
    expect(sentence).to_contain_text(operator)


@pytest.mark.long
def test_what_only_a_training_can_do_is_not_offered(page: Page, offline_server: RunningServer, sick: Session) -> None:
    visit(page, offline_server, run=sick.id)
    expect(control(page, "Pause")).to_be_disabled()
    for name in ("Continue", "Step", "Step back", "Next node", "Go to step…", "Recheck this step", "Close the dump"):
        expect(control(page, name)).to_be_enabled()
    expect(control(page, "Terminate")).to_have_count(0)
    control(page, "Close the dump").click()
    page.get_by_role("dialog", name="Close this dump?").get_by_role("button", name="Keep it open").click()
    expect(page.get_by_test_id("origin-banner")).to_be_visible()


@pytest.mark.long
def test_hits_and_tensors_are_of_the_rank_that_is_chosen(
    page: Page, offline_server: RunningServer, sick: Session, planted: dict[str, Any]
) -> None:
    operator = sick_operator(planted, "inf")["operator"]
    visit(page, offline_server, run=sick.id, left="hits")
    hits = page.get_by_test_id("panel-hits")
    both = hits.locator(f'[data-testid="hit-row"][data-node="{operator}"]')
    expect(both).to_have_attribute("data-rank", "0")
    hits.get_by_role("combobox", name="Rank").click()
    page.get_by_role("option", name="rank 1").click()
    expect(both).to_have_count(0)
    expect(hits.locator('[data-testid="hit-row"][data-rank="1"]')).not_to_have_count(0)
    expect(hits.locator('[data-testid="hit-row"][data-rank="0"]')).to_have_count(0)

    page.get_by_test_id("origin-node").first.click()
    inspector = page.get_by_test_id("panel-inspector")
    output = inspector.locator('[data-testid="tensor-row"][data-slot="output.0"]')
    expect(output).to_contain_text("-Inf")
    page.get_by_test_id("panel-header").get_by_role("combobox", name="Rank").click()
    page.get_by_role("option", name=re.compile("^Rank 1")).click()
    expect(inspector.get_by_role("heading", level=2)).to_have_text("Log-op0")
    expect(output).not_to_contain_text("-Inf")


@pytest.mark.long
def test_another_step_is_gone_to_with_its_number_and_with_the_timeline(
    page: Page, offline_server: RunningServer, sick: Session
) -> None:
    visit(page, offline_server, run=sick.id)
    expect_step(page, f"3 / {LAST}")
    control(page, "Go to step…").click()
    field = page.get_by_role("textbox", name="Go to step")
    field.fill("7")
    expect(page.get_by_text(f"from 0 to {LAST}")).to_be_visible()
    field.fill("1")
    field.press("Enter")
    expect_step(page, f"1 / {LAST}")

    timeline = page.get_by_test_id("timeline-line")
    timeline.focus()
    page.keyboard.press("End")
    expect(timeline).to_have_attribute("aria-valuenow", str(LAST))
    page.keyboard.press("Enter")
    expect_step(page, f"{LAST} / {LAST}")
    expect(control(page, "Continue")).to_be_disabled()


@pytest.mark.long
def test_a_tensor_has_the_values_of_its_file_at_each_step(
    page: Page, offline_server: RunningServer, sick: Session
) -> None:
    (weight,) = (each for each in sick.nodes(kind="weight") if each.rank == 0 and each.entry.path.endswith("fc2.bias"))
    tensor = f"0/{weight.graph}/{weight.entry.path}:0"
    visit(page, offline_server, run=sick.id, tensor=tensor)
    choose(page, "Presentation", "Table")
    for step in (1, 2):
        control(page, "Go to step…").click()
        page.get_by_role("textbox", name="Go to step").fill(str(step))
        page.get_by_role("button", name="Go", exact=True).click()
        expect(page.get_by_test_id("tensor-step")).to_have_text(f"step {step}")
        values = sick.tensor(f"{tensor}@{step}").numpy().ravel()
        assert cells(page, values.size) == pytest.approx(values.tolist(), rel=1e-5)


@pytest.mark.long
def test_the_timeline_tells_which_graph_ran_at_each_step(
    page: Page, offline_server: RunningServer, opened: Callable[[str], Session]
) -> None:
    session = opened(GRAPHS)
    ran = {execution.step: execution.graph for execution in reversed(session.executions())}
    assert len(set(ran.values())) > 1
    visit(page, offline_server, run=session.id)
    page.get_by_test_id("recommended").get_by_role("button", name="Decide later").click()
    timeline = page.get_by_test_id("timeline-line")
    timeline.focus()
    for step, graph in sorted(ran.items()):
        page.keyboard.press("ArrowRight")
        expect(timeline).to_have_attribute("aria-valuenow", str(step))
        expect(page.get_by_test_id("timeline-words")).to_contain_text(f"graph {graph}")
