"""What is derived from the code and committed is what the code says."""

from __future__ import annotations

from pathlib import Path

import build_derived
import pytest


@pytest.mark.parametrize(("path", "text"), build_derived.files().items(), ids=lambda one: getattr(one, "name", ""))
def test_what_is_committed_is_what_the_server_says(path: Path, text: str) -> None:
    assert path.read_text(encoding="utf-8") == text, f"run make api, and commit {path.name}"
