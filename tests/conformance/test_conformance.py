"""The drop-in API gives the answers that the original gave (recorded under golden/ by run_original.py)."""

from __future__ import annotations

import gzip
import json
from functools import cache, lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from compare import differences
from plan import REAL, plan
from recording import Recorder
from synthetic import build

import tensight.debugger

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent
OURS = SimpleNamespace(**{name: getattr(tensight.debugger, name) for name in tensight.debugger.__all__})
CASES = [(dump, section) for dump, sections in plan().items() for section in sections]


@lru_cache(maxsize=2)
def golden(dump: str) -> dict[str, Any]:
    return json.loads(gzip.decompress((HERE / "golden" / f"{dump}.json.gz").read_bytes()))


@pytest.fixture(scope="session")
def recorders(unpacked: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Recorder]:
    """One recorder per dump; hand-made dumps are built on first use."""

    @cache
    def recorder(name: str) -> Recorder:
        folder = tmp_path_factory.mktemp("conformance")
        dump = unpacked(name) if name in REAL else folder / name
        if name not in REAL:
            build(name, str(unpacked("sick-2.0.0")), str(dump))
        (folder / "scratch").mkdir()
        return Recorder(OURS, str(dump), str(folder / "scratch"))

    return recorder


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("dump", "section"), CASES, ids=[f"{dump}: {section}" for dump, section in CASES])
def test_answers_as_the_original_did(recorders: Callable[[str], Recorder], dump: str, section: str) -> None:
    ours = json.loads(json.dumps(recorders(dump).record(section)))
    found = differences(section, golden(dump)[section], ours, several_graphs=dump == "healthy-2.0.0")
    assert not found, "\n" + "\n".join(found)


def test_every_recorded_dump_and_section_is_compared() -> None:
    recorded = {path.name.removesuffix(".json.gz") for path in (HERE / "golden").glob("*.json.gz")}
    assert recorded == {*plan(), "protocol"}
    assert all(list(golden(dump)) == sections for dump, sections in plan().items())
