"""Two runs are compared on the page: what differs first, both its values, where the error goes, and what is told."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

import tensight
from tests.compare.two_runs import make_network, record
from tests.page.browsing import LARGE, visit
from tests.page.finding import choose, complaints, documented_keys, listed_keys
from tests.server.running import running_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Locator, Page

    from tests.server.running import RunningServer

pytestmark = pytest.mark.long

NORM = "Default/blocks/1/norm1/LayerNorm-op0"
BEFORE = "Default/blocks/0/act/GELU-op0"
SIDES = ("a", "b", "difference")


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with a recorded training, a port of it with another epsilon, a repetition, and one with other data."""
    folder = tmp_path_factory.mktemp("compared")
    record(folder / "runs" / "reference", make_network())
    record(folder / "runs" / "port", make_network(eps=1e-3))
    record(folder / "runs" / "repeated", make_network())
    record(folder / "runs" / "other-data", make_network(), data_seed=9)
    options = ("--summary-base-dir", str(folder / "runs"), "--max-offline-debugger-session-num", "5")
    with running_server(folder / "workspace", *options) as server:
        yield server


@pytest.fixture(scope="module")
def reference(two_runs: RunningServer) -> str:
    """Id of the session in which the reference is open."""
    with tensight.connect(two_runs.url) as server:
        session = server.open("reference", resume=True)
        session.watch_recommended(accept=False)
        return session.id


@pytest.fixture
def compared(page: Page, two_runs: RunningServer, reference: str) -> Page:
    """The reference, compared with the port, by a link."""
    visit(page, two_runs, run=reference, tab="compare", **{"with": "port"})
    expect(page.get_by_test_id("compare-banner")).to_be_visible()
    return page


