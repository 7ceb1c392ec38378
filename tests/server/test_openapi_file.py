"""The description of the API that is committed, from which the page's types are generated, is the server's."""

from __future__ import annotations

import build_openapi


def test_the_committed_description_is_the_servers() -> None:
    committed = build_openapi.FILE.read_text(encoding="utf-8")
    assert committed == build_openapi.described(), "the API changed: run make api, and commit ui/openapi.json"
