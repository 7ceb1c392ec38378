"""Every operation called as its description allows, and as it forbids, against a dump that is really open."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import Case, GenerationMode
from schemathesis.core import NOT_SET
from schemathesis.core.parameters import ParameterLocation
from schemathesis.specs.openapi.checks import negative_data_rejection

from tensight.server.http import create_http_app
from tensight.server.http_settings import HttpSettings
from tests.server.serving import Opened, opened, served

pytestmark = pytest.mark.long
SICK = "sick-2.0.0"

# Most texts that a parameter may be name nothing, so what is allowed is often not found or makes no sense.
CONFIG = {"checks": {"positive_data_acceptance": {"enabled": False}}}

description = create_http_app(None, settings=HttpSettings()).openapi()  # type: ignore[arg-type] # only described
schema = schemathesis.openapi.from_dict(description, config=schemathesis.Config.from_dict(CONFIG))


@pytest.fixture(scope="module")
def session(unpacked: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    """The dump at a step with hits, with a watchpoint."""
    workspace = tmp_path_factory.mktemp("workspace")
    with served(workspace, unpacked(SICK).parent, max_offline=1) as server, server.client() as client:
        session = opened(client, SICK)
        session.post("/watchpoints", {"condition": "tensor_overflow"})
        session.command("continue")
        yield session


@pytest.fixture(scope="module")
def known(session: Opened) -> dict[str, list[Any]]:
    """What really exists, by the name of the parameter that can name it."""
    rows = session.get("/statistics", limit=1000)["rows"]
    nodes = sorted({row["node"] for row in rows})
    addresses = [row["address"] for row in rows]
    return {
        "a": addresses,
        "b": ["", *addresses],
        "address": addresses + [address.rpartition("@")[0] for address in addresses],
        "name": nodes,
        "node": nodes,
        "focus": nodes,
        "scope": ["", "Default", "@parameters", "@constants", *(node.rpartition("/")[0] for node in nodes)],
        "graph": ["", "kernel_graph_0"],
        "rank": [0],
        "slice": ["", "[:]", "[0]", "[]", "[:, :]", "[0, ::2]", "[-1, 0, :, 1:2]"],
        "type": ["", "log", "MatMul"],
        "stack": ["", "sick_network.py:3"],
        "query": ["", "op1"],
        "sort": ["position", "max", "nan_count", "node"],
        "step": [0, 1, 2, 3, 4],
        "number": [1],
        "watchpoint": [1],
        "file": [file["file"] for file in session.get("/sources")["files"]],
        "wait_s": [0, 0.01],
        "dump": [SICK],
    }


@pytest.fixture(scope="module")
def connection() -> Iterator[requests.Session]:
    with requests.Session() as connection:
        yield connection


def compared(session: Opened) -> str:
    """Compare the dump with itself, unless that is done, and return the number of the comparison."""
    record = session.client.post("/comparisons", json={"a": SICK, "b": SICK}).json()
    after = 0
    while record["state"] != "done":
        assert record["state"] in ("waiting", "running"), record
        after = session.client.get("/events", params={"after": after, "wait_s": 5}).json()["last"]
        record = session.client.get(f"/comparisons/{record['id']}").json()
    return str(record["id"])


def name_what_exists(case: Case, known: dict[str, list[Any]], ids: dict[str, str]) -> None:
    """Put names of what exists in the place of most made-up ones, where the case is meant to be allowed."""
    chance = random.Random(repr((case.path_parameters, case.query, case.body)))  # noqa: S311 - repeats what was drawn
    for location, values in ((ParameterLocation.PATH, case.path_parameters), (ParameterLocation.QUERY, case.query)):
        if not is_allowed(case, location) or not values:
            continue
        for name in values:
            if name in known and (name == "wait_s" or chance.random() < 0.8):
                values[name] = chance.choice(known[name])
        for name in ids:
            if name in values and chance.random() < 0.95:
                values[name] = ids[name]


def is_allowed(case: Case, location: ParameterLocation) -> bool:
    component = case.meta.components.get(location) if case.meta is not None else None
    return component is not None and component.mode is GenerationMode.POSITIVE


@schema.parametrize()
@settings(
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
def test_every_answer_is_as_described(
    case: Case, session: Opened, known: dict[str, list[Any]], connection: requests.Session
) -> None:
    current = opened(session.client, SICK)  # an earlier call may have closed it
    ids = {"session_id": current.path.rpartition("/")[2]}
    if "{comparison_id}" in case.path:
        ids["comparison_id"] = compared(session)
    name_what_exists(case, known, ids)
    # In bodies truth values count as numbers, and numbers may be texts.
    lenient = [] if is_allowed(case, ParameterLocation.BODY) else [negative_data_rejection]
    case.call_and_validate(
        base_url=str(session.client.base_url).removesuffix("/api/v1/"),
        session=connection,
        excluded_checks=lenient if case.body is not NOT_SET else [],
        timeout=30,
    )