def test_the_other_run_is_chosen_with_the_keyboard_and_the_first_divergence_is_named(
    page: Page, two_runs: RunningServer, reference: str
) -> None:
    visit(page, two_runs, run=reference)
    page.get_by_role("tab", name="Compare").click()
    expect(page.get_by_test_id("compare-empty")).to_contain_text("Compare this run with another one")
    page.keyboard.press("Alt+b")
    chooser = page.get_by_role("dialog", name="Compare reference with…")
    expect(chooser.get_by_test_id("compare-choice")).to_have_count(3)
    page.keyboard.type("port torch")
    expect(chooser.get_by_test_id("compare-choice")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(chooser).to_be_hidden()

    banner = page.get_by_test_id("compare-banner")
    expect(banner).to_have_attribute("data-verdict", "different")
    expect(banner.get_by_test_id("compare-sentence")).to_have_text(
        re.compile(rf"^Step 1, forward: the first divergence is\s+{NORM}$")
    )
    expect(banner.get_by_test_id("origin-line")).to_contain_text("two_runs.py:")
    expect(banner.get_by_test_id("compare-first")).to_contain_text(
        re.compile(
            r"its inputs agree, its output does not: relative difference \d\.\de-\d, rounding explains \d\.\de-\d"
        )
    )
    expect(banner.get_by_test_id("compare-proof")).to_contain_text("1 of 1 input agrees")
    expect(banner.get_by_test_id("compare-proof")).to_contain_text(re.compile(r"(\d+) of \1 weights agree"))
    # It is selected, everywhere, and a link leads others to it.
    expect(page.get_by_test_id("panel-inspector").get_by_role("heading", level=2)).to_have_text("LayerNorm-op0")
    expect(page).to_have_url(re.compile("with=port"))
    expect(page).to_have_url(re.compile(f"node={NORM}"))
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_table_opens_at_the_first_divergence_and_is_filtered_and_sorted(compared: Page) -> None:
    first = compared.locator("[data-testid=compared-row][data-first]")
    expect(first).to_be_in_viewport()
    expect(first).to_have_attribute("data-node", NORM)
    expect(first.get_by_role("img", name="The first divergence")).to_be_visible()
    row = compared.locator(f"[data-testid=compared-row][data-node='{BEFORE}']")
    expect(row.get_by_role("gridcell").nth(4)).to_have_text("=")

    total = compared.get_by_test_id("compare-total")
    everything = total.inner_text()
    choose(compared, "Which operators", "Divergent")
    expect(total).not_to_have_text(everything)
    expect(compared.locator("[data-testid=compared-row]:not([data-divergent])")).to_have_count(0)
    expect(first).to_have_count(1)
    compared.get_by_label("Filter operators").fill("no such operator")
    compared.get_by_role("button", name="Clear the filter").click()
    expect(total).to_have_text(everything)
    compared.get_by_role("button", name="Sort by Added error").click()
    expect(compared.get_by_role("columnheader", name="Added error")).to_have_attribute("aria-sort", "descending")
    compared.get_by_role("button", name="Sort by #").click()

    # With the keyboard: the row above the first divergence is selected everywhere.
    expect(first).to_be_in_viewport()
    compared.get_by_test_id("compare-table").press("ArrowUp")
    expect(compared.get_by_test_id("panel-inspector").get_by_role("heading", level=2)).to_have_text("Block-op2")


def chosen_element(side: Locator) -> float:
    """Return the element of one side that is marked in all three."""
    cell = side.get_by_role("gridcell", selected=True)
    expect(cell).to_have_text(re.compile(r"\d"))
    return float(cell.inner_text())


def test_both_values_stand_beside_their_difference(compared: Page) -> None:
    compared.keyboard.press("Alt+v")
    values = compared.get_by_test_id("compare-values")
    expect(values).to_have_attribute("data-node", NORM)
    for side in SIDES:
        expect(values.get_by_test_id(f"compare-side-{side}").get_by_test_id("heat-map")).to_be_visible()
        expect(values.get_by_test_id(f"compare-side-{side}").get_by_test_id("element-bar")).to_contain_text("] =")
    # One box for each dimension serves all three; they open where the runs are farthest apart.
    assert values.get_by_role("textbox", name=re.compile("^Dimension")).count() == 3
    choose(compared, "Show as", "Table")
    a, b, difference = (chosen_element(values.get_by_test_id(f"compare-side-{side}")) for side in SIDES)
    assert difference != 0
    assert b - a == pytest.approx(difference, abs=1e-5)
    largest = values.get_by_test_id("compare-statistics-difference").get_by_role("cell")
    bounds = [abs(float(largest.nth(column).inner_text())) for column in (0, 1)]
    assert max(bounds) == pytest.approx(abs(difference), rel=1e-2)
    expect(values.get_by_test_id("compare-measures")).to_contain_text("relative")

    compared.get_by_role("combobox", name="Tensor").click()
    compared.get_by_role("option", name=re.compile("^input 0")).click()
    expect(values.get_by_test_id("compare-measures")).to_have_text("bit-equal")
    # Another operator that is selected anywhere is compared; what has no counterpart says so.
    compared.get_by_test_id("node-tree").locator("[data-path=parameters], [data-path='@parameters']").first.click()
    expect(values).to_have_attribute("data-node", NORM)


def test_tree_and_graph_are_coloured_by_added_error_until_a_person_wants_no_colours(compared: Page) -> None:
    tree = compared.get_by_test_id("node-tree")
    mark = tree.locator(f"[data-path='{NORM}']").get_by_test_id("added-mark")
    expect(mark).to_have_attribute("data-divergent", "1")
    expect(mark).to_have_attribute("title", re.compile(r"^Added error \d\.\de-\d, 1 divergence$"))
    expect(compared.get_by_test_id("added-legend")).to_contain_text("Added error, step 1")
    colour = "element => getComputedStyle(element).backgroundColor"
    before = tree.locator("[data-path='Default/blocks/0']").get_by_test_id("added-mark")
    assert mark.evaluate(colour) != before.evaluate(colour)

    compared.keyboard.press("Alt+g")
    box = compared.locator(f"[data-testid=graph-node][data-path='{NORM}']")
    expect(box).to_have_attribute("data-divergent", "1")
    coloured = box.evaluate(colour)
    assert coloured == mark.evaluate(colour)
    compared.keyboard.press("Alt+k")
    expect(mark).to_have_count(0)
    expect(compared.get_by_test_id("added-legend")).to_have_count(0)
    expect(box).not_to_have_attribute("data-divergent", "1")
    assert box.evaluate(colour) != coloured
    compared.keyboard.press("Alt+Shift+B")
    expect(compared.get_by_test_id("compare-banner")).to_be_visible()


def test_losses_lie_over_each_other_and_what_matched_nothing_is_listed(compared: Page) -> None:
    compared.get_by_test_id("compare-parts").get_by_text("Loss", exact=True).click()
    expect(compared.get_by_test_id("compare-loss")).to_have_text(["A reference", "B port"])
    expect(compared.get_by_test_id("curves-chart")).to_be_visible()
    expect(compared.get_by_test_id("compare-loss-sentence")).to_contain_text("3 steps")
    compared.get_by_test_id("compare-parts").get_by_text("Unmatched (0)", exact=True).click()
    expect(compared.get_by_text("Everything has a counterpart.")).to_have_count(2)
    expect(compared).to_have_url(re.compile("part=unmatched"))


@pytest.mark.parametrize(
    ("other", "verdict", "words"),
    [
        ("repeated", "same", "The runs are the same: all tensors of 3 steps that both recorded are bit-equal."),
        ("other-data", "not comparable", "they read other data in step 1"),
    ],
)
def test_runs_that_are_the_same_or_not_comparable_are_said_to_be(
    page: Page, two_runs: RunningServer, reference: str, other: str, verdict: str, words: str
) -> None:
    visit(page, two_runs, run=reference, tab="compare", **{"with": other})
    banner = page.get_by_test_id("compare-banner")
    expect(banner).to_have_attribute("data-verdict", verdict)
    expect(banner.get_by_test_id("compare-sentence")).to_contain_text(words)
    expect(page.get_by_test_id("action-compare-node")).to_have_attribute("aria-disabled", "true")
    if verdict == "not comparable":
        # What they were given comes first: no operator was compared.
        expect(page.get_by_test_id("compared-tensor")).to_have_count(1)
        page.get_by_test_id("compare-parts").get_by_text("Operators", exact=True).click()
        expect(page.get_by_test_id("compare-no-operators")).to_be_visible()
    else:
        expect(page.get_by_test_id("compared-row").first).to_be_visible()
        expect(page.get_by_test_id("compare-proof")).to_contain_text("3 steps compared")


def test_a_run_that_is_not_there_is_told_in_words(
    open_page: Callable[..., Page], two_runs: RunningServer, reference: str
) -> None:
    page = open_page(allowed=(r"404 \(Not Found\)",))
    visit(page, two_runs, run=reference, tab="compare", **{"with": "no such run"})
    failed = page.get_by_test_id("compare-failed")
    expect(failed).to_contain_text("These runs could not be compared")
    expect(failed).to_contain_text("no such run")
    failed.get_by_role("button", name="Choose another run").click()
    page.get_by_test_id("compare-choice").filter(has_text="repeated").click()
    expect(page.get_by_test_id("compare-banner")).to_have_attribute("data-verdict", "same")


def test_a_run_in_the_list_is_compared_in_chinese_and_dark_and_swapped(
    open_page: Callable[..., Page], two_runs: RunningServer, reference: str
) -> None:
    page = open_page(locale="zh-CN", color_scheme="dark", size=LARGE)
    visit(page, two_runs)
    page.locator(f"[data-testid=session-row][data-id='{reference}']").get_by_test_id("compare-run").click()
    page.get_by_test_id("compare-choice").filter(has_text="port").click()
    banner = page.get_by_test_id("compare-banner")
    expect(banner.get_by_test_id("compare-sentence")).to_contain_text("第一个产生差异的算子是")
    assert not re.search(r"[A-Za-z]{4,}", banner.get_by_test_id("compare-proof").inner_text())
    page.get_by_role("button", name="交换 A 与 B").click()
    expect(page).to_have_title("port · Tensight")
    expect(page).to_have_url(re.compile("with=reference"))
    expect(banner.get_by_test_id("compare-sentence")).to_contain_text(NORM)
    page.get_by_role("button", name="结束对比").click()
    expect(page.get_by_test_id("compare-empty")).to_be_visible()


def test_the_keys_of_a_comparison_are_documented(compared: Page) -> None:
    # What some of them do is said with what there is: the number of a step, whether colours are on.
    documented, listed = documented_keys("compare two runs"), listed_keys(compared, "Compare")
    assert sorted(documented.values()) == sorted(listed.values())


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_a_comparison(
    open_page: Callable[..., Page], two_runs: RunningServer, reference: str, theme: str
) -> None:
    page = open_page(color_scheme=theme)
    found = []
    for part, ready in (
        ("operators", "compared-row"),
        ("values", "element-bar"),
        ("unmatched", "unmatched-title-a"),
        ("losses", "curves-chart"),
    ):
        visit(page, two_runs, run=reference, tab="compare", part=part, **{"with": "port"})
        expect(page.get_by_test_id(ready).first).to_be_visible()
        found += complaints(page, part)
    page.get_by_role("tab", name="Graph").click()
    expect(page.locator("[data-testid=graph-node][data-divergent]").first).to_be_visible()
    found += complaints(page, "graph")
    page.keyboard.press("Alt+b")
    expect(page.get_by_test_id("compare-choice")).not_to_have_count(0)
    found += complaints(page, "chooser")
    assert found == [], "\n".join(found)
