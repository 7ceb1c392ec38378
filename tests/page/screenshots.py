"""Takes the pictures of the page that the docs show, of a real training and a real dump: run by `make screenshots`.

    python -m tests.page.screenshots [--folder docs/pictures] [--only NAME ...] [--large]

Each picture is taken in English and Chinese, light and dark.
"""

from __future__ import annotations

import argparse
import tarfile
import tempfile
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Browser, Page, expect

import tensight
from tests.page.browsing import LARGE, SMALL, UNLEARNED, chromium, new_page, training, visit
from tests.server.running import RunningServer, running_server

ROOT = Path(__file__).resolve().parents[2]
DUMP = ROOT / "tests" / "fixtures" / "sick-2.10.0.tar.xz"
WITHIN_S = 120.0
LOOKS = tuple(product(("en", "zh"), ("light", "dark")))
LOCALES = {"en": "en-US", "zh": "zh-CN"}


class Picture(NamedTuple):
    """A view to take a picture of.

    Attributes
    ----------
    name : str
        Of the files: ``NAME-LANGUAGE-THEME.png``.
    address : dict
        What the address bar says.
    ready : str
        Test id of what must be there.
    prepare : callable (Page) -> None, optional
        What a person does before they see it.
    """

    name: str
    address: dict[str, str]
    ready: str
    prepare: Callable[[Page], None] | None = None


def press(keys: str) -> Callable[[Page], None]:
    return lambda page: page.keyboard.press(keys)


def click(test_id: str) -> Callable[[Page], None]:
    return lambda page: page.get_by_test_id(test_id).first.click()


def pictures(live: str, before: str, unlearned: str, offline: str, origin: tensight.client.Session) -> list[Picture]:
    """Return what there is to show: of a training that stopped, one that waits, one that does not learn, and a dump."""
    (found, *_) = origin.origins()
    node, address = found.node, found.address.partition("@")[0]
    at = {"run": live, "node": node, "graph": address.split("/")[1]}
    return [
        Picture("runs", {}, "panel-runs"),
        Picture("recommended", {"run": before}, "recommended"),
        Picture("overview", {**at, "tab": "overview"}, "panel-overview"),
        Picture("findings", {"run": unlearned, "tab": "findings"}, "curves-chart"),
        Picture("graph", {**at, "tab": "graph"}, "panel-graph"),
        Picture("tensors", {**at, "tab": "tensors"}, "panel-tensors"),
        Picture("tensor", {**at, "tensor": address, "tab": f"tensor:{address}"}, "panel-tensor"),
        Picture("hits", {**at, "tab": "graph", "left": "hits"}, "panel-hits"),
        Picture("source", {**at, "tab": "graph", "left": "sources"}, "panel-sources"),
        Picture("watchpoint", {**at, "tab": "overview"}, "panel-watchpoints", click("action-watchpoints-new")),
        Picture("palette", {**at, "tab": "overview"}, "panel-overview", press("Control+k")),
        Picture("offline", {"run": offline, "tab": "graph"}, "panel-graph"),
    ]


def take(browser: Browser, server: RunningServer, picture: Picture, folder: Path, size: tuple[int, int]) -> None:
    """Take a picture in all looks."""
    for language, theme in LOOKS:
        options = {"locale": LOCALES[language], "color_scheme": theme}
        with new_page(browser, size=size, **options) as page:
            visit(page, server, **picture.address)
            expect(page.get_by_test_id(picture.ready)).to_be_visible()
            if picture.prepare is not None:
                picture.prepare(page)
            page.wait_for_load_state("networkidle")
            if "tab" in picture.address and picture.address["tab"] == "graph":
                expect(page.locator(".react-flow__node").first).to_be_visible()
            expect(page.locator(".mantine-Skeleton-root:visible")).to_have_count(0)
            page.screenshot(path=folder / f"{picture.name}-{language}-{theme}.png", animations="disabled")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=ROOT / "docs" / "pictures")
    parser.add_argument("--only", nargs="*", help="names of pictures")
    parser.add_argument("--large", action="store_true", help="1920 x 1080 instead of 1280 x 800")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tensight-pictures-") as temporary:
        work = Path(temporary)
        for name in ("one", "two", "three", "dumps"):
            (work / name).mkdir()
        with tarfile.open(DUMP) as archive:
            archive.extractall(work / "dumps" / "sick-2.10.0", filter="data")
        with (
            running_server(work / "workspace", "--summary-base-dir", str(work / "dumps")) as server,
            training(server, "nan_from_log", work / "one") as live,
            training(server, "dying_relu", work / "two") as before,
            training(server, UNLEARNED, work / "three", "--findings", "certain") as unlearned,
            tensight.connect(server.url) as person,
            chromium() as browser,
        ):
            session = person.session(live)
            session.watch_recommended()
            session.continue_()
            session.wait(WITHIN_S)
            person.session(unlearned).watch_recommended(accept=False)
            person.session(unlearned).continue_().wait(WITHIN_S)
            offline = person.open("sick-2.10.0", resume=True)
            offline.watch_recommended()
            offline.continue_()
            offline.wait(WITHIN_S)
            for picture in pictures(live, before, unlearned, offline.id, session):
                if not options.only or picture.name in options.only:
                    take(browser, server, picture, options.folder, LARGE if options.large else SMALL)
                    print(picture.name, flush=True)


if __name__ == "__main__":
    main()
