"""What is derived from the code and committed is what the code says."""

from __future__ import annotations

import build_derived


def test_what_is_committed_is_what_the_server_says() -> None:
    outdated = [path.name for path, text in build_derived.files().items() if path.read_text(encoding="utf-8") != text]
    assert not outdated, "run make api, and commit them"
