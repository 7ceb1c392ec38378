from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tensight.cache import CACHE_VARIABLE
from tensight.cli import main
from tensight.tensors import warm


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def tensight(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., Outcome]:
    """Runs the command as the shell would, with a cache of its own, and returns exit code, stdout and stderr."""
    # The kernels stay where they are: compiling them anew for each test would take longer than the test.
    warm.cache_folder()
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))

    def run(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["tensight", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run
