"""A console that escapes control characters: names are untrusted, and may contain escape sequences."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from tensight.cli.visible import visible


class LiteralConsole(Console):
    """A console that displays control characters in texts as escapes; only its own styles take effect."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Return a text with its markup applied; called for every string before it is measured and printed."""
        return super().render_str(visible(text), **options)
