"""Analyzers of the committed dumps; what they find out is kept in a folder of the test session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tensight.debugger import DumpAnalyzer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session", autouse=True)
def cache_of_the_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TENSIGHT_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def old(dump_200: Path) -> DumpAnalyzer:
    return DumpAnalyzer(dump_200)


@pytest.fixture(scope="session")
def new(dump_210: Path) -> DumpAnalyzer:
    return DumpAnalyzer(dump_210)
