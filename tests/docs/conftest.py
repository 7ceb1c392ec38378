"""A folder in which a person follows a page of the documentation."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.walk import SCRIPTS, Walk
from tests.processes.forking_interpreter import forking_interpreter

Follow = Callable[..., Walk]
WITHIN_S = 1500
"""A page starts up to twenty processes, one after the other."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give whoever follows a page more time than other tests have."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(WITHIN_S))


@pytest.fixture
def follow(tmp_path: Path) -> Follow:
    """Return what begins a walk through a page, by its path; ``train.py`` is in the folder."""

    def begin(page: str, **settings: str) -> Walk:
        shutil.copy(SCRIPTS / "train.py", tmp_path)
        return Walk(page, tmp_path, python=forking_interpreter().python, **settings)

    return begin
