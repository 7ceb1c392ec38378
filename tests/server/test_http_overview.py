"""Overview and timeline over HTTP, on a dump that MindSpore really wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.serving import Opened, opened, served

SICK = "sick-2.0.0"


@pytest.fixture(scope="module")
def session(unpacked: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    with served(tmp_path_factory.mktemp("workspace"), unpacked(SICK).parent) as server, server.client() as client:
        yield opened(client, SICK)


def test_the_picture_is_read_until_nothing_is_left(session: Opened, planted: dict[str, Any]) -> None:
    found = session.get("/overview", read=True, rows=1000)
    while found["unread"]:
        found = session.get("/overview", read=True, rows=1000)
    sick = [
        (place, row["address"])
        for row, marks in zip(found["rows"], found["marks"], strict=True)
        for place, mark in enumerate(marks)
        if mark & 3
    ]
    place, address = min(sick, key=lambda cell: cell[0])
    assert found["steps"][place] == {"first": 3, "last": 3}
    assert address == f"0/kernel_graph_0/{planted[SICK]['planted']['inf']['operator']}:0"
    assert {len(values) for values in found["values"]} == {len(found["steps"])}


def test_a_part_is_looked_at_more_closely(session: Opened) -> None:
    whole = session.get("/overview", rows=7, columns=2)
    assert (len(whole["rows"]), len(whole["steps"])) == (7, 2)
    second = whole["rows"][0]["tensors"]
    part = session.get("/overview", offset=second, limit=whole["rows"][1]["tensors"])
    assert part["rows"][0]["address"] == whole["rows"][1]["address"]
    assert (part["total"], part["offset"]) == (whole["total"], second)
    assert all("Log" in row["type"] for row in session.get("/overview", query="log-op")["rows"])


def test_the_steps_are_on_a_line(session: Opened) -> None:
    line = session.get("/timeline")
    assert (line["first_step"], line["last_step"], line["present_step"]) == (0, 4, 0)
    assert [place["first"] for place in line["steps"]] == [0, 1, 2, 3, 4]
    assert len(session.get("/timeline", columns=3)["steps"]) == 3


@pytest.mark.parametrize(
    ("path", "parameters", "status"),
    [
        ("/overview", {"rank": 3}, 404),
        ("/timeline", {"rank": 3}, 404),
        ("/overview", {"statistic": "colour"}, 422),
        ("/overview", {"rows": 0}, 422),
        ("/overview", {"rows": 1001}, 422),
        ("/overview", {"columns": 1001}, 422),
        ("/overview", {"offset": -1}, 422),
        ("/overview", {"limit": 0}, 422),
        ("/timeline", {"columns": 0}, 422),
    ],
)
def test_what_makes_no_sense_is_refused(session: Opened, path: str, parameters: dict[str, Any], status: int) -> None:
    assert session.refused("GET", path, status, params=parameters)
