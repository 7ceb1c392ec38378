"""A folder in which a person follows a page of the documentation."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from walk import SCRIPTS, Walk

Follow = Callable[..., Walk]


@pytest.fixture
def follow(tmp_path: Path) -> Follow:
    """Return what begins a walk through a page, by its path; ``train.py`` is in the folder."""

    def begin(page: str, **settings: str) -> Walk:
        shutil.copy(SCRIPTS / "train.py", tmp_path)
        return Walk(page, tmp_path, **settings)

    return begin
