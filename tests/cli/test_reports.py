"""What `--html` of the comparisons writes: one file that needs nothing else and runs nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Run = Callable[..., Any]
Write = Callable[[Path, str, bool], Path]

HOSTILE = "<script>alert(1)</script>"


def write_losses(folder: Path, name: str, changed: bool) -> Path:
    path = folder / f"{name}.jsonl"
    losses = [2 / step * (1.5 if changed and step > 5 else 1) for step in range(1, 21)]
    path.write_text("".join(json.dumps({"step": at, f"loss {HOSTILE}": loss}) + "\n" for at, loss in enumerate(losses)))
    return path


def write_checkpoint(folder: Path, name: str, changed: bool) -> Path:
    path = folder / f"{name}.npz"
    weight = np.arange(12, dtype=np.float32).reshape(3, 4)
    bias = np.array([1, np.nan if changed else 2], np.float32)
    np.savez(path, allow_pickle=False, **{HOSTILE: weight, "bias": bias, f"only.{name}": weight[:2, 0]})
    return path


def write_setup(folder: Path, name: str, changed: bool) -> Path:
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"format": 1, "environment": {HOSTILE: str(changed)}, "packages": {"torch": "2.13"}}))
    return path


@pytest.mark.parametrize(
    ("what", "write", "named"),
    [
        ("losses", write_losses, "jumps apart at step 5"),
        ("checkpoints", write_checkpoint, "NaN or Inf in one only"),
        ("setups", write_setup, "True"),
    ],
    ids=["losses", "checkpoints", "setups"],
)
def test_a_report_says_what_the_command_says_and_runs_nothing(
    tensight: Run, tmp_path: Path, what: str, write: Write, named: str
) -> None:
    a, b, report = write(tmp_path, "a", False), write(tmp_path, "b", True), tmp_path / "report.html"
    options = ("--column", f"loss {HOSTILE}") if what == "losses" else ()
    ended = tensight("compare", what, a, b, *options, "--html", report)
    assert ended.code == 1, ended.err
    text = report.read_text()
    assert named in text
    assert HOSTILE.replace("<", "&lt;").replace(">", "&gt;") in text
    assert "<script" not in text
    assert not re.search(r"(src|href)=", text)


def test_a_report_that_cannot_be_written_is_an_error(tensight: Run, tmp_path: Path) -> None:
    a = write_checkpoint(tmp_path, "a", False)
    ended = tensight("compare", "checkpoints", a, a, "--html", tmp_path / "nowhere" / "report.html")
    assert ended.code == 2
    assert "the report cannot be written: No such file or directory" in ended.err
