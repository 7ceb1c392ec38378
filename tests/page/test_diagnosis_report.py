"""The report that `tensight diagnose --html` writes, in Chromium."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tensight.cli.diagnosis.page import write_diagnosis_page
from tensight.cli.diagnosis.report import Ending, make_report
from tensight.diagnosis.catalogue import RULES, diagnose
from tensight.diagnosis.facts import Facts
from tensight.sessions.diagnosis import diagnosis_record
from tests.page.browsing import chromium

if TYPE_CHECKING:
    from tensight.cli.diagnosis.report import Report

LONG = "<b>layer</b>." * 200


def report(language: int) -> Report:
    """The report of a training whose rate is 0, and whose loss ends as NaN; names are long."""
    facts = Facts()
    losses = [(step, float("nan") if step > 25 else 1 / step) for step in range(1, 31)]
    for step, loss in losses:
        facts.add("steps", step, [{"name": "step"}])
        facts.add("losses", step, [{"name": "loss", "value": loss}])
        facts.add("groups", step, [{"name": f"{LONG} group 0", "optimizer": LONG, "rate": 0.0}])
        facts.add("rates", step, [{"name": f"{LONG} group 0", "optimizer": LONG, "rate": 0.0, "initial_rate": 0.0}])
    diagnosis = diagnosis_record(diagnose([facts]))
    return make_report(diagnosis, RULES, Ending("", []), [facts], {"loss": losses}, ["train.py"], language)


@pytest.mark.parametrize("language", [0, 1], ids=["en", "zh"])
def test_a_report_is_whole_on_a_small_window_in_the_dark_and_on_paper(tmp_path: Path, language: int) -> None:
    path = tmp_path / "report.html"
    write_diagnosis_page(path, report(language))
    requests: list[str] = []
    messages: list[str] = []
    with chromium() as browser:
        for scheme in ("light", "dark"):
            context = browser.new_context(viewport={"width": 400, "height": 800}, color_scheme=scheme)  # type: ignore[arg-type]
            page = context.new_page()
            page.on("request", lambda request: requests.append(request.url))
            page.on("console", lambda message: messages.append(message.text))
            page.goto(path.as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") <= 400
            background = page.evaluate("getComputedStyle(document.documentElement).colorScheme")
            assert background == "light dark"
            assert page.locator("article svg").count() == 1
            passed = page.locator("details table")
            assert not passed.is_visible()
            page.emulate_media(media="print")
            assert passed.is_visible()
            context.close()
    assert requests == [path.as_uri()] * 2
    assert messages == []
