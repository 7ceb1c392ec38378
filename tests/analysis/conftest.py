from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tensight.analysis import Analysis
from tensight.dumps import open_dump


@pytest.fixture
def analyse(tmp_path: Path) -> Callable[..., Analysis]:
    """Returns an analysis of a dump with a cache of its own."""
    return lambda path, **options: Analysis(open_dump(path), **{"cache_dir": tmp_path / "cache", **options})
