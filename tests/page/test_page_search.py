"""A search on the page: charts, the table of trials, what fell ill, and the recorded run of a trial."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.page.browsing import LARGE, SMALL, visit
from tests.page.finding import complaints
from tests.search.recorded_search import NAME, make_search
from tests.server.running import running_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page

    from tests.server.running import RunningServer

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server below whose folder a search has ended."""
    folder = tmp_path_factory.mktemp("searched")
    make_search(folder / "base")
    with running_server(folder / "workspace", "--summary-base-dir", str(folder / "base")) as server:
        yield server


@pytest.mark.sampled(4)
@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_search_is_shown_with_its_trials(
    page: Page, searched: RunningServer, size: tuple[int, int], scheme: str
) -> None:
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    visit(page, searched)
    page.locator(f"[data-testid=search-row][data-name='{NAME}']").get_by_role("button").click()

    expect(page.get_by_test_id("trial")).to_have_count(10)
    expect(page.get_by_test_id("search-parallel").locator("canvas")).to_be_visible()
    expect(page.get_by_test_id("search-best")).to_contain_text("lr:")
    assert not complaints(page, f"search {size} {scheme}")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.get_by_text("History", exact=True).click()
    expect(page.get_by_test_id("search-history").locator("canvas")).to_be_visible()


def test_a_cause_chooses_its_trials_and_one_of_them_opens_its_recorded_run(page: Page, searched: RunningServer) -> None:
    visit(page, searched, search=NAME)
    page.locator("[data-testid=search-cause][data-warning=false]").first.click()
    expect(page.get_by_test_id("trial")).to_have_count(2)
    expect(page.locator("[data-testid=trial][data-state=pruned]")).to_have_count(2)

    page.get_by_test_id("trial").first.click()

    expect(page.get_by_test_id("panel-inspector")).to_be_visible()
