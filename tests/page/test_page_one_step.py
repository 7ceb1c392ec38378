"""One event, read wherever it can be read: everything names the same step."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest
from playwright.sync_api import expect
from typer.testing import CliRunner

import tensight
from tensight.cli.app import app
from tests.page.browsing import training, visit
from tests.page.finding import expect_step
from tests.server.running import running_server

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from playwright.sync_api import Page

    from tensight.client import Session

pytestmark = pytest.mark.long

STEP = 52
"""In which `nan_from_log` takes the logarithm of 0, as the script itself counts and prints its steps."""
OPERATOR = "Default/log-op0"
WITHIN_S = 120.0


def said_in(texts: Iterable[str], pattern: str) -> set[int]:
    """Return the steps that texts name; each names one."""
    found = [re.search(pattern, text) for text in texts]
    assert None not in found, (pattern, list(texts))
    return {int(match[1]) for match in found if match is not None}


def steps_of_a_session(session: Session, folder: Path) -> dict[str, set[int]]:
    """Return which step a session names for the event, by who says it."""
    (node,) = [node for node in session.hits() if node.node == OPERATOR]
    (origin,) = [origin for origin in session.origins() if origin.anomaly == "inf"]
    address = node.tensors[0].address
    tensor = session.tensor(address)
    folder.mkdir()
    return {
        "session": {session.summary.step},
        "hit": {node.step},
        "address": said_in([address, origin.address], r"@(\d+)$"),
        "origin": {origin.step},
        "sentence": said_in([origin.sentence], r"at step (\d+) in"),
        "client": said_in([repr(tensor), repr(session.tensor(OPERATOR))], r"@(\d+)>$"),
        "record": {tensor.record.step} | {row.step for row in session.statistics(OPERATOR, step=STEP)},
        "history": {max(row.step for row in tensor.history())},
        "saved file": said_in([tensor.save(folder).name], r"step(\d+)\.npy$"),
    }


def numbers_of_the_operator(session: Session, page: Page) -> set[int | None]:
    """Return which numbers the operator has in the order of execution of its step, wherever it has one."""
    (hits,) = [node for node in session.hits() if node.node == OPERATOR]
    rows = [row.position for row in session.statistics(OPERATOR, step=STEP) if row.node == OPERATOR]
    expect(page.get_by_test_id("panel-inspector")).to_contain_text(f"operator {hits.position}")
    expect(page.get_by_test_id("hit-row").filter(has_text=f"#{hits.position}").first).to_be_visible()
    return {hits.position, session.node(OPERATOR).position, *rows}


def steps_of_http(url: str, session: Session) -> dict[str, set[int]]:
    """Return which step the HTTP API names for the event."""
    with httpx.Client(base_url=f"{url}/api/v1/sessions/{session.id}") as http:
        hits = http.get("/hits").json()
        address = next(node for node in hits["nodes"] if node["node"] == OPERATOR)["tensors"][0]["address"]
        records = http.get("/tensors", params={"node": OPERATOR, "graph": address.split("/")[1], "step": STEP}).json()
        file = http.get("/tensor/file", params={"address": address})
    assert np.isneginf(np.frombuffer(file.content[-192 * 4 :], np.float32)).sum() == 1
    return {
        "http": {hits["step"], *(record["step"] for record in records if record["io"] == "output")},
        "download": said_in([file.headers["Content-Disposition"]], r"step-(\d+)\.npy"),
    }


def expect_on_page(page: Page, step: str) -> None:
    """Expect that the page names the step wherever it names one."""
    expect_step(page, step)
    expect(page.get_by_test_id("hits-total")).to_contain_text(f"at step {STEP},")
    expect(page.get_by_test_id("origin-sentence")).to_contain_text(f"step {STEP}")
    page.get_by_test_id("origin-banner").get_by_role("button", name="Open the tensor").click()
    expect(page.get_by_test_id("tensor-step")).to_have_text(f"step {STEP}")
    expect(page.get_by_test_id("panel-inspector")).to_contain_text(f"{OPERATOR}:0@{STEP}")


def printed(*arguments: Any) -> str:
    outcome = CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "200"})
    assert outcome.exit_code in (0, 1), outcome.output
    return outcome.stdout


def steps_of_commands(dump: Path, cache: Path) -> dict[str, set[int]]:
    """Return which step the commands on a dump name for the event."""
    where = ("--cache-dir", cache)
    check = json.loads(printed("check", dump, "--watch", "TO", "--json", *where))
    (hit,) = [hit for hit in check["watchpoints"][0]["hits"] if hit["node"] == OPERATOR]
    (origin,) = [
        one for one in json.loads(printed("origin", dump, "--json", *where))["origins"] if one["node"] == OPERATOR
    ]
    infinite = "select node, step, iteration from tensors where io = 'output' and neg_inf_count > 0"
    rows = json.loads(printed("stats", dump, "--json", "--sql", infinite, *where))
    (row,) = [row for row in rows if row["node"] == OPERATOR]
    assert row["iteration"] == row["step"] - 1
    only = json.loads(printed("check", dump, "--watch", "TO", "--json", "--steps", STEP, *where))
    assert hit in only["watchpoints"][0]["hits"]
    return {
        "check": {hit["step"], *said_in([hit["address"]], r"@(\d+)$")},
        "table of check": said_in(
            [printed("check", dump, "--watch", "TO", "--on", OPERATOR, *where)], rf"(?<!\S)(\d+) +(?:\S+ +)?{OPERATOR}"
        ),
        "origin": {origin["step"], *said_in([origin["address"]], r"@(\d+)$")},
        "sentence of origin": said_in([printed("origin", dump, *where)], rf"Inf began at step (\d+) in {OPERATOR}"),
        "stats": {row["step"]},
        # What was copied there is typed here.
        "show": said_in([printed("show", dump, hit["address"])], rf"{OPERATOR}:0@(\d+)"),
    }


def test_one_event_has_one_step_wherever_it_is_read(page: Page, tmp_path: Path) -> None:
    options = ("--summary-base-dir", str(tmp_path))
    said: dict[str, set[int]] = {}
    with (
        running_server(tmp_path / "workspace", *options) as server,
        tensight.connect(server.url) as person,
    ):
        with training(server, "nan_from_log", tmp_path) as run:
            session = person.session(run)
            session.watch("tensor_overflow")
            session.continue_().wait(WITHIN_S)
            visit(page, server, run=run, left="hits")
            expect_on_page(page, str(STEP))
            said |= steps_of_a_session(session, tmp_path / "live") | steps_of_http(server.url, session)
            numbers = numbers_of_the_operator(session, page)
            session.delete_watchpoints()
            session.step().wait(WITHIN_S)
            assert (session.summary.step, session.summary.node) == (STEP, "")
            said["script"] = said_in([(tmp_path / "training.txt").read_text().splitlines()[-1]], r"^step (\d+) ")
            session.terminate()
        dump = person.open("steps", resume=True)
        dump.watch("tensor_overflow")
        dump.continue_().wait(WITHIN_S)
        visit(page, server, run=dump.id, left="hits")
        expect_on_page(page, f"{STEP} / {STEP}")
        numbers |= numbers_of_the_operator(dump, page)
        for who, steps in {**steps_of_a_session(dump, tmp_path / "dumped"), **steps_of_http(server.url, dump)}.items():
            said[f"{who} of the dump"] = steps
        # The server ends before the page does.
        page.goto("about:blank")
    said |= steps_of_commands(tmp_path / "steps", tmp_path / "cache")
    assert {who: steps for who, steps in said.items() if steps != {STEP}} == {}
    assert len(numbers) == 1
    assert None not in numbers
