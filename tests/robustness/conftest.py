from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.robustness import whole_dump


@pytest.fixture(scope="session")
def whole(unpacked: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dump with every kind of file. The folder is shared: do not change it."""
    return whole_dump.make(unpacked("sick-2.0.0"), Path(tempfile.mkdtemp(dir=tmp_path_factory.getbasetemp())) / "whole")


@pytest.fixture
def damaged(whole: Path, tmp_path: Path) -> Path:
    """A copy of it that the test may damage."""
    return Path(shutil.copytree(whole, tmp_path / "dump"))
