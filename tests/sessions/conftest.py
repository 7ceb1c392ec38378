"""A server without sockets for attached processes."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.sessions.live_stage import Play, play


@pytest.fixture
def on_stage(tmp_path: Path) -> Play:
    return partial(play, folder=tmp_path)
