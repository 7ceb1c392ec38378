"""No page with code is forgotten: each one that a person may follow has a test that follows it."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.blocks import ROOT, blocks_of

FOLDERS = ("how-to", "tutorials", "concepts")


def test_every_page_with_code_blocks_is_followed() -> None:
    pages = ["README.md", "docs/start.md"]
    for folder in FOLDERS:
        pages += [path.relative_to(ROOT).as_posix() for path in (ROOT / "docs" / folder).glob("*.md")]
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    followed = set(re.findall(r'follow\("([^"]+)"', tests))
    assert followed == {page for page in pages if blocks_of(page)}
